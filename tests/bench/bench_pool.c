/*
 * bench_pool: how fast the compiler workers fill a cold cache, and how long a program waits for one
 * kernel while others are compiled for nobody in particular.
 *
 * For 1, 2, 4, 8 and 16 workers: COUNT different kernels of several operators, asked for by twice
 * as many programs as there are workers; kernels a second, the speed-up over one worker, the
 * resident memory of a worker; and beside it what as many processes do that have the compiler and
 * no daemon.  Then one program at a time asks for a kernel, alone and while 200
 * others have asked for theirs in the background.
 *
 *   bench_pool [--device cpu] [--quick] [--count KERNELS] [--threads MOST_WORKERS] [--json FILE]
 *
 * Compiles for sm_90 by NVRTC, or with --device cpu by the host's compiler; needs no GPU.  Starts a
 * kilnd of its own for each number of workers, from $KILN_DAEMON or from beside this program.
 */
#include "own_daemon.h"
#include "pool_bare.h"

#include <kiln/ops.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_WORKERS 64
#define MOST_CLIENTS (2 * MOST_WORKERS)
#define BACKGROUND 200 /* programs that do not wait */
#define INTERACTIVE 9  /* kernels that somebody waits for, of which the median is shown */
#define TIMEOUT_MS 300000
#define SKIPPED 77

static const char *target = "sm_90";

static kiln_client *join(const char *socket, unsigned flags)
{
	kiln_connect_options options = {.size = sizeof(options),
									.socket = socket,
									.device = "none",
									.timeout_ms = TIMEOUT_MS,
									.flags = flags};
	kiln_client *client = NULL;
	if (kiln_connect(&options, &client) == KILN_OK)
		return client;
	runner_fail("client", "%s", kiln_errmsg());
	return NULL;
}

/* ---- Kernels: no two numbers have the same ---- */

static bool compile(kiln_client *client, int number)
{
	static const char *const ops[] = {"permute", "softmax", "layer_norm", "rms_norm"};
	const char *op = ops[number % 4];
	const int64_t shape[2] = {64, 256 + 8 * (number / 4)}, turned[2] = {shape[1], shape[0]};
	static const int64_t order[2] = {1, 0};
	const kiln_attr perm = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = order, .count = 2};
	bool permute = number % 4 == 0, norm = number % 4 > 1;
	kiln_dtype dtype = number / 4 % 2 ? KILN_F32 : KILN_F16;
	kiln_tensor x = kiln_tensor_make(NULL, 0, dtype, 2, shape);
	kiln_tensor y = kiln_tensor_make(NULL, 0, dtype, 2, permute ? turned : shape);
	/* Norms: without gamma, beta and residual. */
	kiln_tensor tensors[5] = {x, norm ? kiln_tensor_none() : y, kiln_tensor_none(),
							  kiln_tensor_none(), y};
	kiln_reply *reply = NULL;
	int status = kiln_compile(client, op, tensors, norm ? 5 : 2, &perm, permute, target, &reply);
	bool compiled = !status && !strcmp(kiln_reply_str(reply, "origin"), "compiled");
	if (status)
		runner_fail(op, "%s", kiln_errmsg());
	else if (!compiled)
		runner_fail(op, "kernel %d was there already", number);
	kiln_reply_free(reply);
	return compiled;
}

/* ---- Many programs ---- */

struct crew {
	const char *socket;
	_Atomic int next, connected;
	int end; /* of the numbers */
	_Atomic bool go, failed;
};

static void *work(void *arg)
{
	struct crew *crew = arg;
	kiln_client *client = join(crew->socket, 0);
	int number;
	crew->connected++;
	while (!crew->go)
		usleep(100);
	while (client && (number = crew->next++) < crew->end)
		if (!compile(client, number))
			crew->failed = true;
	kiln_close(client);
	return NULL;
}

/* Seconds; 0: something failed. */
static double compile_all(const char *socket, int programs, int first, int count)
{
	struct crew crew = {.socket = socket, .next = first, .end = first + count};
	pthread_t threads[MOST_CLIENTS];
	for (int i = 0; i < programs; i++)
		pthread_create(&threads[i], NULL, work, &crew);
	while (crew.connected < programs)
		usleep(100);
	double begin = runner_now_us();
	crew.go = true;
	for (int i = 0; i < programs; i++)
		pthread_join(threads[i], NULL);
	return crew.failed ? 0 : (runner_now_us() - begin) / 1e6;
}

