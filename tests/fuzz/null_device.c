/* null_device.c: see null_device.h. */
#include "null_device.h"

#include "client/wire/frame.h"
#include "daemon/plan/plan.h"
#include "daemon/base/util.h"
#include "fuzz.h"

#include <sys/epoll.h>
#include <unistd.h>

#define MEMORY_MOST (1u << 20)
#define FLIGHTS_MOST 64
#define ALIVE 0x616c6976u

struct null_state null_state;

struct device_memory {
	uint32_t alive;
	int uses;
	uint64_t bytes;
	uint8_t data[];
};

struct device_module {
	uint32_t alive;
	int uses;
};

struct device_graph {
	uint32_t alive;
	int uses, count;
};

struct flight {
	uint64_t ticket;
	struct device_memory *memory[KERNEL_MAX_OPERANDS];
	int memories;
	struct device_module *module;
	struct device_graph *graph;
	_Atomic uint32_t *done_word;
	uint32_t done_value;
	bool canceled;
};

static struct flight flights[FLIGHTS_MOST];
static int to_end, end_status;
static volatile uint8_t sink; /* what is only read */

void null_end(int count, int status)
{
	to_end += count;
	end_status = status;
}

/* ---- Memory and kernels ---- */

static int null_open(const struct device_name *name, struct device **out, struct device_info *info,
					 char error[KERNEL_ERROR_MAX])
{
	(void)name;
	*out = (struct device *)&null_state;
	*info = (struct device_info){.name = "cpu", .model = "nothing"};
	return plan_limits_for("cpu", &info->limits, error);
}

static void null_close(struct device *device)
{
	(void)device;
}

static int null_alloc(struct device *device, uint64_t bytes, struct device_memory **out,
					  char error[KERNEL_ERROR_MAX])
{
	(void)device;
	struct device_memory *memory = bytes <= MEMORY_MOST ? calloc(1, sizeof(*memory) + bytes) : NULL;
	if (!memory)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "no memory of %llu bytes",
						 (unsigned long long)bytes);
	*memory = (struct device_memory){.alive = ALIVE, .bytes = bytes};
	null_state.memories++;
	*out = memory;
	return KILN_OK;
}

static int null_import(struct device *device, const struct device_import *what,
					   struct device_memory **out, char error[KERNEL_ERROR_MAX])
{
	require(what->kind == DEVICE_IMPORT_IPC || what->fd >= 0, "an import without a descriptor");
	require(what->span == 0 ||
				(what->offset <= what->span && what->bytes <= what->span - what->offset),
			"an import beyond its allocation");
	return null_alloc(device, what->bytes, out, error);
}

static int null_share(struct device *device, struct device_memory *memory,
					  struct device_shared *out, char error[KERNEL_ERROR_MAX])
{
	(void)device;
	require(memory->alive == ALIVE && memory->uses == 0, "memory in use is shared");
	*out = (struct device_shared){frame_memfd("shared", memory->bytes), memory->bytes, 0};
	return out->fd >= 0 ? KILN_OK : util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "no memfd");
}

static bool null_share_words(struct device *device, void *address, size_t bytes)
{
	(void)device, (void)address, (void)bytes;
	return true;
}

static void null_unshare_words(struct device *device, void *address)
{
	(void)device, (void)address;
}

static void null_free(struct device *device, struct device_memory *memory)
{
	(void)device;
	require(memory->alive == ALIVE && memory->uses == 0, "memory in use is freed");
	memory->alive = 0;
	null_state.memories--;
	free(memory);
}

static bool null_stalls(const struct device_memory *memory)
{
	(void)memory;
	return null_state.stalls;
}

static int null_load(struct device *device, const void *object, size_t bytes, const char *entry,
					 uint32_t shared_bytes, struct device_module **out,
					 char error[KERNEL_ERROR_MAX])
{
	(void)device, (void)shared_bytes;
	struct device_module *module = calloc(1, sizeof(*module));
	require(object && bytes && entry && module, "a load of nothing");
	if (*(const uint8_t *)object == 0xff) {
		free(module);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EDEVICE, "the object is no object");
	}
	module->alive = ALIVE;
	null_state.modules++;
	*out = module;
	return KILN_OK;
}

