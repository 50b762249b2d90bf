/*
 * cuda_order.h: what the tests of calls in order with a CUDA stream of the program's own share.
 * The daemon serves its cpu device, and the stream is one of the fake driver's that gets on by
 * itself: its steps read and write the memory that the calls work on.
 */
#ifndef KILN_TESTS_CUDA_ORDER_H
#define KILN_TESTS_CUDA_ORDER_H

#include "client/wire/lane_memory.h"
#include "harness.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef KILN_FAKE_CUDA_LIBRARY

#include "cuda_fake.h"

#define ROWS 13
#define COLUMNS 29
#define COUNT (ROWS * COLUMNS)
#define STREAM_MS 10000 /* until a stream has come to its end */

static const struct fake_order_control *streams;
static int (*set_current)(void *context), (*get_current)(void **context);

static inline void open_fake(void)
{
	void *library = load_fake(KILN_FAKE_CUDA_LIBRARY);
	streams = symbol(library, "fake_order_control");
	*(void **)&set_current = symbol(library, "cuCtxSetCurrent");
	*(void **)&get_current = symbol(library, "cuCtxGetCurrent");
	set_current(fake->context(0));
}

/* ---- The scene: a transpose of f32, from x to y, which this process has mapped ---- */

struct scene {
	struct kilnd *daemon;
	kiln_client *client, *other;
	kiln_call *call;
	kiln_buffer *x, *y;
	float *from, *to;
	void *stream;
	int host_waits; /* before */
};

static inline kiln_call *prepare_transpose(kiln_client *client)
{
	struct permute problem = transpose(ROWS, COLUMNS);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	kiln_call *call = NULL;
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	return call;
}

static inline void pair_open(kiln_client *client, kiln_buffer **x, float **from, kiln_buffer **y,
							 float **to)
{
	assert_ok(kiln_alloc(client, COUNT * 4, KILN_BUFFER_SHARED, "x", x));
	assert_ok(kiln_alloc(client, COUNT * 4, KILN_BUFFER_SHARED, "y", y));
	assert_ok(kiln_map(*x, (void **)from));
	assert_ok(kiln_map(*y, (void **)to));
}

static inline int submit_at(const struct scene *scene, kiln_buffer *x, kiln_buffer *y, void *stream,
							unsigned number, kiln_ticket *ticket)
{
	const kiln_operand operands[] = {{x, 0}, {y, 0}};
	const kiln_submit_options options = {.size = sizeof(options),
										 .stream = number,
										 .flags = KILN_SUBMIT_CUDA,
										 .cuda_stream = stream};
	return kiln_submit_with(scene->call, operands, 2, &options, ticket);
}

static inline int submit(const struct scene *scene, kiln_ticket *ticket)
{
	return submit_at(scene, scene->x, scene->y, scene->stream, 0, ticket);
}

/* The call is bound, and the buffers known. */
static inline void warm_at(const struct scene *scene, kiln_buffer *x, kiln_buffer *y)
{
	const kiln_operand operands[] = {{x, 0}, {y, 0}};
	kiln_ticket ticket;
	for (int i = 0; i < 2; i++) {
		assert_ok(kiln_submit(scene->call, operands, 2, 0, &ticket));
		assert_ok(kiln_wait(scene->client, ticket, CALL_TIMEOUT_MS));
	}
}

static inline void start_daemon(struct kilnd *daemon, const char *const *options)
{
	/* The driver is this process's alone. */
	kilnd_spawn(daemon, options, OPTIONS("KILN_LIBCUDA=/nowhere"), -1);
	kilnd_await(daemon);
}

static inline void connect_scene(struct scene *scene)
{
	scene->client = client_open(scene->daemon);
	scene->call = prepare_transpose(scene->client);
	pair_open(scene->client, &scene->x, &scene->from, &scene->y, &scene->to);
	warm_at(scene, scene->x, scene->y);
}

/* kiln_free() would wait for what a gate keeps. */
static inline void disconnect_scene(struct scene *scene)
{
	kiln_close(scene->client);
	kiln_call_free(scene->call);
	kiln_free(scene->x);
	kiln_free(scene->y);
}

static inline void scene_open(struct scene *scene, void **state, const char *const *options)
{
	*scene = (struct scene){.daemon = *state};
	start_daemon(scene->daemon, options);
	scene->other = client_open(scene->daemon);
	scene->stream = streams->open(fake->context(0), 0);
	scene->host_waits = fake->calls("cuStreamSynchronize");
	connect_scene(scene);
}

/* How often the host has waited for a stream. */
static inline int host_waits(const struct scene *scene)
{
	return fake->calls("cuStreamSynchronize") - scene->host_waits;
}

