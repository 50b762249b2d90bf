/*
 * run.h: what a call needs of a daemon, and how it runs: launched in this process on CUDA, by the
 * daemon on lent memory, or by device cpu on copies.
 *
 * Each returns KILN_OK; RAISED; or, unless last, KILN_ECONN without an exception where the daemon
 * went away and the connection is ready to be opened anew.
 */
#ifndef KILN_PYTHON_RUN_H
#define KILN_PYTHON_RUN_H

#include "problem.h"

/* The part of a signature that the operand's address decides: how it is aligned, and whether it
 * lies in memory that the daemon shares. */
unsigned run_place(const struct connection *connection, const struct view *view, enum role role);
/* Plans and compiles; *out has a reference for the caller and is kept for the next call. */
int run_prepare(struct problem *problem, struct connection *connection, const struct key *key,
				bool last, struct prepared **out);
int run_local(struct problem *problem, struct connection *connection, struct prepared *prepared,
			  bool last);
int run_daemon(struct problem *problem, struct connection *connection, struct prepared *prepared,
			   bool last);
int run_copied(struct problem *problem, struct connection *connection, struct prepared *prepared,
			   bool last);
/* The arena of host operands: a status of libkiln, also without the GIL. */
int run_grow_arena(struct connection *connection, uint64_t bytes);
void run_trim_arena(struct connection *connection);
/* Waits for a call on copies, and hears Ctrl-C: a status, or RAISED_HERE with an exception, and
 * then the connection is lost. */
#define RAISED_HERE 1
int run_wait(struct connection *connection, kiln_ticket ticket);
/* Takes a failure of a launch on CUDA, as run_failed() does. */
int run_failed_local(struct connection *connection, struct prepared *prepared, int status,
					 bool last);
/* Takes a failure of libkiln: RAISED, or KILN_ECONN where another attempt may help. */
int run_failed(struct connection *connection, int status, bool last);

#endif
