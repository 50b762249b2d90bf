/*
 * dlpack.h: lends the memory of a DLPack tensor (PyTorch, CuPy, JAX, ...) and describes it as a
 * kiln_tensor.  Header only.  Include your dlpack/dlpack.h first: nothing of DLPack is declared
 * here, and without it a use of these functions does not compile, and says this.
 */
#ifndef KILN_DLPACK_H
#define KILN_DLPACK_H

#include <kiln/kiln.h>

#ifndef DLPACK_DLPACK_H_

#define kiln_dlpack_dtype include_dlpack_dlpack_h_before_kiln_dlpack_h
#define kiln_dlpack_describe include_dlpack_dlpack_h_before_kiln_dlpack_h
#define kiln_dlpack_lend include_dlpack_dlpack_h_before_kiln_dlpack_h

#else

#ifdef __cplusplus
extern "C" {
#endif

/* The element type, or KILN_DTYPE_NONE.  Codes by number: older headers lack the later names. */
static inline kiln_dtype kiln_dlpack_dtype(DLDataType type)
{
	static const unsigned char table[13][4] = {
		/* 8, 16, 32, 64 bits */
		{KILN_I8, KILN_I16, KILN_I32, KILN_I64}, /* 0: int */
		{KILN_U8, KILN_U16, KILN_U32, KILN_U64}, /* 1: unsigned */
		{0, KILN_F16, KILN_F32, KILN_F64},       /* 2: float */
		{0, 0, 0, 0},                            /* 3: opaque handle */
		{0, KILN_BF16, 0, 0},                    /* 4: bfloat */
		{0, 0, 0, KILN_C64},                     /* 5: complex; 128 bits below */
		{KILN_BOOL, 0, 0, 0},                    /* 6: bool */
		{0, 0, 0, 0},                            /* 7: other floats of 8 bits */
		{0, 0, 0, 0},
		{0, 0, 0, 0},
		{KILN_F8E4M3, 0, 0, 0}, /* 10: float8_e4m3fn */
		{0, 0, 0, 0},
		{KILN_F8E5M2, 0, 0, 0}, /* 12: float8_e5m2 */
	};
	int column = type.bits == 8 ? 0 : type.bits == 16 ? 1 : type.bits == 32 ? 2 : 3;
	if (type.lanes != 1 || type.code > 12)
		return KILN_DTYPE_NONE;
	if (type.bits == 128)
		return type.code == 5 ? KILN_C128 : KILN_DTYPE_NONE;
	if (column == 3 && type.bits != 64)
		return KILN_DTYPE_NONE;
	return (kiln_dtype)table[type.code][column];
}

/*
 * Describes source, without a buffer and with offset 0: its first element is where a lend of it
 * begins.  *bytes: from there to behind its last element.  KILN_EINVAL for an element type, rank or
 * stride that Kiln does not have (no message is set).
 */
static inline int kiln_dlpack_describe(const DLTensor *source, kiln_tensor *tensor, uint64_t *bytes)
{
	uint64_t last = 0, size;
	int i, empty = 0;
	kiln_tensor t;
	t.buffer = (kiln_buffer *)0;
	t.offset = 0;
	t.dtype = kiln_dlpack_dtype(source->dtype);
	t.rank = source->ndim;
	t.contiguous = source->strides ? 0 : 1;
	size = kiln_dtype_size(t.dtype);
	if (size == 0 || t.rank < 0 || t.rank > KILN_MAX_RANK)
		return KILN_EINVAL;
	for (i = 0; i < KILN_MAX_RANK; i++) {
		t.shape[i] = i < t.rank ? source->shape[i] : 0;
		t.stride[i] = i < t.rank && source->strides ? source->strides[i] : 0;
		if (t.shape[i] < 0 || t.stride[i] < 0)
			return KILN_EINVAL;
		empty = empty || (i < t.rank && t.shape[i] == 0);
	}
	if (!source->strides) {
		int64_t run = 1;
		for (i = t.rank - 1; i >= 0 && !empty; i--) {
			t.stride[i] = run;
			if (t.shape[i] > INT64_MAX / run)
				return KILN_EINVAL;
			run *= t.shape[i];
		}
	}
	for (i = 0; i < t.rank && !empty; i++) {
		uint64_t steps = (uint64_t)t.shape[i] - 1, stride = (uint64_t)t.stride[i];
		if (stride != 0 && steps > (UINT64_MAX / 64 - last) / stride)
			return KILN_EINVAL;
		last += steps * stride;
	}
	*bytes = empty ? 0 : (last + 1) * size;
	*tensor = t;
	return KILN_OK;
}

/*
 * Lends the memory of source and describes it in *tensor, whose buffer is *out: free it with
 * kiln_free() before the memory goes.  Memory that is not CUDA's is refused as kiln_lend_cuda()
 * does, with a message.
 */
static inline int kiln_dlpack_lend(kiln_client *client, const DLTensor *source, const char *name,
								   kiln_tensor *tensor, kiln_buffer **out)
{
	kiln_tensor t;
	kiln_buffer *buffer = (kiln_buffer *)0;
	uint64_t bytes = 0;
	int status = kiln_dlpack_describe(source, &t, &bytes);
	if (status != KILN_OK)
		return status;
	status = kiln_lend_cuda(client, (uint64_t)(uintptr_t)source->data + source->byte_offset, bytes,
							name, &buffer);
	if (status != KILN_OK)
		return status;
	t.buffer = buffer;
	*tensor = t;
	*out = buffer;
	return KILN_OK;
}

#ifdef __cplusplus
}
#endif

#endif

#endif
