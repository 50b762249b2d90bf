/*
 * raw: speaks the protocol by itself, because a benchmark wants the "micros" of every launch, which
 * the device measured and the library does not pass on.  One thread, every wait has a deadline.
 */
#ifndef KILN_TESTS_BENCH_RAW_H
#define KILN_TESTS_BENCH_RAW_H

#include "cases.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct raw {
	int sock;
	uint64_t last_id;
	char why[400]; /* after a failure: one sentence */
};

/* A place in the daemon's memory. */
struct raw_operand {
	uint64_t buffer, offset;
};

bool raw_open(struct raw *raw, const char *socket_path, const char *device);
void raw_close(struct raw *raw);
bool raw_alloc(struct raw *raw, uint64_t bytes, const char *name, uint64_t *buffer);
/* Fills a buffer with random bytes that repeat every few megabytes. */
bool raw_fill(struct raw *raw, uint64_t buffer, uint64_t bytes, uint64_t seed);
/* Prepares a case; variant gets the planner's word for what it chose. */
bool raw_prepare(struct raw *raw, const struct cases_case *c, uint64_t *call, char *variant,
				 size_t size);
bool raw_release(struct raw *raw, uint64_t call);
/* Submits without waiting: the ticket. */
bool raw_submit(struct raw *raw, uint64_t call, const struct raw_operand operands[2],
				uint64_t *ticket);
/* Waits for `count` tickets that follow one another, from first on; their times in order. */
bool raw_collect(struct raw *raw, uint64_t first, int count, double *micros);

#endif
