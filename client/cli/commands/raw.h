/*
 * raw.h: what the files of 'kiln run raw' share: raw_args.c (from the command line to a source and
 * a launch), raw.c (launch and times), raw_report.c (output).
 */
#ifndef KILN_CLI_RAW_H
#define KILN_CLI_RAW_H

#include "client/cli/files.h"
#include "trace.h"

#define RAW_OPTIONS                                                                            \
	{"entry", "NAME", "a __global__ function, or a template-id: 'scale<float, 4>'"},           \
		{"include", "FILE", "a header, found without its directory; NAME=FILE: as NAME",       \
		 CLI_MANY},                                                                            \
		{CLI_FOLDER, "FOLDER", "find headers there; also -I FOLDER", CLI_MANY},                \
		{"macro", "NAME[=VALUE]", "as -D of compilers", CLI_MANY},                             \
	{                                                                                          \
		"option", "OPTION", "for the compiler: --option=-std=c++20, --option=--use_fast_math", \
			CLI_MANY                                                                           \
	}

struct raw_arg {
	const char *option, *text; /* as on the command line */
	struct npy array;          /* memory: its contents before the launch */
	unsigned access;           /* KILN_READ, KILN_WRITE; 0: a value */
	char *path;                /* the file of its contents afterwards, or NULL */
	kiln_dtype dtype;          /* type of a value */
	uint8_t value[8];
	kiln_buffer *buffer;
};

struct raw_run {
	const struct cli *cli;
	/* The kernel.  The texts are malloc'd. */
	kiln_raw raw;
	kiln_text headers[CLI_MAX_GIVEN], macros[CLI_MAX_GIVEN];
	char *texts[2 * CLI_MAX_GIVEN + 1];
	const char *options[CLI_MAX_GIVEN], *folders[CLI_MAX_GIVEN];
	int text_count;
	/* The launch. */
	struct raw_arg args[KILN_MAX_RAW_ARGS];
	kiln_raw_arg launch_args[KILN_MAX_RAW_ARGS];
	kiln_launch launch;
	int wait_ms;
	int64_t seed, calls; /* calls: most timed calls, then how many there were */
	double enough_us;    /* most time of timed calls; 0: all are made */
	/* The run. */
	kiln_client *client;
	kiln_call *call;
	struct trace_file trace;
	uint64_t bytes;      /* bytes that a launch reads and writes, if it touches each once */
	const char *printed; /* by the first launch; the client's */
	uint64_t cut;        /* bytes that it printed besides */
	double prepare_us, first_us;
	double warm_us, best_us, device_us; /* medians, and the best time */
	double copy_us, copy_device_us;     /* medians of a copy of as many bytes; 0: there are none */
};

/* Reads the command line.  Prints a sentence and returns CLI_USAGE or CLI_FAILED if it is wrong. */
int raw_read(struct cli *cli, struct raw_run *run);
/* Reads the kernel alone, without a launch. */
int raw_read_kernel(struct cli *cli, struct raw_run *run);
/* Frees what either has made. */
void raw_forget(struct raw_run *run);

void raw_print_json(const struct raw_run *run);
void raw_print_report(const struct raw_run *run);

#endif
