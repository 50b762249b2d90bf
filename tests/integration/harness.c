/*
 * harness.c: daemons of a test's own, and the processes around them.
 */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROOM_BYTES ((uint64_t)2 << 30)

int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void pause_ms(int milliseconds)
{
	struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
	nanosleep(&time, NULL);
}

/* ---- A test ---- */

static void on_alarm(int signal)
{
	static const char text[] = "harness: the program's deadline passed\n";
	(void)signal;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(125);
	_exit(124);
}

void harness_begin(void)
{
	/* Orphans of a daemon come here instead of to init, so that leftovers can be counted. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
		perror("harness: prctl");
		exit(1);
	}
	if (!getenv("KILND")) {
		fputs("harness: KILND must name the daemon\n", stderr);
		exit(1);
	}
	if (getenv("KILN_TEST"))
		cmocka_set_test_filter(getenv("KILN_TEST"));
	signal(SIGALRM, on_alarm);
	alarm(PROGRAM_SECONDS);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status, (void)type, (void)walk;
	return remove(path);
}

/* In memory where there is room, and programs may be run: a disk that has much else to do takes its
 * time. */
static const char *where_files_go(void)
{
	struct statvfs memory;
	bool fits = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &memory) == 0 &&
				!(memory.f_flag & ST_NOEXEC) && memory.f_bavail * memory.f_frsize >= ROOM_BYTES;
	return fits ? "/dev/shm" : "/tmp";
}

int harness_setup(void **state)
{
	struct kilnd *daemon = calloc(1, sizeof(*daemon));
	if (!daemon)
		return -1;
	snprintf(daemon->dir, sizeof(daemon->dir), "%s/kiln-test-XXXXXX", where_files_go());
	if (!mkdtemp(daemon->dir))
		return -1;
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/kiln.sock", daemon->dir);
	snprintf(daemon->cache, sizeof(daemon->cache), "%s/cache", daemon->dir);
	snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->dir);
	*state = daemon;
	return 0;
}

/* Children of this process that have not ended; the ended ones are reaped. */
static int living_children(int *one)
{
	char path[64];
	int pid, living = 0;
	FILE *file;

	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	file = fopen(path, "r");
	while (file && fscanf(file, "%d", &pid) == 1) {
		*one = pid;
		living++;
	}
	if (file)
		fclose(file);
	return living;
}

/* Gives processes that are on their way out a moment, and ends the rest.  How many those were. */
static int end_children(void)
{
	int64_t end = now_ms() + STOP_TIMEOUT_MS;
	int pid, killed = 0;

	while (living_children(&pid) && now_ms() < end)
		pause_ms(5);
	while (living_children(&pid)) {
		fprintf(stderr, "harness: process %d is left\n", pid);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		killed++;
	}
	return killed;
}

bool kilnd_end(struct kilnd *daemon)
{
	bool well = true;
	char why[400];

	if (!daemon->pid)
		return true;
	if (!figures_settle(daemon, why)) {
		fprintf(stderr, "harness: the daemon's figures: %s\n", why);
		well = false;
	}
	kill(daemon->pid, SIGTERM);
	if (process_wait(daemon->pid, STOP_TIMEOUT_MS) != 0) {
		fprintf(stderr, "harness: the daemon did not end well by SIGTERM\n");
		well = false;
	}
	daemon->pid = 0;
	return well;
}

