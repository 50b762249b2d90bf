/*
 * executor_template: reads and checks a launch before it has buffers: kernel, shape, arguments, and
 * the requirements of each operand.  A message launches a template once; a lane keeps templates,
 * and launches them many times.
 */
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_module.h"
#include "executor_template.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Reads a list of exactly count unsigned integers. */
static bool read_uints(const msgpack_object *list, uint64_t *values, uint32_t count)
{
	if (wire_count(list) != count)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		const msgpack_object *value = wire_at(list, i);
		if (!value)
			return false;
		if (value->type == MSGPACK_OBJECT_BOOLEAN)
			values[i] = value->via.boolean;
		else if (value->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
			values[i] = value->via.u64;
		else
			return false;
	}
	return true;
}

/* Reads the arguments of a planned launch, which the broker sends as they lie in its memory. */
static int read_planned(const msgpack_object *bytes, int operand_count, struct kernel_arg *args,
						int *count, struct exec_request *request)
{
	uint32_t n = bytes->via.bin.size / sizeof(*args);
	if (bytes->via.bin.size % sizeof(*args) || n > KERNEL_MAX_ARGS)
		return exec_refuse(request, KILN_EPROTO, "%u bytes are not the arguments of a launch",
						   bytes->via.bin.size);
	if (n)
		memcpy(args, bytes->via.bin.ptr, n * sizeof(*args));
	for (uint32_t i = 0; i < n; i++) {
		struct kernel_arg *arg = &args[i];
		arg->data = NULL;
		bool fits = arg->kind == KERNEL_ARG_SCRATCH || arg->kind == KERNEL_ARG_REPORT;
		if (arg->kind == KERNEL_ARG_POINTER)
			fits = arg->operand >= 0 && arg->operand < operand_count;
		else if (arg->kind == KERNEL_ARG_SCALAR)
			fits = arg->bytes == 8 || (arg->bytes == 4 && arg->value <= UINT32_MAX);
		if (!fits)
			return exec_refuse(request, KILN_EPROTO,
							   "argument %u is neither an operand, nor a number of 4 or 8 bytes, "
							   "nor scratch memory, nor a report",
							   i);
	}
	*count = (int)n;
	return KILN_OK;
}

static int read_args(const msgpack_object *list, int operand_count, struct kernel_arg *args,
					 int *count, struct exec_request *request)
{
	uint32_t n = wire_count(list);
	uint64_t total = 0;
	if (list && list->type == MSGPACK_OBJECT_BIN)
		return read_planned(list, operand_count, args, count, request);
	if (n > KERNEL_MAX_ARGS)
		return exec_refuse(request, KILN_EPROTO, "a launch has %u arguments and may have %d", n,
						   KERNEL_MAX_ARGS);
	for (uint32_t i = 0; i < n; i++) {
		const msgpack_object *item = wire_at(list, i);
		uint64_t pointer[2], scalar[3], alone[1];
		if (read_uints(item, pointer, 2) && pointer[0] == 0 && pointer[1] < (uint64_t)operand_count)
			args[i] =
				(struct kernel_arg){.kind = KERNEL_ARG_POINTER, .operand = (int16_t)pointer[1]};
		else if (read_uints(item, scalar, 3) && scalar[0] == 1 &&
				 (scalar[1] == 4 || scalar[1] == 8) && (scalar[1] == 8 || scalar[2] <= UINT32_MAX))
			args[i] = (struct kernel_arg){
				.kind = KERNEL_ARG_SCALAR, .bytes = (uint16_t)scalar[1], .value = scalar[2]};
		else if (read_uints(item, alone, 1) && alone[0] == 2)
			args[i] = (struct kernel_arg){.kind = KERNEL_ARG_SCRATCH, .operand = -1};
		else if (read_uints(item, alone, 1) && alone[0] == 3)
			args[i] = (struct kernel_arg){.kind = KERNEL_ARG_REPORT, .operand = -1};
		else if (item && item->type == MSGPACK_OBJECT_BIN && item->via.bin.size > 0 &&
				 (total += item->via.bin.size) <= KERNEL_MAX_ARG_BYTES)
			args[i] = (struct kernel_arg){.kind = KERNEL_ARG_BYTES,
										  .bytes = (uint16_t)item->via.bin.size,
										  .data = item->via.bin.ptr};
		else
			return exec_refuse(
				request, KILN_EPROTO,
				"argument %u is neither [0, operand], [1, 4 or 8, value], [2], [3] nor a "
				"value of at most %d bytes in all",
				i, KERNEL_MAX_ARG_BYTES);
	}
	*count = (int)n;
	return KILN_OK;
}

