/* handle_modules.c: the kernels that a device process has loaded, and loads under way.  A key is
 * loaded once for all who ask; where there are too many, the least recently used goes. */
#include "handle_state.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/events.h"
#include "daemon/plan/plan.h"

#define MODULES_MOST 4096 /* of one process; below what it takes itself */

static void free_module(struct handle_module *module)
{
	while (module->waiters) {
		struct module_wait *next = module->waiters->next;
		free(module->waiters);
		module->waiters = next;
	}
	free(module->params);
	free(module);
}

static void keep_params(struct handle_module *module, const struct wire_in *reply)
{
	int64_t params[KERNEL_MAX_ARGS];
	int count = wire_get_ints(&reply->root, "params", params, KERNEL_MAX_ARGS);
	if (count < 0 || count > KERNEL_MAX_ARGS ||
		!(module->params = calloc((size_t)count + 1, sizeof(*params))))
		return;
	memcpy(module->params, params, (size_t)count * sizeof(*params));
	module->param_count = count;
}

void handle_put_params(struct device_handle *handle, const char *key, struct wire_out *out)
{
	const struct handle_module *module = map_get(&handle->modules, key, KERNEL_KEY_HEX - 1);
	if (module && module->params)
		wire_put_ints(out, "params", module->params, module->param_count);
}

static void on_module_loaded(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct handle_module *module = arg;
	struct module_wait *waiter;
	module->ready = status == KILN_OK;
	/* The load may have waited for long.  It counts as used now, so that the next load does not
	 * drop it before its waiters use it. */
	module->used = ++module->handle->next_use;
	if (status == KILN_ECOMPILE)
		module->handle->device->broker->events->object_refused(module->handle->device->broker,
															   module->key, error);
	if (reply)
		keep_params(module, reply);
	while ((waiter = module->waiters)) {
		module->waiters = waiter->next;
		if (waiter->done)
			waiter->done(waiter->arg, status, error, reply);
		free(waiter);
	}
	if (status != KILN_OK) {
		map_remove(&module->handle->modules, module->key, KERNEL_KEY_HEX - 1);
		free_module(module);
	}
}

void handle_drop_modules(struct device_handle *handle)
{
	size_t cursor = 0;
	struct handle_module *module;
	while ((module = map_next(&handle->modules, &cursor)))
		free_module(module);
	map_free(&handle->modules);
}

uint64_t handle_module(struct device_handle *handle, const char *key)
{
	struct handle_module *module = map_get(&handle->modules, key, KERNEL_KEY_HEX - 1);
	if (!module || !module->ready)
		return 0;
	module->used = ++handle->next_use;
	return module->id;
}

/* Unloads the module that was not used for longest.  The process keeps it until the launches that
 * were sent before have ended. */
static void unload_oldest(struct device_handle *handle)
{
	struct handle_module *module, *oldest = NULL;
	struct wire_out message;
	size_t cursor = 0;
	while ((module = map_next(&handle->modules, &cursor)))
		if (module->ready && !module->kept && (!oldest || module->used < oldest->used))
			oldest = module;
	if (!oldest)
		return;
	uint64_t id = handle_begin(handle, &message, "unload");
	wire_put_uint(&message, "mod", oldest->id);
	handle_post(handle, &message, id);
	map_remove(&handle->modules, oldest->key, KERNEL_KEY_HEX - 1);
	free_module(oldest);
}

static int send_load(struct device_handle *handle, struct handle_module *module,
					 const struct cache_row *row, const struct kernel_plan *plan, bool lazy)
{
	struct wire_out message;
	uint64_t id = handle_begin(handle, &message, "load");
	wire_put_uint(&message, "mod", module->id);
	wire_put_str(&message, "entry", row->entry);
	wire_put_uint(&message, "shared", plan->shared_bytes);
	wire_put_bool(&message, "lazy", lazy);
	/* By these two a device process finds what it has planned itself. */
	if (!strcmp(plan->variant, PLAN_GENERIC) && !plan->generated[0]) {
		wire_put_str(&message, "source", plan->source);
		wire_put_str(&message, "instantiation", plan->instantiation);
	}
	wire_put_bin(&message, "object", row->object, row->object_bytes);
	return handle_send_waiting(handle, &message, id, on_module_loaded, module);
}

static int load_module(struct device_handle *handle, const char *key, const struct cache_row *row,
					   const struct kernel_plan *plan, bool lazy, handle_done done, void *arg)
{
	struct handle_module *module = map_get(&handle->modules, key, KERNEL_KEY_HEX - 1);
	struct module_wait *waiter;
	if (handle->state != HANDLE_READY)
		return KILN_EDEVICE;
	if (module && module->ready) {
		done(arg, KILN_OK, NULL, NULL);
		return KILN_OK;
	}
	waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		return KILN_ENOMEM;
	*waiter = (struct module_wait){done, arg, util_now_us(), module ? module->waiters : NULL};
	if (module) {
		module->waiters = waiter;
		return KILN_OK;
	}
	if (handle->modules.count >= MODULES_MOST)
		unload_oldest(handle);
	module = calloc(1, sizeof(*module));
	if (!module || map_put(&handle->modules, key, KERNEL_KEY_HEX - 1, module) < 0) {
		free(module);
		free(waiter);
		return KILN_ENOMEM;
	}
	memcpy(module->key, key, KERNEL_KEY_HEX);
	module->id = broker_id(handle->device->broker);
	module->used = ++handle->next_use;
	module->handle = handle;
	module->waiters = waiter;
	int status = send_load(handle, module, row, plan, lazy);
	if (status != KILN_OK) {
		map_remove(&handle->modules, key, KERNEL_KEY_HEX - 1);
		free(waiter);
		free(module);
	}
	return status;
}

int handle_load(struct device_handle *handle, const char *key, const struct cache_row *row,
				const struct kernel_plan *plan, handle_done done, void *arg)
{
	return load_module(handle, key, row, plan, false, done, arg);
}

int handle_load_lazily(struct device_handle *handle, const char *key, const struct cache_row *row,
					   const struct kernel_plan *plan, handle_done done, void *arg)
{
	return load_module(handle, key, row, plan, true, done, arg);
}

void handle_keep(struct device_handle *handle, const char *key)
{
	struct handle_module *module = map_get(&handle->modules, key, KERNEL_KEY_HEX - 1);
	if (module)
		module->kept = true;
}

void handle_note_shape(struct device_handle *handle, uint64_t shape)
{
	struct wire_out message;
	if (handle->state != HANDLE_READY)
		return;
	uint64_t id = handle_begin(handle, &message, "shape");
	wire_put_uint(&message, "shape", shape);
	handle_post(handle, &message, id);
}
