/*
 * trail.h: the last calls that a device process has begun, and how long it was busy.  The broker
 * makes this memory, the device process writes it, and the broker reads the calls when that process
 * is dead, the times whenever somebody asks: numbers only, without a lock.  The broker checks all
 * of them, because a user's kernel may have written there, too.
 */
#ifndef KILN_DAEMON_TRAIL_H
#define KILN_DAEMON_TRAIL_H

#include <stdatomic.h>
#include <stdint.h>

#define TRAIL_CALLS 1024u
#define TRAIL_ACCOUNTS 64u /* the broker's numbers of those for whom the device works */
#define TRAIL_UNITS 65536u /* of an account's time in a microsecond */

/* A cache line each. */
struct trail_call {
	_Alignas(64) _Atomic uint64_t number; /* from 1 on; written last; 0: none */
	/* For a call that came by message, its request and 0; for one of a lane, the call or graph, and
	 * the lane's stream. */
	_Atomic uint64_t name, stream;
	_Atomic uint64_t began_us, ended_us; /* util_now_us(); ended_us 0: it has not ended */
	_Atomic int64_t status;              /* a kiln_status, once it has ended */
	_Atomic uint64_t line;               /* the device's stream */
};

struct trail {
	_Atomic uint64_t begun;   /* calls; the last is at (begun - 1) % TRAIL_CALLS */
	_Atomic uint64_t culprit; /* the number of the call that broke the device; 0: not known */
	/* The time in which the device had work, and each account's part of it.  At each moment the
	 * accounts that have work share alike, so the parts add up to the whole. */
	_Atomic uint64_t busy_us, shares[TRAIL_ACCOUNTS];
	struct trail_call calls[TRAIL_CALLS];
};

#endif
