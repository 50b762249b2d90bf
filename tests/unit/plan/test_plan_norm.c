/*
 * test_plan_norm: layer_norm and rms_norm: what the planner refuses and how it says so, and what a
 * plan says: arguments and extents.  Other tests run the kernels.
 */
#include "norm_problems.h"

#include <math.h>

/* ---- What is refused ---- */

static void dtypes(void **state)
{
	struct kernel_problem p = layer(KILN_I32, 2, SHAPE(4, 8));

	(void)state;
	refused(&p, "layer_norm: x is i32; it must be f16, bf16, f32 or f64");
	p = layer(KILN_F16, 2, SHAPE(4, 8));
	p.tensors[GAMMA].dtype = KILN_I16;
	refused(&p, "layer_norm: gamma is i16; it must be f16, bf16, f32 or f64");
	p = layer(KILN_F16, 2, SHAPE(4, 8));
	p.tensors[Y].dtype = KILN_BF16;
	refused(&p, "layer_norm: x is f16 and y is bf16; they must agree");
	p = layer(KILN_F16, 2, SHAPE(4, 8));
	p.tensors[RESIDUAL].dtype = KILN_F32;
	refused(&p, "layer_norm: x is f16 and residual is f32; they must agree");
	p = layer(KILN_F16, 2, SHAPE(4, 8));
	p.tensors[SUM].dtype = KILN_F32;
	refused(&p, "layer_norm: x is f16 and sum is f32; they must agree");
	p = layer(KILN_F16, 2, SHAPE(4, 8));
	p.tensors[MEAN].dtype = KILN_F16;
	refused(&p, "layer_norm: mean is f16; for x of f16 it must be f32");
	p = layer(KILN_F64, 2, SHAPE(4, 8));
	p.tensors[RSTD].dtype = KILN_F32;
	refused(&p, "layer_norm: rstd is f32; for x of f64 it must be f64");
}

/* gamma and beta may be any floats, and different ones. */
static void mixed_dtypes(void **state)
{
	const kiln_dtype floats[] = {KILN_F16, KILN_BF16, KILN_F32, KILN_F64};
	const char *const names[] = {"f16", "bf16", "f32", "f64"};
	char expected[64];

	(void)state;
	for (int i = 0; i < 4; i++) {
		for (int j = 0; j < 4; j++) {
			struct kernel_problem p = plain(KILN_BF16, 5, 1024);
			struct kernel_plan plan;
			p.tensors[GAMMA].dtype = floats[i];
			p.tensors[BETA].dtype = floats[j];
			plan = plan_on("sm_90", &p);
			snprintf(expected, sizeof(expected), "NormWith<%s, %s, 16, 0>", names[i], names[j]);
			assert_non_null(strstr(plan.instantiation, expected));
		}
	}
}

static void shapes(void **state)
{
	struct kernel_problem p = layer(KILN_F32, 3, SHAPE(2, 3, 8));

	(void)state;
	p.tensors[GAMMA] = tensor(KILN_F32, 2, SHAPE(3, 8));
	refused(&p, "layer_norm: gamma has rank 2; it must have the normalized dimensions of x, which "
				"are 1");
	p = layer(KILN_F32, 3, SHAPE(2, 3, 8));
	p.tensors[BETA] = tensor(KILN_F32, 1, SHAPE(7));
	refused(&p, "layer_norm: dimension 0 of beta has size 7; it must be that of dimension 2 of x, "
				"8");
	p = layer(KILN_F32, 3, SHAPE(2, 3, 8));
	p.tensors[MEAN] = tensor(KILN_F32, 3, SHAPE(2, 3, 1));
	refused(&p, "layer_norm: mean has rank 3; it must have the other dimensions of x, which are 2");
	p = layer(KILN_F32, 3, SHAPE(2, 3, 8));
	p.tensors[RSTD] = tensor(KILN_F32, 2, SHAPE(2, 4));
	refused(&p, "layer_norm: dimension 1 of rstd has size 4; it must be that of dimension 1 of x, "
				"3");
	p = layer(KILN_F32, 3, SHAPE(2, 3, 8));
	p.tensors[Y] = tensor(KILN_F32, 3, SHAPE(2, 3, 9));
	refused(&p, "layer_norm: dimension 2 has size 8 in x and 9 in y; they must agree");
	p = layer(KILN_F32, 3, SHAPE(2, 3, 8));
	p.tensors[RESIDUAL] = tensor(KILN_F32, 2, SHAPE(6, 8));
	refused(&p, "layer_norm: x has rank 3 and residual rank 2; they must agree");
	p = layer(KILN_F32, 3, SHAPE(2, 3, 8));
	set_axes(&p, 2);
	refused(&p, "layer_norm: gamma has rank 1; it must have the normalized dimensions of x, which "
				"are 2");
	p = layer(KILN_F32, 1, SHAPE(8));
	p.tensors[X].rank = 0;
	refused(&p, "layer_norm: x has rank 0; it needs a dimension to normalize");
}

