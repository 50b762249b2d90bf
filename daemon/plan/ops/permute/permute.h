/*
 * permute.h: the canonical form of a permute, the matrix that a transpose sees in it, and the
 * variants that may take it.  Shared by the permute_*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_PERMUTE_H
#define KILN_DAEMON_PLAN_PERMUTE_H

#include "daemon/plan/internal.h"

/* A byte-wise split of elements and factors of huge sizes add to the rank. */
#define PERMUTE_MAX_DIMS (KILN_MAX_RANK + 12)

struct permute_dim {
	int64_t size;
	int64_t from, to; /* strides in x and y, in elements of the form */
};

/*
 * A permute without names: the dimensions in y's order, slowest first, without those of size 1,
 * neighbours merged where both sides run on; and the bytes that move as one, which is the widest
 * power of two that the run, the strides and both addresses allow.  Two problems with one form (but
 * for the size of the slowest dimension) are one kernel.
 */
struct permute_form {
	uint32_t element; /* bytes: 1, 2, 4, 8, 16 */
	int rank;
	struct permute_dim dim[PERMUTE_MAX_DIMS];
	int64_t count;             /* elements */
	uint32_t align_x, align_y; /* of the addresses, at most 16 */
	bool huge;                 /* a size is beyond 31 bits */
};

/* max_size: no merge may make a dimension larger. */
void permute_canonical(const struct kernel_problem *problem, const int64_t *perm, int64_t max_size,
					   struct permute_form *form);
/* Makes elements wider and cuts huge dimensions: the last steps, once no copy was found. */
void permute_refine(struct permute_form *form);
/* The first of them alone. */
void permute_widen(struct permute_form *form);
/* Takes runs of the fastest dimension, which stays, as elements of `width` bytes. */
void permute_join(struct permute_form *form, uint32_t width);
/* One contiguous run on both sides. */
bool permute_is_copy(const struct permute_form *form);

/* ---- Choices ---- */

/*
 * The sizes that make one kernel of a variant.  As a text: the variant and those of its numbers
 * that it has, such as "tile 128x64 k8 l16 s16 t256 r".
 */
struct permute_choice {
	uint32_t rows, columns; /* of a tile */
	uint32_t block;         /* k: rows of a thread's block */
	uint32_t load, store;   /* l, s: bytes at once; one number where both are the same */
	uint32_t threads;       /* t: of a block */
	uint32_t resident;      /* m: blocks that a multiprocessor is to hold */
	bool turn;              /* z: chunks of shared memory change places */
	uint32_t band;          /* r, c, b8: tiles of rows in a band: all, 1, 8 */
};
#define PERMUTE_BAND_ALL 0u

struct permute_variant;

/* Choices of one variant that suit a form and fit a device, the best first. */
struct permute_list {
	const struct permute_variant *variant;
	const struct permute_form *form;
	const struct kernel_limits *limits;
	struct permute_choice choice[PLAN_MAX_CHOICES];
	int count, most;
};

struct permute_variant {
	const char *name;
	const char *source;
	const char *fields; /* of the text, in order: 'x' rows x columns, 'w' load as a bare number,
						   'k', 'l', 's', 't', 'm', 'o' order */
	uint32_t align;     /* of a shift: bytes at which its stores to long columns of y begin */
	/* Makes suggestions.  None: the variant declines, and why it does was added. */
	void (*suggest)(struct permute_list *list, struct plan_text *why);
	/* Fills in the plan: true; or false with the rule that the choice breaks in why. */
	bool (*make)(const struct permute_form *form, const struct kernel_limits *limits,
				 const struct permute_choice *choice, struct kernel_plan *out,
				 struct plan_text *why);
};

extern const struct permute_variant permute_vector, permute_interleave, permute_shift,
	permute_stage, permute_tile, permute_box, permute_step, permute_braid, permute_near,
	permute_rows, permute_strided;

/* The plan whose kernel knows no size, of a permute that is no copy. */
void permute_generic(const struct kernel_problem *problem, const int64_t *perm,
					 const struct kernel_limits *limits, struct kernel_plan *out);
/* Does so for a refined form that is a transpose; false if it is none. */
bool permute_tile_generic(const struct permute_form *form, const struct kernel_limits *limits,
						  struct kernel_plan *out);

void permute_choice_print(const struct permute_variant *variant,
						  const struct permute_choice *choice, char text[KERNEL_CHOICE_MAX]);
/* False if the text is not what would be printed for a choice of this variant. */
bool permute_choice_read(const struct permute_variant *variant, const char *text,
						 struct permute_choice *choice);
/* Adds a choice if there is room, if it is new, and if the variant can make it. */
void permute_suggest(struct permute_list *list, const struct permute_choice *choice);

/* ---- Shared by the variants ---- */

/* The dimension of the smallest stride in x that is not 0; -1 if x is one element. */
int permute_fastest(const struct permute_form *form);
/* "i32" if offsets in both tensors, of all dimensions but `without` (-1: none), are small enough:
 * in elements, or in bytes too. */
const char *permute_offset_type(const struct permute_form *form, int without);
const char *permute_offset_type_bytes(const struct permute_form *form, int without);
/* The widest vector (bytes) that divides the given run and the strides in x (or y) of the
 * dimensions that are not in `skip`. */
uint32_t permute_width(const struct permute_form *form, bool in_x, int64_t run, uint32_t skip);

enum permute_field { PERMUTE_SIZE, PERMUTE_FROM, PERMUTE_TO };
/* ", List<...>" of the dimensions in mask, fastest in y first. */
void permute_print_list(struct plan_text *text, const struct permute_form *form, uint32_t mask,
						enum permute_field field);