static void null_describe(const struct device_module *module, struct device_kernel *out)
{
	require(module->alive == ALIVE, "a kernel that is unloaded");
	out->param_count = 2;
	out->params[0] = out->params[1] = 8;
}

static void null_unload(struct device *device, struct device_module *module)
{
	(void)device;
	require(module->alive == ALIVE && module->uses == 0, "a kernel in use is unloaded");
	module->alive = 0;
	null_state.modules--;
	free(module);
}

static uint64_t null_scratch(const struct device *device)
{
	(void)device;
	return 0;
}

/* ---- Work ---- */

static struct flight *new_flight(uint64_t ticket)
{
	for (int i = 0; i < null_state.flights; i++)
		require(flights[i].ticket != ticket, "a ticket is used twice");
	require(null_state.flights < FLIGHTS_MOST, "more flights than there is room for");
	flights[null_state.flights] = (struct flight){.ticket = ticket};
	return &flights[null_state.flights++];
}

/* All that a kernel could touch is there, and not beyond. */
static void check_launch(const struct device_launch *launch, struct flight *flight)
{
	require(!launch->module || launch->module->alive == ALIVE, "a kernel that is unloaded");
	require(launch->arg_count >= 0 && launch->arg_count <= KERNEL_MAX_ARGS &&
				launch->operand_count >= 0 && launch->operand_count <= KERNEL_MAX_OPERANDS,
			"more arguments or operands than there can be");
	for (int i = 0; i < launch->operand_count; i++) {
		const struct device_operand *operand = &launch->operands[i];
		struct device_memory *memory = operand->memory;
		if (!memory)
			continue;
		require(memory->alive == ALIVE, "an operand that is freed");
		require(operand->offset <= memory->bytes &&
					operand->bytes <= memory->bytes - operand->offset,
				"an operand beyond its buffer");
		if (operand->bytes)
			memory->data[operand->offset + operand->bytes - 1] ^= 1;
		if (flight) {
			memory->uses++;
			flight->memory[flight->memories++] = memory;
		}
	}
	for (int i = 0; i < launch->arg_count; i++) {
		const struct kernel_arg *arg = &launch->args[i];
		if (arg->kind == KERNEL_ARG_POINTER)
			require(arg->operand >= 0 && arg->operand < launch->operand_count,
					"an argument names no operand");
		if (arg->kind == KERNEL_ARG_BYTES) {
			require(arg->data && arg->bytes, "an argument without a value");
			sink = ((const uint8_t *)arg->data)[arg->bytes - 1];
		}
	}
	if (!launch->module) {
		require(launch->operand_count >= 2, "a copy without operands");
		for (int i = 0; i < 2; i++)
			require(launch->copy_bytes == 0 ||
						(launch->operands[i].memory &&
						 launch->copy_bytes <=
							 launch->operands[i].memory->bytes - launch->operands[i].offset),
					"a copy beyond its operands");
	}
}

static int full(char error[KERNEL_ERROR_MAX])
{
	return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "the device has no room for more");
}

static int null_launch(struct device *device, const struct device_launch *launch,
					   char error[KERNEL_ERROR_MAX])
{
	(void)device;
	if (null_state.flights >= FLIGHTS_MOST)
		return full(error);
	struct flight *flight = new_flight(launch->ticket);
	check_launch(launch, flight);
	flight->module = launch->module;
	if (flight->module)
		flight->module->uses++;
	flight->done_word = launch->done_word;
	flight->done_value = launch->done_value;
	return KILN_OK;
}

static int null_copy(struct device *device, uint64_t stream, uint64_t ticket,
					 struct device_memory *memory, uint64_t offset, void *host, uint64_t bytes,
					 bool to_device, char error[KERNEL_ERROR_MAX])
{
	(void)device, (void)stream;
	require(memory->alive == ALIVE && offset <= memory->bytes && bytes <= memory->bytes - offset,
			"a copy beyond its buffer");
	if (null_state.flights >= FLIGHTS_MOST)
		return full(error);
	struct flight *flight = new_flight(ticket);
	memory->uses++;
	flight->memory[flight->memories++] = memory;
	if (bytes && to_device)
		memcpy(memory->data + offset, host, bytes);
	else if (bytes)
		memcpy(host, memory->data + offset, bytes);
	return KILN_OK;
}

