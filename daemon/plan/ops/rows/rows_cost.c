/*
 * rows_cost.c: about how long a multiprocessor takes for a row, by shapes.
 *
 * Three things go on side by side: the row's bytes come and go; a block waits for its loads, while
 * other blocks are under way as far as there is room for them; instructions are issued.  The one
 * that takes longest counts most.
 *
 * The numbers are cycles of an H200, fitted to the problems that `bench_random --seed 7
 * --candidates` draws.  Of 82 problems in two halves, those of the half that a fit had not seen
 * came to 0.926 and 0.870 of a copy; the tables of rows_choice.c to 0.884 and 0.842, the best
 * candidates to 0.939 and 0.888.  How many rows there are has no say: it must not change a row's
 * bits.
 */
#include "rows.h"

#include <math.h>

/* A multiprocessor has room for so many.  Its registers are in four parts, each for a quarter of
 * the warps. */
#define THREADS 2048
#define BLOCKS 32
#define PART_WARPS 512 /* of one register */

/* It moves so many bytes in a cycle when all copy. */
#define BYTES_A_CYCLE 16.0
/* The time grows by these shares: for rows that are read twice, for each time that the threads of
 * a row move half of 128 bytes at once, and where a block is alone, which seldom loads and stores
 * at once. */
#define READ_TWICE 0.34
#define NARROWER 0.15
#define ALONE 0.1

/* A block waits: for each vector of a thread, longer by way of shared memory, and for the other
 * blocks of a cluster. */
#define WAIT_VECTOR 195.0
#define WAIT_SLOT 100.0
#define WAIT_CLUSTER 3000.0

/* Instructions are issued for a block to begin, and by each of its warps: always, for the ends of
 * skewed rows, for what a mask needs, for a slot, for an element of each lane that meets operands
 * along the row. */
#define ISSUE_BLOCK 6.0
#define ISSUE 8.0
#define ISSUE_SKEWED 27.0
#define ISSUE_MASK 10.0
#define ISSUE_SLOT 15.0
#define ISSUE_ALONG 2.0

/* A thread has about so many registers beside its numbers. */
#define REGISTERS_BESIDE 18
#define REGISTERS_SKEWED 2
#define REGISTERS_SLOTS 8
/* The estimate may err by so many. */
#define REGISTERS_SPARE 6

/* A cost is a time to the power of 1.5: these are its factors for times of 0.89, 0.96 and 4.6. */
#define TIMED 0.84
#define UNTIMED 0.94
#define CROWDED 10

/* How often 128 has to be halved to reach bytes. */
static int halvings(uint32_t bytes)
{
	int count = 0;

	for (; bytes < 128; bytes *= 2)
		count++;
	return count;
}

static uint32_t registers(const struct rows_need *need, const struct rows_shape *shape)
{
	uint32_t held = shape->stream ? shape->held : shape->held - shape->slots;
	uint32_t elements = held * shape->vector * need->streams, numbers = elements;

	if (need->element == 2 && !need->converted && elements > 32)
		numbers = 32 + (elements - 32) / 2; /* they stay halves */
	else if (need->streams == 1)
		numbers += elements / 4;
	if (need->beside || (shape->stream && need->streams == 1 && need->element > 2))
		numbers += elements; /* of a mask, or of the next step */
	if (need->element == 8)
		numbers = 2 * numbers + need->around;
	return REGISTERS_BESIDE + numbers + (shape->skewed ? REGISTERS_SKEWED : 0) +
		   (shape->slots ? REGISTERS_SLOTS : 0);
}

/* Registers that a thread may have at most. */
static uint32_t most_registers(uint32_t warps)
{
	uint32_t most = PART_WARPS / (uint32_t)plan_divide_up(warps, 4) / 8 * 8;

	return most < 255 ? most : 255;
}

static bool crowded(const struct rows_need *need, const struct rows_shape *shape)
{
	return registers(need, shape) + REGISTERS_SPARE >
		   most_registers(shape->size * shape->rows / 32);
}

/* Blocks that a multiprocessor has room for. */
static uint32_t resident(const struct rows_need *need, const struct rows_shape *shape,
						 const struct kernel_limits *limits)
{
	uint32_t threads = shape->size * shape->rows, blocks = THREADS / threads, most;
	uint32_t each = (registers(need, shape) + 7) / 8 * 8;
	uint32_t shared = shape->slots * need->streams * threads * 16 + 1024;

	most = each < PART_WARPS ? PART_WARPS / each * 4 / (threads / 32) : 0;
	blocks = most < blocks ? most : blocks;
	most = (limits->shared_optin + 1024) / shared;
	blocks = most < blocks ? most : blocks;
	return blocks < 1 ? 1 : blocks < BLOCKS ? blocks : BLOCKS;
}

/* About how long a row takes, to the power of 1.5. */
static double cost_of(const struct rows_form *form, const struct rows_need *need,
					  const struct rows_shape *shape, const struct kernel_limits *limits)
{
	uint32_t operands = (uint32_t)__builtin_popcount(need->held);
	double columns = (double)form->columns, slots = shape->slots * need->streams;
	double vectors = need->streams *
					 (shape->stream ? columns / shape->vector / shape->size : (double)shape->held);
	uint32_t blocks = resident(need, shape, limits);
	double move, wait, issue;

	move = columns * need->element * operands / BYTES_A_CYCLE;
	move *= 1 + (shape->stream ? READ_TWICE : 0) + ALONE / blocks +
			NARROWER * halvings(shape->size * shape->vector * need->element);
	wait = WAIT_VECTOR * vectors + WAIT_SLOT * slots + (shape->cluster > 1 ? WAIT_CLUSTER : 0);
	wait *= (double)shape->cluster / (blocks * shape->rows);
	issue = ISSUE + (shape->skewed ? ISSUE_SKEWED : 0) + ISSUE_SLOT * slots;
	issue += need->around && need->element < 8 ? ISSUE_MASK : 0;
	issue += need->along && !need->around ? ISSUE_ALONG * vectors * shape->vector : 0;
	issue = issue * shape->size * shape->cluster / 32 + ISSUE_BLOCK * shape->cluster / shape->rows;
	return move * sqrt(move) + wait * sqrt(wait) + issue * sqrt(issue);
}

void rows_order(const struct rows_form *form, const struct rows_need *need,
				const struct kernel_limits *limits, bool timed, struct rows_shape *shapes,
				int count)
{
	double cost[PLAN_MAX_CHOICES];

	for (int i = 0; i < count; i++) {
		struct rows_shape shape = shapes[i];
		double own = cost_of(form, need, &shape, limits);
		int at = i;
		if (i == 0)
			own *= timed ? TIMED : UNTIMED;
		else if (crowded(need, &shape))
			own *= CROWDED;
		for (; at > 0 && cost[at - 1] > own; at--) {
			cost[at] = cost[at - 1];
			shapes[at] = shapes[at - 1];
		}
		cost[at] = own;
		shapes[at] = shape;
	}
}
