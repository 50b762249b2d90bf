/*
 * second: a compiler beside the pool's, for kernels that are made before the host changes to it: a
 * worker process of its own, which finds that compiler and no other.  One job at a time, and one
 * who asks.
 */
#ifndef KILN_DAEMON_ALT_COMPILER_H
#define KILN_DAEMON_ALT_COMPILER_H

#include "pool.h"

struct alt_compiler;

/*
 * path: a libnvrtc or its directory, or a C++ compiler for device cpu.  Nothing is started yet.
 * KILN_EINVAL where there is no such file, KILN_ELIMIT where there are as many of them as workers,
 * KILN_ENOMEM; with a sentence.
 */
int alt_compiler_open(struct broker *broker, const char *path, struct alt_compiler **out,
					  char error[KERNEL_ERROR_MAX]);
/* Kills its worker; nothing is answered any more. */
void alt_compiler_close(struct alt_compiler *alt);
const char *alt_compiler_path(const struct alt_compiler *alt);
/* Whoever uses it takes it first, and gives it back; false: another has it. */
bool alt_compiler_take(struct alt_compiler *alt);
void alt_compiler_give(struct alt_compiler *alt);
bool alt_compiler_taken(const struct alt_compiler *alt);
/* Whether it compiles for the target: a libnvrtc for GPUs, a C++ compiler for cpu. */
bool alt_compiler_serves(const struct alt_compiler *alt, const char *target);

/*
 * Starts the worker if it is not there, and calls back with who the compiler is, or with a sentence
 * why it cannot be used; never from inside.
 */
typedef void (*alt_compiler_known)(void *arg, const struct compile_toolchain *toolchain,
								   const char *error);
void alt_compiler_ask(struct alt_compiler *alt, alt_compiler_known known, void *arg);
/* Compiles, as pool_submit() does, once alt_compiler_ask() has named the compiler.  job must live
 * until done is called. */
void alt_compiler_submit(struct alt_compiler *alt, const struct compile_job *job, pool_done done,
						 void *arg);
/* Forgets what is under way; a worker that compiles is killed. */
void alt_compiler_cancel(struct alt_compiler *alt);
/* Fills in what is known of the wait for it; false: nothing was asked of it. */
bool alt_compiler_note(const struct alt_compiler *alt, struct wait_note *note);

#endif
