/*
 * test_key_diff: what two keys differ in, in words: each line of a key, and template-ids argument
 * by argument.
 */
#include "daemon/compile/compile.h"
#include "daemon/base/util.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILE_OF(name, text)          \
	{                                \
		name, text, sizeof(text) - 1 \
	}

static const struct compile_file ours[] = {
	FILE_OF("common/row.cuh", "/* x */\ntemplate <typename T, i64 COLUMNS, int V = 4>\n"
							  "struct RowShape {\n};\ntemplate <class... D>\nstruct List {\n};\n"),
	FILE_OF("ops/tile.cuh", "template <class SHAPE>\nDEVICE void load(SHAPE shape)\n{\n}\n"
							"template <class SHAPE, int ALIGN, bool LOOP, class DIMS>\n"
							"__global__ __launch_bounds__(ALIGN) void tile(const void *x)\n{\n}\n"),
};

static struct compile_job our_job(const char *instantiation)
{
	struct compile_job job = {.target = "sm_90",
							  .source = "ops/tile.cuh",
							  .instantiation = instantiation,
							  .files = ours,
							  .file_count = 2};
	return job;
}

static char *text_of(const struct compile_job *job, const char *compiler)
{
	struct compile_key key;
	assert_int_equal(compile_key_make(job, compiler, &key), KILN_OK);
	return key.text;
}

#define COMPILER "nvrtc 13.0 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* The sentences of what the first has instead of the second, '|' between. */
static const char *differ_by(const struct compile_job *asked, const char *asked_compiler,
							 const struct compile_job *other, const char *other_compiler,
							 int *distance)
{
	static char all[4096];
	struct compile_differences out;
	char *a = text_of(asked, asked_compiler), *b = text_of(other, other_compiler);
	size_t used = 0;
	compile_key_differences(a, b, asked->files, asked->file_count, &out);
	all[0] = 0;
	for (int i = 0; i < out.count; i++)
		used = util_append(all, sizeof(all), used, "%s%s", i ? "|" : "", out.items[i].text);
	if (distance)
		*distance = out.distance;
	free(a);
	free(b);
	return all;
}

static const char *differ(const struct compile_job *asked, const struct compile_job *other)
{
	return differ_by(asked, COMPILER, other, COMPILER, NULL);
}

static void the_same(void **state)
{
	struct compile_job a = our_job("tile<RowShape<f32, 8, 4>, 16, true, List<1>>");
	int distance = -1;
	(void)state;
	assert_string_equal(differ_by(&a, COMPILER, &a, COMPILER, &distance), "");
	assert_int_equal(distance, 0);
}

static void target_and_compiler(void **state)
{
	struct compile_job a = our_job("tile<1>"), b = a;
	(void)state;
	memcpy(b.target, "sm_80", 6);
	assert_string_equal(differ(&b, &a), "target sm_80 instead of sm_90");
	assert_string_equal(differ_by(&a, "nvrtc 13.0 00112233445566778899aabbccddeeff", &a,
								  "nvrtc 12.9 ffeeddccbbaa99887766554433221100", NULL),
						"compiler changed: nvrtc 13.0 001122334455 instead of nvrtc 12.9 "
						"ffeeddccbbaa");
	/* Another kind of device has other options throughout: one sentence is enough. */
	memcpy(b.target, "cpu", 4);
	assert_string_equal(differ_by(&a, COMPILER, &b, "host 00 g++ 12", NULL),
						"target sm_90 instead of cpu");
}

static void arguments_by_name(void **state)
{
	struct compile_job a = our_job("tile<RowShape<f32, 8, 4>, 4, true, List<1, 2>>");
	struct compile_job b = our_job("tile<RowShape<f32, 9, 4>, 16, true, List<1>>");
	int distance;
	(void)state;
	assert_string_equal(differ_by(&a, COMPILER, &b, COMPILER, &distance),
						"COLUMNS of RowShape is 8 instead of 9|ALIGN of tile is 4 instead of 16|"
						"DIMS of tile is List<1, 2> instead of List<1>");
	assert_int_equal(distance, 3);
}