static bool await(kiln_client *client, const char *path, int64_t value)
{
	double until = runner_now_us() + TIMEOUT_MS * 1e3;
	while (own_daemon_figure(client, path) != value)
		if (usleep(2000) || runner_now_us() > until) {
			runner_fail(path, "it did not become %lld", (long long)value);
			return false;
		}
	return true;
}

/* False: skipped, and said so. */
static bool has_compiler(kiln_client *client)
{
	kiln_reply *reply = NULL;
	bool host = !strcmp(target, "cpu"), has = false;
	if (kiln_request(client, "info", NULL, 0, &reply) == KILN_OK) {
		const char *id = kiln_reply_str(reply, host ? "workers.host" : "workers.nvrtc");
		has = !strcmp(target, "cpu") || !strncmp(id, "nvrtc ", 6);
		printf("%s: %s\n", has ? "compiler" : "bench_pool: skipped", id);
	}
	kiln_reply_free(reply);
	return has;
}

/* ---- The same without a daemon ---- */

static struct bare_kernel *units;

/* The units of all kernels that the daemon has compiled so far; how many. */
static int take_units(kiln_client *client, int most)
{
	const kiln_attr limit = {.name = "limit", .kind = KILN_ATTR_INT, .i = most};
	kiln_reply *list = NULL, *row;
	int count = 0;
	units = calloc((size_t)most, sizeof(*units));
	if (!units || kiln_request(client, "cache.ls", &limit, 1, &list) != KILN_OK)
		return 0;
	while (count < most && count < kiln_reply_count(list, "rows")) {
		char path[32];
		snprintf(path, sizeof(path), "rows[%d].key", count);
		const kiln_attr key = {
			.name = "key", .kind = KILN_ATTR_STRING, .s = kiln_reply_str(list, path)};
		if (kiln_request(client, "cache.show", &key, 1, &row) != KILN_OK)
			break;
		units[count].key_text = strdup(kiln_reply_str(row, "key_text"));
		units[count++].unit = strdup(kiln_reply_str(row, "source"));
		kiln_reply_free(row);
	}
	kiln_reply_free(list);
	return count;
}

static void free_units(int count)
{
	for (int i = 0; i < count && units; i++) {
		free(units[i].key_text);
		free(units[i].unit);
	}
	free(units);
}

/* ---- One program waits ---- */

static void *ask_in_background(void *arg)
{
	struct crew *crew = arg;
	kiln_client *client = join(crew->socket, KILN_CONNECT_BACKGROUND);
	int number = crew->next++;
	if (!client || !compile(client, number))
		crew->failed = true;
	kiln_close(client);
	return NULL;
}

/* Milliseconds from the request to the answer, one after another. */
static bool wait_for_each(const char *socket, int first, double times[INTERACTIVE])
{
	kiln_client *client = join(socket, 0);
	bool good = client != NULL;
	for (int i = 0; good && i < INTERACTIVE; i++) {
		double begin = runner_now_us();
		/* All of one operator. */
		good = compile(client, first + 4 * i + 1);
		times[i] = (runner_now_us() - begin) / 1e3;
	}
	kiln_close(client);
	return good;
}

static bool wait_in_crowd(const char *socket, kiln_client *watch, int programs, int first,
						  double times[INTERACTIVE])
{
	struct crew crew = {.socket = socket, .next = first};
	pthread_t threads[BACKGROUND];
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 << 10);
	for (int i = 0; i < programs; i++)
		pthread_create(&threads[i], &small, ask_in_background, &crew);
	/* All but a few, which are being compiled or done. */
	double until = runner_now_us() + TIMEOUT_MS * 1e3;
	while (own_daemon_figure(watch, "counters.asked") -
				   own_daemon_figure(watch, "counters.requests") <
			   programs - programs / 8 &&
		   crew.next < first + programs && runner_now_us() < until)
		usleep(500);
	bool good = wait_for_each(socket, first + 4 * programs, times);
	for (int i = 0; i < programs; i++)
		pthread_join(threads[i], NULL);
	pthread_attr_destroy(&small);
	return good && !crew.failed;
}

/* ---- The table ---- */

struct row {
	int workers;
	double seconds, rate, bare_rate, resident_mib;
	double alone_ms, crowd_ms, crowd_worst_ms;
};

