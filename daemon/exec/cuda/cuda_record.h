/*
 * cuda_record: kernels that a stream launches again and again, recorded as CUDA graphs.
 */
#ifndef KILN_DAEMON_CUDA_RECORD_H
#define KILN_DAEMON_CUDA_RECORD_H

#include "cuda_device.h"

struct cuda_record;
struct cuda_stream;
struct cuda_work;

/* Loads the kernel that tells; without it no part of the device records anything. */
void cuda_records_open(struct device *device);
/* Makes what a part needs to record. */
void cuda_records_enter(struct device *part);
/* Drops the recordings of a part, which has no work any more; of the first part, which comes last,
 * the kernel that tells as well. */
void cuda_records_close(struct device *part);
/* Drops the recordings of a stream that ends, or those of all parts that launch a module that no
 * work uses any more. */
void cuda_records_drop_stream(struct device *device, const struct cuda_stream *stream);
void cuda_records_drop_module(struct device *device, const struct device_module *module);

/* Returns the recording by which this launch is to be launched; NULL: there is none. */
struct cuda_record *cuda_record_find(struct device *device, struct cuda_stream *stream,
									 struct cuda_work *work);
/* Launches the work by its recording; tells: behind it the GPU tells of the end (cuda_mark.c).
 * After a failure nothing of it was launched. */
CUresult cuda_record_launch(struct device *device, struct cuda_work *work, bool tells);

#endif
