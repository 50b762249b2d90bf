/*
 * bench_items.c: which kernels are to be timed: the cases that the options want, planned, with
 * their candidates; what each is compared with, and how fast it must be.
 */
#include "bench.h"

#include "tests/ops/common/problem.h"
#include "listed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Which cases ---- */

static bool is_of_dtype(const struct cases_case *c, const char *dtype)
{
	const char *name = kiln_dtype_name(c->operand[0].dtype);

	return name && strcmp(name, dtype) == 0;
}

/* Does a name have one of "PART|PART" in it?  NULL: it need not. */
static bool has_part(const char *name, const char *parts)
{
	char part[sizeof(((struct cases_case *)0)->name)];
	const char *at = parts;

	if (!parts)
		return true;
	do {
		size_t length = strcspn(at, "|");
		snprintf(part, sizeof(part), "%.*s", (int)length, at);
		if (strstr(name, part))
			return true;
		at += length;
	} while (*at++);
	return false;
}

bool bench_is_wanted(const struct bench_options *options, const struct cases_case *c, int *number)
{
	/* Strays end in an error. */
	if (c->flags & (CASES_HUGE | CASES_STRAYS) || (!options->all && !(c->flags & CASES_BENCH)))
		return false;
	if (options->quick && c->flags & CASES_BIG)
		return false;
	if (!is_listed(options->ops, c->op->name) || !has_part(c->name, options->only) ||
		(options->dtype && !is_of_dtype(c, options->dtype)))
		return false;
	return (*number)++ % options->every == 0;
}

/* ---- Planning ---- */

static void choose(struct kernel_problem *problem, const char *choice)
{
	struct kernel_attr *attr = &problem->attrs[problem->attr_count];

	if (!choice[0] || problem->attr_count == KERNEL_MAX_ATTRS)
		return;
	problem->attr_count++;
	memset(attr, 0, sizeof(*attr));
	snprintf(attr->name, sizeof(attr->name), "%s", PLAN_CHOICE);
	attr->kind = KILN_ATTR_STRING;
	snprintf(attr->s, sizeof(attr->s), "%.*s", KERNEL_CHOICE_MAX - 1, choice);
}

static bool is_same(const struct kernel_plan *a, const struct kernel_plan *b)
{
	return strcmp(a->instantiation, b->instantiation) == 0 &&
		   memcmp(a->grid, b->grid, sizeof(a->grid)) == 0 &&
		   memcmp(a->block, b->block, sizeof(a->block)) == 0 && a->shared_bytes == b->shared_bytes;
}

/* The candidates of one case that are not each other, the planner's own first. */
static bool plan_case(const struct bench_options *options, const struct kernel_limits *limits,
					  struct bench_case *group)
{
	static char names[PLAN_MAX_CHOICES + 1][KERNEL_CHOICE_MAX];
	char error[KERNEL_ERROR_MAX];
	struct kernel_problem problem;
	int count;

	cases_problem(group->c, &problem);
	count = plan_choices(&problem, limits, names, error);
	if (count < 1) {
		fprintf(stderr, "bench: %s: %s\n", group->c->name, error);
		return false;
	}
	if (!options->choices)
		count = 1;
	if (options->generic)
		snprintf(names[count++], sizeof(names[0]), "%s", PLAN_GENERIC);
	group->items = calloc((size_t)count, sizeof(*group->items));
	if (!group->items)
		return false;
	for (int i = 0; i < count; i++) {
		struct bench_item *item = &group->items[group->count];
		bool repeated = false;
		cases_problem(group->c, &problem);
		choose(&problem, names[i]);
		/* A copy, or nothing, has no kernels. */
		if (i > 0 && group->items[0].plan.kind != KERNEL_LAUNCH)
			break;
		if (plan_problem(&problem, limits, &item->plan, error) != KILN_OK) {
			fprintf(stderr, "bench: %s: choice \"%s\": %s\n", group->c->name, names[i], error);
			return false;
		}
		item->own = i == 0;
		for (int k = 0; k < group->count; k++)
			repeated = repeated || is_same(&group->items[k].plan, &item->plan);
		group->count += !repeated;
	}
	return true;
}

bool bench_cases(const struct bench_options *options, const struct kernel_limits *limits,
				 struct bench_case **out, int *count)
{
	const struct cases_case *list = options->list;
	int number = 0;
	bool good = true;
	struct bench_case *groups = calloc((size_t)options->listed + 1, sizeof(*groups));

