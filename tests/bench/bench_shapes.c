/*
 * bench_shapes: what the first call of a shape takes that was never seen, beside a repeated one.
 *
 * Four processes run so many problems each, of softmax, permute and layer_norm in turn, no two of
 * them of one shape, with kiln_run: once, which is the first call, and then a few times more.
 * First with a daemon that has its generic kernels (--specialize lazy), then with one that compiles
 * what it is asked for (eager); both with an empty cache.
 *
 *   bench_shapes [--device NAME] [--count SHAPES] [--ops LIST] [--quick] [--json FILE]
 *                [--lazy] [--list]
 *
 * --count  of each process (500)
 * --lazy   that daemon alone
 * --list   prints the problems, a line of JSON each: torch_shapes.py runs the same
 *
 * Starts a kilnd of its own for each way, from $KILN_DAEMON or from beside this program.  Fails if
 * with generic kernels any call waited for a compile.
 */
#include "own_daemon.h"
#include "shapes.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 4
#define MOST_SHAPES 2000 /* of a process */
#define REPEATS 9
#define SETTLE 3 /* calls until one is launched as all later ones */
#define WARM_US 600e6

/* The processes write this. */
struct result {
	double first, again; /* us; the median of the repeated calls */
};

struct board {
	_Atomic int ready, failed;
	_Atomic bool go;
	char why[240];
	struct result results[PROCESSES][MOST_SHAPES];
};

static const char *wanted_ops; /* NULL: all */

static bool is_wanted(const struct shape *shape)
{
	const char *found = wanted_ops ? strstr(wanted_ops, shape->op) : shape->op;
	size_t size = strlen(shape->op);

	return found && (!wanted_ops || ((found == wanted_ops || found[-1] == ',') &&
									 (found[size] == 0 || found[size] == ',')));
}

/* ---- In a process ---- */

struct place {
	kiln_client *client;
	kiln_buffer *buffers[5];
};

static bool place_open(const struct runner_options *options, struct place *place)
{
	place->client = runner_connect(options);
	for (int i = 0; place->client && i < 5; i++)
		if (kiln_alloc(place->client, SHAPES_BYTES, 0, NULL, &place->buffers[i]))
			return false;
	return place->client != NULL;
}

static bool run(struct place *place, struct shape *shape, double *us)
{
	for (int i = 0; i < shape->count; i++)
		if (shape->tensors[i].dtype != KILN_DTYPE_NONE)
			shape->tensors[i].buffer = place->buffers[i];
	double began = runner_now_us();
	int status = kiln_run(place->client, shape->op, shape->tensors, shape->count, shape->attrs,
						  shape->attr_count);
	*us = runner_now_us() - began;
	return status == KILN_OK;
}

static bool measure(struct place *place, int n, struct result *result)
{
	struct shape shape;
	double times[REPEATS], unused;
	shape_make(n, &shape);
	bool good = run(place, &shape, &result->first);
	for (int i = 1; good && i < SETTLE; i++)
		good = run(place, &shape, &unused);
	for (int i = 0; good && i < REPEATS; i++)
		good = run(place, &shape, &times[i]);
	result->again = good ? runner_percentile(times, REPEATS, 0.5) : 0;
	return good;
}

/* The problems of process p: those that are wanted, in turn. */
static int next_wanted(int n)
{
	struct shape shape;
	do
		shape_make(++n, &shape);
	while (!is_wanted(&shape));
	return n;
}

static _Noreturn void process(const struct runner_options *options, int number, struct board *board)
{
	struct place place = {0};
	struct result unused;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Connected, and one call of its own behind it. */
	bool good = place_open(options, &place);
	int n = -1;
	for (int i = 0; i < number * (options->count + 1); i++)
		n = next_wanted(n);
	n = next_wanted(n);
	good = good && measure(&place, n, &unused);
	board->ready++;
	while (good && !board->go)
		usleep(100);
	for (int i = 0; good && i < options->count; i++) {
		n = next_wanted(n);
		good = measure(&place, n, &board->results[number][i]);
	}
	if (!good) {
		board->failed++;
		snprintf(board->why, sizeof(board->why), "%s", kiln_errmsg());
	}
	_exit(!good);
}

/* ---- A daemon that has all it needs ---- */

static bool warm_up(const struct runner_options *options)
{
	struct place place = {0};
	double began = runner_now_us(), us;
	bool good = place_open(options, &place);
	int64_t all = 0, there = 0;
	while (good && runner_now_us() < began + WARM_US) {
		all = own_daemon_figure(place.client, "tiers.generics");
		there = own_daemon_figure(place.client, "tiers.resident");
		if (there + own_daemon_figure(place.client, "tiers.failed") >= all)
			break;
		usleep(20000);
	}
	if (all)
		printf("%lld of %lld generic kernels resident after %.1f s\n", (long long)there,
			   (long long)all, (runner_now_us() - began) / 1e6);
	for (int n = 0; good && n < (options->quick ? SHAPES_WARM * 3 / 4 : SHAPES_WARM); n++) {
		struct shape shape;
		shape_make_warm(n, &shape);
		good = !is_wanted(&shape) || run(&place, &shape, &us);
	}
	if (!good)
		runner_fail("warming up", "%s", kiln_errmsg());
	kiln_close(place.client);
	return good;
}

