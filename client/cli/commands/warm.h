/*
 * warm.h: what the files of `kiln warm` share: warm.c (which kernels are meant, and
 * what is said of them in the end), warm_run.c (how they are asked for, many at a time).
 */
#ifndef KILN_CLI_WARM_H
#define KILN_CLI_WARM_H

#include "client/cli/cli.h"

#define WARM_TARGETS 16
#define WARM_ERROR 512

/* A line of a manifest. */
struct warm_line {
	int number; /* in its file; 0: of none */
	char *text;
};

struct warm_failure {
	int line, target; /* their places in the lists */
	int status;
	char error[WARM_ERROR];
};

struct warm {
	struct cli *cli;
	const char *path;     /* of the manifest; NULL: there is none */
	const char *compiler; /* an absolute path; NULL: the daemon's own */
	struct warm_line *lines;
	int line_count, line_capacity;
	const char *targets[WARM_TARGETS]; /* none: the device's, of kernels their own */
	int target_count;
	/* What has become of lines times targets. */
	int64_t hits, compiled, copies, skipped, failed;
	struct warm_failure *failures;
	int failure_count; /* those that there was room for */
	double seconds;
};

/* Of lines and targets. */
int64_t warm_all(const struct warm *warm);
/* Asks for all of them; what fails is noted.  CLI_FAILED, with a sentence printed, where nothing
 * could be asked. */
int warm_run(struct warm *warm, kiln_client *client);

#endif
