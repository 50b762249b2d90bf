/*
 * test_key: the key's exact text, what changes it, and what does not.
 */
#include "daemon/compile/compile.h"
#include "daemon/base/util.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct compile_file files[] = {{"common/a.cuh", "int a;\n", 7},
											{"ops/x.cuh", "int x;\n", 7}};

static struct compile_job sample(const char *target)
{
	struct compile_job job = {
		.source = "ops/x.cuh", .instantiation = "k<u8, 2>", .files = files, .file_count = 2};

	snprintf(job.target, sizeof(job.target), "%s", target);
	return job;
}

static void digest_of(const char *text, char hex[KERNEL_KEY_HEX])
{
	unsigned char digest[32];
	struct util_hash hash;

	util_hash_begin(&hash);
	util_hash_add(&hash, text, strlen(text));
	util_hash_end(&hash, digest);
	util_hex(digest, 32, hex);
}

static void golden_text(void **state)
{
	struct compile_job job = sample("sm_90");
	struct compile_key key;
	char hex[KERNEL_KEY_HEX];

	(void)state;
	assert_int_equal(compile_key_make(&job, "nvrtc 13.0 abcd", &key), KILN_OK);
	assert_string_equal(
		key.text,
		"kiln-key 3\n"
		"target sm_90\n"
		"toolchain nvrtc 13.0 abcd\n"
		"options -std=c++17 -default-device --ptxas-options=-v --minimal --no-cache\n"
		"source ops/x.cuh\n"
		"instantiation k<u8, 2>\n"
		"file dc6d4248e9f032d99ffe5128272822ce843478672dd58a9b464d807c4b64fb6f common/a.cuh\n"
		"file af8a546016ff69f02be05ab8d7b5c8e6314546b46d225fc4ab5271c6b1dada85 ops/x.cuh\n");
	digest_of(key.text, hex);
	assert_string_equal(key.hex, hex);
	compile_key_free(&key);
	assert_null(key.text);
}

static void hex_of(const struct compile_job *job, const char *toolchain, char hex[KERNEL_KEY_HEX])
{
	struct compile_key key;

	assert_int_equal(compile_key_make(job, toolchain, &key), KILN_OK);
	memcpy(hex, key.hex, KERNEL_KEY_HEX);
	compile_key_free(&key);
}

static void all_that_matters_changes_it(void **state)
{
	struct compile_file changed[2];
	char hex[10][KERNEL_KEY_HEX];
	struct compile_job job = sample("sm_90");
	int count = 0;

	(void)state;
	hex_of(&job, "t1", hex[count++]);
	hex_of(&job, "t2", hex[count++]);
	job = sample("sm_80");
	hex_of(&job, "t1", hex[count++]);
	job = sample("cpu");
	hex_of(&job, "t1", hex[count++]);
	job.check = true;
	hex_of(&job, "t1", hex[count++]);
	job = sample("sm_90");
	job.instantiation = "k<u8, 3>";
	hex_of(&job, "t1", hex[count++]);
	job = sample("sm_90");
	memcpy(changed, files, sizeof(changed));
	job.files = changed;
	changed[0].text = "int b;\n";
	hex_of(&job, "t1", hex[count++]);
	changed[0] = files[1];
	changed[1] = files[0]; /* the order of the unit */
	hex_of(&job, "t1", hex[count++]);
	changed[0] = files[0];
	changed[1] = files[1];
	changed[1].name = "ops/y.cuh"; /* it is in the object's line numbers */
	hex_of(&job, "t1", hex[count++]);
	job = sample("sm_90");
	job.file_count = 1;
	hex_of(&job, "t1", hex[count++]);
	for (int i = 0; i < count; i++)
		for (int j = 0; j < i; j++)
			assert_string_not_equal(hex[i], hex[j]);
}

static void the_rest_does_not(void **state)
{
	struct compile_file copies[2] = {{strdup(files[0].name), strdup(files[0].text), 7},
									 {strdup(files[1].name), strdup(files[1].text), 7}};
	struct compile_job job = sample("sm_90");
	char a[KERNEL_KEY_HEX], b[KERNEL_KEY_HEX];

	(void)state;
	hex_of(&job, "t", a);
	job.files = copies;
	job.delay_ms = 5;
	job.test_misdeed = 1;
	hex_of(&job, "t", b);
	assert_string_equal(a, b);
	for (int i = 0; i < 2; i++) {
		free((char *)copies[i].name);
		free((char *)copies[i].text);
	}
}

/* The same kernel from two directories, one of them with more files: the same key. */
static void the_directory_does_not(void **state)
{
	char hex[2][KERNEL_KEY_HEX], root[2][64], command[300];

	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct compile_file *found[COMPILE_MAX_HEADERS];
		struct compile_file closure[COMPILE_MAX_HEADERS];
		struct compile_sources *sources;
		struct compile_job job = sample("sm_90");
		char error[KERNEL_ERROR_MAX];

		snprintf(root[i], sizeof(root[i]), "/tmp/kiln-key.XXXXXX");
		assert_non_null(mkdtemp(root[i]));
		snprintf(command, sizeof(command),
				 "cd %s && %s printf '#include \"a.cuh\"\\nint x;\\n' >x.cuh && echo 'int a;' "
				 ">a.cuh",
				 root[i], i ? "echo 'int o;' >0.cuh &&" : "");
		assert_int_equal(system(command), 0);
		assert_int_equal(compile_sources_open(root[i], &sources, error), KILN_OK);
		assert_int_equal(
			compile_sources_closure(sources, "x.cuh", "sm_90", found, &job.file_count, error),
			KILN_OK);
		assert_int_equal(job.file_count, 2);
		for (int j = 0; j < job.file_count; j++)
			closure[j] = *found[j];
		job.files = closure;
		hex_of(&job, "t", hex[i]);
		compile_sources_close(sources);
		snprintf(command, sizeof(command), "rm -r %s", root[i]);
		assert_int_equal(system(command), 0);
	}
	assert_string_equal(hex[0], hex[1]);
}

