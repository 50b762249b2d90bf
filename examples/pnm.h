/*
 * pnm: reads and writes the simplest image files there are: binary PPM (P6, colour) and PGM (P5,
 * grey), 8 bits a sample.  It knows nothing of Kiln.
 */
#ifndef KILN_EXAMPLES_PNM_H
#define KILN_EXAMPLES_PNM_H

#include <stddef.h>
#include <stdint.h>

struct pnm {
	uint32_t width, height, channels; /* channels: 3 or 1 */
	uint8_t *pixels;                  /* height x width x channels; freed with free() */
};

/* 0, or -1 after a sentence on stderr. */
int pnm_read(const char *path, struct pnm *out);
int pnm_write(const char *path, const struct pnm *image);

#endif
