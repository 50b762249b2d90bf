/*
 * npy.h: reads and writes NumPy's files of one array (.npy, formats 1.0, 2.0 and 3.0) with
 * little-endian numbers and bools.  It knows nothing of operators or the daemon.
 *
 * In memory an array is row-major; an array in Fortran order is turned as it is read.  NumPy has no
 * bf16 and no floats of 8 bits, so their bits are written as u16 and u8.
 */
#ifndef KILN_CLI_NPY_H
#define KILN_CLI_NPY_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NPY_WHY_MAX 512      /* room for the sentence of a refusal */
#define NPY_HEADER_MAX 65600 /* most bytes before the data */
#define NPY_WRITTEN_MAX 384  /* bytes of headers written here */

struct npy {
	kiln_dtype dtype;
	int rank;
	int64_t shape[KILN_MAX_RANK];
	uint64_t bytes; /* of the elements */
	void *data;     /* the caller frees it; NULL where only the header was read */
};

/* Each returns false, and a sentence in why. */

/* Reads the whole file. */
bool npy_read(const char *path, struct npy *npy, char why[NPY_WHY_MAX]);
/* Writes npy->data under another name in the same directory and renames it, so the path has the old
 * file or the whole new one. */
bool npy_write(const char *path, const struct npy *npy, char why[NPY_WHY_MAX]);

/* ---- The parts ---- */

/* Reads the header from the first `have` bytes of a file of `size` bytes: the array, where its
 * elements begin, and whether they are in Fortran order. */
bool npy_parse(const uint8_t *file, size_t have, uint64_t size, struct npy *npy, uint64_t *data_at,
			   bool *fortran, char why[NPY_WHY_MAX]);
/* Turns elements in Fortran order to row-major order. */
void npy_turn(const struct npy *npy, const uint8_t *from, uint8_t *to);
/* Writes the bytes before the data; returns how many, a multiple of 64. */
size_t npy_header(const struct npy *npy, uint8_t header[NPY_WRITTEN_MAX]);

#endif
