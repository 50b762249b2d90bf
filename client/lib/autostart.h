/*
 * autostart.h: starting a daemon.
 */
#ifndef KILN_CLIENT_AUTOSTART_H
#define KILN_CLIENT_AUTOSTART_H

#include <stdint.h>

/* Starts a kilnd on this socket path.  *watch: a descriptor that becomes readable when it ends, or
 * -1.  daemon NULL: found by itself. */
int autostart(const char *path, const char *daemon, int64_t deadline, int *watch);

#endif
