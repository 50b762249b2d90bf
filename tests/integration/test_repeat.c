/*
 * test_repeat: kiln_run again and again with a real daemon: the same arguments are prepared once
 * and then launched through the lane, without a system call; other addresses, buffers and
 * attributes get what belongs to them; what is kept stays within the bounds of both sides; and
 * what is wrong is refused in the same words as the first time.
 */
#include "harness.h"

#include "client/lib/signature.h"

#include <kiln/ops.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ROWS 13
#define COLUMNS 29
#define COUNT (ROWS * COLUMNS)
#define ROOM ((uint64_t)COUNT * 4 + 64)

struct scene {
	kiln_client *client;
	kiln_buffer *x, *y;
};

static void scene_open(const struct kilnd *daemon, struct scene *scene)
{
	scene->client = client_open(daemon);
	assert_ok(kiln_alloc(scene->client, ROOM, 0, "x", &scene->x));
	assert_ok(kiln_alloc(scene->client, ROOM, 0, "y", &scene->y));
}

static void scene_close(struct scene *scene)
{
	kiln_free(scene->x);
	kiln_free(scene->y);
	kiln_close(scene->client);
}

static kiln_tensor matrix(kiln_buffer *buffer, uint64_t offset, int64_t rows, int64_t columns)
{
	const int64_t shape[] = {rows, columns};
	return kiln_tensor_make(buffer, offset, KILN_F32, 2, shape);
}

static int turn(struct scene *scene, uint64_t from, uint64_t to)
{
	static const int64_t perm[] = {1, 0};
	return kiln_permute(scene->client, matrix(scene->x, from, ROWS, COLUMNS),
						matrix(scene->y, to, COLUMNS, ROWS), perm);
}

static void put(struct scene *scene, uint64_t offset, float first)
{
	float data[COUNT];
	for (int i = 0; i < COUNT; i++)
		data[i] = first + (float)i;
	assert_ok(kiln_write(scene->x, offset, data, sizeof(data)));
}

static void assert_turned(struct scene *scene, uint64_t offset, float first)
{
	float data[COUNT];
	assert_ok(kiln_read(scene->y, offset, data, sizeof(data)));
	for (int i = 0; i < ROWS; i++)
		for (int k = 0; k < COLUMNS; k++)
			if (data[k * ROWS + i] != first + (float)(i * COLUMNS + k))
				fail_msg("element %d,%d is %g and not %g", k, i, (double)data[k * ROWS + i],
						 (double)first + i * COLUMNS + k);
}

static int64_t counter(struct scene *scene, const char *name)
{
	char path[64];
	snprintf(path, sizeof(path), "counters.%s", name);
	return info_int(scene->client, path);
}

/* ---- What is prepared, and how often ---- */

static void prepared_once(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;
	kilnd_start(daemon, NULL);
	scene_open(daemon, &scene);
	for (int i = 0; i < 1000; i++) {
		if (i % 100 == 0)
			put(&scene, 0, (float)i);
		assert_ok(turn(&scene, 0, 0));
		if (i % 100 == 99)
			assert_turned(&scene, 0, (float)(i - 99));
	}
	assert_int_equal(counter(&scene, "requests"), 1);
	assert_int_equal(counter(&scene, "launches"), 1000);
	/* The first prepares, the second opens the lane. */
	assert_int_equal(counter(&scene, "lane_launches"), 998);
	assert_int_equal(info_int(scene.client, "session.calls"), 1);
	scene_close(&scene);
	kilnd_stop(daemon);
}

/* Each alignment has its own kernel, and an address that is better aligned is one of its own. */
static void other_addresses(void **state)
{
	struct kilnd *daemon = *state;
	static const uint64_t offsets[] = {4, 0, 8, 20, 16, 12, 48};
	struct scene scene;
	int64_t asked = 0;
	kilnd_start(daemon, NULL);
	scene_open(daemon, &scene);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 7; i++)
			for (int k = 0; k < 7; k++) {
				float first = (float)(round * 100 + i * 10 + k);
				put(&scene, offsets[i], first);
				assert_ok(turn(&scene, offsets[i], offsets[k]));
				assert_turned(&scene, offsets[k], first);
			}
		if (round == 0)
			asked = counter(&scene, "requests");
		assert_int_equal(counter(&scene, "requests"), asked);
	}
	assert_int_equal(info_int(scene.client, "session.calls"), 9); /* 4, 8, 16 for both */
	assert_true(counter(&scene, "lane_launches") >= 3 * 49 - 9);
	scene_close(&scene);
	kilnd_stop(daemon);
}

