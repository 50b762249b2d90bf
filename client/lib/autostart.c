/*
 * autostart.c: starts a kilnd that outlives this process.  It knows nothing of the protocol.
 *
 * The daemon is a grandchild in a session of its own: a terminal or program that ends does not take
 * it along, and this process need not wait for it.
 */
#include "autostart.h"
#include "clock.h"
#include "deadlines.h"
#include "error.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define PATH_ROOM sizeof(((struct sockaddr_un *)0)->sun_path)
#define LOG_READ 8192 /* the last bytes of the log, in which an error is looked for */

/* The message that the grandchild sends over the pipe before it becomes the daemon. */
struct news {
	pid_t pid;
	int error; /* errno of execve(), in a second message; 0 in the first */
};

static bool is_program(const char *path)
{
	struct stat stat_;
	return stat(path, &stat_) == 0 && S_ISREG(stat_.st_mode) && access(path, X_OK) == 0;
}

/* Finds kilnd beside the library, in the bin directory that belongs to the library, or in PATH. */
static bool find_daemon(char path[PATH_MAX])
{
	static const char *const places[] = {"kilnd", "../bin/kilnd", "../../bin/kilnd",
										 "../sbin/kilnd"};
	Dl_info info;
	if (dladdr((void *)(uintptr_t)&kiln_version, &info) != 0 && info.dli_fname) {
		const char *slash = strrchr(info.dli_fname, '/');
		int n = slash ? (int)(slash - info.dli_fname) : 0;
		for (size_t i = 0; slash != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
			snprintf(path, PATH_MAX, "%.*s/%s", n, info.dli_fname, places[i]);
			if (is_program(path))
				return true;
		}
	}
	const char *list = secure_getenv("PATH");
	while (list && *list != 0) {
		size_t n = strcspn(list, ":");
		if (n > 0 && n < PATH_MAX - 8) {
			snprintf(path, PATH_MAX, "%.*s/kilnd", (int)n, list);
			if (is_program(path))
				return true;
		}
		list += n + (list[n] == ':');
	}
	return false;
}

/* Moves a descriptor above the standard ones, which may be closed in this program. */
static int above_standard(int fd)
{
	if (fd < 0 || fd > 3)
		return fd;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 4);
	int saved = errno;
	close(fd);
	errno = saved;
	return moved;
}

/* Writes the directory of a socket. */
static void directory_of(const char *path, char directory[PATH_ROOM])
{
	const char *slash = strrchr(path, '/');
	int n = slash ? (int)(slash - path) : 0;
	snprintf(directory, PATH_ROOM, "%.*s", n, path);
	if (!slash || n == 0)
		snprintf(directory, PATH_ROOM, "%s", !slash ? "." : "/");
}

/* A directory that somebody named is there, or the name is wrong.  kilnd makes its own like this,
 * too: the sticky bit tells it that the mode is its own to set. */
static int need_directory(const char *path, const char *directory, bool usual)
{
	struct stat found;
	if (!usual && stat(directory, &found) != 0) {
		return error_set(
			KILN_ENOENT,
			"the directory %s of the socket %s cannot be used: %s: correct the path, or "
			"make the directory",
			directory, path, strerror(errno));
	}
	if (usual && mkdir(directory, 0700 | S_ISVTX) != 0 && errno != EEXIST) {
		return error_set(KILN_EIO, "the directory %s of the socket cannot be made: %s", directory,
						 strerror(errno));
	}
	return KILN_OK;
}

/* Opens the log in the socket's directory. */
static int open_log(const char *path, bool usual, int *log)
{
	char directory[PATH_ROOM], name[sizeof(directory) + 16];
	struct stat found;

	directory_of(path, directory);
	int status = need_directory(path, directory, usual);
	if (status != KILN_OK)
		return status;
	if (strncmp(directory, "/tmp/kiln-", 10) == 0 &&
		(lstat(directory, &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != getuid())) {
		return error_set(KILN_EPERM,
						 "%s belongs to somebody else: set KILN_SOCKET to a path in a directory of "
						 "your own",
						 directory);
	}
	snprintf(name, sizeof(name), "%s/kilnd.log", directory);
	*log = above_standard(
		open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600));
	if (*log < 0) {
		return error_set(KILN_EIO, "the log %s of the daemon to be started cannot be opened: %s",
						 name, strerror(errno));
	}
	return KILN_OK;
}

/* From here to execve() only async-signal-safe calls are allowed: other threads may hold any lock.
 */
static _Noreturn void become_daemon(const char *program, char *const arguments[], int log, int null,
									int pipe)
{
	struct sigaction plain = {.sa_handler = SIG_DFL};
	sigset_t none;
	struct news news = {.pid = getpid()};

	for (int i = 1; i < NSIG; i++)
		(void)sigaction(i, &plain, NULL);
	if (dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
		dup2(log, STDERR_FILENO) < 0)
		_exit(127);
	/* execve() closes the pipe; everything else that the program left open is closed now. */
	if (dup2(pipe, 3) == 3 && fcntl(3, F_SETFD, FD_CLOEXEC) == 0) {
		pipe = 3;
#ifdef SYS_close_range
		(void)syscall(SYS_close_range, 4u, ~0u, 0u);
#endif
	}
	ssize_t n = write(pipe, &news, sizeof(news));
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(program, arguments, environ);
	news.error = errno;
	n = write(pipe, &news, sizeof(news));
	(void)n;
	_exit(127);
}