	*out = groups;
	*count = 0;
	for (int i = 0; i < options->listed && groups; i++) {
		struct bench_case *group = &groups[*count];
		if (!bench_is_wanted(options, &list[i], &number))
			continue;
		*group = (struct bench_case){.c = &list[i]};
		if (!plan_case(options, limits, group))
			good = false;
		else if (options->generic && group->count < 2)
			free(group->items);
		else
			++*count;
	}
	return groups && good;
}

/* ---- What it is compared with ---- */

static bool is_op(const struct cases_case *c, const char *name)
{
	return strcmp(c->op->name, name) == 0;
}

#define SECTOR 32.0 /* bytes: memory is read in no less */

/*
 * Returns the bytes of src that a gather along its last dimension reads: the sectors that indices
 * drawn at random name, by expectation.  A copy of no more than the elements that are wanted reads
 * side by side what the gather finds apart.
 */
static double gathered_bytes(const struct cases_case *c)
{
	const struct cases_operand *src = &c->operand[0], *idx = &c->operand[1];
	int64_t few = src->shape[src->rank - 1], many = idx->shape[idx->rank - 1];
	double row = (double)few * cases_element(src), sectors = ceil(row / SECTOR);
	double read = SECTOR * sectors * (1 - pow(1 - 1 / sectors, (double)many));

	return (double)cases_elements(src) / (double)few * (read < row ? read : row);
}

/* The same as a plan counts them: so much of each row as is wanted. */
static double wanted_bytes(const struct cases_case *c)
{
	const struct cases_operand *src = &c->operand[0], *idx = &c->operand[1];
	int64_t few = src->shape[src->rank - 1], many = idx->shape[idx->rank - 1];

	return (double)cases_elements(src) / (double)few * (double)(many < few ? many : few) *
		   cases_element(src);
}

/*
 * Returns how many bytes beyond the elements a reader of rows that lie apart reads: of the sectors
 * in which rows begin and end, each counted once.  Where rows begin in their sectors repeats itself
 * after as many rows as a sector has bytes: their sectors are the bytes of one row in the mean.
 */
static double beside_rows(const struct cases_operand *operand)
{
	int64_t element = cases_element(operand), row = element, pitch = 0, last = -1, sectors = 0;
	int k = operand->rank - 1;

	for (; k >= 0 && (operand->shape[k] == 1 || operand->stride[k] * element == row); k--)
		row *= operand->shape[k];
	if (k < 0 || row == 0)
		return 0;
	pitch = operand->stride[k] * element;
	if (pitch < row)
		return 0;
	for (int64_t i = 0; i < (int64_t)SECTOR; i++) {
		int64_t first = i * pitch / (int64_t)SECTOR, end = (i * pitch + row - 1) / (int64_t)SECTOR;
		sectors += end - first + (first > last);
		last = end;
	}
	return (double)cases_elements(operand) * (double)element / (double)row *
		   ((double)sectors - (double)row);
}

uint64_t bench_bytes(const struct cases_case *c, const struct kernel_plan *plan)
{
	double beside = 0;

	if (is_op(c, "gather") && cases_elements(&c->operand[0]) > 0)
		return plan->bytes_moved + (uint64_t)(int64_t)(gathered_bytes(c) - wanted_bytes(c));
	/* The shape of a mask is known; how much of x it spares only the device knows. */
	if (is_op(c, "masked_softmax"))
		return 2 * (uint64_t)cases_elements(&c->operand[0]) * cases_element(&c->operand[0]);
	for (int i = 0; i < c->operand_count; i++)
		if (!c->operand[i].contiguous && !c->operand[i].output &&
			c->operand[i].dtype != KILN_DTYPE_NONE)
			beside += beside_rows(&c->operand[i]);
	return plan->bytes_moved + (uint64_t)beside;
}

/* ---- Targets: copy / kernel at least; rows of large cases only ---- */

enum rule {
	RULE_PERMUTE,
	RULE_SOFTMAX,
	RULE_MASKED,
	RULE_NORM,
	RULE_BACKWARD,
	RULE_REDUCE,
	RULE_TOPK
};

