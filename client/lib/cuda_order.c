/*
 * cuda_order.c: keeps the order between calls of the lane and a CUDA stream of the program's.  One
 * operation tells the stream to write the ready word of the first entry, and then to wait for the
 * done word of the last (client/wire/lane_memory.h).  order_watch.c writes the done word if the
 * device process dies.
 *
 * The client writes the entries before it tells the stream: they wait until the stream gets there.
 * If the stream cannot be told, the host waits for the stream, opens the gate itself, and waits for
 * the end.
 *
 * A stream that has nothing to do keeps no entry waiting: the entry starts at once.  Then the host
 * looks for its end as long as the stream would take to see it, and tells the stream to wait only
 * if the end does not come.
 *
 * The program's current context stays as it was, and no call is made that a capture elsewhere
 * forbids.
 */
#include "cuda_order.h"
#include "client.h"
#include "error.h"
#include "lane.h"

#ifdef KILN_HAVE_CUDA_H

#include "clock.h"
#include "cuda_driver.h"
#include "deadlines.h"
#include "lane_state.h"
#include "order.h"

#include <assert.h>
#include <stddef.h>

/* ---- The stream ---- */

int order_check(void *cuda_stream)
{
	CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
	const char *missing = cuda_driver_load();
	if (missing) {
		return error_set(KILN_ENOTSUP,
						 "KILN_SUBMIT_CUDA needs the CUDA driver: there is no %s on this machine",
						 missing);
	}
	CUresult result = cuda.cuStreamIsCapturing(cuda_stream, &capture);
	if (result != CUDA_SUCCESS) {
		return error_set(KILN_EINVAL, "cuda_stream %p cannot be used: cuStreamIsCapturing says %s",
						 cuda_stream, cuda_driver_error(result));
	}
	if (capture != CU_STREAM_CAPTURE_STATUS_NONE) {
		return error_set(KILN_EINVAL,
						 "cuda_stream %p is being captured into a graph, which a call of Kiln "
						 "cannot be part of: submit it before or after",
						 cuda_stream);
	}
	return KILN_OK;
}

int order_host(void *cuda_stream)
{
	CUresult result = cuda.cuStreamSynchronize(cuda_stream);
	return result == CUDA_SUCCESS
			   ? KILN_OK
			   : error_set(KILN_EINVAL, "cuda_stream %p cannot be waited for: %s", cuda_stream,
						   cuda_driver_error(result));
}

/* Makes a context current, until leave(). */
static CUresult cuda_order_enter(CUcontext context, bool *pushed)
{
	CUcontext current = NULL;
	CUresult result = CUDA_SUCCESS;
	*pushed = false;
	if (cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context) {
		result = cuda.cuCtxPushCurrent(context);
		*pushed = result == CUDA_SUCCESS;
	}
	return result;
}

static void leave(bool pushed)
{
	CUcontext context;
	if (pushed)
		(void)cuda.cuCtxPopCurrent(&context);
}

/* ---- The gates, as a context sees them ---- */

static bool has_memory_operations(void)
{
	CUdevice device;
	int has = 0;
	return cuda.batch_memory_operations && cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
		   cuda.cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
									 device) == CUDA_SUCCESS &&
		   has != 0;
}