static bool measure(const struct runner_options *options, struct own_daemon *daemon,
					struct row *row)
{
	double times[INTERACTIVE];
	int background = options->quick ? BACKGROUND / 10 : BACKGROUND;
	kiln_client *client = join(daemon->socket, 0);
	bool good = client && await(client, "workers.idle", row->workers);
	if (!good)
		return false;
	row->seconds = compile_all(daemon->socket, 2 * row->workers, 0, options->count);
	row->resident_mib =
		(double)own_daemon_figure(client, "workers.resident_bytes") / (1 << 20) / row->workers;
	if (!units && take_units(client, options->count) != options->count)
		runner_fail("units", "the daemon does not have all of them: %s", kiln_errmsg());
	good = row->seconds > 0 && wait_for_each(daemon->socket, options->count, times);
	row->rate = options->count / row->seconds;
	row->alone_ms = good ? runner_percentile(times, INTERACTIVE, 0.5) : 0;
	good = good && wait_in_crowd(daemon->socket, client, background,
								 options->count + 4 * INTERACTIVE + 4, times);
	if (good) {
		row->crowd_ms = runner_percentile(times, INTERACTIVE, 0.5);
		row->crowd_worst_ms = runner_percentile(times, INTERACTIVE, 1);
	}
	kiln_close(client);
	return good;
}

static void print_row(const struct runner_options *options, const struct row *row, double one)
{
	double speedup = one > 0 ? row->rate / one : 1;
	printf("%7d %9.2f %11.1f %8.2f %9.1f %9.1f %9.1f %13.1f %9.1f\n", row->workers, row->seconds,
		   row->rate, speedup, row->bare_rate, row->resident_mib, row->alone_ms, row->crowd_ms,
		   row->crowd_worst_ms);
	fflush(stdout);
	FILE *json = options->json ? fopen(options->json, "a") : NULL;
	if (!json)
		return;
	fprintf(json,
			"{\"program\": \"%s\", \"figure\": \"%d workers, %s\", \"kernels\": %d, "
			"\"kernels_per_s\": %.2f, \"bare_per_s\": %.2f, \"speedup\": %.3f, \"resident_mib\": "
			"%.2f, \"alone_ms\": "
			"%.3f, \"beside_background_ms\": %.3f, \"beside_background_worst_ms\": %.3f}\n",
			options->program, row->workers, target, options->count, row->rate, row->bare_rate,
			speedup, row->resident_mib, row->alone_ms, row->crowd_ms, row->crowd_worst_ms);
	fclose(json);
}

/* 0, or the exit status. */
static int run_all(const struct runner_options *options, struct own_daemon *daemon)
{
	double one = 0;
	for (int workers = 1; workers <= options->threads; workers *= 2) {
		struct row row = {.workers = workers};
		char number[16], cache[32];
		const char *const arguments[] = {"--device", "none", "--workers", number, NULL};
		snprintf(number, sizeof(number), "%d", workers);
		snprintf(cache, sizeof(cache), "cache%d", workers);
		if (!own_daemon_start(daemon, cache, arguments))
			return 1;
		kiln_client *client = join(daemon->socket, 0);
		bool ready = client && await(client, "workers.idle", workers);
		bool has = ready && (workers > 1 || has_compiler(client));
		kiln_close(client);
		if (has && workers == 1)
			printf("%7s %9s %11s %8s %9s %9s %9s %13s %9s\n", "workers", "s", "kernels/s",
				   "speed-up", "bare/s", "MiB each", "alone ms", "in crowd ms", "worst ms");
		bool good = has && measure(options, daemon, &row);
		own_daemon_stop(daemon);
		if (ready && !has)
			return SKIPPED;
		double bare = good ? bare_compile(units, options->count, workers) : 0;
		row.bare_rate = bare > 0 ? options->count / bare : 0;
		if (!good)
			return 1;
		runner_pass();
		print_row(options, &row, one);
		one = workers == 1 ? row.rate : one;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct runner_options options;
	struct own_daemon daemon;
	if (!runner_options_read(argc, argv, &options))
		return 2;
	if (!strcmp(options.device, "cpu"))
		target = "cpu";
	if (options.count <= 0)
		options.count = options.quick ? 16 : 256;
	if (!own_daemon_make(&daemon, "pool"))
		return 1;
	printf("%d kernels for %s\n", options.count, target);
	int skipped = run_all(&options, &daemon), status = runner_end(&options);
	own_daemon_remove(&daemon, status);
	free_units(options.count);
	return skipped == SKIPPED ? SKIPPED : status;
}
