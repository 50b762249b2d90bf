/*
 * executor_module: loaded kernels, by the broker's numbers.
 *
 *   LOADING --(the device is quiet)--> LOADED --(unload)--> LEAVING --(the last use ends)--> gone
 *
 * LOADING: module is NULL.  LEAVING: unload_id is set, and executor->modules has it no more; the
 * last of its uses (flights, templates, graphs) unloads it and answers the request.
 */
#ifndef KILN_DAEMON_EXECUTOR_MODULE_H
#define KILN_DAEMON_EXECUTOR_MODULE_H

#include "executor.h"

struct exec_module {
	struct device_module *module; /* NULL: LOADING */
	int uses;
	uint64_t unload_id;
	struct exec_task task;
};

int exec_load(struct exec *executor, struct wire_in *message, struct frame *frame,
			  char error[KERNEL_ERROR_MAX]);
int exec_unload(struct exec *executor, struct wire_in *message, struct frame *frame,
				char error[KERNEL_ERROR_MAX]);
/* NULL: no loaded kernel has that number. */
struct exec_module *exec_find_module(const struct exec *executor, uint64_t id);
void exec_release_module(struct exec *executor, struct exec_module *module);

#endif
