/*
 * autostart.h: starts a daemon.
 */
#ifndef KILN_CLIENT_AUTOSTART_H
#define KILN_CLIENT_AUTOSTART_H

#include <stdint.h>

/* Starts a kilnd on this socket path.  daemon: its program; NULL: found by autostart().  *watch: a
 * descriptor that becomes readable when the daemon ends, which is the caller's to close; or -1. */
int autostart(const char *path, const char *daemon, int64_t deadline, int *watch);

#endif
