/*
 * test_plan_cases: every case of the list, and random ones, as the planner sees them; and the list
 * itself.
 */
#include "tests/ops/common/family.h"
#include "tests/ops/common/problem.h"
#include "plan_problems.h"

#include <unistd.h>

#define WALKED_MOST (1 << 20) /* elements of an operand */

/* By walking all of it. */
static int64_t last_touched(const struct cases_operand *o)
{
	int64_t last = -1, count = cases_elements(o);

	for (int64_t i = 0; i < count; i++) {
		int64_t at = cases_offset(o, i);
		last = at > last ? at : last;
	}
	return last;
}

/* Each operand that is touched is passed once, scratch memory and a report where there are some,
 * and no more. */
static void check_args(const struct kernel_plan *plan)
{
	int passed[KERNEL_MAX_OPERANDS] = {0}, scratch = 0, reports = 0;

	assert_in_range(plan->arg_count, 1, KERNEL_MAX_ARGS);
	for (int i = 0; i < plan->arg_count; i++) {
		const struct kernel_arg *arg = &plan->args[i];
		if (arg->kind == KERNEL_ARG_POINTER) {
			assert_in_range(arg->operand, 0, plan->operand_count - 1);
			passed[arg->operand]++;
		} else if (arg->kind == KERNEL_ARG_SCRATCH) {
			scratch++;
		} else if (arg->kind == KERNEL_ARG_REPORT) {
			reports++;
		} else {
			assert_true(arg->bytes == 4 || arg->bytes == 8);
		}
	}
	for (int i = 0; i < plan->operand_count; i++)
		assert_true(plan->extents[i].bytes == 0 ? passed[i] <= 1 : passed[i] == 1);
	assert_int_equal(scratch, plan->scratch.bytes != 0);
	assert_int_equal(reports, plan->report.indices != 0);
	assert_true(plan->scratch.counters <= plan->scratch.bytes);
}

static void check_launch(const struct kernel_plan *plan, const struct kernel_limits *limits)
{
	if (plan->kind != KERNEL_LAUNCH)
		return;
	assert_int_equal(strncmp(plan->source, "ops/", 4), 0);
	assert_string_not_equal(plan->instantiation, "");
	assert_in_range(plan->grid[0], 1, limits->grid_x);
	assert_in_range(plan->grid[1], 1, limits->grid_y);
	assert_in_range(plan->grid[2], 1, limits->grid_z);
	assert_in_range(plan->block[0] * plan->block[1] * plan->block[2], 32, limits->max_threads);
	assert_true(plan->shared_bytes <= limits->shared_optin);
	check_args(plan);
}

/* Every candidate makes a plan of its own name, the planner's own one the same plan again. */
static void check_choices(struct kernel_problem *p, const struct kernel_limits *limits,
						  const struct kernel_plan *plan)
{
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], error[KERNEL_ERROR_MAX] = "";
	int count = plan_choices(p, limits, names, error);
	struct kernel_attr *attr = &p->attrs[p->attr_count];
	struct kernel_plan chosen;

	assert_in_range(count, 1, PLAN_MAX_CHOICES);
	assert_string_equal(names[0], plan->choice);
	assert_int_equal(plan->kind == KERNEL_LAUNCH, plan->choice[0] != 0);
	if (plan->kind != KERNEL_LAUNCH)
		return;
	*attr = (struct kernel_attr){.name = PLAN_CHOICE, .kind = KILN_ATTR_STRING};
	p->attr_count++;
	for (int i = 0; i < count; i++) {
		for (int k = 0; k < i; k++)
			assert_string_not_equal(names[k], names[i]);
		memcpy(attr->s, names[i], KERNEL_CHOICE_MAX);
		if (plan_problem(p, limits, &chosen, error))
			fail_msg("%s: %s", names[i], error);
		assert_string_equal(chosen.choice, names[i]);
		if (i == 0)
			assert_memory_equal(&chosen, plan, kernel_plan_bytes(plan));
		else
			check_launch(&chosen, limits);
	}
	p->attr_count--;
}

