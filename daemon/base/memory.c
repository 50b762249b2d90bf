/*
 * memory.c: small allocations that do not fail, and the clock.
 */
#include "deadlines.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

void *util_alloc(size_t bytes)
{
	void *memory = calloc(1, bytes ? bytes : 1);
	if (!memory) {
		util_log(UTIL_ERROR, "out of memory: %zu bytes were refused", bytes);
		util_log_end(DEADLINE_LOG_END_MS);
		abort();
	}
	return memory;
}

char *util_strdup(const char *text)
{
	size_t size = strlen(text) + 1;
	return memcpy(util_alloc(size), text, size);
}

/* Hides the process and not each secret: libraries copy secrets to stacks and buffers of their own.
 */
void util_keep_secrets(void)
{
	prctl(PR_SET_DUMPABLE, 0);
}

#ifdef KILN_TEST_HOOKS
static _Atomic int64_t wall_jump; /* set on one thread and read on others */

void util_wall_jump(int64_t seconds)
{
	wall_jump = seconds;
}
#else
enum { wall_jump = 0 };
#endif

int64_t util_wall_s(void)
{
	return (int64_t)time(NULL) + wall_jump;
}

/* Reads the clock of time(), which is a little behind: the part must be of the same second. */
uint32_t util_wall_part(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return (uint32_t)(((uint64_t)now.tv_nsec << 16) / 1000000000);
}

uint64_t util_now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
