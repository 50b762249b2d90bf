/*
 * test_cuda_order: calls in order with a CUDA stream of the program's own: that they come after
 * what the stream had and before what it gets, that nobody waits on the host, and what is done
 * where that cannot be had.
 */
#include "cuda_order.h"

#include "client/wire/lane_memory.h"
#include "waits_seen.h"

#ifdef KILN_FAKE_CUDA_LIBRARY

#include <pthread.h>
#include <unistd.h>

/* ---- Order ---- */

static void in_order(void **state)
{
	enum { MANY = 200 };
	static struct round rounds[MANY];
	kiln_ticket tickets[MANY];
	struct scene scene;
	scene_open(&scene, state, NULL);
	int64_t before = lane_launches(&scene);
	queue_rounds(&scene, rounds, tickets, MANY);
	assert_finishes(scene.stream);
	assert_right(rounds, MANY);
	for (int i = 0; i < MANY; i++)
		assert_ok(kiln_wait(scene.client, tickets[i], CALL_TIMEOUT_MS));
	assert_int_equal(lane_launches(&scene) - before, MANY);
	assert_int_equal(host_waits(&scene), 0);
	scene_close(&scene);
}

/* The call returns at once, and is not launched before the stream comes by. */
static void nobody_waits(void **state)
{
	struct scene scene;
	struct hold gate = {0};
	struct round round;
	kiln_ticket ticket;
	scene_open(&scene, state, NULL);
	streams->then(scene.stream, hold, &gate);
	queue_rounds(&scene, &round, &ticket, 1);
	assert_int_equal(kiln_wait(scene.client, ticket, 50), KILN_EAGAIN);
	assert_int_equal(streams->finish(scene.stream, 0), 0);
	const kiln_operand operands[] = {{scene.x, 0}, {scene.y, 0}};
	const kiln_submit_options behind = {.size = sizeof(behind), .stream = 1, .after = ticket};
	kiln_ticket last;
	assert_ok(kiln_submit_with(scene.call, operands, 2, &behind, &last));
	const struct wait_seen entry = await_wait(scene.other, "entry");
	assert_int_equal(entry.count, 1);
	const struct wait_seen ready = await_wait(scene.other, "ready");
	assert_int_equal(ready.of_pid, getpid());
	assert_int_equal(ready.count, 1);
	pause_ms(45);
	assert_true(await_wait(scene.other, "ready").age_ms >= ready.age_ms + 40);
	open_gate(&gate);
	assert_finishes(scene.stream);
	assert_right(&round, 1);
	assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
	assert_ok(kiln_wait(scene.client, last, CALL_TIMEOUT_MS));
	await_no_wait(scene.other, "ready");
	await_no_wait(scene.other, "entry");
	scene_close(&scene);
}

/* More than the ring has places. */
static void ring_full(void **state)
{
	enum { MANY = 700 };
	static struct round rounds[MANY];
	static kiln_ticket tickets[MANY];
	struct scene scene;
	scene_open(&scene, state, NULL);
	int64_t before = lane_launches(&scene);
	queue_rounds(&scene, rounds, tickets, MANY);
	assert_finishes(scene.stream);
	assert_right(rounds, MANY);
	for (int i = MANY - 1; i >= 0; i--)
		assert_ok(kiln_wait(scene.client, tickets[i], CALL_TIMEOUT_MS));
	assert_int_equal(lane_launches(&scene) - before, MANY);
	scene_close(&scene);
}

