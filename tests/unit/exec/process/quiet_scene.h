/*
 * quiet_scene: an executor over the fake driver, whose kernels end when a test says so.  It is a
 * thread here, so that the test has the driver that it uses.
 */
#ifndef KILN_TESTS_QUIET_SCENE_H
#define KILN_TESTS_QUIET_SCENE_H

#include "tests/unit/exec/cuda/cuda_scene.h"
#include "daemon/exec/exec.h"
#include "exec_peer.h"

#if defined(KILN_HAVE_CUDA_H) && defined(KILN_FAKE_CUDA_LIBRARY)

#include <poll.h>
#include <pthread.h>

#define LONG_MS 60000 /* a patience that no test waits for */

struct scene {
	struct peer peer;
	pthread_t thread;
	int exit_status;
	struct exec_options options;
	/* The members of the events. */
	int begun, given_up;
	uint64_t idle, held, longest_us;
};

static inline void *serve(void *arg)
{
	struct scene *scene = arg;
	scene->exit_status = exec_main(&scene->options);
	return NULL;
}

/* ---- Requests ---- */

static inline uint64_t post_load(struct scene *scene, uint64_t module, const char *entry)
{
	struct wire_out message;
	begin(&scene->peer, &message, "load");
	wire_put_uint(&message, "mod", module);
	wire_put_str(&message, "entry", entry);
	wire_put_uint(&message, "shared", 0);
	wire_put_bin(&message, "object", image, sizeof(image));
	return post(&scene->peer, &message, NULL, 0);
}

static inline uint64_t post_number(struct scene *scene, const char *type, const char *key,
								   uint64_t value)
{
	struct wire_out message;
	begin(&scene->peer, &message, type);
	wire_put_uint(&message, key, value);
	return post(&scene->peer, &message, NULL, 0);
}

/* Adds what a launch and a bound call both have. */
static inline void put_fill(struct wire_out *message, uint64_t module, uint64_t buffer,
							uint64_t stream)
{
	wire_put_uint(message, "mod", module);
	wire_put_uint(message, "stream", stream);
	wire_put_ints(message, "grid", (int64_t[]){1, 1, 1}, 3);
	wire_put_ints(message, "block", (int64_t[]){32, 1, 1}, 3);
	wire_put_uint(message, "shared", 0);
	wire_list_begin(message, "args");
	wire_put_ints(message, NULL, (int64_t[]){0, 0}, 2);
	wire_put_ints(message, NULL, (int64_t[]){1, 8, 7}, 3);
	wire_put_ints(message, NULL, (int64_t[]){1, 4, 4}, 3);
	wire_list_end(message);
	wire_list_begin(message, "ops");
	wire_put_ints(message, NULL, (int64_t[]){(int64_t)buffer, 0, 16, 4, 1}, 5);
	wire_list_end(message);
}

/* Module 1 fills a buffer, which ends so many ms later at the soonest. */
static inline uint64_t post_slow_launch(struct scene *scene, uint64_t buffer, uint64_t stream,
										uint64_t delay)
{
	struct wire_out message;
	begin(&scene->peer, &message, "launch");
	put_fill(&message, 1, buffer, stream);
	wire_put_uint(&message, "delay", delay);
	return post(&scene->peer, &message, NULL, 0);
}

static inline uint64_t post_launch(struct scene *scene, uint64_t buffer, uint64_t stream)
{
	return post_slow_launch(scene, buffer, stream, 0);
}

/* A quarter of what another process lends, from byte offset on. */
static inline uint64_t post_import(struct scene *scene, uint64_t buffer, int fd, uint64_t offset)
{
	struct fake_handle lent = {FAKE_HANDLE_MAGIC, getpid(), fd, 0, 4096};
	uint8_t handle[64] = {0};
	struct wire_out message;
	memcpy(handle, &lent, sizeof(lent));
	begin(&scene->peer, &message, "import");
	wire_put_uint(&message, "buf", buffer);
	wire_put_str(&message, "kind", "ipc");
	wire_put_bin(&message, "handle", handle, sizeof(handle));
	wire_put_uint(&message, "bufid", 77);
	wire_put_int(&message, "pid", getpid());
	wire_put_uint(&message, "span", 4096);
	wire_put_uint(&message, "offset", offset);
	wire_put_uint(&message, "bytes", 1024);
	return post(&scene->peer, &message, NULL, 0);
}

