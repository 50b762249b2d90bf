/* shapes_list.c: which problems there are. */
#include "shapes.h"

#include <kiln/ops.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void permute(struct shape *shape, int64_t a, int64_t b, int64_t c)
{
	const int64_t in[3] = {a, b, c}, out[3] = {a, c, b};

	shape->op = "permute";
	memcpy(shape->dims, in, sizeof(in));
	memcpy(shape->perm, (const int64_t[3]){0, 2, 1}, sizeof(shape->perm));
	shape->tensors[0] = kiln_tensor_make(NULL, 0, shape->dtype, 3, in);
	shape->tensors[1] = kiln_tensor_make(NULL, 0, shape->dtype, 3, out);
	shape->count = 2;
	shape->attrs[0] =
		(kiln_attr){.name = "perm", .kind = KILN_ATTR_INTS, .ints = shape->perm, .count = 3};
	shape->attr_count = 1;
}

static void rows(struct shape *shape, const char *op, int64_t a, int64_t b, int64_t columns)
{
	const int64_t dims[3] = {a, b, columns};
	bool norm = strcmp(op, "layer_norm") == 0;

	shape->op = op;
	memcpy(shape->dims, dims, sizeof(dims));
	shape->tensors[0] = kiln_tensor_make(NULL, 0, shape->dtype, 3, dims);
	shape->count = 2;
	if (norm) {
		/* x, gamma, beta, no residual, y */
		shape->tensors[1] = kiln_tensor_make(NULL, 0, shape->dtype, 1, &columns);
		shape->tensors[2] = kiln_tensor_make(NULL, 0, shape->dtype, 1, &columns);
		shape->tensors[3] = (kiln_tensor){.dtype = KILN_DTYPE_NONE};
		shape->count = 5;
	}
	shape->tensors[shape->count - 1] = kiln_tensor_make(NULL, 0, shape->dtype, 3, dims);
}

static void make(struct shape *shape, int kind, int64_t batch, int64_t length, int64_t width)
{
	memset(shape, 0, sizeof(*shape));
	shape->dtype = kind % 2 ? KILN_F16 : KILN_F32;
	if (kind / 2 == 0)
		rows(shape, "softmax", batch, 8, length);
	else if (kind / 2 == 1)
		permute(shape, batch, length, width);
	else
		rows(shape, "layer_norm", batch, 8, length);
}

void shape_make(int n, struct shape *shape)
{
	/* Each kind has lengths that follow one another: odd ones, and some that vectors fit. */
	make(shape, n % 6, 4 + n % 5, 17 + n / 6, 64 + n % 7);
}

void shape_make_warm(int n, struct shape *shape)
{
	static const int64_t lengths[SHAPES_WARM / 6] = {8, 12, 17, 1500};

	make(shape, n % 6, 3, lengths[n / 6 % (SHAPES_WARM / 6)], 61);
}

void shape_print(int n)
{
	struct shape shape;

	shape_make(n, &shape);
	printf("{\"op\": \"%s\", \"dtype\": \"%s\", \"shape\": [%lld, %lld, %lld]}\n", shape.op,
		   shape.dtype == KILN_F16 ? "f16" : "f32", (long long)shape.dims[0],
		   (long long)shape.dims[1], (long long)shape.dims[2]);
}
