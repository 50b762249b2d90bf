/*
 * pack: writes rows of a cache as one file, sealed by its maker, and reads them into another cache;
 * in pieces so short that lookups go between, and with memory for one row at a time.  One thread at
 * a time uses a writer or a reader.  Functions that return an int return KILN_OK, or a status with
 * a sentence in error.
 *
 * A file has, with numbers of 8 bytes, little endian:
 *   "KILNPACK", the version: 2 with winners of tuning, else 1
 *   for each row its length, which is not 0, and its bytes as cache_row_encode makes them, in the
 *   order of the keys
 *   for each winner its length, with the bit 62, and its bytes: six texts, each ended by 0, and
 *   four numbers, in the order of struct cache_tuned
 *   the number of winners, the number of rows, and the sum of all lengths
 *   the seal (seal/seal.h) of all that, for the purpose PACK_PURPOSE
 *
 * A backup is such a file for the same user's own cache: "KILNKEEP" instead of "KILNPACK" and the
 * version 2, with times of use, with the highest bit of the length of a pinned row, and a digest
 * instead of the seal, so that no key is needed and none is in it.
 */
#ifndef KILN_DAEMON_CACHE_PACK_H
#define KILN_DAEMON_CACHE_PACK_H

#include "../seal/seal.h"
#include "cache.h"

#define PACK_PURPOSE "kiln pack 1"

struct pack_figures {
	uint64_t rows, bytes;    /* kernels of the pack; bytes of the file */
	uint64_t taken, present; /* reading: kernels put into the cache; kernels there already */
	uint64_t undone;         /* reading: kernels removed again, for a later one failed */
	uint64_t winners;        /* of tuning */
};

/* ---- Writing ---- */

struct pack_writer;
/* Begins a pack, or a backup, which no other user can read; pack_write_close() frees the writer.
 * The file has another name until all is written.  filter's used_before, op, target and compiler
 * choose rows as for cache_trim(), op and target winners of tuning, too; they are copied.  So who
 * takes the pack plans as this cache's owner did, and finds the rows. */
int pack_write_open(const char *path, bool backup, const struct cache_trim *filter,
					struct pack_writer **out, char error[KERNEL_ERROR_MAX]);
/* Writes one piece; *more: there is another.  Leaves out rows that turn out damaged. */
int pack_write(struct pack_writer *writer, struct cache *cache, bool *more,
			   char error[KERNEL_ERROR_MAX]);
/* Seals the file, but a backup (secret is NULL), and gives it its name.  KILN_ENOENT: there is no
 * row. */
int pack_write_end(struct pack_writer *writer, const struct seal_secret *secret, int64_t when,
				   int64_t until, struct pack_figures *figures, char error[KERNEL_ERROR_MAX]);
/* Frees the writer, and removes a file that is not finished. */
void pack_write_close(struct pack_writer *writer);

/* ---- Reading ---- */

struct pack_reader;
/* Opens a pack, or with ring NULL a backup, which only root or this user may have been able to
 * write; pack_read_close() frees the reader, which uses ring until then.  KILN_EIO,
 * KILN_EINVAL (the file is no pack), KILN_EVERSION, KILN_ENOMEM. */
int pack_read_open(const char *path, const struct seal_ring *ring, struct pack_reader **out,
				   char error[KERNEL_ERROR_MAX]);
/* Reads one piece; *more: there is another.  The first pieces check the seal over the whole file,
 * the others take the rows that the cache has not.  After a failure, or to stop, the caller calls
 * pack_undo() until there is no more; the cache then has none of the rows.  KILN_EPERM: the seal;
 * KILN_EPROTO: a row is damaged, or its key is not that of its text; KILN_ELIMIT: the cache may not
 * hold so much; KILN_EIO. */
int pack_read(struct pack_reader *reader, struct cache *cache, int64_t now, bool *more,
			  char error[KERNEL_ERROR_MAX]);
/* Removes one piece of the rows that were taken; true: there is another.  A row that cannot be
 * removed stays whole. */
bool pack_undo(struct pack_reader *reader, struct cache *cache);
/* Returns the signer, known once rows are taken; the reader owns it. */
const struct seal_signer *pack_signer(const struct pack_reader *reader);
const struct pack_figures *pack_figures(const struct pack_reader *reader);
/* Lists the winners of tuning that were taken; the reader owns them. */
const struct cache_tuned *pack_winners_taken(const struct pack_reader *reader, size_t *count);
/* Lists the compilers of the rows that were taken or there, up to PACK_COMPILERS different ones;
 * returns how many.  The reader owns the names. */
#define PACK_COMPILERS 8
int pack_compilers(const struct pack_reader *reader, const char *names[PACK_COMPILERS]);
void pack_read_close(struct pack_reader *reader);

#endif
