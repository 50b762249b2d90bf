/*
 * null_device.h: a device for the executor that has memory and runs nothing: what it is told to
 * launch it looks at as closely as a device can, and lets end when the target says so.  Everything
 * that it hands out is counted, and what it is handed must be alive.
 */
#ifndef KILN_TESTS_FUZZ_NULL_DEVICE_H
#define KILN_TESTS_FUZZ_NULL_DEVICE_H

#include "daemon/exec/device.h"

struct null_state {
	int memories, modules, graphs, flights;
	bool stalls; /* freeing and loading wait for a quiet moment */
	/* Called in each turn of the executor, before it is told of what has ended. */
	void (*turn)(void);
};
extern struct null_state null_state;

/* So many of what is under way may end, the oldest first, with this status. */
void null_end(int count, int status);

#endif
