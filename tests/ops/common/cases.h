/*
 * cases.h: THE list of cases.  Unit tests, compile tests, runs on devices and benchmarks all walk
 * it.  It knows operators, shapes, data and answers, and nothing of planners, daemons or devices.
 *
 * A family of operators is one file, or one folder, beside common/: its cases, the reference that
 * judges them, and what the planner refuses of it (family.h).  CMake finds the families by name.
 */
#ifndef KILN_TESTS_OPS_CASES_H
#define KILN_TESTS_OPS_CASES_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CASES_BENCH 1u /* to be timed */
#define CASES_BIG 2u   /* tens of megabytes and more: for a GPU */
#define CASES_HUGE 4u  /* about 2^31 elements or more: gigabytes */
#define CASES_SLOW 8u  /* takes the cpu device long: one in a few of its kind runs there */
/* An index is out of range and is looked for: the call ends in KILN_EINDEX, with all written. */
#define CASES_STRAYS 16u

/* The byte that outputs hold which a call writes in part. */
#define CASES_KEPT 0xa5

#define CASES_MAX_OPERANDS KILN_MAX_OPERANDS
#define CASES_MAX_ATTRS KILN_MAX_ATTRS

/* The contents of an input.  Seeded: the same seed gives the same bytes. */
enum cases_fill {
	CASES_BITS,      /* any bits at all */
	CASES_NORMAL,    /* floats: mean, deviation (below); integers: any bits */
	CASES_UNUSUAL,   /* as NORMAL, but some rows hold NaN, +inf, -inf, or nothing but -inf */
	CASES_FLAGS,     /* 0 and other bytes; some rows all 0, some none */
	CASES_LENGTHS,   /* 0 .. most, and some below 0 and above most */
	CASES_PROBABLE,  /* rows (last dimension) of positive numbers that add up to about 1 */
	CASES_LOGARITHM, /* the logarithms of such */
	CASES_INDICES,   /* 0 .. most - 1 */
	CASES_SLOTS,     /* such, each once at most, and -1, if there are more than elements */
	CASES_STRAY,     /* INDICES, but the first and some others are beyond, as far as they can */
	CASES_BOXES,     /* of four: x1, y1, x2, y2; with most, none where TARGETS are padding */
	CASES_TARGETS,   /* such without, and zeros where they are padding */
	CASES_OFFSETS,   /* rising from 0 to most */
	CASES_EDGES,     /* floats at which roundings to 8 bits change; of 8 and 16 bits each in turn */
	CASES_MISLEADING, /* such that a sample of a row meets much lower ones than others; most: NaN */
	CASES_STEPPED /* two of 31 far apart from one another, one equal to its like, others lower */
};

struct cases_operand {
	kiln_dtype dtype; /* KILN_DTYPE_NONE: an optional operand that is left out */
	bool output;
	bool kept; /* an output: what a call does not write stays, and is CASES_KEPT before */
	int rank;
	int64_t shape[KILN_MAX_RANK];
	int64_t stride[KILN_MAX_RANK]; /* elements; always filled in */
	bool contiguous;               /* the strides are row-major */
	uint32_t offset;               /* bytes, into memory that is aligned to 16 */
	enum cases_fill fill;
	double mean, deviation; /* NORMAL, UNUSUAL; 0, 0: 0, 1 */
	int64_t most;           /* LENGTHS, INDICES, SLOTS, STRAY, OFFSETS, MISLEADING */
};

struct cases_op;

struct cases_case {
	char name[192];     /* "permute f32 8192x8192 (1,0)": unique */
	const char *family; /* "permute", the name of its file; cases_all() fills it in */
	const struct cases_op *op;
	struct cases_operand operand[CASES_MAX_OPERANDS]; /* in the operator's order */
	int operand_count;
	kiln_attr attr[CASES_MAX_ATTRS]; /* .ints is to be taken from cases_attrs() */
	int attr_count;
	int64_t ints[KILN_MAX_RANK]; /* of the attribute that is a list, if there is one */
	unsigned flags;              /* CASES_* */
};

