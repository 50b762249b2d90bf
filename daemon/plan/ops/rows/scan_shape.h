/*
 * scan_shape.h: how the rows of a scan are spread over threads.  Shared by scan.c, which makes the
 * plan, and scan_shape.c alone.
 */
#ifndef KILN_DAEMON_PLAN_SCAN_SHAPE_H
#define KILN_DAEMON_PLAN_SCAN_SHAPE_H

#include "scan.h"

#define SCAN_SHAPES_MOST 32
#define SCAN_GENERIC_THREADS 256u /* of a block, where the device has so many */

/* Threads share the work: (size) threads a row and (side) rows a block; or, of strided rows, (size)
 * threads share the columns of each of (side) vectors of rows. */
struct scan_shape {
	uint32_t vector, held, size, side;
	/* 1: the next step is read before this one is computed; 2 and more: so many steps have room in
	 * shared memory. */
	uint32_t early;
	uint32_t chain; /* 1: blocks share the columns of a row */
};

/* Finds the shapes that suit rows, the best first; returns how many, one at least. */
int scan_shapes(const struct scan_form *form, const struct kernel_limits *limits,
				struct scan_shape shapes[SCAN_SHAPES_MOST]);
/* A generic kernel asks its block how many threads it has. */
struct scan_shape scan_generic_shape(const struct scan_form *form,
									 const struct kernel_limits *limits);
/* Do warps of a generic kernel take a row each? */
bool scan_generic_short(const struct scan_form *form);
/* Returns the shared memory of a ring, or of a chain's tile. */
uint32_t scan_ring_bytes(const struct scan_shape *shape);
/* Returns the blocks that share the columns of a row. */
uint64_t scan_chain_tiles(const struct scan_form *form, const struct scan_shape *shape);
/* Returns scratch memory that has a flag for each tile and each group of tiles, then what these
 * come to, in four bytes a row. */
struct kernel_scratch scan_chain_scratch(const struct scan_form *form,
										 const struct scan_shape *shape);

#endif
