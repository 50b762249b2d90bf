/*
 * test_plan_softmax: softmax, log_softmax and their backward: what the planner refuses and how it
 * says so, which kernel takes what, its arguments, and its candidates.  Other tests run the
 * kernels.
 */
#include "plan_problems.h"

#include <math.h>

static void set_scale(struct kernel_problem *problem, double scale)
{
	add_attr(problem, "scale", KILN_ATTR_REAL)->f = scale;
}

/* ---- Refusals ---- */

static void operands_are_checked(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F32, 2, SHAPE(3, 4));

	(void)state;
	p.tensors[0].dtype = p.tensors[1].dtype = KILN_I32;
	refused(&p, "softmax: x is i32; it must be f16, bf16, f32 or f64");
	p = make_alike("softmax", KILN_F32, 2, SHAPE(3, 4));
	p.tensors[1].dtype = KILN_F16;
	refused(&p, "softmax: x is f32 and y is f16; they must agree");
	p = make_alike("softmax", KILN_F32, 2, SHAPE(3, 4));
	p.tensors[1].rank = 1;
	refused(&p, "softmax: x has rank 2 and y rank 1; they must agree");
	p = make_alike("softmax", KILN_F32, 2, SHAPE(3, 4));
	p.tensors[1].shape[1] = 5;
	refused(&p, "softmax: dimension 1 has size 4 in x and 5 in y; they must agree");
	p = make_alike("softmax", KILN_F32, 2, SHAPE(3, 4));
	p.tensors[1].stride[0] = 8;
	refused(&p, "softmax: dimension 0 of y has stride 8; y must be contiguous, which is stride 4 "
				"there");
	p = make_alike("softmax", KILN_F32, 2, SHAPE(3, 4));
	p.tensors[0].alignment = 2;
	refused(&p, "softmax: the address of x is aligned to 2 bytes; elements of f32 need 4");
	p = make_alike("log_softmax_backward", KILN_F64, 2, SHAPE(3, 4));
	p.tensors[1].shape[0] = 2;
	refused(&p, "log_softmax_backward: dimension 0 has size 3 in y and 2 in dy; they must agree");
	p = make_alike("softmax_backward", KILN_BF16, 2, SHAPE(3, 4));
	p.tensors[2].stride[1] = 2;
	refused(&p, "softmax_backward: dimension 1 of dx has stride 2; dx must be contiguous, which "
				"is stride 1 there");
	p = make_alike("softmax_backward", KILN_BF16, 2, SHAPE(3, 4));
	p.tensors[2].dtype = KILN_DTYPE_NONE;
	refused(&p, "softmax_backward: dx is missing; its operands are: y, dy, dx (those with ? may "
				"be left out)");
}

static void attributes_are_checked(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F32, 0, SHAPE(1));

	(void)state;
	refused(&p, "softmax: x has rank 0; it needs a dimension to go along");
	p = make_alike("softmax", KILN_F32, 2, SHAPE(3, 4));
	set_axis(&p, 2);
	refused(&p, "softmax: axis is 2; it may be -2 to 1");
	p.attrs[0].i = -3;
	refused(&p, "softmax: axis is -3; it may be -2 to 1");
	p.attrs[0].kind = KILN_ATTR_REAL;
	refused(&p, "softmax: axis is not an integer");
	p.attr_count = 0;
	set_scale(&p, INFINITY);
	refused(&p, "softmax: scale is inf; it must be finite");
	p.attrs[0].f = 1e300;
	refused(&p, "softmax: scale is 1e+300; f32 is computed in f32, where it must be finite");
	p.attrs[0].kind = KILN_ATTR_STRING;
	refused(&p, "softmax: scale is not a number");
	p.attr_count = 0;
	add_attr(&p, "dim", KILN_ATTR_INT);
	refused(&p, "softmax: there is no attribute \"dim\"; those it takes: axis, scale");
	p.attr_count = 0;
	set_axis(&p, 0);
	set_axis(&p, 0);
	refused(&p, "softmax: axis is given twice");
	p.attr_count = 0;
	set_choice(&p, "rows 7x1 r1");
	refused(&p, "softmax: there is no candidate \"rows 7x1 r1\" for rows of 4 elements on sm_90");
}

