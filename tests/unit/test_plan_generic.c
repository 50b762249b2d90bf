/*
 * test_plan_generic: the planner's generic kernels: every case of the list and random ones have
 * one, of those that their operator lists, and what makes two problems different makes no kernel.
 */
#include "cases_problem.h"
#include "plan_problems.h"

#define MOST_GENERICS 400

/* What one operator lists. */
struct listed {
	const struct plan_op *op;
	char source[64];
	char *instantiations[MOST_GENERICS];
	int count;
};

static struct listed list_of(const struct plan_op *op, const struct kernel_limits *limits)
{
	struct listed listed = {.op = op};
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX] = "";
	int status;

	while ((status = plan_generic_at(op, listed.count, limits, &plan, error)) == KILN_OK) {
		assert_true(listed.count < MOST_GENERICS);
		assert_int_equal(plan.kind, KERNEL_LAUNCH);
		assert_string_equal(plan.variant, PLAN_GENERIC);
		assert_string_equal(plan.choice, PLAN_GENERIC);
		for (int i = 0; i < listed.count; i++)
			if (strcmp(listed.instantiations[i], plan.instantiation) == 0)
				fail_msg("%s: generics %d and %d are one: %s", op->name, i, listed.count,
						 plan.instantiation);
		listed.instantiations[listed.count++] = strdup(plan.instantiation);
	}
	if (op->generics && (status != KILN_ENOENT || listed.count == 0))
		fail_msg("%s: generic %d: %s", op->name, listed.count, error);
	return listed;
}

static void list_free(struct listed *listed)
{
	for (int i = 0; i < listed->count; i++)
		free(listed->instantiations[i]);
}

/* The common rules, and that the kernel is listed. */
static void check_problem(const struct listed *listed, const char *name,
						  struct kernel_problem *problem, const struct kernel_limits *limits)
{
	struct kernel_plan plan, exact;
	char error[KERNEL_ERROR_MAX] = "";

	assert_int_equal(plan_problem(problem, limits, &exact, error), KILN_OK);
	cases_problem_choose(problem, PLAN_GENERIC);
	if (plan_problem(problem, limits, &plan, error))
		fail_msg("%s on %s: %s", name, limits->target, error);
	problem->attr_count--;
	assert_int_equal(plan.kind, exact.kind);
	assert_int_equal(plan.bytes_moved, exact.bytes_moved);
	for (int i = 0; i < plan.operand_count; i++) {
		assert_int_equal(plan.extents[i].written, exact.extents[i].written);
		if (problem->tensors[i].dtype != KILN_DTYPE_NONE && plan.extents[i].bytes)
			assert_int_equal(problem->tensors[i].alignment % plan.extents[i].alignment, 0);
	}
	if (plan.kind != KERNEL_LAUNCH)
		return;
	assert_string_equal(plan.variant, PLAN_GENERIC);
	assert_string_not_equal(plan.note, "");
	assert_in_range(plan.grid[0], 1, limits->grid_x);
	if (plan.block[0] < 32 || plan.block[0] > limits->max_threads)
		fail_msg("%s: %u threads", name, plan.block[0]);
	assert_in_range(plan.arg_count, 1, KERNEL_MAX_ARGS);
	assert_true(plan.shared_bytes <= limits->shared_optin);
	if (!listed->op->generics)
		return;
	for (int i = 0; i < listed->count; i++)
		if (strcmp(listed->instantiations[i], plan.instantiation) == 0)
			return;
	fail_msg("%s: %s is not listed", name, plan.instantiation);
}

/* map's are each statement's own. */
static bool has_generic(const struct plan_op *op)
{
	return op->generics || strcmp(op->name, "map") == 0;
}

/* Every case of one operator, and random ones. */
static void check_op(const struct plan_op *op, const char *target)
{
	struct kernel_limits limits = limits_of(target), narrow = limits;
	struct listed listed = list_of(op, &limits);
	struct kernel_problem problem;
	struct cases_case random;
	int count;
	const struct cases_case *list = cases_all(&count);

	narrow.grid_x = 3;
	narrow.max_threads = 64;
	for (int i = 0; i < count + 4000; i++) {
		const struct cases_case *c = i < count ? &list[i] : &random;
		if (i >= count)
			cases_random(20261122, (uint64_t)(i - count), &random);
		if (strcmp(c->op->name, op->name) != 0)
			continue;
		cases_problem(c, &problem);
		check_problem(&listed, c->name, &problem, &limits);
		check_problem(&listed, c->name, &problem, &narrow);
	}
	list_free(&listed);
}

static void all_have_one(void **state)
{
	(void)state;
	for (const struct plan_op *op = plan_ops; op->name; op++) {
		if (!has_generic(op))
			continue;
		check_op(op, "sm_90");
		check_op(op, "cpu");
		check_op(op, "sm_75");
	}
}

/* They are all warm in a device: few. */
static void they_are_few(void **state)
{
	struct kernel_limits limits = limits_of("sm_90");
	int all = 0;

	(void)state;
	for (const struct plan_op *op = plan_ops; op->name; op++) {
		struct listed listed = list_of(op, &limits);
		if (listed.count)
			print_message("%s: %d\n", op->name, listed.count);
		all += listed.count;
		list_free(&listed);
	}
	print_message("generic kernels: %d\n", all);
	assert_in_range(all, 1, MOST_GENERICS);
}

static void no_candidate(void **state)
{
	struct kernel_problem problem = good();
	struct kernel_limits limits = limits_of("sm_90");
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], error[KERNEL_ERROR_MAX] = "";
	struct kernel_plan plan;
	int count = plan_choices(&problem, &limits, names, error);

	(void)state;
	for (int i = 0; i < count; i++)
		assert_string_not_equal(names[i], PLAN_GENERIC);
	assert_int_equal(plan_generic_at(plan_find("permute"), -1, &limits, &plan, error), KILN_ENOENT);
	assert_int_equal(plan_generic_at(plan_find("permute"), 9999, &limits, &plan, error),
					 KILN_ENOENT);
	assert_string_equal(error, "permute: there is no generic kernel number 9999");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_have_one),
		cmocka_unit_test(they_are_few),
		cmocka_unit_test(no_candidate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
