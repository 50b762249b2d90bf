/*
 * test_raw_unit: what a compiler sees of a user's source: includes in place, lines as their author
 * counts them, dynamic shared memory for the cpu device; and the key that it all has.
 */
#include "daemon/compile/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILE_OF(name, text)      \
	{                            \
		name, text, strlen(text) \
	}

static struct compile_job job_of(const char *target, const struct compile_file *files, int count)
{
	struct compile_job job = {
		.source = files[0].name, .instantiation = "k", .files = files, .file_count = count};
	job.user_files = count;
	snprintf(job.target, sizeof(job.target), "%s", target);
	return job;
}

static void expect_unit(const struct compile_job *job, const char *expected)
{
	char error[KERNEL_ERROR_MAX] = "", *text = NULL;
	assert_int_equal(unit_make(job, &text, error), KILN_OK);
	assert_string_equal(text, expected);
	free(text);
}

/* ---- Includes ---- */

static void headers_go_where_they_are_included(void **state)
{
	const struct compile_macro macros[] = {{"N", "4"}, {"F(a)", "(a + 1)"}};
	const struct compile_file files[] = {
		FILE_OF("my kernel.cu", "  #include <a.h> // one\nint k = N;"),
		FILE_OF("a.h", "#pragma once // a\nint a;\n#include \"b/b.h\"\n"),
		FILE_OF("b/b.h", "int b; /*\n#include \"a.h\"\n*/"),
	};
	struct compile_job job = job_of("sm_90", files, 3);

	(void)state;
	job.macros = macros;
	job.macro_count = 2;
	expect_unit(&job, "#define KILN_CPU 0\n"
					  "#line 1 \"macros\"\n"
					  "#define N 4\n"
					  "#define F(a) (a + 1)\n"
					  "#line 1 \"my kernel.cu\"\n"
					  "#ifndef KILN_ONCE_1\n"
					  "#define KILN_ONCE_1\n"
					  "#line 1 \"a.h\"\n"
					  " // a\n"
					  "int a;\n"
					  "#line 1 \"b/b.h\"\n"
					  "int b; /*\n#include \"a.h\"\n*/\n"
					  "#line 3 \"a.h\"\n"
					  "\n"
					  "#endif\n"
					  "#line 1 \"my kernel.cu\"\n"
					  " // one\n"
					  "int k = N;\n");
}

/* Text that a branch leaves out takes its #line with it, so the unit says the line again behind the
 * branch, when all of the directive has been read. */
static void lines_are_right_behind_branches(void **state)
{
	const struct compile_file files[] = {
		FILE_OF("k.cu",
				"#if A\n#include \"a.h\"\n#elif B && \\\n	C\nint b;\n#endif /* of\n A */\n"
				"int k;\n#ifdef D\n#endif\n"),
		FILE_OF("a.h", "int a;\n"),
	};
	const struct compile_job job = job_of("sm_90", files, 2);

	(void)state;
	expect_unit(&job, "#define KILN_CPU 0\n"
					  "#line 1 \"k.cu\"\n"
					  "#if A\n"
					  "#line 1 \"a.h\"\n"
					  "int a;\n"
					  "#line 2 \"k.cu\"\n"
					  "\n"
					  "#elif B && \\\n	C\n"
					  "\n#line 5 \"k.cu\"\n"
					  "int b;\n"
					  "#endif /* of\n A */\n"
					  "\n#line 8 \"k.cu\"\n"
					  "int k;\n"
					  "#ifdef D\n"
					  "#endif\n"
					  "\n#line 11 \"k.cu\"\n");
}

