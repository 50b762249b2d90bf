/*
 * test_scan: directives are found as compilers find them, whatever stands around and within them.
 * test_includes compares directives.txt with a compiler and with the library's finder.
 */
#include "daemon/compile/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *read_directives(void)
{
	char path[4096];
	size_t bytes;

	snprintf(path, sizeof(path), "%s/tests/unit/compile/directives.txt", getenv("SOURCE_DIR"));
	char *text = util_read_file(path, 1 << 20, &bytes);
	assert_non_null(text);
	return text;
}

/* With "\r\n" for each newline. */
static char *with_returns(const char *text)
{
	struct util_text out = {0};

	for (; *text; text++)
		util_text_bytes(&out, *text == '\n' ? "\r\n" : text, *text == '\n' ? 2 : 1);
	assert_false(out.failed);
	return out.text;
}

/* Compares the includes with y01.h, y02.h, ... and each place with what the text says. */
static int count_includes(const char *text)
{
	const struct compile_file file = {"k.cu", text, strlen(text)};
	struct scan scan;
	struct scan_line line;
	enum scan_kind kind;
	const char *expected = text;
	int count = 0;

	scan_begin(&scan, &file);
	while ((kind = scan_next(&scan, &line)) != SCAN_END) {
		assert_ptr_equal(line.text, expected);
		expected = line.text + line.bytes;
		assert_int_equal(scan.line, scan_newlines(text, (size_t)(expected - text)));
		if (kind != SCAN_INCLUDE && kind != SCAN_FOREIGN)
			continue;
		char name[16];
		snprintf(name, sizeof(name), "y%02d", ++count);
		if (strncmp(line.name, name, 3) != 0)
			fail_msg("line %d includes \"%s\" and not %s", line.number, line.name, name);
		const char *mark = line.text + line.mark;
		assert_true(*mark == '#' || strncmp(mark, "%:", 2) == 0);
		assert_int_equal(line.number, 1 + scan_newlines(text, (size_t)(mark - text)));
		char last = mark[line.mark_bytes - 1];
		assert_int_equal(last, kind == SCAN_INCLUDE ? '"' : '>');
	}
	assert_ptr_equal(expected, text + strlen(text));
	return count;
}

static void includes_are_found_as_compilers_find_them(void **state)
{
	char *text = read_directives(), *returns = with_returns(text);

	(void)state;
	assert_int_equal(count_includes(text), 22);
	assert_int_equal(count_includes(returns), 22);
	free(returns);
	free(text);
}

/* A text may end anywhere. */
static void texts_that_are_cut_off_end(void **state)
{
	char *text = read_directives();
	size_t bytes = strlen(text);

	(void)state;
	for (size_t cut = 0; cut <= bytes; cut++) {
		char *copy = malloc(cut ? cut : 1); /* without the byte behind it */
		assert_non_null(copy);
		memcpy(copy, text, cut);
		const struct compile_file file = {"k.cu", copy, cut};
		struct scan scan;
		struct scan_line line;
		size_t read = 0;
		scan_begin(&scan, &file);
		while (scan_next(&scan, &line) != SCAN_END)
			read += line.bytes;
		assert_int_equal(read, cut);
		free(copy);
	}
	free(text);
}

static const struct {
	const char *text;
	const char *tokens; /* a blank between each */
} texts[] = {
	{"a/**/b // c\nd", "a b \n d"},
	{"x = y\\\nz;", "x = y\\\nz ;"},
	{"%:%: # %", "%: %: # %"},
	{"'\\'' '\"'\"'\"", "'\\'' '\"' \"'\""},
	{"1'000 0x1'fp 2'", "1'000 0x1'fp 2 '"},
	{"u8'a'L'b'", "u8 'a' L 'b'"},
	{"R\"()\" uR\"x()\")x\"R\"(", "R\"()\" uR\"x()\")x\" R\"("},
	{"xR\"(\" R\"a b(\" )\"", "xR \"(\" R \"a b(\" ) \""},
	{"R\"0123456789abcdefg()0123456789abcdefg\"", "R \"0123456789abcdefg()0123456789abcdefg\""},
	{"R\"0123456789abcdef()\")0123456789abcdef\"", "R\"0123456789abcdef()\")0123456789abcdef\""},
	{"\"open\n\"so\\\nit\"", "\"open \n \"so\\\nit\""},
	{"\xc3\xa9R\"(\" /", "\xc3\xa9R \"(\" /"},
	{"/* open", ""},
	{"\\", "\\"},
};