static bool null_cancel(struct device *device, const uint64_t *tickets, int count)
{
	bool found = false;
	(void)device;
	for (int k = 0; k < count; k++)
		for (int i = 1; i < null_state.flights; i++)
			if (flights[i].ticket == tickets[k])
				found = flights[i].canceled = true;
	return found;
}

static void null_stream_end(struct device *device, uint64_t stream)
{
	(void)device, (void)stream;
}

/* ---- Graphs ---- */

static int null_graph_make(struct device *device, const struct device_launch *launches, int count,
						   struct device_graph **out, char error[KERNEL_ERROR_MAX])
{
	(void)device;
	int status = device_graph_check(launches, count, error);
	if (status != KILN_OK)
		return status;
	for (int i = 0; i < count; i++)
		check_launch(&launches[i], NULL);
	*out = calloc(1, sizeof(**out));
	require(*out != NULL, "no memory");
	**out = (struct device_graph){.alive = ALIVE, .count = count};
	null_state.graphs++;
	return KILN_OK;
}

static int null_graph_launch(struct device *device, struct device_graph *graph,
							 const struct device_launch *how, char error[KERNEL_ERROR_MAX])
{
	(void)device;
	require(graph->alive == ALIVE, "a graph that is freed");
	if (null_state.flights >= FLIGHTS_MOST)
		return full(error);
	struct flight *flight = new_flight(how->ticket);
	flight->graph = graph;
	flight->done_word = how->done_word;
	flight->done_value = how->done_value;
	graph->uses++;
	return KILN_OK;
}

static void null_graph_free(struct device *device, struct device_graph *graph)
{
	(void)device;
	if (!graph)
		return;
	require(graph->alive == ALIVE && graph->uses == 0, "a graph in use is freed");
	graph->alive = 0;
	null_state.graphs--;
	free(graph);
}

/* ---- Ends ---- */

static void end_first(struct device_done *done)
{
	struct flight flight = flights[0];
	*done = (struct device_done){.ticket = flight.ticket};
	done->status = flight.canceled ? KILN_ECANCELED : end_status;
	if (done->status != KILN_OK)
		snprintf(done->error, sizeof(done->error), "it ended so");
	for (int i = 0; i < flight.memories; i++)
		flight.memory[i]->uses--;
	if (flight.module)
		flight.module->uses--;
	if (flight.graph)
		flight.graph->uses--;
	if (flight.done_word)
		*flight.done_word = flight.done_value;
	memmove(flights, flights + 1, sizeof(*flights) * (size_t)--null_state.flights);
}

static int null_poll(struct device *device, int wake_fd, int timeout_ms, struct device_done *done,
					 int max, bool *broken)
{
	int count = 0;
	(void)device, (void)wake_fd, (void)timeout_ms, (void)broken;
	null_state.turn();
	while (count < max && to_end > 0 && null_state.flights > 0) {
		end_first(&done[count++]);
		to_end--;
	}
	to_end = null_state.flights ? to_end : 0;
	return count;
}

const struct device_ops device_cpu = {
	.open = null_open,
	.close = null_close,
	.alloc = null_alloc,
	.import = null_import,
	.share = null_share,
	.share_words = null_share_words,
	.unshare_words = null_unshare_words,
	.free = null_free,
	.stalls = null_stalls,
	.load = null_load,
	.describe = null_describe,
	.unload = null_unload,
	.scratch_bytes = null_scratch,
	.launch = null_launch,
	.copy = null_copy,
	.cancel = null_cancel,
	.stream_end = null_stream_end,
	.graph_make = null_graph_make,
	.graph_launch = null_graph_launch,
	.graph_free = null_graph_free,
	.poll = null_poll,
};
const struct device_ops device_cuda;
