/*
 * map.h: what the files of the operator map share: a statement as a tree, what is known of it, and
 * how its elements are gone through.  docs/map.md says what a statement means.
 *
 *   map_word.c    text to words
 *   map_name.c    names of operands, indices and scalars
 *   map_expression.c  words to the tree of an expression
 *   map_parse.c   the statement around it
 *   map_type.c    types of the tree's nodes
 *   map_fold.c    reductions within the right side: which are worked out once for a row, and which
 *                 of them are the same
 *   map_dtype.c   the output's dtype, where it is left out
 *   map_range.c   extents of indices, ranges of integers
 *   map_access.c  the places at which operands are read, which subscripts need a check
 *   map_loop.c    the loops, and how each access moves along them
 *   map_stage.c   the stages of a row: one for each of its reductions, and the sweep
 *   map_way.c     the candidates
 *   map_emit.c    the tree as C++
 *   map_write.c   the generated file around it
 *   map_write_functions.c  the functions of its structure
 *   map_write_rows.c  that of a statement of rows
 *   map_sizes.c   what is no number in it where it serves all sizes: the generic kernel's arguments
 *   map.c         the plan
 *
 * Shared by the map*.c files alone.
 */
#ifndef KILN_DAEMON_PLAN_MAP_H
#define KILN_DAEMON_PLAN_MAP_H

#include "daemon/plan/internal.h"

#define MAP_NODES 320
#define MAP_INDICES 16
#define MAP_FOLDS 12 /* different reductions of a statement */
#define MAP_ACCESSES 32
#define MAP_NAME 16 /* bytes of a name, with its zero byte */
#define MAP_KIDS 8
#define MAP_DEPTH 64 /* of parentheses and the like */

enum map_kind {
	MAP_NUMBER,
	MAP_INDEX,  /* which: of map.indices */
	MAP_SCALAR, /* which: of the problem's attributes */
	MAP_ACCESS, /* which: operand; kids: subscripts */
	MAP_UNARY,
	MAP_BINARY,
	MAP_CHOICE, /* a ? b : c */
	MAP_CALL,   /* which: of map_functions */
	MAP_CAST,   /* which: dtype */
	MAP_REDUCE  /* which: enum map_reduce; kids: the term, then its own indices */
};

/* The types that values are computed in.  WHOLE and REAL have no type of their own yet: they take
 * that of what they meet. */
enum map_type {
	MAP_BOOL,
	MAP_I32,
	MAP_U32,
	MAP_I64,
	MAP_U64,
	MAP_F32,
	MAP_F64,
	MAP_WHOLE,
	MAP_REAL
};

enum map_operator {
	MAP_ADD,
	MAP_SUB,
	MAP_MUL,
	MAP_DIV,
	MAP_MOD,
	MAP_AND,
	MAP_OR,
	MAP_XOR,
	MAP_SHL,
	MAP_SHR,
	MAP_LT,
	MAP_LE,
	MAP_GT,
	MAP_GE,
	MAP_EQ,
	MAP_NE,
	MAP_BOTH,   /* && */
	MAP_EITHER, /* || */
	MAP_NEGATE, /* unary from here on */
	MAP_NOT,
	MAP_FLIP /* ~ */
};

/* In LEAST and MOST a number wins against a NaN, in MIN and MAX a NaN. */
enum map_reduce {
	MAP_PLAIN,
	MAP_SUM,
	MAP_PRODUCT,
	MAP_LEAST,
	MAP_MOST,
	MAP_MIN,
	MAP_MAX,
	MAP_ANY,
	MAP_ALL
};
enum map_bounds { MAP_CHECK, MAP_CLAMP, MAP_ZERO };

