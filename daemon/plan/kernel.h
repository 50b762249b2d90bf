/*
 * kernel.h: the nouns that plan, compile, cache and exec share, and nothing else: what is asked for
 * (problem), on what (limits, target), what was decided (plan), and what can be launched (launch).
 */
#ifndef KILN_DAEMON_KERNEL_H
#define KILN_DAEMON_KERNEL_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KERNEL_MAX_OPERANDS KILN_MAX_OPERANDS
#define KERNEL_MAX_ATTRS KILN_MAX_ATTRS
#define KERNEL_MAX_ARGS KILN_MAX_RAW_ARGS
#define KERNEL_MAX_ARG_BYTES KILN_MAX_RAW_BYTES
#define KERNEL_TARGET_MAX 16
#define KERNEL_CHOICE_MAX 48
#define KERNEL_INSTANTIATION_MAX 1024
#define KERNEL_ERROR_MAX 320
#define KERNEL_TEXT_MAX 1536
#define KERNEL_OPERANDS_MAX 288
#define KERNEL_GENERATED_MAX 12288
#define KERNEL_SCRATCH_MAX (256u << 20)
#define KERNEL_KEY_HEX 65 /* 64 digits and the zero byte */

static inline bool kernel_status_is(int64_t status)
{
#define KERNEL_STATUS_IS(name, value, text) || status == (value)
	return status == KILN_OK KILN_STATUS_LIST(KERNEL_STATUS_IS);
#undef KERNEL_STATUS_IS
}

/* Bytes of an element; 0 for a number that is no element type. */
static inline uint32_t kernel_dtype_bytes(int64_t dtype)
{
	switch (dtype) {
#define KERNEL_DTYPE_CASE(NAME, name, value, bytes) \
	case value:                                     \
		return bytes;
		KILN_DTYPE_LIST(KERNEL_DTYPE_CASE)
#undef KERNEL_DTYPE_CASE
	default:
		return 0;
	}
}

/*
 * A tensor of a problem.  No address: alignment is all a plan may know of one.  An optional operand
 * that is left out has dtype KILN_DTYPE_NONE, and nothing else of it is looked at.
 */
struct kernel_tensor {
	kiln_dtype dtype;
	int rank;
	int64_t shape[KILN_MAX_RANK];
	int64_t stride[KILN_MAX_RANK]; /* elements, always filled in */
	uint32_t alignment;            /* of the first element in bytes: 1, 2, 4, 8, 16 */
};

struct kernel_attr {
	char name[24];
	kiln_attr_kind kind;
	int64_t i;
	double f;
	int64_t ints[KILN_MAX_RANK];
	int count;
	char s[64];
	uint16_t at; /* of a text that is longer: 1 + where it begins in the problem's texts */
};

struct op_attribute;

struct kernel_problem {
	char op[24];
	/* The operands' names, "x, mask?, y", and the attributes of the operator's row.  The planner
	 * sets both in its own copies. */
	const char *operands;
	const struct op_attribute *attributes;
	struct kernel_tensor tensors[KERNEL_MAX_OPERANDS];
	int tensor_count;
	struct kernel_attr attrs[KERNEL_MAX_ATTRS];
	int attr_count;
	char texts[KERNEL_TEXT_MAX]; /* long texts of attributes, each with its zero byte */
	uint16_t texts_used;
};

/* Copies what is used of a problem, a tenth of most; the rest of *to stays as it is.  Counts that
 * no problem may have are copied alone. */
static inline void kernel_problem_copy(struct kernel_problem *to, const struct kernel_problem *from)
{
	memcpy(to->op, from->op, sizeof(to->op));
	to->operands = from->operands;
	to->attributes = from->attributes;
	to->tensor_count = from->tensor_count;
	to->attr_count = from->attr_count;
	to->texts_used = from->texts_used;
	if (from->tensor_count > 0 && from->tensor_count <= KERNEL_MAX_OPERANDS)
		memcpy(to->tensors, from->tensors, sizeof(to->tensors[0]) * (size_t)from->tensor_count);
	if (from->attr_count > 0 && from->attr_count <= KERNEL_MAX_ATTRS)
		memcpy(to->attrs, from->attrs, sizeof(to->attrs[0]) * (size_t)from->attr_count);
	if (from->texts_used <= KERNEL_TEXT_MAX)
		memcpy(to->texts, from->texts, from->texts_used);
}

/* The text of an attribute of kind STRING. */
static inline const char *kernel_attr_text(const struct kernel_problem *problem,
										   const struct kernel_attr *attr)
{
	return attr->at ? problem->texts + attr->at - 1 : attr->s;
}

/* Gives an attribute its text; false if the problem has no room for it. */
static inline bool kernel_attr_set_text(struct kernel_problem *problem, struct kernel_attr *attr,
										const char *text, size_t bytes)
{
	char *to = attr->s;

	attr->kind = KILN_ATTR_STRING;
	if (bytes >= sizeof(attr->s)) {
		if (bytes >= (size_t)(KERNEL_TEXT_MAX - problem->texts_used))
			return false;
		to = problem->texts + problem->texts_used;
		attr->at = (uint16_t)(problem->texts_used + 1);
		problem->texts_used = (uint16_t)(problem->texts_used + bytes + 1);
	}
	memcpy(to, text, bytes);
	to[bytes] = 0;
	return true;
}

