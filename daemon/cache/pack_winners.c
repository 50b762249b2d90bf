/* pack_winners.c: winners of tuning as bytes, and those of a file in the cache. */
#include "pack_winners.h"

#include <stdlib.h>
#include <string.h>

#include "cache_state.h"
#include "database.h"
#include "pack_format.h"

#define MICROS_MOST 1e12

/* The texts of a row, in the order of the file. */
#define WINNER_TEXTS 6
struct field {
	char *text;
	size_t size;
};

static void fields_of(struct cache_tuned *row, struct field fields[WINNER_TEXTS])
{
	const struct field all[WINNER_TEXTS] = {
		{row->op, sizeof(row->op)},         {row->model, sizeof(row->model)},
		{row->target, sizeof(row->target)}, {row->signature, sizeof(row->signature)},
		{row->choice, sizeof(row->choice)}, {row->version, sizeof(row->version)}};
	memcpy(fields, all, sizeof(all));
}

size_t pack_winner_encode(const struct cache_tuned *row, unsigned char bytes[PACK_WINNER_MOST])
{
	struct cache_tuned copy = *row;
	struct field fields[WINNER_TEXTS];
	uint64_t numbers[WINNER_NUMBERS] = {0, 0, (uint64_t)row->candidates, (uint64_t)row->when};
	size_t size = 0;
	fields_of(&copy, fields);
	for (int i = 0; i < WINNER_TEXTS; i++) {
		size_t length = strlen(fields[i].text) + 1;
		memcpy(bytes + size, fields[i].text, length);
		size += length;
	}
	memcpy(&numbers[0], &row->micros, sizeof(row->micros));
	memcpy(&numbers[1], &row->own_micros, sizeof(row->own_micros));
	for (int i = 0; i < WINNER_NUMBERS; i++, size += 8)
		util_put_u64(bytes + size, numbers[i]);
	return size;
}

/* Reads a text that ends with 0, and has something before it but no control character. */
static bool read_text(const unsigned char **at, const unsigned char *end, struct field *field)
{
	const unsigned char *zero = memchr(*at, 0, (size_t)(end - *at));
	size_t length = zero ? (size_t)(zero - *at) : 0;
	if (!zero || !length || length >= field->size)
		return false;
	for (const unsigned char *c = *at; c < zero; c++)
		if (*c < 0x20 || *c == 0x7f)
			return false;
	memcpy(field->text, *at, length + 1);
	*at = zero + 1;
	return true;
}

bool pack_winner_decode(const void *bytes, size_t size, struct cache_tuned *out)
{
	const unsigned char *at = bytes, *end = at + size;
	struct field fields[WINNER_TEXTS];
	uint64_t numbers[WINNER_NUMBERS];
	memset(out, 0, sizeof(*out));
	fields_of(out, fields);
	for (int i = 0; i < WINNER_TEXTS; i++)
		if (!read_text(&at, end, &fields[i]))
			return false;
	if (end - at != 8 * WINNER_NUMBERS)
		return false;
	for (int i = 0; i < WINNER_NUMBERS; i++)
		numbers[i] = util_get_u64(at + 8 * i);
	memcpy(&out->micros, &numbers[0], sizeof(out->micros));
	memcpy(&out->own_micros, &numbers[1], sizeof(out->own_micros));
	out->candidates = (int64_t)numbers[2];
	out->when = (int64_t)numbers[3];
	return out->micros > 0 && out->micros <= MICROS_MOST && out->own_micros > 0 &&
		   out->own_micros <= MICROS_MOST;
}

int pack_winners_add(struct pack_winners *winners, const void *bytes, size_t size, const char *what,
					 char error[KERNEL_ERROR_MAX])
{
	if (winners->count >= CACHE_TUNED_MOST)
		return FAIL(KILN_EPROTO, "%s has more than %d winners of tuning", what, CACHE_TUNED_MOST);
	if (winners->count == winners->room) {
		size_t room = winners->room ? 2 * winners->room : 64;
		struct cache_tuned *rows = realloc(winners->rows, room * sizeof(*rows));
		if (!rows)
			return FAIL(KILN_ENOMEM, "out of memory for a pack");
		winners->rows = rows;
		winners->room = room;
	}
	if (!pack_winner_decode(bytes, size, &winners->rows[winners->count]))
		return FAIL(KILN_EPROTO, "%s has a damaged winner of tuning", what);
	winners->count++;
	return KILN_OK;
}

int pack_winners_take(struct pack_winners *winners, struct cache *cache,
					  char error[KERNEL_ERROR_MAX])
{
	size_t kept = 0;
	for (size_t i = 0; i < winners->count; i++) {
		bool taken;
		int status = cache_tuned_take(cache, &winners->rows[i], &taken, error);
		if (status != KILN_OK)
			return status;
		if (taken)
			winners->rows[kept++] = winners->rows[i];
	}
	winners->count = kept;
	return KILN_OK;
}
