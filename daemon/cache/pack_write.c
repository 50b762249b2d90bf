/* pack_write.c: from rows to a pack.  Knows nothing of what is in a row. */
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pack_format.h"
#include "pack_winners.h"

struct pack_writer {
	int fd;
	char path[PATH_MAX], temporary[PATH_MAX + 32];
	/* The filter: "" and 0 let every row through. */
	char op[24], target[KERNEL_TARGET_MAX], compiler[CACHE_COMPILER_MAX];
	int64_t used_before;
	struct util_hash hash;
	char next[KERNEL_KEY_HEX]; /* the key of the last row that was looked at */
	uint64_t rows, bytes, sum; /* of all rows; of the file; of lengths */
	uint64_t wanted, winners;  /* of tuning: that fit the filter at first; written */
	int status;                /* of the winners that were written so far */
	bool backup, finished;
};

static int fail_io(const struct pack_writer *writer, char error[KERNEL_ERROR_MAX])
{
	return FAIL(KILN_EIO, "%.200s cannot be written: %s", writer->path, strerror(errno));
}

static int put_bytes(struct pack_writer *writer, const void *bytes, size_t size,
					 char error[KERNEL_ERROR_MAX])
{
	const char *at = bytes;
	util_hash_add(&writer->hash, bytes, size);
	writer->bytes += size;
	while (size) {
		ssize_t wrote = write(writer->fd, at, size);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return fail_io(writer, error);
		at += wrote;
		size -= (size_t)wrote;
	}
	return KILN_OK;
}

static int put_numbers(struct pack_writer *writer, const uint64_t *numbers, int count,
					   char error[KERNEL_ERROR_MAX])
{
	unsigned char bytes[8 * PACK_END_NUMBERS];
	for (int i = 0; i < count; i++)
		util_put_u64(bytes + 8 * i, numbers[i]);
	return put_bytes(writer, bytes, 8 * (size_t)count, error);
}

int pack_write_open(const char *path, bool backup, const struct cache_trim *filter,
					struct pack_writer **out, char error[KERNEL_ERROR_MAX])
{
	struct stat there;
	struct pack_writer *writer = calloc(1, sizeof(*writer));
	if (!writer)
		return FAIL(KILN_ENOMEM, "out of memory for a pack");
	if (path[0] != '/' || strlen(path) >= sizeof(writer->path)) {
		free(writer);
		return FAIL(KILN_EINVAL, "\"%.200s\" is no absolute path of at most %d bytes", path,
					PATH_MAX - 1);
	}
	/* The path may name a device, such as /dev/null: the pack must not replace it. */
	if (lstat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
		free(writer);
		return FAIL(KILN_EINVAL, "%.200s is there already and is no file: a pack is a file", path);
	}
	snprintf(writer->path, sizeof(writer->path), "%s", path);
	/* The time tells apart the files of several kilnds with one pid, in containers, and of one that
	 * was killed. */
	snprintf(writer->temporary, sizeof(writer->temporary), "%s.part%llx", path,
			 (unsigned long long)util_now_us());
	snprintf(writer->op, sizeof(writer->op), "%s", filter->op ? filter->op : "");
	snprintf(writer->target, sizeof(writer->target), "%s", filter->target ? filter->target : "");
	snprintf(writer->compiler, sizeof(writer->compiler), "%s",
			 filter->compiler ? filter->compiler : "");
	writer->used_before = filter->used_before;
	util_hash_begin(&writer->hash);
	writer->backup = backup;
	writer->fd =
		open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, backup ? 0600 : 0644);
	if (writer->fd < 0) {
		int status = fail_io(writer, error);
		free(writer);
		return status;
	}
	*out = writer;
	return KILN_OK;
}

/* The keys of a piece: the list is finished before cache_peek() reads the rows. */
struct page {
	const struct pack_writer *writer;
	char keys[PACK_PIECE_ROWS][KERNEL_KEY_HEX];
	int count, seen;
	char last[KERNEL_KEY_HEX];
};

static bool fits_filter(const struct pack_writer *writer, const struct cache_row *row)
{
	return (!writer->op[0] || strcmp(writer->op, row->op) == 0) &&
		   (!writer->target[0] || strcmp(writer->target, row->target) == 0) &&
		   (!writer->compiler[0] || strstr(row->compiler, writer->compiler)) &&
		   (!writer->used_before || row->used < writer->used_before);
}

static void note(const struct cache_row *row, void *arg)
{
	struct page *page = arg;
	if (fits_filter(page->writer, row))
		memcpy(page->keys[page->count++], row->key, KERNEL_KEY_HEX);
	page->seen++;
	memcpy(page->last, row->key, KERNEL_KEY_HEX);
}

/* A pack leaves out when and how often a row was used: that is private, and the same rows make the
 * same pack. */
static int put_pack_row(struct pack_writer *writer, struct cache_row *row,
						char error[KERNEL_ERROR_MAX])
{
	void *blob;
	size_t size;
	if (!writer->backup) {
		row->used = row->created;
		row->hits = 0;
	}
	if (cache_row_encode(row, &blob, &size) != KILN_OK)
		return FAIL(KILN_ENOMEM, "out of memory for kernel %.12s", row->key);
	uint64_t length = size | (writer->backup && row->pinned ? PACK_PINNED : 0);
	int status = put_numbers(writer, &length, 1, error);
	if (status == KILN_OK)
		status = put_bytes(writer, blob, size, error);
	free(blob);
	writer->rows++;
	writer->sum += size;
	return status;
}

