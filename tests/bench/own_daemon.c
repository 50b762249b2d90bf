/* own_daemon.c: starting and stopping it; it dies with the benchmark. */
#include "own_daemon.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 60000
#define MOST_ARGUMENTS 32

bool own_daemon_make(struct own_daemon *daemon, const char *name)
{
	*daemon = (struct own_daemon){.pid = 0};
	snprintf(daemon->directory, sizeof(daemon->directory), "/tmp/kiln-%.20s.XXXXXX", name);
	if (!mkdtemp(daemon->directory)) {
		perror(daemon->directory);
		return false;
	}
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/socket", daemon->directory);
	return true;
}

static void find_program(char path[400])
{
	const char *named = getenv("KILN_DAEMON");
	ssize_t size = readlink("/proc/self/exe", path, 300);
	path[size > 0 ? size : 0] = 0;
	char *slash = strrchr(path, '/');
	snprintf(slash ? slash + 1 : path, 80, "kilnd");
	if (named)
		snprintf(path, 400, "%s", named);
}

static _Noreturn void become(const struct own_daemon *daemon, const char *cache,
							 const char *const *arguments)
{
	char path[400], directory[160], log[160];
	const char *argv[MOST_ARGUMENTS] = {path, "--socket", daemon->socket, "--cache-dir", directory};
	int count = 5;
	find_program(path);
	snprintf(directory, sizeof(directory), "%s/%s", daemon->directory, cache);
	snprintf(log, sizeof(log), "%s/log", daemon->directory);
	while (*arguments && count < MOST_ARGUMENTS - 1)
		argv[count++] = *arguments++;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(fd, 1);
	dup2(fd, 2);
	execv(path, (char *const *)(uintptr_t)argv);
	perror(path);
	_exit(127);
}

/* The path is there a little before anybody listens. */
static bool answers(const struct own_daemon *daemon)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", daemon->socket);
	bool good = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	close(fd);
	return good;
}

bool own_daemon_start(struct own_daemon *daemon, const char *cache, const char *const *arguments)
{
	double until = runner_now_us() + START_MS * 1e3;
	daemon->pid = fork();
	if (daemon->pid == 0)
		become(daemon, cache, arguments);
	while (!answers(daemon)) {
		if (runner_now_us() > until || waitpid(daemon->pid, NULL, WNOHANG) != 0) {
			runner_fail("kilnd", "it does not start; see %s/log", daemon->directory);
			return false;
		}
		usleep(1000);
	}
	return true;
}

void own_daemon_stop(struct own_daemon *daemon)
{
	kill(daemon->pid, SIGTERM);
	waitpid(daemon->pid, NULL, 0);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
	(void)about, (void)kind, (void)place;
	return remove(path);
}

void own_daemon_remove(const struct own_daemon *daemon, int status)
{
	if (status == 0)
		nftw(daemon->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int64_t own_daemon_figure(kiln_client *client, const char *path)
{
	kiln_reply *reply = NULL;
	int64_t value = -1;
	if (kiln_request(client, "info", NULL, 0, &reply) == KILN_OK)
		value = kiln_reply_int(reply, path);
	kiln_reply_free(reply);
	return value;
}
