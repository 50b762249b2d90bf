/*
 * cpu_queue: makes works of launches and copies, and puts them into streams.  cpu_worker.c runs
 * them.
 */
#include "cpu_memory.h"
#include "cpu_module.h"
#include "cpu_work.h"
#include "daemon/base/util.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int cpu_queue_add(struct device *part, uint64_t id, struct cpu_work *work,
				  char error[KERNEL_ERROR_MAX])
{
	struct device *device = part->whole;
	pthread_mutex_lock(&device->mutex);
	struct cpu_stream *stream = device->streams;
	while (stream && stream->id != id)
		stream = stream->next;
	if (!stream) {
		stream = calloc(1, sizeof(*stream));
		if (!stream) {
			pthread_mutex_unlock(&device->mutex);
			free(work);
			return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
							 "out of memory for a stream's record");
		}
		stream->id = id;
		stream->next = device->streams;
		device->streams = stream;
	}
	stream->ended = false;
	work->stream = stream;
	work->part = part;
	if (stream->tail) {
		stream->tail->next = work;
	} else {
		stream->head = work;
		work->due_us = work->delay_us ? util_now_us() + work->delay_us : 0;
	}
	stream->tail = work;
	cpu_stream_assert_valid(stream);
	pthread_cond_broadcast(&device->changed);
	pthread_mutex_unlock(&device->mutex);
	return KILN_OK;
}

static bool cancel_one(const struct device *part, uint64_t ticket)
{
	for (struct cpu_stream *stream = part->whole->streams; stream; stream = stream->next)
		for (struct cpu_work *work = stream->head; work; work = work->next)
			if (work->ticket == ticket && work->part == part && work->state == CPU_WORK_QUEUED) {
				cpu_work_fail(work, KILN_ECANCELED, "the call was canceled before it started");
				work->delay_us = work->due_us = 0;
				return true;
			}
	return false;
}

/* A work in its delay counts as begun. */
uint64_t cpu_begun_us(struct device *part, uint64_t ticket)
{
	struct device *device = part->whole;
	uint64_t begun = 0;
	pthread_mutex_lock(&device->mutex);
	for (struct cpu_stream *stream = device->streams; stream && !begun; stream = stream->next) {
		const struct cpu_work *work = stream->head;
		if (!work || work->ticket != ticket || work->part != part)
			continue;
		if (work->state == CPU_WORK_STARTED)
			begun = work->start_us;
		else if (work->due_us)
			begun = work->due_us - work->delay_us;
	}
	pthread_mutex_unlock(&device->mutex);
	return begun;
}

bool cpu_cancel(struct device *part, const uint64_t *tickets, int count)
{
	struct device *device = part->whole;
	pthread_mutex_lock(&device->mutex);
	bool canceled = cancel_one(part, tickets[0]);
	for (int i = 1; canceled && i < count; i++)
		cancel_one(part, tickets[i]);
	pthread_cond_broadcast(&device->changed);
	pthread_mutex_unlock(&device->mutex);
	return canceled;
}

void cpu_stream_free(struct device *device, struct cpu_stream *stream)
{
	cpu_scratch_free(device, stream);
	free(stream);
}

void cpu_stream_end(struct device *part, uint64_t id)
{
	struct device *device = part->whole;
	pthread_mutex_lock(&device->mutex);
	for (struct cpu_stream **link = &device->streams; *link; link = &(*link)->next) {
		struct cpu_stream *stream = *link;
		if (stream->id != id)
			continue;
		stream->ended = true; /* the end of its last work frees it */
		if (!stream->head) {
			*link = stream->next;
			cpu_stream_free(device, stream);
		}
		break;
	}
	pthread_mutex_unlock(&device->mutex);
}

