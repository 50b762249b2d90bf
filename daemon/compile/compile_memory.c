/*
 * compile_memory: the memory that a compile takes.  The file that tells is opened once, before a
 * worker gives up its right to open files.
 */
#include "backend.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int clear_fd = -1, status_fd = -1;

void usage_open(void)
{
	clear_fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	status_fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
}

/* "VmHWM:" and its like; 0: not known. */
static uint64_t bytes_of(const char *name)
{
	char text[4096];
	ssize_t size = status_fd >= 0 ? pread(status_fd, text, sizeof(text) - 1, 0) : 0;
	const char *line;

	text[size > 0 ? size : 0] = 0;
	line = strstr(text, name);
	return line ? strtoull(line + strlen(name), NULL, 10) << 10 : 0;
}

/* The system counts the peak anew from here on; if it cannot, the peak is that of the whole life,
 * which is no less. */
uint64_t usage_begin(void)
{
	if (clear_fd >= 0)
		(void)!pwrite(clear_fd, "5", 1, 0);
	spawn_take_peak();
	return bytes_of("VmRSS:");
}

int64_t usage_end(uint64_t before)
{
	uint64_t peak = bytes_of("VmHWM:");

	return (int64_t)(spawn_take_peak() + (peak > before ? peak - before : 0));
}
