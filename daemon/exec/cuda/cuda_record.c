/*
 * cuda_record: kernels that a stream launches again and again, recorded as CUDA graphs of one
 * launch each.  The driver takes less than half of the time to launch such a graph that it takes to
 * launch a kernel.
 *
 * A recording is of one kernel on one stream, and has two forms: the launch alone, and the launch
 * with a kernel behind it that tells of the end.  That kernel counts in the GPU's memory, and
 * writes the count into the stream's word, so it never changes.  The geometry and the arguments of
 * the launch are set where they differ from those of the launch before.
 *
 * A module takes its recordings with it, and a stream takes its own.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "daemon/base/util.h"
#include "cuda_cell.h"
#include "cuda_memory.h"
#include "cuda_module.h"
#include "cuda_record.h"
#include "cuda_stream.h"
#include "cuda_work.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A part keeps so many; each takes some 200 KiB of the GPU's memory. */
#define RECORDS_MOST 256
#define RECORD_BUCKETS 256
#define SEEN 1024
#define RECORD_AFTER 4 /* launches of the kernel on the stream */
/* A part that has more kernels in use than it may record keeps those that it has: to record costs
 * as much as fifty launches. */
#define RECORD_LEAST_US 10000000

/* PTX, because every driver makes code of it for its own GPU, and there is no compiler here.  The
 * store is a release for all of the system: who reads the count sees what the launch wrote. */
static const char teller[] = ".version 6.0\n"
							 ".target sm_70\n"
							 ".address_size 64\n"
							 ".visible .entry kiln_tell(.param .u64 counter, .param .u64 word)\n"
							 "{\n"
							 "	.reg .u64 %rd<3>;\n"
							 "	.reg .u32 %r<2>;\n"
							 "	ld.param.u64 %rd1, [counter];\n"
							 "	ld.param.u64 %rd2, [word];\n"
							 "	ld.global.u32 %r1, [%rd1];\n"
							 "	add.u32 %r1, %r1, 1;\n"
							 "	st.global.u32 [%rd1], %r1;\n"
							 "	st.release.sys.global.u32 [%rd2], %r1;\n"
							 "	ret;\n"
							 "}\n";

/* A launch may differ in these from the one before. */
struct setting {
	uint32_t grid[3], block[3], shared_bytes;
	int value_count;
	uint64_t values[KERNEL_MAX_ARGS];
};

struct form {
	CUgraph graph;    /* the driver names a node by the graph that it is from */
	CUgraphNode node; /* the launch */
	CUgraphExec exec;
	struct setting setting;
};

struct cuda_record {
	struct cuda_record *next; /* in its bucket */
	struct cuda_record *newer, *older;
	uint64_t hash;
	const struct cuda_stream *stream;
	const struct device_module *module;
	uint64_t used_us;
	bool refused; /* the driver has not launched it so */
	struct form alone, telling;
};

/* The recordings of one part.  The part's own thread takes the mutex, and so does the thread that
 * unloads modules. */
struct cuda_records {
	pthread_mutex_t mutex;
	CUstream stream; /* only records; NULL: nothing was recorded yet */
	struct cuda_record *buckets[RECORD_BUCKETS];
	struct cuda_record *newest, *oldest; /* by their last use */
	int count;
	struct {
		uint64_t hash;
		uint32_t times;
	} seen[SEEN]; /* launches without a recording */
};

/* ---- The table ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 32;
}

static void forget_use(struct cuda_records *records, struct cuda_record *record)
{
	*(record->newer ? &record->newer->older : &records->newest) = record->older;
	*(record->older ? &record->older->newer : &records->oldest) = record->newer;
}

static void note_use(struct cuda_records *records, struct cuda_record *record)
{
	record->newer = NULL;
	record->older = records->newest;
	*(records->newest ? &records->newest->newer : &records->oldest) = record;
	records->newest = record;
}

static void drop_form(struct device *part, const struct form *form)
{
	if (form->exec)
		part->cu.cuGraphExecDestroy(form->exec);
	if (form->graph)
		part->cu.cuGraphDestroy(form->graph);
}

static void drop_record(struct device *part, struct cuda_record *record)
{
	struct cuda_records *records = part->records;
	struct cuda_record **link = &records->buckets[record->hash % RECORD_BUCKETS];
	while (*link != record)
		link = &(*link)->next;
	*link = record->next;
	forget_use(records, record);
	records->count--;
	drop_form(part, &record->alone);
	drop_form(part, &record->telling);
	free(record);
}

/* ---- Recording ---- */

