/* crew.c: the client processes: started, watched, and begun anew. */
#include "soak.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static bool takes_part(const struct soak_options *options, int number)
{
	return !options->repeat || number == options->repeat_client;
}

static void start_one(struct conductor *conductor, int number)
{
	struct soak_seat *seat = &conductor->soak->seats[number];
	pid_t parent = getpid(), pid;

	atomic_store(&seat->beat_ms, soak_now_ms());
	atomic_store(&seat->killed, false);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		soak_client(conductor->soak, number);
	}
	if (pid < 0)
		soak_fail(conductor->soak, "client %d cannot be started", number);
	conductor->pids[number] = pid > 0 ? pid : 0;
	conductor->lives++;
}

void crew_start(struct conductor *conductor)
{
	for (int i = 0; i < conductor->soak->options.clients; i++)
		if (takes_part(&conductor->soak->options, i))
			start_one(conductor, i);
}

/* Takes note of the end of a client. */
static void reap(struct conductor *conductor, int number, int status)
{
	struct soak *soak = conductor->soak;
	struct soak_seat *seat = &soak->seats[number];
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && atomic_load(&seat->killed);
	bool vanished = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_VANISHED;

	conductor->pids[number] = 0;
	if (status == 0)
		return;
	if (!killed && !vanished)
		soak_fail(soak, "client %d, step %lld (%s): it ended with wait status %#x", number,
				  (long long)atomic_load(&seat->step), seat->doing, (unsigned)status);
	/* The step that it died in is not made again. */
	atomic_fetch_add(&seat->step, 1);
	if (!atomic_load(&soak->stop) && !soak->options.repeat)
		start_one(conductor, number);
}

static void reap_daemon(struct conductor *conductor, int status)
{
	soak_fail(conductor->soak, "the daemon ended by itself, with wait status %#x; see %s/log",
			  (unsigned)status, conductor->daemon.directory);
	soak_disconnect(conductor);
	if (!soak_daemon_start(conductor))
		atomic_store(&conductor->soak->stop, 1);
}

static void watch_for_hanging(struct conductor *conductor)
{
	struct soak *soak = conductor->soak;

	for (int i = 0; i < soak->options.clients; i++) {
		struct soak_seat *seat = &soak->seats[i];
		int64_t silent = soak_now_ms() - atomic_load(&seat->beat_ms);
		if (!conductor->pids[i] || silent < SOAK_HANG_MS)
			continue;
		soak_fail(soak, "client %d, step %lld (%s): no sign of life for %lld ms", i,
				  (long long)atomic_load(&seat->step), seat->doing, (long long)silent);
		atomic_store(&seat->killed, true);
		kill(conductor->pids[i], SIGKILL);
		atomic_store(&seat->beat_ms, soak_now_ms());
	}
}

int crew_tend(struct conductor *conductor)
{
	int status, living = 0;
	pid_t pid;

	/* The children of a daemon that was killed come here, too: they are of no account. */
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (int i = 0; i < conductor->soak->options.clients; i++)
			if (conductor->pids[i] == pid)
				reap(conductor, i, status);
		if (pid == conductor->daemon.pid)
			reap_daemon(conductor, status);
	}
	watch_for_hanging(conductor);
	for (int i = 0; i < conductor->soak->options.clients; i++)
		living += conductor->pids[i] != 0;
	return living;
}

void crew_kill(struct conductor *conductor)
{
	for (int i = 0; i < conductor->soak->options.clients; i++) {
		if (!conductor->pids[i])
			continue;
		kill(conductor->pids[i], SIGKILL);
		waitpid(conductor->pids[i], NULL, 0);
		conductor->pids[i] = 0;
	}
}