static void strides_and_alignments(void **state)
{
	const int outputs[] = {GAMMA, BETA, Y, MEAN, RSTD, SUM};
	const char *const names[] = {"gamma", "beta", "y", "mean", "rstd", "sum"};
	char sentence[KERNEL_ERROR_MAX];

	(void)state;
	for (int i = 0; i < 6; i++) {
		struct kernel_problem p = layer(KILN_F32, 2, SHAPE(4, 8));
		struct kernel_tensor *t = &p.tensors[outputs[i]];
		t->stride[t->rank - 1] = 2;
		snprintf(sentence, sizeof(sentence),
				 "layer_norm: dimension %d of %s has stride 2; %s must be contiguous, which is "
				 "stride 1 there",
				 t->rank - 1, names[i], names[i]);
		refused(&p, sentence);
	}
	for (int i = 0; i < 6; i++) {
		struct kernel_problem p = layer(KILN_F32, 2, SHAPE(4, 8));
		p.tensors[outputs[i]].alignment = 2;
		snprintf(sentence, sizeof(sentence),
				 "layer_norm: the address of %s is aligned to 2 bytes; elements of f32 need 4",
				 names[i]);
		refused(&p, sentence);
	}
}

static void attributes(void **state)
{
	struct kernel_problem p = layer(KILN_F32, 2, SHAPE(4, 8));

	(void)state;
	set_axes(&p, 0);
	refused(&p, "layer_norm: axes is 0; it may be 1 to 2");
	set_axes(&p, 3);
	refused(&p, "layer_norm: axes is 3; it may be 1 to 2");
	p.attr_count = 0;
	add_attr(&p, "axes", KILN_ATTR_REAL)->f = 1;
	refused(&p, "layer_norm: axes is not an integer");
	set_eps(&p, -1e-6);
	refused(&p, "layer_norm: eps is -1e-06; it must be 0 or more");
	set_eps(&p, INFINITY);
	refused(&p, "layer_norm: eps is inf; it must be finite");
	set_eps(&p, NAN);
	refused(&p, "layer_norm: eps is nan; it must be finite");
	set_eps(&p, 1e300);
	refused(&p, "layer_norm: eps is 1e+300; f32 is computed in f32, where it must be finite");
	p.attr_count = 0;
	add_attr(&p, "axis", KILN_ATTR_INT)->i = 1;
	refused(&p, "layer_norm: there is no attribute \"axis\"; those it takes: eps, axes");
	set_axes(&p, 1);
	add_attr(&p, "axes", KILN_ATTR_INT)->i = 1;
	refused(&p, "layer_norm: axes is given twice");
	p.attr_count = 0;
	set_choice(&p, "rows 7x7 r7");
	refused(&p,
			"layer_norm: there is no candidate \"rows 7x7 r7\" for rows of 8 elements on sm_90");
}

static void sum_needs_residual(void **state)
{
	struct kernel_problem p = layer(KILN_F32, 2, SHAPE(4, 8)), q = rms(KILN_F32, 4, 8);

	(void)state;
	leave_out(&p, RESIDUAL);
	refused(&p, "layer_norm: there is no residual; without it sum would be x and must be left out");
	leave_out(&q, RESIDUAL);
	refused(&q, "rms_norm: there is no residual; without it sum would be x and must be left out");
}

/* ---- What there is nothing to do for ---- */

static void nothing(void **state)
{
	struct kernel_problem p = layer(KILN_F32, 2, SHAPE(0, 8));
	struct kernel_plan plan = plan_on("sm_90", &p);
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	assert_int_equal(plan.kind, KERNEL_NOTHING);
	assert_string_equal(plan.variant, "nothing");
	assert_int_equal(plan.operand_count, ALL);
	for (int i = 0; i < ALL; i++)
		assert_int_equal(plan.extents[i].bytes, 0);
	p = plain(KILN_F32, 4, 0);
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.kind, KERNEL_NOTHING);
	p = layer(KILN_F32, 2, SHAPE(4, 0));
	refused(&p, "layer_norm: rows of no elements have no mean; leave mean and rstd out");
	p = rms(KILN_F32, 4, 0);
	refused(&p, "rms_norm: rows of no elements have no deviation; leave rstd out");
	/* Sizes beside one of 0 whose product is beyond all strides. */
	p = (struct kernel_problem){.op = "layer_norm", .tensor_count = 2};
	p.tensors[X] = tensor(KILN_F32, 4, SHAPE(0, 33, (INT64_C(1) << 31) + 1, INT64_C(1) << 40));
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	assert_string_equal(error, "layer_norm: x has more elements than 62 bits can count in bytes, "
							   "sizes of 0 counted as 1");
}

