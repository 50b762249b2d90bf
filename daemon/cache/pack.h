/*
 * pack: rows of a cache as one file, sealed by who made it, and back into another cache; in pieces
 * so short that lookups go between, and with memory for one row at a time.
 *
 * A file is, with numbers of 8 bytes, little endian:
 *   "KILNPACK", the version 1
 *   for each row its length, which is not 0, and its bytes as cache_row_encode makes them, in the
 *   order of the keys
 *   0, the number of rows, and the sum of their lengths
 *   the seal (seal/seal.h) of all that, for the purpose PACK_PURPOSE
 */
#ifndef KILN_DAEMON_CACHE_PACK_H
#define KILN_DAEMON_CACHE_PACK_H

#include "../seal/seal.h"
#include "cache.h"

#define PACK_PURPOSE "kiln pack 1"

struct pack_figures {
	uint64_t rows, bytes;    /* that the pack has: kernels; bytes of the file */
	uint64_t taken, present; /* reading: put into the cache; there already */
	uint64_t undone;         /* reading: taken and removed again, for a later one failed */
};

/* ---- Writing ---- */

struct pack_writer;
/* The file appears when all is written; until then it is another beside it.  filter's used_before,
 * op, target and compiler choose rows as they do for cache_trim. */
int pack_write_open(const char *path, const struct cache_trim *filter, struct pack_writer **out,
					char error[KERNEL_ERROR_MAX]);
/* One piece; *more: there is another.  Rows that turn out damaged are left out. */
int pack_write(struct pack_writer *writer, struct cache *cache, bool *more,
			   char error[KERNEL_ERROR_MAX]);
/* Seals it and gives it its name.  KILN_ENOENT: there is no row. */
int pack_write_end(struct pack_writer *writer, const struct seal_secret *secret, int64_t when,
				   int64_t until, struct pack_figures *figures, char error[KERNEL_ERROR_MAX]);
/* Frees it, and removes what is not finished. */
void pack_write_close(struct pack_writer *writer);

/* ---- Reading ---- */

struct pack_reader;
/* KILN_EIO, KILN_EPERM (it is not sealed), KILN_EINVAL (it is no pack), KILN_ENOMEM. */
int pack_read_open(const char *path, const struct seal_ring *ring, struct pack_reader **out,
				   char error[KERNEL_ERROR_MAX]);
/*
 * One piece: first of looking at all of it, and when it is known that the seal fits, of taking the
 * rows that the cache has not.  Whatever fails, and whoever stops: pack_undo() until there is no
 * more, and the cache has none of them.  KILN_EPERM: the seal; KILN_EPROTO: a row is damaged, or
 * has another key than its text says; KILN_ELIMIT: more than the cache may hold; KILN_EIO.
 */
int pack_read(struct pack_reader *reader, struct cache *cache, int64_t now, bool *more,
			  char error[KERNEL_ERROR_MAX]);
/* One piece of removing what was taken.  A row that cannot be removed stays, whole as it is. */
bool pack_undo(struct pack_reader *reader, struct cache *cache);
/* Returns the signer; known once rows are taken. */
const struct seal_signer *pack_signer(const struct pack_reader *reader);
const struct pack_figures *pack_figures(const struct pack_reader *reader);
/* Compilers of the rows that were taken or there, up to PACK_COMPILERS different ones. */
#define PACK_COMPILERS 8
int pack_compilers(const struct pack_reader *reader,
				   const char *names[PACK_COMPILERS]); /* valid as long as the reader */
void pack_read_close(struct pack_reader *reader);

#endif
