/*
 * local_record.h: a kernel that a program launches again and again on one stream, as a CUDA graph
 * of that launch alone.  The driver takes half of the time to launch such a graph that it takes to
 * launch a kernel.  It includes cuda.h, as cuda_driver.h.
 */
#ifndef KILN_CLIENT_LOCAL_RECORD_H
#define KILN_CLIENT_LOCAL_RECORD_H

#include "cuda_driver.h"
#include "local_launch.h"

#define LOCAL_RECORDS_MOST 128 /* of a process; each takes some 100 KiB of the GPU's memory */

struct local_record {
	CUstream stream;                    /* of the last launch */
	unsigned times;                     /* launches in a row on that stream, up to RECORD_AFTER */
	CUgraph graph;                      /* the driver names the node by it */
	CUgraphNode node;                   /* the launch */
	CUgraphExec exec;                   /* NULL: not recorded */
	bool refused;                       /* the driver does not record it, or did not launch it so */
	uint64_t values[KILN_MAX_RAW_ARGS]; /* as they are set */
};

/* Launches the kernel on a stream that does not capture.  values: where params->kernelParams point.
 * False: it is to be launched as it is. */
bool local_record_launch(struct local_record *record, const CUDA_KERNEL_NODE_PARAMS *params,
						 const uint64_t *values, int count, CUstream stream);
/* Frees what the driver has.  The context is current, or gone: then the driver is not called. */
void local_record_drop(struct local_record *record, bool gone);

#endif