static const struct {
	const char *op;
	enum rule rule;
} rules[] = {
	{"permute", RULE_PERMUTE},
	{"softmax", RULE_SOFTMAX},
	{"log_softmax", RULE_SOFTMAX},
	{"masked_softmax", RULE_MASKED},
	{"layer_norm", RULE_NORM},
	{"rms_norm", RULE_NORM},
	{"softmax_backward", RULE_BACKWARD},
	{"log_softmax_backward", RULE_BACKWARD},
	{"masked_softmax_backward", RULE_BACKWARD},
	{"layer_norm_backward", RULE_BACKWARD},
	{"rms_norm_backward", RULE_BACKWARD},
	{"sum", RULE_REDUCE},
	{"mean", RULE_REDUCE},
	{"prod", RULE_REDUCE},
	{"amax", RULE_REDUCE},
	{"amin", RULE_REDUCE},
	{"argmax", RULE_REDUCE},
	{"argmin", RULE_REDUCE},
	{"any", RULE_REDUCE},
	{"all", RULE_REDUCE},
	{"vector_norm", RULE_REDUCE},
	{"logsumexp", RULE_REDUCE},
	{"var", RULE_REDUCE},
	{"topk", RULE_TOPK},
};

/* By columns: the first row with at least as many. */
struct by_columns {
	int64_t columns;
	double target;
};
static const struct by_columns softmax_rows[] = {{8192, 0.96}, {32768, 0.94}, {131072, 0.88}};
static const struct by_columns norm_rows[] = {{8192, 0.96}, {32768, 0.94}, {131072, 0.87}};

static double find(const struct by_columns rows[3], int64_t columns)
{
	for (int i = 0; i < 3; i++)
		if (columns <= rows[i].columns)
			return rows[i].target;
	return 0;
}

static int64_t int_attr(const struct cases_case *c, const char *name, int64_t otherwise)
{
	for (int i = 0; i < c->attr_count; i++)
		if (strcmp(c->attr[i].name, name) == 0)
			return c->attr[i].i;
	return otherwise;
}

static int64_t last_size(const struct cases_operand *operand)
{
	return operand->rank ? operand->shape[operand->rank - 1] : 1;
}

/* The table with targets: three types, no more than four dimensions, one shape of it odd. */
static double permute_target(const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[0];

	if (x->rank > 4 || !x->contiguous ||
		(x->dtype != KILN_F32 && x->dtype != KILN_F16 && x->dtype != KILN_I8))
		return 0;
	return x->rank == 4 && x->shape[0] == 31 && x->shape[3] == 127 ? 0.85 : 0.92;
}

static double softmax_target(const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[0];
	int64_t axis = int_attr(c, "axis", -1), columns = last_size(x);

	if (axis != -1 && axis != x->rank - 1)
		return 0.90;
	return columns == 1022 || columns == 1023 ? 0.95 : find(softmax_rows, columns);
}

static double norm_target(const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[0];
	int64_t columns = 1;

	for (int64_t k = 1, axes = int_attr(c, "axes", 1); k <= axes && k <= x->rank; k++)
		columns *= x->shape[x->rank - k];
	if (columns == 1022 || columns == 1023)
		return columns == 1022 ? 0.95 : 0.90;
	return find(norm_rows, columns);
}

/* The gradients of gamma and beta without that of x read two tensors and write next to nothing. */
static double backward_target(const struct cases_case *c)
{
	int64_t largest = 0;

	for (int i = 0; i < c->operand_count; i++)
		if (c->operand[i].output && cases_elements(&c->operand[i]) > largest)
			largest = cases_elements(&c->operand[i]);
	return largest < cases_elements(&c->operand[0]) ? 0.92 : 0.88;
}

double bench_target(const struct cases_case *c)
{
	if (!(c->flags & CASES_BIG))
		return 0;
	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
		if (!is_op(c, rules[i].op))
			continue;
		switch (rules[i].rule) {
		case RULE_PERMUTE:
			return permute_target(c);
		case RULE_SOFTMAX:
			return softmax_target(c);
		case RULE_MASKED:
		case RULE_REDUCE:
			return 0.95;
		case RULE_TOPK:
			return last_size(&c->operand[0]) >= 131072 ? 0.80 : 0;
		case RULE_NORM:
			return norm_target(c);
		case RULE_BACKWARD:
			return backward_target(c);
		}
	}
	return 0;
}