static void check_case(const struct cases_case *c, const struct kernel_limits *limits,
					   bool may_decline)
{
	struct kernel_problem p;
	struct kernel_plan plan, again;
	char error[KERNEL_ERROR_MAX] = "";
	bool nothing = true;
	int status;

	cases_problem(c, &p);
	memset(&again, 0x77, sizeof(again));
	status = plan_problem(&p, limits, &plan, error);
	if (status == KILN_ENOTSUP && may_decline)
		return;
	if (status)
		fail_msg("%s on %s: %s", c->name, limits->target, error);
	assert_int_equal(plan_problem(&p, limits, &again, error), KILN_OK);
	assert_memory_equal(&plan, &again, kernel_plan_bytes(&plan));

	assert_int_equal(plan.operand_count, plan_operand_count(plan.operands));
	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *o = &c->operand[i];
		const struct kernel_extent *extent = &plan.extents[i];
		bool there = o->dtype != KILN_DTYPE_NONE;
		assert_int_equal(extent->written, there && o->output);
		/* An input that a result does not depend on need not be touched, nor a cache without
		 * tokens. */
		if ((o->output && !o->kept) || extent->bytes)
			assert_int_equal(extent->bytes, cases_bytes(o));
		if (there)
			assert_int_equal(p.tensors[i].alignment % extent->alignment, 0);
		nothing = nothing && !(o->output && cases_elements(o->kept ? &c->operand[0] : o));
	}
	assert_int_equal(plan.kind == KERNEL_NOTHING, nothing);
	if (!plan.note[0])
		fail_msg("%s on %s: the plan's note is empty", c->name, limits->target);
	check_launch(&plan, limits);
	check_choices(&p, limits, &plan);
}

static void check_list(const char *family)
{
	static const char *const known[] = {"cpu", "sm_75", "sm_90", "sm_120"};
	bool is_permute = strcmp(family, "permute") == 0;
	int count, found = 0;
	const struct cases_case *list = cases_all(&count);

	for (int t = 0; t < 4; t++) {
		struct kernel_limits limits = limits_of(known[t]), narrow = limits;
		narrow.max_threads = 32;
		narrow.shared_default = narrow.shared_optin = 1024;
		if (is_permute)
			narrow.grid_x = 5;
		for (int i = 0; i < count; i++) {
			if (strcmp(list[i].family, family) != 0)
				continue;
			check_case(&list[i], &limits, false);
			check_case(&list[i], &narrow, !is_permute);
			found++;
		}
	}
	assert_true(found > 0);
}

static void family(void **state)
{
	check_list(*state);
}

/* The planner refuses what a family's file says, with its sentence. */
static void refusals(void **state)
{
	(void)state;
	for (int i = 0; i < cases_families(); i++)
		for (const struct cases_refusal *at = cases_refusals(i); at && at->sentence; at++) {
			struct cases_case c = {0};
			struct kernel_problem problem;
			at->make(&c);
			cases_problem(&c, &problem);
			refused(&problem, at->sentence);
		}
}

static void extents_are_walked(void **state)
{
	int count;
	const struct cases_case *list = cases_all(&count);

	(void)state;
	for (int i = 0; i < count; i++) {
		for (int k = 0; k < list[i].operand_count; k++) {
			const struct cases_operand *o = &list[i].operand[k];
			if (cases_elements(o) > WALKED_MOST)
				continue;
			assert_int_equal(cases_bytes(o), (uint64_t)(last_touched(o) + 1) * cases_element(o));
		}
	}
}

static void names_are_unique(void **state)
{
	int count, bench = 0;
	const struct cases_case *list = cases_all(&count);

	(void)state;
	assert_in_range(count, 300, CASES_MOST - 1);
	for (int i = 0; i < count; i++) {
		size_t length = strlen(list[i].op->name);
		bench += (list[i].flags & CASES_BENCH) != 0;
		/* The operator's name begins it, and it was not cut off. */
		assert_int_equal(strncmp(list[i].name, list[i].op->name, length), 0);
		assert_int_equal(list[i].name[length], ' ');
		assert_true(strlen(list[i].name) < sizeof(list[i].name) - 1);
		for (int k = 0; k < i; k++)
			assert_string_not_equal(list[i].name, list[k].name);
	}
	assert_true(bench >= 24);
}

