/*
 * alt_compiler: a compiler beside the pool's, for kernels that are made before the host changes to
 * it.  It has a worker process of its own, which finds that compiler and no other, and does one job
 * at a time for one asker.
 */
#ifndef KILN_DAEMON_ALT_COMPILER_H
#define KILN_DAEMON_ALT_COMPILER_H

#include "pool.h"

struct alt_compiler;

/*
 * path: a libnvrtc or its directory, or a C++ compiler for device cpu.  Starts no process yet.
 * KILN_EINVAL without such a file, KILN_ELIMIT when --workers of them are open, KILN_ENOMEM; with a
 * sentence.
 */
int alt_compiler_open(struct broker *broker, const char *path, struct alt_compiler **out,
					  char error[KERNEL_ERROR_MAX]);
/* Kills its worker and frees it; no callback follows. */
void alt_compiler_close(struct alt_compiler *alt);
const char *alt_compiler_path(const struct alt_compiler *alt);
/* Takes the compiler for one asker, who gives it back; false: another has it. */
bool alt_compiler_take(struct alt_compiler *alt);
void alt_compiler_give(struct alt_compiler *alt);
bool alt_compiler_taken(const struct alt_compiler *alt);
/* Returns whether it compiles for the target: a libnvrtc for GPUs, a C++ compiler for cpu. */
bool alt_compiler_serves(const struct alt_compiler *alt, const char *target);

/*
 * Starts the worker if there is none, and calls back with the compiler's identity, or with a
 * sentence why it cannot be used; never from inside.
 */
typedef void (*alt_compiler_known)(void *arg, const struct compile_toolchain *toolchain,
								   const char *error);
void alt_compiler_ask(struct alt_compiler *alt, alt_compiler_known known, void *arg);
/* Compiles, as pool_submit() does, once alt_compiler_ask() has named the compiler.  job must live
 * until done is called. */
void alt_compiler_submit(struct alt_compiler *alt, const struct compile_job *job, pool_done done,
						 void *arg);
/* Forgets the question; kills a worker that compiles. */
void alt_compiler_cancel(struct alt_compiler *alt);
/* Fills in what is known of the wait for it; false: nothing was asked of it. */
bool alt_compiler_note(const struct alt_compiler *alt, struct wait_note *note);

#endif
