/*
 * spawn: runs a program in a private directory and keeps what it said.  Knows nothing of compilers.
 * A compile waits without a deadline here: the broker has one, and kills the process group.
 */
#include "backend.h"

#include "daemon/base/deadlines.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPAWN_PREFIX "kiln-cc."
#define SPAWN_LOG_MAX (1u << 20)

const char *workdir_parent(void)
{
	const char *path = getenv("TMPDIR");

	return path && path[0] == '/' && strlen(path) < 900 ? path : "/tmp";
}

static void remove_files(int fd)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *entry;

	if (!dir) {
		if (copy >= 0)
			close(copy);
		return;
	}
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlinkat(fd, entry->d_name, 0);
	closedir(dir);
}

void compile_sweep(void)
{
	DIR *dir = opendir(workdir_parent());
	struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		struct stat st;
		int fd;

		if (strncmp(entry->d_name, SPAWN_PREFIX, strlen(SPAWN_PREFIX)) != 0)
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) {
			remove_files(fd);
			unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
		}
		close(fd);
	}
	closedir(dir);
}

bool workdir_open(struct workdir *dir)
{
	struct stat st;

	compile_sweep();
	/* Another process may take a directory for stale between its making and its locking. */
	for (int tries = 0; tries < 10; tries++) {
		snprintf(dir->path, sizeof(dir->path), "%s/" SPAWN_PREFIX "XXXXXX", workdir_parent());
		if (mkdtemp(dir->path) == NULL)
			break;
		dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (dir->fd < 0)
			continue;
		if (flock(dir->fd, LOCK_EX | LOCK_NB) == 0 && fstat(dir->fd, &st) == 0 && st.st_nlink > 0)
			return true;
		close(dir->fd);
	}
	*dir = (struct workdir){.fd = -1};
	return false;
}

bool workdir_is_there(const struct workdir *dir)
{
	struct stat st;

	return dir->path[0] && fstat(dir->fd, &st) == 0 && st.st_nlink > 0;
}

void workdir_clean(struct workdir *dir)
{
	remove_files(dir->fd);
}

void workdir_close(struct workdir *dir)
{
	if (dir->path[0] == 0)
		return;
	workdir_clean(dir);
	rmdir(dir->path);
	close(dir->fd);
	*dir = (struct workdir){.fd = -1};
}

/* The few variables a compiler needs: others (CPATH, GCC_EXEC_PREFIX...) would change what it makes
 * behind the key's back. */
static void make_environment(const struct workdir *dir, char text[5][4096], char *env[6])
{
	static const char *const kept[] = {"PATH", "HOME", "LD_LIBRARY_PATH"};
	int count = 0;

	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		const char *value = getenv(kept[i]);

		if (value && snprintf(text[count], 4096, "%s=%s", kept[i], value) < 4096)
			env[count] = text[count], count++;
	}
	snprintf(text[count], 4096, "TMPDIR=%s", dir->path);
	env[count] = text[count], count++;
	snprintf(text[count], 4096, "LC_ALL=C");
	env[count] = text[count], count++;
	env[count] = NULL;
}

static int start_program(const struct workdir *dir, const char *program, char *const *argv,
						 pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	char text[5][4096], *env[6];
	sigset_t none, all;
	int failed;

	make_environment(dir, text, env);
	sigemptyset(&none);
	sigfillset(&all);
	sigdelset(&all, SIGXFSZ); /* a file that may not grow is an error of write, and said */
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	failed = posix_spawn_file_actions_addchdir_np(&actions, dir->path);
	if (!failed)
		failed = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (!failed)
		failed = posix_spawn_file_actions_addopen(&actions, 1, SPAWN_LOG,
												  O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
	if (!failed)
		failed = posix_spawn_file_actions_adddup2(&actions, 1, 2);
	if (!failed)
		failed =
			posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!failed)
		failed = posix_spawnattr_setsigmask(&attributes, &none);
	if (!failed)
		failed = posix_spawnattr_setsigdefault(&attributes, &all);
	if (!failed)
		failed = posix_spawn(pid, program, &actions, &attributes, argv, env);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return failed;
}

/* The peak of the programs and of the children that they waited for. */
static long peak_kib;

uint64_t spawn_take_peak(void)
{
	long kib = peak_kib;

	peak_kib = 0;
	return (uint64_t)kib << 10;
}

/* Waits for the program's end.  The sandbox lets a worker kill nobody, so one that overruns ends
 * with the worker. */
static bool await_program(pid_t pid, uint64_t most_us, int *status, struct rusage *usage)
{
	const struct timespec pause = {0, PAUSE_COMPILER_LOOK_US * 1000L};
	uint64_t began = util_now_us();
	pid_t got;

	while ((got = wait4(pid, status, most_us ? WNOHANG : 0, usage)) <= 0) {
		if (got < 0 && errno != EINTR)
			return false;
		if (got == 0 && util_now_us() - began >= most_us) {
			errno = ETIMEDOUT;
			return false;
		}
		if (got == 0)
			nanosleep(&pause, NULL);
	}
	return true;
}

int spawn_run(const struct workdir *dir, const char *program, char *const *argv, uint64_t most_us)
{
	struct rusage usage;
	int failed, status;
	pid_t pid;

	failed = start_program(dir, program, argv, &pid);
	if (failed) {
		errno = failed;
		return -1;
	}
	if (!await_program(pid, most_us, &status, &usage))
		return -1;
	if (usage.ru_maxrss > peak_kib)
		peak_kib = usage.ru_maxrss;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

char *spawn_log(const struct workdir *dir)
{
	char *log = calloc(SPAWN_LOG_MAX + 1, 1), *fitting;
	int fd = openat(dir->fd, SPAWN_LOG, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t got = 0;

	while (log && fd >= 0 && used < SPAWN_LOG_MAX &&
		   (got = read(fd, log + used, SPAWN_LOG_MAX - used)) > 0)
		used += (size_t)got;
	if (fd >= 0)
		close(fd);
	if (!log)
		return NULL;
	/* A zero byte would cut the text where it is copied. */
	for (size_t i = 0; i < used; i++)
		if (log[i] == 0)
			log[i] = ' ';
	fitting = realloc(log, used + 1);
	return fitting ? fitting : log;
}
