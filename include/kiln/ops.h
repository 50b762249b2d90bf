/*
 * ops.h: one helper for each operator, over the public functions of kiln.h; nothing to link.
 *
 * The helpers run: they prepare, submit and wait.  A program that calls an operator many times
 * prepares it once with kiln_prepare() and submits that; the tensors and attributes are the same.
 */
#ifndef KILN_OPS_H
#define KILN_OPS_H

#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A contiguous (row-major) tensor at a byte offset of a buffer.  A rank out of range is kept, and
 * refused where the tensor is used. */
static inline kiln_tensor kiln_tensor_make(kiln_buffer *buffer, uint64_t offset, kiln_dtype dtype,
										   int rank, const int64_t *shape)
{
	kiln_tensor tensor;
	int i;
	tensor.buffer = buffer;
	tensor.offset = offset;
	tensor.dtype = dtype;
	tensor.rank = rank;
	tensor.contiguous = 1;
	for (i = 0; i < KILN_MAX_RANK; i++) {
		tensor.shape[i] = i < rank ? shape[i] : 0;
		tensor.stride[i] = 0;
	}
	return tensor;
}

/* An attribute that is a list of integers; values must live as long as it is used. */
static inline kiln_attr kiln_attr_ints(const char *name, const int64_t *values, int count)
{
	kiln_attr attr;
	attr.name = name;
	attr.kind = KILN_ATTR_INTS;
	attr.i = 0;
	attr.f = 0.0;
	attr.ints = values;
	attr.count = count;
	attr.s = (const char *)0;
	return attr;
}

/*
 * permute: y[i0, i1, ...] is x with its axes in another order: y.shape[k] = x.shape[perm[k]].  x
 * may be strided; y and x must not overlap.  perm has x.rank entries.  Bit exact.
 */
static inline int kiln_permute(kiln_client *client, kiln_tensor x, kiln_tensor y,
							   const int64_t *perm)
{
	kiln_tensor tensors[2];
	kiln_attr attr = kiln_attr_ints("perm", perm, x.rank);
	tensors[0] = x;
	tensors[1] = y;
	return kiln_run(client, "permute", tensors, 2, &attr, 1);
}

#ifdef __cplusplus
}
#endif

#endif
