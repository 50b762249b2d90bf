/* raw_launch.c: reads one launch of a user's kernel from its message.  The device process checks
 * grid, block and arguments, for it has the loaded kernel. */
#include "raw_launch.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"
#include "work_state.h"

#define ERROR(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

/* Reads [buffer, offset, bytes, access]. */
static int read_memory(struct session *session, const msgpack_object *item, uint32_t number,
					   struct raw_launch *launch, char error[KERNEL_ERROR_MAX])
{
	uint64_t v[4];
	char label[96];
	for (uint32_t i = 0; i < 4; i++) {
		const msgpack_object *value = wire_at(item, i);
		if (!value || value->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
			return ERROR(KILN_EPROTO,
						 "argument %u is neither a value nor [buffer, offset, bytes, access]",
						 number);
		v[i] = value->via.u64;
	}
	struct buffer *buffer = buffer_find(session, v[0]);
	if (!buffer || buffer_is_making(buffer))
		return ERROR(KILN_ENOENT, "argument %u names buffer %llu, which this session does not have",
					 number, (unsigned long long)v[0]);
	if (launch->operand_count == KERNEL_MAX_OPERANDS)
		return ERROR(KILN_ELIMIT, "a launch has at most %d arguments that are memory",
					 KERNEL_MAX_OPERANDS);
	if (v[1] > buffer->bytes || v[2] > buffer->bytes - v[1])
		return ERROR(KILN_EINVAL,
					 "argument %u needs %llu bytes at offset %llu of %s, which has %llu bytes",
					 number, (unsigned long long)v[2], (unsigned long long)v[1],
					 buffer_label(buffer, label), (unsigned long long)buffer->bytes);
	int i = launch->operand_count++;
	launch->operands[i] = (struct work_operand){buffer, v[1]};
	/* Lost contents do not matter to an argument that is only written. */
	launch->extents[i] = (struct kernel_extent){
		.bytes = v[2] ? v[2] : buffer->bytes - v[1], .alignment = 1, .written = v[3] == KILN_WRITE};
	launch->args[launch->arg_count++] =
		(struct kernel_arg){.kind = KERNEL_ARG_POINTER, .operand = i};
	return KILN_OK;
}

static int read_args(struct session *session, const msgpack_object *list, struct raw_launch *launch,
					 char error[KERNEL_ERROR_MAX])
{
	uint8_t *at = launch->data;
	int status = KILN_OK;
	for (uint32_t i = 0; i < wire_count(list) && status == KILN_OK; i++) {
		const msgpack_object *item = wire_at(list, i);
		if (!item || item->type != MSGPACK_OBJECT_BIN) {
			status = read_memory(session, item, i, launch, error);
			continue;
		}
		uint32_t bytes = item->via.bin.size;
		memcpy(at, item->via.bin.ptr, bytes);
		launch->args[launch->arg_count++] =
			(struct kernel_arg){.kind = KERNEL_ARG_BYTES, .bytes = bytes, .data = at};
		at += bytes;
	}
	return status;
}

static uint64_t value_bytes(const msgpack_object *list)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < wire_count(list); i++) {
		const msgpack_object *item = wire_at(list, i);
		if (item && item->type == MSGPACK_OBJECT_BIN)
			bytes += item->via.bin.size;
	}
	return bytes;
}

int raw_launch_open(struct session *session, struct wire_in *message, struct raw_launch **out,
					char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *root = &message->root, *list = wire_get(root, "args");
	uint64_t bytes = value_bytes(list);
	if (wire_count(list) > KERNEL_MAX_ARGS || bytes > KERNEL_MAX_ARG_BYTES)
		return ERROR(KILN_ELIMIT, "%u arguments with %llu bytes of values; the most are %d and %d",
					 wire_count(list), (unsigned long long)bytes, KERNEL_MAX_ARGS,
					 KERNEL_MAX_ARG_BYTES);
	struct raw_launch *launch = calloc(1, sizeof(*launch) + bytes);
	if (!launch)
		return ERROR(KILN_ENOMEM, "out of memory for a launch");
	int status = KILN_OK;
	if (wire_get_ints(root, "grid", launch->grid, 3) != 3 ||
		wire_get_ints(root, "block", launch->block, 3) != 3)
		status = ERROR(KILN_EPROTO, "a launch needs grid and block of three numbers each");
	uint64_t shared = wire_get_uint(root, "shared", 0), timeout = wire_get_uint(root, "timeout", 0);
	launch->shared_bytes = shared < UINT32_MAX ? (uint32_t)shared : UINT32_MAX;
	launch->timeout_ms = timeout < INT32_MAX ? (uint32_t)timeout : INT32_MAX;
	if (status == KILN_OK)
		status = read_args(session, list, launch, error);
	if (status != KILN_OK) {
		free(launch);
		return status;
	}
	*out = launch;
	return KILN_OK;
}