static void tokens_are_those_of_the_language(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct lex lex = {texts[i].text, texts[i].text + strlen(texts[i].text)};
		struct lex_token token;
		char found[256] = "";
		size_t used = 0;
		while ((token = lex_next(&lex)).kind != LEX_END)
			used += (size_t)snprintf(found + used, sizeof(found) - used, "%s%.*s", used ? " " : "",
									 (int)token.bytes, token.text);
		assert_string_equal(found, texts[i].tokens);
	}
}

/* The includes of a header that is guarded are placed once; see test_raw_unit. */
static const struct {
	const char *header, *other;
	bool guarded;
} guards[] = {
	{"#ifndef G\n#define G\n#endif\n", "", true},
	{"/*\n*/ %: /**/ ifndef /* x */ G // y\n\n/*\n*/#/**/define /* x */ G\n/* */#endif /*\n*/ //",
	 "", true},
	{"#ifndef G\n#define G R\"(\n#else\n)\"\nchar c = '\"'; // \\\n#else\n#endif\n", "", true},
	{"#ifndef G\n#define G\n#endif\n", "// #define G\nconst char *s = \"#define G\";\n", true},
	{"#ifndef G\n#define G\n#endif\n", "#if defined(G) && !defined G\n#endif\n", true},
	/* It may be defined elsewhere, or again undefined. */
	{"#ifndef G\n#define G\n#endif\n", "#define /* x */ G\n", false},
	{"#ifndef G\n#define G\n#endif\n", "%:define G\n", false},
	{"#ifndef G\n#define G\n#endif\n", "/*\n*/ # /**/ undef \\\n G\n", false},
	{"#ifndef G1\n#define G1\n#endif\n", "#define G\\\n1\n", false},
	{"#ifndef G\n#define G\n#endif\n", "#define P _Pragma(\"pop_macro(\\\"G\\\")\")\n", false},
	{"#ifndef G\n#define G\n#endif\n", "#pragma pop_macro /* \" */ (\"G\")\n", false},
	/* It is none of the guard. */
	{"#ifndef G\n#define /* G */ H\n#endif\n", "", false},
	{"R\"(\n#ifndef G\n#define G\n#endif\n)\"", "", false},
	{"#ifndef G\n#define G\n/* */ %: else\n#endif\n", "", false},
	{"#ifndef G\n#define G\n#if 1\n// \\\n#endif\n#endif\nint a;\n#ifdef H\n#endif\n", "", false},
	{"#ifndef G\n#define G\n#endif\nR\"(\n)\"", "", false},
	{"#ifndef G\n#define G\nR\"(\n#endif\n", "", false},
};

static void guards_are_found_as_compilers_find_them(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(guards) / sizeof(*guards); i++) {
		const struct compile_file files[] = {
			{"k.cu", "#include \"h\"\n", 13},
			{"h", guards[i].header, strlen(guards[i].header)},
			{"other", guards[i].other, strlen(guards[i].other)},
		};
		const struct compile_job job = {.files = files, .file_count = 3, .user_files = 3};
		enum once once[3];
		once_find(&job, files, 3, once);
		if (once[1] != (guards[i].guarded ? ONCE_GUARD : ONCE_NOT))
			fail_msg("guard %zu: %s", i, guards[i].guarded ? "not found" : "found");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(includes_are_found_as_compilers_find_them),
		cmocka_unit_test(texts_that_are_cut_off_end),
		cmocka_unit_test(tokens_are_those_of_the_language),
		cmocka_unit_test(guards_are_found_as_compilers_find_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
