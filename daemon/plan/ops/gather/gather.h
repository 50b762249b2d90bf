/*
 * gather.h: what the planners of gather and its backward share: what a request must satisfy, and
 * the request as rows.  Shared by the gather*.c files, and by operators that are rows of gather.
 */
#ifndef KILN_DAEMON_PLAN_GATHER_H
#define KILN_DAEMON_PLAN_GATHER_H

#include "daemon/plan/ops/rows/rows.h"

/* The numbers of the operands.  "few": the side whose last dimension is indexed (src, dsrc);
 * "many": the side that has one element for each index (dst, ddst). */
struct gather_op {
	bool backward;
	int few, many, idx, input, output;
};

struct gather_problem {
	struct gather_op op;
	enum plan_bounds bounds; /* TRUST where indices cannot be out of range */
	kiln_dtype dtype, index;
	uint32_t element, index_bytes;
	int64_t few, many; /* elements of a row: P, K */
	int64_t outer;     /* rows that have the same indices: the product of the leading dimensions */
	int64_t lists;     /* lists of indices: M */
	/* Rows are numbered by the leading dimensions and that of the lists; operand 0 of the form is
	 * the input, 1 the indices (their step is in index_step). */
	struct rows_form form;
	int64_t index_step;
};

/* Everything that is asked of a request; fills in all of out. */
int gather_check(const struct kernel_problem *problem, struct gather_problem *out,
				 char error[KERNEL_ERROR_MAX]);
/* The type that indices have in kernels: "u8", "i64". */
const char *gather_index_name(const struct gather_problem *gather);
/* Extents of all operands, with these alignments, and what is moved. */
void gather_extents(const struct kernel_problem *problem, const struct gather_problem *gather,
					uint32_t input, uint32_t index, uint32_t output, struct kernel_plan *out);
/* The argument for counting indices that are out of range, or for not doing so. */
void gather_report_arg(const struct gather_problem *gather, struct kernel_plan *out);
/* The most bytes, to `most`, with which the rows of an operand of the form, which are so many bytes
 * long, are aligned. */
uint32_t gather_aligned(const struct gather_problem *gather, int operand, uint32_t element,
						uint32_t address, uint64_t bytes, uint32_t most);
/* Ends the name of a kernel whose blocks take rows by lists, and passes its arguments. */
void gather_pass_lists(const struct gather_problem *gather, int64_t lists, int64_t items, bool loop,
					   struct plan_text *id, struct kernel_plan *out);

/* The plan of a gather whose kernel knows no size; there is something to do. */
int gather_generic(const struct kernel_problem *problem, const struct gather_problem *gather,
				   const struct kernel_limits *limits, struct kernel_plan *out,
				   char error[KERNEL_ERROR_MAX]);

/* The exact plan of rows that are checked, of which there is one at least, and its candidates. */
int gather_plan_rows(const struct kernel_problem *problem, const struct gather_problem *gather,
					 const struct kernel_limits *limits, const char *choice,
					 struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int gather_choices_rows(const struct kernel_problem *problem, const struct gather_problem *gather,
						const struct kernel_limits *limits,
						char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);

/* ---- Candidates (gather_way.c) ---- */

#define GATHER_WAYS 24

struct gather_way {
	bool stage, list;
	bool skew; /* rows of src are staged as the aligned vectors around them */
	uint32_t rows, threads;
	uint32_t most; /* elements that a thread has at all; 0: several vectors of 16 bytes */
	uint32_t vector, load, index_load; /* elements; bytes; bytes */
	int64_t part;                      /* elements of dst */
	char name[KERNEL_CHOICE_MAX];
};

/* The planner's own first; how many. */
int gather_ways(const struct kernel_problem *problem, const struct gather_problem *gather,
				const struct kernel_limits *limits, struct gather_way ways[GATHER_WAYS]);
/* Are lists so long that the cache forgets them before other rows need them again? */
bool gather_along(const struct gather_problem *gather);
/* Does src lie without gaps? */
bool gather_is_dense(const struct gather_problem *gather);
/* Bytes of shared memory of a way that stages rows, and of one with a list. */
uint32_t gather_stage_shared(const struct gather_problem *gather, const struct gather_way *way);
uint32_t gather_list_shared(const struct gather_problem *gather, const struct gather_way *way);

/* ---- Planes (gather_check.c): words of several rows that share their list ---- */

struct gather_planes {
	bool skew;                   /* rows of src are no whole vectors */
	uint32_t rows, load, shared; /* rows in all planes; bytes */
};

/* May rows go by planes, by lists of so many indices? */
bool gather_has_planes(const struct kernel_problem *problem, const struct gather_problem *gather,
					   int64_t most);
/* How so many planes are made; GatherGroup and GatherAlike in kernel_src/ops compute the same. */
struct gather_planes gather_planes_of(const struct kernel_problem *problem,
									  const struct gather_problem *gather, uint32_t planes);

/* ---- Groups (gather_group.c): several rows that share their list at a time ---- */

#define GATHER_GROUPS 12

struct gather_group {
	bool skew;                                 /* rows of src are no whole vectors */
	uint32_t planes, rows, threads, turns;     /* rows that are taken together */
	uint32_t vector, load, index_load, shared; /* elements; bytes */
	int64_t part;                              /* indices of a block */
	char name[KERNEL_CHOICE_MAX];
};

/* Finds the candidates, the widest stores first; returns how many. */
int gather_groups(const struct kernel_problem *problem, const struct gather_problem *gather,
				  const struct kernel_limits *limits, struct gather_group out[GATHER_GROUPS]);
/* Is it the likely best of all candidates? */
bool gather_group_pays(const struct gather_problem *gather, const struct gather_group *group);
int gather_group_plan(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct gather_group *group, const struct kernel_limits *limits,
					  struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);

/* ---- Rows that begin alike (gather_alike.c): several that share their list at a time ---- */

#define GATHER_ALIKES 5

struct gather_alike {
	bool skew, even;                /* rows of src are no whole vectors, those of dst are */
	uint32_t planes, rows, threads; /* rows that are taken together */
	uint32_t load, store, shared;   /* bytes */
	int64_t vectors, part, parts;   /* of a row of dst; those of a block */
	char name[KERNEL_CHOICE_MAX];
};

/* Finds the candidates; returns how many. */
int gather_alikes(const struct kernel_problem *problem, const struct gather_problem *gather,
				  const struct kernel_limits *limits, struct gather_alike out[GATHER_ALIKES]);
/* Is it the likely best of all candidates? */
bool gather_alike_pays(const struct gather_problem *gather, const struct gather_alike *alike);
int gather_alike_plan(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct gather_alike *alike, const struct kernel_limits *limits,
					  struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);

/* ---- For the rows (gather_ops.c) ---- */

int gather_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int gather_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int gather_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int gather_generics(int index, struct kernel_problem *out);

int gather_backward_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int gather_backward_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
int gather_backward_choices(const struct kernel_problem *problem,
							const struct kernel_limits *limits,
							char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int gather_backward_generics(int index, struct kernel_problem *out);

#endif
