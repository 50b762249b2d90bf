/*
 * rows.h: operators that treat each row of a matrix by itself: which elements make a row, in every
 * operand, and how a row is spread over threads (kernel_src/common/row.cuh).  Shared by the files
 * of such operators.
 */
#ifndef KILN_DAEMON_PLAN_ROWS_H
#define KILN_DAEMON_PLAN_ROWS_H

#include "daemon/plan/internal.h"

#define ROWS_MAX_OPERANDS 8
/* Bytes of a block's shared memory in which a kernel's threads meet, at most: dynamic shared memory
 * leaves them free. */
#define ROWS_SHARED_MEET 3072u

/*
 * A problem as rows of columns.  The dimensions that number the rows are merged where all operands
 * run on, slowest first; sizes of 1 are gone but for that of the first dimension, the batch.
 */
struct rows_form {
	int64_t rows, columns;
	int operands;
	int64_t step[ROWS_MAX_OPERANDS]; /* from column to column, in elements */
	int rank;
	int64_t size[KILN_MAX_RANK];
	int64_t stride[ROWS_MAX_OPERANDS][KILN_MAX_RANK];
};

/*
 * The form of operands with these strides (each one in the dimensions of shape, 0 where it is
 * broadcast), whose rows run along `axes` dimensions from `axis` on.  false if the dimensions of a
 * row do not merge into one, with the operand at which they do not in *culprit.
 */
bool rows_form(struct rows_form *form, int rank, const int64_t *shape, int operands,
			   const int64_t *const stride[], int axis, int axes, int *culprit);

/* ", List<sizes>": of the dimensions that number the rows but the slowest, fastest first. */
void rows_print_sizes(struct plan_text *text, const struct rows_form *form);
/* ", List<strides>": of one operand, fastest first, the slowest with them. */
void rows_print_strides(struct plan_text *text, const struct rows_form *form, int operand);
/* Pass them as arguments, for common/space.cuh: the rank and the sizes, of so many bytes (4 or 8);
 * the strides of one operand. */
void rows_pass_sizes(struct kernel_plan *plan, const struct rows_form *form, uint32_t bytes);
void rows_pass_strides(struct kernel_plan *plan, const struct rows_form *form, int operand);
/* The type that row numbers have: "u32", or "i64" when there are too many. */
const char *rows_index_type(const struct rows_form *form);

/* ---- What is asked of operands (rows_check.c); names come from the table of operators ---- */

/* f16, bf16, f32 or f64, at an address that is aligned to its elements. */
int rows_check_float(const struct kernel_problem *problem, int index, char error[KERNEL_ERROR_MAX]);
/* At an address that is aligned to its elements. */
int rows_check_aligned(const struct kernel_problem *problem, int index,
					   char error[KERNEL_ERROR_MAX]);
/* At such an address, with elements of the last dimension that lie side by side. */
int rows_check_inner(const struct kernel_problem *problem, int index, char error[KERNEL_ERROR_MAX]);
/* Shape and dtype of another operand. */
int rows_check_same(const struct kernel_problem *problem, int index, int like,
					char error[KERNEL_ERROR_MAX]);
/* Both, for a float operand like another that was checked. */
int rows_check_like(const struct kernel_problem *problem, int index, int like,
					char error[KERNEL_ERROR_MAX]);
/* Dimension dim_a of operand a has the size of dimension dim_b of operand b. */
int rows_check_size(const struct kernel_problem *problem, int a, int dim_a, int b, int dim_b,
					char error[KERNEL_ERROR_MAX]);
int rows_check_contiguous(const struct kernel_problem *problem, int index,
						  char error[KERNEL_ERROR_MAX]);
/* An operand that is left out becomes contiguous, with shape and dtype of another. */
void rows_infer_like(struct kernel_problem *problem, int index, int like);
/* Refuses a choice that is none of the candidates. */
int rows_no_candidate(const struct kernel_problem *problem, const char *choice,
					  const struct rows_form *form, const struct kernel_limits *limits,
					  char error[KERNEL_ERROR_MAX]);

