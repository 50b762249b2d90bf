/*
 * executor_module: loaded kernels, by the broker's numbers.
 *
 *   LOADING --(the device is quiet)--> LOADED --(unload)--> LEAVING --(the last use ends)--> gone
 *
 * - LOADING: the task owns the module's object; nobody may use it.
 * - LOADED: launcher->executor->modules has it.
 * - LEAVING: its uses (flights, templates, graphs) alone have it.  The last of them unloads it, and
 *   then the request unload is answered.
 */
#ifndef KILN_DAEMON_EXECUTOR_MODULE_H
#define KILN_DAEMON_EXECUTOR_MODULE_H

#include "executor.h"

enum exec_module_state { MODULE_LOADING, MODULE_LOADED, MODULE_LEAVING };

/* executor_module.c frees it. */
struct exec_module {
	enum exec_module_state state;
	struct device_module *module; /* NULL: LOADING */
	_Atomic int uses;
	uint64_t unload_id;     /* LEAVING: the request unload */
	unsigned char name[32]; /* of a generic kernel */
	bool named;
	struct exec_task task;
};

exec_handler exec_load, exec_unload;
/* NULL: no loaded kernel has that number. */
struct exec_module *exec_find_module(const struct launcher *launcher, uint64_t id);
/* The loaded generic kernel of a plan; NULL: there is none. */
struct exec_module *exec_find_generic(const struct launcher *launcher,
									  const struct kernel_plan *plan);
static inline void exec_hold_module(struct exec_module *module)
{
	module->uses++;
}
void exec_release_module(struct launcher *launcher, struct exec_module *module);

#endif
