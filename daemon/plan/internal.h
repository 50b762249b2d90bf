/*
 * internal.h: what the planner's files share and nobody else sees: the text of refusals, checked
 * arithmetic, and the pieces of a template-id.
 */
#ifndef KILN_DAEMON_PLAN_INTERNAL_H
#define KILN_DAEMON_PLAN_INTERNAL_H

#include "plan.h"

/* Writes the sentence; returns status. */
int plan_refuse(char error[KERNEL_ERROR_MAX], int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* "f32"; "dtype 99" never reaches here: dtypes are checked first. */
const char *plan_dtype_name(kiln_dtype dtype);

/* In names, whatever the locale. */
static inline bool plan_is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static inline bool plan_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool plan_is_float(kiln_dtype dtype)
{
	return dtype == KILN_F16 || dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;
}

/* Is an operand there, or left out? */
static inline bool plan_has(const struct kernel_problem *problem, int operand)
{
	return operand < problem->tensor_count && problem->tensors[operand].dtype != KILN_DTYPE_NONE;
}

/* The rules for any tensor: dtype, rank, sizes, strides, alignment, overflow. */
int plan_check_tensor(const char *op, const char *operands, int index,
					  const struct kernel_tensor *tensor, char error[KERNEL_ERROR_MAX]);

/* Refuses an operand whose elements are not added up. */
int plan_check_summand(const struct kernel_problem *problem, int index,
					   char error[KERNEL_ERROR_MAX]);

/* The stride of the first dimension, the batch.  A kernel names the stride of a batch of one, too,
 * though no index is multiplied by it: so all batches have the same kernel.  A stride that no
 * larger batch could have, because its elements would overlap, becomes the least. */
int64_t plan_batch_stride(int rank, const int64_t *shape, const int64_t *stride);

/* Neither is negative. */
static inline int64_t plan_divide_up(int64_t value, int64_t unit)
{
	return (value + unit - 1) / unit;
}

/* The least power of two that is no less than least, or than most, which is one. */
static inline uint32_t plan_power_of_two(int64_t least, uint32_t most)
{
	uint32_t power = 1;

	while (power < least && power < most)
		power *= 2;
	return power;
}

/* A text of bounded size; full sticks. */
struct plan_text {
	char *text;
	size_t size, used;
	bool full;
};
void plan_print(struct plan_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Adds so many bytes as they are, or none where there is no room for all. */
void plan_add(struct plan_text *text, const char *bytes, size_t size);
/* Adds a number in decimal digits. */
void plan_add_number(struct plan_text *text, int64_t value);

/* Refuses a kernel whose name was too long for its text. */
int plan_check_name(const struct plan_text *name, const struct kernel_plan *plan,
					char error[KERNEL_ERROR_MAX]);

/* A problem's attribute, which is a text; NULL if there is none, or of another kind. */
const char *plan_attr_text(const struct kernel_problem *problem, const char *name);

/* Is a choice the generic kernel?  NULL is not. */
bool plan_is_generic(const char *choice);
/* Grid and block of a launch, in x.  True: the device has no grid of so many blocks, so each of
 * the fewer blocks takes several steps. */
bool plan_launch(struct kernel_plan *plan, const struct kernel_limits *limits, uint64_t blocks,
				 uint32_t threads);
/* Like plan_launch(), with the choice, variant and source of a generic kernel. */
void plan_generic_launch(struct kernel_plan *plan, const struct kernel_limits *limits,
						 const char *source, uint64_t blocks, uint32_t threads);
/* Like plan_generic_launch() for so many threads, in blocks of this many, or of fewer if the device
 * has no such. */
void plan_generic_spread(struct kernel_plan *plan, const struct kernel_limits *limits,
						 const char *source, uint64_t work, uint32_t threads);
/* An operand of a problem made up: contiguous, aligned to 16 bytes. */
void plan_made_tensor(struct kernel_problem *problem, int operand, kiln_dtype dtype, int rank,
					  const int64_t *shape);
void plan_made_int(struct kernel_problem *problem, const char *name, int64_t value);
void plan_made_word(struct kernel_problem *problem, const char *name, const char *word);

/* Bytes of all elements that lie apart from one another. */
uint64_t plan_distinct_bytes(const struct kernel_tensor *tensor);
/* The bytes of a tensor whose rows lie apart: the first `width` of each period.  period 0: its
 * elements lie side by side, or otherwise. */
void plan_period(const struct kernel_tensor *tensor, uint64_t *period, uint64_t *width);
/* Do all elements of a tensor lie apart from one another? */
bool plan_is_distinct(const struct kernel_tensor *tensor);
/* Have two tensors of one shape the same strides? */
bool plan_lies_alike(const struct kernel_tensor *a, const struct kernel_tensor *b);
/* Lets an output have the place of an input that lies as it does: of each element, the kernel reads
 * it before it writes it. */
void plan_over(const struct kernel_problem *problem, int output, int input,
			   struct kernel_plan *out);
/* Adds an operand that the kernel goes over once to a plan: its extent, and what it moves. */
void plan_touch(const struct kernel_problem *problem, int index, uint32_t alignment,
				struct kernel_plan *out);

/* Adds an argument to a plan.  An operand that is left out passes a null pointer. */
void plan_arg_pointer(struct kernel_plan *plan, int operand);
/* Zero elements: success without a launch. */
void plan_no_elements(struct kernel_plan *plan);
void plan_arg_scalar(struct kernel_plan *plan, uint32_t bytes, uint64_t value);
/* A number in the type that dtype is computed in: f64 for f64, else f32. */
void plan_arg_real(struct kernel_plan *plan, kiln_dtype dtype, double value);
/* A size as three arguments, of bytes (4 or 8), bytes and 4: a divisor of common/divide.cuh.  size:
 * 1 to 2^31 or 2^63. */
void plan_arg_divisor(struct kernel_plan *plan, uint32_t bytes, uint64_t size);
void plan_arg_scratch(struct kernel_plan *plan);
/* Passes the address of the report, and notes what is reported. */
void plan_arg_report(struct kernel_plan *plan, uint64_t indices, uint64_t end);

/* ---- Attributes (attrs.c) ---- */

/* Refuses an attribute that the row does not have, and one that is given twice. */
int plan_attrs_check_names(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
/* Refuses a value of another kind or out of the row's range, and the lack of a word that is needed.
 */
int plan_attrs_check_values(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
/* The value of an attribute whose values are checked: the one given, or else the row's default. */
int64_t plan_int(const struct kernel_problem *problem, const char *name);
double plan_real(const struct kernel_problem *problem, const char *name);
/* Like plan_int(): the position of a word among the row's words. */
int plan_word(const struct kernel_problem *problem, const char *name);
/* Like plan_int(): attribute axis as the number of a dimension. */
int plan_axis(const struct kernel_problem *problem);
/* Attribute bounds: what is done about indices that are out of range.  CHECK without it. */
enum plan_bounds { PLAN_CHECK, PLAN_CLAMP, PLAN_TRUST };
enum plan_bounds plan_bounds(const struct kernel_problem *problem);
/* "INDICES_CHECK" */
const char *plan_bounds_name(enum plan_bounds bounds);

#endif
