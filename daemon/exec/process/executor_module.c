/*
 * executor_module: kernels: loading and unloading them, at once or when the device is quiet.
 */
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_module.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void module_assert_valid(const struct exec_module *module)
{
	assert((module->state == MODULE_LOADING) == !module->module);
	assert(module->uses >= 0 && (module->state != MODULE_LOADING || module->uses == 0));
	(void)module;
}

/* On one device and in one kilnd, the source file and the template-id name a kernel. */
static void name_generic(const char *source, const char *instantiation, unsigned char name[32])
{
	struct util_hash hash;
	util_hash_begin(&hash);
	util_hash_add(&hash, source, strlen(source) + 1);
	util_hash_add(&hash, instantiation, strlen(instantiation) + 1);
	util_hash_end(&hash, name);
}

/* A module that waits to be loaded.  Its entry and object follow this struct in memory. */
struct exec_load {
	uint64_t request, id;
	uint32_t shared;
	size_t bytes;
	bool lazy;
	uint64_t quiet_us; /* when the device was quiet, for one that has waited for that */
	struct exec_module *module;
	const char *entry;
	uint8_t *object;
};

static void answer_load(struct exec *executor, const struct exec_load *load)
{
	const struct exec_module *module = load->module;
	struct device_kernel kernel = {.param_count = -1};
	int64_t params[KERNEL_MAX_ARGS];
	struct wire_out reply;
	executor->ops->describe(module->module, &kernel);
	for (int i = 0; i < kernel.param_count && i < KERNEL_MAX_ARGS; i++)
		params[i] = kernel.params[i];
	wire_begin(&reply, "reply", load->request);
	wire_put_int(&reply, "st", KILN_OK);
	if (load->quiet_us) {
		wire_list_begin(&reply, "quiet");
		wire_put_uint(&reply, NULL, module->task.added_us);
		wire_put_uint(&reply, NULL, load->quiet_us);
		wire_list_end(&reply);
	}
	if (kernel.param_count >= 0 && kernel.param_count <= KERNEL_MAX_ARGS)
		wire_put_ints(&reply, "params", params, kernel.param_count);
	exec_send(executor, &reply, -1);
}

/* Answers a success itself.  Frees a module that cannot be loaded. */
static int load_now(struct exec *executor, const struct exec_load *load,
					char error[KERNEL_ERROR_MAX])
{
	int status = executor->ops->load(executor->device, load->object, load->bytes, load->entry,
									 load->shared, &load->module->module, error);
	if (status == KILN_OK) {
		load->module->state = MODULE_LOADED;
		/* Without memory its calls are planned by the broker. */
		if (load->module->named)
			(void)map_put(&executor->generics, load->module->name, sizeof(load->module->name),
						  load->module);
		module_assert_valid(load->module);
		answer_load(executor, load);
	} else {
		map_remove_id(&executor->modules, load->id);
		free(load->module);
	}
	return status;
}

static void load_later(struct exec *executor, void *what)
{
	struct exec_load *load = what;
	char error[KERNEL_ERROR_MAX] = "";
	load->quiet_us = util_now_us();
	int status = load_now(executor, load, error);
	if (status != KILN_OK)
		exec_reply(executor, load->request, status, error);
	free(load);
}

/* Makes a task of the load, with a copy of the parts of the message, which goes when the request
 * returns. */
static int put_off(struct launcher *launcher, const struct exec_load *load,
				   char error[KERNEL_ERROR_MAX])
{
	size_t name = strlen(load->entry) + 1;
	struct exec_load *later = malloc(sizeof(*later) + load->bytes + name);
	if (!later) {
		map_remove_id(&launcher->executor->modules, load->id);
		free(load->module);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "out of memory for an object of %zu bytes", load->bytes);
	}
	*later = *load;
	later->object = (uint8_t *)(later + 1);
	memcpy(later->object, load->object, load->bytes);
	later->entry = memcpy(later->object + load->bytes, load->entry, name);
	load->module->task = (struct exec_task){
		.kind = load->lazy ? EXEC_TASK_LAZY : EXEC_TASK_LOAD, .perform = load_later, .what = later};
	exec_quiet_do(launcher->executor, &load->module->task, NULL);
	return KILN_OK;
}

