/*
 * gpu_two: two devices of one daemon at once: what both do in a time beside what one does, copies
 * from one to the other, the time that each is said to have worked, and one whose process is killed
 * while the other goes on.  With --copies it needs no kernel.
 *
 *   gpu_two --device cuda:0,cuda:1
 *
 * Two devices share nothing but the daemon, so together they are to do 1.95 times as much.  That is
 * not judged where both are device cpu, which share its processors, and of small copies, whose
 * messages all pass the daemon's one loop.
 */
#include "runner.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AIM 1.95
#define LARGE (1ull << 30) /* of a copy, on a GPU */
#define LARGE_ON_CPU (4ull << 20)
#define SMALL (64u << 10)
#define SMALL_MATRIX (256u << 10)
#define PEER (64ull << 20) /* from one device to the other; LARGE as well */
#define PATIENCE_US 20e6

struct side {
	const struct runner_options *options;
	char device[64];
	kiln_client *client;
	kiln_buffer *from, *to;
	kiln_call *call; /* NULL: calls are copies */
	uint64_t bytes;  /* of a copy; below those of the buffers */
	atomic_bool *stop;
	double seconds;
	_Atomic long calls;
	int status; /* of the call that failed */
	char why[400];
};

struct scene {
	struct runner_options options;
	struct side sides[2];
	uint64_t large;
	bool same; /* both are one device */
};

/* ---- Work ---- */

static int call_once(struct side *side)
{
	const kiln_operand operands[] = {{side->from, 0}, {side->to, 0}};
	kiln_ticket ticket;
	if (!side->call)
		return kiln_copy(side->to, 0, side->from, 0, side->bytes);
	int status = kiln_submit(side->call, operands, 2, 0, &ticket);
	return status == KILN_OK ? kiln_wait(side->client, ticket, PATIENCE_US / 1000) : status;
}

/* A thread of one device: copies or launches until it is time, or until one fails. */
static void *work(void *arg)
{
	struct side *side = arg;
	double start = runner_now_us(), end = start + side->seconds * 1e6;
	side->status = KILN_OK;
	side->calls = 0;
	while (runner_now_us() < end && !atomic_load(side->stop)) {
		side->status = call_once(side);
		if (side->status != KILN_OK) {
			snprintf(side->why, sizeof(side->why), "%s", kiln_errmsg());
			break;
		}
		side->calls++;
	}
	side->seconds = (runner_now_us() - start) / 1e6;
	return NULL;
}

/* Has the sides of this mask work; returns their calls a second, 0 after a failure. */
static double rate(struct scene *scene, unsigned mask, uint64_t bytes, double seconds)
{
	atomic_bool stop = false;
	pthread_t threads[2];
	double sum = 0;
	for (int i = 0; i < 2; i++) {
		scene->sides[i].stop = &stop;
		scene->sides[i].bytes = bytes;
		scene->sides[i].seconds = seconds;
		if ((mask >> i & 1) && pthread_create(&threads[i], NULL, work, &scene->sides[i]) != 0)
			exit(1);
	}
	for (int i = 0; i < 2; i++) {
		struct side *side = &scene->sides[i];
		if (!(mask >> i & 1))
			continue;
		pthread_join(threads[i], NULL);
		if (side->status != KILN_OK) {
			runner_fail("throughput", "%s: %s", side->device, side->why);
			return 0;
		}
		sum += (double)side->calls / side->seconds;
	}
	return sum;
}

static void throughput(struct scene *scene, const char *what, uint64_t bytes, bool judged)
{
	double seconds = scene->options.quick ? 0.2 : 2;
	double one[2], both;
	char name[96];
	(void)rate(scene, 3, bytes, seconds / 4); /* warm */
	one[0] = rate(scene, 1, bytes, seconds);
	one[1] = rate(scene, 2, bytes, seconds);
	both = rate(scene, 3, bytes, seconds);
	if (!one[0] || !one[1] || !both)
		return;
	double factor = 2 * both / (one[0] + one[1]);
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%s, %s alone", what, scene->sides[i].device);
		runner_figure(&scene->options, name, one[i], "calls/s");
	}
	snprintf(name, sizeof(name), "%s, both at once", what);
	runner_figure(&scene->options, name, both, "calls/s");
	snprintf(name, sizeof(name), "%s, both beside one", what);
	runner_figure(&scene->options, name, factor, "");
	if (!judged || scene->same || scene->options.copies)
		printf("%s: they share processors: %.2f is not judged\n", what, factor);
	else if (factor < AIM)
		runner_fail(what, "both do %.3f times as much as one, and are to do %.2f", factor, AIM);
	else
		runner_pass();
}