int harness_teardown(void **state)
{
	struct kilnd *daemon = *state;
	int status = kilnd_end(daemon) ? 0 : -1;

	if (end_children())
		status = -1;
	if (status) {
		char *log = kilnd_log(daemon);
		fprintf(stderr, "harness: processes were left, or the end was bad; the daemon's log:\n%s\n",
				log);
		free(log);
	}
	if (getenv("KILN_TEST_KEEP"))
		fprintf(stderr, "harness: kept %s\n", daemon->dir);
	else
		nftw(daemon->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(daemon);
	return status;
}

/* ---- Processes ---- */

int process_wait(pid_t pid, int timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;
	int status = 0;

	for (;;) {
		pid_t got = waitpid(pid, &status, WNOHANG);
		if (got == pid)
			return status;
		if (got < 0)
			fail_msg("waitpid(%d): %s", (int)pid, strerror(errno));
		if (now_ms() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			fail_msg("process %d did not end within %d ms", (int)pid, timeout_ms);
		}
		pause_ms(2);
	}
}

/* Threads of a process that may still run, or finish a system call. */
static int running_threads(pid_t pid)
{
	char path[64], stat[256];
	struct dirent *entry;
	int running = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)pid, entry->d_name);
		FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
		const char *line = file ? fgets(stat, sizeof(stat), file) : NULL;
		const char *name_end = line ? strrchr(line, ')') : NULL;
		running += name_end && !strchr("TtZX", name_end[2]);
		if (file)
			fclose(file);
	}
	if (dir)
		closedir(dir);
	return running;
}

void process_stop(pid_t pid)
{
	int64_t end = now_ms() + STOP_TIMEOUT_MS;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	while (running_threads(pid)) {
		assert_in_range(now_ms(), 0, end);
		pause_ms(1);
	}
}

pid_t process_start(const struct kilnd *daemon, process_body *body, void *arg)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		alarm(PROGRAM_SECONDS);
		_exit(body(daemon, arg));
	}
	return pid;
}

void skip_unless_root(void)
{
	if (getuid() == 0)
		return;
	print_message("SKIPPED: only root can become another user\n");
	skip();
}

bool become_user(uid_t uid, gid_t gid, const gid_t *groups, int count)
{
	return setgroups((size_t)count, groups) == 0 && setgid(gid) == 0 && setuid(uid) == 0 &&
		   prctl(PR_SET_PDEATHSIG, SIGKILL) == 0; /* which a change of the user takes back */
}

void assert_no_children(void)
{
	int64_t end = now_ms() + STOP_TIMEOUT_MS;
	int pid;

	while (living_children(&pid)) {
		if (now_ms() > end)
			fail_msg("process %d is left after %d ms", pid, STOP_TIMEOUT_MS);
		pause_ms(5);
	}
}

void assert_fds_at_most(pid_t pid, int most)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	int count = count_fds(pid);

	while (count > most && now_ms() < end) {
		pause_ms(5);
		count = count_fds(pid);
	}
	if (count > most)
		fail_msg("process %d has %d descriptors, %d before: leaked", (int)pid, count, most);
}

void assert_shared_maps_at_most(pid_t pid, int most)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	int count = count_shared_maps(pid);

	while (count > most && now_ms() < end) {
		pause_ms(5);
		count = count_shared_maps(pid);
	}
	if (count > most)
		fail_msg("process %d has %d shared mappings, %d before: leaked", (int)pid, count, most);
}

/* ---- Daemons ---- */

#define MAX_ARGUMENTS 40

static void exec_daemon(const struct kilnd *daemon, const char *const *options,
						const char *const *environment, int fd)
{
	char config[80];
	const char *arguments[MAX_ARGUMENTS] = {
		getenv("KILND"), "--socket", daemon->socket,    "--cache-dir",  daemon->cache,
		"--device",      "cpu",      "--test-requests", "--specialize", "eager"};
	int count = 10, log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	snprintf(config, sizeof(config), "%s/config", daemon->dir);
	setenv("XDG_CONFIG_HOME", config, 1);
	/* Other programs' files are in /tmp, and somebody tidies up there. */
	setenv("TMPDIR", daemon->dir, 1);
	while (options && *options && count < MAX_ARGUMENTS - 1)
		arguments[count++] = *options++;
	for (; environment && *environment; environment++)
		putenv((char *)(uintptr_t)*environment);
	if (fd >= 0) {
		char number[16];
		snprintf(number, sizeof(number), "%d", getpid());
		setenv("LISTEN_PID", number, 1);
		setenv("LISTEN_FDS", "1", 1);
		if (fd == 3)
			fcntl(3, F_SETFD, 0);
		else
			dup2(fd, 3);
	}
	dup2(log, STDERR_FILENO);
	if (daemon->uid && !become_user(daemon->uid, daemon->gid, &daemon->also, daemon->also != 0))
		_exit(125);
	execv(arguments[0], (char *const *)(uintptr_t)arguments);
	_exit(127);
}

