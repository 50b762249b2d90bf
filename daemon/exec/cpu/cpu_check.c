/*
 * cpu_check: checks the accesses of kernels under kilnd --memcheck.  They may touch the operands of
 * their launch, from the first byte to the last, scratch and shared memory, their own variables and
 * stack.  Any other access ends the launch with a sentence before it happens, so the device stays
 * whole.  kernel_src/cpu/check.cuh calls cpu_check().
 */
#include "cpu_module.h"
#include "cpu_work.h"
#include "cpu_worker.h"
#include "daemon/base/util.h"

#include <inttypes.h>
#include <string.h>

#define NEAR_BYTES \
	(UINT64_C(64) << 20) /* an access farther away has nothing to do with the operand */

/* ---- Ranges ---- */

static void add_range(struct cpu_worker *worker, const void *begin, uint64_t bytes)
{
	if (!begin || bytes == 0 || worker->state.range_count == CPU_CHECK_RANGES)
		return;
	worker->ranges[worker->state.range_count++] =
		(struct kiln_cpu_range){(uintptr_t)begin, (unsigned long)bytes};
}

void cpu_check_begin(struct cpu_worker *worker)
{
	const struct cpu_work *work = worker->work;
	const struct kiln_cpu_variables *variables = work->module->about->variables;
	worker->state.ranges = worker->ranges;
	worker->state.range_count = worker->state.range_last = 0;
	add_range(worker, &worker->state, sizeof(worker->state));
	add_range(worker, worker->stacks, worker->stacks_bytes);
	add_range(worker, cpu_block_shared(worker), work->shared_bytes);
	for (int i = 0; i <= work->operand_count; i++)
		add_range(worker, work->operands[i].base, work->operands[i].bytes);
	for (unsigned long i = 0; variables && i < variables->count; i++) {
		const struct kiln_cpu_variable *variable = &variables->first[i];
		uintptr_t address = variable->address;
		add_range(worker, (const void *)address, variable->bytes);
	}
}

void cpu_check_end(struct cpu_worker *worker, struct cpu_work *work)
{
	work->accesses += worker->state.accesses;
	worker->state.accesses = 0;
}

/* Returns the variable whose zone the access touches, or NULL. */
static const struct kiln_cpu_variable *find_zone(const struct device_module *module,
												 uintptr_t address, uint64_t bytes)
{
	const struct kiln_cpu_variables *variables = module->about->variables;
	for (unsigned long i = 0; variables && i < variables->count; i++) {
		const struct kiln_cpu_variable *variable = &variables->first[i];
		uintptr_t begin = variable->address, end = begin + variable->bytes;
		if (address < begin + variable->bytes_with_zone && address + bytes > end &&
			address >= begin)
			return variable;
	}
	return NULL;
}

/* Allows reads of whole vectors that reach beyond an operand: the kernel does not use those
 * bytes. */
static bool is_in_granules(const struct cpu_work *work, uintptr_t address, uint64_t bytes)
{
	uint64_t granule = work->granule;
	for (int i = 0; granule && i < work->operand_count; i++) {
		uintptr_t begin = (uintptr_t)work->operands[i].base;
		uint64_t before = begin % granule, size = before + work->operands[i].bytes;
		const uint8_t *first = work->operands[i].base - (begin ? before : 0);
		if (cpu_is_within(address, bytes, first, (size + granule - 1) / granule * granule))
			return true;
	}
	return false;
}

/* Allows the memory through which the device calls and describes the kernel, and the rest of its
 * object. */
static bool is_allowed(const struct cpu_worker *worker, uintptr_t address, uint64_t bytes)
{
	const struct cpu_work *work = worker->work;
	const struct device_module *module = work->module;
	return cpu_is_within(address, bytes, &worker->state, sizeof(worker->state)) ||
		   cpu_is_within(address, bytes, work, sizeof(*work) + work->data_bytes) ||
		   cpu_is_within(address, bytes, &cpu_runtime, sizeof(cpu_runtime)) ||
		   (address >= module->image_begin && address < module->image_end &&
			!find_zone(module, address, bytes));
}

/* ---- Sentences ---- */

/* Returns the operand that the access is nearest to, by its byte farthest outside; -1: none is
 * near. */
static int nearest_operand(const struct cpu_work *work, uintptr_t address, uint64_t bytes)
{
	uint64_t best = NEAR_BYTES;
	int found = -1;
	for (int i = 0; i <= work->operand_count; i++) {
		uintptr_t begin = (uintptr_t)work->operands[i].base;
		uintptr_t end = begin + work->operands[i].bytes;
		uint64_t far = address < begin ? begin - address : address + bytes - end;
		if (begin && far < best) {
			best = far;
			found = i;
		}
	}
	return found;
}

size_t cpu_describe_end(const char *name, const void *begin, uint64_t bytes, uintptr_t address,
						char *text, size_t size, size_t used)
{
	uint64_t at = address - (uintptr_t)begin;
	const char *where = address < (uintptr_t)begin ? "before the beginning"
						: at < bytes               ? "across the end"
												   : "beyond the end";
	return util_append(text, size, used, "%s of %s, at byte %" PRId64 " of %" PRIu64, where, name,
					   (int64_t)at, bytes);
}

