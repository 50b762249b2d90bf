/*
 * lane_scene: what the tests of lanes share: a client that turns a matrix there and back, with what
 * it can say of the result; and the memory of its lane, seen and written behind the library's back.
 */
#ifndef KILN_TESTS_LANE_SCENE_H
#define KILN_TESTS_LANE_SCENE_H

#include "harness.h"

#include "client/wire/lane_memory.h"

#define ROWS 13
#define COLUMNS 29
#define COUNT (ROWS * COLUMNS)

/* Runs the body with a lane, and without: each time with a daemon of its own. */
void both_ways(struct kilnd *daemon, void (*body)(struct kilnd *daemon, bool lane));

/* A transpose of f32, there and back. */
struct pair {
	kiln_client *client;
	kiln_call *there, *back;
	kiln_buffer *x, *y;
};

/* A call that turns a matrix of so many rows and columns. */
kiln_call *transpose_prepare(kiln_client *client, int64_t rows, int64_t columns);
void pair_open(const struct kilnd *daemon, struct pair *pair);
/* The same of a client that is there. */
void pair_open_on(kiln_client *client, struct pair *pair);
void pair_close(struct pair *pair);
int pair_submit(struct pair *pair, bool back, kiln_ticket after, kiln_ticket *ticket);
/* On a stream. */
int pair_submit_on(struct pair *pair, bool back, unsigned stream, kiln_ticket after,
				   kiln_ticket *ticket);
/* Returns the call that submits it. */
kiln_work pair_work(const struct pair *pair, bool back, kiln_operand operands[2]);
/* Submits and waits. */
void pair_run(struct pair *pair, bool back);
/* Until both calls are bound to the lane, and both buffers known there. */
void pair_warm(struct pair *pair);
/* Element i is first + i. */
void matrix_put(kiln_buffer *buffer, float first);
/* y is the transpose of what matrix_put() wrote to x. */
void assert_transposed(struct pair *pair, float first);
int64_t lane_launches(struct pair *pair);

/* ---- A call that may fail ---- */

#define GATHER_ROWS 4
#define GATHER_FROM 8
#define GATHER_TO 6

/* gather, which counts indices that are out of range, and then fails. */
struct gather {
	kiln_client *client;
	kiln_call *call;
	kiln_buffer *src, *idx, *dst;
};

/* Bound, with indices within range. */
void gather_open(kiln_client *client, struct gather *gather);
void gather_close(struct gather *gather);
/* One of the indices is out of range, or none. */
void gather_spoil(struct gather *gather, bool bad);
#define GATHER_SENTENCE "gather: 1 of 24 indices are out of range, which is 0 to 7"
/* Returns the call that submits it. */
kiln_work gather_work(const struct gather *gather, kiln_operand operands[3]);
void gather_submit_on(struct gather *gather, unsigned stream, kiln_ticket after,
					  kiln_ticket *ticket);

/* ---- The memory ---- */

/* The lane that this process has mapped, besides this one. */
struct lane_memory *lane_find(const struct lane_memory *known);
struct lane_entry lane_last_entry(const struct lane_memory *lane);
/* Wakes the device process: one of the eventfds of this process is the one for that. */
void lane_ring(void);
/* Writes an entry behind the library's back; its number. */
uint64_t lane_post(struct lane_memory *lane, struct lane_entry entry);
/* Until that has ended: its cell. */
const struct lane_cell *lane_await(struct lane_memory *lane, uint64_t number);
/* Both: it must end in this status, with this word. */
void assert_entry_ends(struct lane_memory *lane, struct lane_entry entry, int status,
					   const char *word);

#endif