static bool winner_fits(const struct pack_writer *writer, const struct cache_tuned *row)
{
	return (!writer->op[0] || strcmp(writer->op, row->op) == 0) &&
		   (!writer->target[0] || strcmp(writer->target, row->target) == 0);
}

static void count_winner(const struct cache_tuned *row, void *arg)
{
	struct pack_writer *writer = arg;
	writer->wanted += winner_fits(writer, row);
}

/* The head comes with the first piece, for the version tells whether there are winners. */
static int put_head(struct pack_writer *writer, struct cache *cache, char error[KERNEL_ERROR_MAX])
{
	int status = cache_tuned_list(cache, count_winner, writer, error);
	uint64_t version = writer->backup ? BACKUP_VERSION : writer->wanted ? PACK_VERSION : 1;
	if (status == KILN_OK)
		status = put_bytes(writer, writer->backup ? BACKUP_MAGIC : PACK_MAGIC, 8, error);
	return status == KILN_OK ? put_numbers(writer, &version, 1, error) : status;
}

static void put_winner(const struct cache_tuned *row, void *arg)
{
	struct pack_writer *writer = arg;
	unsigned char bytes[PACK_WINNER_MOST];
	char error[KERNEL_ERROR_MAX];
	/* One that came in between is for the next pack. */
	if (!winner_fits(writer, row) || writer->winners == writer->wanted)
		return;
	size_t size = pack_winner_encode(row, bytes);
	uint64_t length = size | PACK_WINNER;
	if (writer->status == KILN_OK)
		writer->status = put_numbers(writer, &length, 1, error);
	if (writer->status == KILN_OK)
		writer->status = put_bytes(writer, bytes, size, error);
	writer->winners++;
	writer->sum += size;
}

/* They are few, so one piece has them all. */
static int put_winners(struct pack_writer *writer, struct cache *cache,
					   char error[KERNEL_ERROR_MAX])
{
	int status = cache_tuned_list(cache, put_winner, writer, error);
	return status == KILN_OK && writer->status != KILN_OK ? fail_io(writer, error) : status;
}

int pack_write(struct pack_writer *writer, struct cache *cache, bool *more,
			   char error[KERNEL_ERROR_MAX])
{
	struct page page = {.writer = writer};
	uint64_t first = writer->bytes;
	int status = writer->bytes ? KILN_OK : put_head(writer, cache, error);
	if (status == KILN_OK)
		status = cache_list(cache, "key", writer->next, PACK_PIECE_ROWS, note, &page, error);
	*more = page.seen == PACK_PIECE_ROWS;
	memcpy(writer->next, page.last, KERNEL_KEY_HEX);
	for (int i = 0; i < page.count && status == KILN_OK; i++) {
		struct cache_row row;
		status = cache_peek(cache, page.keys[i], &row, error);
		if (status == KILN_ENOENT) { /* damaged, or trimmed in between */
			status = KILN_OK;
			continue;
		}
		if (status == KILN_OK) {
			status = put_pack_row(writer, &row, error);
			cache_row_free(&row);
		}
		if (status == KILN_OK && writer->bytes - first >= PACK_PIECE_BYTES && i + 1 < page.count) {
			memcpy(writer->next, page.keys[i], KERNEL_KEY_HEX);
			*more = true;
			break;
		}
	}
	if (status == KILN_OK && !*more)
		status = put_winners(writer, cache, error);
	return status;
}

/* Brings the bytes and then the name to the disk. */
static int publish(struct pack_writer *writer, char error[KERNEL_ERROR_MAX])
{
	char directory[PATH_MAX];
	if (fsync(writer->fd) != 0 || rename(writer->temporary, writer->path) != 0)
		return fail_io(writer, error);
	writer->finished = true;
	snprintf(directory, sizeof(directory), "%.*s/",
			 (int)(strrchr(writer->path, '/') - writer->path), writer->path);
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	return KILN_OK;
}

int pack_write_end(struct pack_writer *writer, const struct seal_secret *secret, int64_t when,
				   int64_t until, struct pack_figures *figures, char error[KERNEL_ERROR_MAX])
{
	const uint64_t end[PACK_END_NUMBERS] = {writer->winners, writer->rows, writer->sum};
	unsigned char seal[SEAL_BYTES];
	struct seal_content content;
	if (!writer->rows && !(writer->backup && writer->winners))
		return FAIL(KILN_ENOENT, "there is no kernel to %s",
					writer->backup ? "back up: the cache is empty"
								   : "export: the cache has none of this kind");
	int status = put_numbers(writer, end, PACK_END_NUMBERS, error);
	content.bytes = writer->bytes;
	util_hash_end(&writer->hash, content.digest);
	util_hash_begin(&writer->hash);
	if (secret)
		seal_make(secret, PACK_PURPOSE, &content, when, until, seal);
	if (status == KILN_OK)
		status = secret ? put_bytes(writer, seal, sizeof(seal), error)
						: put_bytes(writer, content.digest, BACKUP_DIGEST_BYTES, error);
	if (status == KILN_OK)
		status = publish(writer, error);
	*figures = (struct pack_figures){
		.rows = writer->rows, .bytes = writer->bytes, .winners = writer->winners};
	return status;
}

void pack_write_close(struct pack_writer *writer)
{
	if (!writer)
		return;
	close(writer->fd);
	if (!writer->finished)
		unlink(writer->temporary);
	free(writer);
}
