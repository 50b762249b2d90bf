/*
 * test_plan_generic: the planner's generic kernels: every case of the list and random ones have
 * one, of those that their operator lists, and what makes two problems different makes no kernel.
 */
#include "tests/ops/common/problem.h"
#include "daemon/plan/internal.h"
#include "plan_problems.h"

#define MOST_GENERICS 400
#define MOST_EACH 24 /* of an operator, on average */

/* One operator lists this. */
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
	if (!plan.note[0])
		fail_msg("%s on %s: the plan's note is empty", name, limits->target);
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
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op)) {
		if (!has_generic(op))
			continue;
		check_op(op, "sm_90");
		check_op(op, "cpu");
		check_op(op, "sm_75");
	}
}

/* A device keeps all of them warm, so an operator has few. */
static void they_are_few(void **state)
{
	struct kernel_limits limits = limits_of("sm_90");
	int all = 0, operators = 0;

	(void)state;
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op)) {
		struct listed listed = list_of(op, &limits);
		if (listed.count)
			print_message("%s: %d\n", op->name, listed.count);
		all += listed.count;
		operators += listed.count > 0;
		list_free(&listed);
	}
	print_message("generic kernels: %d\n", all);
	assert_in_range(all, 1, MOST_EACH * operators);
}

/* ---- What makes no kernel ---- */

static void set_tensor(struct kernel_tensor *tensor, kiln_dtype dtype, int rank,
					   const int64_t *shape)
{
	*tensor = (struct kernel_tensor){.dtype = dtype, .rank = rank, .alignment = 16};
	for (int k = 0; k < rank; k++)
		tensor->shape[k] = shape[k];
	plan_contiguous(tensor);
}

static struct kernel_plan generic_of(struct kernel_problem *problem)
{
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX] = "";

	cases_problem_choose(problem, PLAN_GENERIC);
	if (plan_problem(problem, &limits, &plan, error))
		fail_msg("%s: %s", problem->op, error);
	assert_int_equal(plan.kind, KERNEL_LAUNCH);
	return plan;
}

/* Batches of any number of samples, predictions and targets: one kernel, and no number in it. */
static void ragged_batches_are_one(void **state)
{
	char first[KERNEL_INSTANTIATION_MAX] = "";

	(void)state;
	for (int64_t i = 0; i < 300; i++) {
		struct kernel_problem problem = {.op = "giou_loss", .tensor_count = 5};
		int64_t samples = 1 + i * 7 % 41, most = 1 + i * 13 % 97, boxes = i * 31 % 211;
		set_tensor(&problem.tensors[0], KILN_F32, 3, SHAPE(samples, most, 4));
		set_tensor(&problem.tensors[1], KILN_F32, 2, SHAPE(boxes, 4));
		set_tensor(&problem.tensors[2], KILN_I32, 1, SHAPE(samples + 1));
		set_tensor(&problem.tensors[3], KILN_F32, 0, SHAPE(1));
		if (i % 2)
			set_tensor(&problem.tensors[4], KILN_I64, 0, SHAPE(1));
		if (i % 3)
			problem.tensors[0].alignment = 4;
		struct kernel_plan plan = generic_of(&problem);
		if (!first[0])
			set_text(first, sizeof(first), plan.instantiation);
		assert_string_equal(plan.instantiation, first);
	}
	assert_string_equal(first, "giou_loss_generic<f32, f32>");
}

struct texts {
	char *seen[64];
	int count;
};

static void note_text(struct texts *texts, const char *text)
{
	for (int i = 0; i < texts->count; i++)
		if (strcmp(texts->seen[i], text) == 0)
			return;
	assert_true(texts->count < 64);
	texts->seen[texts->count++] = strdup(text);
}

/* One statement has few kernels: with vectors or without, several a thread or one, along both loops
 * or one that is both. */
static void statements_have_few(void **state)
{
	static const int64_t sizes[] = {1, 2, 3, 4, 7, 8, 12, 31, 64, 100, 129, 1000, 4096, 5001};
	struct texts texts = {.count = 0};

	(void)state;
	for (int i = 0; i < 14 * 14; i++) {
		struct kernel_problem problem = {.op = "map", .tensor_count = 3};
		int64_t rows = sizes[i / 14], columns = sizes[i % 14];
		struct kernel_attr *attr = problem.attrs;
		set_text(attr[0].name, sizeof(attr[0].name), "statement");
		kernel_attr_set_text(&problem, &attr[0], "y[i,j] = x[i,j] * 2 + b[j]", 26);
		set_text(attr[1].name, sizeof(attr[1].name), "names");
		kernel_attr_set_text(&problem, &attr[1], "x,b,y", 5);
		problem.attr_count = 2;
		set_tensor(&problem.tensors[0], KILN_F32, 2, SHAPE(rows, columns));
		set_tensor(&problem.tensors[1], KILN_F32, 1, SHAPE(columns));
		set_tensor(&problem.tensors[2], KILN_F32, 2, SHAPE(rows, columns));
		struct kernel_plan plan = generic_of(&problem);
		note_text(&texts, plan.generated);
	}
	print_message("a statement of two indices: %d texts for 196 shapes\n", texts.count);
	assert_in_range(texts.count, 2, 6);
	while (texts.count)
		free(texts.seen[--texts.count]);
}

