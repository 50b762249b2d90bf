/* server: the daemon for clients. */
#ifndef KILN_DAEMON_SERVER_H
#define KILN_DAEMON_SERVER_H

#include "daemon/options/options.h"

#define SERVER_LEFT 2 /* a thread is still in the cache: exit(3) would wait for it */
/* Serves until it is stopped.  Returns the exit status, or SERVER_LEFT. */
int server_run(const struct options *options);

#endif