static void arguments_without_names(void **state)
{
	struct compile_job a = our_job("other<f32, 1>"), b = our_job("other<f32, 2>");
	struct compile_job c = our_job("other<f32>"), d = our_job("third<f32, 1>");
	(void)state;
	assert_string_equal(differ(&a, &b), "argument 2 of other is 1 instead of 2");
	assert_string_equal(differ(&a, &c), "other<f32, 1> instead of other<f32>");
	assert_string_equal(differ(&a, &d), "kernel other instead of third");
	c.instantiation = "saxpy";
	d.instantiation = "daxpy";
	assert_string_equal(differ(&c, &d), "kernel saxpy instead of daxpy");
	/* A user may call a kernel anything. */
	a.instantiation = "<1>";
	b.instantiation = "<2>";
	assert_string_equal(differ(&a, &b), "argument 1 of  is 1 instead of 2");
	a.instantiation = "<>";
	b.instantiation = "><";
	assert_string_equal(differ(&a, &b), "kernel  instead of ><");
	a.instantiation = "tile<RowShape<f32, 8>";
	b.instantiation = "tile<RowShape<f32, 9>";
	assert_string_equal(differ(&a, &b),
						"SHAPE of tile is RowShape<f32, 8 instead of RowShape<f32, 9");
}

static void files_changed(void **state)
{
	struct compile_file files[3] = {ours[0], ours[1], FILE_OF("generated.cuh", "int a;")};
	struct compile_job a = our_job("tile<1>"), b = a;
	(void)state;
	a.files = files;
	files[0].text = "int b;";
	files[0].bytes = 6;
	assert_string_equal(differ(&a, &b), "header common/row.cuh changed");
	files[0] = ours[0];
	files[1].bytes--;
	assert_string_equal(differ(&a, &b), "source ops/tile.cuh changed");
	files[1] = ours[1];
	a.file_count = 3;
	assert_string_equal(differ(&a, &b), "generated code generated.cuh added");
	assert_string_equal(differ(&b, &a), "header generated.cuh left out");
	a.file_count = 1;
	a.source = "common/row.cuh";
	assert_string_equal(differ(&a, &b), "source common/row.cuh instead of ops/tile.cuh");
}

static const struct compile_file mine[] = {
	FILE_OF("k.cu", "#include \"a.h\"\n"),
	FILE_OF("a.h", "int a;\n"),
	FILE_OF("b.h", "int b;\n"),
};

static struct compile_job my_job(void)
{
	struct compile_job job = {.target = "sm_90",
							  .source = "k.cu",
							  .instantiation = "k",
							  .files = mine,
							  .file_count = 3,
							  .user_files = 3};
	return job;
}

static void options_of_users(void **state)
{
	static const char *const fast[] = {"--use_fast_math"}, *const cpp20[] = {"-std=c++20"};
	static const char *const few[] = {"--maxrregcount=32"}, *const many[] = {"--maxrregcount=64"};
	static const char *const both[] = {"-lineinfo", "--restrict"}, *const turned[] = {"--restrict",
																					  "-lineinfo"};
	struct compile_job a = my_job(), b = my_job();
	(void)state;
	a.options = fast;
	a.option_count = 1;
	assert_string_equal(differ(&a, &b), "option --use_fast_math added");
	assert_string_equal(differ(&b, &a), "option --use_fast_math left out");
	a.options = cpp20;
	assert_string_equal(differ(&a, &b), "option -std=c++20 instead of -std=c++17");
	a.options = few;
	b.options = many;
	b.option_count = 1;
	assert_string_equal(differ(&a, &b), "option --maxrregcount=32 instead of --maxrregcount=64");
	a.options = both;
	b.options = turned;
	a.option_count = b.option_count = 2;
	assert_string_equal(differ(&a, &b), "options, macros or headers in another order");
}