static void note_setting(struct setting *setting, const struct cuda_work *work)
{
	memcpy(setting->grid, work->grid, sizeof(work->grid));
	memcpy(setting->block, work->block, sizeof(work->block));
	setting->shared_bytes = work->shared_bytes;
	setting->value_count = work->data_values ? -1 : work->value_count;
	memcpy(setting->values, work->values, (size_t)work->value_count * sizeof(work->values[0]));
}

/* Arguments of more than eight bytes are not compared. */
static bool is_set(const struct setting *setting, const struct cuda_work *work)
{
	return memcmp(setting->grid, work->grid, sizeof(work->grid)) == 0 &&
		   memcmp(setting->block, work->block, sizeof(work->block)) == 0 &&
		   setting->shared_bytes == work->shared_bytes &&
		   setting->value_count == work->value_count && !work->data_values &&
		   memcmp(setting->values, work->values,
				  (size_t)work->value_count * sizeof(work->values[0])) == 0;
}

static bool ready_to_tell(struct device *device, struct cuda_stream *stream)
{
	struct cuda_records *records = device->records;
	if (!records->stream &&
		device->cu.cuStreamCreate(&records->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		return false;
	if (stream->counter)
		return true;
	CUresult result = cuda_take(device, stream->stream, sizeof(uint32_t), &stream->counter);
	if (result != CUDA_SUCCESS) {
		stream->counter = 0;
		return false;
	}
	result = device->cu.cuMemsetD8Async(stream->counter, 0, sizeof(uint32_t), stream->stream);
	if (result == CUDA_SUCCESS)
		return true;
	device->cu.cuMemFreeAsync(stream->counter, stream->stream);
	stream->counter = 0;
	return false;
}

static CUresult tell(struct device *device, const struct cuda_stream *stream)
{
	CUdeviceptr counter = stream->counter, word = cuda_stream_told(stream);
	void *params[] = {&counter, &word};
	return device->cu.cuLaunchKernel(device->parts[0]->teller, 1, 1, 1, 1, 1, 1, 0,
									 device->records->stream, params, NULL);
}

static CUresult capture(struct device *device, const struct cuda_stream *stream,
						struct cuda_work *work, bool tells, struct form *form)
{
	CUstream recorder = device->records->stream;
	size_t roots = 1;
	CUresult result =
		device->cu.cuStreamBeginCapture(recorder, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda_perform(device, recorder, work);
	if (result == CUDA_SUCCESS && tells)
		result = tell(device, stream);
	CUresult ended = device->cu.cuStreamEndCapture(recorder, &form->graph);
	if (result == CUDA_SUCCESS)
		result = ended;
	if (result == CUDA_SUCCESS)
		result = device->cu.cuGraphGetRootNodes(form->graph, &form->node, &roots);
	if (result == CUDA_SUCCESS)
		result = device->cu.cuGraphInstantiateWithFlags(&form->exec, form->graph, 0);
	note_setting(&form->setting, work);
	return result;
}

/* NULL: the driver does not record it. */
static struct cuda_record *make(struct device *device, struct cuda_stream *stream,
								struct cuda_work *work, uint64_t hash)
{
	struct cuda_records *records = device->records;
	if (!ready_to_tell(device, stream))
		return NULL;
	struct cuda_record *record = util_alloc(sizeof(*record));
	CUresult result = capture(device, stream, work, false, &record->alone);
	if (result == CUDA_SUCCESS)
		result = capture(device, stream, work, true, &record->telling);
	if (result != CUDA_SUCCESS) {
		drop_form(device, &record->alone);
		drop_form(device, &record->telling);
		free(record);
		return NULL;
	}
	record->hash = hash;
	record->stream = stream;
	record->module = work->module;
	record->next = records->buckets[hash % RECORD_BUCKETS];
	records->buckets[hash % RECORD_BUCKETS] = record;
	note_use(records, record);
	records->count++;
	return record;
}

/* True: there is room, if need be that of a recording that nobody has used for long. */
static bool room_for_record(struct device *device)
{
	struct cuda_records *records = device->records;
	if (records->count < RECORDS_MOST)
		return true;
	if (device->now_us - records->oldest->used_us < RECORD_LEAST_US)
		return false;
	drop_record(device, records->oldest);
	return true;
}

static bool repeats(struct cuda_records *records, uint64_t hash)
{
	size_t at = hash % SEEN;
	if (records->seen[at].hash != hash) {
		records->seen[at].hash = hash;
		records->seen[at].times = 0;
	}
	/* A launch that cannot be recorded now is tried again after twice as many. */
	uint32_t times = ++records->seen[at].times;
	return times >= RECORD_AFTER && (times & (times - 1)) == 0;
}

/* ---- What others call ---- */

struct cuda_record *cuda_record_find(struct device *device, struct cuda_stream *stream,
									 struct cuda_work *work)
{
	struct cuda_records *records = device->records;
	if (!records || work->kind != CUDA_WORK_KERNEL)
		return NULL;
	uint64_t hash = mix(stream->id, (uint64_t)(uintptr_t)work->module);
	pthread_mutex_lock(&records->mutex);
	struct cuda_record *record = records->buckets[hash % RECORD_BUCKETS];
	while (record && (record->stream != stream || record->module != work->module))
		record = record->next;
	if (record && record != records->newest) {
		forget_use(records, record);
		note_use(records, record);
	} else if (!record && repeats(records, hash) && room_for_record(device)) {
		record = make(device, stream, work, hash);
	}
	if (record)
		record->used_us = device->now_us;
	pthread_mutex_unlock(&records->mutex);
	return record && !record->refused ? record : NULL;
}

static CUresult set(struct device *device, struct form *form, struct cuda_work *work)
{
	void *values[KERNEL_MAX_ARGS];
	cuda_work_params(work, values);
	const CUDA_KERNEL_NODE_PARAMS params = {.func = work->module->function,
											.gridDimX = work->grid[0],
											.gridDimY = work->grid[1],
											.gridDimZ = work->grid[2],
											.blockDimX = work->block[0],
											.blockDimY = work->block[1],
											.blockDimZ = work->block[2],
											.sharedMemBytes = work->shared_bytes,
											.kernelParams = values};
	CUresult result = device->cu.cuGraphExecKernelNodeSetParams(form->exec, form->node, &params);
	if (result == CUDA_SUCCESS)
		note_setting(&form->setting, work);
	return result;
}

CUresult cuda_record_launch(struct device *device, struct cuda_work *work, bool tells)
{
	struct cuda_record *record = work->record;
	struct form *form = tells ? &record->telling : &record->alone;
	CUresult result = CUDA_SUCCESS;
	if (!is_set(&form->setting, work))
		result = set(device, form, work);
	if (result == CUDA_SUCCESS)
		result = device->cu.cuGraphLaunch(form->exec, record->stream->stream);
	if (result != CUDA_SUCCESS)
		record->refused = true;
	return result;
}

static void drop_some(struct device *part, const struct cuda_stream *stream,
					  const struct device_module *module)
{
	struct cuda_record *older;
	if (!part->records)
		return;
	pthread_mutex_lock(&part->records->mutex);
	for (struct cuda_record *record = part->records->newest; record; record = older) {
		older = record->older;
		if ((!stream || record->stream == stream) && (!module || record->module == module))
			drop_record(part, record);
	}
	pthread_mutex_unlock(&part->records->mutex);
}

void cuda_records_drop_stream(struct device *device, const struct cuda_stream *stream)
{
	if (stream->counter)
		drop_some(device, stream, NULL);
}

void cuda_records_drop_module(struct device *device, const struct device_module *module)
{
	for (int i = 0; i < device->part_count; i++)
		drop_some(device->parts[i], NULL, module);
}

void cuda_records_enter(struct device *part)
{
	if (!part->parts[0]->teller)
		return;
	struct cuda_records *records = util_alloc(sizeof(*records));
	pthread_mutex_init(&records->mutex, NULL);
	part->records = records;
}

void cuda_records_open(struct device *device)
{
	CUresult result = device->cu.cuModuleLoadData(&device->teller_module, teller);
	if (result == CUDA_SUCCESS)
		result =
			device->cu.cuModuleGetFunction(&device->teller, device->teller_module, "kiln_tell");
	if (result != CUDA_SUCCESS) {
		device->teller = NULL;
		return;
	}
	cuda_records_enter(device);
}

void cuda_records_close(struct device *part)
{
	drop_some(part, NULL, NULL);
	if (part->records) {
		if (part->records->stream)
			part->cu.cuStreamDestroy(part->records->stream);
		pthread_mutex_destroy(&part->records->mutex);
		free(part->records);
		part->records = NULL;
	}
	if (part == part->parts[0] && part->teller_module)
		part->cu.cuModuleUnload(part->teller_module);
}

#endif
