/*
 * plain: every character that is hidden, every byte that is no UTF-8, cuts, room that is too small,
 * and the same rule in messages, JSON and replies.
 */
#include "client/wire/plain.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/wire/wire.h"
#include <kiln/kiln.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

static void becomes(const char *text, enum plain_rule rule, const char *wanted)
{
	char room[256];
	char *copy = plain_copy(text, strlen(text), rule);
	assert_non_null(copy);
	assert_string_equal(copy, wanted);
	assert_int_equal(plain_is(text, strlen(text), rule), strcmp(text, wanted) == 0);
	free(copy);
	assert_true(strlen(text) < sizeof(room));
	memcpy(room, text, strlen(text) + 1);
	assert_int_equal(plain_clean(room, sizeof(room), rule), strlen(wanted));
	assert_string_equal(room, wanted);
}

static void what_steers_a_terminal_is_shown(void **state)
{
	(void)state;
	becomes("plain", PLAIN_LINE, "plain");
	becomes("\x1b]0;x\x07\x7f", PLAIN_LINE, "\\x1b]0;x\\x07\\x7f");
	becomes("\xc2\x9b"
			"31m",
			PLAIN_TEXT, "\\u009b31m");
	becomes("\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8\xe2\x80\x8b\xef\xbb\xbf", PLAIN_TEXT,
			"\\u202e\\u2066\\u2028\\u200b\\ufeff");
	becomes("\xf3\xa0\x81\x81", PLAIN_LINE, "\\U000e0041");
	becomes("gr\xc3\xb6\xc3\x9f"
			"er \xe2\x86\x92 \xf0\x9f\x94\xa5",
			PLAIN_LINE,
			"gr\xc3\xb6\xc3\x9f"
			"er \xe2\x86\x92 \xf0\x9f\x94\xa5");
}

static void lines_and_tabs(void **state)
{
	(void)state;
	becomes("a\tb\r\nc\nd\re", PLAIN_TEXT, "a\tb\r\nc\nd\\x0de");
	becomes("a\tb\r\nc\n", PLAIN_LINE, "a b  c ");
}

static void bytes_that_are_no_utf8(void **state)
{
	(void)state;
	becomes("caf\xe9!", PLAIN_LINE, "caf\\xe9!");
	becomes("\xff\xfe.", PLAIN_LINE, "\\xff\\xfe.");
	becomes("\xc0\xaf.", PLAIN_LINE, "\\xc0\\xaf.");                   /* overlong */
	becomes("\xe0\x80\xaf.", PLAIN_LINE, "\\xe0\\x80\\xaf.");          /* overlong */
	becomes("\xed\xa0\x80.", PLAIN_LINE, "\\xed\\xa0\\x80.");          /* a surrogate */
	becomes("\xf4\x90\x80\x80.", PLAIN_LINE, "\\xf4\\x90\\x80\\x80."); /* beyond U+10FFFF */
	becomes("\x80.", PLAIN_LINE, "\\x80.");
	becomes("\xe2\x82.", PLAIN_LINE, "\\xe2\\x82.");
}