/* One is held: the others get on, each on a stream of the client's. */
static void streams_at_once(void **state)
{
	enum { STREAMS = 4, MANY = 40 };
	static struct round rounds[STREAMS][MANY];
	kiln_ticket tickets[STREAMS][MANY];
	kiln_buffer *x[STREAMS], *y[STREAMS];
	void *mine[STREAMS];
	struct scene scene;
	struct hold gate = {0};
	scene_open(&scene, state, NULL);
	for (int s = 0; s < STREAMS; s++) {
		float *from, *to;
		pair_open(scene.client, &x[s], &from, &y[s], &to);
		warm_at(&scene, x[s], y[s]);
		mine[s] = streams->open(fake->context(0), s == 3);
		for (int i = 0; i < MANY; i++)
			rounds[s][i] = (struct round){from, to, (float)(s * 1000 + i), -1};
	}
	streams->then(mine[1], hold, &gate);
	for (int i = 0; i < MANY; i++)
		for (int s = 0; s < STREAMS; s++) {
			streams->then(mine[s], produce, &rounds[s][i]);
			assert_ok(submit_at(&scene, x[s], y[s], mine[s], (unsigned)s, &tickets[s][i]));
			streams->then(mine[s], consume, &rounds[s][i]);
		}
	for (int s = 0; s < STREAMS; s++)
		if (s != 1)
			assert_finishes(mine[s]);
	assert_int_equal(streams->finish(mine[1], 0), 0);
	assert_int_equal(rounds[1][0].wrong, -1);
	open_gate(&gate);
	assert_finishes(mine[1]);
	for (int s = 0; s < STREAMS; s++) {
		assert_right(rounds[s], MANY);
		for (int i = 0; i < MANY; i++)
			assert_ok(kiln_wait(scene.client, tickets[s][i], CALL_TIMEOUT_MS));
		streams->close(mine[s]);
		kiln_free(x[s]);
		kiln_free(y[s]);
	}
	assert_int_equal(host_waits(&scene), 0);
	scene_close(&scene);
}

/* There and back and there again: the stream waits for the last of them. */
static void batches(void **state)
{
	enum { MANY = 60, LENGTH = 7 };
	static struct round rounds[MANY];
	kiln_ticket tickets[MANY];
	struct scene scene;
	struct permute problem = transpose(COLUMNS, ROWS);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	kiln_call *back = NULL;
	scene_open(&scene, state, NULL);
	const kiln_operand there_operands[] = {{scene.x, 0}, {scene.y, 0}};
	const kiln_operand back_operands[] = {{scene.y, 0}, {scene.x, 0}};
	assert_ok(kiln_prepare(scene.client, "permute", tensors, 2, &perm, 1, &back));
	assert_ok(kiln_submit(back, back_operands, 2, 0, &tickets[0]));
	assert_ok(kiln_wait(scene.client, tickets[0], CALL_TIMEOUT_MS));
	int64_t before = lane_launches(&scene);
	const kiln_submit_options options = {
		.size = sizeof(options), .flags = KILN_SUBMIT_CUDA, .cuda_stream = scene.stream};
	kiln_work works[LENGTH];
	for (int i = 0; i < LENGTH; i++)
		works[i] =
			(kiln_work){i % 2 ? back : scene.call, i % 2 ? back_operands : there_operands, 2};
	for (int i = 0; i < MANY; i++) {
		rounds[i] = (struct round){scene.from, scene.to, (float)i, -1};
		streams->then(scene.stream, produce, &rounds[i]);
		assert_ok(kiln_submit_many(works, LENGTH, &options, &tickets[i]));
		streams->then(scene.stream, consume, &rounds[i]);
	}
	assert_finishes(scene.stream);
	assert_right(rounds, MANY);
	for (int i = 0; i < MANY; i++)
		assert_ok(kiln_wait(scene.client, tickets[i], CALL_TIMEOUT_MS));
	assert_int_equal(lane_launches(&scene) - before, MANY * LENGTH);
	kiln_call_free(back);
	scene_close(&scene);
}

/* ---- A gate that stays shut ---- */