void kilnd_for_guests(struct kilnd *daemon, uid_t uid, gid_t gid, gid_t also)
{
	daemon->uid = uid;
	daemon->gid = gid;
	daemon->also = also;
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/run/kiln.sock", daemon->dir);
	assert_int_equal(chmod(daemon->dir, 0711), 0);
	assert_int_equal(chown(daemon->dir, uid, gid), 0);
}

void kilnd_spawn(struct kilnd *daemon, const char *const *options, const char *const *environment,
				 int fd)
{
	pid_t parent = getpid();

	assert_int_equal(daemon->pid, 0);
	fflush(NULL);
	daemon->pid = fork();
	assert_true(daemon->pid >= 0);
	if (daemon->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		exec_daemon(daemon, options, environment, fd);
	_exit(126);
}

void kilnd_await(struct kilnd *daemon)
{
	int64_t end = now_ms() + START_TIMEOUT_MS;

	for (;;) {
		int status, gone;
		kiln_client *client = client_try(daemon, START_TIMEOUT_MS, &status);
		if (client) {
			kiln_close(client);
			return;
		}
		gone = waitpid(daemon->pid, &status, WNOHANG);
		if (gone || now_ms() > end) {
			char *log = kilnd_log(daemon);
			fprintf(stderr, "the daemon's log:\n%s\n", log);
			free(log);
			daemon->pid = gone ? 0 : daemon->pid;
			fail_msg("the daemon does not answer: %s", kiln_errmsg());
		}
		pause_ms(5);
	}
}

void kilnd_start(struct kilnd *daemon, const char *const *options)
{
	kilnd_spawn(daemon, options, NULL, -1);
	kilnd_await(daemon);
}

int kilnd_wait(struct kilnd *daemon, int timeout_ms)
{
	pid_t pid = daemon->pid;
	assert_true(pid > 0);
	daemon->pid = 0;
	return process_wait(pid, timeout_ms);
}

/* Names of the directory that contain a word. */
static int count_files(const char *path, const char *word)
{
	struct dirent *entry;
	int count = 0;
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir)))
		count += strstr(entry->d_name, word) != NULL;
	if (dir)
		closedir(dir);
	return count;
}

void kilnd_stop(struct kilnd *daemon)
{
	char why[400];

	if (!figures_settle(daemon, why))
		fail_msg("the daemon's figures: %s", why);
	kill(daemon->pid, SIGTERM);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	assert_no_children();
	assert_int_equal(access(daemon->socket, F_OK), -1);
	assert_int_equal(count_files(daemon->dir, ".lock"), 0);
}

char *kilnd_log(const struct kilnd *daemon)
{
	size_t size = 1 << 20, used = 0;
	char *text = calloc(1, size + 1);
	FILE *file = fopen(daemon->log, "r");

	if (file && text)
		used = fread(text, 1, size, file);
	if (file)
		fclose(file);
	if (text)
		text[used] = 0;
	return text;
}

void kilnd_await_log(const struct kilnd *daemon, const char *words)
{
	for (int i = 0;; i++) {
		char *log = kilnd_log(daemon);
		bool there = log && strstr(log, words);
		if (!there && i == 2000)
			fail_msg("the log has no \"%s\": %s", words, log ? log : "");
		free(log);
		if (there)
			return;
		pause_ms(10);
	}
}
