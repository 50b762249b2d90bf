/*
 * tune.h: what the files of `kiln tune` share: tune.c (the command, and what it prints),
 * tune_time.c (buffers, correctness and times of the candidates), tune_rows.c (the table
 * of winners: list, export, import, forget).
 */
#ifndef KILN_CLI_TUNE_H
#define KILN_CLI_TUNE_H

#include "client/cli/problem.h"

#define TUNE_CANDIDATES 48
#define TUNE_SETS 16   /* of buffers that take turns */
#define TUNE_ROUNDS 64 /* at most, of either phase */
#define TUNE_BLOCKS 3
#define TUNE_NAME 48

enum candidate_state {
	CANDIDATE_LIVE,
	CANDIDATE_SLOW,   /* too far behind to be timed on */
	CANDIDATE_FAILED, /* does not compile */
	CANDIDATE_WRONG,  /* its results are not those of the planner's own */
};

struct candidate {
	char name[TUNE_NAME];
	enum candidate_state state;
	kiln_call *call;
	double times[TUNE_ROUNDS]; /* each the mean of a group of launches */
	int rounds;
	double micros; /* the median of the times; 0: none */
};

struct tune_operand {
	kiln_tensor tensor;
	bool written;
	uint64_t bytes;     /* of its buffer, up to the last byte that is touched */
	uint8_t *reference; /* written: what the planner's own choice wrote */
};

struct tune {
	const struct cli *cli;
	struct cli_problem problem;
	kiln_client *client;
	kiln_reply *plan; /* what explain says */
	int64_t seed;
	double seconds;
	int timeout_ms; /* of a call */

	struct tune_operand operands[KILN_MAX_OPERANDS];
	int operand_count;
	uint64_t set_bytes;
	kiln_buffer *buffers[TUNE_SETS][KILN_MAX_OPERANDS];
	int sets;
	kiln_buffer *blocker; /* copied ahead of a group, so that the device finds it queued */
	kiln_call *block;
	kiln_ticket blocks[TUNE_BLOCKS]; /* under way */
	int group;                       /* launches in a row */

	struct candidate candidates[TUNE_CANDIDATES]; /* [0]: the planner's own */
	int count;
	int rounds; /* of the last phase */
};

/* ---- tune_time.c.  They print what failed and return CLI_FAILED. ---- */

int tune_make_buffers(struct tune *tune);
/* Prepares all candidates, and compares their results with the planner's own. */
int tune_prepare(struct tune *tune);
/* Times them in rounds. */
int tune_time(struct tune *tune);
void tune_free(struct tune *tune);

/* ---- tune_chance.c ---- */

#define TUNE_ROUNDS_FINAL 7 /* fewer show nothing of how times differ */
/* Whether the second is faster than the first by more than chance, from times of the same rounds:
 * the middle of their differences is more than a share of the first's, and more than the
 * differences differ among themselves. */
bool tune_beats(const double *first, const double *second, int rounds, double share);

/* ---- tune_rows.c ---- */

int tune_list(struct cli *cli);
int tune_export(struct cli *cli, const char *path);
int tune_import(struct cli *cli, const char *path);
/* All rows, or that of a problem's class; plan is what explain says of it. */
int tune_forget(struct cli *cli, kiln_client *client, const kiln_reply *plan);

#endif
