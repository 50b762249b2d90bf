/*
 * softmax.h: what the planners of softmax, its backward and their masked forms share: the problem
 * as rows, and the candidates for it.  Shared by the softmax*.c and masked_softmax*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_SOFTMAX_H
#define KILN_DAEMON_PLAN_SOFTMAX_H

#include "daemon/plan/ops/rows/rows.h"

#define SOFTMAX_MAX_WAYS PLAN_MAX_CHOICES

/* A softmax as rows.  The operands of the form are those whose elements are rows: the inputs that
 * are held, then the output. */
struct softmax_form {
	struct rows_form rows;
	struct rows_need need;
	kiln_dtype dtype;
};

/*
 * The rows of operands index[0 .. count), the last one of them the output, along an axis.  Their
 * shapes and dtypes agree: that was checked.
 */
void softmax_form(const struct kernel_problem *problem, const int *index, int count, int axis,
				  struct softmax_form *form);
/* The shapes for a form, the best first; how many. */
int softmax_shapes(const struct softmax_form *form, const struct kernel_limits *limits,
				   struct rows_shape out[SOFTMAX_MAX_WAYS]);

/* ---- Rows that lie side by side (softmax_strided.c, _panel.c, _whole.c, _ring.c) ---- */

struct softmax_tile {
	uint32_t vector;       /* rows that move at once */
	uint32_t held;         /* columns a thread holds, at a time if twice */
	uint32_t lanes, split; /* threads along the rows, and of a block that share a row's columns */
	uint32_t tiles;        /* of a block */
	uint32_t cluster;      /* blocks that share a panel's columns; 0: it is no panel */
	uint32_t kept, slots;  /* of the columns of a panel's thread, in registers and shared memory */
	uint32_t blocks;       /* of a panel or a ring, on a multiprocessor */
	uint32_t teams;        /* of a block whose matrices come into a ring of slots; 0: no ring */
	bool whole;            /* a matrix that lies in one piece, or a cluster's part of it */
	bool twice;            /* rows are read twice */
	bool skewed;           /* a panel's vectors are put together of two: rows begin anywhere */
	bool shifted;          /* results of a skewed panel begin elsewhere than their elements */
};

/* Do the rows of the output lie side by side, and not their elements? */
bool softmax_is_strided(const struct softmax_form *form);
/* The widest vector of rows that lie side by side. */
uint32_t softmax_tile_vector(const struct softmax_form *form);
int softmax_tiles(const struct softmax_form *form, const struct kernel_limits *limits,
				  struct softmax_tile *out, int most);
/* Adds panels, the best first, for rows that are too long for the registers of threads. */
void softmax_panels(const struct softmax_form *form, const struct kernel_limits *limits,
					struct softmax_tile *out, int most, int *count);
/* Are panels the best for rows that threads alone could hold, too? */
bool softmax_is_held(const struct softmax_form *form);
/* Adds matrices that lie in one piece. */
void softmax_wholes(const struct softmax_form *form, const struct kernel_limits *limits,
					struct softmax_tile *out, int most, int *count);
/* Does every matrix of all operands follow the last, without gaps, from an aligned address on? */
bool softmax_is_whole(const struct softmax_form *form);
/* Adds matrices that come into rings, the best way first. */
void softmax_rings(const struct softmax_form *form, const struct kernel_limits *limits,
				   struct softmax_tile *out, int most, int *count);
uint64_t softmax_ring_bytes(const struct softmax_form *form, const struct softmax_tile *tile);
/* Returns how many blocks take so many matrices. */
uint64_t softmax_ring_blocks(const struct softmax_tile *tile, const struct kernel_limits *limits,
							 uint64_t matrices);
uint32_t softmax_tile_threads(const struct softmax_tile *tile);
/* Dynamic shared memory of a part of a matrix, and of a panel. */
uint64_t softmax_whole_bytes(const struct softmax_form *form, const struct softmax_tile *tile);
uint64_t softmax_panel_bytes(const struct softmax_form *form, const struct softmax_tile *tile);
/* "strided 16x8x4 t1", "strided-twice 16x16x4 t1", "panel 8x32x32 b1", "panel 8x32x32 k16 b2",
 * "panel-skewed 8x32x32 b1", "panel-shifted 8x32x32 b1", "panel-cluster2 8x32x64 k16 s36 b1",
 * "whole2 67x14": of threads a column and columns at a time, "ring2 541x1 t1 s3 b1": of threads a
 * period and periods at a time, teams, slots */
void softmax_tile_name(const struct softmax_tile *tile, char name[KERNEL_CHOICE_MAX]);
/* "StridedShape<f16, 64, 8, 4, 16, 16, 1, 4096>", "PanelShape<f16, 1000, 8, 8, 32, 1, 16, 16, 2,
 * false, 4096>", "WholeShape<f16, 118, 541, 1, 1, 2>", "RingShape<f16, 118, 541, 544, 1, 2,
 * 3, 1>" */
void softmax_print_tile(struct plan_text *text, const struct softmax_form *form,
						const struct softmax_tile *tile);
/* ", steps, distances of rows side by side, List<sizes>, List<strides>, u32": of all operands. */
void softmax_print_sides(struct plan_text *text, const struct softmax_form *form);
/* Like rows_launch(); *tiles says how many tiles or panels there are. */
bool softmax_tile_launch(const struct softmax_form *form, const struct softmax_tile *tile,
						 const struct kernel_limits *limits, struct kernel_plan *out,
						 uint64_t *tiles);

/* ---- Of any size (softmax_generic.c) ---- */

/* The generic plan of operands 0 .. count - 1, the last one of them the output. */
void softmax_generic(const struct kernel_problem *problem, const struct softmax_form *form,
					 int count, bool log, double scale, const struct kernel_limits *limits,
					 struct kernel_plan *out);

/* ---- Candidates ---- */

struct softmax_way {
	bool strided;
	struct rows_shape row;
	struct softmax_tile tile;
	char name[KERNEL_CHOICE_MAX];
};

/* The candidates for a form, the best first; how many. */
int softmax_ways(const struct softmax_form *form, const struct kernel_limits *limits,
				 struct softmax_way out[SOFTMAX_MAX_WAYS]);
/* The position of the one with this name (NULL: the first); -1 if there is none. */
int softmax_way_find(const struct softmax_way *ways, int count, const char *name);

/* ---- Pieces of plans ---- */

/* ", x step, y step, List<sizes>, List<x strides>, List<y strides>, u32": of all operands. */
void softmax_print_rows(struct plan_text *text, const struct softmax_form *form);
/* The arguments before, exponent and after of the kernels for scale * x, in the compute type. */
void softmax_scale_args(struct kernel_plan *out, kiln_dtype dtype, double scale);
/* Extents of the operands that are rows, and what they move. */
void softmax_extents(const struct kernel_problem *problem, const int *index, int count,
					 uint32_t alignment, struct kernel_plan *out);

/* ---- For the rows (softmax_ops.c) ---- */

int softmax_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int softmax_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int softmax_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int softmax_generics(int index, struct kernel_problem *out);
int softmax_backward_generics(int index, struct kernel_problem *out);

#endif