/* The abilities of a device, from its attributes; of compile-only targets, from
 * plan_limits_for(). */
struct kernel_limits {
	char target[KERNEL_TARGET_MAX]; /* "cpu", "sm_90" */
	uint32_t max_threads;           /* of a block */
	uint32_t shared_default;        /* bytes of shared memory a block gets without asking: 48 KiB */
	uint32_t shared_optin;          /* bytes at most */
	uint32_t grid_x, grid_y, grid_z;
	uint32_t multiprocessors;
	uint32_t warp;
};

enum kernel_launch_kind {
	KERNEL_NOTHING, /* zero elements: success without a launch */
	KERNEL_COPY,    /* operand 0 to operand 1, copy_bytes, by the device's copy function */
	KERNEL_LAUNCH,
};

enum kernel_arg_kind {
	KERNEL_ARG_POINTER,
	KERNEL_ARG_SCALAR,
	KERNEL_ARG_SCRATCH,
	KERNEL_ARG_REPORT,
	KERNEL_ARG_BYTES /* in launches only, never in plans */
};

struct kernel_arg {
	enum kernel_arg_kind kind;
	int16_t operand; /* POINTER: which tensor; its first element is passed, or 0 if left out */
	uint16_t bytes;  /* SCALAR: 4 or 8; BYTES: of data */
	uint64_t value;  /* SCALAR: the bits */
	const void *data;
};

/*
 * Memory for the length of one launch that no operand holds: partial sums, and before them counters
 * that the kernel finds at zero and leaves at zero.  Partial sums that blocks wait for are
 * counters, too.  SCRATCH passes its address, which is aligned to 256 bytes.  Launches of one
 * stream may be given the same memory, for they follow one another; what stands behind the counters
 * at first is of no account.
 */
struct kernel_scratch {
	uint64_t bytes;    /* all of it, at most KERNEL_SCRATCH_MAX; 0: none */
	uint64_t counters; /* bytes at its beginning that are zero between launches */
};

/*
 * A kernel that looks at its indices reports those that are out of range.  REPORT passes the
 * address of 64 bits that are zero when the launch begins; the kernel adds how many of the indices
 * are out of range. Unless that is none the call ends in KILN_EINDEX and says so, with everything
 * written all the same. Adding is slow (the bits are the host's): once a warp, and only where there
 * is something to add.
 */
struct kernel_report {
	uint64_t indices; /* how many are looked at; 0: there is no report */
	/* They are in range from 0 to here, without it; UINT64_MAX: what is reported is a number that
	 * the operator's row of the planner's table reads. */
	uint64_t end;
};

/* The bytes a plan touches of one operand, counted from its first element; checked before every
 * launch. */
struct kernel_extent {
	uint64_t bytes;         /* from the first element on; 0: not touched */
	uint64_t period, width; /* the first so many of each period; period 0: all of them */
	uint32_t alignment;     /* that the address must have; 0: the operand is left out */
	bool written;
	bool kept; /* written in part: the rest stays */
	/* 1 + an operand of the same layout that may lie in the same place: of each element, the
	 * kernel reads it before it writes it.  0: there is none. */
	uint8_t over;
};

struct kernel_plan {
	enum kernel_launch_kind kind;
	char op[24];
	char variant[32]; /* "tile", "vector", "copy", ... */
	/* Names the variant and its sizes, "regs 128x2 b1": given as attribute "choice" to the same
	 * problem it makes this plan again. */
	char choice[KERNEL_CHOICE_MAX];
	char operands[KERNEL_OPERANDS_MAX]; /* their names: "x, mask?, y" */
	char source[64]; /* file of kernel_src: "ops/permute.cuh"; "" without a kernel */
	char instantiation[KERNEL_INSTANTIATION_MAX]; /* C++ template-id */
	uint32_t grid[3], block[3];
	uint32_t shared_bytes; /* dynamic */
	struct kernel_scratch scratch;
	struct kernel_report report;
	struct kernel_arg args[KERNEL_MAX_ARGS];
	int arg_count;
	struct kernel_extent extents[KERNEL_MAX_OPERANDS];
	int operand_count;
	uint64_t copy_bytes;  /* KERNEL_COPY */
	uint64_t bytes_moved; /* read + written, each element once */
	char note[256];       /* why this variant, what was declined */
	char statement[120];  /* of a map, cut; "" for others.  For people alone */
	/* C++ that the planner wrote for this problem, compiled behind the source; "" for most.  Last:
	 * a plan that is kept ends with it, and what is behind its end is of no account. */
	char generated[KERNEL_GENERATED_MAX];
};

/* Returns how many bytes of a plan have to be kept. */
static inline size_t kernel_plan_bytes(const struct kernel_plan *plan)
{
	return offsetof(struct kernel_plan, generated) + strlen(plan->generated) + 1;
}

/* Makes a plan of nothing. */
static inline void kernel_plan_clear(struct kernel_plan *plan)
{
	memset(plan, 0, offsetof(struct kernel_plan, generated) + 1);
}

#endif