/* A directive may begin behind a comment and go on for lines: what follows keeps its number. */
static void directives_of_several_lines_keep_the_lines(void **state)
{
	const struct compile_file files[] = {
		FILE_OF("k.cu", "/* a\n */ #include /* b\n */ \"a.h\" // c\nint k;\n"
						"#include \\\n \"none.h\"\n#include \\\n NAME\n"
						"#if __has_include( \\\n <a.h>)\nint l;\n#endif\n"),
		FILE_OF("a.h", "/**/ # pragma /*\n*/ once\nint a;\n"),
	};
	struct compile_job job = job_of("cpu", files, 2);
	char error[KERNEL_ERROR_MAX], *text;

	(void)state;
	job.by_name = true;
	assert_int_equal(unit_make(&job, &text, error), KILN_OK);
	assert_non_null(strstr(text, "#line 1 \"k.cu\"\n"
								 "#ifndef KILN_ONCE_1\n#define KILN_ONCE_1\n"
								 "#line 1 \"a.h\"\n"
								 "\n\nint a;\n"
								 "#endif\n"
								 "#line 3 \"k.cu\"\n"
								 " // c\nint k;\n"
								 "\n#error \"none.h\" is not among the headers"));
	assert_non_null(strstr(text, " is possible\n\n#if \\\n(1)\nint l;\n#endif\n"
								 "\n#line 13 \"k.cu\"\n"));
	free(text);
}

static void what_did_not_come_is_an_error_where_it_counts(void **state)
{
	const struct compile_file files[] = {
		FILE_OF("k.cu", "#include \"/etc/passwd\" // no\n#include NAME\n#include_next <a.h>\n"
						"#include \"k.cu\"\n#include <\"quoted\">\n"),
		FILE_OF("a.h", "int a;\n"),
	};
	const struct compile_job job = job_of("sm_90", files, 2);

	(void)state;
	expect_unit(&job,
				"#define KILN_CPU 0\n"
				"#line 1 \"k.cu\"\n"
				"#error \"/etc/passwd\" is not among the headers that came with the source // no\n"
				"#error only #include of a name that came with the source is possible\n"
				"#error only #include of a name that came with the source is possible\n"
				"#error \"k.cu\" is not among the headers that came with the source\n"
				"#error only #include of a name that came with the source is possible\n");
}

static void circles_end(void **state)
{
	const struct compile_file files[] = {
		FILE_OF("k.cu", "#include \"a.h\"\n"),
		FILE_OF("a.h", "#include \"b.h\"\nint a;\n"),
		FILE_OF("b.h", "#include \"a.h\"\nint b;\n"),
	};
	const struct compile_job job = job_of("sm_90", files, 3);

	(void)state;
	expect_unit(&job, "#define KILN_CPU 0\n"
					  "#line 1 \"k.cu\"\n"
					  "#line 1 \"a.h\"\n"
					  "#line 1 \"b.h\"\n"
					  "\nint b;\n"
					  "#line 1 \"a.h\"\n"
					  "\nint a;\n"
					  "#line 1 \"k.cu\"\n"
					  "\n");
}

/* Each header includes the two behind it, and so there are more ways than a text has room for. */
static void headers_with_guards_are_placed_once(void **state)
{
	enum { HEADERS = 60 };
	static char names[HEADERS + 2][8], texts[HEADERS + 2][160];
	struct compile_file files[HEADERS + 2];
	char error[KERNEL_ERROR_MAX], *text;

	(void)state;
	for (int i = 0; i <= HEADERS + 1; i++) {
		snprintf(names[i], sizeof(names[i]), "h%d", i);
		snprintf(
			texts[i], sizeof(texts[i]),
			i % 2 ? "// %d\n# ifndef H_%d /* */\n#define H_%d\n#include \"h%d\"\n#include \"h%d\"\n"
					"#endif // H\n/* end */\n"
				  : "#pragma once // %d %d %d\n#include \"h%d\"\n#include \"h%d\"\n",
			i, i, i, i + 1 <= HEADERS ? i + 1 : 1, i + 2 <= HEADERS ? i + 2 : 1);
		files[i] = (struct compile_file){names[i], texts[i], strlen(texts[i])};
	}
	const struct compile_job job = job_of("sm_90", files, HEADERS + 1);
	assert_int_equal(unit_make(&job, &text, error), KILN_OK);
	assert_in_range(strlen(text), HEADERS * 40, HEADERS * 400);
	for (int i = 1; i <= HEADERS; i += 2) {
		char line[40];
		snprintf(line, sizeof(line), "#define H_%d\n", i);
		const char *found = strstr(text, line);
		assert_non_null(found);
		assert_null(strstr(found + 1, line));
	}
	free(text);
}

