/*
 * test_sources: embedded and directory sources, the closure of a file, and what it refuses.
 */
#include "daemon/compile/compile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static void put(const char *name, const char *text)
{
	char path[200];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fputs(text, file) >= 0, 1);
	assert_int_equal(fclose(file), 0);
}

static void drop(const char *name)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(remove(path), 0);
}

static int make_root(void **state)
{
	char path[100];

	(void)state;
	snprintf(root, sizeof(root), "/tmp/kiln-sources.XXXXXX");
	if (mkdtemp(root) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/ops", root);
	if (mkdir(path, 0700) != 0)
		return -1;
	snprintf(path, sizeof(path), "%s/cpu", root);
	return mkdir(path, 0700);
}

static int remove_root(void **state)
{
	char command[100];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

/* Names of the closure, space-separated; "status: sentence" when refused. */
static const char *closure(const char *name, const char *target)
{
	static char text[1024];
	const struct compile_file *files[COMPILE_MAX_HEADERS];
	struct compile_sources *sources;
	char error[KERNEL_ERROR_MAX] = "";
	int count = 0, status;
	size_t used = 0;

	assert_int_equal(compile_sources_open(root, &sources, error), KILN_OK);
	status = compile_sources_closure(sources, name, target, files, &count, error);
	text[0] = 0;
	if (status != KILN_OK)
		snprintf(text, sizeof(text), "%d: %s", status, error);
	for (int i = 0; status == KILN_OK && i < count; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? " " : "",
								 files[i]->name);
	compile_sources_close(sources);
	return text;
}

static void headers_come_before_users(void **state)
{
	(void)state;
	put("a.cuh", "#pragma once\nint a;\n");
	put("b.cuh", "/* top */\n#pragma once\n  #  include \"a.cuh\" // why\nint b;");
	put("ops/x.cuh", "#include \"b.cuh\"\n#include \"a.cuh\"\nint x;\n");
	put("cpu/abi.h", "int abi;\n");
	put("cpu/shim.cuh", "#include \"cpu/abi.h\"\n#include \"a.cuh\"\n");
	assert_string_equal(closure("ops/x.cuh", "sm_90"), "a.cuh b.cuh ops/x.cuh");
	assert_string_equal(closure("ops/x.cuh", "cpu"),
						"cpu/abi.h a.cuh cpu/shim.cuh b.cuh ops/x.cuh");
	assert_string_equal(closure("a.cuh", "sm_90"), "a.cuh");
	drop("cpu/abi.h");
	drop("cpu/shim.cuh");
}

static void comments_and_strings_are_passed_over(void **state)
{
	(void)state;
	put("c.cuh", "/* \n#include \"none1.cuh\"\n*/ int x = 1'000;\n"
				 "// #include \"none2.cuh\"\n"
				 "const char *s = \"/*\";\n#include \"a.cuh\" /* begins\n"
				 "#include \"none3.cuh\"\n*/\n"
				 "char q = '\"'; char r = '/'; /**/ int y; /*/\n#include \"none4.cuh\"\n*/\n"
				 "#ifdef NEVER\n#include \"b.cuh\"\n#endif\n#include_x\n");
	assert_string_equal(closure("c.cuh", "sm_90"), "a.cuh b.cuh c.cuh");
}

static void what_is_refused_is_named(void **state)
{
	(void)state;
	put("bad.cuh", "int x;\n#include \"gone.cuh\"\n");
	assert_string_equal(closure("bad.cuh", "sm_90"),
						"-10: bad.cuh:2 includes \"gone.cuh\", which is no kernel source (names "
						"start at the root of kernel_src)");
	put("bad.cuh", "#include <math.h>\n");
	assert_string_equal(closure("bad.cuh", "sm_90"),
						"-1: bad.cuh:1: kernel sources include only each other, as #include "
						"\"directory/name.cuh\"");
	put("bad.cuh", "\n\n#include NAME\n");
	assert_non_null(strstr(closure("bad.cuh", "sm_90"), "bad.cuh:3: kernel sources include only"));
	put("bad.cuh", "#include_next \"a.cuh\"\n");
	assert_non_null(strstr(closure("bad.cuh", "sm_90"), "bad.cuh:1: kernel sources include only"));
	put("bad.cuh", "#include \"a.cuh\n");
	assert_non_null(strstr(closure("bad.cuh", "sm_90"), "bad.cuh:1: kernel sources include only"));
	assert_string_equal(closure("ops/none.cuh", "sm_90"),
						"-10: there is no kernel source ops/none.cuh");
	assert_string_equal(closure("a.cuh", "cpu"), "-10: there is no kernel source cpu/shim.cuh");
	drop("bad.cuh");
}

static void circles_are_refused(void **state)
{
	(void)state;
	put("m.cuh", "#include \"n.cuh\"\n");
	put("n.cuh", "#include \"a.cuh\"\n#include \"m.cuh\"\n");
	assert_string_equal(
		closure("m.cuh", "sm_90"),
		"-1: n.cuh:2 includes \"m.cuh\", which includes n.cuh: includes must not go "
		"in a circle");
	put("m.cuh", "#include \"m.cuh\"\n");
	assert_string_equal(closure("m.cuh", "sm_90"),
						"-1: m.cuh:1 includes \"m.cuh\", which includes itself: includes must not "
						"go in a circle");
	drop("m.cuh");
	drop("n.cuh");
}

static void too_many_files_are_refused(void **state)
{
	char name[32], text[4096] = "";
	size_t used = 0;

	(void)state;
	for (int i = 0; i < COMPILE_MAX_HEADERS; i++) {
		snprintf(name, sizeof(name), "many%d.cuh", i);
		put(name, "int x;\n");
		used += (size_t)snprintf(text + used, sizeof(text) - used, "#include \"%s\"\n", name);
		if (i == COMPILE_MAX_HEADERS - 2) {
			put("user.cuh", text);
			assert_non_null(strstr(closure("user.cuh", "sm_90"), "many62.cuh user.cuh"));
		}
	}
	put("user.cuh", text);
	assert_non_null(strstr(closure("user.cuh", "sm_90"), "-3: "));
	for (int i = 0; i < COMPILE_MAX_HEADERS; i++) {
		snprintf(name, sizeof(name), "many%d.cuh", i);
		drop(name);
	}
	drop("user.cuh");
}

static void directory_errors_name_the_file(void **state)
{
	struct compile_sources *sources = NULL;
	char error[KERNEL_ERROR_MAX], path[100], expected[200];
	FILE *file;

	(void)state;
	assert_int_equal(compile_sources_open("/nonexistent/kernels", &sources, error), KILN_EIO);
	assert_string_equal(error, "cannot read kernel directory /nonexistent/kernels: No such file or "
							   "directory");
	snprintf(path, sizeof(path), "%s/cpu", root);
	assert_int_equal(compile_sources_open(path, &sources, error), KILN_EIO);
	snprintf(expected, sizeof(expected), "kernel directory %s has no .cuh file under it", path);
	assert_string_equal(error, expected);
	snprintf(path, sizeof(path), "%s/zero.cuh", root);
	file = fopen(path, "w");
	assert_non_null(file);
	fwrite("int\0x;", 1, 6, file);
	fclose(file);
	assert_int_equal(compile_sources_open(root, &sources, error), KILN_EIO);
	snprintf(expected, sizeof(expected), "kernel source %s has a zero byte in it", path);
	assert_string_equal(error, expected);
	drop("zero.cuh");
	put("two words.cuh", "");
	assert_int_equal(compile_sources_open(root, &sources, error), KILN_EIO);
	assert_non_null(strstr(error, "two words.cuh"));
	drop("two words.cuh");
	assert_null(sources);
}

static void files_are_found_and_in_order(void **state)
{
	struct compile_sources *sources;
	const struct compile_file *file;
	char error[KERNEL_ERROR_MAX];

	(void)state;
	put("notes.txt", "not a source");
	put(".hidden.cuh", "not this one");
	assert_int_equal(compile_sources_open(root, &sources, error), KILN_OK);
	for (size_t i = 1; (file = compile_sources_at(sources, i)); i++)
		assert_true(strcmp(compile_sources_at(sources, i - 1)->name, file->name) < 0);
	file = compile_sources_find(sources, "a.cuh");
	assert_non_null(file);
	assert_int_equal(file->bytes, strlen("#pragma once\nint a;\n"));
	assert_memory_equal(file->text, "#pragma once\nint a;\n", file->bytes);
	assert_null(compile_sources_find(sources, "notes.txt"));
	assert_null(compile_sources_find(sources, ".hidden.cuh"));
	compile_sources_close(sources);
	compile_sources_close(NULL);
}

static void embedded_sources_are_whole(void **state)
{
	struct compile_sources *sources;
	const struct compile_file *file;
	const struct compile_file *files[COMPILE_MAX_HEADERS];
	char error[KERNEL_ERROR_MAX];
	int count;
	size_t i;

	(void)state;
	assert_int_equal(compile_sources_open(NULL, &sources, error), KILN_OK);
	for (i = 0; (file = compile_sources_at(sources, i)); i++) {
		assert_true(file->bytes > 0);
		assert_int_equal(strlen(file->text), file->bytes);
		assert_ptr_equal(compile_sources_find(sources, file->name), file);
		/* Whatever travels in the binary can be used. */
		if (compile_sources_closure(sources, file->name, "sm_90", files, &count, error))
			fail_msg("%s", error);
		assert_ptr_equal(files[count - 1], file);
	}
	assert_true(i > 0);
	compile_sources_close(sources);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers_come_before_users),
		cmocka_unit_test(comments_and_strings_are_passed_over),
		cmocka_unit_test(what_is_refused_is_named),
		cmocka_unit_test(circles_are_refused),
		cmocka_unit_test(too_many_files_are_refused),
		cmocka_unit_test(directory_errors_name_the_file),
		cmocka_unit_test(files_are_found_and_in_order),
		cmocka_unit_test(embedded_sources_are_whole),
	};

	return cmocka_run_group_tests(tests, make_root, remove_root);
}