/* Each transposes a square matrix of floats in so many bytes, until the calls are freed. */
static bool prepare(struct scene *scene, uint64_t bytes)
{
	static const int64_t turn[] = {1, 0};
	const kiln_attr perm = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = turn, .count = 2};
	kiln_tensor tensors[2] = {{.dtype = KILN_F32, .rank = 2, .contiguous = 1}};
	while ((uint64_t)tensors[0].shape[0] * (uint64_t)tensors[0].shape[0] * 4 < bytes)
		tensors[0].shape[0] += 256;
	tensors[0].shape[1] = tensors[0].shape[0];
	tensors[1] = tensors[0];
	for (int i = 0; i < 2; i++) {
		struct side *side = &scene->sides[i];
		if (kiln_prepare(side->client, "permute", tensors, 2, &perm, 1, &side->call) != KILN_OK) {
			runner_fail("prepare", "%s: %s", side->device, kiln_errmsg());
			return false;
		}
	}
	return true;
}

static void free_calls(struct scene *scene)
{
	for (int i = 0; i < 2; i++) {
		kiln_call_free(scene->sides[i].call);
		scene->sides[i].call = NULL;
	}
}

/* One works, the other is said not to; what sessions are said to have taken adds up. */
static void accounts(struct scene *scene)
{
	static const char name[] = "each has an account of its own",
					  sessions[] = "kiln_session_device_seconds_total{",
					  devices[] = "kiln_device_busy_seconds_total{";
	for (int i = 0; i < 2; i++) {
		struct side *side = &scene->sides[i];
		const kiln_operand operands[] = {{side->from, 0}, {side->to, 0}};
		struct runner_clock first = {0}, clock = {0};
		(void)runner_clock(side->client, side->call, operands, 1, &first); /* timed from here on */
		double of_sessions = runner_metric(side->client, sessions);
		double of_devices = runner_metric(side->client, devices);
		if (runner_clock(side->client, side->call, operands, 64, &clock) != KILN_OK) {
			runner_fail(name, "%s: %s", side->device, kiln_errmsg());
			return;
		}
		of_sessions = runner_metric(side->client, sessions) - of_sessions;
		of_devices = runner_metric(side->client, devices) - of_devices;
		printf("%s worked %.6f s by its clock, %.6f s as counted; all devices %.6f s, all sessions "
			   "%.6f s\n",
			   side->device, clock.device, clock.counted, of_devices, of_sessions);
		RUNNER_CHECK(name, clock.counted > 0 && of_devices < clock.counted * 1.001);
		RUNNER_CHECK(name, runner_within(of_sessions, of_devices, 0.02));
		if (!strncmp(side->device, "cuda", 4))
			RUNNER_CHECK(name, runner_within(clock.counted, clock.device, 0.02));
	}
}

/* ---- From one to the other ---- */

static void peers(struct scene *scene, int from, uint64_t bytes)
{
	struct side *source = &scene->sides[from], *target = &scene->sides[!from];
	unsigned char *sent = malloc(bytes), *got = malloc(bytes);
	char name[96];
	snprintf(name, sizeof(name), "%.30s to %.30s, %llu MiB", source->device, target->device,
			 (unsigned long long)(bytes >> 20));
	if (!sent || !got) {
		runner_fail(name, "out of memory");
	} else {
		runner_fill(&scene->options, sent, bytes, 7 + (uint64_t)from);
		RUNNER_CHECK(name, kiln_write(source->from, 0, sent, bytes) == KILN_OK);
		double best = 0;
		for (int i = 0; i < 3; i++) {
			double start = runner_now_us();
			if (kiln_copy(target->to, 0, source->from, 0, bytes) != KILN_OK)
				runner_fail(name, "%s", kiln_errmsg());
			double took = runner_now_us() - start;
			best = !i || took < best ? took : best;
		}
		RUNNER_CHECK(name, kiln_read(target->to, 0, got, bytes) == KILN_OK);
		RUNNER_CHECK(name, memcmp(sent, got, bytes) == 0);
		runner_figure(&scene->options, name, (double)bytes / best / 1e3, "GB/s");
	}
	free(sent);
	free(got);
}

/* ---- One is killed ---- */

/* Returns a member of the row that `info` has for the process of a device. */
static int64_t process_int(kiln_client *client, const char *device, const char *member)
{
	kiln_reply *reply;
	char path[64];
	int64_t value = -1;
	if (kiln_request(client, "info", NULL, 0, &reply) != KILN_OK)
		return -1;
	for (int i = 0; i < kiln_reply_count(reply, "executors"); i++) {
		snprintf(path, sizeof(path), "executors[%d].device", i);
		if (strcmp(kiln_reply_str(reply, path), device) != 0)
			continue;
		snprintf(path, sizeof(path), "executors[%d].%s", i, member);
		value = kiln_reply_int(reply, path);
		break;
	}
	kiln_reply_free(reply);
	return value;
}

