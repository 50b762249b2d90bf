/*
 * row.c: encodes a row as bytes, and decodes it.  Knows nothing of databases.
 *
 * A blob is a header of fixed size, the texts without zero bytes, then the object.  Numbers are
 * little endian.  The checksum, BLAKE2b-256, covers all but itself, so no bit changes unseen; the
 * lengths are checked all the same.
 */
#include "daemon/base/bytes.h"
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define ROW_MAGIC "KILNROW"
#define ROW_VERSION 1
#define ROW_TEXTS 6
#define ROW_NUMBERS 8

enum {
	AT_MAGIC = 0,
	AT_VERSION = 8,
	AT_CHECKSUM = 16,
	AT_KEY = AT_CHECKSUM + 32,
	AT_OP = AT_KEY + 64,
	AT_TARGET = AT_OP + 24,
	AT_NUMBERS = AT_TARGET + 16,
	AT_LENGTHS = AT_NUMBERS + 8 * ROW_NUMBERS,
	HEADER_BYTES = AT_LENGTHS + 8 * (ROW_TEXTS + 1),
};

_Static_assert(sizeof((struct cache_row *)0)->op == 24 && KERNEL_TARGET_MAX == 16 &&
				   KERNEL_KEY_HEX == 65,
			   "the header has room for these sizes");

/* Lists the fields in the order of the blob. */
static void list_texts(const struct cache_row *row, char **out[ROW_TEXTS])
{
	struct cache_row *r = (struct cache_row *)row;
	out[0] = &r->instantiation;
	out[1] = &r->entry;
	out[2] = &r->key_text;
	out[3] = &r->source;
	out[4] = &r->log;
	out[5] = &r->plan;
}

static void list_numbers(const struct cache_row *row, int64_t *out[ROW_NUMBERS])
{
	struct cache_row *r = (struct cache_row *)row;
	out[0] = &r->registers;
	out[1] = &r->shared_bytes;
	out[2] = &r->spill_bytes;
	out[3] = &r->local_bytes;
	out[4] = &r->compile_micros;
	out[5] = &r->created;
	out[6] = &r->used;
	out[7] = &r->hits;
}

bool cache_row_is_hex(const char *text, size_t size)
{
	return strnlen(text, size + 1) == size && strspn(text, "0123456789abcdef") == size;
}

void cache_row_compiler(const void *text, size_t bytes, char compiler[CACHE_COMPILER_MAX])
{
	static const char mark[] = "\ntoolchain ";
	const char *at = memmem(text, bytes, mark, strlen(mark));
	size_t length = 0;
	if (at) {
		at += strlen(mark);
		size_t left = bytes - (size_t)(at - (const char *)text);
		while (length < left && length < CACHE_COMPILER_MAX - 1 && at[length] != '\n')
			length++;
		memcpy(compiler, at, length);
	}
	compiler[length] = 0;
}

bool cache_row_key_fits(const struct cache_row *row)
{
	const char *text = row->key_text ? row->key_text : "";
	char hex[KERNEL_KEY_HEX];
	util_hash_hex(text, strlen(text), hex);
	return strcmp(hex, row->key) == 0;
}

static void checksum(const unsigned char *blob, size_t bytes, unsigned char digest[32])
{
	struct util_hash hash;
	util_hash_begin(&hash);
	util_hash_add(&hash, blob, AT_CHECKSUM);
	util_hash_add(&hash, blob + AT_KEY, bytes - AT_KEY);
	util_hash_end(&hash, digest);
}

void cache_row_seal(unsigned char *blob, size_t bytes)
{
	checksum(blob, bytes, blob + AT_CHECKSUM);
}

static void write_header(const struct cache_row *row, const size_t lengths[ROW_TEXTS + 1],
						 unsigned char *blob)
{
	int64_t *numbers[ROW_NUMBERS];
	list_numbers(row, numbers);
	memset(blob, 0, HEADER_BYTES);
	memcpy(blob + AT_MAGIC, ROW_MAGIC, sizeof(ROW_MAGIC));
	util_put_u64(blob + AT_VERSION, ROW_VERSION);
	memcpy(blob + AT_KEY, row->key, 64);
	memcpy(blob + AT_OP, row->op, strlen(row->op));
	memcpy(blob + AT_TARGET, row->target, strlen(row->target));
	for (int i = 0; i < ROW_NUMBERS; i++)
		util_put_u64(blob + AT_NUMBERS + 8 * i, (uint64_t)*numbers[i]);
	for (int i = 0; i <= ROW_TEXTS; i++)
		util_put_u64(blob + AT_LENGTHS + 8 * i, lengths[i]);
}

int cache_row_encode(const struct cache_row *row, void **blob, size_t *bytes)
{
	char **texts[ROW_TEXTS];
	size_t lengths[ROW_TEXTS + 1];
	size_t total = HEADER_BYTES;
	if (!cache_row_is_hex(row->key, 64) || !memchr(row->op, 0, sizeof(row->op)) ||
		!memchr(row->target, 0, sizeof(row->target)) || (row->object_bytes && !row->object))
		return KILN_EINVAL;
	list_texts(row, texts);
	for (int i = 0; i <= ROW_TEXTS; i++) {
		lengths[i] = i == ROW_TEXTS ? row->object_bytes : *texts[i] ? strlen(*texts[i]) : 0;
		if (lengths[i] > ROW_BYTES_MAX - total)
			return KILN_ELIMIT;
		total += lengths[i];
	}
	unsigned char *out = malloc(total);
	if (!out)
		return KILN_ENOMEM;
	write_header(row, lengths, out);
	unsigned char *at = out + HEADER_BYTES;
	for (int i = 0; i <= ROW_TEXTS; i++) {
		if (lengths[i])
			memcpy(at, i == ROW_TEXTS ? row->object : *texts[i], lengths[i]);
		at += lengths[i];
	}
	cache_row_seal(out, total);
	*blob = out;
	*bytes = total;
	return KILN_OK;
}