/* Calls take the way of a stream that has something to do, whether it has or not. */
static inline void streams_seem_busy(bool on)
{
	fake->inject("cuStreamGetFlags", on ? 801 : 0, on ? -1 : 0);
}

static inline void assert_finishes(void *stream)
{
	if (!streams->finish(stream, STREAM_MS))
		fail_msg("the stream did not come to its end within %d ms", STREAM_MS);
}

static inline void scene_close(struct scene *scene)
{
	disconnect_scene(scene);
	assert_finishes(scene->stream);
	streams->close(scene->stream);
	kiln_close(scene->other);
	if (scene->daemon->pid)
		kilnd_stop(scene->daemon);
	assert_int_equal(streams->faults(), 0);
}

/* The lanes that this process has mapped, by the inodes of their memory: pages of earlier ones stay
 * mapped for good. */
struct lanes {
	unsigned long inodes[64];
	struct lane_memory *at[64];
	int count;
};

static inline struct lanes list_lanes(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	struct lanes lanes = {.count = 0};
	char line[512];
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long at, inode;
		if (!strstr(line, "memfd:kiln-lane"))
			continue;
		assert_int_equal(sscanf(line, "%lx-%*x %*s %*x %*s %lu", &at, &inode), 2);
		assert_true(lanes.count < 64);
		lanes.at[lanes.count] = (struct lane_memory *)at; /* NOLINT */
		lanes.inodes[lanes.count++] = inode;
	}
	fclose(maps);
	return lanes;
}

static inline bool knows(const struct lanes *lanes, unsigned long inode)
{
	for (int i = 0; i < lanes->count; i++)
		if (lanes->inodes[i] == inode)
			return true;
	return false;
}

/* Opens the scene; the lane of its client. */
static inline struct lane_memory *lane_open(struct scene *scene, void **state)
{
	const struct lanes before = list_lanes();
	scene_open(scene, state, NULL);
	const struct lanes now = list_lanes();
	for (int i = 0; i < now.count; i++)
		if (!knows(&before, now.inodes[i]))
			return now.at[i];
	fail_msg("the client has no lane");
	return NULL;
}

/* ---- Steps of a stream ---- */

struct round {
	float *from;
	const float *to;
	float first;
	int wrong; /* elements that consume() found so; -1: it has not looked */
};

static inline void produce(void *arg)
{
	const struct round *round = arg;
	for (int i = 0; i < COUNT; i++)
		round->from[i] = round->first + (float)i;
}

static inline void consume(void *arg)
{
	struct round *round = arg;
	round->wrong = 0;
	for (int i = 0; i < ROWS; i++)
		for (int k = 0; k < COLUMNS; k++)
			round->wrong += round->to[k * ROWS + i] != round->first + (float)(i * COLUMNS + k);
}

/* All that stands behind it in the stream waits for open_gate(). */
struct hold {
	atomic_int open;
};

static inline void hold(void *arg)
{
	struct hold *gate = arg;
	int64_t end = now_ms() + 2 * STREAM_MS;
	while (!atomic_load(&gate->open) && now_ms() < end)
		pause_ms(1);
}

static inline void open_gate(struct hold *gate)
{
	atomic_store(&gate->open, 1);
}

static inline void assert_right(const struct round *rounds, int count)
{
	for (int i = 0; i < count; i++)
		if (rounds[i].wrong)
			fail_msg("round %d: %d elements are wrong", i, rounds[i].wrong);
}

static inline int64_t lane_launches(const struct scene *scene)
{
	return info_int(scene->other, "counters.lane_launches");
}

/* Rounds of produce, call, consume, queued on one stream and not waited for. */
static inline void queue_rounds(const struct scene *scene, struct round *rounds,
								kiln_ticket *tickets, int count)
{
	for (int i = 0; i < count; i++) {
		rounds[i] = (struct round){scene->from, scene->to, (float)(i + 1), -1};
		streams->then(scene->stream, produce, &rounds[i]);
		assert_ok(submit(scene, &tickets[i]));
		streams->then(scene->stream, consume, &rounds[i]);
	}
}

#define CUDA_ORDER_MAIN(...)                              \
	int main(void)                                        \
	{                                                     \
		const struct CMUnitTest tests[] = {__VA_ARGS__};  \
		open_fake();                                      \
		harness_begin();                                  \
		return cmocka_run_group_tests(tests, NULL, NULL); \
	}

#else

#define CUDA_ORDER_MAIN(...)                                   \
	int main(void)                                             \
	{                                                          \
		puts("built without cuda.h: there is no fake driver"); \
		return 77;                                             \
	}

#endif
#endif