/* The dimensions that are only iterated over, the one that blocks walk along first before others:
 * the last of them is a matter of the launch. */
struct permute_batch {
	int dim[PERMUTE_MAX_DIMS], inner; /* how many before the last */
	int outer;                        /* the last; -1: none */
	int64_t items;                    /* all of them multiplied */
};
/* along_x: in the order of x, else of y. */
void permute_batch(const struct permute_form *form, uint32_t used, bool along_x,
				   struct permute_batch *batch);
/* ", List<sizes>, List<strides in x>, List<strides in y>" of the inner ones */
void permute_print_batch(struct plan_text *text, const struct permute_form *form,
						 const struct permute_batch *batch);
/* x, y, both strides of the outer dimension, and how much work there is. */
void permute_batch_args(struct kernel_plan *out, const struct permute_form *form,
						const struct permute_batch *batch, uint64_t work);

/*
 * Few bytes would be the work of one block, which waits for its loads and then for its own shared
 * memory; a gather spreads over many and compiles in two thirds of the time.  Only where all sizes
 * are the kernel's own: the number of batches must not change the kernel.
 */
bool permute_too_small(const struct permute_form *form, const struct permute_batch *batch,
					   const char *variant, struct plan_text *why);

/* Are vectors so narrow, and runs so short, that a box makes more of them? */
bool permute_vector_short(const struct permute_form *form, const struct permute_choice *c);
/* Are there so many planes that words of them are better than a box? */
bool permute_interleave_many(const struct permute_form *form);
/* Are there more than half as many rows and columns as a tile takes? */
bool permute_tile_full(const struct permute_form *form, const struct permute_choice *c);
/* Are all rows of a shift's tiles a short piece of halves? */
bool permute_shift_low(const struct permute_form *form);
/* Are stores that step from column to column the better ones for the tiles of a shift? */
bool permute_step_better(const struct permute_form *form, const struct permute_choice *choice);
/* Is a transpose one of many rows that are one aligned vector each? */
bool permute_shift_slim(const struct permute_form *form);
/* Are x's runs one vector at most, and y's short, so that a tile would be full of ends? */
bool permute_box_crumbled(const struct permute_form *form);
/* Does a box have many runs of y, which a warp can take side by side? */
bool permute_box_many(const struct permute_form *form);
/* Is a box better than vectors of so many bytes in x and in y? */
bool permute_box_better(const struct permute_form *form, const struct kernel_limits *limits,
						uint32_t load, uint32_t store);

/* ---- The matrix of a transpose ---- */

/* Rows are neighbours in y, columns neighbours in x. */
struct permute_matrix {
	uint32_t row_mask, column_mask;
	int first_row;                             /* the slowest dimension among the rows */
	int column[PERMUTE_MAX_DIMS], column_dims; /* fastest in x first */
	int64_t rows, columns;                     /* elements */
	int64_t step;                              /* from one column to the next in x */
	uint32_t load, store;                      /* bytes at once, at most */
	/* Bytes that the distances of y's columns, and of x's rows, are multiples of, 128 at most. */
	uint32_t apart, apart_x;
	struct permute_batch batch;
};

/* Rows of 8 bytes, in columns that begin between vectors, that are worth stores that step. */
#define PERMUTE_LOW_ROWS 256

/*
 * Rows and columns, with further dimensions where that fills tiles of `side` better (0: only the
 * fastest two), and what may be moved at once; false with the reason, said for `variant`.
 */
bool permute_matrix_find(const struct permute_form *form, uint32_t side, const char *variant,
						 struct permute_matrix *matrix, struct plan_text *why);
/*
 * Does so for rows that are aligned to elements only, and too narrow vectors for tiles: *run, if
 * y's columns follow one another and are short enough that a block may take them whole.
 */
bool permute_skewed_find(const struct permute_form *form, uint32_t side, const char *variant,
						 struct permute_matrix *matrix, bool *run, struct plan_text *why);
/* Does a block of the device have the threads of a choice, and this much shared memory? */
bool permute_skewed_fits(const struct permute_choice *c, uint32_t shared,
						 const struct kernel_limits *limits, struct plan_text *why);
/* Tiles of a side that cover a size; blocks that the tiles of a choice make, of all batches. */
static inline uint64_t permute_tiles(uint64_t size, uint64_t side)
{
	return (size + side - 1) / side;
}
/* The side of tiles of equal size, whole units, whose number is nearest to that of tiles of `side`;
 * more: so many tiles more. */
uint32_t permute_even_side(int64_t size, uint32_t side, uint32_t unit, int more);
/* Tiles of rows in a band of a choice. */
uint32_t permute_band(const struct permute_choice *c, const struct permute_matrix *matrix);
/*
 * The band for tiles of so many columns.  Rows of x that begin between two sectors share them with
 * the next columns: where all rows of a strip are more than the cache keeps, these follow soon.
 */
uint32_t permute_near_band(const struct permute_matrix *matrix, uint32_t columns, uint32_t element);
uint64_t permute_matrix_blocks(const struct permute_matrix *matrix, const struct permute_choice *c);
/* The dimensions behind the rows and their strides in x, those behind the columns and their strides
 * in y: four lists. */
void permute_matrix_print(const struct permute_form *form, const struct permute_matrix *matrix,
						  struct plan_text *id);
/* The last two of them. */
void permute_matrix_print_columns(const struct permute_form *form,
								  const struct permute_matrix *matrix, struct plan_text *id);

/* ---- For the rows (permute_ops.c) ---- */

int permute_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int permute_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int permute_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int permute_generics(int index, struct kernel_problem *out);

#endif
