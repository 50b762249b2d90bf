/*
 * cases.h: THE list of cases.  Unit tests, compile tests, runs on devices and benchmarks all walk
 * it.  It knows shapes, data and what the answer is; nothing of planners, daemons or devices.
 */
#ifndef KILN_TESTS_CASES_H
#define KILN_TESTS_CASES_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CASES_BENCH 1u /* to be timed */
#define CASES_BIG 2u   /* tens of megabytes and more: for a GPU */
#define CASES_HUGE 4u  /* about 2^31 elements or more: gigabytes */

struct cases_case {
	char name[128]; /* "f32 8192x8192 (1,0)", unique */
	const char *op;
	kiln_dtype dtype;
	int rank;
	int64_t shape[KILN_MAX_RANK];  /* of x */
	int64_t stride[KILN_MAX_RANK]; /* of x; always filled in */
	bool contiguous;               /* the strides are row-major */
	int64_t perm[KILN_MAX_RANK];
	uint32_t x_offset, y_offset; /* bytes, into memory that is aligned to 16 */
	unsigned flags;              /* CASES_* */
};

/* All cases.  Built at the first call: call it once before threads share it. */
const struct cases_case *cases_all(int *count);
/* Case i of an endless list of small random ones.  Same seed and i: same case. */
void cases_random(uint64_t seed, uint64_t i, struct cases_case *out);

/* Bytes of one element. */
uint32_t cases_element(const struct cases_case *c);
int64_t cases_elements(const struct cases_case *c);
/* From the first element of x to one past the last that is touched; y is contiguous. */
uint64_t cases_x_bytes(const struct cases_case *c);
uint64_t cases_y_bytes(const struct cases_case *c);
/* x and y as the library wants them; buffers are left NULL. */
void cases_tensors(const struct cases_case *c, kiln_tensor tensors[2]);

/*
 * Random bytes.  `first` is the position of bytes[0] in the whole stream and a multiple of 8, so
 * that several threads can fill one buffer.
 */
void cases_fill(void *bytes, uint64_t first, uint64_t count, uint64_t seed);
/* splitmix64 */
uint64_t cases_word(uint64_t *state);

/*
 * The answer by plain loops over y's index, elements [first, last) of y.  x and y point to the
 * first elements (offsets already added).
 */
void cases_reference(const struct cases_case *c, const void *x, void *y, int64_t first,
					 int64_t last);

#endif
