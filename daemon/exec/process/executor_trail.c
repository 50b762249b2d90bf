/*
 * executor_trail: notes the last calls for the broker (trail.h).  Every launch pays for this: a few
 * stores to memory that no other process reads meanwhile.
 */
#include "daemon/base/util.h"
#include "executor.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define STORE(word, value) atomic_store_explicit(&(word), value, memory_order_relaxed)
#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)

void exec_trail_open(struct exec *executor, int fd)
{
	void *memory = MAP_FAILED;
	if (fd > 0 && frame_fd_is_safe(fd, sizeof(struct trail)))
		memory = mmap(NULL, sizeof(struct trail), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	/* Launches write the trail without asking whether somebody reads it. */
	if (memory == MAP_FAILED)
		memory = mmap(NULL, sizeof(struct trail), PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	executor->trail = memory == MAP_FAILED ? NULL : memory;
	if (fd > 0)
		close(fd);
}

void exec_trail_close(struct exec *executor)
{
	if (executor->trail)
		munmap(executor->trail, sizeof(*executor->trail));
	executor->trail = NULL;
}

uint64_t exec_trail_begin(struct launcher *launcher, uint64_t name, uint64_t stream, uint64_t line)
{
	struct trail *trail = launcher->executor->trail;
	uint64_t number = atomic_fetch_add(&launcher->executor->trail_begun, 1);
	struct trail_call *call = &trail->calls[number % TRAIL_CALLS];
	STORE(call->number, 0);
	STORE(call->name, name);
	STORE(call->stream, stream);
	STORE(call->line, line);
	STORE(call->began_us, launcher->now_us);
	STORE(call->ended_us, 0);
	atomic_store_explicit(&call->number, number + 1, memory_order_release);
	/* Another launcher may have stored a later one. */
	if (LOAD(trail->begun) < number + 1)
		STORE(trail->begun, number + 1);
	return number;
}

void exec_trail_end(struct launcher *launcher, uint64_t number, int status)
{
	struct trail_call *call = &launcher->executor->trail->calls[number % TRAIL_CALLS];
	if (LOAD(call->number) != number + 1)
		return;
	STORE(call->status, status);
	STORE(call->ended_us, launcher->now_us ? launcher->now_us : 1);
}

void exec_trail_blame(struct exec *executor, uint64_t number)
{
	STORE(executor->trail->culprit, number + 1);
}
