/*
 * norm.h: what the planners of layer_norm, rms_norm and their backward share: what is asked of
 * their operands, the problem as rows, and the ways to take it.  For the norm*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_NORM_H
#define KILN_DAEMON_PLAN_NORM_H

#include "daemon/plan/ops/rows/rows.h"

/* ---- What is asked (norm_check.c) ---- */

/* An operand of any float dtype, one element for each column of x, contiguous. */
int norm_check_trailing(const struct kernel_problem *problem, int index, int x, int axes,
						char error[KERNEL_ERROR_MAX]);
/* An operand of the type that x is computed in, one element for each row of x, contiguous. */
int norm_check_leading(const struct kernel_problem *problem, int index, int x, int axes,
					   char error[KERNEL_ERROR_MAX]);
/*
 * The rows of operands index[0 .. count), all of them as x, which is the first.  *pieces: a bitmap
 * of those whose normalized dimensions do not merge into one; their step is 0.
 */
void norm_form(const struct kernel_problem *problem, const int *index, int count, int axes,
			   struct rows_form *form, uint32_t *pieces);
/* Rows and columns of x. */
void norm_sizes(const struct kernel_tensor *x, int axes, int64_t *rows, int64_t *columns);
/* One number of the type that dtype is computed in. */
void plan_arg_real(struct kernel_plan *out, kiln_dtype dtype, double value);

/* ---- Where elements of two inputs lie, as a kernel is told (norm_print.c) ---- */

struct norm_place {
	const struct kernel_problem *problem;
	const struct rows_form *form;
	uint32_t pieces; /* of the form */
	int axes;
	int operand[2], number[2]; /* x and another, or -1; their numbers in the form */
};

/* ", NormPlace<...>" */
void norm_print_place(struct plan_text *id, const struct norm_place *place);

/* ---- Of any size (norm_generic.c) ---- */

/* Are there vectors for gamma or the like of type `of` beside x of this one? */
bool norm_any_usual(kiln_dtype dtype, kiln_dtype of);
/* ", 8, f16": elements that move at once, and with them gamma's type. */
void norm_any_print(struct plan_text *id, uint32_t vector, kiln_dtype dtype);
/* The arguments of common/norm_any.cuh that say where elements lie. */
int norm_any_space(const struct norm_place *place, struct kernel_plan *out,
				   char error[KERNEL_ERROR_MAX]);

/* ---- The forward operators ---- */

#define NORM_MAX_WAYS PLAN_MAX_CHOICES

/* Operand numbers; -1: there is no such operand, or it is left out. */
struct norm_operands {
	int x, gamma, beta, residual, y, mean, rstd, sum;
};

struct norm_problem {
	const struct kernel_problem *problem;
	bool rms;
	struct norm_operands at;
	int axes;
	double eps;
	kiln_dtype dtype;
	struct rows_form form; /* x, y, and where they are there residual and sum */
	int residual;          /* its number in the form, or -1 */
	uint32_t pieces;       /* those of the form whose columns are not evenly spaced */
	struct rows_need need;
	uint32_t affine; /* alignment that gamma and beta have at least */
};

/* Makes the place of x and the residual; it lasts as long as the problem (norm_print.c). */
struct norm_place norm_place(const struct norm_problem *norm);

/* A way to take a row. */
struct norm_way {
	struct rows_shape shape;
	uint32_t together; /* rows that the same threads hold */
	uint32_t turn;     /* not 0: slots whose gamma and beta are under way at a time, else 1 */
	uint32_t each;     /* not 0: the row is wrapped, and threads take so many one after another */
	bool wide;         /* wrapped: gamma and beta wait as numbers to compute with */
	bool windows;      /* wrapped: gamma and beta are cut out of vectors, and do not wait */
	bool apart;        /* wrapped: rows of x begin elsewhere between vectors than those of y */
	uint32_t stages;   /* not 0: blocks stay, and rows come into a ring of so many places */
	uint32_t piece;    /* not 0: rows of a piece, which comes and goes as one */
	uint32_t pitch;    /* of a piece: elements from one row of x to the next */
	uint32_t blocks;   /* of a piece: blocks of a multiprocessor */
};

/* The ways for a problem, the best first. */
struct norm_ways {
	const struct norm_problem *norm;
	const struct kernel_limits *limits;
	bool apart; /* of all that are wrapped */
	struct norm_way way[NORM_MAX_WAYS];
	int count;
};

/* Its operands as arguments, with eps and how many rows there are. */
void norm_pass_operands(const struct norm_problem *norm, struct kernel_plan *out);
/* The generic plan; *alignment: what x, y and the like must have. */
int norm_generic(const struct norm_problem *norm, const struct kernel_limits *limits,
				 uint32_t *alignment, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
void norm_ways(const struct norm_problem *norm, const struct kernel_limits *limits,
			   struct norm_ways *ways);
/* One more, if it is new and a thread has room for it. */
void norm_keep(struct norm_ways *ways, const struct norm_way *way);
/* Bytes of an element of x. */
uint32_t norm_element(const struct norm_problem *norm);

/* norm_wrap.c: candidates; bytes of shared memory, for planes of gamma and beta */
void norm_offer_wraps(struct norm_ways *ways);
uint32_t norm_wrap_bytes(const struct norm_problem *norm, bool wide);
/* norm_ring.c: candidates, with clusters if the device has them; bytes of shared memory; blocks
 * that stay */
void norm_offer_rings(struct norm_ways *ways, bool clusters);
uint32_t norm_ring_bytes(const struct norm_way *way, uint32_t stages);
uint32_t norm_ring_blocks(const struct norm_way *way, const struct kernel_limits *limits);
/* norm_staged.c: adds candidates, if rows lie as they must; returns bytes of shared memory */
void norm_offer_staged(struct norm_ways *ways);
uint32_t norm_staged_bytes(const struct norm_problem *norm, const struct norm_way *way);

/* "rows 128x2 r1 t2", "slots 512x8/8 r1 u2", "wrap 32x4 r8 e1", "ring4 512x8 s3",
 * "staged 8x10 r32": unique. */
void norm_way_name(const struct norm_way *way, char name[KERNEL_CHOICE_MAX]);
/* ", 2, false>", ", 1, false, 4>": of rows that threads hold. */
void norm_print_held(struct plan_text *id, const struct norm_way *way, bool loop);
/* Grid, block and shared memory of a plan; true if the grid is too small for the rows and has to
 * loop. */
bool norm_launch(const struct norm_problem *norm, const struct norm_way *way,
				 const struct kernel_limits *limits, struct kernel_plan *out);
/* Says in a plan what the way is. */
void norm_note(const struct norm_problem *norm, const struct norm_way *way,
			   struct kernel_plan *out);

/* ---- For the rows (norm_ops.c) ---- */

int norm_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int norm_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int norm_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int norm_generics(int index, struct kernel_problem *out);

#endif