/* Forks twice.  The other end of the pipe tells what became of the grandchild. */
static int spawn(const char *program, char *const arguments[], int log, int null, int pipe)
{
	sigset_t all, before;
	/* The program's threads and locks are gone in the child, so its handlers must not run there. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid_t child = fork();
	if (child == 0) {
		setsid();
		pid_t grandchild = fork();
		if (grandchild == 0)
			become_daemon(program, arguments, log, null, pipe);
		_exit(grandchild < 0 ? 1 : 0);
	}
	int error = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (child < 0)
		return error_set(KILN_EIO, "kilnd cannot be started: fork: %s", strerror(error));
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
	}
	return KILN_OK;
}

/* Reads the pipe until the grandchild is the daemon, or has failed. */
static int hear(int pipe, const char *program, int64_t deadline, pid_t *pid)
{
	struct news news;
	*pid = 0;
	for (;;) {
		struct pollfd watch = {.fd = pipe, .events = POLLIN};
		int left = time_left(deadline);
		int ready = poll(&watch, 1, left);
		if (ready == 0 && left >= 0) {
			return error_set(KILN_ETIMEDOUT, "kilnd (%s) did not start before the deadline",
							 program);
		}
		ssize_t n = ready > 0 ? read(pipe, &news, sizeof(news)) : -1;
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n == (ssize_t)sizeof(news) && news.error == 0) {
			*pid = news.pid;
			continue;
		}
		if (n == (ssize_t)sizeof(news)) {
			return error_set(KILN_ECONN, "kilnd (%s) cannot be started: %s", program,
							 strerror(news.error));
		}
		return *pid != 0 ? KILN_OK
						 : error_set(KILN_EIO, "kilnd (%s) cannot be started: no process", program);
	}
}

int autostart(const char *path, const char *daemon, bool usual, int64_t deadline,
			  struct started *started)
{
	char found[PATH_MAX];
	int log = -1, null = -1, pipe[2] = {-1, -1};

	if (!daemon) {
		if (!find_daemon(found)) {
			return error_set(
				KILN_ECONN,
				"no kilnd answers at %s, and none to start is beside the library or in "
				"PATH: set KILN_DAEMON to its path",
				path);
		}
		daemon = found;
	}
	/* Nothing is made for a daemon that cannot be started. */
	if (access(daemon, X_OK) != 0)
		return error_set(KILN_ECONN, "kilnd (%s) cannot be started: %s", daemon, strerror(errno));
	int status = open_log(path, usual, &log);
	if (status != KILN_OK)
		return status;
	started->log = lseek(log, 0, SEEK_END);
	null = above_standard(open("/dev/null", O_RDWR | O_CLOEXEC));
	if (null < 0 || pipe2(pipe, O_CLOEXEC) != 0 || (pipe[1] = above_standard(pipe[1])) < 0) {
		status = error_set(KILN_EIO, "kilnd cannot be started: %s", strerror(errno));
		goto out;
	}
	char *arguments[] = {(char *)(uintptr_t)daemon, "--socket",
						 (char *)(uintptr_t)path,   "--idle-exit",
						 PAUSE_AUTOSTART_IDLE,      NULL};
	status = spawn(daemon, arguments, log, null, pipe[1]);
	close(pipe[1]);
	pipe[1] = -1;
	if (status == KILN_OK)
		status = hear(pipe[0], daemon, deadline, &started->pid);
#ifdef SYS_pidfd_open
	/* -1 on old kernels, where only the deadline ends the wait.  A daemon that is gone already has
	 * no pidfd; the pipe, which has no other end any more, reads as its end. */
	if (status == KILN_OK) {
		started->watch = (int)syscall(SYS_pidfd_open, started->pid, 0);
		if (started->watch < 0 && errno == ESRCH) {
			started->watch = pipe[0];
			pipe[0] = -1;
		}
	}
#endif
out:
	for (int i = 0; i < 2; i++)
		if (pipe[i] >= 0)
			close(pipe[i]);
	if (null >= 0)
		close(null);
	close(log);
	return status;
}

bool autostart_ended(const struct started *started, int64_t deadline)
{
	struct pollfd end = {.fd = started->watch, .events = POLLIN};
	int ready = -1;
	if (started->watch < 0)
		return false;
	do {
		ready = poll(&end, 1, time_left(deadline));
	} while (ready < 0 && errno == EINTR);
	return ready > 0;
}

void autostart_reason(const char *path, const struct started *started, char *text, size_t size)
{
	char directory[PATH_ROOM], name[PATH_ROOM + 16], lines[LOG_READ + 1], mark[48];
	struct stat log;

	directory_of(path, directory);
	snprintf(name, sizeof(name), "%s/kilnd.log", directory);
	snprintf(text, size, "%s says why", name);
	int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	if (fd < 0 || fstat(fd, &log) != 0)
		log.st_size = 0;
	off_t from = log.st_size - started->log > LOG_READ ? log.st_size - LOG_READ : started->log;
	ssize_t n = fd >= 0 ? pread(fd, lines, LOG_READ, from) : -1;
	if (fd >= 0)
		close(fd);
	lines[n > 0 ? n : 0] = 0;
	/* Other daemons may write there, too. */
	snprintf(mark, sizeof(mark), "kilnd[%d] error ", (int)started->pid);
	for (const char *at = lines; (at = strstr(at, mark)) != NULL;) {
		at += strlen(mark);
		snprintf(text, size, "%.*s", (int)strcspn(at, "\n"), at);
	}
}

void autostart_end(struct started *started)
{
	if (started->watch >= 0)
		close(started->watch);
	started->watch = -1;
}
