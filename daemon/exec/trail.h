/*
 * trail.h: the last calls that a device process has begun, in memory that its broker made and can
 * read when the process is dead: numbers only, each written once or twice, without a lock.  The
 * broker believes none of it: a kernel of a user's may have written there, too.
 */
#ifndef KILN_DAEMON_TRAIL_H
#define KILN_DAEMON_TRAIL_H

#include <stdatomic.h>
#include <stdint.h>

#define TRAIL_CALLS 256u

/* A cache line each. */
struct trail_call {
	_Alignas(64) _Atomic uint64_t number; /* 1 + of those begun before; written last; 0: none */
	/* The number of the request; or, where the call came through a lane, that of the call or
	 * graph, and the lane's stream. */
	_Atomic uint64_t name, stream;
	_Atomic uint64_t began_us, ended_us; /* util_now_us(); ended 0: it has not */
	_Atomic int64_t status;              /* a kiln_status, once it has ended */
};

struct trail {
	_Atomic uint64_t begun;   /* calls; the last is at (begun - 1) % TRAIL_CALLS */
	_Atomic uint64_t culprit; /* the number of the one that broke the device; 0: not known */
	struct trail_call calls[TRAIL_CALLS];
};

#endif