static int check_shape(const struct device_launch *launch, char error[KERNEL_ERROR_MAX])
{
	const uint32_t *grid = launch->grid, *block = launch->block;
	if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > INT32_MAX || grid[1] > 65535 ||
		grid[2] > 65535)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a grid of %ux%ux%u blocks is not within 1 to 2147483647x65535x65535",
						 grid[0], grid[1], grid[2]);
	uint64_t threads = (uint64_t)block[0] * block[1];
	if (threads > CPU_MAX_THREADS || block[2] > CPU_MAX_THREADS ||
		threads * block[2] > CPU_MAX_THREADS || threads * block[2] == 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a block of %ux%ux%u threads is not within 1 to %d threads", block[0],
						 block[1], block[2], CPU_MAX_THREADS);
	if (launch->shared_bytes > CPU_SHARED_OPTIN)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%u bytes of shared memory are more than the %u of a block",
						 launch->shared_bytes, CPU_SHARED_OPTIN);
	if (launch->operand_count < 0 || launch->operand_count > KERNEL_MAX_OPERANDS ||
		launch->arg_count < 0 || launch->arg_count > KERNEL_MAX_ARGS)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%d operands and %d arguments are not within %d and %d",
						 launch->operand_count, launch->arg_count, KERNEL_MAX_OPERANDS,
						 KERNEL_MAX_ARGS);
	if (launch->scratch.bytes > KERNEL_SCRATCH_MAX ||
		launch->scratch.counters > launch->scratch.bytes)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%" PRIu64 " bytes of scratch memory, %" PRIu64
						 " of them counters, are not within %u",
						 launch->scratch.bytes, launch->scratch.counters, KERNEL_SCRATCH_MAX);
	return KILN_OK;
}

static int bind_operands(struct cpu_work *work, const struct device_launch *launch,
						 char error[KERNEL_ERROR_MAX])
{
	work->operand_count = launch->operand_count;
	for (int i = 0; i < launch->operand_count; i++) {
		const struct device_operand *operand = &launch->operands[i];
		if (!operand->memory)
			continue; /* absent: a null pointer */
		if (operand->offset > operand->memory->bytes ||
			operand->bytes > operand->memory->bytes - operand->offset)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "operand %d begins at byte %" PRIu64 " of a buffer of %" PRIu64, i,
							 operand->offset, operand->memory->bytes);
		work->operands[i].base = operand->memory->base + operand->offset;
		work->operands[i].bytes =
			operand->bytes ? operand->bytes : operand->memory->bytes - operand->offset;
		snprintf(work->operands[i].name, sizeof(work->operands[i].name), "%s",
				 operand->name ? operand->name : "");
	}
	return KILN_OK;
}

#define DATA_ALIGNMENT 16u

static size_t padded(uint32_t bytes)
{
	return ((size_t)bytes + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
}

static size_t data_bytes(const struct device_launch *launch)
{
	size_t bytes = 0;
	for (int i = 0; i < launch->arg_count; i++)
		if (launch->args[i].kind == KERNEL_ARG_BYTES)
			bytes += padded(launch->args[i].bytes);
	return bytes;
}

static int bind_args(struct cpu_work *work, const struct device_launch *launch,
					 char error[KERNEL_ERROR_MAX])
{
	const struct kiln_cpu_module *about = launch->module->about;
	uint8_t *data = work->data;
	work->arg_count = launch->arg_count;
	if ((unsigned)launch->arg_count != about->arg_count)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "the kernel takes %u arguments and was given %d", about->arg_count,
						 launch->arg_count);
	for (int i = 0; i < launch->arg_count; i++) {
		const struct kernel_arg *arg = &launch->args[i];
		bool is_pointer = arg->kind == KERNEL_ARG_POINTER;
		bool is_scalar = arg->kind == KERNEL_ARG_SCALAR, is_data = arg->kind == KERNEL_ARG_BYTES;
		uint32_t bytes = is_scalar || is_data ? arg->bytes : (uint32_t)sizeof(void *);
		if (bytes != about->arg_bytes[i])
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "argument %d of the kernel has %u bytes and was given %u", i,
							 about->arg_bytes[i], bytes);
		if (is_pointer && (arg->operand < 0 || arg->operand >= launch->operand_count))
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
							 "argument %d names operand %d of %d", i, arg->operand,
							 launch->operand_count);
		work->args[i] = is_data ? (void *)data : &work->values[i];
		if (is_data) {
			memcpy(data, arg->data, arg->bytes);
			data += padded(arg->bytes);
		} else if (is_pointer)
			memcpy(&work->values[i], &work->operands[arg->operand].base, sizeof(void *));
		else if (arg->kind == KERNEL_ARG_REPORT)
			memcpy(&work->values[i], &(uint64_t *){&work->reported}, sizeof(void *));
		else if (!is_scalar)
			work->scratch_args |= UINT64_C(1) << i;
		else if (bytes == 4)
			memcpy(&work->values[i], &(uint32_t){(uint32_t)arg->value}, 4);
		else
			work->values[i] = arg->value;
	}
	return KILN_OK;
}

