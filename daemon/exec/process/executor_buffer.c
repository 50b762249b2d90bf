/*
 * executor_buffer: binds buffers to launches, and frees them when nothing holds them any more.
 *
 *   NAMED --(request free)--> LEAVING --(the last use ends)--> a free task, or freed at once
 *
 * A NAMED buffer is in executor->buffers.  A LEAVING one (free_id is set) belongs to its uses
 * alone: the last one frees the memory and answers the request.
 */
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_buffer.h"
#include "executor_module.h"

#include <inttypes.h>
#include <stdlib.h>

void exec_find_buffers(const struct exec *executor, struct exec_place *places, int count)
{
	for (int i = 0; i < count; i++)
		places[i].found = map_get_id(&executor->buffers, places[i].buffer);
}

void exec_hold_buffer(struct exec_held held, struct exec_buffer *buffer)
{
	buffer->uses++;
	held.buffers[(*held.count)++] = buffer;
}

/* Binds one operand to its place: within its buffer, which owner may name (0: anybody may), and
 * aligned.  *out_buffer is NULL if the operand is left out. */
static int bind_operand(const struct exec_operand *operand, const struct exec_place *place,
						uint64_t owner, int number, struct exec_buffer **out_buffer,
						struct device_operand *out, char error[KERNEL_ERROR_MAX])
{
	*out_buffer = NULL;
	*out = (struct device_operand){.name = operand->name};
	if (place->buffer == 0 && operand->bytes == 0)
		return KILN_OK;
	struct exec_buffer *buffer = place->found;
	if (!buffer || (owner && buffer->owner != owner))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
						 "operand %d: there is no buffer %" PRIu64
						 ": it was freed, or is another client's",
						 number, place->buffer);
	if (place->offset > buffer->bytes || operand->bytes > buffer->bytes - place->offset)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "operand %d: %" PRIu64 " bytes at %" PRIu64
						 " are not within its buffer of %" PRIu64 " bytes",
						 number, operand->bytes, place->offset, buffer->bytes);
	if ((buffer->misaligned + place->offset) % operand->alignment != 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "operand %d begins at byte %" PRIu64
						 " of its buffer, which is not a multiple of %u in memory",
						 number, place->offset, operand->alignment);
	*out_buffer = buffer;
	out->memory = buffer->memory;
	out->offset = place->offset;
	out->bytes = operand->bytes;
	return KILN_OK;
}

int exec_bind(const struct exec_template *what, const struct exec_place *places, uint64_t owner,
			  struct exec_held held, struct device_operand *operands, struct device_launch *launch,
			  char error[KERNEL_ERROR_MAX])
{
	*launch = (struct device_launch){
		.copies = what->copies,
		.module = what->copies ? NULL : what->module->module,
		.grid = {what->grid[0], what->grid[1], what->grid[2]},
		.block = {what->block[0], what->block[1], what->block[2]},
		.shared_bytes = what->shared_bytes,
		.args = what->args,
		.arg_count = what->arg_count,
		.operands = operands,
		.operand_count = what->operand_count,
		.scratch = what->scratch,
		.report = what->report,
		.copy_bytes = what->copy_bytes,
		.granule = what->granule,
	};
	for (int i = 0; i < what->operand_count; i++) {
		struct exec_buffer *buffer;
		int status =
			bind_operand(&what->operands[i], &places[i], owner, i, &buffer, &operands[i], error);
		if (status != KILN_OK)
			return status;
		if (buffer)
			exec_hold_buffer(held, buffer);
	}
	return KILN_OK;
}

/* ---- Freeing ---- */

static void free_now(struct exec *executor, void *what)
{
	struct exec_buffer *buffer = what;
	executor->ops->free(executor->device, buffer->memory);
	exec_reply(executor, buffer->free_id, KILN_OK, NULL);
	free(buffer);
}

static void free_buffer(struct exec *executor, struct exec_buffer *buffer)
{
	if (!exec_quiet_waits(executor, buffer->memory)) {
		free_now(executor, buffer);
		return;
	}
	buffer->task = (struct exec_task){.perform = free_now, .what = buffer};
	exec_quiet_add(executor, &buffer->task, EXEC_TASK_FREE);
}

void exec_release_buffer(struct exec *executor, struct exec_buffer *buffer)
{
	if (--buffer->uses == 0 && buffer->free_id != 0)
		free_buffer(executor, buffer);
}
