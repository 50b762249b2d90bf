/*
 * bench_list.c: what is to be timed, for other programs and for people: cases as JSON, a line each,
 * and their plans.
 */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>

static void print_numbers(const char *name, const int64_t *numbers, int count)
{
	printf("\"%s\": [", name);
	for (int k = 0; k < count; k++)
		printf("%s%" PRId64, k ? ", " : "", numbers[k]);
	printf("]");
}

void bench_operand_name(const struct cases_case *c, int operand, char name[16])
{
	const char *at = NULL;

	for (int i = 0; i < c->attr_count; i++)
		if (strcmp(c->attr[i].name, "names") == 0)
			at = c->attr[i].s;
	if (!at) {
		snprintf(name, 16, "%s", plan_find(c->op->name)->operands[operand].name);
		return;
	}
	for (; operand > 0 && strchr(at, ','); operand--)
		at = strchr(at, ',') + 1;
	snprintf(name, 16, "%.*s", (int)strcspn(at, ","), at);
}

static void print_operand(const struct cases_case *c, int i)
{
	static const char *const fills[] = {
		[CASES_BITS] = "bits",           [CASES_NORMAL] = "normal",   [CASES_UNUSUAL] = "unusual",
		[CASES_FLAGS] = "flags",         [CASES_LENGTHS] = "lengths", [CASES_PROBABLE] = "probable",
		[CASES_LOGARITHM] = "logarithm", [CASES_INDICES] = "indices", [CASES_SLOTS] = "slots",
		[CASES_STRAY] = "stray",         [CASES_BOXES] = "boxes",     [CASES_TARGETS] = "targets",
		[CASES_OFFSETS] = "offsets",     [CASES_EDGES] = "edges",
	};
	const struct cases_operand *operand = &c->operand[i];
	char name[16];

	bench_operand_name(c, i, name);
	if (operand->dtype == KILN_DTYPE_NONE) {
		printf("%s\"%s\": null", i ? ", " : "", name);
		return;
	}
	printf("%s\"%s\": {\"dtype\": \"%s\", ", i ? ", " : "", name, kiln_dtype_name(operand->dtype));
	print_numbers("shape", operand->shape, operand->rank);
	printf(", ");
	print_numbers("strides", operand->stride, operand->rank);
	printf(", \"output\": %s, \"fill\": \"%s\", \"most\": %" PRId64 "}",
		   operand->output ? "true" : "false", fills[operand->fill], operand->most);
}

static void print_attr(const struct cases_case *c, int i)
{
	const struct kiln_attr *attr = &c->attr[i];

	printf("%s", i ? ", " : "");
	if (attr->kind == KILN_ATTR_INTS)
		print_numbers(attr->name, c->ints, attr->count);
	else if (attr->kind == KILN_ATTR_STRING)
		printf("\"%s\": \"%s\"", attr->name, attr->s);
	else if (attr->kind == KILN_ATTR_REAL)
		printf("\"%s\": %.17g", attr->name, attr->f);
	else
		printf("\"%s\": %" PRId64, attr->name, attr->i);
}

void bench_list(const struct bench_options *options)
{
	for (int i = 0, number = 0; i < options->listed; i++) {
		const struct cases_case *c = &options->list[i];
		if (!bench_is_wanted(options, c, &number))
			continue;
		if (!plan_find(c->op->name)) {
			fprintf(stderr, "bench: %s: there is no such operator\n", c->name);
			continue;
		}
		printf("{\"name\": \"%s\", \"op\": \"%s\", \"big\": %s, \"operands\": {", c->name,
			   c->op->name, c->flags & CASES_BIG ? "true" : "false");
		for (int k = 0; k < c->operand_count; k++)
			print_operand(c, k);
		printf("}, \"attrs\": {");
		for (int k = 0; k < c->attr_count; k++)
			print_attr(c, k);
		printf("}}\n");
	}
}

void bench_list_plans(const struct bench_options *options, const struct bench_case *groups,
					  int count)
{
	static const char *const kinds[] = {"nothing", "copy", "kernel"};

	for (int g = 0; g < count; g++) {
		printf("%s", groups[g].c->name);
		if (!options->drawn)
			printf("  (target %.2f)", bench_target(groups[g].c));
		printf("\n");
		for (int i = 0; i < groups[g].count; i++) {
			const struct kernel_plan *plan = &groups[g].items[i].plan;
			printf("  %-10s %-32s %s %u,%u,%u x %u,%u,%u, %u shared, %" PRIu64 " scratch, %s\n",
				   plan->variant, plan->choice, kinds[plan->kind], plan->grid[0], plan->grid[1],
				   plan->grid[2], plan->block[0], plan->block[1], plan->block[2],
				   plan->shared_bytes, plan->scratch.bytes, plan->instantiation);
		}
	}
}
