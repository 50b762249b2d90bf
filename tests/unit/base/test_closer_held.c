/*
 * closer: a thread that the system does not let run keeps no child from being started, for another
 * closes what waits.
 */
#include "daemon/base/closer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the above */
#include <cmocka.h>

#define THREADS_MOST 8

/* The threads of this process but the first; -1: one of them does not sleep. */
static int others_that_sleep(pid_t threads[THREADS_MOST])
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	while (dir && count >= 0 && count < THREADS_MOST && (entry = readdir(dir))) {
		char path[64], stat[256] = "";
		pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
		if (thread == 0 || thread == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
		FILE *file = fopen(path, "r");
		bool sleeps = file && fgets(stat, sizeof(stat), file) && strstr(stat, ") S ");
		if (file)
			fclose(file);
		threads[count] = thread;
		count = sleeps ? count + 1 : -1;
	}
	if (dir)
		closedir(dir);
	return count;
}

/* A process that keeps these threads from running until its end.  0: it may not. */
static pid_t hold_threads(const pid_t *threads, int count)
{
	int told[2], held = 0;
	assert_int_equal(pipe(told), 0);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* where only a parent may hold a process */
	pid_t holder = fork();
	assert_true(holder >= 0);
	if (holder == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < count; i++)
			held += ptrace(PTRACE_SEIZE, threads[i], NULL, NULL) == 0 &&
					ptrace(PTRACE_INTERRUPT, threads[i], NULL, NULL) == 0 &&
					waitpid(threads[i], NULL, __WALL) == threads[i];
		(void)!write(told[1], &held, sizeof(held));
		for (;;)
			pause();
	}
	assert_int_equal(read(told[0], &held, sizeof(held)), sizeof(held));
	close(told[0]);
	close(told[1]);
	if (held == count)
		return holder;
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	return 0;
}

static void another_closes(void **state)
{
	(void)state;
	pid_t threads[THREADS_MOST];
	int count, pair[2];
	assert_true(closer_open(NULL, NULL));
	while ((count = others_that_sleep(threads)) < 2)
		usleep(1000);
	pid_t holder = hold_threads(threads, count);
	if (!holder) {
		print_message("SKIPPED: no process may hold a thread of another here\n");
		skip();
	}
	assert_int_equal(pipe(pair), 0);
	closer_put(1, pair[1]);
	/* A busy machine may not let the other thread run in the time of one wait. */
	bool settled = false;
	for (int tries = 0; tries < 100 && !settled; tries++)
		settled = closer_settle();
	assert_true(settled);
	assert_int_equal(fcntl(pair[1], F_GETFD), -1);
	assert_int_equal(errno, EBADF);
	close(pair[0]);
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	closer_detach();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_closes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
