/*
 * bench_kernels: the kernel of every case that is to be timed, beside a copy of the same bytes in
 * the same run.  Of what a gather reads, the bytes are the sectors that its indices name; of rows
 * that lie apart, those in which rows lie.
 *
 *   bench_kernels [--direct]            launches by itself, through the driver
 *   bench_kernels --daemon --socket P   through a running kilnd; also how long a queued call takes
 *   bench_kernels --list                the cases as JSON, for torch_times.py
 *   bench_kernels --plan                what the planner does with them
 *   bench_kernels --compile DIRECTORY   their cubins, for a run elsewhere; needs no GPU
 *
 * With --choices the same for all candidates of each case, best first: how heuristics are tuned.
 * With --generic for the planner's own candidate and the generic kernel, and how many times as long
 * that one takes.
 *
 *   --ops LIST  --only PART  --dtype NAME  which cases: operators ("softmax,layer_norm"), part of
 *                                          the name ("1023|axis 1": one of them), type of the
 *                                          first operand; --quick: small ones; --all: also those
 *                                          not for timing; --every N: one in N
 *   --objects DIRECTORY  cubins made before; what is missing there is compiled first, and kept
 *   --seconds N          stops in time, and says what was not reached
 *   --target sm_90       for --plan and --compile
 *   --pool BYTES         of inputs, and of outputs (4 GiB): buffers take turns in them
 *   --device cuda:0  --json FILE  --torch FILE (of torch_times.py)  --jobs N  --no-check
 *
 * Results are judged before they are timed, by a sample of each case.  "copy" is the better of the
 * driver's and of a kernel that moves 16 bytes a thread.  Exit status: 0 fine, 1 something is wrong
 * (a target that is missed is not), 2 usage, 77 no GPU or no compiler.
 */
#include "bench.h"

#include <stdio.h>

static bool read_options(int argc, char **argv, struct bench_options *options)
{
	bench_options_init(options);
	for (int i = 1, used; i < argc; i += used) {
		used = bench_option(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
		if (used)
			continue;
		fprintf(stderr,
				"bench_kernels: option \"%s\" is unknown, or its value is missing or wrong\n",
				argv[i]);
		return false;
	}
	if (options->mode == BENCH_DAEMON && !options->socket) {
		fprintf(stderr, "bench_kernels: --daemon needs --socket PATH of a running kilnd\n");
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct bench_options options;

	if (!read_options(argc, argv, &options))
		return 2;
	options.list = cases_all(&options.listed);
	return bench_go(&options);
}
