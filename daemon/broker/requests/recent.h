/*
 * recent: the last requests for kernels and the last calls, for `kiln monitor`, and the slowest of
 * all, for `kiln slow`.  Each is noted once, when it is answered; nobody is waited for, and newer
 * ones overwrite older ones.  Calls through lanes send no request: while somebody follows, they are
 * read from what the device processes leave behind (command_recent.c).
 */
#ifndef KILN_DAEMON_RECENT_H
#define KILN_DAEMON_RECENT_H

#include "session.h"

#define RECENT_CALLS 1024
#define RECENT_SLOW 32
#define RECENT_PROBLEM 128

enum recent_part {
	RECENT_PLAN,
	RECENT_LOOK,    /* until the cache has answered; and whatever comes before it is asked */
	RECENT_REMOTE,  /* the second tier */
	RECENT_COMPILE, /* and the wait for a compiler */
	RECENT_LOAD,    /* and the wait for a quiet point */
	RECENT_QUEUE,   /* all else: calls before it, buffers, the start of a device process */
	RECENT_DEVICE,  /* from the message to the device process to its answer */
	RECENT_PARTS,
};
extern const char *const recent_part_names[];

/* The parts of the time that a request has been under way. */
struct recent_parts {
	uint64_t us[RECENT_PARTS];
	const char *origin; /* of its last kernel, a literal; NULL: it asked for none */
};

struct recent_call {
	uint64_t number; /* from 1 on */
	double ended_s;  /* since 1970 */
	uint64_t session;
	uint32_t uid;
	int32_t pid;
	char program[ACCOUNT_NAME_MAX]; /* the session's name */
	const char *asked, *origin;     /* literals */
	char op[24], problem[RECENT_PROBLEM], choice[KERNEL_CHOICE_MAX];
	int status;
	uint64_t total_us, us[RECENT_PARTS]; /* which add up to the total */
};

struct recent {
	uint64_t count; /* of all calls: number i is at (i - 1) % RECENT_CALLS, if it was not missed */
	uint64_t lanes_us; /* when calls of lanes were read last; 0: never */
	struct recent_call calls[RECENT_CALLS];
	struct recent_call slow[RECENT_SLOW];
	int slow_count, fastest; /* fastest: the index of the one that goes next */
};

struct recent_about {
	const char *asked, *op, *choice;
	const char *manifest; /* the problem as a line of a manifest; NULL: not to be shown */
	uint64_t began_us;    /* after it was planned */
	int status;
};
/* Notes a request that is answered now.  The time that no part has was spent in the queue. */
void recent_add(struct session *session, const struct recent_about *about,
				const struct recent_parts *parts);
/* Notes a call whose row is filled in but for its number. */
void recent_keep(struct broker *broker, struct recent_call *call);
/* Puts the problem of a manifest's line into the row, whose operator is known. */
void recent_put_problem(struct recent_call *call, const char *manifest);
/* Returns the memory; NULL: there is none. */
struct recent *recent_open(struct broker *broker);
/* The slowest first; count of rows. */
int recent_slowest(const struct broker *broker, const struct recent_call *rows[RECENT_SLOW]);
void recent_forget_slow(struct broker *broker);

#endif
