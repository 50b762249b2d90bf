/*
 * tier_budget.c: the axes that a session's shapes vary in, for each operator, and the session's
 * budget of exact kernels.  A session that brings ever more shapes of an operator is "widened": it
 * stays with the generic kernel, which takes all sizes at run time.
 */
#include "tier.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"

#define VALUES_MOST 256  /* distinct ones of an axis that are counted */
#define SHAPES_MOST 4096 /* distinct ones of an operator that are counted */

struct axis {
	int operand, axis;
	int64_t low, high;
	struct map values;
};

struct shapes {
	char op[24], operands[KERNEL_OPERANDS_MAX];
	struct map seen;
	struct axis axes[KERNEL_MAX_OPERANDS * KILN_MAX_RANK];
	int axis_count;
	uint64_t prepared, variants;
	int64_t compile_us;
	double ratios;
	bool widened;
	struct shapes *next;
};

static struct shapes *tier_budget_find(const struct session *session, const char *op)
{
	struct shapes *shapes = session->shapes;
	while (shapes && strcmp(shapes->op, op) != 0)
		shapes = shapes->next;
	return shapes;
}

/* Adds a value to a set, which stops to grow at `most`. */
static void tier_budget_add(struct map *set, uint64_t value, size_t most)
{
	static char there;
	if (set->count < most && !map_get_id(set, value))
		(void)map_put_id(set, value, &there);
}

static void note_axis(struct shapes *shapes, int operand, int number, int64_t value)
{
	int i = 0;
	while (i < shapes->axis_count &&
		   (shapes->axes[i].operand != operand || shapes->axes[i].axis != number))
		i++;
	struct axis *axis = &shapes->axes[i];
	if (i == shapes->axis_count) {
		shapes->axis_count++;
		*axis = (struct axis){.operand = operand, .axis = number, .low = value, .high = value};
	}
	axis->low = value < axis->low ? value : axis->low;
	axis->high = value > axis->high ? value : axis->high;
	tier_budget_add(&axis->values, (uint64_t)value, VALUES_MOST);
}

void shapes_note(struct session *session, const struct kernel_problem *problem,
				 const struct kernel_ref *ref)
{
	struct shapes *shapes = tier_budget_find(session, problem->op);
	uint64_t hash = 14695981039346656037u;
	if (!shapes) {
		shapes = util_alloc(sizeof(*shapes));
		memcpy(shapes->op, problem->op, sizeof(shapes->op));
		memcpy(shapes->operands, ref->plan.operands, sizeof(shapes->operands));
		shapes->next = session->shapes;
		session->shapes = shapes;
	}
	for (int i = 0; i < problem->tensor_count; i++) {
		const struct kernel_tensor *tensor = &problem->tensors[i];
		for (int k = 0; tensor->dtype != KILN_DTYPE_NONE && k < tensor->rank; k++) {
			note_axis(shapes, i, k, tensor->shape[k]);
			hash = (hash ^ (uint64_t)tensor->shape[k]) * 1099511628211u;
		}
		hash = (hash ^ (uint64_t)tensor->dtype) * 1099511628211u;
	}
	tier_budget_add(&shapes->seen, hash, SHAPES_MOST);
	shapes->prepared++;
	shapes->ratios += ref->tier->ratio;
}

/* Writes "x axis 2: 113 values, 7..512"; nothing if no axis varies. */
static void tier_budget_describe(const struct shapes *shapes, char *text, size_t size)
{
	size_t used = 0;
	char name[24];
	text[0] = 0;
	for (int i = 0; i < shapes->axis_count; i++) {
		const struct axis *axis = &shapes->axes[i];
		if (axis->values.count < 2)
			continue;
		used = util_append(text, size, used, "%s%s axis %d: %zu%s values, %lld..%lld",
						   used ? "; " : "",
						   kernel_operand_name(shapes->operands, axis->operand, name), axis->axis,
						   axis->values.count, axis->values.count == VALUES_MOST ? " or more" : "",
						   (long long)axis->low, (long long)axis->high);
	}
}

bool shapes_may_specialize(struct session *session, const char *op)
{
	struct shapes *shapes = tier_budget_find(session, op);
	uint64_t most = session->broker->options.max_variants;
	char varies[512];
	if (!shapes || shapes->widened)
		return false;
	if (!most || shapes->variants < most) {
		shapes->variants++;
		return true;
	}
	shapes->widened = true;
	session->broker->counters.widened++;
	tier_budget_describe(shapes, varies, sizeof(varies));
	util_log(UTIL_INFO,
			 "session %llu (pid %d): %s has %llu exact kernels, the most it may have "
			 "(--max-variants); its further shapes run the generic one, about %.2f times slower: "
			 "%s",
			 (unsigned long long)session->id, session->pid, op, (unsigned long long)most,
			 shapes->ratios / (double)shapes->prepared, varies);
	return false;
}

void shapes_note_compile(struct session *session, const char *op, int64_t micros)
{
	struct shapes *shapes = tier_budget_find(session, op);
	if (shapes)
		shapes->compile_us += micros;
}

bool shapes_widened(const struct session *session, const char *op)
{
	const struct shapes *shapes = tier_budget_find(session, op);
	return shapes && shapes->widened;
}

static void put_axes(struct wire_out *out, const struct shapes *shapes)
{
	char name[24];
	wire_list_begin(out, "varies");
	for (int i = 0; i < shapes->axis_count; i++) {
		const struct axis *axis = &shapes->axes[i];
		if (axis->values.count < 2)
			continue;
		wire_map_begin(out, NULL);
		wire_put_str(out, "operand", kernel_operand_name(shapes->operands, axis->operand, name));
		wire_put_int(out, "axis", axis->axis);
		wire_put_uint(out, "values", axis->values.count);
		wire_put_int(out, "low", axis->low);
		wire_put_int(out, "high", axis->high);
		wire_map_end(out);
	}
	wire_list_end(out);
}

void shapes_put(const struct session *session, struct wire_out *out)
{
	char varies[512];
	wire_list_begin(out, "shapes");
	for (const struct shapes *shapes = session->shapes; shapes; shapes = shapes->next) {
		tier_budget_describe(shapes, varies, sizeof(varies));
		wire_map_begin(out, NULL);
		wire_put_str(out, "op", shapes->op);
		wire_put_uint(out, "shapes", shapes->seen.count);
		wire_put_uint(out, "prepared", shapes->prepared);
		wire_put_uint(out, "variants", shapes->variants);
		wire_put_int(out, "compile_us", shapes->compile_us);
		wire_put_bool(out, "widened", shapes->widened);
		wire_put_real(out, "ratio", shapes->ratios / (double)shapes->prepared);
		put_axes(out, shapes);
		wire_put_str(out, "text", varies);
		wire_map_end(out);
	}
	wire_list_end(out);
}

void shapes_free(struct session *session)
{
	while (session->shapes) {
		struct shapes *shapes = session->shapes;
		session->shapes = shapes->next;
		for (int i = 0; i < shapes->axis_count; i++)
			map_free(&shapes->axes[i].values);
		map_free(&shapes->seen);
		free(shapes);
	}
}
