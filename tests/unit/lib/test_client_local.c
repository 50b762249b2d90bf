/*
 * test_client_local.c: when libkiln asks the daemon for a better kernel than the generic one that
 * it launches in the program's own context, and what it makes of the answers.  Against a fake
 * daemon and a fake CUDA driver.
 */
#include "fake_daemon.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

#include "integration/cuda_fake.h"

#include <kiln/ops.h>

#define BYTES 64
#define FIRST "first"
#define BETTER "better"

enum answer_kind {
	NOT_YET,  /* ask again */
	LAST,     /* no better kernel comes */
	EXACT,    /* it is here */
	SAME,     /* the kernel that the program has */
	LARGER,   /* one that touches more bytes */
	GENERIC,  /* one that is generic, too */
	REFUSED,  /* an error */
	BUSY,     /* an error that passes */
	NO_IMAGE, /* no descriptor comes along */
	HANG_UP,
};

/* The daemon's thread writes, and the test reads after a later reply. */
static struct {
	_Atomic enum answer_kind kind; /* of those that are asked again */
	_Atomic uint64_t again, asked, launches;
	atomic_bool old;        /* the daemon knows nothing of generic kernels */
	atomic_bool hold, held; /* the answer of "info" */
} its;

static void put_operand(struct wire_out *out, const char *name, uint64_t bytes, bool written)
{
	wire_map_begin(out, NULL);
	wire_put_str(out, "n", name);
	wire_put_uint(out, "bytes", bytes);
	wire_put_uint(out, "align", 4);
	wire_put_bool(out, "written", written);
	wire_map_end(out);
}

static void give_object(struct fake *daemon, uint64_t id, const char *key, uint64_t bytes,
						uint64_t again, bool image)
{
	const int64_t one[3] = {1, 1, 1};
	struct wire_out out;
	int fd = image ? frame_sealed("object", FAKE_ADD_ONE, sizeof(FAKE_ADD_ONE)) : -1;
	fake_begin(&out, id, KILN_OK);
	wire_put_str(&out, "key", key);
	wire_put_str(&out, "target", "sm_90");
	wire_put_str(&out, "entry", key);
	wire_map_begin(&out, "template");
	wire_put_str(&out, "kind", "launch");
	wire_put_ints(&out, "grid", one, 3);
	wire_put_ints(&out, "block", one, 3);
	wire_put_uint(&out, "shared", 0);
	wire_list_begin(&out, "args");
	wire_list_end(&out);
	wire_list_begin(&out, "operands");
	put_operand(&out, "x", bytes, false);
	put_operand(&out, "y", bytes, true);
	wire_list_end(&out);
	wire_map_end(&out);
	if (again > 0)
		wire_put_uint(&out, "again", again);
	fake_send(daemon, &out, fd);
	if (fd >= 0)
		close(fd);
}

static void answer_again(struct fake *daemon, uint64_t id)
{
	switch (atomic_load(&its.kind)) {
	case NOT_YET:
		fake_reply_number(daemon, id, "again", its.again);
		break;
	case LAST:
		fake_reply_number(daemon, id, "again", 0);
		break;
	case EXACT:
		give_object(daemon, id, BETTER, BYTES, 0, true);
		break;
	case SAME:
		give_object(daemon, id, FIRST, BYTES, 0, true);
		break;
	case LARGER:
		give_object(daemon, id, BETTER, 2 * BYTES, 0, true);
		break;
	case GENERIC:
		give_object(daemon, id, BETTER, BYTES, 8, true);
		break;
	case REFUSED:
		fake_reply(daemon, id, KILN_ECANCELED, "shutting down", NULL);
		break;
	case BUSY:
		fake_reply(daemon, id, KILN_ELIMIT, "1024 requests are under way", NULL);
		break;
	case NO_IMAGE:
		give_object(daemon, id, BETTER, BYTES, 0, false);
		break;
	case HANG_UP:
		fake_hang_up(daemon);
		break;
	}
}

