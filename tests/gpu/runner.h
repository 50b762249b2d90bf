/*
 * runner: what the programs of tests/gpu share: options, counting, time, threads, data,
 * and the judging of results.
 */
#ifndef KILN_TESTS_GPU_RUNNER_H
#define KILN_TESTS_GPU_RUNNER_H

#include "tests/ops/common/cases.h"
#include <kiln/kiln.h>
#include <stdbool.h>
#include <stdint.h>

struct runner_options {
	const char *program;
	const char *socket; /* --socket PATH; NULL: the library's default */
	const char *device; /* --device NAME; "cuda:0" */
	const char *memory; /* --memory held|lent|exported|pool */
	const char *json;   /* --json FILE: figures, a line each, appended */
	uint64_t seed;      /* --seed N */
	int threads;        /* --threads N */
	int seconds;        /* --seconds N: how long a program with a choice may go on */
	int count;          /* --count N */
	bool quick;         /* --quick */
	bool huge;          /* --huge: the huge cases, and nothing else */
	bool reverse;       /* --reverse: from the end of the list */
	bool copies;        /* --copies: only what needs no kernel, for a driver that has none */
	bool graph;         /* --graph: each call as part of a graph */
	bool generic;       /* --generic: the generic kernels */
	const char *ops;    /* --ops LIST: operators, separated by commas; NULL: all */
};

/* False after a sentence on stderr. */
bool runner_options_read(int argc, char **argv, struct runner_options *out);
/* NULL after a sentence on stderr. */
kiln_client *runner_connect(const struct runner_options *options);

/* ---- Counting.  Failures are printed at once, one line each. ---- */

void runner_pass(void);
void runner_fail(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* runner_pass, or runner_fail with the condition's text. */
#define RUNNER_CHECK(name, condition) \
	((condition) ? runner_pass() : runner_fail(name, "not so: %s", #condition))
/* Prints "NAME: N passed, M failed"; the exit status. */
int runner_end(const struct runner_options *options);

/* ---- Time and figures ---- */

double runner_now_us(void); /* monotonic */
/* Sorts, and returns the value below which a part (0 to 1) of them lies. */
double runner_percentile(double *values, int count, double part);
/* Prints a figure, and appends it to the JSON file if there is one. */
void runner_figure(const struct runner_options *options, const char *name, double value,
				   const char *unit);

/* ---- Device time ---- */

/* The sum of the metrics whose lines begin so; negative after a failure. */
double runner_metric(kiln_client *client, const char *beginning);
/* Adds to each the seconds in which the device worked: as the daemon counts them, by its clock. */
struct runner_clock {
	double counted, device;
};
/* Whether a value is another's but for a part of it. */
bool runner_within(double value, double other, double part);
/* Launches a call so often, one queued behind the other, and waits for all. */
int runner_clock(kiln_client *client, kiln_call *call, const kiln_operand operands[2], int count,
				 struct runner_clock *clock);

/* ---- Data ---- */

/* Runs body over [0, count) in pieces of at most step, by the threads of the options. */
typedef void runner_body(void *arg, int64_t first, int64_t last);
void runner_parallel(const struct runner_options *options, int64_t count, int64_t step,
					 runner_body *body, void *arg);
/* Random bytes, the same for the same seed. */
void runner_fill(const struct runner_options *options, void *bytes, uint64_t count, uint64_t seed);
/* Fills memory that no kernel may touch, or that it must write, with poison. */
void runner_poison(const struct runner_options *options, void *bytes, uint64_t count,
				   uint64_t seed);
/* The position of the first byte that is not poison any more, or -1. */
int64_t runner_poison_broken(const void *bytes, uint64_t count, uint64_t seed);
/* The threads fill an operand of a case; bytes begins with its first element. */
void runner_fill_operand(const struct runner_options *options, const struct cases_operand *operand,
						 void *bytes, uint64_t seed);
/*
 * Judges the results of a case, by the threads: all of them, or as much as goes within the seconds,
 * at least one part in sixteen.  false if it was not all.  memory as for cases_op.
 */
bool runner_judge(const struct runner_options *options, const struct cases_case *c,
				  const void *const memory[], double seconds, struct cases_verdict *verdict);

#endif
