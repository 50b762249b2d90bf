/*
 * pack_read.c: from a pack to rows.  The file is read twice: first to check the seal over all its
 * bytes, then to take the rows from the same bytes (pack_bytes.c).  No length is believed.
 *
 *   PACK_LOOKING --(the seal fits)--> PACK_TAKING --(the last row is in the cache)--> PACK_DONE
 *
 * A pack that is refused stays in its phase; the caller then calls pack_undo() and closes it.
 */
#include "pack.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_state.h"
#include "pack_bytes.h"
#include "pack_format.h"
#include "pack_winners.h"

#define RESERVE_BYTES (4 << 20)

enum pack_phase { PACK_LOOKING, PACK_TAKING, PACK_DONE };

struct pack_reader {
	struct pack_bytes bytes;
	const struct seal_ring *ring;
	enum pack_phase phase;
	uint64_t version;
	uint64_t at;           /* offset of the next byte */
	uint64_t end;          /* offset of the last numbers */
	struct util_hash hash; /* LOOKING: of the bytes before at */
	struct seal_signer signer;
	struct pack_figures figures;
	uint64_t sum;              /* TAKING: of the lengths of rows */
	char last[KERNEL_KEY_HEX]; /* the key of the last row */
	struct pack_winners winners;
	char (*taken)[KERNEL_KEY_HEX]; /* the keys of rows that the cache had not */
	size_t taken_count, taken_capacity;
	char compilers[PACK_COMPILERS][CACHE_COMPILER_MAX];
	int compiler_count;
	int reserve; /* a file that keeps room on the disk for pack_undo(); -1: none */
};

/* Reads the next bytes. */
static int get(struct pack_reader *reader, void *bytes, size_t size, char error[KERNEL_ERROR_MAX])
{
	int status = pack_bytes_get(&reader->bytes, reader->at, bytes, size, error);
	if (status == KILN_OK && reader->phase == PACK_LOOKING)
		util_hash_add(&reader->hash, bytes, size);
	reader->at += status == KILN_OK ? size : 0;
	return status;
}

/* Returns the bytes behind the last numbers: the seal of a pack, the digest of a backup. */
static uint64_t tail_bytes(const struct pack_reader *reader)
{
	return reader->ring ? SEAL_BYTES : BACKUP_DIGEST_BYTES;
}

