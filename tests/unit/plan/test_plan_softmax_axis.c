/*
 * test_plan_softmax_axis: softmax, log_softmax and their backward along another axis than the last:
 * which kernel takes what.
 */
#include "plan_problems.h"

static void other_dimensions(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F16, 3, SHAPE(4, 10, 64));
	struct kernel_plan plan;

	(void)state;
	set_axis(&p, 1);
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "strided");
	assert_string_equal(plan.source, "ops/softmax_strided.cuh");
	assert_int_equal(plan.extents[0].alignment, 16);
	/* From the end; the first, of more rows: how a row is split stays. */
	p.attrs[0].i = -2;
	assert_string_equal(plan_on("sm_90", &p).instantiation, plan.instantiation);
	/* Nothing goes along the stride of a batch of one, whatever it is. */
	p = make_alike("softmax", KILN_F16, 3, SHAPE(1, 10, 64));
	set_axis(&p, 1);
	p.tensors[0].stride[0] = INT64_MAX;
	assert_string_equal(plan_on("sm_90", &p).variant, "strided");
	p = make_alike("log_softmax", KILN_F64, 2, SHAPE(7, 5));
	set_axis(&p, 0);
	assert_int_equal(plan_on("sm_90", &p).extents[1].alignment, 8);
	p = make_alike("softmax", KILN_F32, 2, SHAPE(100000, 32));
	set_axis(&p, 0);
	assert_string_equal(plan_on("sm_90", &p).variant, "strided-twice");
	/* Held by a block, or by a cluster of them. */
	p = make_alike("softmax", KILN_F16, 3, SHAPE(64, 1000, 4096));
	set_axis(&p, 1);
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.choice, "panel-cluster2 8x16x32 k12 b4");
	assert_string_equal(plan.source, "ops/softmax_panel.cuh");
	assert_int_equal(plan.shared_bytes, 8 * 16 * 20 * 16);
	/* A matrix whose rows no vector fits is taken whole. */
	p = make_alike("softmax", KILN_F32, 2, SHAPE(1000, 5));
	set_axis(&p, 0);
	assert_string_equal(plan_on("sm_90", &p).choice, "whole1 5x51");
	p = make_alike("softmax_backward", KILN_F32, 2, SHAPE(5000, 32));
	set_axis(&p, 0);
	assert_string_equal(plan_on("sm_90", &p).variant, "panel-cluster8");
	assert_string_equal(plan_on("sm_80", &p).variant, "strided-twice");
	set_choice(&p, "panel-cluster8 8x16x40 k24 b2");
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "panel-cluster8");
	assert_int_equal(plan.grid[0], 2 * 4);
	assert_non_null(strstr(plan.instantiation, "softmax_backward_panel_cluster<"));
	/* 32 warps of 256 halves would meet in more memory than a kernel may declare. */
	p = make_alike("softmax", KILN_F16, 3, SHAPE(8, 64, 4096));
	set_axis(&p, 1);
	set_choice(&p, "panel 32x32x2");
	refused(&p,
			"softmax: there is no candidate \"panel 32x32x2\" for rows of 64 elements on sm_90");
	/* Columns apart in x alone: y is written along its rows. */
	p = make_alike("softmax", KILN_F32, 2, SHAPE(50, 60));
	p.tensors[0].stride[0] = 1;
	p.tensors[0].stride[1] = 50;
	assert_string_equal(plan_on("sm_90", &p).variant, "rows");
	/* An axis of one element beside one row is like any row. */
	p = make_alike("softmax", KILN_F32, 2, SHAPE(32, 1));
	set_axis(&p, 0);
	assert_string_equal(plan_on("sm_90", &p).variant, "rows");
}

/* Shared memory holds panels of columns, or matrices that lie in one piece. */
static void pieces(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F16, 3, SHAPE(40, 118, 541));
	struct kernel_plan plan;

	(void)state;
	set_axis(&p, 1);
	/* Rows that begin anywhere: three panels of each matrix, whose lanes have two vectors more. */
	set_choice(&p, "panel-skewed 28x8x15 b2");
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.grid[0], 40 * 3);
	assert_int_equal(plan.block[0], 28 * 8);
	assert_int_equal(plan.extents[1].alignment, 16);
	p.attr_count = 1;
	/* x has another distance between columns than y: results are put together of two vectors. */
	p.tensors[0].stride[0] = 118 * 544;
	p.tensors[0].stride[1] = 544;
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.choice, "panel-shifted 28x8x15 b2");
	assert_non_null(strstr(plan.instantiation, ", true, 541, true>, "));
	assert_int_equal(plan.extents[0].alignment, 16);
	p.tensors[0].stride[0] = 118 * 541;
	p.tensors[0].stride[1] = 541;
	set_choice(&p, "whole2 541x1");
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.source, "ops/softmax_whole.cuh");
	assert_string_equal(plan.instantiation,
						"softmax_whole_cluster<WholeShape<f16, 118, 541, 1, 1, 2>, false>");
	assert_int_equal(plan.grid[0], 80);
	assert_int_equal(plan.block[0], 544);
	assert_int_equal(plan.extents[1].alignment, 16);
}

