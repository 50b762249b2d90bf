/*
 * test_state.h: what the "debug" request sets in place of what is usual; 0 is the usual.  All of it
 * stays zero in a build without tests.
 */
#ifndef KILN_DAEMON_TEST_STATE_H
#define KILN_DAEMON_TEST_STATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "daemon/base/misdeed.h"

/* The request that is answered when all lanes have ended. */
struct lanes_end {
	uint64_t session, request;
};

struct test_state {
	struct lanes_end lanes_end;
	_Atomic uint32_t delay_compile_ms, remote_patience_ms;
	_Atomic uint32_t remote_claim_ms; /* how long a claim lasts */
	_Atomic uint32_t remote_look_ms;  /* before a winner of tuning is looked for again */
	_Atomic uint32_t hello_deadline_ms, store_deadline_ms;
	_Atomic uint32_t delay_store_ms; /* the store's threads read it: a delay ends when it is 0 */
	_Atomic uint32_t idle_executor_ms;
	_Atomic uint32_t restart_pause_ms; /* the longest before a child starts again */
	uint32_t delay_launch_ms;
	uint64_t available_bytes;     /* of memory, as if it were so */
	enum misdeed compile_misdeed; /* of the next misdeeds_left compiles */
	int misdeeds_left;
	enum misdeed start_misdeed[2]; /* of the next starts_left device processes, compilers ([1]) */
	int starts_left[2];
	_Atomic uint32_t start_deadline_ms, call_deadline_ms; /* of children, at most */
	double gain_us;                                       /* what an exact kernel saves a launch */
};

#endif
