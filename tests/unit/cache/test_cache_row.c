/*
 * The bytes of a cached row: what goes in comes out, and nothing else is taken for one: no
 * truncation, no flipped bit, no lying length, even under a right checksum.
 */
#include "daemon/cache/internal.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

#define KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define AT_LENGTHS 216 /* where the header has the lengths of six texts and the object */

static const unsigned char object[] = {0x7f, 'E', 'L', 'F', 0, 0, 0xff, 1, 0};

static struct cache_row sample(void)
{
	struct cache_row row = {
		.key = KEY,
		.op = "permute",
		.target = "sm_90",
		.instantiation = (char *)"permute_tile<u16, 64>",
		.entry = (char *)"_Z12permute_tile",
		.key_text = (char *)"schema 1\ntarget sm_90\n",
		.source = (char *)"__global__ void f() {}",
		.log = (char *)"",
		.plan = (char *)"op permute",
		.object = (void *)object,
		.object_bytes = sizeof(object),
		.registers = 40,
		.shared_bytes = 8192,
		.spill_bytes = -1,
		.local_bytes = 0,
		.compile_micros = 11000,
		.created = 1700000000,
		.used = 1700000001,
		.hits = INT64_MAX,
	};
	return row;
}

static unsigned char *encoded(const struct cache_row *row, size_t *bytes)
{
	void *blob = NULL;
	assert_int_equal(cache_row_encode(row, &blob, bytes), KILN_OK);
	return blob;
}

static void round_trip(void **state)
{
	(void)state;
	struct cache_row row = sample(), back;
	char error[KERNEL_ERROR_MAX];
	size_t bytes, again_bytes;
	unsigned char *blob = encoded(&row, &bytes);
	assert_int_equal(cache_row_decode(blob, bytes, &back, error), KILN_OK);
	assert_string_equal(back.key, KEY);
	assert_string_equal(back.op, "permute");
	assert_string_equal(back.target, "sm_90");
	assert_string_equal(back.instantiation, row.instantiation);
	assert_string_equal(back.entry, row.entry);
	assert_string_equal(back.key_text, row.key_text);
	assert_string_equal(back.source, row.source);
	assert_string_equal(back.log, "");
	assert_string_equal(back.plan, "op permute");
	assert_int_equal(back.object_bytes, sizeof(object));
	assert_memory_equal(back.object, object, sizeof(object));
	assert_int_equal(back.registers, 40);
	assert_int_equal(back.shared_bytes, 8192);
	assert_int_equal(back.spill_bytes, -1);
	assert_int_equal(back.local_bytes, 0);
	assert_int_equal(back.compile_micros, 11000);
	assert_int_equal(back.created, 1700000000);
	assert_int_equal(back.used, 1700000001);
	assert_int_equal(back.hits, INT64_MAX);
	unsigned char *again = encoded(&back, &again_bytes);
	assert_int_equal(again_bytes, bytes);
	assert_memory_equal(again, blob, bytes);
	free(again);
	free(blob);
	cache_row_free(&back);
	assert_null(back.object);
	assert_null(back.log);
	cache_row_free(&back);
}

/* The format is on people's disks: it changes with its version only. */
static void format_is_fixed(void **state)
{
	(void)state;
	struct cache_row row = sample();
	size_t bytes;
	unsigned char *blob = encoded(&row, &bytes);
	struct util_hash hash;
	unsigned char digest[32];
	char hex[65];
	util_hash_begin(&hash);
	util_hash_add(&hash, blob, bytes);
	util_hash_end(&hash, digest);
	util_hex(digest, 32, hex);
	assert_int_equal(bytes, 272 + 21 + 16 + 22 + 22 + 0 + 10 + 9);
	assert_memory_equal(blob, "KILNROW\0\1\0\0\0\0\0\0\0", 16);
	assert_string_equal(hex, "baf0118f9fb3ae481b939cdb4468e19fe2bfb6e298d7a2919fb37460575ab652");
	free(blob);
}

static void empty_and_missing_parts(void **state)
{
	(void)state;
	struct cache_row row = {.key = KEY}, back;
	char error[KERNEL_ERROR_MAX];
	size_t bytes;
	unsigned char *blob = encoded(&row, &bytes);
	assert_int_equal(cache_row_decode(blob, bytes, &back, error), KILN_OK);
	assert_string_equal(back.source, "");
	assert_int_equal(back.object_bytes, 0);
	assert_string_equal(back.op, "");
	cache_row_free(&back);
	free(blob);
}

static void encode_refuses(void **state)
{
	(void)state;
	void *blob = NULL;
	size_t bytes;
	struct cache_row row = sample();
	row.key[63] = 0;
	assert_int_equal(cache_row_encode(&row, &blob, &bytes), KILN_EINVAL);
	row = sample();
	row.key[10] = 'A';
	assert_int_equal(cache_row_encode(&row, &blob, &bytes), KILN_EINVAL);
	row = sample();
	memset(row.op, 'x', sizeof(row.op));
	assert_int_equal(cache_row_encode(&row, &blob, &bytes), KILN_EINVAL);
	row = sample();
	memset(row.target, 'x', sizeof(row.target));
	assert_int_equal(cache_row_encode(&row, &blob, &bytes), KILN_EINVAL);
	row = sample();
	row.object = NULL;
	assert_int_equal(cache_row_encode(&row, &blob, &bytes), KILN_EINVAL);
	row = sample();
	row.object_bytes = ROW_BYTES_MAX;
	assert_int_equal(cache_row_encode(&row, &blob, &bytes), KILN_ELIMIT);
	row.object_bytes = SIZE_MAX;
	assert_int_equal(cache_row_encode(&row, &blob, &bytes), KILN_ELIMIT);
	assert_null(blob);
}