/* ---- How a row is spread over threads ---- */

struct rows_shape {
	uint32_t vector;  /* elements that move at once */
	uint32_t held;    /* vectors a thread holds ... */
	uint32_t slots;   /* ... so many of them in shared memory */
	uint32_t size;    /* threads a row, of each block */
	uint32_t rows;    /* of a block */
	uint32_t cluster; /* blocks a row */
	bool skewed;      /* rows begin between two aligned vectors */
	bool stream;      /* held at a time: a block goes over its row as often as it needs */
	bool wide;        /* vectors are of 32 bytes, which move as two of 16 */
	bool narrow;      /* vectors are of 8 bytes, for what is read along the row has 16 then */
	bool staged;      /* the rows of a block come and go as one piece, by way of shared memory */
	bool gapped;      /* they go so, but each comes by itself */
	bool pairs;       /* threads take them by words of two halves */
};

/* The needs of the kernel, beside the form. */
struct rows_need {
	uint32_t element;   /* bytes, of the operands that are held */
	uint32_t streams;   /* operands that are held */
	uint32_t held;      /* bitmap of the form's operands that are held or written likewise */
	uint32_t alignment; /* that the addresses of all these have at least */
	uint32_t registers; /* 32-bit words of a row that a thread may keep in registers */
	uint32_t converted; /* bytes of an element in the type that it is kept in as well, or 0 */
	uint32_t beside;    /* bytes for each element that it keeps beside them, of a mask */
	uint32_t aside;     /* bytes of a row's mask in shared memory, where rows are staged */
	uint32_t around;    /* words besides that a thread needs, such as for masks, beyond the usual */
	bool along;         /* other operands are read along each row, such as gamma */
	bool uneven;        /* rows take unequal time: those of a block wait for each other */
	bool drawn;         /* problems of it were drawn and timed: rows_order() knows it */
	bool skew, slots;   /* whether the kernel can */
	bool clusters, stream, staged;
	bool staged_far, gapped; /* staged rows may be long; those of an input may have gaps */
	bool pairs;              /* rows of an odd number of halves may go by pairs */
};

/* Halves bytes, down to an element, until the rows of an operand all begin at multiples of it. */
uint32_t rows_narrow(const struct rows_form *form, int operand, uint32_t element, uint32_t bytes);
/* The widest vector (elements) with which all rows of the held operands are aligned. */
uint32_t rows_vector(const struct rows_form *form, const struct rows_need *need);
/* Threads of a row of vectors, of which each holds so many: a part of a warp or whole ones. */
uint32_t rows_group(uint64_t vectors, uint64_t held);
/* Has the device clusters, and a grid of one of so many blocks for each row? */
bool rows_clusters(const struct rows_form *form, uint32_t blocks,
				   const struct kernel_limits *limits);
/* Do the rows of all held operands begin equally far past an aligned address? */
bool rows_congruent(const struct rows_form *form, const struct rows_need *need);
/*
 * Brings the cheapest of shapes first, and last those that would run out of registers
 * (rows_cost.c).  The first of them comes from tables: another has to promise more than costs err,
 * and much more where the tables were timed.
 */
void rows_order(const struct rows_form *form, const struct rows_need *need,
				const struct kernel_limits *limits, bool timed, struct rows_shape *shapes,
				int count);
/*
 * The shapes that can hold a row, the one that the figures of an H200 speak for first; how many.
 * None if a row is too long for any and the kernel cannot stream.
 */
int rows_shapes(const struct rows_form *form, const struct rows_need *need,
				const struct kernel_limits *limits, struct rows_shape *out, int most);
/* "rows 128x2 r1", "wide 128x1 r1", "skewed 32x5 r4", "slots 1024x4/2 r1", "cluster8 256x16/8",
 * "stream 1024x4", "staged 4x10 r64": unique among the shapes for a form. */