static void other_buffers(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;
	kilnd_start(daemon, NULL);
	scene_open(daemon, &scene);
	for (int i = 0; i < 50; i++) {
		put(&scene, 0, (float)i);
		for (int k = 0; k < 5; k++)
			assert_ok(turn(&scene, 0, 0));
		assert_turned(&scene, 0, (float)i);
		assert_ok(kiln_free(i % 2 ? scene.x : scene.y));
		assert_ok(kiln_alloc(scene.client, ROOM, 0, "z", i % 2 ? &scene.x : &scene.y));
	}
	assert_int_equal(counter(&scene, "requests"), 1);
	assert_true(counter(&scene, "lane_launches") >= 50 * 3);
	scene_close(&scene);
	kilnd_stop(daemon);
}

/* Two operands in one buffer, side by side. */
static void one_buffer(void **state)
{
	struct kilnd *daemon = *state;
	enum { Y = (COUNT * 4 + 15) / 16 * 16 };
	struct scene scene;
	kilnd_start(daemon, NULL);
	scene_open(daemon, &scene);
	kiln_free(scene.y);
	kiln_free(scene.x);
	assert_ok(kiln_alloc(scene.client, Y + COUNT * 4, 0, "both", &scene.x));
	scene.y = scene.x;
	for (int i = 0; i < 10; i++) {
		put(&scene, 0, (float)i);
		assert_ok(turn(&scene, 0, Y));
		assert_turned(&scene, Y, (float)i);
	}
	assert_int_equal(counter(&scene, "lane_launches"), 8);
	assert_int_equal(turn(&scene, 16, Y), KILN_EINVAL);
	assert_sentence("x and y overlap in buffer both");
	assert_int_equal(turn(&scene, Y, Y), KILN_EINVAL);
	assert_sentence("x and y overlap in buffer both");
	assert_ok(turn(&scene, Y, 0));
	scene.y = NULL;
	scene_close(&scene);
	kilnd_stop(daemon);
}

/* The texts and values of attributes tell calls apart. */
static void attributes(void **state)
{
	struct kilnd *daemon = *state;
	static const int64_t shape[] = {COUNT};
	struct scene scene;
	int64_t asked = 0;
	kilnd_start(daemon, NULL);
	scene_open(daemon, &scene);
	put(&scene, 0, 0);
	const kiln_map_tensor operands[] = {
		{"y", kiln_tensor_make(scene.y, 0, KILN_F32, 1, shape)},
		{"x", kiln_tensor_make(scene.x, 0, KILN_F32, 1, shape)},
	};
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 4; i++) {
			const kiln_map_scalar scalar = {"s", i % 2 ? 3.0 : 2.0};
			kiln_map_options options = kiln_map_make();
			float data[COUNT];
			options.scalars = &scalar;
			options.scalar_count = 1;
			assert_ok(kiln_run_map(scene.client, i < 2 ? "y[i] = x[i] * s" : "y[i] = x[i] + s",
								   operands, 2, &options));
			assert_ok(kiln_read(scene.y, 0, data, sizeof(data)));
			for (int k = 0; k < COUNT; k++) {
				float s = (float)scalar.value, x = (float)k;
				assert_true(data[k] == (i < 2 ? x * s : x + s));
			}
		}
		if (round == 0)
			asked = counter(&scene, "requests");
	}
	assert_int_equal(counter(&scene, "requests"), asked);
	assert_int_equal(info_int(scene.client, "session.calls"), 4);
	assert_int_equal(counter(&scene, "lane_launches"), 3 * 4);
	scene_close(&scene);
	kilnd_stop(daemon);
}

