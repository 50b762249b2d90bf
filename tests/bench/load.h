/* load: what the files of bench_load share: how much, the other programs, the cache that is made,
 * and what the system says of the daemon's processes. */
#ifndef KILN_TESTS_BENCH_LOAD_H
#define KILN_TESTS_BENCH_LOAD_H

#include "own_daemon.h"

#include <stddef.h>

#define LOAD_WAIT_MS 120000 /* for whatever is waited for */
#define LOAD_COLUMNS 64     /* of kernel 0 */

/* How much of everything. */
struct load_scale {
	int sessions;  /* at once, one of them this program's */
	int processes; /* that the others are in */
	int buffers, kernels, probes;
	uint64_t cache_bytes;
};

/* The daemon that is measured, and how. */
struct bench {
	struct runner_options *options;
	const struct load_scale *scale;
	struct own_daemon daemon;
};

/* ---- Many of a thing (load_many.c), each of a daemon that has just been started; false: said why
 * ---- */

bool load_sessions(const struct bench *bench);
bool load_buffers(const struct bench *bench);
/* different: each of another kernel. */
bool load_calls(const struct bench *bench, bool different);

/* ---- The calls (load_calls.c) ---- */

/* softmax of one row of f32, of LOAD_COLUMNS + number: no two numbers have the same exact kernel.
 * buffers: x, y or NULL. */
void load_problem(int number, kiln_buffer *const buffers[2], kiln_tensor tensors[2]);

/* A session that launches kernel 0. */
struct seat {
	kiln_client *client;
	kiln_buffer *buffers[2];
	kiln_call *call;
};

bool seat_open(struct seat *seat, const char *socket, const char *device);
/* Prepares its call and launches it until it goes through the lane. */
bool seat_settle(struct seat *seat);
bool seat_submit(struct seat *seat, kiln_ticket *ticket);
/* Microseconds from the submission to the end; negative: it failed. */
double seat_launch(struct seat *seat);
void seat_close(struct seat *seat);

/* ---- The other programs (load_crew.c) ---- */

enum crew_order { CREW_CONNECT, CREW_SETTLE, CREW_LAUNCH, CREW_REST, CREW_LEAVE };

struct board;
struct crew {
	struct board *board;
	int processes;
	pid_t pids[64];
};

/* Processes with so many sessions in all, none of them connected yet.  False: said why. */
bool crew_start(struct crew *crew, const struct runner_options *options,
				const struct load_scale *scale);
/* All of them do it; returns when they have, LAUNCH when all are at it.  False: said why. */
bool crew_do(struct crew *crew, enum crew_order order);
uint64_t crew_launches(const struct crew *crew); /* so far */
void crew_end(struct crew *crew);

/* ---- The cache (load_cache.c) ---- */

/*
 * A cache of so many kernels and bytes in the daemon's directory: one that the daemon compiles, and
 * rows with the keys and texts of the others, whose object is that one with random bytes behind it.
 * False: said why.
 */
bool load_cache_make(struct own_daemon *daemon, const struct runner_options *options,
					 const struct load_scale *scale, const char *name);

/* ---- Lookups and upkeep (load_upkeep.c) ---- */

/* Microseconds from asking for an exact kernel to its answer; negative: it was not in the cache. */
double load_lookup(kiln_client *client, int number);
/* Runs cache.verify, cache.trim (left: bytes) or cache.clear, with two kinds of another client's
 * requests beside it; prints the figures.  False: said why. */
bool load_upkeep(const struct runner_options *options, const char *request, uint64_t left,
				 const char *what);

/* ---- Figures (load_figures.c) ---- */

/* A line of the table: median, p99 and worst of times in us, which are sorted; and one of JSON. */
void load_times(const struct runner_options *options, const char *what, double *times, int count);

/* Memory of a process that no file backs, in bytes; 0: there is no such process. */
double load_resident(pid_t pid);
/* The daemon's device process; 0: none yet. */
pid_t load_device_process(pid_t daemon);
/* Open descriptors. */
int load_descriptors(pid_t pid);

#endif
