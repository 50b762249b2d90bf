/*
 * discipline: what an executor gives up before it serves.  Each step is a precaution: one that the
 * host refuses is left out, for the others still help.
 */
#include "executor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

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

void exec_discipline(int sock, bool wrapped)
{
	struct rlimit none = {0, 0}, files;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	setrlimit(RLIMIT_CORE, &none);
	/* A loaded object of the cpu device keeps its descriptor. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	signal(SIGPIPE, SIG_IGN);
	/* Its parent may be a thread that is soon gone, and what was opened before is the wrapper's. */
	if (wrapped)
		return;
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sock > 3)
		close_range_of(3, (unsigned)sock - 1);
	close_range_of(sock < 3 ? 3 : (unsigned)sock + 1, ~0u);
}