/* Reads one operand: [buffer, offset, extent, alignment, written], and over, period, width where
 * they are not 0. */
static int read_operand(const msgpack_object *item, uint32_t number, struct exec_operand *operand,
						struct exec_place *place, struct exec_request *request)
{
	uint64_t v[8] = {0};
	if (!read_uints(item, v, wire_count(item) == 8 ? 8 : 5))
		return exec_refuse(request, KILN_EPROTO,
						   "operand %u is not [buffer, offset, extent, alignment, written]",
						   number);
	if (v[3] < 1 || v[3] > 16 || (v[3] & (v[3] - 1)) != 0)
		return exec_refuse(request, KILN_EPROTO,
						   "operand %u must be aligned to 1, 2, 4, 8 or 16 bytes, not %" PRIu64,
						   number, v[3]);
	*place = (struct exec_place){v[0], v[1]};
	operand->bytes = v[2];
	operand->alignment = (uint32_t)v[3];
	operand->written = v[4] != 0;
	operand->over = (uint32_t)v[5];
	operand->period = v[6];
	operand->width = v[7];
	return KILN_OK;
}

static int read_operands(const msgpack_object *map, struct exec_template *out,
						 struct exec_place places[KERNEL_MAX_OPERANDS],
						 struct exec_request *request)
{
	const msgpack_object *list = wire_get(map, "ops");
	const msgpack_object *names = wire_get(map, "names");
	uint32_t n = wire_count(list);
	if (n > KERNEL_MAX_OPERANDS)
		return exec_refuse(request, KILN_EPROTO, "a launch has %u operands and may have %d", n,
						   KERNEL_MAX_OPERANDS);
	for (uint32_t i = 0; i < n; i++) {
		int status = read_operand(wire_at(list, i), i, &out->operands[i], &places[i], request);
		if (status != KILN_OK)
			return status;
		const char *name = wire_get_str(request->message, wire_at(names, i), "n");
		snprintf(out->operands[i].name, sizeof(out->operands[i].name), "%s", name ? name : "");
	}
	out->operand_count = (int)n;
	return KILN_OK;
}

static int read_shape(struct launcher *launcher, const msgpack_object *root,
					  struct exec_template *launch, struct exec_request *request)
{
	const struct kernel_limits *limits = &launcher->executor->info.limits;
	uint64_t grid[3], block[3];
	uint64_t shared = wire_get_uint(root, "shared", UINT64_MAX);
	if (!read_uints(wire_get(root, "grid"), grid, 3) ||
		!read_uints(wire_get(root, "block"), block, 3))
		return exec_refuse(request, KILN_EPROTO,
						   "a launch needs grid and block of three numbers each");
	if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1 || grid[0] > limits->grid_x ||
		grid[1] > limits->grid_y || grid[2] > limits->grid_z)
		return exec_refuse(
			request, KILN_EINVAL,
			"a grid of %" PRIu64 "x%" PRIu64 "x%" PRIu64 " blocks is not within 1 to %ux%ux%u",
			grid[0], grid[1], grid[2], limits->grid_x, limits->grid_y, limits->grid_z);
	uint64_t most = limits->max_threads;
	if (block[0] < 1 || block[1] < 1 || block[2] < 1 || block[0] > most || block[1] > most ||
		block[2] > 64 || block[0] * block[1] * block[2] > most)
		return exec_refuse(request, KILN_EINVAL,
						   "a block of %" PRIu64 "x%" PRIu64 "x%" PRIu64
						   " threads is not within 1 to %" PRIu64 " threads, 64 in z",
						   block[0], block[1], block[2], most);
	if (shared > limits->shared_optin)
		return exec_refuse(request, KILN_EINVAL,
						   "%" PRIu64 " bytes of shared memory are more than the %u of a block",
						   shared, limits->shared_optin);
	for (int i = 0; i < 3; i++) {
		launch->grid[i] = (uint32_t)grid[i];
		launch->block[i] = (uint32_t)block[i];
	}
	launch->shared_bytes = (uint32_t)shared;
	return KILN_OK;
}

