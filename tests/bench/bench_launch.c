/*
 * bench_launch: what a launch costs, beside the same launch by a program that has CUDA itself: one
 * at a time and queued, by one program and by several at once.
 *
 * The kernel adds 1 to 64 Ki floats.  Kiln's is a map, the other is written out here; both move 16
 * bytes a thread, and the device's own times of both are shown.
 *
 *   bench_launch [--socket PATH] [--device cuda:N] [--quick] [--json FILE]
 *
 * Needs a running kilnd.  77: there is no GPU.
 */
#include "gpu/driver.h"
#include "gpu/runner.h"

#include <kiln/ops.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#define ELEMENTS 65536
#define DEPTH 64 /* launches queued at once */
#define DEADLINE_MS 10000
#define MOST_PROCESSES 8
#define SKIPPED 77

static const char source[] = "struct alignas(16) four { float x, y, z, w; };\n"
							 "extern \"C\" __global__ void add(const four *x, four *y)\n"
							 "{\n"
							 "	const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"
							 "	const four v = x[i];\n"
							 "	y[i] = {v.x + 1, v.y + 1, v.z + 1, v.w + 1};\n"
							 "}\n";

/* ---- A program that has CUDA itself ---- */

struct direct {
	struct gpu_kernel kernel;
	uint64_t x, y;
};

static void *fetch_cubin(kiln_client *client, const char *target, size_t *bytes)
{
	const kiln_raw raw = {.size = sizeof raw, .name = "add.cu", .source = source, .entry = "add"};
	kiln_reply *reply = NULL, *object = NULL;
	void *cubin = NULL;
	if (kiln_compile_raw(client, &raw, target, &reply) == KILN_OK) {
		const kiln_attr key = {
			.name = "key", .kind = KILN_ATTR_STRING, .s = kiln_reply_str(reply, "key")};
		if (kiln_request(client, "cache.get", &key, 1, &object) == KILN_OK) {
			const void *found = kiln_reply_bin(object, "object", bytes);
			cubin = found ? malloc(*bytes) : NULL;
			if (cubin)
				memcpy(cubin, found, *bytes);
		}
	}
	kiln_reply_free(object);
	kiln_reply_free(reply);
	return cubin;
}

static bool direct_open(struct direct *direct, const void *cubin)
{
	direct->x = gpu_alloc(ELEMENTS * 4, GPU_MALLOC);
	direct->y = gpu_alloc(ELEMENTS * 4, GPU_MALLOC);
	return direct->x && direct->y && gpu_set(direct->x, 0, ELEMENTS * 4) &&
		   gpu_load(cubin, "add", 0, &direct->kernel) && gpu_finish();
}

static bool direct_launch(struct direct *direct)
{
	static const uint32_t grid[3] = {ELEMENTS / 1024, 1, 1}, block[3] = {256, 1, 1};
	void *arguments[] = {&direct->x, &direct->y};
	return gpu_launch(&direct->kernel, grid, block, 0, arguments);
}

/* ---- A client ---- */

struct service {
	kiln_client *client;
	kiln_call *call;
	kiln_operand operands[2];
};

static bool service_open(const struct runner_options *options, const char *lane,
						 struct service *service)
{
	const int64_t shape[] = {ELEMENTS};
	kiln_attr attrs[] = {
		{.name = "statement", .kind = KILN_ATTR_STRING, .s = "y[i] = x[i] + 1"},
		{.name = "names", .kind = KILN_ATTR_STRING, .s = "x,y"},
	};
	kiln_tensor tensors[2];
	float ones[64];
	setenv("KILN_LANE", lane, 1);
	service->client = runner_connect(options);
	unsetenv("KILN_LANE");
	if (!service->client)
		return false;
	for (int i = 0; i < 2; i++) {
		if (kiln_alloc(service->client, ELEMENTS * 4, 0, i ? "y" : "x",
					   &service->operands[i].buffer))
			return false;
		tensors[i] = kiln_tensor_make(service->operands[i].buffer, 0, KILN_F32, 1, shape);
	}
	for (int i = 0; i < 64; i++)
		ones[i] = 1;
	return !kiln_write(service->operands[0].buffer, 0, ones, sizeof ones) &&
		   !kiln_prepare(service->client, "map", tensors, 2, attrs, 2, &service->call);
}

static void service_close(struct service *service)
{
	kiln_call_free(service->call);
	kiln_free(service->operands[0].buffer);
	kiln_free(service->operands[1].buffer);
	kiln_close(service->client);
}

static bool service_right(struct service *service)
{
	float y[64];
	if (kiln_read(service->operands[1].buffer, 0, y, sizeof y))
		return false;
	for (int i = 0; i < 64; i++)
		if (y[i] != 2)
			return false;
	return true;
}

