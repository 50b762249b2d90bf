/*
 * step_kept.c: memory that stays over many steps, written and read in pieces of all sizes, beside a
 * model of what it holds.
 */
#include "client.h"

#include <stdlib.h>
#include <string.h>

#define LARGE (1 << 21)

static int64_t pick_size(struct me *me)
{
	static const int64_t odd[] = {0,    1,    2,    3,     7,     8,     15,    16,
								  63,   64,   65,   255,   256,   4095,  4096,  4097,
								  8191, 8192, 8193, 65535, 65536, 65537, 131071};
	if (me_chance(me, 2))
		return odd[me_pick(me, sizeof(odd) / sizeof(odd[0]))];
	return me_pick(me, me_chance(me, 12) ? LARGE : 1 << 16);
}

static void forget(struct kept *kept)
{
	free(kept->model);
	*kept = (struct kept){0};
}

/* All of it anew, in pieces: whatever a device process took along is there again after. */
static bool write_all(struct me *me, struct kept *kept)
{
	uint64_t seed = cases_word(&me->state), at = 0;
	kept->since_ms = soak_now_ms();
	kept->known = false;
	for (uint64_t i = 0; i < kept->bytes; i += 8) {
		uint64_t word = cases_word(&seed);
		memcpy(kept->model + i, &word, kept->bytes - i < 8 ? kept->bytes - i : 8);
	}
	do {
		uint64_t left = kept->bytes - at;
		uint64_t piece = left && me_chance(me, 2) ? 1 + (uint64_t)me_pick(me, (int64_t)left) : left;
		if (!me_ok(me, kiln_write(kept->buffer, at, kept->model + at, piece),
				   "writing kept memory"))
			return false;
		me_count(me, SOAK_COUNT_transfers, 1);
		at += piece;
	} while (at < kept->bytes);
	kept->known = true;
	return true;
}

static void compare(struct me *me, struct kept *kept, uint64_t from, uint64_t bytes)
{
	unsigned char *back = malloc(bytes + 1);
	if (!back) {
		me_fail(me, "no memory");
		return;
	}
	memset(back, 0x5a, bytes + 1);
	bool read = me_ok_since(me, kiln_read(kept->buffer, from, back, bytes), "reading kept memory",
							kept->since_ms);
	kept->known = read;
	for (uint64_t i = 0; i < bytes && read; i++) {
		if (back[i] == kept->model[from + i])
			continue;
		me_fail(me, "byte %llu of kept memory of %llu bytes is %#x, not %#x",
				(unsigned long long)(from + i), (unsigned long long)kept->bytes, back[i],
				kept->model[from + i]);
		break;
	}
	if (back[bytes] != 0x5a)
		me_fail(me, "reading %llu bytes wrote one more", (unsigned long long)bytes);
	if (read)
		me_count(me, SOAK_COUNT_transfers, 1);
	me_count(me, SOAK_COUNT_bytes, (int64_t)bytes);
	free(back);
}

static void begin(struct me *me, struct kept *kept)
{
	unsigned flags = me->on_cpu && me_chance(me, 2) ? KILN_BUFFER_SHARED : 0;
	kept->bytes = (uint64_t)pick_size(me);
	kept->since_ms = soak_now_ms();
	kept->model = calloc(1, kept->bytes + 8);
	if (!kept->model) {
		me_fail(me, "no memory");
		return;
	}
	if (!me_ok(me, kiln_alloc(me->client, kept->bytes, flags, "kept", &kept->buffer),
			   "allocating kept memory")) {
		forget(kept);
		return;
	}
	kept->known = true;
	if (me_chance(me, 4))
		compare(me, kept, 0, kept->bytes); /* zeros */
	if (kept->known)
		write_all(me, kept);
}

static void rewrite_part(struct me *me, struct kept *kept, uint64_t from, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		kept->model[from + i] = (unsigned char)cases_word(&me->state);
	kept->known = me_ok_since(me, kiln_write(kept->buffer, from, kept->model + from, bytes),
							  "writing a part of kept memory", kept->since_ms);
	if (kept->known)
		me_count(me, SOAK_COUNT_transfers, 1);
}

void step_kept(struct me *me)
{
	struct kept *kept = &me->kept[me_pick(me, KEPT)];
	int64_t what = me_pick(me, 10);

	if (!kept->buffer) {
		begin(me, kept);
		return;
	}
	if (what == 0) {
		me_free(me, kept->buffer);
		forget(kept);
		return;
	}
	/* A write of a part goes well where all was lost, and is no reason to read it. */
	if (!kept->known) {
		write_all(me, kept);
		return;
	}
	uint64_t from = (uint64_t)me_pick(me, (int64_t)kept->bytes + 1), left = kept->bytes - from;
	uint64_t bytes = (uint64_t)me_pick(me, (int64_t)(left < 9000 ? left : 9000) + 1);
	if (what < 4)
		rewrite_part(me, kept, from, bytes);
	else if (what < 8)
		compare(me, kept, from, bytes);
	else
		compare(me, kept, 0, kept->bytes);
}