/* No value can pretend to be another line. */
static void values_stay_on_their_line(void **state)
{
	struct compile_job job = sample("sm_90");
	struct compile_key key;

	(void)state;
	job.instantiation = "k\nfile 0 \\x";
	assert_int_equal(compile_key_make(&job, "t", &key), KILN_OK);
	assert_non_null(strstr(key.text, "\ninstantiation k\\x0afile 0 \\x5cx\n"));
	compile_key_free(&key);
}

/* From a key and its unit back to a job that makes the same unit for the same compiler. */
static void back_to_the_job(void **state)
{
	static const char *const targets[] = {"sm_90", "cpu"};
	static const char *const user_options[] = {"--use_fast_math", "-std=c++20"};
	struct compile_again again;
	struct compile_key key;
	char error[KERNEL_ERROR_MAX];

	(void)state;
	for (int i = 0; i < 8; i++) {
		struct compile_job job = sample(targets[i & 1]);
		job.check = i & 1 && i & 2;
		if (i & 4) {
			job.user_files = 1;
			job.options = user_options;
			job.option_count = 2;
			job.source = "a \\x41 \xc3\xa4.cu";
		}
		assert_int_equal(compile_key_make(&job, "nvrtc 13.0 abcd", &key), KILN_OK);
		assert_int_equal(compile_again_open(key.text, "the unit\n", &again, error), KILN_OK);
		assert_string_equal(again.toolchain, "nvrtc 13.0 abcd");
		assert_string_equal(again.job.target, job.target);
		assert_string_equal(again.job.source, job.source);
		assert_string_equal(again.job.instantiation, job.instantiation);
		assert_int_equal(again.job.check, job.check);
		assert_int_equal(again.job.user_files, job.user_files);
		assert_int_equal(again.job.option_count, job.option_count);
		for (int k = 0; k < job.option_count; k++)
			assert_string_equal(again.job.options[k], job.options[k]);
		assert_true(again.job.whole);
		assert_int_equal(again.job.file_count, 1);
		assert_int_equal(again.job.files[0].bytes, 9);
		compile_again_close(&again);
		compile_key_free(&key);
	}
}

static void no_way_back(void **state)
{
	static const char *const texts[] = {
		"",
		"kiln-key 1\ntarget sm_90\ntoolchain x\noptions\nsource a\ninstantiation k\n",
		"kiln-key 4\ntarget sm_90\ntoolchain x\noptions\nsource a\ninstantiation k\n",
		"kiln-key 3\ntarget sm_90\ntoolchain x\noptions -O7\nsource a\ninstantiation k\n",
		"kiln-key 3\ntarget sm_90\ntoolchain x\n",
	};
	struct compile_again again;
	char error[KERNEL_ERROR_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		assert_int_equal(compile_again_open(texts[i], "", &again, error), KILN_ENOTSUP);
		assert_string_equal(error, "it was made by a kilnd that gave the compiler other options");
	}
}

/* The key of a job for another target and by another compiler, from its text alone. */
static void from_one_to_another(void **state)
{
	const struct compile_macro macro = {"target", "x\ntoolchain y"};
	const char *const option = "--use_fast_math";
	struct compile_job job = sample("sm_80"), other = sample("sm_90");
	struct compile_key key, wanted, made;

	(void)state;
	for (int user = 0; user < 2; user++) {
		assert_int_equal(compile_key_make(&job, "nvrtc 12.8 abcd", &key), KILN_OK);
		assert_int_equal(compile_key_make(&other, "nvrtc 13.0 ef", &wanted), KILN_OK);
		assert_int_equal(compile_key_again(key.text, "sm_90", "nvrtc 13.0 ef", &made), KILN_OK);
		assert_string_equal(made.text, wanted.text);
		assert_string_equal(made.hex, wanted.hex);
		compile_key_free(&made);
		assert_int_equal(compile_key_again(key.text, "sm_80", "nvrtc 12.8 abcd", &made), KILN_OK);
		assert_string_equal(made.hex, key.hex);
		compile_key_free(&made);
		compile_key_free(&wanted);
		compile_key_free(&key);
		/* A user's, with texts that look like the lines that change. */
		job.user_files = other.user_files = 1;
		job.macros = other.macros = &macro;
		job.macro_count = other.macro_count = 1;
		job.options = other.options = &option;
		job.option_count = other.option_count = 1;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_text),
		cmocka_unit_test(all_that_matters_changes_it),
		cmocka_unit_test(the_rest_does_not),
		cmocka_unit_test(the_directory_does_not),
		cmocka_unit_test(values_stay_on_their_line),
		cmocka_unit_test(back_to_the_job),
		cmocka_unit_test(no_way_back),
		cmocka_unit_test(from_one_to_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