/* A backup has no seal: whoever could write it could put kernels into the cache. */
static int check_owner(const struct pack_reader *reader, char error[KERNEL_ERROR_MAX])
{
	struct stat status;
	if (fstat(reader->bytes.fd, &status) == 0 && (status.st_uid == geteuid() || !status.st_uid) &&
		(status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
		return KILN_OK;
	return FAIL(KILN_EPERM,
				"%s may have been written by others than uid %u: a backup is restored by who "
				"made it; for kernels of others there is `kiln cache export`, which seals them",
				reader->bytes.what, (unsigned)geteuid());
}

static int read_head(struct pack_reader *reader, char error[KERNEL_ERROR_MAX])
{
	unsigned char head[PACK_HEAD_BYTES];
	const char *magic = reader->ring ? PACK_MAGIC : BACKUP_MAGIC;
	uint64_t tail = tail_bytes(reader) + 8 * PACK_END_NUMBERS;
	if (reader->bytes.size < PACK_HEAD_BYTES + tail) {
		return FAIL(KILN_EINVAL, "%s is no pack, or only the beginning of one: it has %llu bytes",
					reader->bytes.what, (unsigned long long)reader->bytes.size);
	}
	int result = get(reader, head, sizeof(head), error);
	if (result == KILN_OK && memcmp(head, magic, 8) != 0)
		return FAIL(KILN_EINVAL, "%s is no pack: it does not begin as one", reader->bytes.what);
	uint64_t newest = reader->ring ? PACK_VERSION : BACKUP_VERSION;
	uint64_t version = result == KILN_OK ? util_get_u64(head + 8) : 0;
	if (result == KILN_OK && (version < 1 || version > newest)) {
		return FAIL(KILN_EVERSION,
					"%s is a pack of version %llu, and this kilnd knows version %llu",
					reader->bytes.what, (unsigned long long)version, (unsigned long long)newest);
	}
	reader->version = version;
	reader->end = reader->bytes.size - tail;
	return result == KILN_OK && !reader->ring ? check_owner(reader, error) : result;
}

int pack_read_open(const char *path, const struct seal_ring *ring, struct pack_reader **out,
				   char error[KERNEL_ERROR_MAX])
{
	struct pack_reader *reader = calloc(1, sizeof(*reader));
	if (!reader)
		return FAIL(KILN_ENOMEM, "out of memory for a pack");
	reader->ring = ring;
	reader->reserve = -1;
	util_hash_begin(&reader->hash);
	int status = pack_bytes_open(path, &reader->bytes, error);
	if (status == KILN_OK)
		status = read_head(reader, error);
	if (status != KILN_OK) {
		pack_read_close(reader);
		return status;
	}
	*out = reader;
	return KILN_OK;
}

/* ---- Looking at all of it ---- */

/* Keeps room for pack_undo(): a full disk needs some even to remove rows. */
static int reserve_room(struct pack_reader *reader, struct cache *cache,
						char error[KERNEL_ERROR_MAX])
{
	reader->reserve = openat(cache->place.directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int code = reader->reserve < 0 ? 0 : posix_fallocate(reader->reserve, 0, RESERVE_BYTES);
	return code == ENOSPC || code == EFBIG || code == EDQUOT
			   ? FAIL(KILN_EIO, "there is no room for %s on the disk of the cache: %s",
					  reader->bytes.what, strerror(code))
			   : KILN_OK;
}

static void give_up_reserve(struct pack_reader *reader)
{
	if (reader->reserve >= 0)
		close(reader->reserve);
	reader->reserve = -1;
}

static int check_seal(struct pack_reader *reader, struct cache *cache, int64_t now,
					  char error[KERNEL_ERROR_MAX])
{
	unsigned char seal[SEAL_BYTES], end[8 * PACK_END_NUMBERS];
	struct seal_content content = {.bytes = reader->at};
	util_hash_end(&reader->hash, content.digest);
	int status = pack_bytes_get(&reader->bytes, reader->at, seal, tail_bytes(reader), error);
	if (status == KILN_OK && !reader->ring && memcmp(seal, content.digest, BACKUP_DIGEST_BYTES))
		status = FAIL(KILN_EPROTO, "%s is damaged", reader->bytes.what);
	if (status == KILN_OK && reader->ring) {
		status = seal_check(reader->ring, PACK_PURPOSE, reader->bytes.what, &content, seal, now,
							&reader->signer, error);
	}
	if (status == KILN_OK)
		status = pack_bytes_get(&reader->bytes, reader->end, end, sizeof(end), error);
	if (status != KILN_OK)
		return status;
	reader->figures.rows = util_get_u64(end + 8);
	reader->figures.bytes = reader->bytes.size;
	status = cache_room(cache, reader->bytes.size, reader->figures.rows, error);
	if (status == KILN_OK)
		status = reserve_room(reader, cache, error);
	if (status == KILN_OK) {
		reader->phase = PACK_TAKING;
		reader->at = PACK_HEAD_BYTES;
	}
	return status;
}

static int check_piece(struct pack_reader *reader, struct cache *cache, int64_t now,
					   char error[KERNEL_ERROR_MAX])
{
	static const size_t chunk = 65536;
	uint64_t content = reader->bytes.size - tail_bytes(reader), first = reader->at;
	unsigned char *buffer = malloc(chunk);
	int status = buffer ? KILN_OK : FAIL(KILN_ENOMEM, "out of memory for a pack");
	while (status == KILN_OK && reader->at < content && reader->at - first < PACK_PIECE_BYTES) {
		uint64_t left = content - reader->at;
		status = get(reader, buffer, left < chunk ? (size_t)left : chunk, error);
	}
	free(buffer);
	if (status == KILN_OK && reader->at == content)
		status = check_seal(reader, cache, now, error);
	return status;
}

/* ---- Taking the rows ---- */

static void note_compiler(struct pack_reader *reader, const struct cache_row *row)
{
	char compiler[CACHE_COMPILER_MAX];
	cache_row_compiler(row->key_text, strlen(row->key_text), compiler);
	for (int i = 0; i < reader->compiler_count; i++)
		if (strcmp(reader->compilers[i], compiler) == 0)
			return;
	if (reader->compiler_count < PACK_COMPILERS)
		memcpy(reader->compilers[reader->compiler_count++], compiler, sizeof(compiler));
}

/* Makes room to remember one more key; false without memory. */
static bool reserve_keys(struct pack_reader *reader)
{
	if (reader->taken_count < reader->taken_capacity)
		return true;
	size_t capacity = reader->taken_capacity ? 2 * reader->taken_capacity : 64;
	void *grown = realloc(reader->taken, capacity * sizeof(*reader->taken));
	if (!grown)
		return false;
	reader->taken = grown;
	reader->taken_capacity = capacity;
	return true;
}

static int check_row(struct pack_reader *reader, const struct cache_row *row,
					 char error[KERNEL_ERROR_MAX])
{
	if (!cache_row_key_fits(row)) {
		return FAIL(KILN_EPROTO, "%s has a kernel %.12s whose key is not the hash of its text",
					reader->bytes.what, row->key);
	}
	if (strcmp(row->key, reader->last) <= 0) {
		return FAIL(KILN_EPROTO, "%s has a kernel %.12s that is not in the order of the keys",
					reader->bytes.what, row->key);
	}
	memcpy(reader->last, row->key, sizeof(reader->last));
	return KILN_OK;
}

static int take_pack_row(struct pack_reader *reader, struct cache *cache, const void *blob,
						 size_t size, bool pinned, int64_t now, char error[KERNEL_ERROR_MAX])
{
	struct cache_row row;
	char why[KERNEL_ERROR_MAX], key[KERNEL_KEY_HEX];
	bool was_there = false;
	if (cache_row_decode(blob, size, &row, why) != KILN_OK)
		return FAIL(KILN_EPROTO, "%s: %.150s", reader->bytes.what, why);
	int status = check_row(reader, &row, error);
	if (status == KILN_OK && !reserve_keys(reader))
		status = FAIL(KILN_ENOMEM, "out of memory for a pack");
	if (status == KILN_OK) {
		if (reader->ring) {
			row.used = now;
			row.hits = 0;
		}
		status = cache_take(cache, &row, blob, size, &was_there, error);
	}
	if (status == KILN_OK) {
		note_compiler(reader, &row);
		reader->figures.present += was_there;
		reader->figures.taken += !was_there;
		if (!was_there)
			memcpy(reader->taken[reader->taken_count++], row.key, KERNEL_KEY_HEX);
	}
	if (status == KILN_OK && pinned)
		status = cache_pin(cache, row.key, true, key, error);
	cache_row_free(&row);
	return status;
}

static int next_row(struct pack_reader *reader, struct cache *cache, int64_t now,
					char error[KERNEL_ERROR_MAX])
{
	unsigned char number[8];
	int status = get(reader, number, sizeof(number), error);
	uint64_t size = util_get_u64(number);
	bool pinned = !reader->ring && (size & PACK_PINNED) != 0;
	bool winner = reader->version > 1 && !pinned && (size & PACK_WINNER) != 0;
	size &= pinned ? ~PACK_PINNED : winner ? ~PACK_WINNER : UINT64_MAX;
	if (status != KILN_OK)
		return status;
	if (size == 0 || size > ROW_BYTES_MAX || size > reader->end - reader->at) {
		return FAIL(KILN_EPROTO, "%s has a kernel of %llu bytes where %llu are left",
					reader->bytes.what, (unsigned long long)size,
					(unsigned long long)(reader->end - reader->at));
	}
	void *blob = malloc((size_t)size);
	if (!blob) {
		return FAIL(KILN_ENOMEM, "out of memory for a kernel of %llu bytes",
					(unsigned long long)size);
	}
	status = get(reader, blob, (size_t)size, error);
	if (status == KILN_OK && winner)
		status = pack_winners_add(&reader->winners, blob, (size_t)size, reader->bytes.what, error);
	else if (status == KILN_OK)
		status = take_pack_row(reader, cache, blob, (size_t)size, pinned, now, error);
	free(blob);
	reader->sum += size;
	return status;
}

static int finish_reading(struct pack_reader *reader, struct cache *cache,
						  char error[KERNEL_ERROR_MAX])
{
	unsigned char end[8 * PACK_END_NUMBERS];
	uint64_t rows = reader->figures.taken + reader->figures.present;
	int status = get(reader, end, sizeof(end), error);
	if (status != KILN_OK)
		return status;
	if (util_get_u64(end) != reader->winners.count || util_get_u64(end + 8) != rows ||
		util_get_u64(end + 16) != reader->sum) {
		return FAIL(KILN_EPROTO, "%s says that it has %llu kernels of %llu bytes, and has %llu",
					reader->bytes.what, (unsigned long long)util_get_u64(end + 8),
					(unsigned long long)util_get_u64(end + 16), (unsigned long long)rows);
	}
	reader->figures.winners = reader->winners.count;
	status = pack_winners_take(&reader->winners, cache, error);
	if (status == KILN_OK)
		reader->phase = PACK_DONE;
	return status;
}

static int take_piece(struct pack_reader *reader, struct cache *cache, int64_t now,
					  char error[KERNEL_ERROR_MAX])
{
	uint64_t first = reader->at;
	int status = KILN_OK;
	for (int i = 0; status == KILN_OK && i < PACK_PIECE_ROWS && reader->at < reader->end &&
					reader->at - first < PACK_PIECE_BYTES;
		 i++) {
		if (reader->end - reader->at < 8) {
			return FAIL(KILN_EPROTO, "%s has %llu bytes behind its kernels", reader->bytes.what,
						(unsigned long long)(reader->end - reader->at));
		}
		status = next_row(reader, cache, now, error);
	}
	if (status == KILN_OK && reader->at == reader->end)
		status = finish_reading(reader, cache, error);
	return status;
}

static void pack_assert_valid(const struct pack_reader *reader)
{
	assert(reader->phase != PACK_LOOKING || (!reader->taken_count && !reader->figures.present));
	assert(reader->at <= reader->bytes.size);
	(void)reader;
}

int pack_read(struct pack_reader *reader, struct cache *cache, int64_t now, bool *more,
			  char error[KERNEL_ERROR_MAX])
{
	pack_assert_valid(reader);
	int status = reader->phase == PACK_LOOKING ? check_piece(reader, cache, now, error)
											   : take_piece(reader, cache, now, error);
	*more = status == KILN_OK && reader->phase != PACK_DONE;
	return status;
}

bool pack_undo(struct pack_reader *reader, struct cache *cache)
{
	char error[KERNEL_ERROR_MAX];
	if (reader->reserve >= 0) {
		give_up_reserve(reader);
		cache_flush(cache);
	}
	for (int i = 0; i < PACK_PIECE_ROWS && reader->taken_count; i++) {
		const char *key = reader->taken[--reader->taken_count];
		if (cache_remove(cache, key, error) == KILN_OK) {
			reader->figures.undone++;
		} else {
			util_log(UTIL_WARN, "kernel %.12s of %s stays in the cache: %s", key,
					 reader->bytes.what, error);
		}
	}
	return reader->taken_count > 0;
}

const struct seal_signer *pack_signer(const struct pack_reader *reader)
{
	return &reader->signer;
}

const struct pack_figures *pack_figures(const struct pack_reader *reader)
{
	return &reader->figures;
}

const struct cache_tuned *pack_winners_taken(const struct pack_reader *reader, size_t *count)
{
	*count = reader->winners.count;
	return reader->winners.rows;
}

int pack_compilers(const struct pack_reader *reader, const char *names[PACK_COMPILERS])
{
	for (int i = 0; i < reader->compiler_count; i++)
		names[i] = reader->compilers[i];
	return reader->compiler_count;
}

void pack_read_close(struct pack_reader *reader)
{
	if (!reader)
		return;
	pack_bytes_close(&reader->bytes);
	give_up_reserve(reader);
	free(reader->taken);
	free(reader->winners.rows);
	free(reader);
}
