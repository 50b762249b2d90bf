/* peer_descriptors.c: which descriptors of clients the daemon takes. */
#include "peer_descriptors.h"

#include <limits.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/closer.h"
#include "daemon/broker/requests/session.h"

#define FILES_TEXT "kilnd has as many files open as it may have"

/* Says whether the uid is the daemon's own, or root. */
static bool rights_is_operator(uint32_t uid)
{
	return uid == getuid() || uid == 0;
}

int rights_below(uint32_t uid)
{
	struct rlimit files;
	if (rights_is_operator(uid) || getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur > INT_MAX)
		return 0;
	return (int)(files.rlim_cur - files.rlim_cur / GUEST_SHARES);
}

bool rights_allow(uint32_t uid, int fd)
{
	int below = rights_below(uid);
	return !below || fd < below;
}

const char *rights_full_text(uint32_t uid)
{
	return rights_is_operator(uid) ? FILES_TEXT " (ulimit -n)"
								   : FILES_TEXT " for guests (three quarters of ulimit -n)";
}

void rights_admit(int sock)
{
	int on = 1;
	setsockopt(sock, SOL_SOCKET, CLOSER_PASSRIGHTS, &on, sizeof(on));
}
