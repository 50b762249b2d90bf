/*
 * recompile: compiles one kernel beside the calls that ask for kernels, and puts it into the cache.
 * Either the cache has the kernel: the unit that its row keeps is compiled for another target or by
 * another compiler.  Or it is a planned kernel for another compiler.  Nothing is compiled when the
 * cache has the new key already.  Or a row is verified: its unit is compiled once more as it was,
 * the new object is compared with the row's bit for bit, and the cache stays as it is.
 */
#ifndef KILN_DAEMON_RECOMPILE_H
#define KILN_DAEMON_RECOMPILE_H

#include "job.h"
#include "daemon/broker/devices/pool/alt_compiler.h"

struct recompile_want {
	struct kernel_ref *ref;         /* a planned kernel; NULL: the row of key */
	char key[KERNEL_KEY_HEX];       /* how the key of the row begins */
	char target[KERNEL_TARGET_MAX]; /* with key: the new target; "": the row's own */
	bool verify;                    /* with key alone */
	struct alt_compiler *compiler;  /* NULL: the pool's */
	enum pool_priority priority;    /* in the pool's queue */
	struct turn_owner owner;        /* whose turns it takes, there and at the store */
};

/* A kernel is skipped when GPUs and cpu share no unit, the compiler serves another target, or a row
 * that is to be verified was made in another way than kernels are made now.  The last three are a
 * verified row's: FAILED says that its unit does not compile. */
enum recompile_outcome {
	RECOMPILE_COMPILED,
	RECOMPILE_FOUND,
	RECOMPILE_SKIPPED,
	RECOMPILE_SAME,
	RECOMPILE_DIFFERS,
	RECOMPILE_FAILED,
};

struct recompile_answer {
	int status;
	const char *error, *log;        /* unless status is KILN_OK */
	enum recompile_outcome outcome; /* where status is KILN_OK */
	const char *why;                /* of a verified row: why it is not the same, or "" */
	const char *key, *op, *target, *instantiation;
	int64_t bytes, micros; /* of the compile; 0: there was none */
};

struct recompile;
typedef void (*recompile_done)(void *arg, const struct recompile_answer *answer);
/* Starts to recompile.  Calls done() once, later and from the loop, unless recompile_stop() comes
 * first.  Takes a hold of want->ref.  NULL without memory. */
struct recompile *recompile_start(struct broker *broker, const struct recompile_want *want,
								  recompile_done done, void *arg);
void recompile_stop(struct recompile *recompile);

#endif
