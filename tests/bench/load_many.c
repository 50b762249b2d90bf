/* load_many.c: many sessions, buffers and prepared calls: what each takes, and what it is to be one
 * among them. */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECTS 50
#define LAUNCHES 1000
#define CROWDED 100 /* each of which waits for all others' */
#define ALONE_US 1000000
#define MOST_KIB 32 /* of the broker, for a session or a call */

static void figure(const struct bench *bench, const char *name, double value, const char *unit)
{
	runner_figure(bench->options, name, value, unit);
}

/* A process has grown by so much for each of so many things. */
struct growth {
	pid_t broker, device;
	double broker_bytes, device_bytes;
};

static void growth_begin(const struct bench *bench, struct growth *growth)
{
	growth->broker = bench->daemon.pid;
	growth->device = load_device_process(growth->broker);
	growth->broker_bytes = load_resident(growth->broker);
	growth->device_bytes = load_resident(growth->device);
}

/* Returns by how many KiB the broker has grown for each. */
static double growth_end(const struct bench *bench, const struct growth *growth, int count,
						 const char *each)
{
	char name[96];
	double broker = (load_resident(growth->broker) - growth->broker_bytes) / 1024 / count;
	double device = (load_resident(growth->device) - growth->device_bytes) / 1024 / count;
	snprintf(name, sizeof(name), "%s, broker", each);
	figure(bench, name, broker, "KiB");
	snprintf(name, sizeof(name), "%s, device process", each);
	figure(bench, name, device, "KiB");
	return broker;
}

/* The same when all are gone, and the daemon has had time to notice that it is alone. */
static void left_behind(const struct bench *bench, const struct growth *growth, int count,
						const char *each)
{
	usleep(ALONE_US);
	growth_end(bench, growth, count, each);
}

/* ---- Sessions ---- */

static bool connect_again(const struct bench *bench, const char *what)
{
	double times[CONNECTS];
	for (int i = 0; i < CONNECTS; i++) {
		double began = runner_now_us();
		kiln_client *client = runner_connect(bench->options);
		times[i] = runner_now_us() - began;
		if (!client)
			return false;
		kiln_close(client);
	}
	load_times(bench->options, what, times, CONNECTS);
	return true;
}

static bool launch_often(const struct bench *bench, struct seat *seat, int count, const char *what)
{
	double times[LAUNCHES];
	for (int i = 0; i < count; i++)
		if ((times[i] = seat_launch(seat)) < 0) {
			runner_fail(what, "%s", kiln_errmsg());
			return false;
		}
	load_times(bench->options, what, times, count);
	return true;
}

/* One more than there may be is told so, and nobody else notices. */
static bool refuse_more(const struct bench *bench, struct seat *seat)
{
	struct seat more;
	bool refused = !seat_open(&more, bench->daemon.socket, bench->options->device) &&
				   strstr(kiln_errmsg(), "--max-sessions");
	if (!refused)
		runner_fail("a session too many", "%s", kiln_errmsg());
	seat_close(&more);
	return refused && seat_launch(seat) >= 0;
}

static bool busy(const struct bench *bench, struct crew *crew, struct seat *seat)
{
	if (!crew_do(crew, CREW_LAUNCH))
		return false;
	uint64_t before = crew_launches(crew);
	double began = runner_now_us();
	bool good = launch_often(bench, seat, CROWDED, "a launch, the others launch, too");
	figure(bench, "launches of the others meanwhile",
		   (double)(crew_launches(crew) - before) / (runner_now_us() - began) * 1e6, "/s");
	return crew_do(crew, CREW_REST) && good;
}

