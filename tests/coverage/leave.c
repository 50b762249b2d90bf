/*
 * leave.c: keeps what a process has counted when it leaves without exit(), in the coverage build
 * alone (KILN_COVERAGE).  Every program and library of it is linked with --wrap=_exit, kilnd with
 * --wrap=kill as well.
 *
 * _exit() becomes quick_exit(), by which each of them writes its counts.  When the daemon kills a
 * process of its own, that gets SIGTERM first, writes, and dies by SIGKILL as was wanted; one that
 * is stopped or hangs is killed after a moment all the same.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 500

void __gcov_dump(void);
_Noreturn void __wrap__exit(int status);
int __real_kill(pid_t pid, int number) __attribute__((weak)); /* in kilnd only */
int __wrap_kill(pid_t pid, int number);

_Noreturn void __wrap__exit(int status)
{
	quick_exit(status);
}

static void on_terminate(int number)
{
	(void)number;
	__gcov_dump();
	raise(SIGKILL);
}

/* Children of the daemon have a role. */
__attribute__((constructor)) static void begin(int count, char **arguments)
{
	at_quick_exit(__gcov_dump);
	for (int i = 1; __real_kill && i < count; i++)
		if (!strncmp(arguments[i], "--role=", 7))
			signal(SIGTERM, on_terminate);
}

/* It stays to be waited for. */
static int has_ended(pid_t pid)
{
	siginfo_t end = {0};

	return waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == pid;
}

int __wrap_kill(pid_t pid, int number)
{
	const struct timespec moment = {.tv_nsec = 1000000};
	pid_t child = pid < 0 ? -pid : pid;

	if (number == SIGKILL && __real_kill(child, SIGTERM) == 0)
		for (int i = 0; i < PATIENCE_MS && !has_ended(child); i++)
			nanosleep(&moment, NULL);
	return __real_kill(pid, number);
}
