/*
 * test_client_run.c: kiln_run again and again: which calls it keeps, which it gives back and when,
 * and that what is wrong is refused in the same words as the first time.  Against a fake daemon
 * that has the calls it was asked for and no others.
 */
#include "client/lib/client.h"
#include "client/lib/signature.h"
#include "fake_daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>

#include <cmocka.h>

#define SAYS(part) assert_non_null(strstr(kiln_errmsg(), part))
#define SHORT_MS 50 /* a deadline of calls that are never answered */

/* The objects of the fake, which writes them before it answers; a test reads them afterwards. */
static struct {
	bool live[4096]; /* by number */
	int count, limit, prepares;
	uint64_t submitted;        /* the call of the last submit */
	int fail_prepares;         /* so many more are refused */
	_Atomic bool hold_submits; /* they are never answered */
	bool runs;                 /* what is prepared to be run is */
	uint64_t held;             /* so was it, and its answer has not been sent */
	_Atomic bool hold_prepares;
} has;

static void answer_ran(struct fake *fake, uint64_t id)
{
	struct wire_out out;
	fake_begin(&out, id, KILN_OK);
	wire_put_uint(&out, "call", ++fake->last_number);
	wire_put_bool(&out, "ran", true);
	fake_send(fake, &out, -1);
}

static bool prepare(struct fake *fake, uint64_t id, bool runs)
{
	has.prepares++;
	if (has.fail_prepares > 0) {
		has.fail_prepares--;
		fake_reply(fake, id, KILN_ECOMPILE, "line 1: no", "line 1: no\n");
		return true;
	}
	if (has.count >= has.limit) {
		fake_reply(fake, id, KILN_ELIMIT, "there are too many calls (--max-calls)", NULL);
		return true;
	}
	has.live[fake->last_number + 1] = true;
	has.count++;
	if (has.hold_prepares)
		has.held = id;
	else if (has.runs && runs)
		answer_ran(fake, id);
	else
		fake_prepare(fake, id);
	return true;
}

static bool keep_calls(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	const char *type = wire_type(in);
	uint64_t id = wire_id(in), call = wire_get_uint(&in->root, "call", 0);
	(void)frame;
	if (strcmp(type, "prepare") == 0 || strcmp(type, "raw.prepare") == 0)
		return prepare(fake, id, wire_get_bool(&in->root, "run", false));
	if (strcmp(type, "cancel") == 0 && has.held != 0) {
		assert_int_equal(wire_get_uint(&in->root, "ticket", 0), has.held);
		answer_ran(fake, has.held);
		has.held = 0;
		return false;
	}
	if (strcmp(type, "release") != 0 && strcmp(type, "submit") != 0)
		return false;
	if (call >= 4096 || !has.live[call]) {
		fake_reply(fake, id, KILN_ENOENT, "there is no such call", NULL);
		return true;
	}
	if (type[0] == 'r') {
		has.live[call] = false;
		has.count--;
		return false;
	}
	has.submitted = call;
	return has.hold_submits;
}

struct scene {
	struct fake *fake;
	kiln_client *client;
	kiln_buffer *x, *y;
};

static struct scene scene_open(void)
{
	struct scene scene = {.fake = fake_start(keep_calls)};
	memset(&has, 0, sizeof(has));
	has.limit = INT32_MAX;
	assert_int_equal(fake_connect(scene.fake, FAKE_WAIT_MS, &scene.client), KILN_OK);
	assert_int_equal(kiln_alloc(scene.client, 4096, 0, "x", &scene.x), KILN_OK);
	assert_int_equal(kiln_alloc(scene.client, 4096, 0, "y", &scene.y), KILN_OK);
	return scene;
}

static void scene_close(struct scene *scene)
{
	kiln_free(scene->x);
	kiln_free(scene->y);
	kiln_close(scene->client);
	fake_stop(scene->fake);
}

static kiln_tensor row(kiln_buffer *buffer, uint64_t offset, int64_t n)
{
	return (kiln_tensor){.buffer = buffer,
						 .offset = offset,
						 .dtype = KILN_F32,
						 .rank = 1,
						 .contiguous = 1,
						 .shape = {n}};
}

static int run(struct scene *scene, int64_t n)
{
	kiln_tensor tensors[] = {row(scene->x, 0, n), row(scene->y, 0, n)};
	return kiln_run(scene->client, "copy", tensors, 2, NULL, 0);
}

/* Waits until the fake has dealt with all that was sent before. */
static void settle(struct scene *scene)
{
	kiln_reply *reply = NULL;
	assert_int_equal(kiln_request(scene->client, "info", NULL, 0, &reply), KILN_OK);
	kiln_reply_free(reply);
}

/* ---- */

