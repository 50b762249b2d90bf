/*
 * cuda_order.c: keeps the order between calls and a CUDA stream of the caller's.
 */
#include "client/local.h"

#ifdef KILN_HAVE_CUDA_H

#include "client/cuda_driver.h"

int order_host(struct kiln_client *client, void *cuda_stream)
{
	const char *missing = cuda_driver_load();
	(void)client;
	if (missing != NULL) {
		return error_set(KILN_ENOTSUP,
						 "the order with a CUDA stream cannot be kept: this process "
						 "has no CUDA driver (%s is missing)",
						 missing);
	}
	CUresult result = cuda.cuStreamSynchronize(cuda_stream);
	return result == CUDA_SUCCESS
			   ? KILN_OK
			   : error_set(KILN_EINVAL, "the caller's CUDA stream cannot be waited for: %s",
						   cuda_driver_error(result));
}

#else

int order_host(struct kiln_client *client, void *cuda_stream)
{
	(void)client, (void)cuda_stream;
	return error_set(KILN_ENOTSUP,
					 "this libkiln was built without CUDA's headers: it knows no CUDA "
					 "streams");
}

#endif

bool order_open(struct kiln_client *client, void *cuda_stream)
{
	(void)client, (void)cuda_stream;
	return false;
}

int order_begin(struct kiln_client *client, void *cuda_stream, uint64_t first)
{
	(void)client, (void)cuda_stream, (void)first;
	return KILN_OK;
}

int order_end(struct kiln_client *client, void *cuda_stream, uint64_t last)
{
	(void)client, (void)cuda_stream, (void)last;
	return KILN_OK;
}
