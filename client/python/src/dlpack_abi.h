/*
 * dlpack_abi.h: the binary layout of DLPack 1.x as far as it is read here, under names of this
 * project.  The layouts are those of the DLPack specification, major version 1; its C exchange
 * table is the capsule "dlpack_exchange_api" of a type's __dlpack_c_exchange_api__.
 */
#ifndef KILN_PYTHON_DLPACK_ABI_H
#define KILN_PYTHON_DLPACK_ABI_H

#include <stdint.h>

enum { PACK_CPU = 1, PACK_CUDA = 2, PACK_CUDA_HOST = 3, PACK_CUDA_MANAGED = 13 };

struct pack_dtype {
	uint8_t code, bits;
	uint16_t lanes;
};

struct pack_tensor {
	void *data;
	int32_t device_type, device_id;
	int32_t rank;
	struct pack_dtype dtype;
	int64_t *shape;
	int64_t *strides; /* in elements; NULL: row-major */
	uint64_t byte_offset;
};

/* Capsule "dltensor". */
struct pack_managed {
	struct pack_tensor tensor;
	void *context;
	void (*free)(struct pack_managed *self);
};

/* Capsule "dltensor_versioned". */
struct pack_versioned {
	uint32_t major, minor;
	void *context;
	void (*free)(struct pack_versioned *self);
	uint64_t flags;
	struct pack_tensor tensor;
};
#define PACK_READ_ONLY 1u

/* The functions return 0, or -1 with a Python exception set. */
struct pack_exchange {
	uint32_t major, minor;
	struct pack_exchange *older;
	int (*allocate)(struct pack_tensor *prototype, struct pack_versioned **out, void *context,
					void (*fail)(void *context, const char *kind, const char *sentence));
	int (*from_object)(void *object, struct pack_versioned **out);
	int (*to_object)(struct pack_versioned *tensor, void **out);
	int (*view)(void *object, struct pack_tensor *out); /* borrows; may be NULL */
	int (*stream)(int32_t device_type, int32_t device_id, void **out);
};

#endif