static void the_same_call_again(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	assert_int_equal(run(&scene, 8), KILN_OK);
	uint64_t first = has.submitted;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(run(&scene, 8), KILN_OK);
		assert_int_equal(has.submitted, first);
	}
	assert_int_equal(has.prepares, 1);
	assert_int_equal(run(&scene, 9), KILN_OK);
	assert_int_not_equal(has.submitted, first);
	/* Other buffers, and places as good. */
	kiln_tensor tensors[] = {row(scene.y, 16, 8), row(scene.x, 256, 8)};
	assert_int_equal(kiln_run(scene.client, "copy", tensors, 2, NULL, 0), KILN_OK);
	assert_int_equal(has.submitted, first);
	assert_int_equal(has.prepares, 2);
	/* This alignment is less, so the planner is asked. */
	tensors[0].offset = 20;
	assert_int_equal(kiln_run(scene.client, "copy", tensors, 2, NULL, 0), KILN_OK);
	assert_int_equal(has.prepares, 3);
	settle(&scene);
	assert_int_equal(has.count, 3);
	assert_int_equal(scene.fake->count_release, 0);
	scene_close(&scene);
}

static void the_oldest_is_released(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	uint64_t calls[SIGNATURE_CALLS];
	for (int i = 0; i < SIGNATURE_CALLS; i++) {
		assert_int_equal(run(&scene, i), KILN_OK);
		calls[i] = has.submitted;
	}
	settle(&scene);
	assert_int_equal(has.count, SIGNATURE_CALLS);
	assert_int_equal(run(&scene, 0), KILN_OK);
	assert_int_equal(has.prepares, SIGNATURE_CALLS);
	for (int i = 1; i < 20; i++) {
		assert_true(has.live[calls[i]]);
		assert_int_equal(run(&scene, 1000 + i), KILN_OK);
		settle(&scene);
		assert_false(has.live[calls[i]]);
		assert_int_equal(has.count, SIGNATURE_CALLS);
	}
	assert_true(has.live[calls[0]]);
	assert_int_equal(run(&scene, 1), KILN_OK); /* prepared once more */
	assert_int_equal(has.prepares, SIGNATURE_CALLS + 20);
	scene_close(&scene);
}

/* Calls that are only kept for later make room for new ones. */
static void the_daemon_takes_no_more(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	kiln_tensor tensors[] = {row(scene.x, 0, 4), row(scene.y, 0, 4)};
	kiln_call *calls[4] = {NULL};
	has.limit = 3;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(run(&scene, i), KILN_OK);
		assert_true(has.count <= 3);
	}
	assert_int_equal(has.count, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kiln_prepare(scene.client, "copy", tensors, 2, NULL, 0, &calls[i]),
						 KILN_OK);
	}
	/* Now there is nothing left to give back. */
	int prepares = has.prepares;
	assert_int_equal(kiln_prepare(scene.client, "copy", tensors, 2, NULL, 0, &calls[3]),
					 KILN_ELIMIT);
	SAYS("(--max-calls)");
	assert_int_equal(run(&scene, 19), KILN_ELIMIT);
	SAYS("(--max-calls)");
	assert_int_equal(has.prepares, prepares + 2);
	kiln_call_free(calls[0]);
	assert_int_equal(run(&scene, 19), KILN_OK);
	kiln_raw raw = {.size = sizeof(raw), .source = "k", .entry = "k"};
	assert_int_equal(kiln_prepare_raw(scene.client, &raw, &calls[0]), KILN_OK);
	assert_int_equal(has.prepares, prepares + 5); /* one of them refused at first */
	kiln_call_free(calls[0]);
	kiln_call_free(calls[1]);
	kiln_call_free(calls[2]);
	scene_close(&scene);
}

static void failures_are_not_remembered(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	has.fail_prepares = 2;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(run(&scene, 8), KILN_ECOMPILE);
		assert_string_equal(kiln_errmsg(), "line 1: no");
		assert_string_equal(kiln_errlog(), "line 1: no\n");
	}
	assert_int_equal(run(&scene, 8), KILN_OK);
	assert_int_equal(run(&scene, 8), KILN_OK);
	assert_int_equal(has.prepares, 3);
	scene_close(&scene);
}

