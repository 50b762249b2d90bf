/*
 * index.h: what the planners of operators with a list of indices, or an index for each element,
 * share: what a request must satisfy, and the request as rows.  Shared by the index_*.c files
 * alone.
 */
#ifndef KILN_DAEMON_PLAN_INDEX_H
#define KILN_DAEMON_PLAN_INDEX_H

#include "daemon/plan/ops/gather/gather.h"

/*
 * The numbers of the operands.  "few": the side whose dimension is indexed (src of index_select);
 * "many": the side that has an element for each index.  base: what sums begin with, or -1.
 */
struct index_op {
	const char *name;
	int few, many, base, output;
	bool adds; /* many is added up into few */
	bool each; /* an index for each element of many, not for each of its slices */
	bool flat; /* idx has the leading dimensions of many, and few has rank 2 */
};

struct index_problem {
	struct index_op op;
	enum plan_bounds bounds; /* TRUST where indices cannot be out of range */
	kiln_dtype dtype, index;
	uint32_t element, index_bytes;
	int axis;
	/* The operands with the same rank: of flat ones, the dimensions of idx are one. */
	struct kernel_tensor few, many, base;
	int64_t idx_stride[KILN_MAX_RANK]; /* idx in the dimensions of many; 0 where it has none */
	int64_t indices;                   /* elements of idx */
	int64_t padding;                   /* the index that has no gradient; INT64_MIN: none */
};

/* Everything that is asked of a request; fills in all of out. */
int index_check(const struct kernel_problem *problem, struct index_problem *out,
				char error[KERNEL_ERROR_MAX]);
/* The dimension that is indexed is the last with more than one element: the request as rows of
 * gather.  unit: elements that move together. */
void index_as_gather(const struct index_problem *index, int64_t unit, struct gather_problem *out);
/* Fills in an output that was left out, if it follows from the inputs; then checks. */
int index_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
/* The argument for counting indices that are out of range, or for not doing so. */
void index_report_arg(const struct index_problem *index, struct kernel_plan *out);
/* Refuses a choice that is none of the candidates. */
int index_no_candidate(const struct kernel_problem *problem, const char *choice,
					   const struct kernel_limits *limits, char error[KERNEL_ERROR_MAX]);

/* ---- Panels (index_panel.c): an index for each element, and the axis is not the last ---- */

#define INDEX_PANELS 3

struct index_panel {
	uint32_t wide, threads; /* columns of a block */
	uint32_t load, shared;  /* bytes */
	bool usual;             /* better than to take each element where it is */
	char name[KERNEL_CHOICE_MAX];
};

/* The candidates, the likely best first; how many. */
int index_panels(const struct kernel_problem *problem, const struct index_problem *index,
				 const struct kernel_limits *limits, struct index_panel out[INDEX_PANELS]);
int index_panel_plan(const struct kernel_problem *problem, const struct index_problem *index,
					 const struct index_panel *panel, const struct kernel_limits *limits,
					 struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);

/* ---- Sums (index_add_check.c) ---- */

struct index_add {
	struct index_problem index;
	struct rows_form form; /* slices; operands: many, base, idx */
	int64_t inner;         /* slices behind the indexed dimension */
	int64_t count, end;    /* indices of a list, places */
	int64_t many_axis, base_axis, idx_step;
	double alpha;
	uint32_t vector; /* elements that move at once */
	bool any_order;  /* the sums may depend on which element comes first */
};

/* Like index_check(), for sums. */
int index_add_check(const struct kernel_problem *problem, struct index_add *out,
					char error[KERNEL_ERROR_MAX]);
/* The type that elements have in kernels. */
const char *index_add_element(kiln_dtype dtype);
/* vector: elements that move at once; load: bytes of indices. */
void index_add_extents(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t vector, uint32_t load, struct kernel_plan *out);
/* ", IndexAddPlaces<..>, u32" */
void index_add_print_places(const struct index_add *add, struct plan_text *id);
/* The arguments of all kernels, alpha, and the sizes that generic kernels are told. */
void index_add_pass_operands(const struct index_add *add, struct kernel_plan *out);
void index_add_alpha(const struct index_add *add, struct kernel_plan *out);
void index_add_pass_sizes(const struct index_add *add, struct kernel_plan *out);

