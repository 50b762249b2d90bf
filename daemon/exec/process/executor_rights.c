/*
 * executor_rights: gives up rights before the executor serves.  Each step is a precaution: if the
 * host refuses one, the others still help.
 */
#include "executor.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* When memory runs out, the kernel ends this process before the broker and other clients' devices.
 */
#define OWN_GIVES_WAY 500

static void close_range_of(unsigned first, unsigned last)
{
	if (first > last)
		return;
#ifdef SYS_close_range
	if (syscall(SYS_close_range, first, last, 0u) == 0)
		return;
#endif
	struct rlimit limit;
	unsigned end = 65536;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < end)
		end = (unsigned)limit.rlim_cur;
	for (unsigned fd = first; fd < end && fd <= last; fd++)
		close((int)fd);
}

/* Closes the ways to the log: a user's code could write lines there that look like the daemon's
 * own, without end.  Sanitizers keep the descriptors for their reports. */
static void silence(void)
{
	int nothing = SANDBOX_SANITIZED ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);
	if (nothing < 0)
		return;
	dup2(nothing, STDOUT_FILENO);
	dup2(nothing, STDERR_FILENO);
	close(nothing);
}

void exec_give_up_rights(const struct exec_options *options)
{
	struct rlimit none = {0, 0}, files;
	int sock = options->sock;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	setrlimit(RLIMIT_CORE, &none);
	/* Each object that the cpu device has loaded keeps a descriptor. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	signal(SIGPIPE, SIG_IGN);
	/* A wrapper may start it from a thread that ends soon, and descriptors that were open before
	 * are the wrapper's. */
	if (options->wrapped)
		return;
	if (options->own) {
		sandbox_give_way(OWN_GIVES_WAY);
		/* On a GPU the driver prints the output of kernels. */
		if (options->sandbox != SANDBOX_OFF && !options->check &&
			strcmp(options->device, "cpu") == 0)
			silence();
	}
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sock > 3)
		close_range_of(3, (unsigned)sock - 1);
	close_range_of(sock < 3 ? 3 : (unsigned)sock + 1, ~0u);
}