/* ---- One launch of either kind, and many ---- */

struct way {
	struct direct *direct; /* or */
	struct service *service;
};

static bool one(const struct way *way)
{
	kiln_ticket ticket;
	if (way->direct)
		return direct_launch(way->direct) && gpu_finish();
	return !kiln_submit(way->service->call, way->service->operands, 2, 0, &ticket) &&
		   !kiln_wait(way->service->client, ticket, DEADLINE_MS);
}

static bool many(const struct way *way)
{
	kiln_ticket tickets[DEPTH];
	for (int i = 0; i < DEPTH; i++)
		if (way->direct ? !direct_launch(way->direct)
						: kiln_submit(way->service->call, way->service->operands, 2, 0,
									  &tickets[i]) != KILN_OK)
			return false;
	for (int i = DEPTH - 1; i >= 0 && way->service; i--)
		if (kiln_wait(way->service->client, tickets[i], DEADLINE_MS))
			return false;
	return way->service || gpu_finish();
}

static const char *why(const struct way *way)
{
	return way->direct ? gpu_error() : kiln_errmsg();
}

/* ---- One program ---- */

struct row {
	const char *name;
	struct way way;
	double p50, p99, p999, queued;
};

static bool measure(const struct runner_options *options, struct row *row)
{
	int count = options->quick ? 500 : 20000, rounds = options->quick ? 20 : 300;
	double *times = calloc((size_t)count, sizeof *times);
	bool good = times && many(&row->way);
	for (int i = 0; good && i < count; i++) {
		double begin = runner_now_us();
		good = one(&row->way);
		times[i] = runner_now_us() - begin;
	}
	if (good) {
		row->p50 = runner_percentile(times, count, 0.5);
		row->p99 = runner_percentile(times, count, 0.99);
		row->p999 = runner_percentile(times, count, 0.999);
	}
	for (int i = 0; good && i < rounds; i++) {
		double begin = runner_now_us();
		good = many(&row->way);
		times[i] = (runner_now_us() - begin) / DEPTH;
	}
	if (good)
		row->queued = runner_percentile(times, rounds, 0.5);
	free(times);
	if (good)
		runner_pass();
	else
		runner_fail(row->name, "%s", why(&row->way));
	return good;
}

static void print_rows(const struct runner_options *options, const struct row *rows, int count)
{
	printf("\n%-28s %9s %9s %9s %8s %12s %8s\n", "one program, 64 Ki floats", "p50 us", "p99 us",
		   "p99.9 us", "ratio", "queued us", "ratio");
	for (int i = 0; i < count; i++) {
		char label[96];
		printf("%-28s %9.2f %9.2f %9.2f %8.3f %12.2f %8.3f\n", rows[i].name, rows[i].p50,
			   rows[i].p99, rows[i].p999, rows[i].p50 / rows[0].p50, rows[i].queued,
			   rows[i].queued / rows[0].queued);
		snprintf(label, sizeof label, "launch, %s, p50", rows[i].name);
		runner_figure(options, label, rows[i].p50, "us");
		snprintf(label, sizeof label, "launch, %s, queued", rows[i].name);
		runner_figure(options, label, rows[i].queued, "us");
	}
	puts("ratio: to the first row; queued: 64 launches, then a wait, each");
}

static void show_device_times(struct service *service, struct direct *direct)
{
	kiln_ticket ticket;
	double kiln_us = 0, sum = 0, direct_us = 0;
	for (int i = 0; i < 101; i++)
		if (!kiln_submit(service->call, service->operands, 2, 0, &ticket) &&
			!kiln_wait_time(service->client, ticket, DEADLINE_MS, &kiln_us) && i)
			sum += kiln_us;
	for (int i = 0; i < 20; i++) {
		double micros = 0;
		if (gpu_mark(0) && direct_launch(direct) && gpu_mark(1) && gpu_finish() &&
			gpu_between(0, 1, &micros))
			direct_us = i == 0 || micros < direct_us ? micros : direct_us;
	}
	printf("on the device, between events: %.1f us through Kiln (mean), %.1f us direct (least)\n",
		   sum / 100, direct_us);
}

static int one_program(const struct runner_options *options, const void *cubin)
{
	struct service lane = {0}, message = {0};
	struct direct direct = {0};
	struct row rows[] = {
		{.name = "direct launch + sync", .way = {.direct = &direct}},
		{.name = "lane", .way = {.service = &lane}},
		{.name = "message", .way = {.service = &message}},
	};
	enum { ROWS = sizeof rows / sizeof *rows };
	char sentence[200];
	if (!gpu_open(0, sentence) || !direct_open(&direct, cubin)) {
		runner_fail("direct", "%s", gpu_error());
		return 1;
	}
	if (!service_open(options, "on", &lane) || !service_open(options, "off", &message)) {
		runner_fail("clients", "%s", kiln_errmsg());
		return 1;
	}
	for (int i = 0; i < ROWS; i++)
		if (!measure(options, &rows[i]))
			return 1;
	RUNNER_CHECK("lane", service_right(&lane));
	RUNNER_CHECK("message", service_right(&message));
	print_rows(options, rows, ROWS);
	show_device_times(&lane, &direct);
	service_close(&lane);
	service_close(&message);
	return 0;
}