static bool handle(struct fake *daemon, struct wire_in *in, struct frame *frame)
{
	const char *type = wire_type(in);
	uint64_t id = wire_id(in);
	(void)frame;
	if (strcmp(type, "hello") == 0) {
		struct wire_out out;
		fake_begin(&out, id, KILN_OK);
		wire_put_int(&out, "proto", PROTOCOL_VERSION);
		wire_put_int(&out, "session", 5);
		wire_put_str(&out, "device", "cuda:0");
		wire_put_uint(&out, "max_message", 1 << 20);
		fake_send(daemon, &out, -1);
		return true;
	}
	if (strcmp(type, "info") == 0 && its.hold) {
		its.held = true;
		while (its.hold)
			sched_yield();
	}
	if (strcmp(type, "object") != 0)
		return false;
	if (!wire_get_bool(&in->root, "generic", false))
		abort();
	if (its.old || !wire_get(&in->root, "launches")) {
		give_object(daemon, id, FIRST, BYTES, its.old ? 0 : its.again, true);
		return true;
	}
	its.launches += wire_get_uint(&in->root, "launches", 0);
	answer_again(daemon, id);
	its.asked++;
	return true;
}

/* ---- The scene ---- */

/* The fake driver has these; they return 0 for CUDA_SUCCESS. */
static int (*set_current)(void *context), (*synchronize)(void *stream);

struct scene {
	struct fake *daemon;
	kiln_client *client;
	kiln_call *call;
	const void *first; /* the function that the first launch took */
};

static const void *launch(const struct scene *scene)
{
	const kiln_place places[] = {{4096, BYTES}, {8192, BYTES}};
	assert_int_equal(kiln_launch_local(scene->call, places, 2, NULL), KILN_OK);
	return fake->launched().function;
}

/* Waits until all earlier requests are answered. */
static void settle(const struct scene *scene)
{
	kiln_reply *reply = NULL;
	assert_int_equal(kiln_request(scene->client, "info", NULL, 0, &reply), KILN_OK);
	kiln_reply_free(reply);
}

static struct scene open_scene(enum answer_kind kind, uint64_t again)
{
	struct scene scene = {.daemon = fake_start(handle)};
	const int64_t shape = BYTES / 4;
	const kiln_tensor tensor = kiln_tensor_make(NULL, 0, KILN_F32, 1, &shape);
	its.kind = kind;
	its.again = again;
	its.asked = its.launches = 0;
	fake->reset();
	assert_int_equal(set_current(fake->context(0)), 0);
	assert_int_equal(fake_connect(scene.daemon, FAKE_WAIT_MS, &scene.client), KILN_OK);
	assert_int_equal(kiln_prepare(scene.client, "copy", (const kiln_tensor[]){tensor, tensor}, 2,
								  NULL, 0, &scene.call),
					 KILN_OK);
	scene.first = launch(&scene);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	return scene;
}