static void macros_and_headers_of_users(void **state)
{
	static const struct compile_macro four[] = {{"N", "4"}, {"M", "a \\ b"}}, five[] = {{"N", "5"}},
									  twice[] = {{"N", "4"}, {"N", "5"}};
	struct compile_file files[3] = {mine[0], mine[1], mine[2]};
	struct compile_job a = my_job(), b = my_job();
	(void)state;
	a.macros = four;
	a.macro_count = 1;
	assert_string_equal(differ(&a, &b), "macro N=4 added");
	assert_string_equal(differ(&b, &a), "macro N left out");
	b.macros = five;
	b.macro_count = 1;
	a.macro_count = 2;
	assert_string_equal(differ(&a, &b), "macro N=4 instead of 5|macro M=a \\x5c b added");
	/* One that is defined twice differs from itself in nothing. */
	b.macros = twice;
	b.macro_count = 2;
	assert_string_equal(differ(&b, &b), "");
	b = a;
	b.files = files;
	b.file_count = b.user_files = 2;
	assert_string_equal(differ(&a, &b), "header b.h added");
	assert_string_equal(differ(&b, &a), "header b.h left out");
	b.file_count = b.user_files = 3;
	files[1].bytes--;
	assert_string_equal(differ(&a, &b), "header a.h changed");
	files[1] = mine[2];
	files[2] = mine[1];
	assert_string_equal(differ(&a, &b), "options, macros or headers in another order");
}

/* More than there is room for is counted, and of long texts the beginning is kept. */
static void many_differences(void **state)
{
	struct compile_macro macros[COMPILE_MAX_MACROS];
	char names[COMPILE_MAX_MACROS][8], value[600];
	struct compile_job a = my_job(), b = my_job();
	struct compile_differences out;
	(void)state;
	memset(value, 'x', sizeof(value) - 1);
	value[sizeof(value) - 1] = 0;
	for (int i = 0; i < COMPILE_MAX_MACROS; i++) {
		snprintf(names[i], sizeof(names[i]), "M%d", i);
		macros[i] = (struct compile_macro){names[i], value};
	}
	a.macros = macros;
	a.macro_count = COMPILE_MAX_MACROS;
	char *asked = text_of(&a, COMPILER), *other = text_of(&b, COMPILER);
	compile_key_differences(asked, other, a.files, a.file_count, &out);
	assert_int_equal(out.count, COMPILE_DIFFERENCES);
	assert_int_equal(out.left_out, COMPILE_MAX_MACROS - COMPILE_DIFFERENCES);
	assert_int_equal(out.distance, COMPILE_MAX_MACROS);
	assert_int_equal(strlen(out.items[0].text), sizeof(out.items[0].text) - 1);
	assert_string_equal(out.items[0].what, "macro");
	free(asked);
	free(other);
}

/* A row may be of another schema, or of none. */
static void strange_texts(void **state)
{
	struct compile_job a = our_job("tile<1>");
	struct compile_differences out;
	char *asked = text_of(&a, COMPILER);
	(void)state;
	compile_key_differences(asked, "kiln-key 7\ntarget\nfile\nmacro\n\n \noptions   \n", ours, 2,
							&out);
	assert_true(out.count > 0);
	assert_string_equal(out.items[0].text, "key schema 3 instead of 7");
	compile_key_differences("", "", ours, 2, &out);
	assert_int_equal(out.count, 0);
	compile_key_differences("macro", "", ours, 2, &out);
	assert_int_equal(out.count, 1);
	free(asked);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same),
		cmocka_unit_test(target_and_compiler),
		cmocka_unit_test(arguments_by_name),
		cmocka_unit_test(arguments_without_names),
		cmocka_unit_test(files_changed),
		cmocka_unit_test(options_of_users),
		cmocka_unit_test(macros_and_headers_of_users),
		cmocka_unit_test(many_differences),
		cmocka_unit_test(strange_texts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
