/*
 * recompile: a kernel that is compiled apart from the calls that ask for it, and put into the cache:
 * one that the cache has, for another target or by another compiler, from the unit that was
 * compiled then; or a planned one by another compiler.  What the cache has already is not compiled.
 */
#ifndef KILN_DAEMON_RECOMPILE_H
#define KILN_DAEMON_RECOMPILE_H

#include "job.h"
#include "daemon/broker/devices/pool/alt_compiler.h"

struct recompile_want {
	struct kernel_ref *ref;         /* a planned kernel, held by the caller; or NULL: */
	char key[KERNEL_KEY_HEX];       /* that of the cache whose key begins so */
	char target[KERNEL_TARGET_MAX]; /* with key: instead of its own; "": that */
	struct second *compiler;        /* NULL: the pool's */
	enum pool_priority priority;    /* in the pool */
	struct turn_owner owner;        /* whose turn it is in the pool and at the cache */
};

struct recompile_answer {
	int status;
	const char *error, *log; /* where it is not KILN_OK */
	bool was_there;          /* nothing was compiled */
	bool skipped; /* nor looked for: the kernel of the cache is of another kind of target */
	const char *key, *op, *target, *instantiation;
	int64_t bytes, micros; /* of the compile; 0 */
};

struct recompile;
typedef void (*recompile_done)(void *arg, const struct recompile_answer *answer);
/* done is called once, unless recompile_stop came first; never from inside.  NULL without memory. */
struct recompile *recompile_start(struct broker *broker, const struct recompile_want *want,
								  recompile_done done, void *arg);
void recompile_stop(struct recompile *recompile);

#endif
