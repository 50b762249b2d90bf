/*
 * cpu_place: finds the source line of an instruction of a checked kernel.  It asks addr2line, which
 * comes with compilers.  Knows nothing of threads and operands.
 */
#include "cpu_module.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "addr2line"

extern char **environ;

static pid_t start_addr2line(char *const *argv, int out)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	pid_t pid = -1;
	sigemptyset(&none);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return -1;
	if (posix_spawnattr_init(&attributes) != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return -1;
	}
	/* The workers of the device block all signals. */
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (posix_spawnp(&pid, PROGRAM, &actions, &attributes, argv, environ) != 0)
		pid = -1;
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

/* Reads until the end, for size - 1 bytes, or until the deadline. */
static void read_answer(int fd, char *text, size_t size)
{
	uint64_t until = util_now_us() + DEADLINE_PLACE_FIND_US;
	size_t used = 0;
	while (used + 1 < size) {
		uint64_t now = util_now_us();
		struct pollfd watch = {.fd = fd, .events = POLLIN};
		if (now >= until || poll(&watch, 1, (int)((until - now) / 1000) + 1) <= 0)
			break;
		ssize_t n = read(fd, text + used, size - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	text[used] = 0;
}

/* The answer has a line for the innermost inlined call, then one for each function around it. */
static bool ask_addr2line(const struct device_module *module, uintptr_t offset, char *text,
						  size_t size)
{
	char file[48], address[32];
	char *argv[] = {(char *)PROGRAM, (char *)"-i", (char *)"-e", file, address, NULL};
	int pipes[2];
	snprintf(file, sizeof(file), "/proc/%d/fd/%d", (int)getpid(), module->fd);
	snprintf(address, sizeof(address), "0x%" PRIxPTR, offset);
	if (pipe2(pipes, O_CLOEXEC) != 0)
		return false;
	pid_t pid = start_addr2line(argv, pipes[1]);
	close(pipes[1]);
	if (pid >= 0) {
		read_answer(pipes[0], text, size);
		kill(pid, SIGKILL); /* one that has ended, or one that takes too long */
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
		}
	}
	close(pipes[0]);
	return pid >= 0;
}

/* Makes "scale.cu:12" of the next line, "./scale.cu:12 (discriminator 3)".  False: no author wrote
 * that line; it is of the cpu device, or was put behind a source. */
static bool take_line(char **at, char place[CPU_PLACE_MAX])
{
	char *line = strsep(at, "\n"), *more = strstr(line, " (discriminator");
	if (more)
		*more = 0;
	if (strncmp(line, "./", 2) == 0)
		line += 2;
	size_t bytes = strlen(line);
	if (line[0] == '?' || bytes == 0 || strncmp(line, "cpu/", 4) == 0 ||
		strncmp(line, "entry:", 6) == 0 || strncmp(line, "instantiation:", 14) == 0)
		return false;
	/* Long names differ at their ends. */
	if (bytes < CPU_PLACE_MAX)
		snprintf(place, CPU_PLACE_MAX, "%s", line);
	else
		snprintf(place, CPU_PLACE_MAX, "...%s", line + bytes - (CPU_PLACE_MAX - 4));
	return true;
}

bool cpu_place_find(const struct device_module *module, const void *after, char *place, size_t size)
{
	uintptr_t address = (uintptr_t)after;
	char text[4096], first[CPU_PLACE_MAX], other[CPU_PLACE_MAX], *at = text;
	size_t used = 0;
	/* The byte before `after` belongs to the instruction; `after` may belong to the next line. */
	if (address <= module->image_begin || address > module->image_end ||
		!ask_addr2line(module, address - module->image_base - 1, text, sizeof(text)))
		return false;
	while (at && used == 0)
		if (take_line(&at, first))
			used = util_append(place, size, 0, "%s", first);
	while (at && used > 0)
		if (take_line(&at, other) && strcmp(first, other) != 0) {
			util_append(place, size, used, " (called at %s)", other);
			break;
		}
	return used > 0;
}
