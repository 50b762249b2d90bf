/*
 * launch_crew.c: processes that launch at the same time.  They are this program, executed anew, for
 * CUDA does not survive a fork; each has a socket to the one that started it, on which it says that
 * it is ready, is told from when to when to launch, and says how often it did.  A socket that is
 * closed ends whoever is at its other end.
 */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_SOCKET 3
#define CHILD_CUBIN 4
#define READY_SECONDS 60
#define MOST_VARIABLES 1024

extern char **environ;

/* From when to when, on the clock of runner_now_us(). */
struct crew_order {
	double start, end;
};

/* ---- Whoever starts them ---- */

static void add_environment(const char *const *more, char *environment[MOST_VARIABLES])
{
	int count = 0;
	for (; more && *more; more++)
		environment[count++] = (char *)(uintptr_t)*more;
	for (char **at = environ; *at && count < MOST_VARIABLES - 1; at++)
		environment[count++] = *at;
	environment[count] = NULL;
}

static int spawn(const struct bench *bench, const char *role, const char *const *more, int theirs,
				 pid_t *pid)
{
	char *environment[MOST_VARIABLES];
	const char *arguments[] = {bench->options.program,
							   "--child",
							   role,
							   "--device",
							   bench->options.device,
							   bench->options.socket ? "--socket" : NULL,
							   bench->options.socket,
							   NULL,
							   NULL};
	posix_spawn_file_actions_t actions;
	if (bench->options.copies)
		arguments[bench->options.socket ? 7 : 5] = "--copies";
	add_environment(more, environment);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, theirs, CHILD_SOCKET);
	if (bench->cubin_fd >= 0)
		posix_spawn_file_actions_adddup2(&actions, bench->cubin_fd, CHILD_CUBIN);
	int error = posix_spawn(pid, "/proc/self/exe", &actions, NULL,
							(char *const *)(uintptr_t)arguments, environment);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

static bool start_one(const struct bench *bench, struct crew *crew, const char *role,
					  const char *const *environment, char why[LAUNCH_WHY])
{
	int ends[2], i = crew->count;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
		snprintf(why, LAUNCH_WHY, "no socket for process %d: %s", i, strerror(errno));
		return false;
	}
	/* Out of the way of those that the process is to have. */
	int theirs = fcntl(ends[1], F_DUPFD_CLOEXEC, CHILD_CUBIN + 1);
	close(ends[1]);
	int error = theirs < 0 ? errno : spawn(bench, role, environment, theirs, &crew->pids[i]);
	if (theirs >= 0)
		close(theirs);
	crew->sockets[i] = ends[0];
	if (error) {
		close(ends[0]);
		snprintf(why, LAUNCH_WHY, "process %d cannot be started: %s", i, strerror(error));
		return false;
	}
	crew->count++;
	return true;
}

void crew_reap(pid_t pid, int milliseconds)
{
	double end = runner_now_us() + milliseconds * 1e3;
	while (waitpid(pid, NULL, WNOHANG) == 0) {
		if (runner_now_us() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			return;
		}
		usleep(2000);
	}
}

void crew_end(struct crew *crew)
{
	for (int i = 0; i < crew->count; i++)
		close(crew->sockets[i]);
	for (int i = 0; i < crew->count; i++)
		crew_reap(crew->pids[i], 10000);
	crew->count = 0;
}

static bool hear_one(struct crew *crew, int i, double end, struct crew_word *word,
					 char why[LAUNCH_WHY])
{
	struct pollfd watch = {.fd = crew->sockets[i], .events = POLLIN};
	double left = (end - runner_now_us()) / 1e3;
	if (poll(&watch, 1, left > 0 ? (int)left : 0) <= 0) {
		snprintf(why, LAUNCH_WHY, "process %d of %d says nothing in time", i, crew->count);
		return false;
	}
	if (recv(crew->sockets[i], word, sizeof(*word), 0) != sizeof(*word)) {
		snprintf(why, LAUNCH_WHY, "process %d of %d ended without a word", i, crew->count);
		return false;
	}
	word->why[LAUNCH_WHY - 1] = 0;
	if (word->kind == CREW_FAILED)
		snprintf(why, LAUNCH_WHY, "%s", word->why);
	return word->kind != CREW_FAILED;
}

