/*
 * bench_random: kernels for problems that no list has, drawn by seed, beside a copy of the same
 * bytes in the same run: how good the planner's choices are where nobody has looked.  Of what a
 * gather reads, the bytes are the sectors that its indices name; of rows that lie apart, those in
 * which rows lie.
 *
 *   bench_random --seed 7 --count 300                    times the planner's own choices
 *   bench_random --seed 7 --candidates --csv FILE        all candidates of each problem: what a
 *                                                        model of their cost is fitted to
 *   bench_random --seed 7 --dry-run                      the problems and their plans; no GPU
 *   bench_random --seed 7 --list | python3 torch_times.py > TIMES
 *   bench_random --seed 7 --torch TIMES                  beside torch.compile
 *
 *   --seed N       (1)  the same seed draws the same problems, in the same order
 *   --count N      (300)
 *   --op LIST      only these operators: "softmax,layer_norm"; the others are skipped
 *   --csv FILE     adds a row for each kernel that was timed
 *   --seconds N    stops in time, and says what was not reached
 * and bench_kernels' --only, --objects, --compile, --target, --pool, --device, --jobs, --no-check,
 * --json.
 *
 * It ends with the mean, the 5th percentile and the least of copy / kiln, and the worst problems.
 * Exit status: 0 fine, 1 something is wrong, 2 usage, 77 no GPU or no compiler.
 */
#include "bench.h"

#include "random.h"

#include <stdio.h>
#include <stdlib.h>

struct draws {
	uint64_t seed;
	int count;
	const char *ops;
};

/* As bench_option(). */
static int take(struct bench_options *options, struct draws *draws, const char *name,
				const char *value)
{
	long long number = value ? strtoll(value, NULL, 10) : 0;

	if (strcmp(name, "--candidates") == 0) {
		options->choices = true;
		return 1;
	}
	if (strcmp(name, "--dry-run") == 0) {
		options->mode = BENCH_PLAN;
		return 1;
	}
	if (strcmp(name, "--seed") == 0 && value)
		draws->seed = strtoull(value, NULL, 10);
	else if (strcmp(name, "--count") == 0 && number > 0 && number <= 4096)
		draws->count = (int)number;
	else if (strcmp(name, "--op") == 0 && value)
		draws->ops = value;
	else
		return bench_option(options, name, value);
	return 2;
}

int main(int argc, char **argv)
{
	struct draws draws = {.seed = 1, .count = 300};
	struct bench_options options;
	struct cases_case *list;

	bench_options_init(&options);
	for (int i = 1, used; i < argc; i += used) {
		used = take(&options, &draws, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
		if (used)
			continue;
		fprintf(stderr,
				"bench_random: option \"%s\" is unknown, or its value is missing or wrong\n",
				argv[i]);
		return 2;
	}
	list = random_draw(draws.seed, draws.ops, draws.count);
	if (!list) {
		fprintf(stderr, "bench_random: no operator of \"%s\" is drawn\n", draws.ops);
		return 2;
	}
	options.list = list;
	options.listed = draws.count;
	options.drawn = true;
	int status = bench_go(&options);
	free(list);
	return status;
}