void rows_shape_name(const struct rows_shape *shape, char name[KERNEL_CHOICE_MAX]);
/* The position of the shape with this name (NULL: the first); -1 if there is none. */
int rows_shape_find(const struct rows_shape *shapes, int count, const char *name);
/* "RowShape<f16, 1024, 8, 2, 0, 64, 2, 1, false>", "RowStream<f16, 1024, 8, 4, 1024, false>" */
void rows_print_shape(struct plan_text *text, kiln_dtype dtype, const struct rows_form *form,
					  const struct rows_shape *shape);
/* ", 1": the step from column to column of an operand. */
void rows_print_step(struct plan_text *text, const struct rows_form *form, int operand);
/* Returns the number that the address of a held operand must be a multiple of. */
uint32_t rows_alignment(const struct rows_shape *shape, uint32_t element);
/* Grid, block and shared memory of a plan; true if the grid is too small for the rows and has to
 * loop. */
bool rows_launch(const struct rows_form *form, const struct rows_need *need,
				 const struct rows_shape *shape, const struct kernel_limits *limits,
				 struct kernel_plan *out);
/* The note of a plan: "rows of 4096 elements; threads a row: 128; vectors a thread: 4 of 16 bytes",
 * and more. */
void rows_describe(const struct rows_form *form, const struct rows_need *need,
				   const struct rows_shape *shape, const char *more, struct kernel_plan *out);

/* ---- Rows of any length (rows_generic.c) ---- */

#define ROWS_ANY_THREADS 512u /* ROW_ANY_THREADS */
#define ROWS_ANY_ALONE 31u    /* as a shift: a block has one row */

struct rows_any {
	uint32_t vector;  /* elements that move at once: 16 bytes of them, or 1 */
	uint32_t threads; /* of a block */
	uint32_t shift;   /* its rows, as GroupAny has it */
	uint64_t blocks;  /* for all rows */
};

/* The number that a kernel has for a float type, ROW_ANY_F16; 0: none. */
uint32_t rows_any_type(kiln_dtype dtype);
/* count: vectors that a thread takes in a step; threads: of a block, at most.  Of need, what
 * rows_vector looks at is enough. */
void rows_any(const struct rows_form *form, const struct rows_need *need, uint32_t count,
			  uint32_t threads, const struct kernel_limits *limits, struct rows_any *out);
/* The places that a thread has in shared memory for steps of `streams` tensors (RowRing of
 * kernel_src/common/row_ring.cuh), one for each step of a row if there is room; 0 for rows that are
 * read element by element.  Blocks have fewer threads where there is little room, and where there
 * is next to none, elements come one by one. */
uint32_t rows_any_ring(const struct rows_form *form, uint32_t element, uint32_t streams,
					   uint32_t count, const struct kernel_limits *limits, struct rows_any *any,
					   uint32_t *shared_bytes);
/* The note of a plan. */
void rows_any_describe(const struct rows_any *any, uint32_t element, struct kernel_plan *out);

/* Rows that threads hold, by kernels that are told their length (kernel_src/common/row_held.cuh):
 * one of few shapes, of vectors of 16 bytes.  false: none will do.  skewed: the kernel takes rows
 * that begin between two vectors. */
bool rows_held(const struct rows_form *form, const struct rows_need *need, bool skewed,
			   const struct kernel_limits *limits, struct rows_shape *out);
#define ROWS_HELD_SHAPES 7
/* Columns of which rows_held makes shape number `index`; past the last, too many for any. */
int64_t rows_held_columns(int index, uint32_t element);
/* "HeldShape<f16, 8, 4, 32, 4, true>" */
void rows_held_print(struct plan_text *text, kiln_dtype dtype, const struct rows_shape *shape);
void rows_held_launch(const struct rows_form *form, const struct rows_shape *shape,
					  const struct kernel_limits *limits, const char *source,
					  struct kernel_plan *out);

#endif