bool crew_hear(struct crew *crew, int seconds, struct crew_word *words, char why[LAUNCH_WHY])
{
	double end = runner_now_us() + seconds * 1e6;
	for (int i = 0; i < crew->count; i++)
		if (!hear_one(crew, i, end, &words[i], why))
			return false;
	return true;
}

bool crew_start(const struct bench *bench, struct crew *crew, const char *role, int count,
				const char *const *environment, char why[LAUNCH_WHY])
{
	*crew = (struct crew){0};
	fflush(NULL);
	while (crew->count < count)
		if (!start_one(bench, crew, role, environment, why)) {
			crew_end(crew);
			return false;
		}
	return true;
}

double crew_round(struct crew *crew, double seconds, char why[LAUNCH_WHY])
{
	/* Until then all have heard of it. */
	double start = runner_now_us() + 20e3, sum = 0;
	struct crew_order order = {start, start + seconds * 1e6};
	struct crew_word words[CREW_MOST];
	for (int i = 0; i < crew->count; i++)
		if (send(crew->sockets[i], &order, sizeof(order), MSG_NOSIGNAL) != sizeof(order)) {
			snprintf(why, LAUNCH_WHY, "process %d of %d is gone", i, crew->count);
			return -1;
		}
	if (!crew_hear(crew, (int)seconds + READY_SECONDS, words, why))
		return -1;
	for (int i = 0; i < crew->count; i++) {
		crew->launches[i] = words[i].launches;
		sum += (double)words[i].launches;
	}
	return sum / seconds;
}

/* ---- One of them ---- */

bool crew_tell(const struct crew_word *word)
{
	return send(CHILD_SOCKET, word, sizeof(*word), MSG_NOSIGNAL) == sizeof(*word);
}

static int fail(const char *why)
{
	struct crew_word word = {.kind = CREW_FAILED};
	snprintf(word.why, sizeof(word.why), "%s", why);
	crew_tell(&word);
	return 1;
}

static void *read_cubin(void)
{
	off_t bytes = lseek(CHILD_CUBIN, 0, SEEK_END);
	void *cubin = bytes > 0 ? malloc((size_t)bytes) : NULL;
	if (cubin && pread(CHILD_CUBIN, cubin, (size_t)bytes, 0) != bytes) {
		free(cubin);
		cubin = NULL;
	}
	return cubin;
}

/* queued: LAUNCH_DEPTH launches before each wait. */
static int launch_as_told(struct bench *bench, struct way *way, bool queued)
{
	bool (*launch)(struct way * way) = queued ? way->kind->many : way->kind->one;
	struct crew_word word = {.kind = CREW_READY};
	struct crew_order order;
	if (!way->kind->open(bench, way) || !way->kind->many(way) || !way->kind->one(way))
		return fail(way_why(way));
	if (!crew_tell(&word))
		return 1;
	word.kind = CREW_DONE;
	while (recv(CHILD_SOCKET, &order, sizeof(order), 0) == sizeof(order)) {
		word.launches = 0;
		while (runner_now_us() < order.start)
			usleep(100);
		for (; runner_now_us() < order.end; word.launches += queued ? LAUNCH_DEPTH : 1)
			if (!launch(way))
				return fail(way_why(way));
		if (!way_right(bench, way))
			return fail("the results are wrong");
		if (!crew_tell(&word))
			return 1;
	}
	way_close(way);
	return 0;
}

static const struct way_kind *kind_of(const char *role)
{
	bool takes_long = strstr(role, "-long") != NULL, word = strstr(role, "-word") != NULL;
	if (strncmp(role, "own", 3) != 0)
		return takes_long ? &way_long : &way_ring;
	if (word)
		return takes_long ? &way_own_long_word : &way_direct_word;
	return takes_long ? &way_own_long : &way_direct;
}

int crew_child(struct bench *bench, const char *role, double begun)
{
	struct way way = {.kind = kind_of(role)};
	int status = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fcntl(CHILD_SOCKET, F_SETFD, FD_CLOEXEC);
	if (way.kind->own || strcmp(role, "fresh-driver") == 0)
		bench->cubin = read_cubin();
	if (strncmp(role, "fresh-", 6) == 0) {
		fresh_child(bench, role, begun);
		_exit(0); /* with all that it holds */
	}
	if (way.kind->own && !bench->cubin)
		status = fail("the kernel's object is missing");
	else
		status = launch_as_told(bench, &way, strstr(role, "-queued") != NULL);
	free(bench->cubin);
	return status;
}
