/*
 * test_wire.c: what is built reads back the same, what is hostile is refused before it is decoded,
 * and every message prints as one readable line.
 */
#include "client/wire/wire.h"

#include <kiln/kiln.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Parses what out holds; out is freed by the caller after in. */
static void reread(struct wire_out *out, struct wire_in *in)
{
	assert_int_equal(wire_end(out), KILN_OK);
	assert_int_equal(wire_parse(in, out->buffer.data, out->buffer.size), KILN_OK);
}

static void test_values(void **state)
{
	(void)state;
	struct wire_out out;
	struct wire_in in;
	int64_t list[3] = {1, -2, INT64_MIN}, back[2] = {0, 0};
	size_t bytes;

	wire_begin(&out, "submit", 7);
	wire_put_int(&out, "least", INT64_MIN);
	wire_put_int(&out, "most", INT64_MAX);
	wire_put_uint(&out, "all", UINT64_MAX);
	wire_put_real(&out, "half", 0.5);
	wire_put_real(&out, "whole", 3.0);
	wire_put_real(&out, "huge", 1e300);
	wire_put_bool(&out, "yes", true);
	wire_put_str(&out, "name", "caf\xc3\xa9");
	wire_put_str(&out, "absent", NULL);
	wire_put_bin(&out, "bin", "\0\1\2", 3);
	wire_put_bin(&out, "none", NULL, 0);
	wire_put_ints(&out, "ints", list, 3);
	reread(&out, &in);
	const msgpack_object *root = &in.root;
	assert_string_equal(wire_type(&in), "submit");
	assert_int_equal(wire_id(&in), 7);
	assert_true(wire_get_int(root, "least", 0) == INT64_MIN);
	assert_true(wire_get_int(root, "most", 0) == INT64_MAX);
	assert_true(wire_get_uint(root, "all", 0) == UINT64_MAX);
	assert_int_equal(wire_get_int(root, "all", -5), -5);
	assert_int_equal(wire_get_uint(root, "least", 9), 9);
	assert_true(wire_get_real(root, "half", 0) == 0.5);
	assert_int_equal(wire_get_int(root, "half", -1), -1);
	assert_int_equal(wire_get_int(root, "whole", -1), 3);
	assert_int_equal(wire_get_uint(root, "whole", 0), 3);
	assert_int_equal(wire_get_int(root, "huge", -1), -1);
	assert_true(wire_get_real(root, "least", 0) == -0x1p63);
	assert_true(wire_get_bool(root, "yes", false));
	assert_true(wire_get_bool(root, "name", true));
	assert_string_equal(wire_get_str(&in, root, "name"), "caf\xc3\xa9");
	assert_null(wire_get_str(&in, root, "absent"));
	assert_null(wire_get_str(&in, root, "bin"));
	assert_memory_equal(wire_get_bin(root, "bin", &bytes), "\0\1\2", 3);
	assert_int_equal(bytes, 3);
	assert_null(wire_get_bin(root, "name", &bytes));
	assert_int_equal(bytes, 0);
	assert_int_equal(wire_get_ints(root, "ints", back, 2), 3);
	assert_true(back[0] == 1 && back[1] == -2);
	assert_int_equal(wire_get_ints(root, "name", back, 2), -1);
	assert_null(wire_get(NULL, "name"));
	assert_null(wire_get(wire_get(root, "ints"), "name"));
	wire_in_free(&in);
	wire_in_free(&in);
	wire_out_free(&out);
	wire_out_free(&out);
}

static void test_nesting(void **state)
{
	(void)state;
	struct wire_out out, copy;
	struct wire_in in, again;

	wire_begin(&out, NULL, 0);
	wire_list_begin(&out, "rows");
	for (int i = 0; i < 70000; i++) {
		wire_map_begin(&out, NULL);
		wire_put_int(&out, "i", i);
		wire_map_end(&out);
	}
	wire_list_end(&out);
	reread(&out, &in);
	assert_string_equal(wire_type(&in), "");
	const msgpack_object *rows = wire_get(&in.root, "rows");
	assert_int_equal(wire_count(rows), 70000);
	assert_int_equal(wire_get_int(wire_at(rows, 69999), "i", 0), 69999);
	assert_null(wire_at(rows, 70000));
	assert_null(wire_at(&in.root, 0));
	assert_int_equal(wire_count(wire_at(rows, 3)), 1);

	wire_begin(&copy, "t", 1);
	wire_put_value(&copy, "copy", rows);
	reread(&copy, &again);
	assert_int_equal(wire_get_int(wire_at(wire_get(&again.root, "copy"), 500), "i", 0), 500);
	wire_in_free(&again);
	wire_out_free(&copy);
	wire_in_free(&in);
	wire_out_free(&out);
}

