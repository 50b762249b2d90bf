/*
 * launch.h: what the files of bench_launch share.
 *
 *   bench_launch.c   options, sections, processes of a part of the work
 *   launch_table.c   the table: a row a figure, with its aim
 *   launch_way.c     the ways to launch the kernel: by oneself, and through Kiln
 *   launch_one.c     one program: each way, one launch at a time and queued; how they spread
 *   launch_many.c    several programs at once: how many launches, and who gets them; idle ones
 *   launch_side.c    the same programs, by how many threads launch for them
 *   launch_trace.c   what a trace costs
 *   launch_crew.c    those programs: started, told to launch, ended
 *   launch_mps.c     a server of NVIDIA MPS of our own
 *   launch_fresh.c   a new process until it has its first result
 *
 * The kernel adds 1 to 64 Ki floats.  Kiln's is a map, the other is written out; both move 16 bytes
 * a thread.
 */
#ifndef KILN_BENCH_LAUNCH_H
#define KILN_BENCH_LAUNCH_H

#include "gpu/driver.h"
#include "gpu/runner.h"

#include <kiln/kiln.h>
#include <sys/types.h>

#define LAUNCH_ELEMENTS 65536
#define LAUNCH_BYTES (LAUNCH_ELEMENTS * 4u)
#define LAUNCH_DEPTH 64 /* launches queued at once */
#define LAUNCH_DEADLINE_MS 10000
#define LAUNCH_WHY 240

struct bench {
	struct runner_options options;
	int ordinal;  /* of the GPU; negative: the device is none, and nothing can be compared */
	void *cubin;  /* of the kernel that is launched by oneself */
	int cubin_fd; /* the same, for other processes; -1: none */
	pid_t daemon;
};

/* The number of a device "cuda:N"; -1. */
int bench_ordinal(const char *device);

/* ---- launch_table.c ---- */

enum aim { AIM_NONE, AIM_AT_MOST, AIM_AT_LEAST };

struct figure {
	const char *name;
	double value;
	const char *unit;
	double ratio; /* to another row; the aim is its, then */
	const char *of;
	enum aim aim;
	double target;
};

/* Begins a part of the table. */
void table_section(const char *name);
void table_row(const struct bench *bench, const struct figure *figure);
/* Adds a row that has no figure, and says why. */
void table_left_out(const char *name, const char *why);
/* How many aims were met and missed. */
void table_end(void);

/* ---- launch_way.c ---- */

/* A client of Kiln that launches. */
struct service {
	kiln_client *client;
	kiln_call *call;
	kiln_operand operands[2];
};

struct way;
struct way_kind {
	const char *name;
	bool own;  /* needs CUDA in this process */
	bool word; /* a word that the GPU writes tells the end, and not the driver's own wait */
	/* false: way_why() says why */
	bool (*open)(const struct bench *bench, struct way *way);
	bool (*one)(struct way *way);  /* a launch, and a wait for its end; NULL: it is for many */
	bool (*many)(struct way *way); /* LAUNCH_DEPTH launches, then a wait */
	/* Aims, as parts of what a program does that launches by itself; 0: none. */
	double one_most, many_most;
};

struct way {
	const struct way_kind *kind;
	struct service service;
	kiln_call *graph;   /* of LAUNCH_DEPTH launches; NULL: none */
	kiln_ticket ticket; /* that is not waited for yet; 0: none */
	const char *why;
};

/* All, ended by NULL; the first is the launch by oneself. */
extern const struct way_kind *const way_kinds[];
extern const struct way_kind way_direct, way_direct_word, way_ring;
/* launch_long.c: another kernel, which takes longer. */
extern const struct way_kind way_long, way_own_long, way_own_long_word;
/* Waits for all that the program has queued itself. */
bool way_finish(const struct way *way);
const char *way_why(const struct way *way);
/* The results are right. */
bool way_right(const struct bench *bench, const struct way *way);
void way_close(struct way *way);

/* The kernel, launched once by oneself on memory of one's own: for a process that does it once. */
bool direct_open(const void *cubin);
bool direct_launch(void);
bool direct_get(float *first);

void service_close(struct service *service);
/* The arguments of kiln_prepare() for the kernel. */
void service_describe(kiln_tensor tensors[2], kiln_attr attrs[2]);

/* ---- launch_crew.c ---- */

#define CREW_MOST 64

enum crew_kind { CREW_READY, CREW_DONE, CREW_FAILED };

/* A process of a crew tells this. */
struct crew_word {
	enum crew_kind kind;
	int64_t launches;
	double begun, got; /* of a fresh process: when main() began, and when it had its result */
	char why[LAUNCH_WHY];
};

struct crew {
	int count;
	pid_t pids[CREW_MOST];
	int sockets[CREW_MOST];
	int64_t launches[CREW_MOST]; /* of the last round */
};

/* Starts count processes of this program that play a role; environment (may be NULL): more
 * variables, NULL.  false after a sentence in why, and nothing is left. */
bool crew_start(const struct bench *bench, struct crew *crew, const char *role, int count,
				const char *const *environment, char why[LAUNCH_WHY]);
/* Hears one word of each. */
bool crew_hear(struct crew *crew, int seconds, struct crew_word *words, char why[LAUNCH_WHY]);
/* All launch for so long; launches a second of them all. */
double crew_round(struct crew *crew, double seconds, char why[LAUNCH_WHY]);
void crew_end(struct crew *crew);
/* Waits for the end of a process, and ends it if that takes longer. */
void crew_reap(pid_t pid, int milliseconds);
/* A process of a crew runs this; returns its exit status. */
int crew_child(struct bench *bench, const char *role, double begun);
/* In such a process. */
bool crew_tell(const struct crew_word *word);

/* ---- launch_mps.c ---- */

struct mps {
	char directory[64];
	char program[128];
	/* NAME=value, for its clients; the control daemon has the first two alone. */
	char pipe[128], log[128], devices[64];
	const char *environment[4];
	bool running;
};

/* false after a sentence: it is not installed, or does not start. */
bool mps_start(struct mps *mps, char why[LAUNCH_WHY]);
void mps_end(struct mps *mps);

/* ---- The sections ---- */

void launch_one(struct bench *bench);
void launch_spread(struct bench *bench);
void launch_many(struct bench *bench);
void launch_fair(struct bench *bench);
void launch_side(struct bench *bench);
void launch_trace(struct bench *bench);
void launch_idle(struct bench *bench);
void launch_fresh(struct bench *bench);
/* A fresh process, in that process. */
void fresh_child(struct bench *bench, const char *role, double begun);

#endif
