/*
 * shapes.h: the problems of bench_shapes: of several operators, each of another shape, and all of
 * sizes that a model with batches and sequences of its own has.
 */
#ifndef KILN_BENCH_SHAPES_H
#define KILN_BENCH_SHAPES_H

#include <kiln/kiln.h>

#define SHAPES_BYTES ((uint64_t)16 << 20) /* of any operand, at most */

struct shape {
	const char *op;
	kiln_dtype dtype;
	int64_t dims[3];
	kiln_tensor tensors[5]; /* without buffers */
	int count;
	kiln_attr attrs[2];
	int attr_count;
	int64_t perm[3];
};

/* Problem n: no two are the same. */
void shape_make(int n, struct shape *shape);
/* Problems of the same kinds whose shapes are none of those, for a daemon to have all it needs. */
#define SHAPES_WARM 24
void shape_make_warm(int n, struct shape *shape);
/* As a line of JSON: what another program needs to do the same. */
void shape_print(int n);

#endif
