/*
 * bench.h: what the files of bench_kernels and bench_random share.
 *
 * In reading order:
 *   bench_options.c   the options that both programs have
 *   bench_items.c     which kernels are to be timed: cases, planned, with their candidates; targets
 *   bench_list.c      the same for other programs, and for people
 *   bench_objects.c   their cubins, made by child processes and kept in a directory
 *   bench_data.c      where the operands lie in memory, and what they hold
 *   bench_direct.c    launching by this program itself
 *   bench_daemon.c    launching through a running kilnd
 *   bench_time.c      from launches to a time
 *   bench_check.c     whether the results are right
 *   bench_report.c    lines of tables, figures, totals
 *   bench_run.c       all of that for case after case, in a process that may fail
 *   bench_spread.c    of drawn problems: a row for each kernel, how the ratios are spread
 *   bench_go.c        from options to an exit status
 *   bench_kernels.c   the programs
 *   bench_random.c
 */
#ifndef KILN_TESTS_BENCH_H
#define KILN_TESTS_BENCH_H

#include "tests/ops/common/cases.h"
#include "daemon/plan/plan.h"
#include "gpu/runner.h"

#define BENCH_SKIPPED 77

enum bench_mode { BENCH_DIRECT, BENCH_DAEMON, BENCH_LIST, BENCH_PLAN, BENCH_COMPILE };

struct bench_options {
	enum bench_mode mode;
	bool choices, generic, quick, all, check;
	const char *ops, *only, *dtype; /* which cases; NULL: whichever */
	const char *target;             /* to plan and compile for without a GPU */
	const char *objects;            /* directory of cubins */
	const char *socket, *device, *json, *torch, *csv;
	const struct cases_case *list; /* of which the options want some */
	int listed;
	bool drawn; /* the list is drawn: what counts is how the ratios are spread */
	double seconds;
	uint64_t pool;                /* bytes of inputs, and of outputs */
	int every;                    /* one case in so many */
	struct runner_options runner; /* threads */
};

/* ---- bench_options.c ---- */

void bench_options_init(struct bench_options *options);
/* How many words of the command line were an option and its value: 1 or 2; 0: it is unknown, or its
 * value is missing or wrong. */
int bench_option(struct bench_options *options, const char *name, const char *value);

/* ---- bench_items.c ---- */

struct bench_item {
	struct kernel_plan plan;
	char object[KERNEL_KEY_HEX]; /* name of its cubin; "" where none is needed */
	bool own;                    /* the planner's own */
};

struct bench_case {
	const struct cases_case *c;
	struct bench_item *items; /* the planner's own first */
	int count;
};

/* The cases that the options want, planned; with --choices all candidates that differ, with
 * --generic the planner's own and the generic kernel, for cases that have both. */
bool bench_cases(const struct bench_options *options, const struct kernel_limits *limits,
				 struct bench_case **out, int *count);
/* number: of such cases before it. */
bool bench_is_wanted(const struct bench_options *options, const struct cases_case *c, int *number);
/* The bytes that a copy is to move that the case is compared with: read and written. */
uint64_t bench_bytes(const struct cases_case *c, const struct kernel_plan *plan);
/* Returns the least that copy / kernel must be; 0: no target. */
double bench_target(const struct cases_case *c);

/* ---- bench_list.c ---- */

/* Writes the name that the case has for its operand. */
void bench_operand_name(const struct cases_case *c, int operand, char name[16]);

void bench_list(const struct bench_options *options);
void bench_list_plans(const struct bench_options *options, const struct bench_case *groups,
					  int count);

/* ---- bench_objects.c ---- */

struct bench_object {
	char *entry;
	void *cubin;
	size_t bytes;
	int64_t registers, shared_bytes, spill_bytes, micros; /* micros: of compiling */
};

struct bench_objects;
/* directory NULL: one of its own, for as long as it is open. */
bool bench_objects_open(const char *directory, const char *target, struct bench_objects **out);
void bench_objects_close(struct bench_objects *objects);
/* The name of a kernel's cubin: a hash of all that it is made of.  generated: as plans have it. */
bool bench_objects_name(struct bench_objects *objects, const char *source, const char *generated,
						const char *instantiation, char name[KERNEL_KEY_HEX]);
/* Has the cubin made by bench_objects_make, unless it is there. */
bool bench_objects_want(struct bench_objects *objects, const char *source, const char *generated,
						const char *instantiation, char name[KERNEL_KEY_HEX]);
/* Before CUDA is loaded: it forks.  0: all are there; 1: some are not, and it was said which;
 * BENCH_SKIPPED: there is no compiler here. */
int bench_objects_make(struct bench_objects *objects, int processes, double deadline_us);
bool bench_objects_read(const struct bench_objects *objects, const char *name,
						struct bench_object *out);
void bench_object_free(struct bench_object *object);

/* The plainest copy: 16 bytes a thread.  Arguments: from, to, vectors (u32). */
#define BENCH_COPY_SOURCE "bench/copy.cuh"
#define BENCH_COPY_KERNEL "copy<256>"
#define BENCH_COPY_THREADS 256

/* ---- Ways to launch ---- */

enum bench_pool { BENCH_IN, BENCH_OUT };

/* Where an operand lies; set s of a case lies s times the step further on. */
struct bench_place {
	enum bench_pool pool;
	uint64_t at;
	bool absent;
};

enum bench_kind { BENCH_KERNEL, BENCH_MEMCPY, BENCH_VECTORS };