/* ---- The table ---- */

struct waits {
	int64_t compiles, shared, generic;
};

static struct waits count_waits(const struct runner_options *options)
{
	kiln_client *client = runner_connect(options);
	struct waits waits = {own_daemon_figure(client, "counters.compiles"),
						  own_daemon_figure(client, "counters.shared"),
						  own_daemon_figure(client, "counters.generic")};
	kiln_close(client);
	return waits;
}

static void print_times(const struct runner_options *options, const char *way, const char *what,
						double *times, int count)
{
	double p50 = runner_percentile(times, count, 0.5), p99 = runner_percentile(times, count, 0.99);
	double worst = runner_percentile(times, count, 1);
	printf("  %-34s %11.1f %11.1f %11.1f\n", what, p50, p99, worst);
	FILE *json = options->json ? fopen(options->json, "a") : NULL;
	if (!json)
		return;
	fprintf(json,
			"{\"program\": \"%s\", \"figure\": \"%s, %s\", \"p50_us\": %.2f, \"p99_us\": %.2f, "
			"\"worst_us\": %.2f, \"shapes\": %d}\n",
			options->program, way, what, p50, p99, worst, count);
	fclose(json);
}

static void judge(const struct runner_options *options, const char *way, const struct board *board,
				  struct waits before, struct waits after)
{
	static double first[PROCESSES * MOST_SHAPES], again[PROCESSES * MOST_SHAPES],
		more[PROCESSES * MOST_SHAPES];
	int count = 0;
	int64_t waited = after.compiles - before.compiles + after.shared - before.shared;
	for (int p = 0; p < PROCESSES; p++)
		for (int i = 0; i < options->count; i++, count++) {
			first[count] = board->results[p][i].first;
			again[count] = board->results[p][i].again;
			more[count] = first[count] - again[count];
		}
	printf("%s: %d shapes, %lld of them waited for a compile, %lld had a generic kernel\n", way,
		   count, (long long)waited, (long long)(after.generic - before.generic));
	print_times(options, way, "first call", first, count);
	print_times(options, way, "repeated call", again, count);
	print_times(options, way, "first call, more than a repeated", more, count);
	if (waited && strcmp(way, "lazy") == 0)
		runner_fail(way, "%lld calls waited for a compile", (long long)waited);
	else
		runner_pass();
}

static void run_processes(const struct runner_options *options, const char *way,
						  struct board *board)
{
	pid_t pids[PROCESSES];
	fflush(NULL);
	for (int p = 0; p < PROCESSES; p++)
		if ((pids[p] = fork()) == 0)
			process(options, p, board);
	while (board->ready < PROCESSES)
		usleep(1000);
	struct waits before = count_waits(options);
	board->go = true;
	for (int p = 0; p < PROCESSES; p++)
		waitpid(pids[p], NULL, 0);
	if (board->failed)
		runner_fail(way, "%d processes failed: %s", board->failed, board->why);
	else
		judge(options, way, board, before, count_waits(options));
}

static void run_way(const struct runner_options *options, struct own_daemon *daemon,
					const char *way)
{
	const char *const arguments[] = {"--device", options->device, "--specialize", way, NULL};
	size_t size = sizeof(struct board);
	struct board *board =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	/* A cache of its own: nothing in it is compiled. */
	if (own_daemon_start(daemon, way, arguments)) {
		if (strcmp(way, "lazy") != 0 || warm_up(options))
			run_processes(options, way, board);
		own_daemon_stop(daemon);
	}
	munmap(board, size);
}

/* Takes an option without a value out of the arguments. */
static bool take(int *argc, char **argv, const char *name)
{
	for (int i = 1; i < *argc; i++)
		if (strcmp(argv[i], name) == 0) {
			memmove(&argv[i], &argv[i + 1], (size_t)(*argc - i) * sizeof(*argv));
			--*argc;
			return true;
		}
	return false;
}

static void list(const struct runner_options *options)
{
	int n = -1;
	for (int i = 0; i < PROCESSES * (options->count + 1); i++) {
		n = next_wanted(n);
		if (i % (options->count + 1))
			shape_print(n);
	}
}

int main(int argc, char **argv)
{
	struct runner_options options;
	struct own_daemon daemon;
	bool lazy = take(&argc, argv, "--lazy"), listed = take(&argc, argv, "--list");
	if (!runner_options_read(argc, argv, &options))
		return 2;
	wanted_ops = options.ops;
	if (options.count <= 0 || options.count > MOST_SHAPES)
		options.count = options.quick ? 10 : 500;
	if (listed) {
		list(&options);
		return 0;
	}
	if (!own_daemon_make(&daemon, "shapes"))
		return 1;
	options.socket = daemon.socket;
	printf("%d processes, %d shapes each; us   %17s %11s %11s\n", PROCESSES, options.count, "p50",
		   "p99", "worst");
	run_way(&options, &daemon, "lazy");
	if (!lazy)
		run_way(&options, &daemon, "eager");
	int status = runner_end(&options);
	own_daemon_remove(&daemon, status);
	return status;
}