/* Mistakes of the builder stick, so that one check at the end is enough. */
static void test_misuse(void **state)
{
	(void)state;
	struct wire_out out;

	wire_begin(&out, "t", 1);
	wire_put_int(&out, NULL, 1);
	wire_put_int(&out, "fine", 1);
	assert_int_equal(wire_end(&out), KILN_EINTERNAL);
	wire_out_free(&out);

	wire_begin(&out, "t", 1);
	wire_list_begin(&out, "list");
	wire_put_int(&out, "key", 1);
	wire_list_end(&out);
	assert_int_equal(wire_end(&out), KILN_EINTERNAL);
	wire_out_free(&out);

	wire_begin(&out, "t", 1);
	wire_list_begin(&out, "open");
	assert_int_equal(wire_end(&out), KILN_EINTERNAL);
	wire_out_free(&out);

	wire_begin(&out, "t", 1);
	wire_list_begin(&out, "list");
	wire_map_end(&out);
	assert_int_equal(wire_end(&out), KILN_EINTERNAL);
	wire_out_free(&out);

	for (int depth = 1; depth <= WIRE_MAX_DEPTH; depth++) {
		wire_begin(&out, NULL, 0);
		wire_list_begin(&out, "list");
		for (int i = 1; i < depth; i++)
			wire_list_begin(&out, NULL);
		for (int i = 0; i < depth; i++)
			wire_list_end(&out);
		assert_int_equal(wire_end(&out), depth < WIRE_MAX_DEPTH ? KILN_OK : KILN_EINTERNAL);
		wire_out_free(&out);
	}
}

struct hostile {
	const char *bytes;
	size_t size;
	const char *why; /* part of the sentence */
};
#define HOSTILE(bytes, why)           \
	{                                 \
		bytes, sizeof(bytes) - 1, why \
	}

static void test_hostile(void **state)
{
	(void)state;
	static const struct hostile all[] = {
		HOSTILE("", "empty"),
		HOSTILE("\x01", "no map"),
		HOSTILE("\xdd\xff\xff\xff\xff", "no map"),
		HOSTILE("\x81\xa1\x61\xdd\xff\xff\xff\xff", "count is larger"),
		HOSTILE("\xdf\xff\xff\xff\xff", "count is larger"),
		HOSTILE("\xdf\xff\xff", "inside a length"),
		HOSTILE("\xde\xff\xff\x01\x01", "count is larger"),
		HOSTILE("\x81\xa1\x61\xdb\xff\xff\xff\xff\x01", "longer than"),
		HOSTILE("\x81\xa1\x61\xc6\x00\x00\x00\x02\x01", "longer than"),
		HOSTILE("\x81\xa1\x61\xd9\x05", "longer than"),
		HOSTILE("\x81\xa1\x61\xa5\x61", "ends inside a value"),
		HOSTILE("\x81\xa1\x61\xcf\x01\x02", "ends inside a value"),
		HOSTILE("\x81\xa1\x61", "before its last value"),
		HOSTILE("\x82\xa1\x61\x01\xa1", "ends inside a value"),
		HOSTILE("\x80\x00", "bytes follow"),
		HOSTILE("\x81\xa1\x61\x01\xc0", "bytes follow"),
		HOSTILE("\x81\xa1\x61\xd4\x01\x02", "never used"),
		HOSTILE("\x81\xa1\x61\xc7\x01\x05\x00", "never used"),
		HOSTILE("\x81\xa1\x61\xc1", "never used"),
		HOSTILE("\x81\xa1\x61\x91\x91\x91\x91\x91\x91\x91\x91\x00", "nested too deeply"),
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		/* A copy of its own, so that AddressSanitizer sees a read behind it. */
		char *copy = malloc(all[i].size > 0 ? all[i].size : 1);
		struct wire_in in;
		assert_non_null(copy);
		memcpy(copy, all[i].bytes, all[i].size);
		assert_int_equal(wire_parse(&in, copy, all[i].size), KILN_EPROTO);
		if (strstr(in.why, all[i].why) == NULL)
			fail_msg("sample %zu: \"%s\" does not say \"%s\"", i, in.why, all[i].why);
		wire_in_free(&in);
		free(copy);
	}
}

/* Every proper beginning of a message is refused, and the deepest one allowed is taken. */
static void test_truncation(void **state)
{
	(void)state;
	struct wire_out out;
	struct wire_in in;
	int64_t shape[2] = {70000, 1};

	wire_begin(&out, "prepare", 300);
	wire_put_str(&out, "text", "a string that is longer than thirty-one bytes");
	wire_put_ints(&out, "shape", shape, 2);
	wire_put_real(&out, "eps", 1e-5);
	assert_int_equal(wire_end(&out), KILN_OK);
	for (size_t n = 0; n < out.buffer.size; n++) {
		char *copy = malloc(n > 0 ? n : 1);
		assert_non_null(copy);
		memcpy(copy, out.buffer.data, n);
		assert_int_equal(wire_parse(&in, copy, n), KILN_EPROTO);
		wire_in_free(&in);
		free(copy);
	}
	wire_out_free(&out);

	static const char deep[] = "\x81\xa1\x61\x91\x91\x91\x91\x91\x91\x91\x2a";
	assert_int_equal(wire_parse(&in, deep, sizeof(deep) - 1), KILN_OK);
	wire_in_free(&in);
}