/* If it is not sure that the first one counts, the unit has the next one as well. */
static void others_are_placed_as_often_as_they_are_included(void **state)
{
	static const char *const twice[] = {
		"int h;\n",
		"#ifndef G\n#define G\nint h;\n#else\nint h2;\n#endif\n",
		"#ifndef G\n#define G\n#endif\nint h;\n",
		"int h;\n#ifndef G\n#define G\n#endif\n",
		"#ifndef G\n#define G\nint h;\n#endif\n#undef G\n",
		"#ifndef G\n#define OTHER\nint h;\n#endif\n",
		"#if !G\n#define G 1\nint h;\n#endif\n",
		"#ifndef GIVEN\n#define GIVEN\nint h;\n#endif\n",
		"#ifndef SAME\n#define SAME\nint h;\n#endif\n",
		"#ifndef MAIN\n#define MAIN\nint h;\n#endif\n",
		"#ifndef G\n#endif\n#define G\nint h;\n",
		"#ifndef G\nint h;\n#define G\n#endif\n",
		"#ifndef G\n// \\\n#define G\nint h;\n#endif\n",
		"#ifndef G /*\n*/ #define G\nint h;\n#endif\n",
		"#ifndef __G\n#define __G\nint h;\n#endif\n",
	};
	const struct compile_macro given = {"GIVEN", "1"};
	struct compile_file files[] = {
		FILE_OF("k.cu", "#define MAIN\n#include \"h\"\n#include \"h\"\n"), FILE_OF("h", ""),
		FILE_OF("g", "#ifndef SAME\n#define SAME\n#endif\n")};
	char error[KERNEL_ERROR_MAX], *text;

	(void)state;
	for (size_t i = 0; i < sizeof(twice) / sizeof(*twice) + 2; i++) {
		static const char once[] = "#ifndef G\n#define G\nint h;\n#endif\n";
		bool last = i >= sizeof(twice) / sizeof(*twice);
		files[1].text = last ? once : twice[i];
		files[1].bytes = strlen(files[1].text);
		/* At the end one that counts once, but first in a branch. */
		if (i > sizeof(twice) / sizeof(*twice))
			files[0] = (struct compile_file)FILE_OF(
				"k.cu", "#ifdef A\n#include \"h\"\n#endif\n#include \"h\"\n#include \"h\"\n");
		struct compile_job job = job_of("cpu", files, 3);
		job.macros = &given;
		job.macro_count = 1;
		assert_int_equal(unit_make(&job, &text, error), KILN_OK);
		const char *first = strstr(text, "int h;\n");
		assert_non_null(first);
		const char *second = strstr(first + 1, "int h;\n");
		assert_int_equal(second != NULL, i != sizeof(twice) / sizeof(*twice));
		assert_null(second ? strstr(second + 1, "int h;\n") : NULL);
		free(text);
	}
}