static void random_cases(void **state)
{
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_problem p, q;
	struct cases_case c, again;

	(void)state;
	for (uint64_t i = 0; i < UINT64_C(3000); i++) {
		cases_random(42, i, &c);
		cases_random(42, i, &again);
		cases_problem(&c, &p);
		cases_problem(&again, &q);
		assert_memory_equal(&p, &q, sizeof(p));
		assert_string_equal(c.name, again.name);
		check_case(&c, &limits, false);
		for (int k = 0; k < c.operand_count; k++)
			assert_int_equal(cases_bytes(&c.operand[k]),
							 (uint64_t)(last_touched(&c.operand[k]) + 1) *
								 cases_element(&c.operand[k]));
	}
}

/* Gives the problem other sizes, or none, the same ones where it had the same; false: that is more
 * than the planner has to know. */
static bool grow(struct kernel_problem *p, uint64_t *random)
{
	static const int64_t sizes[] = {
		0, 1, 2, 7, 63, 251, 256, 4096, 65521, 1 << 20, 1 << 24, 1LL << 31, (1LL << 33) + 1};
	int64_t from[KERNEL_MAX_OPERANDS * KILN_MAX_RANK], to[KERNEL_MAX_OPERANDS * KILN_MAX_RANK];
	int count = 0;

	for (int i = 0; i < p->tensor_count; i++) {
		struct kernel_tensor *tensor = &p->tensors[i];
		double elements = 1;
		if (tensor->dtype == KILN_DTYPE_NONE)
			continue;
		for (int k = 0; k < tensor->rank; k++) {
			int at = 0;
			while (at < count && from[at] != tensor->shape[k])
				at++;
			if (at == count) {
				*random = *random * 6364136223846793005u + 1442695040888963407u;
				from[count] = to[count] = tensor->shape[k];
				if (tensor->shape[k] > 1 && (*random >> 40) % 3)
					to[at] = sizes[(*random >> 33) % (sizeof(sizes) / sizeof(sizes[0]))];
				count++;
			}
			tensor->shape[k] = to[at];
			elements *= (double)to[at];
		}
		if (elements > 1e16)
			return false;
		plan_contiguous(tensor);
	}
	return true;
}

/* Anybody may ask for a plan of what no memory holds, and the daemon's loop makes it: none takes
 * long, or ends the process. */
static void sizes_beyond_all_memory(void **state)
{
	static const char *const targets[] = {"cpu", "sm_80", "sm_90"};
	struct kernel_problem p;
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX];
	uint64_t random = 1;
	int count, planned = 0;
	const struct cases_case *list = cases_all(&count);

	(void)state;
	alarm(60);
	for (int i = 0; i < 2 * count; i++) {
		struct kernel_limits limits = limits_of(targets[i % 3]);
		cases_problem(&list[i % count], &p);
		if (!grow(&p, &random))
			continue;
		planned += plan_problem(&p, &limits, &plan, error) == KILN_OK;
		(void)plan_as_generic(&p, &limits, &plan, error);
	}
	alarm(0);
	assert_true(planned > count);
}

int main(void)
{
	const struct CMUnitTest others[] = {
		cmocka_unit_test(refusals),
		cmocka_unit_test(extents_are_walked),
		cmocka_unit_test(names_are_unique),
		cmocka_unit_test(random_cases),
		cmocka_unit_test(sizes_beyond_all_memory),
	};
	struct CMUnitTest *families = calloc((size_t)cases_families(), sizeof(*families));
	int failed;

	if (!families)
		return 1;
	for (int i = 0; i < cases_families(); i++)
		families[i] = (struct CMUnitTest){.name = cases_family_name(i),
										  .test_func = family,
										  .initial_state = (void *)(uintptr_t)cases_family_name(i)};
	failed = _cmocka_run_group_tests("families", families, (size_t)cases_families(), NULL, NULL);
	free(families);
	return failed + cmocka_run_group_tests(others, NULL, NULL);
}
