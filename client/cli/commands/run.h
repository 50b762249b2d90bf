/*
 * run.h: what the files of 'kiln run' share: run.c (the call and its times), run_data.c (operands
 * and results) and run_report.c (the output).
 */
#ifndef KILN_CLI_RUN_H
#define KILN_CLI_RUN_H

#include "client/cli/verify.h"
#include "trace.h"

struct run {
	const struct cli *cli;
	struct files files;
	struct cli_problem problem;
	struct check check; /* the operands of the call, with their data */
	kiln_client *client;
	kiln_call *call;
	kiln_buffer *buffers[KILN_MAX_OPERANDS];
	uint64_t bytes;           /* bytes of all buffers */
	int64_t seed, warm_calls; /* warm_calls: most warm calls, then how many there were */
	int timeout_ms;           /* most time of one call */
	double enough_us;         /* most time of warm calls; 0: all are made */
	int64_t promoted;         /* calls of the daemon that had an exact kernel before the first */
	bool any_order;           /* later results have other bits, as was allowed, and are right */
	bool kernel_changed;      /* between the calls: later results have other bits, and are right */
	double prepare_us, first_us, warm_us, best_us, device_us;
	struct trace_file trace;
};

/* Whether the operand is there, or left out. */
static inline bool run_has(const struct run *run, int operand)
{
	return run->check.operands[operand].tensor.dtype != KILN_DTYPE_NONE;
}

/* Sets the operands of the problem; CLI_OK, or a sentence was said. */
int run_take_operands(struct run *run);
int run_make_data(struct run *run);
/* Makes and fills the buffers; outputs are poisoned. */
int run_make_buffers(struct run *run);
/* Fills outputs with what no call leaves there. */
int run_poison(struct run *run);
/* Reads the outputs into the operands' data. */
int run_read_results(struct run *run);

/* An element that has other bits than those that were read; name NULL: there is none. */
struct run_difference {
	const char *name;
	uint64_t element;
};
/* Compares the outputs with the operands' data. */
int run_compare(struct run *run, struct run_difference *out);

void run_print_json(const struct run *run);
/* timed: prints the bytes moved in a second, too. */
void run_print_report(const struct run *run, bool timed);

#endif