/* A byte decodes to 24: how many values a message may hold is limited too. */
static void check_most(size_t most, int (*parse)(struct wire_in *, const void *, size_t))
{
	struct wire_in in;
	for (int over = 0; over < 2; over++) {
		size_t count = most - 3 + (size_t)over; /* beside the map, the key and the list */
		char *data = calloc(1, count + 8);
		assert_non_null(data);
		memcpy(data, "\x81\xa1\x61\xdd", 4);
		for (int i = 0; i < 4; i++)
			data[4 + i] = (char)(count >> (24 - 8 * i));
		int status = parse(&in, data, count + 8);
		assert_int_equal(status, over ? KILN_EPROTO : KILN_OK);
		if (!over)
			assert_int_equal(wire_count(wire_get(&in.root, "a")), count);
		wire_in_free(&in);
		free(data);
	}
}

static void test_too_many(void **state)
{
	(void)state;
	check_most(WIRE_MAX_VALUES, wire_parse);
	check_most(WIRE_MAX_ASKED, wire_parse_asked);
}

/* Keys that are no strings, and keys that come twice. */
static void test_odd_keys(void **state)
{
	(void)state;
	static const char twice[] = "\x84\xa1\x61\x01\xa1\x61\x02\x05\x06\x90\x07";
	static const char zero[] = "\x82\xa1\x61\xa2\x78\x00\xa1\x62\xa0";
	struct wire_in in;
	char text[80];

	assert_int_equal(wire_parse(&in, twice, sizeof(twice) - 1), KILN_OK);
	assert_int_equal(wire_get_int(&in.root, "a", 0), 1);
	assert_null(wire_get(&in.root, ""));
	wire_print(&in.root, text, sizeof(text));
	assert_string_equal(text, "(a=1, a=2, 5=6, []=7)");
	wire_in_free(&in);

	assert_int_equal(wire_parse(&in, zero, sizeof(zero) - 1), KILN_OK);
	assert_null(wire_get_str(&in, &in.root, "a"));
	assert_string_equal(wire_get_str(&in, &in.root, "b"), "");
	wire_in_free(&in);
}

static void test_print(void **state)
{
	(void)state;
	struct wire_out out;
	struct wire_in in;
	char text[200];
	int64_t first[2] = {1, 0}, second[2] = {2, 0};

	wire_begin(&out, "submit", 7);
	wire_put_int(&out, "call", 3);
	wire_list_begin(&out, "operands");
	wire_put_ints(&out, NULL, first, 2);
	wire_put_ints(&out, NULL, second, 2);
	wire_list_end(&out);
	reread(&out, &in);
	wire_print(&in.root, text, sizeof(text));
	assert_string_equal(text, "submit(id=7, call=3, operands=[[1,0],[2,0]])");
	for (size_t size = 1; size < 46; size++) {
		memset(text, 'x', sizeof(text));
		wire_print(&in.root, text, size);
		assert_true(strlen(text) < size);
		assert_int_equal(text[size], 'x');
	}
	wire_in_free(&in);
	wire_out_free(&out);

	wire_begin(&out, "lend", 1);
	wire_put_bin(&out, "handle", "secret", 6);
	wire_put_str(&out, "name", "a\"b\\c\n\x01");
	wire_put_bool(&out, "keep", true);
	wire_put_real(&out, "eps", 0.25);
	wire_map_begin(&out, "inner");
	wire_put_str(&out, "t", "x");
	wire_map_end(&out);
	reread(&out, &in);
	wire_print(&in.root, text, sizeof(text));
	assert_string_equal(text,
						"lend(id=1, handle=<6 bytes>, name=\"a\\\"b\\\\c\\n\\x01\", keep=true, "
						"eps=0.25, inner={t=\"x\"})");
	wire_in_free(&in);
	wire_out_free(&out);
}

/* A copy of an unfinished message is a message, and the message goes on. */
static void test_copies(void **state)
{
	struct wire_out out;
	struct wire_in in;
	char bytes[64], whole[64];
	(void)state;
	wire_begin(&out, "prepare", 7);
	wire_put_uint(&out, "a", 300);
	size_t size = wire_copy(&out, bytes, sizeof(bytes));
	assert_true(size > 0 && size == out.buffer.size);
	assert_int_equal(wire_copy(&out, whole, size - 1), 0);
	wire_list_begin(&out, "open");
	assert_int_equal(wire_copy(&out, whole, sizeof(whole)), 0);
	wire_list_end(&out);
	assert_int_equal(wire_parse(&in, bytes, size), KILN_OK);
	assert_int_equal(wire_count(&in.root), 3);
	assert_int_equal(wire_get_uint(&in.root, "a", 0), 300);
	wire_in_free(&in);
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(wire_parse(&in, out.buffer.data, out.buffer.size), KILN_OK);
	assert_int_equal(wire_count(&in.root), 4);
	wire_in_free(&in);
	wire_out_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),   cmocka_unit_test(test_nesting),
		cmocka_unit_test(test_copies),   cmocka_unit_test(test_misuse),
		cmocka_unit_test(test_hostile),  cmocka_unit_test(test_truncation),
		cmocka_unit_test(test_too_many), cmocka_unit_test(test_odd_keys),
		cmocka_unit_test(test_print),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