/* "int t;" is there twice, or it would be left out where the compiler wants it. */
static const struct {
	const char *source, *first, *second;
} conditions[] = {
	/* Another file decides. */
	{"#define NO_FALLBACK\n#include \"1.h\"\n#include \"2.h\"\n",
	 "#ifndef NO_FALLBACK\n#include \"2.h\"\n#endif\n", "#pragma once\nint t;\n"},
	/* A comment names the macro, and the header has another effect each time. */
	{"// #define SKIP\n#define ITEM a\n#include \"1.h\"\n#undef ITEM\n#define ITEM b\n"
	 "#include \"1.h\"\n",
	 "#ifndef SKIP\nint t;\n#endif\n", ""},
	/* The macro is there before the user's text begins. */
	{"#include \"1.h\"\n#include \"2.h\"\n",
	 "#ifndef __CUDACC__\n#define __CUDACC__\n#include \"2.h\"\n#endif\n",
	 "#ifndef T_H\n#define T_H\nint t;\n#endif\n"},
	{"#include \"1.h\"\n#include \"2.h\"\n",
	 "#ifndef _GNU_SOURCE\n#define _GNU_SOURCE\n#include \"2.h\"\n#endif\n",
	 "#pragma once\nint t;\n"},
	{"#include \"1.h\"\n#include \"2.h\"\n",
	 "#ifndef KILN_CPU\n#define KILN_CPU 0\n#include \"2.h\"\n#endif\n", "#pragma once\nint t;\n"},
	{"#include \"1.h\"\n#include \"2.h\"\n",
	 "#ifndef GIVEN\n#define GIVEN\n#include \"2.h\"\n#endif\n", "#pragma once\nint t;\n"},
	{"#include \"1.h\"\n#include \"2.h\"\n",
	 "#ifndef SHIM\n#define SHIM\n#include \"2.h\"\n#endif\n", "#pragma once\nint t;\n"},
	/* A comment stands before the condition. */
	{"/* no */ # /* no */ if 0\n#include \"1.h\"\n/* no\n */ #endif\n#include \"1.h\"\n",
	 "#pragma once\nint t;\n", ""},
	{"/* no\n */ #if 0\n#include \"1.h\"\n#endif\n#include \"1.h\"\n", "#pragma once\nint t;\n",
	 ""},
	{"#define G\n#include \"1.h\"\n#include \"1.h\"\n",
	 "#ifndef H\n#define H\n/* or */ #else\nint t;\n#endif\n", ""},
	/* The macro goes again. */
	{"#pragma push_macro(\"G\")\n#include \"1.h\"\n#pragma pop_macro(\"G\")\n"
	 "#include \"1.h\"\n",
	 "#ifndef G\n#define G\nint t;\n#endif\n", ""},
};

static void a_condition_that_others_decide_is_no_guard(void **state)
{
	const struct compile_macro given = {"GIVEN", "1"};
	struct compile_file files[] = {FILE_OF("cpu/shim.cuh", "#define SHIM\n"), FILE_OF("k.cu", ""),
								   FILE_OF("1.h", ""), FILE_OF("2.h", "")};
	char error[KERNEL_ERROR_MAX], *text;

	(void)state;
	for (size_t i = 0; i < sizeof(conditions) / sizeof(*conditions); i++) {
		const char *texts[] = {conditions[i].source, conditions[i].first, conditions[i].second};
		for (int k = 0; k < 3; k++) {
			files[k + 1].text = texts[k];
			files[k + 1].bytes = strlen(texts[k]);
		}
		struct compile_job job = job_of("cpu", files, 4);
		job.source = "k.cu";
		job.user_files = 3;
		job.macros = &given;
		job.macro_count = 1;
		assert_int_equal(unit_make(&job, &text, error), KILN_OK);
		const char *first = strstr(text, "int t;\n");
		if (!first || !strstr(first + 1, "int t;\n"))
			fail_msg("condition %zu is taken for a guard:\n%s", i, text);
		free(text);
	}
}