static bool run_crew(const struct bench *bench, struct crew *crew)
{
	struct growth idle, settled;
	struct seat seat = {0};
	int others = bench->scale->sessions - 1;
	bool full = bench->scale->sessions == 256;
	bool good = seat_open(&seat, bench->daemon.socket, bench->options->device) &&
				seat_settle(&seat) && launch_often(bench, &seat, LAUNCHES, "a launch, alone");
	seat_close(&seat);
	good = good && connect_again(bench, "connecting, alone");
	growth_begin(bench, &idle);
	good = good && crew_do(crew, CREW_CONNECT);
	if (good && growth_end(bench, &idle, others, "a session that only connected") > MOST_KIB)
		runner_fail("sessions", "one takes more than %d KiB of the broker", MOST_KIB);
	growth_begin(bench, &settled);
	good = good && connect_again(bench, "connecting, the last of them") &&
		   crew_do(crew, CREW_SETTLE) &&
		   seat_open(&seat, bench->daemon.socket, bench->options->device) && seat_settle(&seat);
	if (good)
		growth_end(bench, &settled, others, "and its call, two buffers and a lane");
	figure(bench, "descriptors of the broker", load_descriptors(bench->daemon.pid), "");
	good = good && (!full || refuse_more(bench, &seat)) &&
		   launch_often(bench, &seat, LAUNCHES, "a launch, the others idle") &&
		   busy(bench, crew, &seat);
	seat_close(&seat);
	good = crew_do(crew, CREW_LEAVE) && good;
	connect_again(bench, "connecting, when they are gone");
	if (good)
		left_behind(bench, &idle, others, "left behind for each, when they are gone");
	return good;
}

bool load_sessions(const struct bench *bench)
{
	struct crew crew;
	if (!crew_start(&crew, bench->options, bench->scale))
		return false;
	bool good = run_crew(bench, &crew);
	crew_end(&crew);
	return good;
}

/* ---- Buffers and calls, of one session ---- */

bool load_buffers(const struct bench *bench)
{
	int count = bench->scale->buffers;
	kiln_buffer **all = calloc((size_t)count + 1, sizeof(kiln_buffer *));
	kiln_client *client = runner_connect(bench->options);
	struct growth growth;
	growth_begin(bench, &growth);
	double began = runner_now_us();
	bool good = client && all;
	for (int i = 0; good && i < count; i++)
		good = !kiln_alloc(client, 64, 0, NULL, &all[i]);
	if (good) {
		figure(bench, "making a buffer, the mean", (runner_now_us() - began) / count, "us");
		growth_end(bench, &growth, count, "a buffer of 64 bytes");
		if (count == 10000 && (!kiln_alloc(client, 64, 0, NULL, &all[count]) ||
							   !strstr(kiln_errmsg(), "--max-buffers")))
			runner_fail("a buffer too many", "%s", kiln_errmsg());
	} else {
		runner_fail("buffers", "%s", kiln_errmsg());
	}
	began = runner_now_us();
	for (int i = 0; all && i <= count; i++)
		kiln_free(all[i]);
	kiln_close(client);
	connect_again(bench, "connecting, when the buffers are gone");
	left_behind(bench, &growth, count, "left behind for each buffer");
	free(all);
	return good;
}

static bool prepare_all(const struct bench *bench, kiln_client *client, bool different,
						kiln_call **all)
{
	kiln_tensor tensors[2];
	bool good = client && all;
	double began = runner_now_us();
	for (int i = 0; good && i < bench->scale->kernels; i++) {
		load_problem(different ? i : 0, NULL, tensors);
		good = !kiln_prepare(client, "softmax", tensors, 2, NULL, 0, &all[i]);
	}
	if (good)
		figure(bench,
			   different ? "preparing, each another kernel, the mean"
						 : "preparing, all the same kernel, the mean",
			   (runner_now_us() - began) / bench->scale->kernels, "us");
	else
		runner_fail("calls", "%s", kiln_errmsg());
	return good;
}

bool load_calls(const struct bench *bench, bool different)
{
	int count = bench->scale->kernels;
	kiln_call **all = calloc((size_t)count, sizeof(kiln_call *));
	kiln_client *client = runner_connect(bench->options);
	struct growth growth;
	growth_begin(bench, &growth);
	bool good = prepare_all(bench, client, different, all);
	double kib = growth_end(bench, &growth, count,
							different ? "a prepared call and its kernel" : "a prepared call");
	if (!different && kib > MOST_KIB)
		runner_fail("a prepared call", "it takes more than %d KiB of the broker", MOST_KIB);
	for (int i = 0; all && i < count; i++)
		kiln_call_free(all[i]);
	kiln_close(client);
	connect_again(bench, "connecting, when the calls are gone");
	left_behind(bench, &growth, count, "left behind for each call");
	free(all);
	return good;
}
