/*
 * eval.h: what a statement of the operator map comes to, worked out one element at a time
 * from its text: floats in f64 with a bound of how far the device's may be from them, integers
 * exactly.  It reads docs/map.md, not the planner, and must stay so.
 */
#ifndef KILN_TESTS_OPS_MAP_EVAL_H
#define KILN_TESTS_OPS_MAP_EVAL_H

#include <kiln/kiln.h>
#include <stdbool.h>

#define EVAL_TOKENS 512
#define EVAL_INDICES 16
#define EVAL_REDUCTIONS 12
#define EVAL_KEPT 64
#define EVAL_NAME 24

struct eval_operand {
	char name[EVAL_NAME];
	kiln_dtype dtype;
	int rank; /* -1: the output's is not known, and is to follow from the others */
	int64_t shape[KILN_MAX_RANK], stride[KILN_MAX_RANK]; /* elements */
	const void *data;                                    /* the first element */
};

struct eval_scalar {
	char name[EVAL_NAME];
	bool real;
	double f;
	int64_t i;
};

struct eval_value {
	bool real;
	double value, error; /* INFINITY: it cannot be told */
	int64_t whole;       /* where it is not real */
	kiln_dtype dtype;    /* NONE: a number, which takes the type of what it meets */
};

struct eval_token {
	enum {
		EVAL_END,
		EVAL_SIGN,
		EVAL_WHOLE,
		EVAL_REAL,
		EVAL_OPERAND,
		EVAL_INDEX,
		EVAL_SCALAR,
		EVAL_FUNCTION,
		EVAL_REDUCTION
	} kind;
	char text[EVAL_NAME];
	int which;
	int64_t i;
	double f;
};

struct eval {
	/* To be filled in before eval_open. */
	const char *statement;
	struct eval_operand operand[KILN_MAX_OPERANDS];
	int operands;
	struct eval_scalar scalar[KILN_MAX_ATTRS];
	int scalars;
	const char *bounds; /* "check", "clamp", "zero" */
	/* Found by eval_open. */
	struct eval_token token[EVAL_TOKENS];
	int tokens, right; /* where the right side begins */
	int output, output_rank, indices;
	char index[EVAL_INDICES][EVAL_NAME];
	int64_t extent[EVAL_INDICES];
	char reduce; /* 0, '+', '*', 'm'in or 'M'ax */
	double unit; /* of one rounding */
	/* While it works. */
	int at, live;
	int64_t place[EVAL_INDICES];
	int64_t strays; /* subscripts that were out of range */
	/* Values of each reduction that are kept for the elements behind: of one row, or of rows side
	 * by side. */
	struct eval_reduction {
		int end;          /* the token behind it */
		uint32_t depends; /* indices, one bit each */
		struct eval_kept {
			bool known;
			int64_t place[EVAL_INDICES];
			struct eval_value value;
		} kept[EVAL_KEPT];
	} reduction[EVAL_REDUCTIONS];
	int reductions;
};

/* Is this the name of a reduction, "sum" or the like? */
bool eval_is_reduction(const char *name);
/* The extents of indices follow from the operands' shapes.  NULL, or what is not understood. */
const char *eval_open(struct eval *eval);
/* The dtype that the right side has by itself.  No operand's data is looked at. */
kiln_dtype eval_dtype(struct eval *eval);
/* The element of the output with this number, in row-major order. */
struct eval_value eval_element(struct eval *eval, int64_t element);
/* Is this what element `element` of memory may hold? */
bool eval_fits(kiln_dtype dtype, const void *memory, int64_t element,
			   const struct eval_value *expected, double *got, double *allowed);

#endif
