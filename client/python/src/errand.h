/*
 * errand.h: calls of libkiln that may wait long (a connection, a compile), so that Ctrl-C ends the
 * wait.  The main thread gives the call to a thread and looks for signals meanwhile; other threads
 * have no signals and make the call themselves.
 *
 *   WAITING --- work() returns ---> DONE --- the caller reads the result
 *      |
 *      +------- a signal raised --> ABANDONED --- work() returns ---> the thread calls drop()
 */
#ifndef KILN_PYTHON_ERRAND_H
#define KILN_PYTHON_ERRAND_H

#include "extension.h"

struct errand {
	int (*work)(struct errand *errand);  /* a status; runs without the GIL and without Python */
	void (*drop)(struct errand *errand); /* frees what work() made and the errand; without Python */
	int status;
	char *sentence, *log; /* of a failure */
	struct errand_thread *thread;
};

/* Runs the errand: its status; or ERRAND_ABANDONED with an exception, and then the errand is no
 * longer the caller's. */
#define ERRAND_ABANDONED 1
int errand_run(struct errand *errand);
/* Raises the failure of an errand; RAISED. */
int errand_raise(const struct errand *errand);
/* Frees the texts; drop() calls it. */
void errand_end(struct errand *errand);

#endif
