/*
 * cuda_print: what kernels print.  The driver writes it to standard output, and what a failed
 * assertion says to standard error, when the process waits for a stream.
 */
#ifndef KILN_DAEMON_CUDA_PRINT_H
#define KILN_DAEMON_CUDA_PRINT_H

#include "cuda_stream.h"

/* Says whether an object has kernels that print or assert. */
bool cuda_prints(const void *object, size_t bytes);
/* A work of this stream has ended: has the driver write what its kernel printed. */
void cuda_print_flush(struct device *device, const struct cuda_stream *stream,
					  const struct cuda_work *work);
/* The device is broken: adds the assertion that failed to broken_why, if the driver tells it. */
void cuda_print_assertion(struct device *device);

#endif
