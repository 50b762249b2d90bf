/*
 * soak: many client processes of mixed work on a daemon of their own, and a hand that kills and
 * freezes processes, all from one seed.  report.c and each step say what must hold: no wrong byte,
 * no status that no death explains, nothing that hangs, nothing that grows, nothing left.
 *
 * One program: the conductor (soak.c) starts the daemon and the clients (crew.c), kills (killer.c),
 * samples (watch.c) and reports.  A client (client.c) makes steps, each of them from the seed, its
 * number and the step's alone, so that one can be made again.  The two share memory that both have
 * mapped.
 */
#ifndef KILN_TESTS_SOAK_SOAK_H
#define KILN_TESTS_SOAK_SOAK_H

#include "bench/own_daemon.h"
#include "gpu/runner.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define SOAK_CLIENTS_MOST 64
#define SOAK_CALL_MS 60000    /* a client's deadline for every call */
#define SOAK_HANG_MS 75000    /* without a sign of life for so long a client counts as hanging */
#define SOAK_FREEZE_MS 1500   /* the longest that a process is stopped: no deadline is as short */
#define SOAK_FAILURES_MOST 20 /* then no more is tried */
/* Parts of the time: after the first the daemon is let live, after the second the device process
 * that all share, too; what grows is measured from the third to the last, and then they die again.
 */
#define SOAK_DAEMON_SPARED 0.4
#define SOAK_DEVICE_SPARED 0.45
#define SOAK_MEASURED 0.5
#define SOAK_MEASURED_END 0.95
#define EXIT_VANISHED 40 /* a client left without goodbye, as a step wanted */

struct soak_options {
	const char *device, *json;
	uint64_t seed;
	int seconds, clients;
	int64_t steps;     /* of each client; 0: as many as there is time for */
	int kill_every_ms; /* on average; 0: nobody is killed */
	bool copies;       /* the driver runs no kernels: what they write is not judged */
	/* One client alone does these steps, and nobody is killed. */
	bool repeat;
	int repeat_client;
	int64_t repeat_step, repeat_count;
};

/* False after a sentence on stderr; *code is the exit status then: 0 for --help. */
bool soak_options_read(int argc, char **argv, struct soak_options *out, int *code);

/* ---- What conductor and clients share ---- */

enum soak_role { SOAK_DAEMON, SOAK_EXECUTOR, SOAK_OWN, SOAK_WORKER, SOAK_CLIENT, SOAK_ROLES };
extern const char *const soak_roles[SOAK_ROLES];

/* One that was killed, noted before it was. */
struct soak_death {
	_Atomic int64_t at_ms;
	atomic_int role;
};
#define SOAK_DEATHS 1024

/* Clients count these. */
#define SOAK_COUNTS(X)                                 \
	X(steps, "steps made")                             \
	X(calls, "calls of the library")                   \
	X(operators, "operators run and judged")           \
	X(launches, "launches of these")                   \
	X(bytes, "bytes compared")                         \
	X(transfers, "reads and writes of kept memory")    \
	X(pools, "buffers lent from pools of CUDA")        \
	X(own, "launches of kernels of one's own, judged") \
	X(faults, "of these, made to fault or to overrun") \
	X(canceled, "calls canceled")                      \
	X(looks, "questions and upkeep of the cache")      \
	X(commands, "commands of the command line")        \
	X(connects, "connections")                         \
	X(vanished, "clients that left without goodbye")   \
	X(excused, "calls that a death, or what was asked for, ended")

enum soak_count {
#define SOAK_COUNT_ENUM(name, text) SOAK_COUNT_##name,
	SOAK_COUNTS(SOAK_COUNT_ENUM)
#undef SOAK_COUNT_ENUM
		SOAK_COUNT_END
};

struct soak_seat {
	_Atomic int64_t step; /* the one under way, or the next */
	_Atomic int64_t beat_ms;
	atomic_bool killed, frozen;
	char doing[128];
	_Atomic int64_t counts[SOAK_COUNT_END];
	_Atomic int64_t excused[32]; /* by status */
};

struct soak {
	struct soak_options options;
	char socket[96], directory[64], kiln[400]; /* kiln: the command; empty: not there */
	atomic_int stop;
	atomic_int failures;
	char first_failure[800];
	atomic_int deaths;
	struct soak_death death[SOAK_DEATHS];
	struct soak_seat seats[SOAK_CLIENTS_MOST];
};

int64_t soak_now_ms(void);
void soak_pause_ms(int milliseconds);
/* Counts a failure and prints it at once. */
void soak_fail(struct soak *soak, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns how many of these roles have been killed since then. */
int soak_deaths_since(const struct soak *soak, unsigned roles, int64_t since_ms);
#define SOAK_ROLE(role) (1u << (role))
#define SOAK_DEVICES (SOAK_ROLE(SOAK_EXECUTOR) | SOAK_ROLE(SOAK_OWN))

/* A number of [0, count). */
int64_t soak_pick(uint64_t *state, int64_t count);
bool soak_chance(uint64_t *state, int one_in);

/* ---- A client process ---- */

_Noreturn void soak_client(struct soak *soak, int number);

/* ---- The conductor's parts ---- */

struct conductor {
	struct soak *soak;
	struct own_daemon daemon;
	int daemon_lives;
	bool daemon_frozen;
	pid_t pids[SOAK_CLIENTS_MOST]; /* 0: has ended for good */
	int64_t began_ms, ends_ms;
	int lives;           /* of clients */
	kiln_client *client; /* asks for figures; NULL: not connected */
	struct watch *watch;
	struct killer *killer;
	/* When nobody is connected: of the broker; shared mappings of the cpu device's process, -1 for
	 * other devices, whose drivers have their own. */
	int idle_fds, idle_maps;
};

/* daemon.c: false after soak_fail(). */
bool soak_daemon_start(struct conductor *conductor);
/* It must end by SIGTERM, well. */
void soak_daemon_stop(struct conductor *conductor);
/* The answer to "info", or NULL: the daemon is away, or soak_fail() has said what is wrong. */
kiln_reply *soak_info(struct conductor *conductor);
void soak_disconnect(struct conductor *conductor);
/* Returns the mappings of the device process that all share; -1: none, or not on device cpu. */
int soak_shared_maps(const struct conductor *conductor, const kiln_reply *info);
/* Waits until nobody is connected and nothing under way. */
bool soak_settle(struct conductor *conductor);

/* crew.c */
void crew_start(struct conductor *conductor);
/* Looks after those that have ended or hang, and begins anew those that may; how many there are. */
int crew_tend(struct conductor *conductor);
void crew_kill(struct conductor *conductor);

/* killer.c: kills, freezes and wakes whose time has come. */
struct killer *killer_new(struct conductor *conductor);
void killer_tick(struct conductor *conductor);
/* Wakes all that are frozen. */
void killer_rest(struct conductor *conductor);
/* Writes the figures: text to stdout, and JSON members to json if there is one. */
void killer_report(const struct conductor *conductor, FILE *json);

/* watch.c: samples once a second; what grew. */
struct watch *watch_new(void);
void watch_tick(struct conductor *conductor);
void watch_report(struct conductor *conductor, FILE *json);

/* report.c: what is looked at when all is over.  first: before the first daemon has started. */
void final_first(struct conductor *conductor);
void final_checks(struct conductor *conductor);
void final_report(struct conductor *conductor);

#endif
