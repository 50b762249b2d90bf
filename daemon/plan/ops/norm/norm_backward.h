/*
 * norm_backward.h: what the planner files of layer_norm_backward and rms_norm_backward share: the
 * problem as rows and columns, and the ways to take it.  Shared by the norm_backward*.c files
 * alone.
 */
#ifndef KILN_DAEMON_PLAN_NORM_BACKWARD_H
#define KILN_DAEMON_PLAN_NORM_BACKWARD_H

#include "norm.h"

#define NORM_BACKWARD_MAX_WAYS PLAN_MAX_CHOICES

/* Operand numbers; -1: there is no such operand, or it is left out. */
struct norm_backward_operands {
	int x, dy, gamma, mean, rstd, dx, dgamma, dbeta;
};

struct norm_backward_problem {
	const struct kernel_problem *problem;
	bool rms;
	struct norm_backward_operands at;
	uint32_t touched; /* bitmap of the operands that the results depend on, and the results */
	int axes;
	kiln_dtype dtype;
	struct rows_form form; /* x, dy, and dx where it is there */
	uint32_t pieces;       /* those of the form whose columns are not evenly spaced */
	struct rows_need need;
	uint32_t affine; /* alignment that gamma has at least */
	int sums;        /* of dgamma and dbeta, how many are there */
};

/* Columns are added up in strips, by blocks that go over the rows. */
struct norm_backward_strips {
	uint32_t vector; /* elements that move at once */
	uint32_t size;   /* threads a row */
	uint32_t rows;   /* of a block, side by side */
	uint32_t unroll; /* times that many at once */
	uint32_t blocks; /* that a multiprocessor is meant to have */
	bool skewed;     /* rows begin anywhere */
	bool alone;      /* there are strips enough, and rows are not cut in chunks */
};

enum norm_backward_kind {
	NORM_BACKWARD_ROWS,    /* dx alone */
	NORM_BACKWARD_COLUMNS, /* dgamma and dbeta alone */
	NORM_BACKWARD_ALL,     /* all of them, by threads that hold rows and sums */
	NORM_BACKWARD_RING,    /* all of them, by threads that hold sums, of rows in shared memory */
	NORM_BACKWARD_WARPS,   /* all of them, by warps that each have rows in shared memory */
	NORM_BACKWARD_BOTH,    /* all of them, rows and columns by different blocks */
};

/* A way to take a problem. */
struct norm_backward_way {
	enum norm_backward_kind kind;
	struct rows_shape shape;            /* not COLUMNS */
	struct norm_backward_strips strips; /* COLUMNS and BOTH */
	uint32_t blocks; /* ALL: that a multiprocessor is meant to have; WARPS: warps of a block */
	uint32_t ahead;  /* ALL: rows under way in shared memory; 0: one, to registers */
	bool pairs;      /* ALL: a row is measured while dx of the one before is made */
	uint32_t stages; /* RING: rows in shared memory; WARPS: pieces of a warp there */
};

/* The ways for a problem, the best first; how many. */
int norm_backward_ways(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					   struct norm_backward_way out[NORM_BACKWARD_MAX_WAYS]);
/* Returns the need of rows that are held, or read twice. */
struct rows_need norm_backward_need(const struct norm_backward_problem *norm);
/* The ways to add up columns alone (norm_backward_columns.c). */
int norm_backward_columns(const struct norm_backward_problem *norm,
						  const struct kernel_limits *limits, struct norm_backward_strips *out,
						  int most);
/* Strips for blocks of so many threads, beside rows; false if there is not the memory. */
bool norm_backward_strips_of(const struct norm_backward_problem *norm,
							 const struct kernel_limits *limits, uint32_t threads,
							 struct norm_backward_strips *strips);
/* Returns how many strips there are, and in how many chunks the rows are best cut. */
int64_t norm_backward_strip_count(const struct norm_backward_problem *norm,
								  const struct norm_backward_strips *strips);
uint32_t norm_backward_chunk_count(const struct norm_backward_problem *norm,
								   const struct norm_backward_strips *strips,
								   const struct kernel_limits *limits);
/* Shared and scratch memory that adding up columns takes. */
uint32_t norm_backward_strip_shared(const struct norm_backward_problem *norm,
									const struct norm_backward_strips *strips);
struct kernel_scratch norm_backward_strip_scratch(const struct norm_backward_problem *norm,
												  const struct norm_backward_strips *strips,
												  uint32_t chunks);
/* The ways that thread can hold rows and sums (norm_backward_all.c). */
int norm_backward_all(const struct norm_backward_problem *norm, const struct kernel_limits *limits,
					  struct norm_backward_way *out, int most);
/* Returns after how many rows one begins as far behind an aligned vector again, a power of two. */
uint32_t norm_backward_period(const struct norm_backward_problem *norm,
							  const struct norm_backward_way *way);
/* Sets grid, block, shared and scratch memory of such a way. */
void norm_backward_all_launch(const struct norm_backward_problem *norm,
							  const struct norm_backward_way *way,
							  const struct kernel_limits *limits, struct kernel_plan *out);
/* The ways that rows come into shared memory (norm_backward_ring.c), and the launch of one. */
int norm_backward_rings(const struct norm_backward_problem *norm,
						const struct kernel_limits *limits, struct norm_backward_way *out,
						int most);
void norm_backward_ring_launch(const struct norm_backward_problem *norm,
							   const struct norm_backward_way *way,
							   const struct kernel_limits *limits, struct kernel_plan *out);
/* The ways that each warp has rows come (norm_backward_warps.c), and the launch of one.  first: the
 * best other way, or null.  *usual: the first of these did better than all others where it was
 * timed. */
int norm_backward_warps(const struct norm_backward_problem *norm,
						const struct kernel_limits *limits, const struct norm_backward_way *first,
						struct norm_backward_way *out, int most, bool *usual);
void norm_backward_warps_launch(const struct norm_backward_problem *norm,
								const struct norm_backward_way *way,
								const struct kernel_limits *limits, struct kernel_plan *out);
/* Returns the number that the addresses of x, dy and dx must be multiples of. */
uint32_t norm_backward_alignment(const struct norm_backward_problem *norm,
								 const struct norm_backward_way *way);
/* "rows 128x2 r1": unique. */
void norm_backward_way_name(const struct norm_backward_way *way, char name[KERNEL_CHOICE_MAX]);
/* The kernel of a plan: its source and name, grid, block, shared and scratch memory, arguments, and
 * what the way is in words. */
int norm_backward_kernel(const struct norm_backward_problem *norm,
						 const struct norm_backward_way *way, const struct kernel_limits *limits,
						 struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);

/* The operands as arguments: inputs, dx, dgamma and dbeta, scratch memory; 0 for what is not
 * touched. */
void norm_backward_pass_operands(const struct norm_backward_problem *norm, struct kernel_plan *out);
/* The generic plan (norm_backward_generic.c); *alignment: what x, dy and dx must have. */
int norm_backward_generic(const struct norm_backward_problem *norm,
						  const struct kernel_limits *limits, uint32_t *alignment,
						  struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);

/* ---- For the rows (norm_ops.c) ---- */

int norm_backward_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int norm_backward_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int norm_backward_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int layer_norm_backward_generics(int index, struct kernel_problem *out);
int rms_norm_backward_generics(int index, struct kernel_problem *out);

#endif