static double cpu_seconds(pid_t pid)
{
	char path[32], text[512] = "";
	unsigned long user = 0, system = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
	const char *rest = strrchr(text, ')');
	assert_non_null(rest);
	assert_int_equal(
		sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void shut_for_long(void **state)
{
	struct scene scene;
	struct hold gate = {0};
	struct round round;
	kiln_ticket ticket;
	scene_open(&scene, state, NULL);
	pid_t executor = device_process(scene.other, 0);
	streams->then(scene.stream, hold, &gate);
	queue_rounds(&scene, &round, &ticket, 1);
	double before = cpu_seconds(executor);
	assert_int_equal(kiln_wait(scene.client, ticket, 1500), KILN_EAGAIN);
	double used = cpu_seconds(executor) - before;
	if (used > 0.3)
		fail_msg("the executor used %.2f s of the processor in 1.5 s", used);
	/* Others get on meanwhile. */
	struct permute problem = transpose(33, 77);
	assert_permutes(scene.other, &problem, NULL);
	open_gate(&gate);
	assert_finishes(scene.stream);
	assert_right(&round, 1);
	assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
	scene_close(&scene);
}

/* The stream goes on; a place whose ready word is still to be written is not used again before. */
static void canceled_behind_a_gate(void **state)
{
	enum { MANY = 300 };
	static struct round rounds[MANY];
	static kiln_ticket tickets[MANY];
	struct scene scene;
	struct hold gate = {0};
	kiln_ticket canceled;
	scene_open(&scene, state, NULL);
	void *slow = streams->open(fake->context(0), 0);
	streams->then(slow, hold, &gate);
	assert_ok(submit_at(&scene, scene.x, scene.y, slow, 0, &canceled));
	assert_ok(kiln_cancel(scene.client, canceled));
	assert_int_equal(kiln_wait(scene.client, canceled, CALL_TIMEOUT_MS), KILN_ECANCELED);
	queue_rounds(&scene, rounds, tickets, MANY);
	/* From that place on they were waited for on the host. */
	int waited = host_waits(&scene);
	assert_in_range(waited, MANY - LANE_ENTRIES, MANY - LANE_ENTRIES + 4);
	open_gate(&gate);
	assert_finishes(slow);
	for (int more = 0; more < 2; more++) {
		assert_finishes(scene.stream);
		assert_right(rounds, MANY);
		for (int i = 0; i < MANY; i++)
			assert_ok(kiln_wait(scene.client, tickets[i], CALL_TIMEOUT_MS));
		queue_rounds(&scene, rounds, tickets, MANY);
	}
	assert_int_equal(host_waits(&scene), waited);
	assert_finishes(scene.stream);
	streams->close(slow);
	scene_close(&scene);
}

/* A word written 2^31 entries ago seems ahead of the awaited one: here each word is so old. */
static void words_of_long_ago(void **state)
{
	struct scene scene;
	struct hold gate = {0};
	struct round round;
	kiln_ticket ticket;
	struct lane_memory *lane = lane_open(&scene, state);
	for (uint32_t i = 0; i < LANE_ENTRIES; i++) {
		atomic_store(&lane->gates[i].ready, 0x70000000u);
		atomic_store(&lane->gates[i].done, 0x70000000u);
	}
	streams->then(scene.stream, hold, &gate);
	queue_rounds(&scene, &round, &ticket, 1);
	assert_int_equal(kiln_wait(scene.client, ticket, 50), KILN_EAGAIN);
	open_gate(&gate);
	assert_finishes(scene.stream);
	assert_right(&round, 1);
	assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
	assert_int_equal(host_waits(&scene), 0);
	scene_close(&scene);
}

/* Opens a gate once the client sleeps. */
struct opener {
	struct lane_memory *lane;
	struct hold *gate;
	bool slept;
};

static void *open_when_it_sleeps(void *arg)
{
	struct opener *opener = arg;
	int64_t end = now_ms() + STREAM_MS;
	while (!opener->slept && now_ms() < end) {
		pause_ms(1);
		opener->slept = atomic_load(&opener->lane->header.waiting);
	}
	open_gate(opener->gate);
	return NULL;
}

/* A GPU says that entries have ended before the device process does, which takes none at their
 * places until then: here the test says it of a whole ring. */
static void room_is_waited_for_asleep(void **state)
{
	static kiln_ticket tickets[LANE_ENTRIES], last;
	static struct round round;
	struct scene scene;
	static struct hold gate;
	pthread_t thread;
	struct opener opener = {lane_open(&scene, state), &gate, false};
	uint64_t first = atomic_load(&opener.lane->header.tail);
	int64_t before = lane_launches(&scene);
	streams->then(scene.stream, hold, &gate);
	for (uint64_t i = 0; i < LANE_ENTRIES; i++)
		assert_ok(submit(&scene, &tickets[i]));
	for (uint64_t number = first; number < first + LANE_ENTRIES; number++)
		atomic_store(&opener.lane->gates[number % LANE_ENTRIES].done, lane_gate_value(number));
	assert_int_equal(pthread_create(&thread, NULL, open_when_it_sleeps, &opener), 0);
	queue_rounds(&scene, &round, &last, 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(opener.slept);
	assert_finishes(scene.stream);
	assert_right(&round, 1);
	for (int i = 0; i < (int)LANE_ENTRIES; i++)
		assert_ok(kiln_wait(scene.client, tickets[i], 0));
	assert_ok(kiln_wait(scene.client, last, CALL_TIMEOUT_MS));
	assert_int_equal(lane_launches(&scene) - before, LANE_ENTRIES + 1);
	assert_int_equal(host_waits(&scene), 0);
	scene_close(&scene);
}

/* ---- Calls that fail ---- */

static void call_fails(void **state)
{
	struct scene scene;
	struct round round;
	kiln_ticket ticket, next;
	const kiln_attr bounds = string_attr("bounds", "check");
	kiln_tensor tensors[] = {
		{.dtype = KILN_F32, .rank = 2, .shape = {1, 8}, .contiguous = 1},
		{.dtype = KILN_I32, .rank = 2, .shape = {1, 4}, .contiguous = 1},
		{.dtype = KILN_F32, .rank = 2, .shape = {1, 4}, .contiguous = 1},
	};
	kiln_buffer *indices = NULL;
	kiln_call *gather = NULL;
	int32_t *values = NULL;
	scene_open(&scene, state, NULL);
	assert_ok(kiln_alloc(scene.client, 16, KILN_BUFFER_SHARED, "indices", &indices));
	assert_ok(kiln_map(indices, (void **)&values));
	memset(values, 0, 16);
	assert_ok(kiln_prepare(scene.client, "gather", tensors, 3, &bounds, 1, &gather));
	const kiln_operand operands[] = {{scene.x, 0}, {indices, 0}, {scene.y, 0}};
	assert_ok(kiln_submit(gather, operands, 3, 0, &ticket));
	assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
	for (int i = 0; i < 20; i++) {
		kiln_submit_options options = {
			.size = sizeof(options), .flags = KILN_SUBMIT_CUDA, .cuda_stream = scene.stream};
		values[2] = 8;
		assert_ok(kiln_submit_with(gather, operands, 3, &options, &ticket));
		options.after = ticket;
		kiln_work follower = {scene.call, (const kiln_operand[]){{scene.x, 0}, {scene.y, 0}}, 2};
		assert_ok(kiln_submit_many(&follower, 1, &options, &next));
		assert_finishes(scene.stream);
		assert_int_equal(kiln_wait(scene.client, next, CALL_TIMEOUT_MS), KILN_ECANCELED);
		assert_int_equal(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS), KILN_EINDEX);
		queue_rounds(&scene, &round, &ticket, 1);
		assert_finishes(scene.stream);
		assert_right(&round, 1);
		assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
	}
	kiln_call_free(gather);
	kiln_free(indices);
	scene_close(&scene);
}

/* ---- Contexts ---- */

/* The stream's context need not be current, and what is current stays so. */
static void two_contexts(void **state)
{
	enum { MANY = 20 };
	static struct round rounds[2][MANY];
	struct scene scene;
	kiln_ticket ticket;
	void *current = NULL;
	scene_open(&scene, state, NULL);
	void *other = streams->open(fake->context(1), 0);
	int registered = fake->live(FAKE_LIVE_HOST);
	for (int i = 0; i < MANY; i++)
		for (int s = 0; s < 2; s++) {
			void *stream = s ? other : scene.stream;
			rounds[s][i] = (struct round){scene.from, scene.to, (float)i, -1};
			streams->then(stream, produce, &rounds[s][i]);
			assert_ok(submit_at(&scene, scene.x, scene.y, stream, 0, &ticket));
			streams->then(stream, consume, &rounds[s][i]);
			assert_finishes(stream);
			assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
		}
	assert_right(rounds[0], MANY);
	assert_right(rounds[1], MANY);
	assert_int_equal(fake->live(FAKE_LIVE_HOST), registered + 2);
	assert_int_equal(host_waits(&scene), 0);
	assert_int_equal(get_current(&current), 0);
	assert_ptr_equal(current, fake->context(0));
	streams->close(other);
	scene_close(&scene);
}

/* ---- Where it cannot be had ---- */

static void assert_on_host(struct scene *scene, int count)
{
	struct round rounds[8];
	kiln_ticket tickets[8];
	int before = host_waits(scene);
	queue_rounds(scene, rounds, tickets, count);
	assert_int_equal(host_waits(scene), before + count);
	/* They have ended when they were submitted. */
	for (int i = 0; i < count; i++)
		assert_ok(kiln_wait(scene->client, tickets[i], 0));
	assert_finishes(scene->stream);
	assert_right(rounds, count);
}

static void without_the_driver(void **state)
{
	static const struct {
		const char *function;
		int result;
	} missing[] = {{"cuDeviceGetAttribute", 801},
				   {"cuMemHostRegister", 801},
				   {"cuMemHostGetDevicePointer", 1},
				   {"cuStreamBatchMemOp", 801}};
	struct scene scene;
	scene_open(&scene, state, NULL);
	streams_seem_busy(true);
	for (int i = 0; i < 4; i++) {
		disconnect_scene(&scene);
		connect_scene(&scene);
		fake->inject(missing[i].function, missing[i].result, -1);
		assert_on_host(&scene, 8);
		fake->inject(missing[i].function, 0, 0);
	}
	streams_seem_busy(false);
	scene_close(&scene);
}

static void without_a_lane(void **state)
{
	struct scene scene;
	setenv("KILN_LANE", "off", 1);
	scene_open(&scene, state, NULL);
	unsetenv("KILN_LANE");
	assert_on_host(&scene, 8);
	scene_close(&scene);
	scene_open(&scene, state, OPTIONS("--test-lane-spin", "0"));
	assert_on_host(&scene, 8);
	scene_close(&scene);
}

/* It could not be told: the call is not run, and not left behind. */
static void stream_fails(void **state)
{
	struct scene scene;
	struct round round;
	kiln_ticket ticket = 0;
	scene_open(&scene, state, NULL);
	streams_seem_busy(true);
	for (int i = 0; i < 3; i++) {
		int64_t before = lane_launches(&scene);
		fake->inject("cuStreamBatchMemOp", 700, 1);
		fake->inject("cuStreamSynchronize", 700, 1);
		assert_int_equal(submit(&scene, &ticket), KILN_EINVAL);
		assert_sentence("cannot be waited for: CUDA_ERROR_ILLEGAL_ADDRESS");
		assert_int_equal(ticket, 0);
		assert_ok(kiln_write(scene.x, 0, scene.to, 4)); /* behind it */
		assert_int_equal(lane_launches(&scene), before);
		queue_rounds(&scene, &round, &ticket, 1);
		assert_finishes(scene.stream);
		assert_right(&round, 1);
		assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
		ticket = 0;
	}
	streams_seem_busy(false);
	scene_close(&scene);
}

static void refusals(void **state)
{
	struct scene scene;
	kiln_ticket ticket = 0;
	scene_open(&scene, state, NULL);
	streams->capture(scene.stream, 1);
	assert_int_equal(submit(&scene, &ticket), KILN_EINVAL);
	assert_sentence("is being captured into a graph");
	streams->capture(scene.stream, 0);
	fake->inject("cuStreamIsCapturing", 700, 1);
	assert_int_equal(submit(&scene, &ticket), KILN_EINVAL);
	assert_sentence("cuStreamIsCapturing says CUDA_ERROR_ILLEGAL_ADDRESS");
	assert_int_equal(ticket, 0);
	assert_on_host(&scene, 0);
	scene_close(&scene);
}

CUDA_ORDER_MAIN(HARNESS_TEST(in_order), HARNESS_TEST(nobody_waits), HARNESS_TEST(ring_full),
				HARNESS_TEST(streams_at_once), HARNESS_TEST(batches), HARNESS_TEST(shut_for_long),
				HARNESS_TEST(canceled_behind_a_gate), HARNESS_TEST(words_of_long_ago),
				HARNESS_TEST(room_is_waited_for_asleep), HARNESS_TEST(call_fails),
				HARNESS_TEST(two_contexts), HARNESS_TEST(without_the_driver),
				HARNESS_TEST(without_a_lane), HARNESS_TEST(stream_fails), HARNESS_TEST(refusals))

#else
CUDA_ORDER_MAIN()
#endif