static void rings(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F16, 3, SHAPE(40, 118, 541));
	struct kernel_plan plan;

	(void)state;
	set_axis(&p, 1);
	/* Blocks that stay: two for each matrix, while there are matrices. */
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.choice, "ring2 541x1 t1 s3 b1");
	assert_string_equal(plan.source, "ops/softmax_ring.cuh");
	assert_string_equal(plan.instantiation,
						"softmax_ring_cluster<RingShape<f16, 118, 541, 544, 1, 2, 3, 1>, false>");
	assert_int_equal(plan.grid[0], 80);
	assert_int_equal(plan.block[0], 576);
	assert_int_equal(plan.extents[0].alignment, 16);
	p.tensors[0].shape[0] = p.tensors[1].shape[0] = 1000;
	assert_int_equal(plan_on("sm_90", &p).grid[0], 132);
	assert_string_equal(plan_on("sm_80", &p).choice, "panel-skewed 28x8x15 b2");
	/* Two teams: shorter rows, whose period has fewer vectors. */
	p = make_alike("log_softmax", KILN_BF16, 3, SHAPE(1341, 1370, 59));
	set_axis(&p, 1);
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.choice, "ring4 59x4 t2 s4 b1");
	assert_int_equal(plan.grid[0], 120);
	assert_int_equal(plan.block[0], 2 * 256 + 32);
	p.tensors[0].alignment = 8;
	assert_null(strstr(plan_on("sm_90", &p).choice, "ring"));
	/* Small matrices: the smaller, the more slots; by pairs of halves they are taken whole. */
	p = make_alike("softmax", KILN_F16, 3, SHAPE(6134, 77, 57));
	set_axis(&p, 1);
	assert_string_equal(plan_on("sm_90", &p).choice, "ring1 57x1 t2 s4 b4");
	p = make_alike("softmax", KILN_F16, 3, SHAPE(1733, 196, 47));
	set_axis(&p, 1);
	assert_string_equal(plan_on("sm_90", &p).choice, "ring1 47x4 t4 s8 b1");
	p = make_alike("softmax", KILN_F16, 3, SHAPE(1733, 196, 46));
	set_axis(&p, 1);
	assert_string_equal(plan_on("sm_90", &p).choice, "whole1 23x11");
}

static void few_columns(void **state)
{
	struct kernel_problem p = make_alike("softmax", KILN_F16, 3, SHAPE(64, 49, 4096));

	(void)state;
	set_axis(&p, 1);
	assert_string_equal(plan_on("sm_90", &p).choice, "panel 8x8x7 k4 b4");
	p = make_alike("log_softmax", KILN_BF16, 3, SHAPE(39, 54, 10463));
	set_axis(&p, 1);
	assert_string_equal(plan_on("sm_90", &p).choice, "panel-skewed 32x8x7 b2");
	p = make_alike("softmax", KILN_F16, 3, SHAPE(64, 196, 1024));
	set_axis(&p, 1);
	assert_string_equal(plan_on("sm_90", &p).choice, "panel 8x16x13 k12 b4");
	p = make_alike("softmax", KILN_F16, 3, SHAPE(64, 128, 1024));
	set_axis(&p, 1);
	assert_string_equal(plan_on("sm_90", &p).choice, "panel 8x8x16 k16 b6");
	/* Rows of 240 bytes begin anywhere in a line of the cache. */
	p = make_alike("softmax", KILN_F16, 3, SHAPE(2624, 445, 120));
	set_axis(&p, 1);
	assert_string_equal(plan_on("sm_90", &p).choice, "ring4 15x17 t2 s4 b1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_dimensions),
		cmocka_unit_test(pieces),
		cmocka_unit_test(rings),
		cmocka_unit_test(few_columns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
