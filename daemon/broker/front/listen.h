/*
 * listen: the socket clients connect to: inherited from systemd, or made here with a lock so that
 * two daemons never fight over one path and a dead one's leftovers are no obstacle.  Knows nothing
 * of the loop.
 */
#ifndef KILN_DAEMON_LISTEN_H
#define KILN_DAEMON_LISTEN_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon/plan/kernel.h"
#include "daemon/options/options.h"

struct listen_socket {
	int fd;
	int lock; /* -1: inherited, nothing to clean up */
	char path[PATH_MAX];
	char lock_path[PATH_MAX + 8];
	dev_t device; /* of the socket we made: a path that was taken over is not removed */
	ino_t inode;
	const struct options *options;
};

/*
 * Uses LISTEN_FDS when it is for this process.  Otherwise makes the socket at the path of the
 * options, and its directory if that is not there.  Both are for the daemon's user, and for those
 * whom --allow-uid and --allow-gid name.  KILN_EBUSY when another daemon answers there; KILN_EPERM
 * for a directory that others can write to.  The log names a directory that keeps those out.
 */
int listen_open(struct listen_socket *socket, const struct options *options,
				char error[KERNEL_ERROR_MAX]);
/* Says whether the path or its lock is gone, or somebody else's; never for an inherited one. */
bool listen_is_lost(const struct listen_socket *socket);
/* Makes the socket anew at its path, with the same descriptor, unless somebody else is there. */
int listen_again(struct listen_socket *socket, char error[KERNEL_ERROR_MAX]);
/* Removes what listen_open made, if it is still ours. */
void listen_close(struct listen_socket *socket);
/* Tells systemd ($NOTIFY_SOCKET), if it started us. */
void listen_notify(const char *state);

#endif