/* ---- Answers ---- */

/* True: it was an event, and is noted. */
static inline bool note_event(struct scene *scene)
{
	const msgpack_object *root = receive(&scene->peer);
	if (strcmp(wire_type(&answer), "event") != 0)
		return false;
	if (strcmp(wire_get_str(&answer, root, "what"), "progress") == 0)
		return true;
	assert_string_equal(wire_get_str(&answer, root, "what"), "quiet");
	uint64_t done = wire_get_uint(root, "done", 0), held_us = wire_get_uint(root, "held", 0);
	scene->begun += wire_get_bool(root, "begun", false);
	scene->given_up += !wire_get_bool(root, "begun", false) && done == 0;
	*(held_us ? &scene->held : &scene->idle) += done;
	scene->longest_us = held_us > scene->longest_us ? held_us : scene->longest_us;
	return true;
}

/* The next answer is to this request, and good. */
static inline void expect(struct scene *scene, uint64_t id)
{
	while (note_event(scene))
		;
	assert_string_equal(wire_type(&answer), "reply");
	assert_int_equal(wire_id(&answer), id);
	assert_string_equal(sentence(), "");
	assert_int_equal(wire_get_int(&answer.root, "st", 1), KILN_OK);
}

static inline int status_after_events(struct scene *scene, uint64_t id)
{
	while (note_event(scene))
		;
	assert_int_equal(wire_id(&answer), id);
	return (int)wire_get_int(&answer.root, "st", 1);
}

/* So many answers, all good, in whichever order. */
static inline void expect_many(struct scene *scene, int count)
{
	while (count > 0) {
		if (note_event(scene))
			continue;
		assert_int_equal(wire_get_int(&answer.root, "st", 1), KILN_OK);
		count--;
	}
}

/* Nothing was answered but this. */
static inline void expect_ping(struct scene *scene)
{
	expect(scene, post_number(scene, "ping", "x", 1));
}

/* It comes after a patience that may be eight times as long as a thread was kept from the CPU. */
static inline void await_hold(struct scene *scene)
{
	struct pollfd watch = {.fd = scene->peer.sock, .events = POLLIN};
	int begun = scene->begun;
	while (scene->begun == begun) {
		assert_int_equal(poll(&watch, 1, LONG_MS - 10000), 1);
		assert_true(note_event(scene));
	}
}

/* Until the driver has been called so often. */
static inline void await_calls(const char *function, int calls)
{
	uint64_t until = util_now_us() + WAIT_MS * 1000ull;
	while (fake->calls(function) < calls) {
		assert_true(util_now_us() < until);
		sched_yield();
	}
}

/* ---- The executor ---- */

/* With buffers 1 and 2, and module 1. */
static inline void open_scene(struct scene *scene, uint32_t patience_ms)
{
	int pair[2];
	*scene = (struct scene){.peer.next_id = 1};
	fake->reset();
	assert_int_equal(frame_pair(pair), KILN_OK);
	scene->peer.sock = pair[0];
	scene->options = (struct exec_options){.sock = pair[1],
										   .device = "cuda:0",
										   .wrapped = true,
										   .quiet_patience_ms = patience_ms,
										   .launchers = 3};
	assert_int_equal(pthread_create(&scene->thread, NULL, serve, scene), 0);
	receive(&scene->peer);
	assert_string_equal(wire_type(&answer), "ready");
	assert_int_equal(wire_get_int(&answer.root, "st", 1), KILN_OK);
	assert_int_equal(ask_alloc(&scene->peer, 1, 4096), KILN_OK);
	assert_int_equal(ask_alloc(&scene->peer, 2, 4096), KILN_OK);
	expect(scene, post_load(scene, 1, FAKE_FILL));
	expect_ping(scene);
}

/* A hold ends after 50 ms, be a machine as slow as it may: what is to be seen within one is tried
 * again when that was too short. */
#define TRIES 50

/* It leaves nothing behind at the driver. */
static inline void close_scene(struct scene *scene)
{
	forget_answer();
	close(scene->peer.sock);
	assert_int_equal(pthread_join(scene->thread, NULL), 0);
	assert_int_equal(scene->exit_status, 0);
	for (int kind = 0; kind < FAKE_LIVE_COUNT; kind++)
		assert_int_equal(fake->live(kind), 0);
}

#endif
#endif