/* ---- What is inferred, and what needs no kernel ---- */

static void outputs_are_inferred(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F16, 3, SHAPE(2, 3, 4));
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	p.tensors[0].stride[1] = 0;
	p.tensor_count = 1;
	assert_int_equal(plan_infer(&p, error), KILN_OK);
	assert_int_equal(p.tensor_count, 2);
	assert_int_equal(p.tensors[1].dtype, KILN_F16);
	assert_int_equal(p.tensors[1].shape[2], 4);
	assert_int_equal(p.tensors[1].stride[0], 12);
	assert_int_equal(p.tensors[1].stride[1], 4);
	p = make_alike("softmax_backward", KILN_F32, 2, SHAPE(2, 3));
	p.tensor_count = 2;
	assert_int_equal(plan_infer(&p, error), KILN_OK);
	assert_int_equal(p.tensors[2].shape[1], 3);
	p.tensor_count = 1;
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	assert_string_equal(error, "softmax_backward: dy is missing");
}

static void no_elements_no_launch(void **state)
{
	const struct kernel_problem empty[] = {make_alike("softmax", KILN_F32, 2, SHAPE(0, 4)),
										   make_alike("log_softmax", KILN_F64, 2, SHAPE(4, 0)),
										   make_alike("softmax_backward", KILN_F16, 1, SHAPE(0))};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct kernel_plan plan = plan_on("sm_90", &empty[i]);
		assert_int_equal(plan.kind, KERNEL_NOTHING);
		assert_int_equal(plan.bytes_moved, 0);
	}
}

/* ---- Which kernel ---- */

static void row_counts_are_not_compiled_in(void **state)
{
	struct kernel_problem few = make_alike("softmax", KILN_F16, 2, SHAPE(3, 1024));
	struct kernel_problem many = make_alike("softmax", KILN_F16, 3, SHAPE(50, 40, 1024));
	struct kernel_plan a = plan_on("sm_90", &few), b = plan_on("sm_90", &many);

	(void)state;
	assert_string_equal(a.instantiation, b.instantiation);
	assert_string_equal(a.source, "ops/softmax.cuh");
	assert_true(b.grid[0] > a.grid[0]);
	assert_int_equal(b.args[5].value, 2000);
	assert_int_equal(b.bytes_moved, 2000 * 1024 * 2 * 2);
	set_scale(&few, -0.25);
	assert_string_equal(plan_on("sm_90", &few).instantiation, a.instantiation);
}

static void addresses_and_extents(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F16, 2, SHAPE(5, 1024));
	struct kernel_plan plan;

	(void)state;
	assert_int_equal(plan_on("sm_90", &p).extents[0].alignment, 16);
	p.tensors[1].alignment = 2;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.extents[0].alignment, 2);
	assert_int_equal(plan.extents[1].alignment, 2);
	/* Rows that begin anywhere are covered by aligned vectors, if both operands begin alike. */
	p = make_alike("softmax", KILN_F16, 2, SHAPE(5, 1023));
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "skewed");
	assert_int_equal(plan.extents[0].alignment, 16);
	assert_int_equal(plan.extents[0].bytes, 5 * 1023 * 2);
	assert_true(plan.extents[1].written);
	assert_false(plan.extents[0].written);
	p.tensors[0].stride[0] = 1024;
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "rows");
	assert_int_equal(plan.extents[0].alignment, 2);
	assert_int_equal(plan.extents[0].bytes, (4 * 1024 + 1023) * 2);
	/* A row for all: it is read once, but written as often as it is asked for. */
	p = make_alike("softmax", KILN_F32, 2, SHAPE(5, 64));
	p.tensors[0].stride[0] = 0;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.extents[0].bytes, 64 * 4);
	assert_int_equal(plan.bytes_moved, 6 * 64 * 4);
}

