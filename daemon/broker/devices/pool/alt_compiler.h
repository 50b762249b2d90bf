/*
 * second: a compiler beside the pool's, for kernels that are made before the host changes to it: a
 * worker process of its own, which finds that compiler and no other.  One job at a time, and one
 * who asks.
 */
#ifndef KILN_DAEMON_SECOND_H
#define KILN_DAEMON_SECOND_H

#include "pool.h"

struct second;

/*
 * path: a libnvrtc or its directory, or a C++ compiler for device cpu.  Nothing is started yet.
 * KILN_EINVAL where there is no such file, KILN_ELIMIT where there are as many of them as workers,
 * KILN_ENOMEM; with a sentence.
 */
int second_open(struct broker *broker, const char *path, struct second **out,
				char error[KERNEL_ERROR_MAX]);
/* Kills its worker; nothing is answered any more. */
void second_close(struct second *second);
const char *second_path(const struct second *second);
/* Whoever uses it takes it first, and gives it back; false: another has it. */
bool second_take(struct second *second);
void second_give(struct second *second);
bool second_taken(const struct second *second);
/* Whether it compiles for the target: a libnvrtc for GPUs, a C++ compiler for cpu. */
bool second_serves(const struct second *second, const char *target);

/*
 * Starts the worker if it is not there, and calls back with who the compiler is, or with a sentence
 * why it cannot be used; never from inside.
 */
typedef void (*second_known)(void *arg, const struct compile_toolchain *toolchain,
							 const char *error);
void second_ask(struct second *second, second_known known, void *arg);
/* Compiles; after second_ask has said who compiles.  As pool_submit; job must live until then. */
void second_submit(struct second *second, const struct compile_job *job, pool_done done, void *arg);
/* Forgets what is under way; a worker that compiles is killed. */
void second_cancel(struct second *second);
/* False: nobody waits for it. */
bool second_note(const struct second *second, struct wait_note *note);

#endif