static int bind_kernel(struct device *device, struct cpu_work *work,
					   const struct device_launch *launch, char error[KERNEL_ERROR_MAX])
{
	int status = bind_args(work, launch, error);
	if (status != KILN_OK)
		return status;
	work->module = launch->module;
	work->grid = (struct kiln_cpu_dim){launch->grid[0], launch->grid[1], launch->grid[2]};
	work->block_size = (struct kiln_cpu_dim){launch->block[0], launch->block[1], launch->block[2]};
	work->shared_bytes = launch->shared_bytes;
	work->scratch = launch->scratch;
	work->report = launch->report;
	work->granule = launch->granule;
	work->total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
	/* Large chunks take few trips to the counter; small chunks let the workers end together. */
	work->chunk = work->total / ((uint64_t)device->whole->worker_count * 8);
	work->chunk = work->chunk < 1 ? 1 : work->chunk > 64 ? 64 : work->chunk;
	return KILN_OK;
}

static int bind_copy(struct cpu_work *work, uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	work->copy_to = to;
	work->copy_from = from;
	work->copy_bytes = bytes;
	work->total = bytes <= CPU_COPY_CHUNK ? 1 : (bytes + CPU_COPY_CHUNK - 1) / CPU_COPY_CHUNK;
	work->chunk = 1;
	return KILN_OK;
}

static int bind_plain_copy(struct cpu_work *work, const struct device_launch *launch,
						   char error[KERNEL_ERROR_MAX])
{
	uint64_t bytes = launch->copy_bytes;
	if (launch->operand_count != 2 || work->operands[0].bytes < bytes ||
		work->operands[1].bytes < bytes)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a copy of %" PRIu64 " bytes needs two operands of that many bytes, and "
						 "has %d, of %" PRIu64 " and %" PRIu64 " bytes",
						 bytes, launch->operand_count, work->operands[0].bytes,
						 work->operands[1].bytes);
	return bind_copy(work, work->operands[1].base, work->operands[0].base, bytes);
}

int cpu_bind(struct device *device, const struct device_launch *launch, struct cpu_work **out,
			 char error[KERNEL_ERROR_MAX])
{
	static const uint32_t one[3] = {1, 1, 1};
	struct device_launch checked = *launch;
	if (!launch->copies && !launch->module)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL, "a launch has no kernel");
	if (launch->copies) { /* a copy has no shape */
		memcpy(checked.grid, one, sizeof(one));
		memcpy(checked.block, one, sizeof(one));
	}
	int status = check_shape(&checked, error);
	if (status != KILN_OK)
		return status;
	struct cpu_work *work = cpu_work_new(launch->ticket, data_bytes(launch), error);
	if (!work)
		return KILN_ENOMEM;
	status = bind_operands(work, launch, error);
	if (status == KILN_OK)
		status = !launch->copies ? bind_kernel(device, work, launch, error)
								 : bind_plain_copy(work, launch, error);
	if (status != KILN_OK) {
		free(work);
		return status;
	}
	*out = work;
	return KILN_OK;
}

int cpu_launch(struct device *device, const struct device_launch *launch,
			   char error[KERNEL_ERROR_MAX])
{
	struct cpu_work *work;
	int status = cpu_bind(device, launch, &work, error);
	if (status != KILN_OK)
		return status;
	work->delay_us = (uint64_t)launch->delay_ms * 1000;
	return cpu_queue_add(device, launch->stream, work, error);
}

int cpu_copy(struct device *device, uint64_t stream, uint64_t ticket, struct device_memory *memory,
			 uint64_t offset, void *host, uint64_t bytes, bool to_device,
			 char error[KERNEL_ERROR_MAX])
{
	if (offset > memory->bytes || bytes > memory->bytes - offset)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%" PRIu64 " bytes at %" PRIu64 " are not within a buffer of %" PRIu64
						 " bytes",
						 bytes, offset, memory->bytes);
	struct cpu_work *work = cpu_work_new(ticket, 0, error);
	if (!work)
		return KILN_ENOMEM;
	uint8_t *place = memory->base + offset;
	bind_copy(work, to_device ? place : host, to_device ? host : place, bytes);
	return cpu_queue_add(device, stream, work, error);
}
