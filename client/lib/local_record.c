/*
 * local_record.c: see local_record.h.  A graph does not run beside itself.  So a launch on another
 * stream than the launches before it goes to the driver as a plain launch.
 */
#ifdef KILN_HAVE_CUDA_H

#include "local_record.h"

#include <stdatomic.h>
#include <string.h>

/* To record takes as long as twenty launches. */
#define RECORD_AFTER 32

static atomic_int recorded;

static CUresult record_kernel(struct local_record *record, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUresult result = cuda.cuGraphCreate(&record->graph, 0);
	if (result == CUDA_SUCCESS)
		result = cuda.cuGraphAddKernelNode(&record->node, record->graph, NULL, 0, params);
	if (result == CUDA_SUCCESS)
		result = cuda.cuGraphInstantiateWithFlags(&record->exec, record->graph, 0);
	return result;
}

static void free_graph(struct local_record *record)
{
	if (record->exec)
		(void)cuda.cuGraphExecDestroy(record->exec);
	if (record->graph)
		(void)cuda.cuGraphDestroy(record->graph);
	record->exec = NULL;
	record->graph = NULL;
}

static bool make(struct local_record *record, const CUDA_KERNEL_NODE_PARAMS *params,
				 const uint64_t *values, int count)
{
	/* Another stream may be captured meanwhile, which this is no part of. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (atomic_fetch_add(&recorded, 1) >= LOCAL_RECORDS_MOST) {
		atomic_fetch_sub(&recorded, 1);
		record->times = 0; /* later there may be room */
		return false;
	}
	(void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
	record->refused = record_kernel(record, params) != CUDA_SUCCESS;
	if (record->refused)
		free_graph(record);
	(void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
	if (record->refused)
		atomic_fetch_sub(&recorded, 1);
	else
		memcpy(record->values, values, (size_t)count * sizeof(*values));
	return !record->refused;
}

static bool is_due(struct local_record *record, CUstream stream)
{
	if (record->stream != stream) {
		record->stream = stream;
		record->times = 0;
	}
	record->times += record->times < RECORD_AFTER;
	return record->times == RECORD_AFTER && !record->refused;
}

bool local_record_launch(struct local_record *record, const CUDA_KERNEL_NODE_PARAMS *params,
						 const uint64_t *values, int count, CUstream stream)
{
	const size_t bytes = (size_t)count * sizeof(*values);
	CUresult result = CUDA_SUCCESS;
	if (!cuda.has_graphs || !is_due(record, stream) ||
		(!record->exec && !make(record, params, values, count)))
		return false;
	if (memcmp(record->values, values, bytes) != 0) {
		result = cuda.cuGraphExecKernelNodeSetParams(record->exec, record->node, params);
		memcpy(record->values, values, bytes);
	}
	if (result == CUDA_SUCCESS)
		result = cuda.cuGraphLaunch(record->exec, stream);
	record->refused = result != CUDA_SUCCESS;
	return result == CUDA_SUCCESS;
}

void local_record_drop(struct local_record *record, bool gone)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (!record->exec)
		return;
	if (!gone) {
		(void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
		free_graph(record);
		(void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
	}
	record->exec = NULL;
	atomic_fetch_sub(&recorded, 1);
}

#else

/* ISO C forbids an empty file; without cuda.h nothing is recorded. */
typedef int local_record_is_absent;

#endif