static void close_scene(struct scene *scene)
{
	assert_int_equal(synchronize(NULL), 0);
	kiln_call_free(scene->call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	kiln_close(scene->client);
	fake_stop(scene->daemon);
}

/* ---- Tests ---- */

/* After 2, 4, 8, ... launches, and then each time the daemon's number; all are counted once. */
static void asks_seldom(void **state)
{
	const int at[] = {2, 6, 14, 24, 34, 44};
	struct scene scene = open_scene(NOT_YET, 10);
	uint64_t asked = 0;
	(void)state;
	for (int launches = 1; launches <= 44; launches++) {
		if (launches > 1)
			assert_ptr_equal(launch(&scene), scene.first);
		settle(&scene);
		asked += launches == at[asked];
		assert_int_equal(its.asked, asked);
		if (launches == at[asked > 0 ? asked - 1 : 0])
			assert_int_equal(its.launches, launches);
	}
	assert_int_equal(asked, 6);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	close_scene(&scene);
}

static void takes_the_exact_kernel(void **state)
{
	struct scene scene = open_scene(EXACT, 10);
	(void)state;
	assert_ptr_equal(launch(&scene), scene.first);
	settle(&scene);
	const void *exact = launch(&scene);
	assert_ptr_not_equal(exact, scene.first);
	for (int i = 0; i < 50; i++)
		assert_ptr_equal(launch(&scene), exact);
	settle(&scene);
	assert_int_equal(its.asked, 1);
	close_scene(&scene);
}

/* Whatever else comes, the first kernel goes on, and nobody is asked again. */
static void keeps_the_first_kernel(void **state)
{
	(void)state;
	for (int kind = LAST; kind < HANG_UP; kind++) {
		if (kind == EXACT || kind == BUSY)
			continue;
		struct scene scene = open_scene((enum answer_kind)kind, 10);
		for (int i = 0; i < 50; i++) {
			assert_ptr_equal(launch(&scene), scene.first);
			settle(&scene);
		}
		assert_int_equal(its.asked, 1);
		assert_int_equal(fake->calls("cuModuleLoadData"), 1);
		close_scene(&scene);
	}
}

static void asks_again_where_it_was_refused_for_now(void **state)
{
	struct scene scene = open_scene(BUSY, 10);
	(void)state;
	assert_ptr_equal(launch(&scene), scene.first);
	settle(&scene);
	its.kind = EXACT;
	for (int i = 0; i < 4; i++)
		assert_ptr_equal(launch(&scene), scene.first);
	settle(&scene);
	assert_int_equal(its.asked, 2);
	assert_ptr_not_equal(launch(&scene), scene.first);
	close_scene(&scene);
}

/* The context of a launch is never that of the launch before. */
static void takes_turns_in_two_contexts(void **state)
{
	struct scene scene = open_scene(EXACT, 10);
	int launches = 1;
	(void)state;
	while (fake->calls("cuModuleLoadData") <= 2 && launches < 2000) {
		assert_int_equal(set_current(fake->context(launches % 2)), 0);
		launch(&scene);
		settle(&scene);
		launches++;
	}
	assert_in_range(launches, 1000, 1100);
	close_scene(&scene);
}

static void *request_info(void *client)
{
	kiln_reply *reply = NULL;
	(void)kiln_request(client, "info", NULL, 0, &reply);
	kiln_reply_free(reply);
	return NULL;
}

/* A client that is closed, and a call that is freed, while another thread is inside. */
static void ends_beside_a_request(void **state)
{
	struct scene scene = open_scene(NOT_YET, 10);
	pthread_t thread;
	(void)state;
	launch(&scene);
	assert_int_equal(synchronize(NULL), 0);
	its.hold = true;
	assert_int_equal(pthread_create(&thread, NULL, request_info, scene.client), 0);
	while (!its.held)
		sched_yield();
	kiln_close(scene.client);
	kiln_call_free(scene.call);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 1);
	its.hold = its.held = false;
	pthread_join(thread, NULL);
	assert_int_equal(fake->live(FAKE_LIVE_MODULES), 0);
	fake_stop(scene.daemon);
}

static void goes_on_alone(void **state)
{
	struct scene scene = open_scene(HANG_UP, 10);
	(void)state;
	for (int i = 0; i < 50; i++)
		assert_ptr_equal(launch(&scene), scene.first);
	assert_int_equal(kiln_request(scene.client, "info", NULL, 0, &(kiln_reply *){NULL}),
					 KILN_ECONN);
	assert_ptr_equal(launch(&scene), scene.first);
	close_scene(&scene);
}

/* A daemon of before gives its kernel without a word on when to ask. */
static void asks_no_daemon_of_before(void **state)
{
	(void)state;
	its.old = true;
	struct scene scene = open_scene(EXACT, 10);
	for (int i = 0; i < 50; i++)
		assert_ptr_equal(launch(&scene), scene.first);
	settle(&scene);
	assert_int_equal(its.asked, 0);
	its.old = false;
	close_scene(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(asks_seldom),
		cmocka_unit_test(takes_the_exact_kernel),
		cmocka_unit_test(keeps_the_first_kernel),
		cmocka_unit_test(asks_again_where_it_was_refused_for_now),
		cmocka_unit_test(takes_turns_in_two_contexts),
		cmocka_unit_test(ends_beside_a_request),
		cmocka_unit_test(goes_on_alone),
		cmocka_unit_test(asks_no_daemon_of_before),
	};
	unsetenv("KILN_DEVICE");
	unsetenv("KILN_DEBUG");
	setenv("KILN_FAKE_CUDA_IMAGES", "1", 1);
	void *library = load_fake(KILN_FAKE_CUDA_LIBRARY);
	*(void **)&set_current = symbol(library, "cuCtxSetCurrent");
	*(void **)&synchronize = symbol(library, "cuStreamSynchronize");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	print_message("test_client_local: built without cuda.h\n");
	return 77;
}

#endif
