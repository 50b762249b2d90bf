/*
 * warm.h: what the files of 'kiln warm' share: warm.c (which kernels, and the report), warm_run.c
 * (requests, many at a time).
 */
#ifndef KILN_CLI_WARM_H
#define KILN_CLI_WARM_H

#include "client/cli/cli.h"

#define WARM_TARGETS 16
#define WARM_ERROR 512

/* A line of a manifest. */
struct warm_line {
	int number; /* its number in the file; 0: it is in no file */
	char *text;
};

struct warm_failure {
	int line, target; /* places in the lists */
	int status;
	char error[WARM_ERROR];
};

struct warm {
	struct cli *cli;
	const char *path;     /* the manifest's; NULL: there is none */
	const char *compiler; /* an absolute path; NULL: the daemon's own */
	struct warm_line *lines;
	int line_count;
	size_t line_capacity;
	const char
		*targets[WARM_TARGETS]; /* none: the device's target, or the target that a kernel has */
	int target_count;
	/* Each line counts once for each target. */
	int64_t hits, compiled, copies, skipped, failed;
	struct warm_failure *failures;
	int failure_count; /* failures that there was room for */
	double seconds;
};

/* Counts lines and targets. */
int64_t warm_all(const struct warm *warm);
/* Asks for all kernels and notes failures.  CLI_FAILED, with a sentence printed, if nothing could
 * be asked. */
int warm_run(struct warm *warm, kiln_client *client);

#endif