static void outputs_are_inferred(void **state)
{
	struct kernel_problem p = {.op = "layer_norm", .tensor_count = 2};
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	p.tensors[X] = tensor(KILN_F16, 2, SHAPE(4, 8));
	p.tensors[X].stride[0] = 16;
	p.tensors[GAMMA] = tensor(KILN_F32, 1, SHAPE(8));
	assert_int_equal(plan_infer(&p, error), KILN_OK);
	assert_int_equal(p.tensor_count, ALL);
	assert_int_equal(p.tensors[Y].dtype, KILN_F16);
	assert_int_equal(p.tensors[Y].rank, 2);
	assert_int_equal(p.tensors[Y].stride[0], 8);
	for (int i = 0; i < ALL; i++)
		if (i != X && i != GAMMA && i != Y)
			assert_int_equal(p.tensors[i].dtype, KILN_DTYPE_NONE);
	p = (struct kernel_problem){.op = "rms_norm", .tensor_count = 1};
	p.tensors[0].dtype = KILN_DTYPE_NONE;
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	assert_string_equal(error, "rms_norm: x is missing");
	p = (struct kernel_problem){.op = "rms_norm", .tensor_count = 2};
	p.tensors[0] = tensor(KILN_F32, 2, SHAPE(4, 8));
	p.tensors[1] = tensor(KILN_F32, 1, SHAPE(9));
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	assert_string_equal(error, "rms_norm: dimension 0 of gamma has size 9; it must be that of "
							   "dimension 1 of x, 8");
}

/* ---- What a plan says ---- */

static void extents(void **state)
{
	struct kernel_problem p = layer(KILN_F16, 2, SHAPE(6, 1024));
	struct kernel_plan plan;
	const uint64_t bytes[ALL] = {12288, 4096, 2048, 12288, 12288, 24, 24, 12288};
	const uint32_t alignment[ALL] = {16, 8, 8, 16, 16, 4, 4, 16};
	const bool written[ALL] = {false, false, false, false, true, true, true, true};

	(void)state;
	p.tensors[GAMMA].dtype = KILN_F32;
	p.tensors[GAMMA].alignment = 8;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.kind, KERNEL_LAUNCH);
	assert_int_equal(plan.operand_count, ALL);
	for (int i = 0; i < ALL; i++) {
		assert_int_equal(plan.extents[i].bytes, bytes[i]);
		assert_int_equal(plan.extents[i].alignment, alignment[i]);
		assert_int_equal(plan.extents[i].written, written[i]);
	}
	assert_int_equal(plan.bytes_moved, 4 * 12288 + 4096 + 2048 + 48);
	/* An operand that lies less well costs all that move alike. */
	p.tensors[RESIDUAL].alignment = 4;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.extents[X].alignment, 4);
	assert_int_equal(plan.extents[Y].alignment, 4);
	assert_non_null(strstr(plan.instantiation, "<f16, 1024, 2, "));
}

static void left_out(void **state)
{
	struct kernel_problem p = plain(KILN_F32, 6, 256);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	for (int i = 0; i < ALL; i++)
		assert_int_equal(plan.extents[i].alignment != 0,
						 i == X || i == GAMMA || i == BETA || i == Y);
	p = rms(KILN_F32, 6, 256);
	leave_out(&p, GAMMA);
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.operand_count, 7);
	assert_int_equal(plan.extents[GAMMA].alignment, 0);
	assert_true(plan.extents[5].written);
	assert_true(plan.extents[6].written);
	assert_non_null(strstr(plan.instantiation, "NormWith<void, f32, 16, NORM_RMS | NORM_RESIDUAL "
											   "| NORM_RSTD | NORM_SUM>"));
}

