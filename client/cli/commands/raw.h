/*
 * raw.h: what the files of `kiln run raw` share: raw_args.c (from the command line to a
 * source and a launch), raw.c (the launch, its times) and raw_report.c (what is printed).
 */
#ifndef KILN_CLI_RAW_H
#define KILN_CLI_RAW_H

#include "client/cli/files.h"

#define RAW_OPTIONS                                                                            \
	{"entry", "NAME", "a __global__ function, or a template-id: 'scale<float, 4>'"},           \
		{"include", "FILE", "a header, found without its directory; NAME=FILE: as NAME",       \
		 CLI_MANY},                                                                            \
		{"macro", "NAME[=VALUE]", "as -D of compilers", CLI_MANY},                             \
	{                                                                                          \
		"option", "OPTION", "for the compiler: --option=-std=c++20, --option=--use_fast_math", \
			CLI_MANY                                                                           \
	}

struct raw_arg {
	const char *option, *text; /* as they stand on the command line */
	struct npy array;          /* memory: what it holds before the launch */
	unsigned access;           /* of memory; 0: a value */
	char *path;                /* where it goes afterwards, or NULL */
	kiln_dtype dtype;          /* of a value */
	uint8_t value[8];
	kiln_buffer *buffer;
};

struct raw_run {
	const struct cli *cli;
	/* What is compiled.  The texts are malloc'd. */
	kiln_raw raw;
	kiln_text headers[CLI_MAX_GIVEN], macros[CLI_MAX_GIVEN];
	char *texts[2 * CLI_MAX_GIVEN + 1];
	const char *options[CLI_MAX_GIVEN];
	int text_count;
	/* How it is launched. */
	struct raw_arg args[KILN_MAX_RAW_ARGS];
	kiln_raw_arg launch_args[KILN_MAX_RAW_ARGS];
	kiln_launch launch;
	int wait_ms;
	int64_t seed, calls; /* calls: that are timed, at most, then how many there were */
	double enough_us;    /* of timed calls; 0: all of them are made */
	/* What becomes of it. */
	kiln_client *client;
	kiln_call *call;
	uint64_t bytes; /* that a launch reads and writes, if it does so once */
	double prepare_us, first_us;
	double warm_us, best_us, device_us; /* medians, and the best */
	double copy_us, copy_device_us;     /* of a copy of as many bytes; 0: there are none */
};

/* Prints a sentence and returns CLI_USAGE or CLI_FAILED if something is wrong. */
int raw_read(struct cli *cli, struct raw_run *run);
/* The same without a launch: what is compiled. */
int raw_read_kernel(struct cli *cli, struct raw_run *run);
/* Frees what they have made. */
void raw_forget(struct raw_run *run);

void raw_print_json(const struct raw_run *run);
void raw_print_report(const struct raw_run *run);

#endif