/* Reads a name of the header.  False: its field is not zero behind it. */
static bool read_name(const unsigned char *at, size_t size, char *out)
{
	size_t length = strnlen((const char *)at, size);
	for (size_t i = length; i < size; i++)
		if (at[i])
			return false;
	memcpy(out, at, size);
	return length < size;
}

/* Checks all but the bytes of the sections; returns why the blob is refused, or NULL. */
static const char *check_header(const unsigned char *blob, size_t bytes,
								size_t lengths[ROW_TEXTS + 1])
{
	unsigned char digest[32];
	if (bytes < HEADER_BYTES)
		return "it is shorter than a header";
	if (memcmp(blob + AT_MAGIC, ROW_MAGIC, sizeof(ROW_MAGIC)) != 0)
		return "it does not begin as one";
	if (util_get_u64(blob + AT_VERSION) != ROW_VERSION)
		return "its version is unknown";
	checksum(blob, bytes, digest);
	if (memcmp(blob + AT_CHECKSUM, digest, sizeof(digest)) != 0)
		return "the checksum does not match";
	size_t left = bytes - HEADER_BYTES;
	for (int i = 0; i <= ROW_TEXTS; i++) {
		uint64_t length = util_get_u64(blob + AT_LENGTHS + 8 * i);
		if (length > left)
			return "a length in it goes beyond its end";
		lengths[i] = (size_t)length;
		left -= lengths[i];
	}
	return left ? "it has bytes beyond its end" : NULL;
}

/* Reads the sections; KILN_EPROTO for a text with a zero byte in it. */
static int read_sections(const unsigned char *at, const size_t lengths[ROW_TEXTS + 1],
						 struct cache_row *out)
{
	char **texts[ROW_TEXTS];
	list_texts(out, texts);
	for (int i = 0; i < ROW_TEXTS; i++) {
		if (memchr(at, 0, lengths[i]))
			return KILN_EPROTO;
		char *text = malloc(lengths[i] + 1);
		if (!text)
			return KILN_ENOMEM;
		memcpy(text, at, lengths[i]);
		text[lengths[i]] = 0;
		*texts[i] = text;
		at += lengths[i];
	}
	size_t size = lengths[ROW_TEXTS];
	out->object = malloc(size ? size : 1);
	if (!out->object)
		return KILN_ENOMEM;
	memcpy(out->object, at, size);
	out->object_bytes = size;
	return KILN_OK;
}

int cache_row_decode(const void *blob, size_t bytes, struct cache_row *out,
					 char error[KERNEL_ERROR_MAX])
{
	const unsigned char *from = blob;
	size_t lengths[ROW_TEXTS + 1];
	int64_t *numbers[ROW_NUMBERS];
	struct cache_row row = {{0}};
	const char *why = check_header(from, bytes, lengths);
	int status = why ? KILN_EPROTO : KILN_OK;
	if (!why) {
		memcpy(row.key, from + AT_KEY, 64);
		if (!cache_row_is_hex(row.key, 64) || !read_name(from + AT_OP, sizeof(row.op), row.op) ||
			!read_name(from + AT_TARGET, sizeof(row.target), row.target)) {
			status = KILN_EPROTO;
			why = "its key, operator or target is not one";
		}
	}
	if (status == KILN_OK) {
		list_numbers(&row, numbers);
		for (int i = 0; i < ROW_NUMBERS; i++)
			*numbers[i] = (int64_t)util_get_u64(from + AT_NUMBERS + 8 * i);
		status = read_sections(from + HEADER_BYTES, lengths, &row);
		why = "a text in it has a zero byte";
	}
	if (status == KILN_OK) {
		*out = row;
		return KILN_OK;
	}
	cache_row_free(&row);
	if (status == KILN_ENOMEM)
		return FAIL(status, "out of memory for a cached kernel of %zu bytes", bytes);
	return FAIL(status, "no cached kernel in these %zu bytes: %s", bytes, why);
}

int cache_row_copy(const struct cache_row *row, bool with_object, struct cache_row *out)
{
	char **from[ROW_TEXTS], **to[ROW_TEXTS];
	struct cache_row copy = *row;
	list_texts(row, from);
	list_texts(&copy, to);
	bool failed = false;
	for (int i = 0; i < ROW_TEXTS; i++) {
		*to[i] = strdup(*from[i] ? *from[i] : "");
		failed |= !*to[i];
	}
	copy.object = NULL;
	copy.kept = NULL;
	if (with_object) {
		copy.object = malloc(row->object_bytes ? row->object_bytes : 1);
		failed |= !copy.object;
		if (copy.object && row->object_bytes)
			memcpy(copy.object, row->object, row->object_bytes);
	}
	if (failed) {
		cache_row_free(&copy);
		return KILN_ENOMEM;
	}
	*out = copy;
	return KILN_OK;
}

uint64_t cache_row_cost(const struct cache_row *row)
{
	char **texts[ROW_TEXTS];
	uint64_t cost = sizeof(*row) + row->object_bytes;
	list_texts(row, texts);
	for (int i = 0; i < ROW_TEXTS; i++)
		cost += *texts[i] ? strlen(*texts[i]) + 1 : 1;
	return cost;
}

void cache_row_free(struct cache_row *row)
{
	char **texts[ROW_TEXTS];
	if (row->kept) {
		cache_memory_drop(row->kept);
	} else {
		list_texts(row, texts);
		for (int i = 0; i < ROW_TEXTS; i++)
			free(*texts[i]);
		free(row->object);
	}
	*row = (struct cache_row){{0}};
}