/* The first thing that was found wrong. */
struct cases_verdict {
	bool wrong;
	int operand;
	int64_t element;               /* its number in the row-major order of the operand's shape */
	double got, expected, allowed; /* bitwise operators: the bytes as a number, 0 */
};

struct reference;

/* An operator, and what is right: plain loops in f64 over its definition (reference.h). */
struct cases_op {
	const char *name; /* "permute" */
	/* Pieces that can be worked out apart from one another: rows, elements, columns. */
	int64_t (*units)(const struct cases_case *c);
	/* Hands on the answers of units [first, last), for all outputs. */
	void (*reference)(const struct reference *r, int64_t first, int64_t last);
};

/*
 * Judges units [first, last) of all outputs by the operator's reference.  memory[i] is the first
 * element of operand i (its offset already added), NULL for one that is left out; inputs hold what
 * they held before the call.  Leaves verdict alone when all is well.
 */
void cases_judge(const struct cases_case *c, const void *const memory[], int64_t first,
				 int64_t last, struct cases_verdict *verdict);

/* How many families there are; the name of one, and what the planner refuses of it (family.h), NULL
 * where a unit test of its own has that. */
int cases_families(void);
const char *cases_family_name(int family);
const struct cases_refusal *cases_refusals(int family);
/* All cases.  Built at the first call: call it once before threads share it. */
const struct cases_case *cases_all(int *count);
/* Sums of i32 and u32 over few terms, by rows and by columns, in map: a compiler has got some of
 * them wrong that got all others right.  Not among all cases. */
const struct cases_case *cases_sums(int *count);
/* Case i of an endless list of small random ones of all operators.  Same seed and i: same case. */
void cases_random(uint64_t seed, uint64_t i, struct cases_case *out);
/* Whether a case of this name is one of the twelfth of them which is the same everywhere and has no
 * pattern. */
bool cases_in_sample(const char *name);

/* Bytes of one element; elements of an operand; bytes from its first element to one past the last
 * that is touched. */
uint32_t cases_element(const struct cases_operand *operand);
int64_t cases_elements(const struct cases_operand *operand);
uint64_t cases_bytes(const struct cases_operand *operand);
/* The operands as the library wants them, with offsets; buffers are left NULL. */
void cases_tensors(const struct cases_case *c, kiln_tensor tensors[CASES_MAX_OPERANDS]);
/* The attributes as the library wants them; they point into c. */
void cases_attrs(const struct cases_case *c, kiln_attr attrs[CASES_MAX_ATTRS]);

/*
 * Random bytes.  `first` is the position of bytes[0] in the whole stream and a multiple of 8, so
 * that several threads can fill one buffer.
 */
void cases_fill(void *bytes, uint64_t first, uint64_t count, uint64_t seed);
/* Fills an input as its fill says; bytes: of the whole memory, from the first element on. */
void cases_fill_operand(const struct cases_operand *operand, void *bytes, uint64_t seed);
/*
 * The same in two steps that threads can share: elements [first, last) of the memory's
 * cases_bytes() / cases_element(), and when all that is done, rows [first, last) of cases_rows().
 */
void cases_fill_memory(const struct cases_operand *operand, void *bytes, int64_t first,
					   int64_t last, uint64_t seed);
int64_t cases_rows(const struct cases_operand *operand);
void cases_fill_rows(const struct cases_operand *operand, void *bytes, int64_t first, int64_t last,
					 uint64_t seed);
/* splitmix64 */
uint64_t cases_word(uint64_t *state);

bool cases_is_float(kiln_dtype dtype);
/* Element number i of memory as a double, and back with one rounding (to nearest, even).  Not for
 * complex numbers. */
double cases_get(kiln_dtype dtype, const void *memory, int64_t i);
void cases_put(kiln_dtype dtype, void *memory, int64_t i, double value);

#endif