/* Each header includes the next one twice: a unit that doubles thirty times over. */
static void a_unit_has_a_size(void **state)
{
	enum { HEADERS = 30 };
	static char names[HEADERS + 1][8], texts[HEADERS + 1][64];
	struct compile_file files[HEADERS + 1];
	char error[KERNEL_ERROR_MAX], *text;

	(void)state;
	for (int i = 0; i <= HEADERS; i++) {
		snprintf(names[i], sizeof(names[i]), "h%d", i);
		snprintf(texts[i], sizeof(texts[i]), "#include \"h%d\"\n#include \"h%d\"\n", i + 1, i + 1);
		files[i] = (struct compile_file){names[i], texts[i], strlen(texts[i])};
	}
	files[HEADERS].bytes = 0;
	const struct compile_job job = job_of("sm_90", files, HEADERS + 1);
	assert_int_equal(unit_make(&job, &text, error), KILN_EINVAL);
	assert_non_null(strstr(error, "h0 has more than 16777216 bytes with all that it includes"));
}

/* An include that places nothing takes one byte of the unit, and its time. */
static void a_unit_has_a_number_of_includes(void **state)
{
	enum { LINES = 1001 };
	static const char lines[2][14] = {"#include \"a\"\n", "#include \"b\"\n"};
	static char texts[2][LINES * 13 + 1];
	struct compile_file files[] = {FILE_OF("k.cu", ""), FILE_OF("a", ""),
								   FILE_OF("b", "#pragma once\n")};
	char error[KERNEL_ERROR_MAX], *text;

	(void)state;
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < LINES; k++)
			memcpy(texts[i] + k * 13, lines[i], 13);
		files[i].text = texts[i];
		files[i].bytes = LINES * 13;
	}
	struct compile_job job = job_of("sm_90", files, 3);
	assert_int_equal(unit_make(&job, &text, error), KILN_EINVAL);
	assert_string_equal(error,
						"k.cu has more than 1000000 #include lines with all that it includes");
	files[0].bytes /= 2;
	assert_int_equal(unit_make(&job, &text, error), KILN_OK);
	free(text);
}

/* ---- Headers that the compiler finds by name ---- */

static void some_headers_go_by_name(void **state)
{
	enum { MANY = 60 };
	static char names[MANY][8];
	struct compile_file files[MANY] = {FILE_OF("k.cu", "#include \"h1\"\nint k;")};
	struct compile_file asks[] = {FILE_OF("k.cu", "#include \"h1\"\n"), FILE_OF("h1", "")};
	static const char *const by_name[] = {"#if __has_include(<x>)\n#endif\n",
										  "#define H <x>\n# include H\n"};

	(void)state;
	for (int i = 1; i < MANY; i++) {
		snprintf(names[i], sizeof(names[i]), "h%d", i);
		files[i] = (struct compile_file){names[i], "int h;\n", 7};
	}
	struct compile_job job = job_of("sm_90", files, MANY), few = job_of("sm_90", asks, 2);
	struct compile_key placed, named;
	char error[KERNEL_ERROR_MAX], *text;
	assert_true(compile_wants_names(&job));
	assert_false(compile_wants_names(&few));
	for (int i = 0; i < 2; i++) {
		asks[1].text = by_name[i];
		asks[1].bytes = strlen(by_name[i]);
		assert_true(compile_wants_names(&few));
	}
	/* Without a header nothing can be found. */
	few.user_files = few.file_count = 1;
	assert_false(compile_wants_names(&few));
	assert_int_equal(compile_key_make(&job, "id", &placed), KILN_OK);
	job.by_name = true;
	expect_unit(&job, "#define KILN_CPU 0\n#line 1 \"k.cu\"\n#include \"h1\"\nint k;\n");
	assert_int_equal(compile_key_make(&job, "id", &named), KILN_OK);
	assert_string_not_equal(placed.hex, named.hex);
	compile_key_free(&placed);
	compile_key_free(&named);
	/* The host's compiler is given none. */
	snprintf(job.target, sizeof(job.target), "cpu");
	assert_false(compile_wants_names(&job));
	files[1] = (struct compile_file)FILE_OF(
		"h1", "#if __has_include(<h2>) && !__has_include(\"none\")\nint h;\n#endif\n");
	assert_true(compile_wants_names(&job));
	assert_int_equal(unit_make(&job, &text, error), KILN_OK);
	assert_non_null(strstr(text, "\n#if (1) && !(0)\nint h;\n"));
	free(text);
	/* A text that did not come. */
	files[2].text = NULL;
	assert_int_equal(unit_make(&job, &text, error), KILN_EINVAL);
	assert_string_equal(error, "the text of h2 did not come with it");
}