/* [bytes, counters]; absent: none. */
static int read_scratch(const msgpack_object *list, struct kernel_scratch *scratch,
						struct exec_request *request)
{
	uint64_t v[2];
	if (!list)
		return KILN_OK;
	if (!read_uints(list, v, 2))
		return exec_refuse(request, KILN_EPROTO,
						   "the scratch memory of a launch is not [bytes, counters]");
	if (v[0] > KERNEL_SCRATCH_MAX || v[1] > v[0])
		return exec_refuse(request, KILN_EINVAL,
						   "%" PRIu64 " bytes of scratch memory, %" PRIu64
						   " of them counters, are not within the %u bytes that a launch may have",
						   v[0], v[1], KERNEL_SCRATCH_MAX);
	*scratch = (struct kernel_scratch){v[0], v[1]};
	return KILN_OK;
}

/* [indices, end]; absent: none. */
static int read_report(const msgpack_object *list, struct kernel_report *report,
					   struct exec_request *request)
{
	uint64_t v[2];
	if (!list)
		return KILN_OK;
	if (!read_uints(list, v, 2))
		return exec_refuse(request, KILN_EPROTO, "the report of a launch is not [indices, end]");
	*report = (struct kernel_report){v[0], v[1]};
	return KILN_OK;
}

/* Checks a launch that copies bytes from operand 0 to operand 1. */
static int check_plain_copy(const struct exec_template *copy, struct exec_request *request)
{
	const struct exec_operand *operands = copy->operands;
	if (copy->operand_count != 2)
		return exec_refuse(request, KILN_EPROTO, "a copy has two operands, not %d",
						   copy->operand_count);
	if (copy->copy_bytes > operands[0].bytes || copy->copy_bytes > operands[1].bytes)
		return exec_refuse(request, KILN_EINVAL,
						   "a copy of %" PRIu64 " bytes is more than its operands' %" PRIu64
						   " and %" PRIu64,
						   copy->copy_bytes, operands[0].bytes, operands[1].bytes);
	return KILN_OK;
}

int exec_template_read(struct launcher *launcher, struct exec_request *request,
					   const msgpack_object *map, struct exec_template *out,
					   struct exec_place places[KERNEL_MAX_OPERANDS])
{
	uint64_t module = wire_get_uint(map, "mod", 0);
	bool copies = wire_get(map, "copy") != NULL;
	const char *op = wire_get_str(request->message, map, "op");
	memset(out, 0, sizeof(*out));
	snprintf(out->op, sizeof(out->op), "%s", op ? op : "");
	if (copies == (wire_get(map, "mod") != NULL))
		return exec_refuse(request, KILN_EPROTO,
						   "a launch names either its kernel (mod) or how many bytes it copies "
						   "(copy)");
	out->copies = copies;
	out->copy_bytes = wire_get_uint(map, "copy", UINT64_MAX);
	out->granule = wire_get_uint(map, "granule", 0) == 16 ? 16 : 0;
	int status = read_operands(map, out, places, request);
	if (status == KILN_OK)
		status = read_args(wire_get(map, "args"), out->operand_count, out->args, &out->arg_count,
						   request);
	if (status == KILN_OK)
		status = read_scratch(wire_get(map, "scratch"), &out->scratch, request);
	if (status == KILN_OK)
		status = read_report(wire_get(map, "report"), &out->report, request);
	if (status != KILN_OK)
		return status;
	if (copies)
		return check_plain_copy(out, request);
	out->module = exec_find_module(launcher, module);
	if (!out->module)
		return exec_refuse(request, KILN_ENOENT, "there is no module %" PRIu64, module);
	return read_shape(launcher, map, out, request);
}
