/*
 * pnm.c: see pnm.h.  Sizes come from a file, so they are checked before anything is allocated.
 */
#include "pnm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIDE 16384u

/* The next number of a header, after white space and comments; 0 if there is none in range. */
static uint32_t header_number(FILE *file)
{
	int c = getc(file);
	while (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '#') {
		if (c == '#')
			while (c != '\n' && c != EOF)
				c = getc(file);
		c = getc(file);
	}
	uint32_t value = 0;
	for (; c >= '0' && c <= '9'; c = getc(file)) {
		value = value * 10 + (uint32_t)(c - '0');
		if (value > MAX_SIDE)
			return 0;
	}
	return value; /* the one white space after it is eaten, as the format wants */
}

static int read_body(FILE *file, const char *path, struct pnm *out)
{
	int kind = getc(file) == 'P' ? getc(file) : 0;
	out->channels = kind == '6' ? 3 : 1;
	out->width = header_number(file);
	out->height = header_number(file);
	uint32_t maximum = header_number(file);
	if ((kind != '5' && kind != '6') || out->width == 0 || out->height == 0 || maximum != 255) {
		fprintf(stderr,
				"%s is no binary PPM or PGM with 8 bits a sample and at most %ux%u pixels\n", path,
				MAX_SIDE, MAX_SIDE);
		return -1;
	}
	size_t bytes = (size_t)out->width * out->height * out->channels;
	out->pixels = malloc(bytes);
	if (!out->pixels) {
		fprintf(stderr, "no memory for the %zu bytes of %s\n", bytes, path);
		return -1;
	}
	if (fread(out->pixels, 1, bytes, file) != bytes) {
		fprintf(stderr, "%s ends before its %zu bytes of pixels\n", path, bytes);
		free(out->pixels);
		out->pixels = NULL;
		return -1;
	}
	return 0;
}

int pnm_read(const char *path, struct pnm *out)
{
	*out = (struct pnm){0};
	FILE *file = fopen(path, "rb");
	if (!file) {
		fprintf(stderr, "cannot open %s: %s\n", path, strerror(errno));
		return -1;
	}
	int status = read_body(file, path, out);
	fclose(file);
	return status;
}

int pnm_write(const char *path, const struct pnm *image)
{
	size_t bytes = (size_t)image->width * image->height * image->channels;
	FILE *file = fopen(path, "wb");
	if (!file) {
		fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
		return -1;
	}
	fprintf(file, "P%d\n%u %u\n255\n", image->channels == 3 ? 6 : 5, image->width, image->height);
	int bad = fwrite(image->pixels, 1, bytes, file) != bytes;
	bad |= fclose(file) != 0;
	if (bad)
		fprintf(stderr, "cannot write the %zu bytes of %s: %s\n", bytes, path, strerror(errno));
	return bad ? -1 : 0;
}