/* A launch.  MEMCPY and VECTORS copy `bytes` from operand 0 to operand 1. */
struct bench_work {
	enum bench_kind kind;
	const struct cases_case *c;
	const struct bench_item *item;
	uint64_t bytes;
	struct bench_place places[KERNEL_MAX_OPERANDS];
	int place_count;
	uint64_t step[2]; /* from one set to the next, in each pool */
	int sets;
};

struct bench_ready; /* work that can be launched */

struct bench_way {
	const char *name;
	/* Sentences of failures go to why. */
	bool (*open)(const struct bench_options *options, struct bench_objects *objects,
				 const uint64_t pool_bytes[2], uint64_t scratch_bytes, char why[400]);
	void (*close)(void);
	bool (*put)(enum bench_pool pool, uint64_t at, const void *host, uint64_t bytes);
	bool (*get)(void *host, enum bench_pool pool, uint64_t at, uint64_t bytes);
	/* Within a pool; the two parts do not overlap. */
	bool (*copy)(enum bench_pool pool, uint64_t to, uint64_t from, uint64_t bytes);
	bool (*prepare)(const struct bench_work *work, struct bench_ready **out);
	void (*release)(struct bench_ready *ready);
	/*
	 * Launches count times behind something that keeps the device busy meanwhile, set after set;
	 * the device's time of each.
	 */
	bool (*batch)(struct bench_ready *ready, int count, double *micros);
	/* Launches count times without a pause, waits; the whole time.  NULL: not of interest. */
	bool (*wall)(struct bench_ready *ready, int count, double *micros);
	const char *(*why)(void); /* of the last failure */
	/* After a failure: can anything still be launched?  NULL: yes. */
	bool (*alive)(void);
};
extern const struct bench_way bench_direct, bench_daemon;

/* A child process asks for the limits of the GPU, so that this one can still fork. */
bool bench_direct_limits(const char *device, struct kernel_limits *limits, char why[400]);

/* ---- bench_data.c ---- */

struct bench_data {
	const struct cases_case *c;
	struct bench_work work; /* places, sets and steps filled in */
	/* Inputs as the device has them; outputs: what has been read back, 0xff elsewhere. */
	unsigned char *host[CASES_MAX_OPERANDS];
	uint64_t mapped[CASES_MAX_OPERANDS];
};

/* Bytes that one set takes in each pool. */
void bench_data_size(const struct cases_case *c, uint64_t bytes[2]);
bool bench_data_open(const struct bench_way *way, const struct bench_options *options,
					 const struct cases_case *c, struct bench_data *out);
void bench_data_close(struct bench_data *data);
/* Makes all outputs of the first set wrong. */
bool bench_data_poison(const struct bench_way *way, const struct bench_data *data);

/* ---- bench_time.c ---- */

/* Microseconds of one launch; negative: the way knows why.  many: it is one of many, launched less
 * often. */
double bench_time(const struct bench_way *way, struct bench_ready *ready, bool many);
struct bench_copies {
	double memcpy_us, vectors_us;
};
/* The two copies that move so many bytes, half of them read. */
bool bench_time_copies(const struct bench_way *way, uint64_t bytes, const uint64_t pool_bytes[2],
					   bool one_set, struct bench_copies *out);

/* ---- bench_check.c ---- */

/* A sample of a case's units, and what of the results it looks at. */
struct bench_sample;
struct bench_sample *bench_sample_open(const struct bench_options *options,
									   struct bench_data *data);
void bench_sample_close(struct bench_sample *sample);
/* Launches once on poisoned outputs and judges; wrong: a sentence in why. */
bool bench_check(const struct bench_way *way, struct bench_ready *ready,
				 struct bench_sample *sample, char why[400]);

/* ---- bench_report.c ---- */

struct bench_result {
	const struct bench_case *group;
	const struct bench_item *item;
	struct bench_copies copies;
	double micros, wall; /* wall 0: not measured */
	double copy, ratio, target;
	double eager, compiled;    /* PyTorch; 0: not measured */
	double liger;              /* likewise */
	int64_t registers, spills; /* -1: not known */
	double compile_s;
	char wrong[400]; /* "" or what is wrong */
};

void bench_report_head(const struct bench_options *options);
/* Completes copy, ratio, target and PyTorch's times, prints a line, and counts. */
void bench_report(const struct bench_options *options, struct bench_result *result);
/* A case's candidates, best first. */
void bench_report_choices(const struct bench_options *options, struct bench_result *results,
						  int count);
/* The planner's own and the generic kernel: one line, and how they compare is counted. */
void bench_report_generic(const struct bench_options *options, struct bench_result results[2]);
/* Before the first of these: totals live in memory that processes share. */
bool bench_report_open(const struct bench_options *options);
/* Totals; unreached: cases for which there was no time.  True: nothing was wrong. */
bool bench_report_end(const struct bench_options *options, int unreached);

/* ---- bench_run.c ---- */

/* Times all; the exit status. */
int bench_run(const struct bench_options *options, const struct bench_way *way,
			  struct bench_objects *objects, const struct bench_case *groups, int count,
			  double deadline_us);

/* ---- bench_spread.c ---- */

/* Before the first of these: what is noted lies in memory that processes share. */
bool bench_spread_open(const struct bench_options *options);
/* One row of the CSV file, if one is wanted. */
void bench_spread_row(const struct bench_options *options, const struct bench_result *result);
/* A problem's own kernel, and the best of its candidates (NULL: others were not timed). */
void bench_spread_note(const struct bench_result *own, const struct bench_result *best);
void bench_spread_print(void);

/* ---- bench_go.c ---- */

/* Does all that the options ask for; the exit status. */
int bench_go(const struct bench_options *options);

#endif