struct map_node {
	enum map_kind kind;
	enum map_operator op;
	enum map_type type;
	enum map_type common; /* that the kids of an operator are converted to */
	bool untyped;         /* the type came from what it met, or from nothing */
	int column;           /* of the statement, from 1 */
	int which;
	int kids, kid[MAP_KIDS];
	int64_t i; /* of a whole number; of a cast: 1 if it saturates */
	int fold;  /* of a reduction: which of map.fold */
	double f;
	bool ranged; /* an integer that is low .. high */
	int64_t low, high;
};

struct map_index {
	char name[MAP_NAME];
	int64_t extent; /* -1: not known */
	int column;     /* where it is first used */
	bool named;     /* its value is needed: it is more than a subscript by itself */
	bool closed;    /* it is a reduction's own, and behind that its name is free again */
	bool local;     /* a thread goes over it by itself, in a loop */
	bool row;       /* one of the left side on which a reduction depends */
};

/*
 * A reduction within the right side.  One whose value follows from indices of the left side is
 * worked out once for a row, that is for each value of these.  One that depends on another
 * reduction's own indices is local: a thread goes over it by itself, each time.
 */
struct map_fold {
	int node;
	bool local;
};

/* An operand as it is read at one place of the statement; the same subscripts are one access. */
struct map_access {
	int node, operand;
	bool direct; /* offset = start + the sum of coefficient * index, always within */
	int64_t start, coefficient[MAP_INDICES];
	/* Says of each subscript: is it a sum of indices with known factors, and can it be out of
	 * range? */
	struct map_subscript {
		bool affine, within;
		int64_t start, coefficient[MAP_INDICES];
	} subscript[KILN_MAX_RANK];
};

struct map {
	const struct kernel_problem *problem;
	const char *text;
	struct map_node node[MAP_NODES];
	int node_count, depth;
	char name[KERNEL_MAX_OPERANDS][MAP_NAME]; /* of operands */
	int operand_count, output;
	int output_column;
	struct map_index index[MAP_INDICES]; /* those of the left side in its order, then the others */
	int index_count, output_rank;
	enum map_reduce reduce;
	int value; /* node: the right side */
	int term;  /* node: what a sum adds up; else the right side */
	/* The reductions that differ, each behind those in it.  With one alone, and none but indices of
	 * its row on the left side, `reduce` and `term` are that one's. */
	struct map_fold fold[MAP_FOLDS];
	int fold_count;
	enum map_type result;
	bool saturates; /* what is stored */
	bool scalar_used[KERNEL_MAX_ATTRS];
	bool operand_used[KERNEL_MAX_OPERANDS];
	enum map_bounds bounds;
	bool checked;
	bool generic; /* nothing may follow from sizes but the loops, and what vectors there are */
	struct map_access access[MAP_ACCESSES];
	int access_count;
	char *error;
};

struct map_function {
	const char *name;
	int least, most;                               /* arguments */
	enum { MAP_FLOATS, MAP_SAME, MAP_ASKS } takes; /* floats; any of one type; floats, gives bool */
};
extern const struct map_function map_functions[];