int exec_load(struct launcher *launcher, struct exec_request *request)
{
	const msgpack_object *root = request->root;
	uint64_t id = wire_get_uint(root, "mod", 0), shared = wire_get_uint(root, "shared", 0);
	const char *entry = wire_get_str(request->message, root, "entry");
	size_t bytes;
	const void *object = wire_get_bin(root, "object", &bytes);
	if (id == 0 || map_get_id(&launcher->executor->modules, id) || !entry || !object || bytes == 0)
		return exec_refuse(
			request, KILN_EPROTO,
			"a load needs a new module id, an entry and an object, and has id %" PRIu64
			" and %zu bytes",
			id, object ? bytes : 0);
	if (shared > launcher->executor->info.limits.shared_optin)
		return exec_refuse(request, KILN_EINVAL,
						   "%" PRIu64 " bytes of shared memory are more than the %u of a block",
						   shared, launcher->executor->info.limits.shared_optin);
	if (launcher->executor->modules.count >= EXEC_MAX_MODULES)
		return exec_refuse(request, KILN_ELIMIT, "a device process holds at most %d kernels",
						   EXEC_MAX_MODULES);
	struct exec_module *module = calloc(1, sizeof(*module));
	if (!module || map_put_id(&launcher->executor->modules, id, module) < 0) {
		free(module);
		return exec_refuse(request, KILN_ENOMEM, "out of memory for a kernel's record");
	}
	const char *source = wire_get_str(request->message, root, "source");
	const char *instantiation = wire_get_str(request->message, root, "instantiation");
	module->named = source && instantiation;
	if (module->named)
		name_generic(source, instantiation, module->name);
	const struct exec_load load = {.request = request->id,
								   .id = id,
								   .shared = (uint32_t)shared,
								   .bytes = bytes,
								   .lazy = wire_get_bool(root, "lazy", false),
								   .module = module,
								   .entry = entry,
								   .object = (uint8_t *)object};
	return exec_quiet_waits(launcher->executor, NULL)
			   ? put_off(launcher, &load, request->error)
			   : load_now(launcher->executor, &load, request->error);
}

static void unload_now(struct exec *executor, void *what)
{
	struct exec_module *module = what;
	executor->ops->unload(executor->device, module->module);
	exec_reply(executor, module->unload_id, KILN_OK, NULL);
	free(module);
}

void exec_release_module(struct launcher *launcher, struct exec_module *module)
{
	module_assert_valid(module);
	if (atomic_fetch_sub(&module->uses, 1) > 1 || module->state != MODULE_LEAVING)
		return;
	module->task =
		(struct exec_task){.kind = EXEC_TASK_LAZY, .perform = unload_now, .what = module};
	exec_quiet_hand_over(launcher, &module->task, NULL);
}

struct exec_module *exec_find_module(const struct launcher *launcher, uint64_t id)
{
	struct exec_module *module = map_get_id(&launcher->executor->modules, id);
	return module && module->state == MODULE_LOADED ? module : NULL;
}

struct exec_module *exec_find_generic(const struct launcher *launcher,
									  const struct kernel_plan *plan)
{
	unsigned char name[32];
	name_generic(plan->source, plan->instantiation, name);
	return map_get(&launcher->executor->generics, name, sizeof(name));
}

int exec_unload(struct launcher *launcher, struct exec_request *request)
{
	uint64_t id = wire_get_uint(request->root, "mod", 0);
	struct exec_module *module = exec_find_module(launcher, id);
	if (!module)
		return exec_refuse(request, KILN_ENOENT, "there is no module %" PRIu64, id);
	map_remove_id(&launcher->executor->modules, id);
	if (module->named &&
		map_get(&launcher->executor->generics, module->name, sizeof(module->name)) == module)
		map_remove(&launcher->executor->generics, module->name, sizeof(module->name));
	exec_hold_module(module);
	module->state = MODULE_LEAVING;
	module->unload_id = request->id;
	exec_release_module(launcher, module);
	return KILN_OK;
}
