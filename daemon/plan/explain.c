/*
 * explain.c: a plan as a person reads it.
 */
#include "internal.h"

static const char *kind_name(enum kernel_launch_kind kind)
{
	switch (kind) {
	case KERNEL_NOTHING:
		return "nothing: there are no elements";
	case KERNEL_COPY:
		return "copy by the device, no kernel";
	default:
		return "kernel";
	}
}

static void explain_launch(const struct kernel_plan *plan, const struct kernel_limits *limits,
						   struct plan_text *out)
{
	plan_print(out, "source         %s\n", plan->source);
	plan_print(out, "instantiation  %s\n", plan->instantiation);
	if (plan->grid[0] == 0) {
		plan_print(out, "grid x block   of each launch, as its shared memory\n");
		return;
	}
	plan_print(out, "grid x block   %u,%u,%u x %u,%u,%u\n", plan->grid[0], plan->grid[1],
			   plan->grid[2], plan->block[0], plan->block[1], plan->block[2]);
	plan_print(out, "shared memory  %u bytes%s\n", plan->shared_bytes,
			   plan->shared_bytes > limits->shared_default ? " (by request)" : "");
	if (plan->scratch.bytes)
		plan_print(out, "scratch memory %llu bytes, %llu of them counters\n",
				   (unsigned long long)plan->scratch.bytes,
				   (unsigned long long)plan->scratch.counters);
	if (plan->report.indices && plan->report.end == UINT64_MAX)
		plan_print(out, "reports        subscripts that are out of range\n");
	else if (plan->report.indices)
		plan_print(out, "reports        which of %llu indices are not below %llu\n",
				   (unsigned long long)plan->report.indices, (unsigned long long)plan->report.end);
}

void plan_explain(const struct kernel_plan *plan, const struct kernel_limits *limits, char *text,
				  size_t size)
{
	struct plan_text out = {.text = text, .size = size};

	if (size == 0)
		return;
	text[0] = 0;
	plan_print(&out, "op             %s\n", plan->op);
	plan_print(&out, "target         %s\n", limits->target);
	plan_print(&out, "variant        %s (%s)\n", plan->variant, kind_name(plan->kind));
	if (plan->statement[0])
		plan_print(&out, "statement      %s\n", plan->statement);
	if (plan->choice[0])
		plan_print(&out, "choice         %s\n", plan->choice);
	if (plan->kind == KERNEL_LAUNCH)
		explain_launch(plan, limits, &out);
	for (int i = 0; i < plan->operand_count; i++) {
		char name[16];
		plan_operand_name(plan->operands, i, name);
		if (plan->extents[i].alignment == 0) {
			plan_print(&out, "%-14s left out\n", name);
			continue;
		}
		plan_print(&out, "%-14s %llu bytes %s, aligned to %u\n", name,
				   (unsigned long long)plan->extents[i].bytes,
				   plan->extents[i].written ? "written" : "read", plan->extents[i].alignment);
	}
	if (plan->operand_count)
		plan_print(&out, "bytes moved    %llu\n", (unsigned long long)plan->bytes_moved);
	plan_print(&out, "note           %s\n", plan->note);
}
