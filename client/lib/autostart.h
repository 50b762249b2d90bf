/*
 * autostart.h: starts a daemon.
 */
#ifndef KILN_CLIENT_AUTOSTART_H
#define KILN_CLIENT_AUTOSTART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A daemon that was started. */
struct started {
	pid_t pid; /* 0: none was started */
	int watch; /* becomes readable when the daemon ends; or -1 */
	off_t log; /* where its lines begin in kilnd.log beside the socket */
};

/* Starts a kilnd on this socket path.  daemon: its program; NULL: found by autostart().  usual: the
 * socket's directory is the library's choice, and is made if it is missing. */
int autostart(const char *path, const char *daemon, bool usual, int64_t deadline,
			  struct started *started);
/* Has the daemon ended?  Waits until it has, or the deadline. */
bool autostart_ended(const struct started *started, int64_t deadline);
/* Writes the last error that the daemon reported, or that its log says why it ended. */
void autostart_reason(const char *path, const struct started *started, char *text, size_t size);
/* Forgets the daemon, which goes on. */
void autostart_end(struct started *started);

#endif
