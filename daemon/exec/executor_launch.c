/*
 * exec_launch: launches and copies: everything the broker says of one is checked again, then
 * the device has it.  What a flight uses stays until it has ended.
 */
#include "daemon/util/util.h"
#include "executor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int reject(char error[KERNEL_ERROR_MAX], const char *what)
{
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO, "%s", what);
}

/* ---- Flights ---- */

static struct exec_flight *flight_new(struct exec *executor, uint64_t id,
									  char error[KERNEL_ERROR_MAX])
{
	if (id == 0 || map_get_id(&executor->flights, id)) {
		util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
				  "the request's id %" PRIu64 " is 0 or in flight", id);
		return NULL;
	}
	struct exec_flight *flight = calloc(1, sizeof(*flight));
	if (!flight) {
		util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a call's record");
		return NULL;
	}
	flight->id = id;
	return flight;
}

static void flight_hold_buffer(struct exec_flight *flight, struct exec_buffer *buffer)
{
	buffer->uses++;
	flight->buffers[flight->buffer_count++] = buffer;
}

static void flight_free(struct exec *executor, struct exec_flight *flight)
{
	for (int i = 0; i < flight->buffer_count; i++)
		exec_release_buffer(executor, flight->buffers[i]);
	if (flight->module)
		exec_release_module(executor, flight->module);
	exec_unmap(executor, flight->mapping);
	free(flight);
}

void exec_finish(struct exec *executor, const struct device_done *done)
{
	struct exec_flight *flight = map_remove_id(&executor->flights, done->ticket);
	if (!flight) {
		util_log(UTIL_WARN, "the device ended work %" PRIu64 ", which it was not given",
				 done->ticket);
		return;
	}
	struct wire_out message;
	wire_begin(&message, "reply", done->ticket);
	wire_put_int(&message, "st", done->status);
	if (done->status != KILN_OK)
		wire_put_str(&message, "err", done->error);
	wire_put_uint(&message, "us", done->micros);
	if (done->accesses) {
		wire_put_uint(&message, "blocks", done->blocks);
		wire_put_uint(&message, "accesses", done->accesses);
	}
	if (done->status == KILN_EINDEX)
		wire_put_uint(&message, "reported", done->reported);
	exec_send(executor, &message, -1);
	flight_free(executor, flight);
}

/* ---- Reading a launch ---- */

/* Exactly count unsigned integers of a list. */
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

static int read_args(const msgpack_object *list, int operand_count, struct kernel_arg *args,
					 int *count, char error[KERNEL_ERROR_MAX])
{
	uint32_t n = wire_count(list);
	uint64_t total = 0;
	if (n > KERNEL_MAX_ARGS)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "a launch has %u arguments and may have %d", n, KERNEL_MAX_ARGS);
	for (uint32_t i = 0; i < n; i++) {
		const msgpack_object *item = wire_at(list, i);
		uint64_t pointer[2], scalar[3], alone[1];
		if (read_uints(item, pointer, 2) && pointer[0] == 0 && pointer[1] < (uint64_t)operand_count)
			args[i] = (struct kernel_arg){.kind = KERNEL_ARG_POINTER, .operand = (int)pointer[1]};
		else if (read_uints(item, scalar, 3) && scalar[0] == 1 &&
				 (scalar[1] == 4 || scalar[1] == 8) && (scalar[1] == 8 || scalar[2] <= UINT32_MAX))
			args[i] = (struct kernel_arg){
				.kind = KERNEL_ARG_SCALAR, .bytes = (uint32_t)scalar[1], .value = scalar[2]};
		else if (read_uints(item, alone, 1) && alone[0] == 2)
			args[i] = (struct kernel_arg){.kind = KERNEL_ARG_SCRATCH, .operand = -1};
		else if (read_uints(item, alone, 1) && alone[0] == 3)
			args[i] = (struct kernel_arg){.kind = KERNEL_ARG_REPORT, .operand = -1};
		else if (item && item->type == MSGPACK_OBJECT_BIN && item->via.bin.size > 0 &&
				 (total += item->via.bin.size) <= KERNEL_MAX_ARG_BYTES)
			args[i] = (struct kernel_arg){
				.kind = KERNEL_ARG_BYTES, .bytes = item->via.bin.size, .data = item->via.bin.ptr};
		else
			return util_fail(
				error, KERNEL_ERROR_MAX, KILN_EPROTO,
				"argument %u is neither [0, operand], [1, 4 or 8, value], [2], [3] nor a "
				"value of at most %d bytes in all",
				i, KERNEL_MAX_ARG_BYTES);
	}
	*count = (int)n;
	return KILN_OK;
}