/* x, gamma, beta, residual, y, mean, rstd, sum, eps, rows: in the order of the kernels. */
static void arguments(void **state)
{
	struct kernel_problem p = layer(KILN_F32, 2, SHAPE(6, 256)), q = rms(KILN_F64, 6, 256);
	const int places[] = {0, 1, 2, 3, 4, -1, 5, 6};
	float single = 0.25f;
	double real = 0.25;
	uint32_t narrow;
	uint64_t bits;
	struct kernel_plan plan;

	(void)state;
	set_eps(&p, 0.25);
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.arg_count, 10);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(plan.args[i].kind, KERNEL_ARG_POINTER);
		assert_int_equal(plan.args[i].operand, i);
	}
	memcpy(&narrow, &single, sizeof(narrow));
	assert_int_equal(plan.args[8].bytes, 4);
	assert_int_equal(plan.args[8].value, narrow);
	assert_int_equal(plan.args[9].bytes, 8);
	assert_int_equal(plan.args[9].value, 6);
	set_eps(&q, 0.25);
	leave_out(&q, GAMMA);
	plan = plan_on("sm_90", &q);
	assert_int_equal(plan.arg_count, 10);
	for (int i = 0; i < 8; i++) {
		bool there = places[i] >= 0 && i != GAMMA;
		assert_int_equal(plan.args[i].kind, there ? KERNEL_ARG_POINTER : KERNEL_ARG_SCALAR);
		assert_int_equal(there ? plan.args[i].operand : (int)plan.args[i].value,
						 there ? places[i] : 0);
	}
	memcpy(&bits, &real, sizeof(bits));
	assert_int_equal(plan.args[8].bytes, 8);
	assert_int_equal(plan.args[8].value, bits);
}

/* eps and the number of rows are no part of the kernel. */
static void one_kernel_for_all_rows(void **state)
{
	struct kernel_problem p = plain(KILN_F16, 8, 4096), q = plain(KILN_F16, 70000, 4096);
	struct kernel_plan a, b;

	(void)state;
	set_eps(&q, 1e-3);
	a = plan_on("sm_90", &p);
	b = plan_on("sm_90", &q);
	assert_string_equal(a.instantiation, b.instantiation);
	assert_true(b.grid[0] > 8 * a.grid[0]);
}

static void places(void **state)
{
	struct kernel_problem p = plain(KILN_F32, 6, 256);
	struct kernel_plan plan;

	(void)state;
	p.tensors[X].stride[1] = 3;
	p.tensors[X].stride[0] = 1000;
	plan = plan_on("sm_90", &p);
	assert_non_null(strstr(plan.instantiation, "NormPlace<List<>, List<1000>, List<>, List<>, "
											   "List<3>, List<>, u32>"));
	assert_non_null(strstr(plan.instantiation, "<f32, 256, 1, "));
	/* Two dimensions of columns that do not merge, and three of rows of which two do. */
	p = layer(KILN_F32, 5, SHAPE(2, 3, 4, 5, 6));
	p.tensors[GAMMA] = p.tensors[BETA] = tensor(KILN_F32, 2, SHAPE(5, 6));
	p.tensors[MEAN] = p.tensors[RSTD] = tensor(KILN_F32, 3, SHAPE(2, 3, 4));
	memcpy(p.tensors[X].stride, SHAPE(2000, 400, 100, 10, 1), 5 * sizeof(int64_t));
	set_axes(&p, 2);
	plan = plan_on("sm_90", &p);
	assert_non_null(strstr(plan.instantiation,
						   "NormPlace<List<12>, List<100, 2000>, List<30, 360>, List<6>, "
						   "List<1, 10>, List<1, 6>, u32>"));
	/* 2^31 elements: offsets of 64 bits. */
	p = plain(KILN_F16, INT64_C(1) << 21, 1024);
	plan = plan_on("sm_90", &p);
	assert_non_null(strstr(plan.instantiation, "List<1>, List<>, i64>"));
}

/* More vectors a thread than 32 bits count, where each of a block's threads has its share. */
static void rows_beyond_all_blocks(void **state)
{
	const int64_t columns[] = {INT64_C(1) << 60};
	struct kernel_problem p = {.op = "rms_norm_quantize", .tensor_count = 6};

	(void)state;
	p.tensors[0] = p.tensors[1] = p.tensors[3] = tensor(KILN_F16, 1, columns);
	p.tensors[5] = tensor(KILN_I8, 1, columns);
	set_text(add_attr(&p, "to", KILN_ATTR_STRING)->s, sizeof(p.attrs[0].s), "i8");
	for (int residual = 1; residual >= 0; residual--) {
		assert_string_equal(plan_on("sm_75", &p).variant, "stream");
		leave_out(&p, 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dtypes),     cmocka_unit_test(mixed_dtypes),
		cmocka_unit_test(shapes),     cmocka_unit_test(strides_and_alignments),
		cmocka_unit_test(attributes), cmocka_unit_test(sum_needs_residual),
		cmocka_unit_test(nothing),    cmocka_unit_test(outputs_are_inferred),
		cmocka_unit_test(extents),    cmocka_unit_test(left_out),
		cmocka_unit_test(arguments),  cmocka_unit_test(one_kernel_for_all_rows),
		cmocka_unit_test(places),     cmocka_unit_test(rows_beyond_all_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