static void long_rows(void **state)
{
	struct kernel_problem odd = make_alike("softmax", KILN_BF16, 2, SHAPE(200, 100277));
	struct kernel_problem p = make_alike("softmax", KILN_F32, 2, SHAPE(5, 131072));

	(void)state;
	assert_true(strncmp(plan_on("sm_90", &p).variant, "cluster", 7) == 0);
	assert_non_null(strstr(plan_on("sm_90", &p).instantiation, "softmax_cluster<"));
	assert_string_equal(plan_on("sm_80", &p).variant, "stream");
	assert_string_equal(plan_on("cpu", &p).variant, "stream");
	assert_string_equal(plan_on("cpu", &p).source, "ops/softmax_stream.cuh");
	p = make_alike("softmax_backward", KILN_F16, 1, SHAPE(INT64_C(5) << 30));
	assert_string_equal(plan_on("sm_90", &p).variant, "stream");
	assert_string_equal(plan_on("sm_90", &p).source, "ops/softmax_backward_stream.cuh");
	/* A vector of each thread stays in registers. */
	assert_string_equal(plan_on("sm_90", &odd).choice, "cluster2 896x7/6");
}

/* Shared memory holds rows with gaps between them, and pairs of halves. */
static void staged_rows(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F16, 2, SHAPE(1000, 277));
	struct kernel_plan plan;

	(void)state;
	p.tensors[0].stride[0] = 278;
	set_choice(&p, "gapped 32x9 r8");
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.source, "ops/softmax_staged.cuh");
	assert_string_equal(plan.instantiation,
						"softmax_gapped<RowShape<f16, 277, 1, 9, 0, 32, 8, 1, false>, false, "
						"List<>, List<278>, u32>");
	assert_int_equal(plan.shared_bytes, 8 * (277 * 2 + 576));
	/* Odd rows of halves by pairs, which begin in the middle of one. */
	p = make_alike("softmax", KILN_F16, 2, SHAPE(1000, 127));
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.source, "ops/softmax_pairs.cuh");
	assert_string_equal(plan.instantiation,
						"softmax_pairs<RowShape<f16, 127, 2, 8, 0, 8, 16, 1, true>, false>");
	assert_int_equal(plan.shared_bytes, 16 * 127 * 2);
	p = make_alike("log_softmax", KILN_F16, 2, SHAPE(1000, 127));
	assert_string_equal(plan_on("sm_90", &p).variant, "pairs");
	/* More threads a row, if those of fewer would want the same banks. */
	p = make_alike("softmax", KILN_F16, 2, SHAPE(1000, 97));
	assert_string_equal(plan_on("sm_90", &p).choice, "pairs 8x7 r16");
}

static void small_grids_loop(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F32, 2, SHAPE(4096, 512));
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_plan plan;

	(void)state;
	assert_non_null(strstr(plan_with(&limits, &p).instantiation, ">, false, false, 1, 1,"));
	limits.grid_x = 7;
	plan = plan_with(&limits, &p);
	assert_int_equal(plan.grid[0], 7);
	assert_non_null(strstr(plan.instantiation, ">, false, true, 1, 1,"));
	set_axis(&p, 0);
	plan = plan_with(&limits, &p);
	assert_int_equal(plan.grid[0], 7);
	assert_non_null(strstr(plan.instantiation, ">, false, true, 512, 512, 1, 1,"));
}

/* ---- Arguments ---- */

static double scalar(const struct kernel_plan *plan, int arg)
{
	double real;
	float single;

	assert_int_equal(plan->args[arg].kind, KERNEL_ARG_SCALAR);
	if (plan->args[arg].bytes == 8) {
		memcpy(&real, &plan->args[arg].value, sizeof(real));
		return real;
	}
	memcpy(&single, &plan->args[arg].value, sizeof(single));
	return single;
}

/* The factor before the differences is a power of two and at most 1; the rest comes after.  None of
 * them is 0. */
