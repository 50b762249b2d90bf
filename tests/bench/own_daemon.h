/* own_daemon: a kilnd that a benchmark starts for itself, with a directory for its socket, cache
 * and log. */
#ifndef KILN_TESTS_BENCH_OWN_DAEMON_H
#define KILN_TESTS_BENCH_OWN_DAEMON_H

#include "gpu/runner.h"

#include <sys/types.h>

struct own_daemon {
	char directory[64], socket[96];
	pid_t pid;
};

/* Makes the directory; false after a sentence on stderr.  name: of the benchmark. */
bool own_daemon_make(struct own_daemon *daemon, const char *name);
/*
 * Starts $KILN_DAEMON, or kilnd beside this program, with these further arguments, ended by NULL,
 * and waits until its socket is there.  cache: a name in the directory, empty if it is a new one.
 * False: runner_fail() has said why.
 */
bool own_daemon_start(struct own_daemon *daemon, const char *cache, const char *const *arguments);
void own_daemon_stop(struct own_daemon *daemon);
/* A figure of the daemon; -1 if it does not answer. */
int64_t own_daemon_figure(kiln_client *client, const char *path);
/* Removes the directory, unless something failed: then the daemon's log is wanted. */
void own_daemon_remove(const struct own_daemon *daemon, int status);

#endif
