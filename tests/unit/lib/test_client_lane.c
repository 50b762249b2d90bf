/*
 * test_client_lane.c: which calls libkiln submits through its lane and which by message, where
 * messages fail, are answered late, or are given up.  Against a fake daemon that hands out a lane;
 * the test is the device process.
 */
#include "client/lib/lane_state.h"
#include "fake_daemon.h"

#include <fcntl.h>
#include <kiln/ops.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/eventfd.h>

#include <cmocka.h>

#define GENERATION 7

/* The daemon's thread writes before it answers, and the test reads after an answer. */
static struct {
	struct lane_memory *memory;
	int ends[2]; /* the pipe by which the device process wakes the client */
	bool handed_out;
	_Atomic bool hold; /* launches are answered when "info" comes */
	uint64_t held[16];
	int held_count;
	atomic_int submits, asked;
} its;

static void answer_bound(struct fake *fake, uint64_t id, uint64_t call)
{
	const int64_t alignments[2] = {4, 4}, extents[2] = {64, 64};
	int fds[LANE_DESCRIPTORS], count = 0;
	struct wire_out out;
	fake_begin(&out, id, KILN_OK);
	wire_put_uint(&out, "bound", call);
	wire_put_uint(&out, "generation", GENERATION);
	wire_put_ints(&out, "alignments", alignments, 2);
	wire_put_ints(&out, "extents", extents, 2);
	if (!its.handed_out) {
		fds[count++] = frame_memfd("fake-lane", sizeof(*its.memory));
		fds[count++] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		its.memory = mmap(NULL, sizeof(*its.memory), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
		assert_ptr_not_equal(its.memory, MAP_FAILED);
		assert_int_equal(pipe2(its.ends, O_CLOEXEC | O_NONBLOCK), 0);
		fds[count++] = its.ends[0];
		its.memory->header.magic = LANE_MAGIC;
		its.memory->header.version = LANE_VERSION;
		its.memory->header.entries = LANE_ENTRIES;
		its.handed_out = true;
	}
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(
		frame_send_wait(fake->sock, out.buffer.data, out.buffer.size, fds, count, FAKE_WAIT_MS),
		KILN_OK);
	wire_out_free(&out);
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

static void answer_held(struct fake *fake)
{
	for (int i = 0; i < its.held_count; i++)
		fake_reply(fake, its.held[i], KILN_OK, NULL, NULL);
	its.held_count = 0;
}

static bool serve_lane(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	const char *type = wire_type(in);
	uint64_t id = wire_id(in);
	(void)frame;
	if (strcmp(type, "info") == 0)
		answer_held(fake);
	if (strcmp(type, "prepare") == 0 && its.hold) {
		its.held[its.held_count++] = id;
		return true;
	}
	if (strcmp(type, "submit") != 0)
		return false;
	bool asks = wire_get_bool(&in->root, "lane", false);
	its.submits++;
	its.asked += asks;
	if (its.hold)
		its.held[its.held_count++] = id;
	else if (asks)
		answer_bound(fake, id, wire_get_uint(&in->root, "call", 0));
	else
		fake_reply(fake, id, KILN_OK, NULL, NULL);
	return true;
}

/* ---- The scene ---- */

struct scene {
	struct fake *fake;
	kiln_client *client;
	kiln_buffer *x, *y;
	kiln_call *call;
};

static kiln_tensor row(int64_t n)
{
	return kiln_tensor_make(NULL, 0, KILN_F32, 1, &n);
}

static struct scene scene_open(void)
{
	struct scene scene;
	const kiln_tensor tensors[] = {row(16), row(16)};
	memset(&its, 0, sizeof(its));
	its.ends[0] = its.ends[1] = -1;
	scene.fake = fake_start(serve_lane);
	assert_int_equal(fake_connect(scene.fake, FAKE_WAIT_MS, &scene.client), KILN_OK);
	assert_int_equal(kiln_alloc(scene.client, 4096, 0, NULL, &scene.x), KILN_OK);
	assert_int_equal(kiln_alloc(scene.client, 4096, 0, NULL, &scene.y), KILN_OK);
	assert_int_equal(kiln_prepare(scene.client, "copy", tensors, 2, NULL, 0, &scene.call), KILN_OK);
	return scene;
}

static void scene_close(struct scene *scene)
{
	kiln_call_free(scene->call);
	kiln_free(scene->x);
	kiln_free(scene->y);
	kiln_close(scene->client);
	fake_stop(scene->fake);
	if (its.handed_out) {
		munmap(its.memory, sizeof(*its.memory));
		close(its.ends[1]);
	}
}

static int submit(const struct scene *scene, kiln_ticket *ticket)
{
	const kiln_operand operands[] = {{scene->x, 0}, {scene->y, 0}};
	return kiln_submit(scene->call, operands, 2, 0, ticket);
}

static void request(const struct scene *scene, const char *name)
{
	kiln_reply *reply = NULL;
	assert_int_equal(kiln_request(scene->client, name, NULL, 0, &reply), KILN_OK);
	kiln_reply_free(reply);
}

/* The fake answers from now on; it has read all that was sent before. */
static void hold_no_more(const struct scene *scene)
{
	request(scene, "cache.ls");
	its.hold = false;
}

/* All that the daemon was sent has been answered. */
static void settle(const struct scene *scene)
{
	request(scene, "info");
}

static void by_message(const struct scene *scene)
{
	kiln_ticket ticket = 0;
	int before = its.submits;
	assert_int_equal(submit(scene, &ticket), KILN_OK);
	assert_int_equal(kiln_wait(scene->client, ticket, FAKE_WAIT_MS), KILN_OK);
	assert_int_equal(its.submits, before + 1);
}

static void through_the_lane(const struct scene *scene)
{
	kiln_ticket ticket = 0;
	int before = its.submits;
	uint64_t number = atomic_load(&its.memory->header.tail);
	assert_int_equal(submit(scene, &ticket), KILN_OK);
	assert_int_equal(atomic_load(&its.memory->header.tail), number + 1);
	atomic_store(&its.memory->cells[number % LANE_ENTRIES].done, number + 1);
	assert_int_equal(kiln_wait(scene->client, ticket, FAKE_WAIT_MS), KILN_OK);
	assert_int_equal(its.submits, before);
}

/* ---- Tests ---- */

static void the_second_launch(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	by_message(&scene);
	for (int i = 0; i < 3 * (int)LANE_ENTRIES; i++)
		through_the_lane(&scene);
	scene_close(&scene);
}

/* However many launches cannot be sent, the next one asks for the lane. */
static void launches_that_cannot_be_sent(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	const kiln_operand operands[] = {{scene.x, 0}, {scene.y, 0}};
	const kiln_work works[] = {{scene.call, operands, 2}, {scene.call, operands, 2}};
	uint64_t most = scene.client->max_message;
	kiln_ticket ticket = 0;
	scene.client->max_message = 16;
	for (int i = 0; i < 2 * LANE_QUESTIONS; i++) {
		assert_int_equal(submit(&scene, &ticket), KILN_ELIMIT);
		assert_int_equal(kiln_submit_many(works, 2, NULL, &ticket), KILN_ELIMIT);
	}
	scene.client->max_message = most;
	assert_int_equal(its.submits, 0);
	by_message(&scene);
	assert_int_equal(its.asked, 1);
	through_the_lane(&scene);
	scene_close(&scene);
}

/* Nobody is woken for a launch that ends before the client watches its lane. */
static void an_end_before_the_first_look(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	kiln_ticket ticket = 0;
	by_message(&scene);
	through_the_lane(&scene);
	uint64_t number = atomic_load(&its.memory->header.tail);
	assert_int_equal(submit(&scene, &ticket), KILN_OK);
	atomic_store(&its.memory->cells[number % LANE_ENTRIES].done, number + 1);
	struct pollfd watch = {.fd = kiln_fd(scene.client), .events = POLLIN};
	assert_int_equal(poll(&watch, 1, FAKE_WAIT_MS), 1);
	assert_int_equal(kiln_dispatch(scene.client), 1);
	assert_int_equal(poll(&watch, 1, 0), 0);
	assert_int_equal(kiln_wait(scene.client, ticket, 0), KILN_OK);
	scene_close(&scene);
}

/* A launch that was given up may still be run: until the daemon has said that it is not, others
 * follow it by message. */
static void a_launch_that_is_given_up(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	const kiln_tensor tensors[] = {kiln_tensor_make(scene.x, 0, KILN_F32, 0, NULL),
								   kiln_tensor_make(scene.y, 0, KILN_F32, 0, NULL)};
	kiln_ticket held = 0, ticket = 0;
	by_message(&scene);
	assert_int_equal(kiln_run(scene.client, "copy", tensors, 2, NULL, 0), KILN_OK);
	/* More of them than there are questions. */
	its.hold = true;
	scene.client->timeout_ms = 5;
	for (int i = 0; i < LANE_QUESTIONS + 4; i++)
		assert_int_equal(kiln_run(scene.client, "copy", tensors, 2, NULL, 0), KILN_ETIMEDOUT);
	scene.client->timeout_ms = FAKE_WAIT_MS;
	held = scene.client->next_id - 1;
	assert_int_equal(kiln_wait(scene.client, held, 0), KILN_ENOENT);
	assert_int_equal(kiln_cancel(scene.client, held), KILN_ENOENT);
	hold_no_more(&scene);
	by_message(&scene);
	assert_int_equal(kiln_dispatch(scene.client), 0);
	settle(&scene);
	assert_int_equal(scene.fake->count_cancel, LANE_QUESTIONS + 4);
	assert_int_equal(kiln_dispatch(scene.client), 0);
	through_the_lane(&scene);
	/* The call that was given up asks once more. */
	int asked = its.asked;
	assert_int_equal(kiln_run(scene.client, "copy", tensors, 2, NULL, 0), KILN_OK);
	assert_int_equal(its.asked, asked + 1);
	assert_int_equal(submit(&scene, &ticket), KILN_OK);
	assert_int_equal(atomic_load(&its.memory->header.tail), 2);
	scene_close(&scene);
}

/* The same of a call that is prepared and run by one message. */
static void a_first_run_that_is_given_up(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	const kiln_tensor tensors[] = {kiln_tensor_make(scene.x, 0, KILN_F32, 0, NULL),
								   kiln_tensor_make(scene.y, 0, KILN_F32, 0, NULL)};
	by_message(&scene);
	its.hold = true;
	scene.client->timeout_ms = 5;
	assert_int_equal(kiln_run(scene.client, "copy", tensors, 2, NULL, 0), KILN_ETIMEDOUT);
	scene.client->timeout_ms = FAKE_WAIT_MS;
	hold_no_more(&scene);
	by_message(&scene);
	settle(&scene);
	through_the_lane(&scene);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_second_launch),
		cmocka_unit_test(launches_that_cannot_be_sent),
		cmocka_unit_test(an_end_before_the_first_look),
		cmocka_unit_test(a_launch_that_is_given_up),
		cmocka_unit_test(a_first_run_that_is_given_up),
	};
	unsetenv("KILN_DEVICE");
	unsetenv("KILN_DEBUG");
	unsetenv("KILN_LANE");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
