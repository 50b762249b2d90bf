/*
 * cpu_module: a loaded object, and the lines of its source.
 */
#ifndef KILN_DAEMON_CPU_MODULE_H
#define KILN_DAEMON_CPU_MODULE_H

#include "cpu.h"
#include "kernel_src/cpu/abi.cuh"

#define CPU_PLACE_MAX 100 /* "scale.cu:12" */

struct device_module {
	void *handle;
	int fd; /* stays open: the loader tells objects apart by a path with this number */
	kiln_cpu_entry_function *entry;
	const struct kiln_cpu_module *about;
	uintptr_t image_base, image_begin, image_end; /* of the loaded object */
};

/* ---- cpu_place.c ---- */
/* Writes "scale.cu:12" for the instruction before `after`, and its caller's place if it was
 * inlined.  False: not known. */
bool cpu_place_find(const struct device_module *module, const void *after, char *place,
					size_t size);

#endif