/* In the same words, whether or not there is a call that would nearly do. */
static void wrong_arguments(void **state)
{
	(void)state;
	struct scene scene = scene_open(), other = scene_open();
	for (int known = 0; known < 2; known++) {
		kiln_tensor good[] = {row(scene.x, 0, 8), row(scene.y, 0, 8)}, bad[2];
		kiln_attr attr = {.kind = KILN_ATTR_INT};
#define REFUSED(change, part)                                                           \
	do {                                                                                \
		memcpy(bad, good, sizeof(bad));                                                 \
		change;                                                                         \
		assert_int_equal(kiln_run(scene.client, "copy", bad, 2, NULL, 0), KILN_EINVAL); \
		SAYS(part);                                                                     \
	} while (0)
		REFUSED(bad[1].rank = 9, "tensor 1 has rank 9; it must be 0 to 8");
		REFUSED(bad[1].buffer = other.x, "tensor 1 lies in a buffer of another client");
		REFUSED(bad[1].dtype = KILN_DTYPE_NONE, "tensor 1 is left out");
		REFUSED(bad[1].buffer = NULL, "operand 1 has no buffer");
		assert_int_equal(kiln_run(scene.client, "copy", good, 2, &attr, 1), KILN_EINVAL);
		SAYS("attribute 0 has no name");
		assert_int_equal(kiln_run(scene.client, "copy", NULL, 2, NULL, 0), KILN_EINVAL);
		SAYS("copy was given 2 tensors, but tensors is NULL");
		assert_int_equal(kiln_run(scene.client, NULL, good, 2, NULL, 0), KILN_EINVAL);
		SAYS("the operator has no name");
		assert_int_equal(kiln_run(NULL, "copy", good, 2, NULL, 0), KILN_EINVAL);
		SAYS("client is NULL");
		assert_int_equal(run(&scene, 8), KILN_OK);
	}
	scene_close(&other);
	scene_close(&scene);
}

/* A call that did not end in time is canceled, and kept all the same. */
static void timeouts(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	assert_int_equal(run(&scene, 8), KILN_OK);
	uint64_t first = has.submitted;
	has.hold_submits = true;
	scene.client->timeout_ms = SHORT_MS;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(run(&scene, 8), KILN_ETIMEDOUT);
		SAYS("did not finish the call before the deadline");
	}
	scene.client->timeout_ms = FAKE_WAIT_MS;
	settle(&scene);
	has.hold_submits = false;
	assert_int_equal(run(&scene, 8), KILN_OK);
	assert_int_equal(scene.fake->count_cancel, 2);
	assert_int_equal(has.submitted, first);
	assert_int_equal(has.prepares, 1);
	scene_close(&scene);
}

/* A daemon that has run it is asked nothing more: one message, and then one for each time again. */
static void the_first_call_is_one_message(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	has.runs = true;
	for (int n = 1; n <= 10; n++) {
		assert_int_equal(run(&scene, n), KILN_OK);
		assert_int_equal(has.prepares, n);
		assert_int_equal(has.submitted, 0);
	}
	assert_int_equal(run(&scene, 1), KILN_OK);
	assert_int_equal(has.prepares, 10);
	assert_int_equal(has.submitted, scene.fake->last_number - 9);
	/* A message that prepares does not run the call. */
	kiln_tensor tensors[] = {row(scene.x, 0, 99), row(scene.y, 0, 99)};
	kiln_call *call = NULL;
	assert_int_equal(kiln_prepare(scene.client, "copy", tensors, 2, NULL, 0, &call), KILN_OK);
	assert_string_equal(kiln_call_origin(call), "compiled");
	kiln_call_free(call);
	scene_close(&scene);
}

/* It is canceled, and what comes of it all the same is given back. */
static void a_first_call_that_is_late(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	has.hold_prepares = true;
	scene.client->timeout_ms = SHORT_MS;
	assert_int_equal(run(&scene, 8), KILN_ETIMEDOUT);
	SAYS("did not answer \"prepare\" before the deadline");
	scene.client->timeout_ms = FAKE_WAIT_MS;
	has.hold_prepares = false;
	settle(&scene);
	settle(&scene);
	assert_int_equal(scene.fake->count_cancel, 1);
	assert_int_equal(scene.fake->count_release, 1);
	assert_int_equal(run(&scene, 8), KILN_OK);
	assert_int_equal(has.prepares, 2);
	scene_close(&scene);
}

/* Neither the end of the daemon nor that of a child of fork() touches what was kept. */
static void ends(void **state)
{
	(void)state;
	struct scene scene = scene_open();
	int status = -1;
	assert_int_equal(run(&scene, 8), KILN_OK);
	pid_t pid = fork();
	if (pid == 0) {
		bool told = run(&scene, 8) == KILN_EFORK;
		kiln_close(scene.client);
		_exit(told ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(run(&scene, 8), KILN_OK);
	assert_int_equal(has.prepares, 1);
	assert_int_equal(scene.fake->count_release, 0);
	shutdown(scene.fake->sock, SHUT_RDWR);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(run(&scene, 8), KILN_ECONN);
		SAYS("close this client and connect again");
	}
	assert_int_equal(run(&scene, 9), KILN_ECONN);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_call_again),
		cmocka_unit_test(the_oldest_is_released),
		cmocka_unit_test(the_daemon_takes_no_more),
		cmocka_unit_test(wrong_arguments),
		cmocka_unit_test(failures_are_not_remembered),
		cmocka_unit_test(timeouts),
		cmocka_unit_test(the_first_call_is_one_message),
		cmocka_unit_test(a_first_call_that_is_late),
		cmocka_unit_test(ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