/* ---- What may not be in a job ---- */

static void expect_refused(const struct compile_job *job, const char *word)
{
	char error[KERNEL_ERROR_MAX] = "";
	assert_int_equal(compile_check_user(job, error), KILN_EINVAL);
	if (!strstr(error, word))
		fail_msg("the sentence \"%s\" does not say \"%s\"", error, word);
}

static void wrong_jobs_are_refused(void **state)
{
	static const char *const wrong[] = {"-I.",
										"-Ifoo",
										"--include-path=/",
										"-DX=1",
										"-std=c++98",
										"--maxrregcount=",
										"--maxrregcount=32 -I/",
										"--fmad",
										"-arch=sm_75",
										"",
										"--use_fast_math "};
	static const char *const right[] = {"-std=c++20", "--maxrregcount=32", "--use_fast_math"};
	const char *const *options = right;
	struct compile_file files[] = {FILE_OF("k.cu", "int k;\n"), FILE_OF("a.h", ""),
								   FILE_OF("b.h", "")};
	struct compile_macro macro = {"A", "1"};
	struct compile_job job = job_of("sm_90", files, 3);
	char error[KERNEL_ERROR_MAX];

	(void)state;
	job.macros = &macro;
	job.macro_count = 1;
	job.options = options;
	job.option_count = 3;
	assert_int_equal(compile_check_user(&job, error), KILN_OK);
	job.option_count = 1;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		job.options = &wrong[i];
		expect_refused(&job, "is not allowed");
	}
	job.option_count = 0;
	macro.value = "1\n#include";
	expect_refused(&job, "one line");
	macro.value = "1 \\";
	expect_refused(&job, "one line");
	macro = (struct compile_macro){"A B", "1"};
	expect_refused(&job, "an identifier");
	job.macro_count = 0;
	files[2].name = "a.h";
	expect_refused(&job, "two headers a.h");
	files[2].name = "b\n.h";
	expect_refused(&job, "no quotes");
	files[2] = (struct compile_file){"b.h", "a\0b", 3};
	expect_refused(&job, "b.h has a zero byte");
}

/* ---- The key ---- */

static void all_of_a_job_is_in_its_key(void **state)
{
	static const char *const fast[] = {"--use_fast_math"};
	struct compile_file files[] = {FILE_OF("k.cu", "int k;\n"), FILE_OF("a.h", "int a;\n")};
	struct compile_macro macro = {"A", "1"};
	const struct compile_job plain = job_of("sm_90", files, 2);
	struct compile_job jobs[5];
	struct compile_key keys[6];

	(void)state;
	for (int i = 0; i < 5; i++)
		jobs[i] = plain;
	jobs[1].options = fast;
	jobs[1].option_count = 1;
	jobs[2].macros = &macro;
	jobs[2].macro_count = 1;
	jobs[3].instantiation = "other";
	jobs[4].user_files = 0; /* the same files as a template of ours */
	for (int i = 0; i < 5; i++)
		assert_int_equal(compile_key_make(&jobs[i], "nvrtc 13", &keys[i]), KILN_OK);
	files[1].text = "int b;\n";
	assert_int_equal(compile_key_make(&plain, "nvrtc 13", &keys[5]), KILN_OK);
	for (int i = 0; i < 6; i++)
		for (int k = 0; k < i; k++)
			assert_string_not_equal(keys[i].hex, keys[k].hex);
	assert_non_null(strstr(keys[0].text, "\nuser 2\n"));
	assert_non_null(strstr(keys[0].text, "options -std=c++17 --ptxas-options=-v --no-cache\n"));
	assert_non_null(strstr(keys[1].text, "\noption --use_fast_math\n"));
	assert_non_null(strstr(keys[2].text, "\nmacro A\nis 1\n"));
	assert_null(strstr(keys[4].text, "\nuser"));
	for (int i = 0; i < 6; i++)
		compile_key_free(&keys[i]);
}