static void register_gates(const struct order *order, struct order_place *place)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr gates = 0;
	struct lane_memory *memory = has_memory_operations() ? order_map_for_good(order) : NULL;
	if (!memory)
		return;
	(void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
	if (cuda.cuMemHostRegister(memory->gates, LANE_GATES_BYTES,
							   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ==
		CUDA_SUCCESS) {
		place->memory = memory;
		if (cuda.cuMemHostGetDevicePointer(&gates, memory->gates, 0) == CUDA_SUCCESS)
			place->gates = (uint64_t)gates;
	} else {
		order_unmap(memory);
	}
	(void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
}

/* The gates in this context; NULL: they cannot be used there. */
static const struct order_place *find_place(struct order *order, CUcontext context)
{
	uint64_t id = cuda_context_id(context), number = id != 0 ? id : (uint64_t)(uintptr_t)context;
	struct order_place *place = order->places;
	assert(order->place_count >= 0 && order->place_count <= ORDER_CONTEXTS);
	while (place < order->places + order->place_count && place->context != number)
		place++;
	if (place == order->places + ORDER_CONTEXTS)
		return NULL;
	if (place == order->places + order->place_count) {
		order->place_count++;
		place->context = number;
		register_gates(order, place);
	}
	return place->gates != 0 ? place : NULL;
}

/* True: all that the stream had has ended.  A stream that waits for the default stream may have to
 * wait for work that it does not have itself, so it is taken for busy. */
static bool is_idle(void *cuda_stream)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	unsigned flags = 0;
	if (cuda.cuStreamGetFlags(cuda_stream, &flags) != CUDA_SUCCESS ||
		!(flags & CU_STREAM_NON_BLOCKING))
		return false;
	(void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
	bool idle = cuda.cuStreamQuery(cuda_stream) == CUDA_SUCCESS;
	(void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
	return idle;
}

/* ---- Entries ---- */

static struct lane_gate *gate_of(const struct order *order, uint64_t number)
{
	return &order->memory->gates[number % LANE_ENTRIES];
}

/* A word that nobody has written for 2^31 entries compares as if it were ahead. */
static void shut(_Atomic uint32_t *word, uint64_t number)
{
	if (lane_gate_open(word, number))
		atomic_store(word, lane_gate_value(number) - 1);
}

bool order_open(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last)
{
	struct lane *lane = client->lane;
	CUcontext context;
	bool pushed;
	if (!lane->order && !lane->unwatched) {
		lane->order = order_new(lane->memory, lane->client_wake_fd);
		lane->unwatched = !lane->order;
	}
	struct order *order = lane->order;
	/* The stream has not written that word yet: its entry was canceled before the stream got there.
	 */
	if (!order || atomic_load(&order->state) == ORDER_DEAD ||
		order_is_arriving(order, (uint32_t)(first % LANE_ENTRIES)))
		return false;
	if (cuda.cuStreamGetCtx(cuda_stream, &context) != CUDA_SUCCESS ||
		cuda_order_enter(context, &pushed) != CUDA_SUCCESS)
		return false;
	shut(&gate_of(order, first)->ready, first);
	shut(&gate_of(order, last)->done, last);
	order->context = context;
	order->place = find_place(order, context);
	order->idle = is_idle(cuda_stream);
	leave(pushed);
	return order->place != NULL;
}

static CUdeviceptr address_of(const struct order_place *place, uint64_t number, size_t offset)
{
	return (CUdeviceptr)(place->gates + number % LANE_ENTRIES * sizeof(struct lane_gate) + offset);
}

static CUresult tell_stream(const struct order *order, void *cuda_stream, uint64_t first,
							uint64_t last)
{
	CUstreamBatchMemOpParams operations[2] = {{0}};
	const struct order_place *place = order->place;
	const unsigned begin = order->idle ? 1 : 0;
	bool pushed;
	operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	operations[0].writeValue.address = address_of(place, first, offsetof(struct lane_gate, ready));
	operations[0].writeValue.value = lane_gate_value(first);
	operations[0].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
	operations[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	operations[1].waitValue.address = address_of(place, last, offsetof(struct lane_gate, done));
	operations[1].waitValue.value = lane_gate_value(last);
	operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
	CUresult result = cuda_order_enter(order->context, &pushed);
	if (result == CUDA_SUCCESS) {
		result = cuda.batch_memory_operations(cuda_stream, 2 - begin, operations + begin, 0);
		leave(pushed);
	}
	return result;
}

/* Looks for the end for a while, as the GPU would take as long to see it. */
static bool see_end(const struct order *order, uint64_t last)
{
	const _Atomic uint32_t *done = &gate_of(order, last)->done;
	int64_t until = time_now_us() + PAUSE_ORDER_SPIN_US;
	while (!lane_gate_open(done, last)) {
		if (time_now_us() >= until)
			return false;
		lane_pause();
	}
	return true;
}

int order_follow(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last)
{
	struct order *order = client->lane->order;
	order_expect(order, last);
	if (order->idle && !client->lane->alone && see_end(order, last))
		return KILN_OK;
	if (tell_stream(order, cuda_stream, first, last) == CUDA_SUCCESS) {
		if (!order->idle)
			order->arriving[first % LANE_ENTRIES] = lane_gate_value(first);
		order_recheck(order, last);
		return KILN_OK;
	}
	int status = order_host(cuda_stream);
	if (status == KILN_OK) {
		atomic_store(&gate_of(order, first)->ready, lane_gate_value(first));
		status = LANE_HOST;
	}
	return status;
}

#else

int order_check(void *cuda_stream)
{
	(void)cuda_stream;
	return error_set(KILN_ENOTSUP, "this libkiln was built without cuda.h: it keeps no order with "
								   "CUDA streams (KILN_SUBMIT_CUDA)");
}

int order_host(void *cuda_stream)
{
	return order_check(cuda_stream);
}

bool order_open(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last)
{
	(void)client, (void)cuda_stream, (void)first, (void)last;
	return false;
}

int order_follow(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last)
{
	(void)client, (void)first, (void)last;
	return order_check(cuda_stream);
}

#endif