/* One operand: [buffer, offset, extent, alignment, written]. */
static int read_operand(struct exec *executor, const msgpack_object *item, uint32_t number,
						struct exec_flight *flight, struct device_operand *out, uint64_t *extent,
						char error[KERNEL_ERROR_MAX])
{
	uint64_t v[5];
	if (!read_uints(item, v, 5))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "operand %u is not [buffer, offset, extent, alignment, written]", number);
	*out = (struct device_operand){NULL, 0};
	*extent = v[2];
	if (v[0] == 0 && v[2] == 0)
		return KILN_OK;
	struct exec_buffer *buffer = map_get_id(&executor->buffers, v[0]);
	if (!buffer)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
						 "operand %u: there is no buffer %" PRIu64, number, v[0]);
	if (v[1] > buffer->bytes || v[2] > buffer->bytes - v[1])
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "operand %u: %" PRIu64 " bytes at %" PRIu64
						 " are not within its buffer of %" PRIu64 " bytes",
						 number, v[2], v[1], buffer->bytes);
	bool is_power = v[3] > 0 && v[3] <= 16 && (v[3] & (v[3] - 1)) == 0;
	if (!is_power || (buffer->misaligned + v[1]) % v[3] != 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "operand %u begins at byte %" PRIu64
						 " of its buffer, which is not a multiple of %" PRIu64
						 " (1, 2, 4, 8 or 16) in memory",
						 number, v[1], v[3]);
	flight_hold_buffer(flight, buffer);
	*out = (struct device_operand){.memory = buffer->memory, .offset = v[1], .bytes = v[2]};
	return KILN_OK;
}

static int read_operands(struct exec *executor, struct wire_in *message, struct exec_flight *flight,
						 struct device_operand *operands, uint64_t *extents, int *count,
						 char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *list = wire_get(&message->root, "ops");
	const msgpack_object *names = wire_get(&message->root, "names");
	uint32_t n = wire_count(list);
	if (n > KERNEL_MAX_OPERANDS)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "a launch has %u operands and may have %d", n, KERNEL_MAX_OPERANDS);
	for (uint32_t i = 0; i < n; i++) {
		int status =
			read_operand(executor, wire_at(list, i), i, flight, &operands[i], &extents[i], error);
		if (status != KILN_OK)
			return status;
		operands[i].name = wire_get_str(message, wire_at(names, i), "n");
	}
	*count = (int)n;
	return KILN_OK;
}

static int read_shape(struct exec *executor, const msgpack_object *root,
					  struct device_launch *launch, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_limits *limits = &executor->info.limits;
	uint64_t grid[3], block[3];
	uint64_t shared = wire_get_uint(root, "shared", UINT64_MAX);
	if (!read_uints(wire_get(root, "grid"), grid, 3) ||
		!read_uints(wire_get(root, "block"), block, 3))
		return reject(error, "a launch needs grid and block of three numbers each");
	if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1 || grid[0] > limits->grid_x ||
		grid[1] > limits->grid_y || grid[2] > limits->grid_z)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a grid of %" PRIu64 "x%" PRIu64 "x%" PRIu64
						 " blocks is not within 1 to %ux%ux%u",
						 grid[0], grid[1], grid[2], limits->grid_x, limits->grid_y, limits->grid_z);
	uint64_t most = limits->max_threads;
	if (block[0] < 1 || block[1] < 1 || block[2] < 1 || block[0] > most || block[1] > most ||
		block[2] > 64 || block[0] * block[1] * block[2] > most)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a block of %" PRIu64 "x%" PRIu64 "x%" PRIu64
						 " threads is not within 1 to %" PRIu64 " threads, 64 in z",
						 block[0], block[1], block[2], most);
	if (shared > limits->shared_optin)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
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
						char error[KERNEL_ERROR_MAX])
{
	uint64_t v[2];
	if (!list)
		return KILN_OK;
	if (!read_uints(list, v, 2))
		return reject(error, "the scratch memory of a launch is not [bytes, counters]");
	if (v[0] > KERNEL_SCRATCH_MAX || v[1] > v[0])
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%" PRIu64 " bytes of scratch memory, %" PRIu64
						 " of them counters, are not within the %u bytes that a launch may have",
						 v[0], v[1], KERNEL_SCRATCH_MAX);
	*scratch = (struct kernel_scratch){v[0], v[1]};
	return KILN_OK;
}

/* [indices, end]; absent: none. */
static int read_report(const msgpack_object *list, struct kernel_report *report,
					   char error[KERNEL_ERROR_MAX])
{
	uint64_t v[2];
	if (!list)
		return KILN_OK;
	if (!read_uints(list, v, 2))
		return reject(error, "the report of a launch is not [indices, end]");
	*report = (struct kernel_report){v[0], v[1]};
	return KILN_OK;
}