/* The killed device is of use again: with new buffers, for what was in the old ones is lost. */
static bool is_back(struct side *side)
{
	double end = runner_now_us() + PATIENCE_US;
	side->bytes = SMALL;
	while (runner_now_us() < end) {
		(void)kiln_free(side->from);
		(void)kiln_free(side->to);
		side->from = side->to = NULL;
		if (kiln_alloc(side->client, SMALL, 0, "from", &side->from) == KILN_OK &&
			kiln_alloc(side->client, SMALL, 0, "to", &side->to) == KILN_OK &&
			call_once(side) == KILN_OK)
			return true;
		usleep(10000);
	}
	return false;
}

/* Waits until the thread of the side has done more calls. */
static void await_more(const struct side *side, long calls)
{
	double end = runner_now_us() + PATIENCE_US;
	while (side->calls <= calls && runner_now_us() < end)
		usleep(1000);
}

static void killed(struct scene *scene)
{
	static const char name[] = "one is killed, the other goes on";
	struct side *left = &scene->sides[0], *right = &scene->sides[1];
	struct runner_options other = scene->options;
	atomic_bool stop = false;
	pthread_t threads[2];
	other.device = "none";
	kiln_client *viewer = runner_connect(&other);
	int64_t before = process_int(viewer, left->device, "restarts");
	pid_t pid = (pid_t)process_int(viewer, right->device, "pid");
	if (!viewer || pid <= 0) {
		runner_fail(name, "%s has no process", right->device);
		return;
	}
	for (int i = 0; i < 2; i++) {
		scene->sides[i].stop = &stop;
		scene->sides[i].bytes = SMALL;
		scene->sides[i].seconds = PATIENCE_US / 1e6;
		scene->sides[i].calls = 0;
		if (pthread_create(&threads[i], NULL, work, &scene->sides[i]) != 0)
			exit(1);
	}
	await_more(left, 0);
	await_more(right, 0);
	kill(pid, SIGKILL);
	pthread_join(threads[1], NULL);
	long then = left->calls;
	await_more(left, then);
	atomic_store(&stop, true);
	pthread_join(threads[0], NULL);
	RUNNER_CHECK(name, right->status == KILN_EDEVICE || right->status == KILN_ELOST);
	if (left->status != KILN_OK)
		runner_fail(name, "%s failed, too: %s", left->device, left->why);
	RUNNER_CHECK(name, left->calls > then);
	RUNNER_CHECK(name, process_int(viewer, left->device, "restarts") == before);
	RUNNER_CHECK(name, is_back(right));
	RUNNER_CHECK(name, process_int(viewer, right->device, "restarts") > 0);
	kiln_close(viewer);
}

/* ---- The program ---- */

static bool open_side(struct scene *scene, int number, const char *device)
{
	struct side *side = &scene->sides[number];
	struct runner_options options = scene->options;
	snprintf(side->device, sizeof(side->device), "%s", device);
	options.device = side->device;
	side->options = &scene->options;
	side->client = runner_connect(&options);
	if (!side->client)
		return false;
	snprintf(side->device, sizeof(side->device), "%s", kiln_device(side->client));
	if (kiln_alloc(side->client, scene->large, 0, "from", &side->from) == KILN_OK &&
		kiln_alloc(side->client, scene->large, 0, "to", &side->to) == KILN_OK)
		return true;
	fprintf(stderr, "gpu_two: %s\n", kiln_errmsg());
	return false;
}

int main(int argc, char **argv)
{
	static struct scene scene;
	char devices[128], *second;
	if (!runner_options_read(argc, argv, &scene.options))
		return 2;
	snprintf(devices, sizeof(devices), "%s", scene.options.device);
	second = strchr(devices, ',');
	if (!second) {
		fprintf(stderr, "gpu_two: --device names two: cuda:0,cuda:1\n");
		return 2;
	}
	*second++ = 0;
	scene.same = !strcmp(devices, second);
	bool small = scene.same || scene.options.copies || scene.options.quick;
	scene.large = small ? LARGE_ON_CPU : LARGE;
	if (!open_side(&scene, 0, devices) || !open_side(&scene, 1, second))
		return 1;
	throughput(&scene, "large copies", scene.large, true);
	for (int small_ones = 0; small_ones < 2 && !scene.options.copies; small_ones++) {
		if (prepare(&scene, small_ones ? SMALL_MATRIX : scene.large)) {
			throughput(&scene, small_ones ? "small kernels" : "large kernels", 0, true);
			if (!small_ones)
				accounts(&scene);
		}
		free_calls(&scene);
	}
	throughput(&scene, "small copies by message", SMALL, false);
	for (int from = 0; from < 2; from++) {
		if (!small)
			peers(&scene, from, PEER);
		peers(&scene, from, scene.large);
	}
	if (!scene.same)
		killed(&scene);
	else
		printf("one is killed: left out, for both are one device\n");
	for (int i = 0; i < 2; i++) {
		(void)kiln_free(scene.sides[i].from);
		(void)kiln_free(scene.sides[i].to);
		kiln_close(scene.sides[i].client);
	}
	return runner_end(&scene.options);
}