/* ---- Bounds ---- */

/* A copy, which needs no compiler: n elements of x. */
static int copy(struct scene *scene, int64_t n)
{
	static const int64_t perm[] = {0};
	kiln_tensor x = kiln_tensor_make(scene->x, 0, KILN_U8, 1, &n);
	kiln_tensor y = kiln_tensor_make(scene->y, 0, KILN_U8, 1, &n);
	return kiln_permute(scene->client, x, y, perm);
}

static void the_oldest_are_given_back(void **state)
{
	struct kilnd *daemon = *state;
	enum { MANY = SIGNATURE_CALLS + 50 };
	struct scene scene;
	kilnd_start(daemon, NULL);
	scene_open(daemon, &scene);
	for (int i = 1; i <= MANY; i++)
		assert_ok(copy(&scene, i));
	assert_int_equal(counter(&scene, "copies"), MANY);
	await_info(scene.client, "session.calls", SIGNATURE_CALLS);
	for (int i = MANY; i > MANY - SIGNATURE_CALLS; i--)
		assert_ok(copy(&scene, i));
	assert_int_equal(counter(&scene, "copies"), MANY);
	assert_ok(copy(&scene, 1));
	assert_int_equal(counter(&scene, "copies"), MANY + 1);
	await_info(scene.client, "session.calls", SIGNATURE_CALLS);
	scene_close(&scene);
	kilnd_stop(daemon);
}

/* Calls that kiln_run keeps take no place that a call needs. */
static void the_daemon_takes_few(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;
	kiln_call *calls[3];
	kilnd_start(daemon, OPTIONS("--max-calls", "2"));
	scene_open(daemon, &scene);
	put(&scene, 0, 3);
	for (int i = 0; i < 12; i++) {
		assert_ok(turn(&scene, 0, 4 * (uint64_t)(i % 4)));
		assert_turned(&scene, 4 * (uint64_t)(i % 4), 3);
	}
	kiln_tensor tensors[] = {matrix(NULL, 0, ROWS, COLUMNS), matrix(NULL, 0, ROWS, COLUMNS)};
	const int64_t perm[] = {0, 1};
	const kiln_attr attr = kiln_attr_ints("perm", perm, 2);
	for (int i = 0; i < 2; i++)
		assert_ok(kiln_prepare(scene.client, "permute", tensors, 2, &attr, 1, &calls[i]));
	assert_int_equal(kiln_prepare(scene.client, "permute", tensors, 2, &attr, 1, &calls[2]),
					 KILN_ELIMIT);
	assert_sentence("this session has 2 prepared calls, the most it may have (--max-calls)");
	assert_int_equal(turn(&scene, 0, 0), KILN_ELIMIT);
	assert_sentence("this session has 2 prepared calls, the most it may have (--max-calls)");
	kiln_call_free(calls[0]);
	assert_ok(turn(&scene, 0, 0));
	kiln_call_free(calls[1]);
	scene_close(&scene);
	kilnd_stop(daemon);
}

/* ---- What is wrong ---- */

/* The wrong runs, one after the other; false: there are no more. */
static bool run_wrong(struct scene *scene, int i)
{
	switch (i) {
	case 0: /* beyond the end */
		assert_int_equal(turn(scene, 0, ROOM - 16), KILN_EINVAL);
		return true;
	case 1:
		assert_int_equal(turn(scene, UINT64_MAX - 15, 0), KILN_EINVAL);
		return true;
	case 2: {
		struct scene same = {scene->client, scene->x, scene->x};
		assert_int_equal(turn(&same, 0, 16), KILN_EINVAL);
		return true;
	}
	case 3: {
		struct scene none = {scene->client, scene->x, NULL};
		assert_int_equal(turn(&none, 0, 0), KILN_EINVAL);
		return true;
	}
	default:
		return false;
	}
}