/* Sizes, strides and addresses of transposes, moves of vectors, gathers. */
static void permutes_have_few(void **state)
{
	struct texts texts = {.count = 0};

	(void)state;
	for (int64_t i = 0; i < 400; i++) {
		struct kernel_problem problem =
			make(KILN_F16, 3, SHAPE(1 + i % 9, 64 + i * 37 % 300, 64 + i * 91 % 500),
				 i % 2 ? SHAPE(0, 2, 1) : SHAPE(2, 1, 0));
		problem.tensors[0].alignment = 2u << i % 4;
		struct kernel_plan plan = generic_of(&problem);
		note_text(&texts, plan.instantiation);
	}
	print_message("transposes of f16: %d kernels for 400 shapes\n", texts.count);
	assert_in_range(texts.count, 1, 4);
	while (texts.count)
		free(texts.seen[--texts.count]);
}

/* ---- Divisors ---- */

/* As common/divide.cuh has it. */
static uint64_t quotient(const struct kernel_plan *plan, uint64_t dividend)
{
	uint64_t magic = plan->args[1].value;
	uint32_t shift = (uint32_t)plan->args[2].value;

	if (plan->args[0].bytes == 4)
		return (uint64_t)((uint32_t)(dividend * magic >> 32) + (uint32_t)dividend) >> shift;
	/* The high half of the product, by halves. */
	uint64_t a = dividend >> 32, b = (uint32_t)dividend, c = magic >> 32, d = (uint32_t)magic;
	uint64_t middle = (b * d >> 32) + (uint32_t)(a * d) + (uint32_t)(b * c);
	uint64_t high = a * c + (a * d >> 32) + (b * c >> 32) + (middle >> 32);
	return (high + dividend) >> shift;
}

static void check_divisor(uint32_t bytes, uint64_t size, uint64_t dividend)
{
	uint64_t most = bytes == 4 ? INT32_MAX : INT64_MAX;
	struct kernel_plan plan = {0};

	plan_arg_divisor(&plan, bytes, size);
	assert_int_equal(plan.arg_count, 3);
	const uint64_t dividends[] = {0,
								  1,
								  size - 1,
								  size,
								  size + 1,
								  dividend,
								  dividend / size * size,
								  dividend / size * size - 1,
								  most};
	for (int i = 0; i < 9; i++)
		if (dividends[i] <= most && quotient(&plan, dividends[i]) != dividends[i] / size)
			fail_msg("%llu / %llu is not %llu", (unsigned long long)dividends[i],
					 (unsigned long long)size, (unsigned long long)quotient(&plan, dividends[i]));
}

static void divisors_are_exact(void **state)
{
	uint64_t seed = 20261122;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		uint64_t a = cases_word(&seed), b = cases_word(&seed);
		check_divisor(4, (a >> 33 >> i % 31) + 1, b >> 33);
		check_divisor(8, (a >> 1 >> i % 63) + 1, b >> 1);
	}
	for (uint32_t bit = 0; bit < 31; bit++) {
		check_divisor(4, UINT64_C(1) << bit, INT32_MAX);
		check_divisor(4, (UINT64_C(1) << bit) + 1, INT32_MAX - 1);
		check_divisor(8, (UINT64_C(1) << 2 * bit) + 1, INT64_MAX - 1);
	}
	/* A product that is no size: of other dimensions than one of 0. */
	struct kernel_plan plan = {0};
	plan_arg_divisor(&plan, 8, UINT64_MAX);
	assert_int_equal(plan.arg_count, 3);
}

/* ---- Rows that begin between two vectors ---- */

/* The widest access to x of the generic kernel for its sums over dimension 0. */
static uint32_t access_of_sum(struct kernel_tensor x)
{
	struct kernel_problem problem = {.op = "sum", .tensor_count = 1, .tensors = {x}};
	char error[KERNEL_ERROR_MAX] = "";

	set_perm(&problem, 1, SHAPE(0));
	set_text(problem.attrs[0].name, sizeof(problem.attrs[0].name), "over");
	if (plan_infer(&problem, error))
		fail_msg("%s", error);
	return generic_of(&problem).extents[0].alignment;
}

/* The kernel has no vectors for rows that are too long for its short numbers, nor for those that
 * three dimensions number: it would read beyond their ends. */
static void rows_end_where_they_end(void **state)
{
	struct kernel_tensor x = {.dtype = KILN_F16, .alignment = 16, .rank = 1, .stride = {1}};

	(void)state;
	x.shape[0] = 0x3fffffff;
	assert_int_equal(access_of_sum(x), 16);
	x.shape[0] = 0x40000001;
	assert_int_equal(access_of_sum(x), 2);
	x = (struct kernel_tensor){KILN_F16, 3, {6, 3, 20}, {1, 6, 18}, 16};
	assert_int_equal(access_of_sum(x), 16);
	x = (struct kernel_tensor){KILN_F16, 4, {6, 3, 4, 5}, {1, 24, 6, 72}, 16};
	assert_int_equal(access_of_sum(x), 2);
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
		cmocka_unit_test(all_have_one),           cmocka_unit_test(they_are_few),
		cmocka_unit_test(ragged_batches_are_one), cmocka_unit_test(statements_have_few),
		cmocka_unit_test(permutes_have_few),      cmocka_unit_test(divisors_are_exact),
		cmocka_unit_test(no_candidate),           cmocka_unit_test(rows_end_where_they_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
