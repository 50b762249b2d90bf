/*
 * photo.h: what the photo example's three processes share: the memory they all map, and the strips
 * into which the picture is cut.
 */
#ifndef KILN_EXAMPLES_PHOTO_H
#define KILN_EXAMPLES_PHOTO_H

#include <stddef.h>
#include <stdint.h>

#define PHOTO_STRIP_ROWS 32
#define PHOTO_CHANNELS 3
#define PHOTO_TIMEOUT_MS 60000
#define PHOTO_GO 0xffffffffu /* the first number a worker gets: begin */

/* Descriptors that a worker finds open. */
#define PHOTO_FD_MEMORY 3 /* struct photo_shared */
#define PHOTO_FD_INPUT 4  /* PHOTO_GO, then the strips ready for this worker, a uint32_t each */
#define PHOTO_FD_OUTPUT 5 /* strip numbers that this worker has finished */

enum photo_role { PHOTO_SPLIT, PHOTO_JOIN, PHOTO_ROLES };

/* A worker's report. */
struct photo_report {
	char device[32];
	char variant[64];
	char instantiation[1100];
	char origin[16];   /* of the first call: "compiled", "hit", ... */
	double prepare_ms; /* the first kiln_prepare */
	double cold_ms;    /* the first call, from prepare to the result */
	double warm_ms;    /* median of repeated calls of a full strip */
};

/*
 * The memory: this, then three images of width x height x 3 bytes.  All three keep the strips in
 * order; a strip of `planes` is channel by channel, a strip of the others pixel by pixel.
 */
struct photo_shared {
	uint32_t width, height;
	struct photo_report reports[PHOTO_ROLES];
};

static inline size_t photo_image_bytes(const struct photo_shared *shared)
{
	return (size_t)shared->width * shared->height * PHOTO_CHANNELS;
}

/* image 0: the original, 1: the planes, 2: the way back */
static inline uint8_t *photo_image(struct photo_shared *shared, int image)
{
	return (uint8_t *)(shared + 1) + (size_t)image * photo_image_bytes(shared);
}

static inline uint32_t photo_strips(const struct photo_shared *shared)
{
	return (shared->height + PHOTO_STRIP_ROWS - 1) / PHOTO_STRIP_ROWS;
}

static inline uint32_t photo_strip_rows(const struct photo_shared *shared, uint32_t strip)
{
	uint32_t left = shared->height - strip * PHOTO_STRIP_ROWS;
	return left < PHOTO_STRIP_ROWS ? left : PHOTO_STRIP_ROWS;
}

static inline size_t photo_strip_offset(const struct photo_shared *shared, uint32_t strip)
{
	return (size_t)strip * PHOTO_STRIP_ROWS * shared->width * PHOTO_CHANNELS;
}

/* A worker's whole life; returns its exit status. */
int photo_worker(enum photo_role role);

#endif