size_t cpu_describe_operand(const struct cpu_work *work, int operand, uintptr_t address, char *text,
							size_t size, size_t used)
{
	char name[24];
	if (operand == work->operand_count)
		snprintf(name, sizeof(name), "scratch memory");
	else if (work->operands[operand].name[0])
		snprintf(name, sizeof(name), "%s", work->operands[operand].name);
	else
		snprintf(name, sizeof(name), "operand %d", operand);
	return cpu_describe_end(name, work->operands[operand].base, work->operands[operand].bytes,
							address, text, size, used);
}

static size_t describe_touch(const struct cpu_worker *worker, const struct kiln_cpu_access *access,
							 char *text, size_t size, size_t used)
{
	const struct cpu_work *work = worker->work;
	uintptr_t address = access->address;
	const struct kiln_cpu_variable *variable = find_zone(work->module, address, access->bytes);
	used = util_append(text, size, used, "%s %lu byte%s ",
					   access->doubt == KILN_CPU_READS ? "reads" : "writes", access->bytes,
					   access->bytes == 1 ? "" : "s");
	if (address < 4096)
		return util_append(text, size, used, "at address %#" PRIxPTR ", a null pointer", address);
	if (variable)
		return cpu_describe_end(variable->name, (const void *)(uintptr_t)variable->address,
								variable->bytes, address, text, size, used);
	if (cpu_is_within(address, 1, worker->shared, worker->shared_bytes))
		return cpu_describe_end("dynamic shared memory", worker->state.shared, work->shared_bytes,
								address, text, size, used);
	int operand = nearest_operand(work, address, access->bytes);
	if (operand < 0)
		return util_append(text, size, used, "at address %#" PRIxPTR ", which is in no operand",
						   address);
	return cpu_describe_operand(work, operand, address, text, size, used);
}

/* Compilers put types into quotes. */
static void unquote(const char *type, char *text, size_t size)
{
	size_t length = strlen(type);
	bool quoted = length >= 2 && type[0] == '\'' && type[length - 1] == '\'';
	snprintf(text, size, "%.*s", (int)(quoted ? length - 2 : length), type + quoted);
}

static size_t describe_access(const struct cpu_worker *worker, const struct kiln_cpu_access *access,
							  char *text, size_t size, size_t used)
{
	char type[80];
	switch (access->doubt) {
	case KILN_CPU_READS:
	case KILN_CPU_WRITES:
		return describe_touch(worker, access, text, size, used);
	case KILN_CPU_MISALIGNED:
		unquote(access->type, type, sizeof(type));
		return util_append(text, size, used,
						   "accesses a %s at address %#lx, which is not a multiple of %lu", type,
						   access->address, access->bytes);
	case KILN_CPU_INDEX:
		break;
	}
	unquote(access->type, type, sizeof(type));
	return util_append(text, size, used, "uses index %ld of an array %s", (long)access->address,
					   type);
}

void cpu_check(struct kiln_cpu_state *state, const struct kiln_cpu_access *access)
{
	struct cpu_worker *worker = (struct cpu_worker *)state;
	const struct device_module *module = worker->work->module;
	const struct kiln_cpu_dim *block = &state->block, *thread = &state->thread;
	bool is_touch = access->doubt == KILN_CPU_READS || access->doubt == KILN_CPU_WRITES;
	char text[KERNEL_ERROR_MAX], place[2 * CPU_PLACE_MAX];
	if (is_touch && is_allowed(worker, access->address, access->bytes))
		return;
	if (access->doubt == KILN_CPU_READS &&
		is_in_granules(worker->work, access->address, access->bytes))
		return;
	if (!cpu_place_find(module, access->after, place, sizeof(place))) {
		if (access->file)
			snprintf(place, sizeof(place), "%s:%d", access->file, access->line);
		else
			snprintf(place, sizeof(place), "no line is known, for that needs addr2line in PATH");
	}
	size_t used =
		util_append(text, sizeof(text), 0, "%s: block (%u,%u,%u), thread (%u,%u,%u): ", place,
					block->x, block->y, block->z, thread->x, thread->y, thread->z);
	used = describe_access(worker, access, text, sizeof(text), used);
	util_append(text, sizeof(text), used, " (kernel %s)", module->about->name);
	cpu_block_leave(worker, text);
}

void cpu_check_fault(struct cpu_work *work)
{
	char place[2 * CPU_PLACE_MAX], text[KERNEL_ERROR_MAX];
	const char *after = work->fault;
	work->fault = NULL;
	if (!after || !work->module->about->variables ||
		!cpu_place_find(work->module, after + 1, place, sizeof(place)))
		return;
	snprintf(text, sizeof(text), "%s", work->error);
	util_append(work->error, sizeof(work->error), 0, "%s: %s", place, text);
}
