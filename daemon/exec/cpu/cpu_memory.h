/*
 * cpu_memory: a buffer between guard pages.  cpu_free() frees it.
 */
#ifndef KILN_DAEMON_CPU_MEMORY_H
#define KILN_DAEMON_CPU_MEMORY_H

#include "cpu.h"

struct device_memory {
	uint8_t *base;
	uint64_t bytes;
	uint8_t *map; /* with the guards */
	size_t map_bytes;
};

#endif