/* mod 0: bytes from operand 0 to operand 1. */
static int check_plain_copy(const struct device_launch *launch, const uint64_t *extents,
							char error[KERNEL_ERROR_MAX])
{
	if (launch->operand_count != 2)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO, "a copy has two operands, not %d",
						 launch->operand_count);
	if (launch->copy_bytes > extents[0] || launch->copy_bytes > extents[1])
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a copy of %" PRIu64 " bytes is more than its operands' %" PRIu64
						 " and %" PRIu64,
						 launch->copy_bytes, extents[0], extents[1]);
	return KILN_OK;
}

static int start_launch(struct exec *executor, struct wire_in *message, struct exec_flight *flight,
						char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *root = &message->root;
	struct kernel_arg args[KERNEL_MAX_ARGS];
	struct device_operand operands[KERNEL_MAX_OPERANDS];
	uint64_t extents[KERNEL_MAX_OPERANDS];
	struct device_launch launch = {
		.args = args,
		.operands = operands,
		.ticket = flight->id,
		.stream = wire_get_uint(root, "stream", 0),
		.copy_bytes = wire_get_uint(root, "copy", 0),
		.granule = wire_get_uint(root, "granule", 0) == 16 ? 16 : 0,
	};
	uint64_t module = wire_get_uint(root, "mod", UINT64_MAX);
	uint64_t delay = wire_get_uint(root, "delay", 0);
	launch.delay_ms = delay < 60000 ? (uint32_t)delay : 60000;
	int status =
		read_operands(executor, message, flight, operands, extents, &launch.operand_count, error);
	if (status == KILN_OK)
		status =
			read_args(wire_get(root, "args"), launch.operand_count, args, &launch.arg_count, error);
	if (status == KILN_OK)
		status = read_scratch(wire_get(root, "scratch"), &launch.scratch, error);
	if (status == KILN_OK)
		status = read_report(wire_get(root, "report"), &launch.report, error);
	if (status != KILN_OK)
		return status;
	if (module == 0) {
		status = check_plain_copy(&launch, extents, error);
	} else {
		flight->module = map_get_id(&executor->modules, module);
		if (!flight->module)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT, "there is no module %" PRIu64,
							 module);
		flight->module->uses++;
		launch.module = flight->module->module;
		status = read_shape(executor, root, &launch, error);
	}
	return status == KILN_OK ? executor->ops->launch(executor->device, &launch, error) : status;
}

/* ---- Copies between a buffer and a client's memory ---- */

static int start_copy(struct exec *executor, const msgpack_object *root, struct frame *frame,
					  struct exec_flight *flight, char error[KERNEL_ERROR_MAX])
{
	uint64_t id = wire_get_uint(root, "buf", 0), offset = wire_get_uint(root, "offset", 0);
	uint64_t bytes = wire_get_uint(root, "bytes", UINT64_MAX);
	bool to_device = wire_get_bool(root, "to", false);
	struct exec_buffer *buffer = map_get_id(&executor->buffers, id);
	if (!wire_get(root, "to") || frame->fd_count != 1)
		return reject(error, "a copy needs its direction and one descriptor");
	if (!buffer)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT, "there is no buffer %" PRIu64, id);
	if (offset > buffer->bytes || bytes > buffer->bytes - offset)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%" PRIu64 " bytes at %" PRIu64 " are not within a buffer of %" PRIu64
						 " bytes",
						 bytes, offset, buffer->bytes);
	flight_hold_buffer(flight, buffer);
	int status = exec_map(executor, frame->fds[0], bytes, !to_device, &flight->mapping, error);
	if (status != KILN_OK)
		return status;
	return executor->ops->copy(executor->device, wire_get_uint(root, "stream", 0), flight->id,
							   buffer->memory, offset, flight->mapping->address, bytes, to_device,
							   error);
}

/* Registered before the device has it, so that a failure leaves nothing behind there. */
static int fly(struct exec *executor, struct wire_in *message, struct frame *frame,
			   char error[KERNEL_ERROR_MAX])
{
	struct exec_flight *flight = flight_new(executor, wire_id(message), error);
	if (!flight)
		return KILN_EPROTO;
	if (map_put_id(&executor->flights, flight->id, flight) < 0) {
		free(flight);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a call");
	}
	int status = frame ? start_copy(executor, &message->root, frame, flight, error)
					   : start_launch(executor, message, flight, error);
	if (status != KILN_OK) {
		map_remove_id(&executor->flights, flight->id);
		flight_free(executor, flight);
	}
	return status;
}

int exec_launch(struct exec *executor, struct wire_in *message, char error[KERNEL_ERROR_MAX])
{
	return fly(executor, message, NULL, error);
}

int exec_copy(struct exec *executor, struct wire_in *message, struct frame *frame,
			  char error[KERNEL_ERROR_MAX])
{
	return fly(executor, message, frame, error);
}