/* Each length of the room: what is there is a whole beginning of what there would be. */
static void no_cut_inside_a_character(void **state)
{
	(void)state;
	static const char text[] = "a\xc3\xa9\x1b\xe2\x82\xac\xc2\x9b\xf0\x9f\x94\xa5\xffz";
	static const char shown[] = "a\xc3\xa9\\x1b\xe2\x82\xac\\u009b\xf0\x9f\x94\xa5\\xffz";
	static const size_t ends[] = {0, 1, 3, 7, 10, 16, 20, 24, 25};
	for (size_t size = 1; size <= sizeof(shown); size++) {
		char room[64];
		size_t wanted = 0;
		for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
			wanted = ends[i] < size ? ends[i] : wanted;
		memset(room, '#', sizeof(room));
		snprintf(room, sizeof(room), "%s", text);
		/* A room as small as that held no more of the text before. */
		if (size < sizeof(text))
			room[size - 1] = 0;
		char *copy = strndup(room, size - 1);
		assert_non_null(copy);
		size_t got = plain_clean(room, size, PLAIN_LINE);
		assert_int_equal(got, strlen(room));
		assert_true(got < size);
		assert_memory_equal(room, shown, got);
		assert_true(plain_is(room, got, PLAIN_LINE));
		/* Only the character that was cut off already is missing, or one that does not fit. */
		assert_true(got <= wanted);
		free(copy);
	}
	assert_int_equal(plain_cut("\xe2\x82\xac", 2), 0);
	assert_int_equal(plain_cut("\xe2\x82\xac", 3), 3);
	assert_int_equal(plain_cut("ab", 9), 2);
	assert_int_equal(plain_cut("\x80\x80\x80\x80\x80", 5), 5);
	assert_int_equal(plain_cut("", 5), 0);
	char none[1] = "";
	assert_int_equal(plain_clean(none, 1, PLAIN_LINE), 0);
	assert_int_equal(plain_clean(none, 0, PLAIN_LINE), 0);
}

/* Strings of a message for people, by the codec: others pass as they are. */
static void strings_of_replies(void **state)
{
	(void)state;
	for (int people = 0; people < 2; people++) {
		struct wire_out out;
		struct wire_in in;
		wire_begin(&out, "reply", 1);
		out.for_people = people;
		wire_put_str(&out, "log", "a\n\x1b\xff");
		assert_int_equal(wire_end(&out), KILN_OK);
		assert_int_equal(wire_parse(&in, out.buffer.data, out.buffer.size), KILN_OK);
		assert_string_equal(wire_get_str(&in, &in.root, "log"),
							people ? "a\n\\x1b\\xff" : "a\n\x1b\xff");
		wire_in_free(&in);
		wire_out_free(&out);
	}
}

static void messages_as_calls(void **state)
{
	(void)state;
	struct wire_out out;
	struct wire_in in;
	char text[128];
	wire_begin(&out, "q", 1);
	wire_put_str(&out, "s", "\n\t\x1b\xc2\x9b\xff\"\xe2\x82\xac");
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(wire_parse(&in, out.buffer.data, out.buffer.size), KILN_OK);
	wire_print(&in.root, text, sizeof(text));
	assert_string_equal(text, "q(id=1, s=\"\\n\\x09\\x1b\\u009b\\xff\\\"\xe2\x82\xac\")");
	wire_in_free(&in);
	wire_out_free(&out);
}

__attribute__((format(printf, 2, 3))) static void prints(size_t size, const char *format, ...)
{
	char wanted[64], room[64];
	va_list list;
	memset(wanted, 'x', sizeof(wanted));
	memset(room, 'x', sizeof(room));
	va_start(list, format);
	int length = vsnprintf(wanted, size, format, list);
	va_end(list);
	va_start(list, format);
	assert_int_equal(plain_vprint(room, size, format, list), length);
	va_end(list);
	assert_memory_equal(room, wanted, sizeof(room));
}

static void prints_as_the_c_library(void **state)
{
	(void)state;
	for (size_t size = 0; size < 40; size++) {
		prints(size, "100%% of nothing");
		prints(size, "%s<%d, %u, %c>", "permute", INT_MIN, UINT_MAX, 'q');
		prints(size, "%lld|%llu|%lld", LLONG_MIN, ULLONG_MAX, 0LL);
		prints(size, "%.*s,%.*s,%.*s", 2, "four", 9, "four", -1, "four");
		prints(size, "%s %08x %zu %g %.3s", "others", 0xbeefu, sizeof(size), 1.5, "cut off");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_steers_a_terminal_is_shown),
		cmocka_unit_test(lines_and_tabs),
		cmocka_unit_test(bytes_that_are_no_utf8),
		cmocka_unit_test(no_cut_inside_a_character),
		cmocka_unit_test(strings_of_replies),
		cmocka_unit_test(messages_as_calls),
		cmocka_unit_test(prints_as_the_c_library),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