/* Decodes a copy of exactly these bytes, so that a sanitizer sees every byte beyond. */
static int decode_copy(const unsigned char *blob, size_t bytes, bool seal, char *error)
{
	struct cache_row row;
	unsigned char *copy = malloc(bytes ? bytes : 1);
	assert_non_null(copy);
	memcpy(copy, blob, bytes);
	if (seal)
		cache_row_seal(copy, bytes);
	error[0] = 0;
	int status = cache_row_decode(copy, bytes, &row, error);
	if (status == KILN_OK)
		cache_row_free(&row);
	free(copy);
	return status;
}

static void every_truncation_is_refused(void **state)
{
	(void)state;
	struct cache_row row = sample();
	char error[KERNEL_ERROR_MAX];
	size_t bytes;
	unsigned char *blob = encoded(&row, &bytes);
	for (size_t size = 0; size < bytes; size++) {
		assert_int_equal(decode_copy(blob, size, false, error), KILN_EPROTO);
		assert_true(strlen(error) > 20);
		if (size >= 272)
			assert_int_equal(decode_copy(blob, size, true, error), KILN_EPROTO);
	}
	unsigned char *longer = calloc(1, bytes + 1);
	memcpy(longer, blob, bytes);
	assert_int_equal(decode_copy(longer, bytes + 1, false, error), KILN_EPROTO);
	assert_int_equal(decode_copy(longer, bytes + 1, true, error), KILN_EPROTO);
	assert_non_null(strstr(error, "it has bytes beyond its end"));
	free(longer);
	free(blob);
}

static void every_flipped_bit_is_refused(void **state)
{
	(void)state;
	struct cache_row row = sample();
	char error[KERNEL_ERROR_MAX];
	size_t bytes;
	unsigned char *blob = encoded(&row, &bytes);
	for (size_t bit = 0; bit < 8 * bytes; bit++) {
		blob[bit / 8] ^= (unsigned char)(1u << bit % 8);
		assert_int_equal(decode_copy(blob, bytes, false, error), KILN_EPROTO);
		blob[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	assert_int_equal(decode_copy(blob, bytes, false, error), KILN_OK);
	free(blob);
}

/* Changes one byte of a sound blob and makes the checksum right again. */
static void sealed_refusal(size_t at, int value, const char *why)
{
	struct cache_row row = sample();
	char error[KERNEL_ERROR_MAX];
	size_t bytes;
	unsigned char *blob = encoded(&row, &bytes);
	blob[at] = (unsigned char)value;
	assert_int_equal(decode_copy(blob, bytes, true, error), KILN_EPROTO);
	assert_non_null(strstr(error, why));
	free(blob);
}

static void lies_under_a_right_checksum(void **state)
{
	(void)state;
	sealed_refusal(0, 'k', "it does not begin as one");
	sealed_refusal(8, 2, "its version is unknown");
	sealed_refusal(48, 'g', "its key, operator or target is not one");
	sealed_refusal(48 + 63, 0, "its key, operator or target is not one");
	sealed_refusal(112 + 23, 'x', "its key, operator or target is not one");
	sealed_refusal(136 + 10, 'x', "its key, operator or target is not one");
	sealed_refusal(272, 0, "a text in it has a zero byte");
	for (size_t i = 0; i < 7; i++) {
		sealed_refusal(AT_LENGTHS + 8 * i + 7, 0xff, "a length in it goes beyond its end");
		sealed_refusal(AT_LENGTHS + 8 * i + 1, 1, "a length in it goes beyond its end");
	}
	sealed_refusal(AT_LENGTHS + 48, 8, "it has bytes beyond its end");
}

static void copies_are_deep(void **state)
{
	(void)state;
	struct cache_row row = sample(), copy;
	assert_int_equal(cache_row_copy(&row, true, &copy), KILN_OK);
	assert_ptr_not_equal(copy.object, row.object);
	assert_memory_equal(copy.object, object, sizeof(object));
	assert_string_equal(copy.key_text, row.key_text);
	assert_ptr_not_equal(copy.key_text, row.key_text);
	assert_int_equal(copy.hits, row.hits);
	cache_row_free(&copy);
	assert_int_equal(cache_row_copy(&row, false, &copy), KILN_OK);
	assert_null(copy.object);
	assert_int_equal(copy.object_bytes, sizeof(object));
	cache_row_free(&copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(format_is_fixed),
		cmocka_unit_test(empty_and_missing_parts),
		cmocka_unit_test(encode_refuses),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(every_flipped_bit_is_refused),
		cmocka_unit_test(lies_under_a_right_checksum),
		cmocka_unit_test(copies_are_deep),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