static void scales(void **state)
{
	static const struct {
		double scale, before, after;
	} cases[] = {{1, 1, 1},
				 {0.3, 0.25, 1.2},
				 {-0.5, -0.5, 1},
				 {-3, -1, 3},
				 {0, 0x1p-537, 0x1p-537},
				 {1e30, 1, 1e30},
				 {0x1p-99, 0x1p-99, 1},
				 {0x1p-120, 0x1p-100, 0x1p-20}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kernel_problem p = make_alike("softmax", KILN_F64, 2, SHAPE(3, 64));
		struct kernel_plan plan;
		set_scale(&p, cases[i].scale);
		plan = plan_on("sm_90", &p);
		assert_int_equal(plan.arg_count, 6);
		assert_true(scalar(&plan, 2) == cases[i].before);
		assert_true(scalar(&plan, 4) == cases[i].after);
		assert_true(fabs(scalar(&plan, 3) / cases[i].after / 1.4426950408889634 - 1) < 1e-15);
		p.tensors[0].dtype = p.tensors[1].dtype = KILN_F16;
		plan = plan_on("sm_90", &p);
		assert_int_equal(plan.args[2].bytes, 4);
		assert_true(scalar(&plan, 3) ==
					(float)((cases[i].scale != 0 ? cases[i].after : 0x1p-74) * 1.4426950408889634));
	}
}

static void backward_has_one_factor(void **state)
{
	struct kernel_problem p = make_alike("log_softmax_backward", KILN_BF16, 2, SHAPE(3, 64));
	struct kernel_plan plan;

	(void)state;
	add_attr(&p, "scale", KILN_ATTR_INT)->i = -7;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.arg_count, 5);
	assert_int_equal(plan.args[2].operand, 2);
	assert_true(scalar(&plan, 3) == -7);
	assert_int_equal(plan.args[4].value, 3);
	assert_true(plan.extents[2].written);
	assert_string_equal(plan.source, "ops/softmax_backward.cuh");
}

/* ---- Candidates ---- */

static void check_choices(const char *target, const struct kernel_problem *problem)
{
	static char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX];
	struct kernel_limits limits = limits_of(target);
	char error[KERNEL_ERROR_MAX] = "";
	int count = plan_choices(problem, &limits, names, error);
	bool clusters = strcmp(target, "sm_90") == 0;

	assert_true(count > 1);
	assert_string_equal(names[0], plan_with(&limits, problem).choice);
	for (int i = 0; i < count; i++) {
		struct kernel_problem chosen = *problem;
		struct kernel_plan plan;
		for (int k = 0; k < i; k++)
			assert_string_not_equal(names[i], names[k]);
		set_choice(&chosen, names[i]);
		plan = plan_with(&limits, &chosen);
		assert_string_equal(plan.choice, names[i]);
		assert_true(plan.block[0] % 32 == 0 && plan.block[0] <= limits.max_threads);
		/* Threads meet in some more, which the kernel has of its own. */
		assert_true(plan.shared_bytes == 0 || strncmp(names[i], "panel", 5) == 0 ||
					strncmp(names[i], "ring", 4) == 0 ||
					plan.shared_bytes + 3072 <= limits.shared_optin);
		assert_true(clusters || !strstr(names[i], "cluster"));
	}
}

static void candidates(void **state)
{
	static const kiln_dtype dtypes[] = {KILN_F16, KILN_BF16, KILN_F32, KILN_F64};
	static const int64_t columns[] = {1, 5, 33, 64, 1000, 1023, 8192, 40000, 131072, 1000000};
	static const char *const targets[] = {"cpu", "sm_75", "sm_80", "sm_90"};

	(void)state;
	for (int t = 0; t < 4; t++) {
		for (int d = 0; d < 4; d++) {
			for (int c = 0; c < 10; c++) {
				struct kernel_problem p =
					make_alike("softmax", dtypes[d], 2, SHAPE(70, columns[c]));
				struct kernel_problem q =
					make_alike("log_softmax_backward", dtypes[d], 3, SHAPE(9, columns[c], 12));
				check_choices(targets[t], &p);
				set_axis(&q, 1);
				check_choices(targets[t], &q);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operands_are_checked),
		cmocka_unit_test(attributes_are_checked),
		cmocka_unit_test(outputs_are_inferred),
		cmocka_unit_test(no_elements_no_launch),
		cmocka_unit_test(row_counts_are_not_compiled_in),
		cmocka_unit_test(addresses_and_extents),
		cmocka_unit_test(long_rows),
		cmocka_unit_test(staged_rows),
		cmocka_unit_test(small_grids_loop),
		cmocka_unit_test(scales),
		cmocka_unit_test(backward_has_one_factor),
		cmocka_unit_test(candidates),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
