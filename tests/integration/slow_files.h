/* slow_files: part of the harness: descriptors whose close() takes as long as a test likes. */
#ifndef KILN_TESTS_SLOW_FILES_H
#define KILN_TESTS_SLOW_FILES_H

#include <stdbool.h>
#include <sys/types.h>

/* A TCP socket with unsent data that lingers for longer than any test.  The last close() of it
 * waits until slow_socket_end(). */
struct slow_socket {
	int fd, peer;
};

bool slow_socket_open(struct slow_socket *slow);
/* Ends the connection; nobody waits any longer. */
void slow_socket_end(struct slow_socket *slow);

/* A file of a FUSE file system whose server never answers a close(): each waits, in a way that no
 * signal ends, until slow_file_end(). */
struct slow_file {
	char dir[128];
	int fd;
	pid_t server;
};

/* Mounts it at a new directory inside this one.  False, with a line why: it cannot be had here. */
bool slow_file_open(struct slow_file *slow, const char *inside);
void slow_file_end(struct slow_file *slow);

#endif