/* ---- Several programs at once ---- */

/* Launches, one at a time, until the time has come; how many. */
static int64_t launch_until(const struct way *way, double until)
{
	int64_t count = 0;
	while (runner_now_us() < until) {
		for (int i = 0; i < 16; i++, count++)
			if (!one(way))
				return -1;
	}
	return count;
}

/* In a process of its own: as many launches as go within the time. */
static void child(const struct runner_options *options, const void *cubin, int result, double start,
				  double seconds)
{
	struct service service = {0};
	struct direct direct = {0};
	struct way way = {.service = cubin ? NULL : &service, .direct = cubin ? &direct : NULL};
	char sentence[200];
	int64_t count = -1;
	bool good = cubin ? gpu_open(0, sentence) && direct_open(&direct, cubin)
					  : service_open(options, "on", &service);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (good && many(&way)) {
		while (runner_now_us() < start)
			usleep(100);
		count = launch_until(&way, start + seconds * 1e6);
	}
	if (write(result, &count, sizeof count) != sizeof count)
		_exit(1);
	_exit(count < 0);
}

/* Launches a second of all processes; fair: the slowest one's share of the fastest one's. */
static double together(const struct runner_options *options, const void *cubin, int processes,
					   double *fair)
{
	double seconds = options->quick ? 0.3 : 1.5, warm = cubin ? 4e6 : 1.5e6;
	double start = runner_now_us() + warm, least = 0, most = 0, sum = 0;
	int result[2];
	pid_t pids[MOST_PROCESSES];
	if (pipe(result))
		return -1;
	for (int i = 0; i < processes; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			child(options, cubin, result[1], start, seconds);
	}
	for (int i = 0; i < processes; i++) {
		int64_t count = -1;
		if (read(result[0], &count, sizeof count) != sizeof count || count < 0)
			sum = -1e18;
		double rate = (double)count / seconds;
		sum += rate;
		least = i == 0 || rate < least ? rate : least;
		most = rate > most ? rate : most;
	}
	for (int i = 0; i < processes; i++)
		waitpid(pids[i], NULL, 0);
	for (int i = 0; i < 2; i++)
		close(result[i]);
	*fair = most > 0 ? least / most : 0;
	return sum;
}

static void several_programs(const struct runner_options *options, const void *cubin)
{
	printf("\n%-28s %14s %14s %8s %10s\n", "launches/s in all, each waits", "own contexts", "kiln",
		   "ratio", "fairness");
	for (int processes = 1; processes <= MOST_PROCESSES; processes *= 2) {
		double fair, unused;
		double own = together(options, cubin, processes, &unused);
		double kiln = together(options, NULL, processes, &fair);
		char label[96];
		printf("%-2d %-25s %14.0f %14.0f %8.2f %10.3f\n", processes, "programs", own, kiln,
			   kiln / own, fair);
		fflush(stdout);
		if (own > 0 && kiln > 0)
			runner_pass();
		else
			runner_fail("several programs", "%d of them: %s", processes,
						own > 0 ? "through Kiln" : "with contexts of their own");
		snprintf(label, sizeof label, "%d programs, kiln", processes);
		runner_figure(options, label, kiln, "launches/s");
		snprintf(label, sizeof label, "%d programs, own contexts", processes);
		runner_figure(options, label, own, "launches/s");
	}
	puts("fairness: the slowest client's share of the fastest one's");
}

/* ---- The program ---- */

/* The GPU is opened in children alone until all of them are done: CUDA does not survive fork(). */
int main(int argc, char **argv)
{
	struct runner_options options;
	kiln_client *client;
	size_t bytes = 0;
	if (!runner_options_read(argc, argv, &options))
		return 2;
	client = runner_connect(&options);
	if (!client)
		return 1;
	if (strncmp(kiln_device(client), "cuda:", 5) != 0) {
		printf("%s: device %s has nothing to be compared with\n", options.program,
			   kiln_device(client));
		return SKIPPED;
	}
	void *cubin = fetch_cubin(client, "sm_90", &bytes);
	kiln_close(client);
	if (!cubin) {
		runner_fail("compiling", "%s", kiln_errmsg());
		return runner_end(&options);
	}
	several_programs(&options, cubin);
	one_program(&options, cubin);
	free(cubin);
	return runner_end(&options);
}
