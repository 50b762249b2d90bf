/*
 * executor_scene: what the tests of the executor process share: a process on the cpu device, and
 * short words for asking things of it as the broker does.
 */
#ifndef KILN_TESTS_EXECUTOR_SCENE_H
#define KILN_TESTS_EXECUTOR_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/wire/frame.h"
#include "client/wire/wire.h"
#include "tests/unit/exec/cpu/cpu_kernels.h"
#include "daemon/exec/exec.h"
#include "exec_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The process ---- */

static inline void begin_launchers(struct peer *peer, const char *device, int launchers)
{
	int pair[2];
	assert_int_equal(frame_pair(pair), KILN_OK);
	peer->next_id = 1;
	peer->scratch = 0;
	peer->sock = pair[0];
	peer->pid = fork();
	assert_true(peer->pid >= 0);
	if (peer->pid == 0) {
		struct exec_options options = {.sock = pair[1], .device = device, .launchers = launchers};
		close(pair[0]);
		_exit(exec_main(&options));
	}
	close(pair[1]);
	const msgpack_object *root = receive(peer);
	assert_string_equal(wire_type(&answer), "ready");
	assert_int_equal(wire_id(&answer), 0);
	assert_non_null(wire_get(root, "st"));
}

/* The first stream is the main thread's, the second one another's. */
static inline void begin_peer(struct peer *peer, const char *device)
{
	begin_launchers(peer, device, 3);
}

/* Waits for the process; its exit status. */
static inline int end_peer(struct peer *peer)
{
	int status;
	close(peer->sock);
	assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* ---- Requests ---- */

static inline int ask_load(struct peer *peer, uint64_t module, const char *instantiation)
{
	struct compile_result result;
	struct wire_out message;
	cpu_kernel_compile(cpu_kernel_text(instantiation), instantiation, &result);
	assert_int_equal(result.status, KILN_OK);
	begin(peer, &message, "load");
	wire_put_uint(&message, "mod", module);
	wire_put_str(&message, "entry", result.entry);
	wire_put_uint(&message, "shared", 0);
	wire_put_bin(&message, "object", result.object, result.object_bytes);
	compile_result_free(&result);
	return ask(peer, &message);
}

static inline uint64_t post_copy(struct peer *peer, uint64_t buffer, uint64_t offset,
								 uint64_t bytes, bool to_device, int fd)
{
	struct wire_out message;
	begin(peer, &message, "copy");
	wire_put_uint(&message, "buf", buffer);
	wire_put_uint(&message, "offset", offset);
	wire_put_uint(&message, "bytes", bytes);
	wire_put_bool(&message, "to", to_device);
	wire_put_uint(&message, "stream", 1);
	return post(peer, &message, &fd, 1);
}

/* A launch has "mod", "copy", or neither. */
enum { LAUNCH_MOD = 1, LAUNCH_COPY = 2, LAUNCH_NEITHER = 4 };

/* A launch as the broker sends it, to be spoilt field by field. */
struct launch {
	unsigned says; /* 0: "mod" where there is a module, else "copy" */
	uint64_t module, stream, delay, copy, shared;
	int64_t grid[3], block[3];
	struct {
		uint64_t buffer, offset, extent, alignment;
	} operands[3];
	int operand_count;
	bool takes_scratch; /* the first argument */
	uint64_t scratch[2];
	bool takes_report; /* the next argument */
	uint64_t report[2];
	int pointers; /* the next arguments are operands 0 .. pointers - 1 */
	uint64_t scalars[2], scalar_bytes;
	int scalar_count;
	const struct kernel_arg *planned; /* arguments as they lie in memory, in the place of those */
	size_t planned_bytes;
};

static inline void put_arguments(struct wire_out *message, const struct launch *launch)
{
	wire_list_begin(message, "args");
	if (launch->takes_scratch)
		wire_put_ints(message, NULL, (int64_t[]){2}, 1);
	if (launch->takes_report)
		wire_put_ints(message, NULL, (int64_t[]){3}, 1);
	for (int i = 0; i < launch->pointers; i++)
		wire_put_ints(message, NULL, (int64_t[]){0, i}, 2);
	for (int i = 0; i < launch->scalar_count; i++)
		wire_put_ints(message, NULL,
					  (int64_t[]){1, (int64_t)launch->scalar_bytes, (int64_t)launch->scalars[i]},
					  3);
	wire_list_end(message);
}

/* Members of a message, or of a graph's part. */
static inline void put_launch(struct wire_out *message, const struct launch *launch)
{
	unsigned says = launch->says ? launch->says : launch->module ? LAUNCH_MOD : LAUNCH_COPY;
	if (says & LAUNCH_MOD)
		wire_put_uint(message, "mod", launch->module);
	if (says & LAUNCH_COPY)
		wire_put_uint(message, "copy", launch->copy);
	wire_put_uint(message, "stream", launch->stream);
	wire_put_ints(message, "grid", launch->grid, 3);
	wire_put_ints(message, "block", launch->block, 3);
	wire_put_uint(message, "shared", launch->shared);
	wire_put_uint(message, "delay", launch->delay);
	if (launch->scratch[0])
		wire_put_ints(message, "scratch",
					  (int64_t[]){(int64_t)launch->scratch[0], (int64_t)launch->scratch[1]}, 2);
	if (launch->report[0])
		wire_put_ints(message, "report",
					  (int64_t[]){(int64_t)launch->report[0], (int64_t)launch->report[1]}, 2);
	if (launch->planned)
		wire_put_bin(message, "args", launch->planned, launch->planned_bytes);
	else
		put_arguments(message, launch);
	wire_list_begin(message, "ops");
	for (int i = 0; i < launch->operand_count; i++)
		wire_put_ints(message, NULL,
					  (int64_t[]){(int64_t)launch->operands[i].buffer,
								  (int64_t)launch->operands[i].offset,
								  (int64_t)launch->operands[i].extent,
								  (int64_t)launch->operands[i].alignment, i == 1},
					  5);
	wire_list_end(message);
}

static inline uint64_t post_launch(struct peer *peer, const struct launch *launch)
{
	struct wire_out message;
	begin(peer, &message, "launch");
	put_launch(&message, launch);
	return post(peer, &message, NULL, 0);
}

static inline int ask_launch(struct peer *peer, const struct launch *launch)
{
	return status_of(peer, post_launch(peer, launch));
}

/* y = x * 3 for 1000 ints in buffers 1 and 2 by module 1. */
static const struct launch scale_launch = {
	.module = 1,
	.stream = 1,
	.grid = {4, 1, 1},
	.block = {256, 1, 1},
	.operands = {{1, 0, 4000, 4}, {2, 0, 4000, 4}},
	.operand_count = 2,
	.pointers = 2,
	.scalars = {1000, 3},
	.scalar_bytes = 4,
	.scalar_count = 2,
};

static inline void begin_scale(struct peer *peer)
{
	begin_peer(peer, "cpu");
	assert_int_equal(ask_alloc(peer, 1, 4000), KILN_OK);
	assert_int_equal(ask_alloc(peer, 2, 4000), KILN_OK);
	assert_int_equal(ask_load(peer, 1, "scale<int>"), KILN_OK);
}

static inline int *map_staging(int *fd, uint64_t bytes)
{
	*fd = frame_memfd("test", bytes);
	assert_true(*fd >= 0);
	int *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	assert_true(address != MAP_FAILED);
	return address;
}

static inline int teardown(void **state)
{
	(void)state;
	forget_answer();
	return 0;
}

#endif