/* ---- Dynamic shared memory on the cpu device ---- */

static const struct {
	const char *from, *to;
} rewrites[] = {
	{"void f() { extern __shared__ float s[]; }",
	 "void f() { float *s = (float *)kiln_cpu_self->shared; }"},
	{"extern __shared__ float s[];", "static kiln_cpu::dynamic_shared<float > s;"},
	{"namespace a::b { extern \"C\" { extern __shared__ int s[]; } }",
	 "namespace a::b { extern \"C\" { static kiln_cpu::dynamic_shared<int > s; } }"},
	{"namespace { void f() { { __shared__ extern\n\tunsigned char /* [ */ s [\n] ; } } }",
	 "namespace { void f() { { unsigned char *s = (unsigned char *)kiln_cpu_self->shared;\n\n } } "
	 "}"},
	{"{ extern __shared__ __align__(sizeof(T) * (2)) volatile std::pair<T, 4> s[]; }",
	 "{ volatile std : : pair < T , 4 > *s = (volatile std : : pair < T , 4 > "
	 "*)kiln_cpu_self->shared; }"},
	/* Everything else stays as it is, to the byte. */
	{"__shared__ float s[4]; extern int x[]; extern __shared__ float t;", NULL},
	{"// extern __shared__ float s[];\n/* extern __shared__ float s[]; */", NULL},
	{"const char *a = \"extern __shared__ float s[];\", b = '\"'; int n = 1'000;", NULL},
	{"auto r = R\"x(extern __shared__ float s[];)\" )x\"; \"unfinished", NULL},
	{"extern __shared__ float s[", NULL},
	{"extern", NULL},
	{"", NULL},
};

static void dynamic_shared_memory_is_rewritten(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rewrites) / sizeof(*rewrites); i++) {
		const char *to = rewrites[i].to ? rewrites[i].to : rewrites[i].from;
		struct compile_file file = {"k.cu", rewrites[i].from, strlen(rewrites[i].from)};
		struct util_text out = {0};
		shared_rewrite(&file, &out);
		/* Blanks between the words of a type do not matter. */
		char squeezed[2][512] = {"", ""};
		const char *texts[2] = {out.text ? out.text : "", to};
		for (int k = 0; k < 2; k++)
			for (size_t n = 0; *texts[k]; texts[k]++)
				if (*texts[k] != ' ' && n < 511)
					squeezed[k][n++] = *texts[k];
		assert_string_equal(squeezed[0], squeezed[1]);
		util_text_free(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers_go_where_they_are_included),
		cmocka_unit_test(lines_are_right_behind_branches),
		cmocka_unit_test(directives_of_several_lines_keep_the_lines),
		cmocka_unit_test(what_did_not_come_is_an_error_where_it_counts),
		cmocka_unit_test(circles_end),
		cmocka_unit_test(headers_with_guards_are_placed_once),
		cmocka_unit_test(others_are_placed_as_often_as_they_are_included),
		cmocka_unit_test(a_condition_that_others_decide_is_no_guard),
		cmocka_unit_test(a_unit_has_a_size),
		cmocka_unit_test(a_unit_has_a_number_of_includes),
		cmocka_unit_test(some_headers_go_by_name),
		cmocka_unit_test(wrong_jobs_are_refused),
		cmocka_unit_test(all_of_a_job_is_in_its_key),
		cmocka_unit_test(dynamic_shared_memory_is_rewritten),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
