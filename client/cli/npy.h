/*
 * npy.h: NumPy's files of one array (.npy, formats 1.0, 2.0 and 3.0), read and written, for
 * the kiln command.  Numbers and bools, little-endian.  Knows nothing of operators or the daemon.
 *
 * In memory an array is always in row-major order: one that a file has in Fortran order is turned
 * as it is read.  NumPy has no bf16, so that is written as its bits, u16.
 */
#ifndef KILN_CLI_NPY_H
#define KILN_CLI_NPY_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NPY_WHY_MAX 512      /* room for the sentence of a refusal */
#define NPY_HEADER_MAX 65600 /* bytes before the data, at most */
#define NPY_WRITTEN_MAX 384  /* of those that are written here */

struct npy {
	kiln_dtype dtype;
	int rank;
	int64_t shape[KILN_MAX_RANK];
	uint64_t bytes; /* of the elements */
	void *data;     /* to be freed by the caller; NULL where only the header was looked at */
};

/* All of these: false, and a sentence in why. */

/* Reads the whole file. */
bool npy_read(const char *path, struct npy *npy, char why[NPY_WHY_MAX]);
/* Writes npy->data under another name in the same directory, then renames it: PATH is there as a
 * whole or as it was. */
bool npy_write(const char *path, const struct npy *npy, char why[NPY_WHY_MAX]);

/* ---- The parts ---- */

/* From the first bytes of a file of so many bytes in all, of which have are here: what it holds,
 * where the elements begin, and whether they are in Fortran order. */
bool npy_parse(const uint8_t *file, size_t have, uint64_t size, struct npy *npy, uint64_t *data_at,
			   bool *fortran, char why[NPY_WHY_MAX]);
/* Elements in Fortran order to row-major order. */
void npy_turn(const struct npy *npy, const uint8_t *from, uint8_t *to);
/* The bytes before the data; returns how many, a multiple of 64. */
size_t npy_header(const struct npy *npy, uint8_t header[NPY_WRITTEN_MAX]);

#endif
