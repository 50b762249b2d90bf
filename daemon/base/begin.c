/* begin.c: puts right, or refuses, what a process inherits and cannot work with. */
#include "util.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define STACK_WANTED ((rlim_t)8 << 20)
#define STACK_LEAST ((rlim_t)1 << 20)
#define OWNERS 0700

/* The main thread's stack follows the limit at once; the size for threads was read from it when the
 * program began, and is set anew. */
static bool raise_stack(char *error, size_t size)
{
	struct rlimit stack;
	pthread_attr_t attributes;
	if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= STACK_WANTED)
		return true;
	if (stack.rlim_max < STACK_LEAST) {
		util_fail(error, size, 0,
				  "a stack may have %llu KiB here, which is less than the %llu KiB that kilnd "
				  "needs: raise the limit (ulimit -s)",
				  (unsigned long long)stack.rlim_max >> 10, (unsigned long long)STACK_LEAST >> 10);
		return false;
	}
	stack.rlim_cur = stack.rlim_max < STACK_WANTED ? stack.rlim_max : STACK_WANTED;
	setrlimit(RLIMIT_STACK, &stack);
	pthread_attr_init(&attributes);
	if (pthread_attr_setstacksize(&attributes, (size_t)stack.rlim_cur) == 0)
		pthread_setattr_default_np(&attributes);
	pthread_attr_destroy(&attributes);
	return true;
}

bool util_begin(char *error, size_t size)
{
	sigset_t none;
	/* A file that is opened later would otherwise get the messages that others write to stderr. */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", O_RDWR);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	/* A compiler reads the files that it makes. */
	umask(umask(OWNERS) & ~(mode_t)OWNERS & 0777);
	return raise_stack(error, size);
}