static void refused_in_the_same_words(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;
	char first[400];
	kilnd_start(daemon, NULL);
	scene_open(daemon, &scene);
	for (int i = 0;; i++) {
		kiln_client *fresh = scene.client;
		if (!run_wrong(&scene, i))
			break;
		snprintf(first, sizeof(first), "%s", kiln_errmsg());
		print_message("%s\n", first);
		assert_ptr_equal(fresh, scene.client);
		put(&scene, 0, (float)i);
		for (int k = 0; k < 3; k++)
			assert_ok(turn(&scene, 0, 0));
		assert_true(run_wrong(&scene, i));
		assert_string_equal(kiln_errmsg(), first);
		assert_ok(turn(&scene, 0, 0));
		assert_turned(&scene, 0, (float)i);
		/* The next is wrong the first time again. */
		scene_close(&scene);
		scene_open(daemon, &scene);
	}
	scene_close(&scene);
	kilnd_stop(daemon);
}

/* ---- When the other side ends ---- */

static void process_killed(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;
	kilnd_start(daemon, NULL);
	scene_open(daemon, &scene);
	for (int i = 1; i <= 5; i++) {
		static const char zeros[ROOM];
		assert_ok(kiln_write(scene.x, 0, zeros, ROOM));
		assert_ok(kiln_write(scene.y, 0, zeros, ROOM));
		put(&scene, 0, (float)i);
		for (int k = 0; k < 5; k++)
			assert_ok(turn(&scene, 0, 0));
		assert_turned(&scene, 0, (float)i);
		kill(device_process(scene.client, 0), SIGKILL);
		int status = turn(&scene, 0, 0);
		if (status != KILN_EDEVICE && status != KILN_ELOST)
			fail_msg("%s: %s", kiln_status_name(status), kiln_errmsg());
		await_info_at_least(scene.client, "executors[0].restarts", i);
	}
	assert_int_equal(counter(&scene, "requests"), 1);
	scene_close(&scene);
	kilnd_stop(daemon);
}

static void daemon_ended(void **state)
{
	struct kilnd *daemon = *state;
	for (int killed = 0; killed < 2; killed++) {
		struct scene scene;
		kilnd_start(daemon, NULL);
		scene_open(daemon, &scene);
		for (int k = 0; k < 5; k++)
			assert_ok(turn(&scene, 0, 0));
		if (killed) {
			kill(daemon->pid, SIGKILL);
			kilnd_wait(daemon, STOP_TIMEOUT_MS);
			assert_no_children();
		} else {
			kilnd_stop(daemon);
		}
		/* One that was told to end says so before. */
		assert_int_equal(turn(&scene, 0, 0), killed ? KILN_ECONN : KILN_ECANCELED);
		assert_sentence(killed ? "close this client and connect again" : "is shutting down");
		for (int k = 0; k < 3; k++) {
			assert_int_equal(kiln_alloc(NULL, 1, 0, NULL, NULL), KILN_EINVAL);
			assert_int_equal(turn(&scene, 0, 0), KILN_ECONN);
			assert_sentence("close this client and connect again");
		}
		scene_close(&scene);
	}
}

/* ---- Without system calls ---- */

static int silent_client(const struct kilnd *daemon, void *arg)
{
	struct scene scene;
	(void)arg;
	scene_open(daemon, &scene);
	for (int i = 0; i < 3; i++)
		for (uint64_t to = 0; to <= 16; to += 4)
			assert_ok(turn(&scene, 0, to));
	if (!forbid_system_calls())
		_exit(2);
	for (int i = 0; i < 1000; i++)
		if (turn(&scene, 0, 4 * (uint64_t)(i % 5)))
			_exit(3);
	_exit(0);
}

static void steady_state_makes_no_system_call(void **state)
{
	assert_silent(*state, silent_client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(prepared_once),
		HARNESS_TEST(other_addresses),
		HARNESS_TEST(other_buffers),
		HARNESS_TEST(one_buffer),
		HARNESS_TEST(attributes),
		HARNESS_TEST(the_oldest_are_given_back),
		HARNESS_TEST(the_daemon_takes_few),
		HARNESS_TEST(refused_in_the_same_words),
		HARNESS_TEST(process_killed),
		HARNESS_TEST(daemon_ended),
		HARNESS_TEST(steady_state_makes_no_system_call),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
