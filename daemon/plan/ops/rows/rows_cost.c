/*
 * rows_cost.c: about how much longer a shape takes for a row than the best of all would.
 *
 * A cost is a sum of terms: what is idle, what waits, what is gone through twice.  The weights were
 * fitted to times of an H200 by `bench_random --seed 7 --candidates`: 2 600 kernels of 82 problems,
 * as logarithms of times.  For problems that were left out of a fit the choice takes 3 to 4 % more
 * than the best candidate.  How many rows there are does not count, for it must not change a row's
 * bits.
 */
#include "rows.h"

#include <math.h>

/* What a multiprocessor has. */
#define THREADS 2048
#define REGISTERS 65536
#define BLOCKS 32
/* Of them, beside what a thread holds of its row, about. */
#define REGISTERS_BESIDE 24
#define REGISTERS_SKEWED 6

/* The terms of a cost. */
enum term {
	WASTE,       /* the part of the lanes that has nothing of the row */
	FLIGHT_48,   /* how often twice the bytes under way would be 48 KiB a multiprocessor */
	FLIGHT_96,   /* ... 96 KiB */
	LARGE_512,   /* blocks of 512 threads or more */
	LARGE_768,   /* ... 768 */
	TOGETHER,    /* rows of several warps that share a block, and wait for each other */
	SCATTERED,   /* fewer than 8 threads a row */
	SLOT_PART,   /* the part of the row in slots */
	SLOT_ALL,    /* all of it */
	SLOT_ANY,    /* any of it */
	CLUSTER,     /* blocks a row, as a power of two */
	STREAM,      /* the row is read twice */
	STREAM_HELD, /* ... vectors at a time, as a power of two */
	STREAM_SIZE, /* ... threads, as a power of two times 512 */
	HELD,        /* vectors a thread, as a power of two */
	UNUSUAL,     /* how far a block is from 128 threads, as powers of two */
	TERMS
};

/* The kernels: one operand is held; several are; others are read along the row. */
enum kind { ALONE, SEVERAL, ALONG, KINDS };

static const double weights[TERMS][KINDS] = {
	[WASTE] = {0.032, 0.000, 0.127},       [FLIGHT_48] = {0.216, 0.150, 0.129},
	[FLIGHT_96] = {0.104, 0.075, 0.097},   [LARGE_512] = {0.140, 0.000, 0.020},
	[LARGE_768] = {0.206, 0.065, 0.000},   [TOGETHER] = {0.135, 0.066, 0.136},
	[SCATTERED] = {0.113, 0.062, 0.210},   [SLOT_PART] = {-0.119, 0.131, 0.132},
	[SLOT_ALL] = {0.148, 0.184, 0.044},    [SLOT_ANY] = {0.271, 0.139, 0.168},
	[CLUSTER] = {-0.102, -0.209, 0.000},   [STREAM] = {0.181, 0.116, 0.321},
	[STREAM_HELD] = {0.113, 0.039, 0.081}, [STREAM_SIZE] = {-0.132, -0.083, -0.118},
	[HELD] = {0.092, -0.017, 0.066},       [UNUSUAL] = {0.015, 0.090, 0.115},
};

/* The logarithm to base 2, linear between powers of two: the same on every host. */
static double power_of(double x)
{
	int exponent;
	double part = frexp(x, &exponent);

	return exponent - 2 + 2 * part;
}

uint32_t rows_words(const struct rows_need *need, uint32_t vector)
{
	uint32_t words = (vector * need->element + 3) / 4 + (vector * need->converted + 3) / 4;

	return words * need->streams + (vector * need->beside + 3) / 4;
}

/* Blocks that a multiprocessor holds, by an estimate of registers. */
static uint32_t resident(const struct rows_need *need, const struct rows_shape *shape,
						 const struct kernel_limits *limits)
{
	uint32_t threads = shape->size * shape->rows;
	uint32_t kept = shape->stream ? shape->held : shape->held - shape->slots;
	uint32_t shared = shape->slots * need->streams * threads * 16 + 1024;
	uint32_t registers = REGISTERS_BESIDE + need->around + rows_words(need, shape->vector) * kept +
						 (shape->skewed ? REGISTERS_SKEWED : 0);
	uint32_t blocks = THREADS / threads, most;

	registers = registers < 32 ? 32 : registers > 255 ? 255 : (registers + 7) / 8 * 8;
	most = REGISTERS / (registers * threads);
	blocks = most < blocks ? most : blocks;
	most = (limits->shared_optin + 1024) / shared;
	blocks = most < blocks ? most : blocks;
	return blocks < 1 ? 1 : blocks < BLOCKS ? blocks : BLOCKS;
}

static double above(double x)
{
	return x > 0 ? x : 0;
}

double rows_cost(const struct rows_need *need, const struct rows_shape *shape, uint64_t vectors,
				 const struct kernel_limits *limits)
{
	enum kind kind = need->along ? ALONG : need->streams > 1 ? SEVERAL : ALONE;
	uint32_t threads = shape->size * shape->rows;
	double lanes = (double)shape->size * shape->held, part = (double)vectors / shape->cluster;
	double waste = lanes / part - 1, flight, terms[TERMS] = {0}, cost = 0;

	flight = resident(need, shape, limits) * shape->rows * (lanes < part ? lanes : part) * 16 *
			 need->streams;
	terms[FLIGHT_48] = above(power_of(49152 / flight));
	terms[FLIGHT_96] = above(power_of(98304 / flight));
	terms[LARGE_512] = threads >= 512;
	terms[LARGE_768] = threads >= 768;
	terms[TOGETHER] = shape->size > 32 && shape->rows > 1;
	terms[SCATTERED] = shape->size < 8;
	terms[UNUSUAL] = fabs(power_of(threads / 128.0));
	if (shape->stream) {
		terms[STREAM] = 1;
		terms[STREAM_HELD] = power_of(shape->held);
		terms[STREAM_SIZE] = power_of(shape->size / 512.0);
	} else {
		terms[WASTE] = waste < 1 ? waste : 1;
		terms[SLOT_PART] = (double)shape->slots / shape->held;
		terms[SLOT_ALL] = shape->slots == shape->held;
		terms[SLOT_ANY] = shape->slots > 0;
		terms[CLUSTER] = power_of(shape->cluster);
		terms[HELD] = power_of(shape->held);
	}
	for (int i = 0; i < TERMS; i++)
		cost += weights[i][kind] * terms[i];
	return cost;
}