/* Elements are added to their sums in memory (index_add_atomic.c). */
#define INDEX_ADD_ATOMIC "atomic" /* the candidate */
/* Is it a way to do what is asked? */
bool index_add_is_atomic(const struct index_add *add, const struct kernel_limits *limits);
/* Is it the likely best one but for links, where any order is asked for? */
bool index_add_atomic_pays(const struct index_add *add, const struct kernel_limits *limits);
int index_add_atomic_plan(const struct kernel_problem *problem, const struct index_add *add,
						  const struct kernel_limits *limits, struct kernel_plan *out,
						  char error[KERNEL_ERROR_MAX]);
int index_add_atomic_generic(const struct kernel_problem *problem, const struct index_add *add,
							 const struct kernel_limits *limits, struct kernel_plan *out,
							 char error[KERNEL_ERROR_MAX]);

/* Blocks for which the list is linked (index_add_link.c). */
#define INDEX_ADD_LINK "link " /* of candidates */
#define INDEX_ADD_BUCKET "bucket "
#define INDEX_ADD_LINKS 4
/* The names of the candidates, the likely best first; how many. */
int index_add_links(const struct index_add *add, const struct kernel_limits *limits,
					char names[][KERNEL_CHOICE_MAX]);
/* Is one of them the likely best of all? */
bool index_add_link_pays(const struct index_add *add, const struct kernel_limits *limits);
int index_add_link_plan(const struct kernel_problem *problem, const struct index_add *add,
						const char *choice, const struct kernel_limits *limits,
						struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);

/* Chunks of the list, whose sums are added up in their order (index_add_split.c). */
#define INDEX_ADD_SPLIT "split " /* of candidates, before their threads */
#define INDEX_ADD_SPLITS 3
/* The names of the candidates, the likely best first; how many: none but for few places. */
int index_add_splits(const struct index_add *add, const struct kernel_limits *limits,
					 char names[][KERNEL_CHOICE_MAX]);
/* Is one of them, if there is one, the likely best of all? */
bool index_add_split_pays(const struct index_add *add);
int index_add_split_plan(const struct kernel_problem *problem, const struct index_add *add,
						 const char *choice, const struct kernel_limits *limits,
						 struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);

/* Rows with an index for each element, each in a block (index_add_row.c). */
#define INDEX_ADD_ROW "row " /* of candidates, before their threads */
#define INDEX_ADD_ROWS 3
int index_add_rows(const struct index_add *add, const struct kernel_limits *limits,
				   char names[][KERNEL_CHOICE_MAX]);
int index_add_row_plan(const struct kernel_problem *problem, const struct index_add *add,
					   uint32_t threads, const struct kernel_limits *limits,
					   struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);

/* Panels of sums with an index for each element (index_add_panel.c).  false: none will do. */
bool index_add_panel(const struct index_problem *index, const struct kernel_limits *limits,
					 struct index_panel *out);
/* element: the type that elements have in kernels. */
int index_add_panel_plan(const struct kernel_problem *problem, const struct index_problem *index,
						 const struct index_panel *panel, const char *element,
						 const struct kernel_limits *limits, struct kernel_plan *out,
						 char error[KERNEL_ERROR_MAX]);

/* ---- For the rows (index_ops.c) ---- */

int index_select_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int index_select_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int index_select_generics(int index, struct kernel_problem *out);
int take_along_axis_generics(int index, struct kernel_problem *out);

int index_add_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
int index_add_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
int index_add_generics(int index, struct kernel_problem *out);
int index_select_backward_generics(int index, struct kernel_problem *out);
int scatter_add_generics(int index, struct kernel_problem *out);

#endif