/* "map: column 12: ..."; returns KILN_EINVAL. */
int map_refuse(struct map *map, int column, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Returns the column at which a part of the statement begins. */
int map_column(const struct map *map, int node);

/* map_parse.c: names, statement, bounds and checked, as far as they are there without tensors. */
int map_parse(const struct kernel_problem *problem, struct map *map, char error[KERNEL_ERROR_MAX]);
/* map_name.c: the operands' names alone. */
int map_parse_names(const struct kernel_problem *problem, struct map *map);

/* map_type.c; all inputs are there. */
int map_types(struct map *map);
enum map_type map_type_of(kiln_dtype dtype); /* that a dtype is computed in */
static inline bool map_is_float(enum map_type type)
{
	return type == MAP_F32 || type == MAP_F64 || type == MAP_REAL;
}
/* Returns the type that the result of a sum is kept in, or of a reduction of values of a type. */
enum map_type map_sum_type(const struct map *map);
enum map_type map_reduce_type(enum map_reduce reduce, enum map_type type);

/* map_fold.c: finds the reductions and brings indices that go equally far together. */
int map_folds(struct map *map);
/* Refuses a minimum or maximum of nothing. */
int map_check_folds(struct map *map);
/* Does the statement have rows: reductions that are worked out before its elements? */
static inline bool map_has_rows(const struct map *map)
{
	return map->fold_count > 0 && map->reduce == MAP_PLAIN;
}
/* Returns the accesses that a part of the statement reads, one bit each, but for those of
 * reductions that are worked out before. */
uint32_t map_reads(const struct map *map, int node);

/* map_dtype.c: of a statement whose types are not settled yet; all inputs are there. */
kiln_dtype map_natural_dtype(const struct map *map);

/* map_range.c */
int map_extents(struct map *map); /* of indices */
void map_ranges(struct map *map);

/* map_access.c */
int map_accesses(struct map *map);
/* Do two parts of the statement say the same? */
bool map_same(const struct map *map, int a, int b);

/* ---- Loops (map_loop.c) ---- */

/* Indices that can be gone through as one. */
struct map_loop {
	int first, last; /* of map.index: the slowest and the fastest of them */
	int64_t extent;
};

struct map_loops {
	struct map_loop loop[MAP_INDICES];
	int count, outputs; /* the first so many are the output's, or of the output's the row's */
	int inner;          /* behind the last loop of a sum */
	int64_t elements;   /* of the output */
	int64_t terms;      /* of each sum; 1 without one */
	int64_t pieces;     /* that blocks have of a long sum */
	bool rows;          /* of a sum: the vectors lie along what is added up */
	int vector_loop;    /* the loop that vectors lie along; -1: there is none */
	int vector;         /* elements at once */
	bool wide;          /* offsets or numbers need 64 bits */
	/* A statement of rows has stages; the last one sweeps over the elements of a row. */
	struct map_stage {
		int fold;        /* -1: the sweep */
		uint32_t over;   /* indices */
		int first, last; /* loops */
		int vector_loop; /* -1: one at a time */
		int64_t terms;   /* vectors, or single ones */
		uint32_t reads;  /* accesses that move along the loops of the stage */
		bool keeps;      /* a later stage needs its terms again, so registers keep them */
	} stage[MAP_FOLDS + 1];
	int stages;
	int now;           /* the stage that a view is of */
	uint32_t own;      /* accesses that stand still in a row */
	uint32_t along;    /* loops that vectors of some stage lie along */
	int64_t row_count; /* rows */
	bool holds;        /* all stages read the same: it may be held in registers */
};

/* The output's first index, if it has one value only.  It stays a loop, and moves operands as in a
 * larger batch, so that all batches have one kernel. */
static inline bool map_is_batch_of_one(const struct map *map, int index)
{
	return index == 0 && map->output_rank > 0 && map->index[0].extent == 1 && !map->generic;
}

void map_loops(const struct map *map, struct map_loops *out);
/* Finds the loops of a statement without rows. */
void map_sum_loops(const struct map *map, struct map_loops *out);
bool map_needs_wide(const struct map *map, const struct map_loops *loops);
/* The loops as a stage sees them: its own vectors. */
struct map_loops map_stage_view(const struct map_loops *loops, int stage);
/* Returns the stage before the view's own of which this part of the statement is the term that is
 * kept, or -1. */
int map_kept(const struct map *map, const struct map_loops *view, int node);
/* Is a part of the statement the same for all elements of a row? */
bool map_stands(const struct map *map, const struct map_loops *loops, int node);
/* Returns how far the output moves from one element of a loop to the next. */
int64_t map_output_stride(const struct map *map, const struct map_loops *loops, int loop);
/* Registers that hold what a stage reads of one vector. */
int map_held_words(const struct map *map, const struct map_loops *loops, uint32_t reads);
/* The indices from `first` up to `last`, one bit each, and how many places they have together. */
uint32_t map_indices(int first, int last);
int64_t map_extent(const struct map *map, uint32_t set);
uint32_t map_element_bytes(const struct map *map, int operand);
/* The loop that an access's vectors lie along. */
int map_vector_loop(const struct map *map, const struct map_access *access,
					const struct map_loops *loops);
/* Returns how an access moves along its vectors' loop: of a generic kernel 0, 1, or 2 for anything
 * else. */
int64_t map_step(const struct map *map, const struct map_access *access,
				 const struct map_loops *loops);
/* Does an access move along a loop at all? */
bool map_moves(const struct map *map, const struct map_access *access,
			   const struct map_loops *loops, int loop);
void map_add_local_loops(const struct map *map, struct map_loops *out);
/* Appends loops: indices of the set, joined where nothing tells them apart. */
void map_add_loops(const struct map *map, uint32_t set, struct map_loops *out);
/* Returns how far an access moves from one element of a loop to the next. */
int64_t map_stride(const struct map *map, const struct map_access *access,
				   const struct map_loops *loops, int loop);
/* The bytes that the access can load at once, of `vector` elements that lie side by side. */
uint32_t map_width(const struct map *map, const struct map_access *access,
				   const struct map_loops *loops);
/* Returns the width of the output's stores. */
uint32_t map_store_width(const struct map *map, const struct map_loops *loops);

/* ---- Candidates (map_way.c) ---- */

#define MAP_WAYS 12

/* threads of a block; share: vectors of a thread (unroll), or threads of an output (split). */
struct map_way {
	uint32_t threads, share;
	char name[KERNEL_CHOICE_MAX];
};

/* Scratch memory of a sum in pieces; none of others. */
struct kernel_scratch map_scratch(const struct map *map, const struct map_loops *loops,
								  const struct map_way *way);
int map_ways(const struct map *map, const struct map_loops *loops,
			 const struct kernel_limits *limits, struct map_way ways[MAP_WAYS]);
/* Returns the way of the generic kernel, of which there are few. */
struct map_way map_generic_way(const struct map *map, const struct map_loops *loops,
							   const struct kernel_limits *limits);

/* ---- Sizes as arguments (map_sizes.c): none unless the map is generic ---- */

struct map_size {
	char name[20];
	const char *type; /* in C++; Number is the statement's */
	uint32_t bytes;
	uint64_t value;
};
#define MAP_SIZES 96
/* false: there are more than a kernel can have. */
bool map_sizes(const struct map *map, const struct map_loops *loops,
			   struct map_size list[MAP_SIZES], int *count);

/* ---- C++ (map_emit.c, map_write*.c) ---- */

/* An expression of the tree, in the type `as`. */
void map_emit(const struct map *map, const struct map_loops *loops, int node, enum map_type as,
			  struct plan_text *out);
/* "f16", "map_bool", "sat<f8e4m3>" */
const char *map_element_name(kiln_dtype dtype, bool saturates);
const char *map_cpp_name(enum map_type type); /* "float" */
/* Number of a scalar's parameter of that type, in the order in which map_scalars lists them. */
struct map_scalar {
	int attr;
	enum map_type type;
};
int map_scalars(const struct map *map, struct map_scalar list[KERNEL_MAX_ATTRS * 2]);
/* Subscripts that are looked at when the kernel runs. */
bool map_has_checks(const struct map *map);
/* The whole file; false if it is too long. */
bool map_write(const struct map *map, const struct map_loops *loops, struct plan_text *out);

/* ---- For the rows (map_ops.c) ---- */

int map_names(const struct kernel_problem *problem, char list[KERNEL_OPERANDS_MAX],
			  char error[KERNEL_ERROR_MAX]);
int map_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int map_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int map_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
void map_report(const struct kernel_problem *problem, uint64_t reported,
				char error[KERNEL_ERROR_MAX]);

#endif
