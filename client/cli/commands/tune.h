/*
 * tune.h: what the files of 'kiln tune' share: tune.c (the command and its output), tune_time.c
 * (buffers, results and times of the candidates), tune_chance.c (statistics), tune_rows.c (the
 * table of winners), tune_recorded.c (what the daemon was asked for).
 */
#ifndef KILN_CLI_TUNE_H
#define KILN_CLI_TUNE_H

#include "client/cli/problem.h"

#define TUNE_CANDIDATES 48
#define TUNE_SETS 16   /* sets of buffers, used in turn */
#define TUNE_ROUNDS 64 /* most rounds of either phase */
#define TUNE_BLOCKS 3
#define TUNE_NAME 48

/*
 * tune_prepare() finds candidates that fail, tune_time() those that are slow; the planner's own
 * choice is always live.
 *
 *   LIVE --- does not compile ------> FAILED
 *    |-- gives other results ------> WRONG
 *    +-- is too far behind --------> SLOW
 */
enum candidate_state {
	CANDIDATE_LIVE,
	CANDIDATE_SLOW,   /* too far behind to be timed on */
	CANDIDATE_FAILED, /* does not compile */
	CANDIDATE_WRONG,  /* its results differ from those of the planner's own choice */
};

struct candidate {
	char name[TUNE_NAME];
	enum candidate_state state;
	kiln_call *call;
	double times[TUNE_ROUNDS]; /* each is the mean of a group of launches */
	int rounds;
	double micros; /* median of the times; 0: none */
};

struct tune_operand {
	kiln_tensor tensor;
	bool written;
	uint64_t bytes;     /* from the buffer's beginning to the last byte that a call touches */
	uint8_t *reference; /* if written: the result of the planner's own choice */
};

struct tune {
	const struct cli *cli;
	struct cli_problem problem;
	kiln_client *client;
	kiln_reply *plan; /* the daemon's answer to explain */
	int64_t seed;
	double seconds;
	int timeout_ms; /* of a call */

	struct tune_operand operands[KILN_MAX_OPERANDS];
	int operand_count;
	uint64_t set_bytes;
	kiln_buffer *buffers[TUNE_SETS][KILN_MAX_OPERANDS];
	int sets;
	/* Copied ahead of a group, so that the device finds the whole group queued. */
	kiln_buffer *blocker;
	kiln_call *block;
	kiln_ticket blocks[TUNE_BLOCKS]; /* under way */
	int group;                       /* launches in a row */

	struct candidate candidates[TUNE_CANDIDATES]; /* [0] is the planner's own choice */
	int count;
	int rounds; /* rounds of the last phase */
};

/* ---- tune_time.c.  They print what failed and return CLI_FAILED. ---- */

int tune_make_buffers(struct tune *tune);
/* Prepares all candidates, and compares their results with those of the planner's own choice. */
int tune_prepare(struct tune *tune);
/* Times the candidates in rounds. */
int tune_time(struct tune *tune);
void tune_free(struct tune *tune);

/* ---- tune_chance.c ---- */

#define TUNE_ROUNDS_FINAL 7 /* fewer rounds do not show how much times vary */
/* Whether the second candidate is faster than the first by more than chance.  Both have times of
 * the same rounds: the median of their differences must exceed a share of the first's time, and the
 * spread of the differences. */
bool tune_beats(const double *first, const double *second, int rounds, double share);

/* ---- tune_recorded.c ---- */

/* The classes of the problems that were tuned: the same kernel serves all problems of a class. */
struct tune_classes {
	char **names;
	size_t count, capacity;
};
/* Tunes one problem, as a command line has it, unless its class is among these. */
typedef int tune_line(struct cli *line, struct tune_classes *classes);
/* Tunes each class of what the daemon was asked for; goes on where one fails. */
int tune_recorded(struct cli *cli, tune_line *tune_one);
/* Adds a class; false: it is there. */
bool tune_classes_add(struct tune_classes *classes, const char *name);

/* ---- tune_rows.c ---- */

int tune_list(struct cli *cli);
int tune_export(struct cli *cli, const char *path);
int tune_import(struct cli *cli, const char *path);
/* Forgets all rows, or the row of a problem's class; plan: explain's answer about the problem. */
int tune_forget(struct cli *cli, kiln_client *client, const kiln_reply *plan);

#endif
