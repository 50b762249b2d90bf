/*
 * test_plan_masked: what the planner refuses of masked_softmax and its backward and how it says so,
 * what it makes of each kind of mask, and its candidates.  Other tests run the kernels.
 */
#include "plan_problems.h"

#include <math.h>

static void set_tensor(struct kernel_tensor *tensor, kiln_dtype dtype, int rank,
					   const int64_t *shape)
{
	*tensor = (struct kernel_tensor){.dtype = dtype, .rank = rank, .alignment = 16};
	for (int k = 0; k < rank; k++)
		tensor->shape[k] = shape[k];
	plan_contiguous(tensor);
}

static void add_word(struct kernel_problem *p, const char *name, const char *word)
{
	struct kernel_attr *attr = add_attr(p, name, KILN_ATTR_STRING);

	set_text(attr->s, sizeof(attr->s), word);
}

/* x of 2x3x5x40, a mask, y like x; backward: y, dy, a mask, dx. */
static const int64_t sizes[] = {2, 3, 5, 40};

static struct kernel_problem masked(bool back, const char *kind, kiln_dtype dtype)
{
	struct kernel_problem p = {.tensor_count = back ? 4 : 3};

	set_text(p.op, sizeof(p.op), back ? "masked_softmax_backward" : "masked_softmax");
	for (int i = 0; i < p.tensor_count; i++)
		set_tensor(&p.tensors[i], dtype, 4, sizes);
	p.tensors[1 + back] = (struct kernel_tensor){.dtype = KILN_DTYPE_NONE};
	add_word(&p, "kind", kind);
	return p;
}

/* The same with a mask. */
static struct kernel_problem with(bool back, const char *kind, kiln_dtype dtype,
								  kiln_dtype mask_dtype, int rank, const int64_t *shape)
{
	struct kernel_problem p = masked(back, kind, dtype);

	set_tensor(&p.tensors[1 + back], mask_dtype, rank, shape);
	return p;
}

static struct kernel_problem flags(void)
{
	return with(false, "bool", KILN_F32, KILN_BOOL, 4, SHAPE(2, 1, 1, 40));
}

/* ---- Refusals ---- */

static void kinds(void **state)
{
	struct kernel_problem p = flags();

	(void)state;
	p.attr_count = 0;
	refused(&p, "masked_softmax: kind is missing; it may be one of: bool, lengths, causal, "
				"additive");
	p = flags();
	set_text(p.attrs[0].s, sizeof(p.attrs[0].s), "padding");
	refused(&p, "masked_softmax: kind is \"padding\"; it may be one of: bool, lengths, causal, "
				"additive");
	p.attrs[0].kind = KILN_ATTR_INT;
	refused(&p, "masked_softmax: kind is not a text; it may be one of: bool, lengths, causal, "
				"additive");
	p = flags();
	add_word(&p, "mask", "bool");
	refused(&p, "masked_softmax: there is no attribute \"mask\"; those it takes: kind, keep, "
				"empty, scale, diagonal");
}

static void numbers(void **state)
{
	struct kernel_problem p = flags();

	(void)state;
	add_attr(&p, "keep", KILN_ATTR_INT)->i = 2;
	refused(&p, "masked_softmax: keep is 2; it may be 0 to 1");
	p = flags();
	add_attr(&p, "diagonal", KILN_ATTR_INT)->i = 1;
	refused(&p, "masked_softmax: diagonal is given; it is for kind causal, and this is bool");
	p = masked(false, "causal", KILN_F32);
	add_attr(&p, "keep", KILN_ATTR_INT)->i = 0;
	refused(&p, "masked_softmax: keep is given; it is for kind bool, and this is causal");
	p = masked(false, "causal", KILN_F32);
	add_attr(&p, "diagonal", KILN_ATTR_INT)->i = INT64_MIN;
	refused(&p, "masked_softmax: diagonal is -9223372036854775808; it may be -9007199254740992 to "
				"9007199254740992");
	p = flags();
	add_word(&p, "empty", "one");
	refused(&p, "masked_softmax: empty is \"one\"; it may be one of: zero, nan, uniform");
	p = flags();
	add_attr(&p, "scale", KILN_ATTR_REAL)->f = INFINITY;
	refused(&p, "masked_softmax: scale is inf; it must be finite");
	p.attrs[1].f = 1e300;
	refused(&p, "masked_softmax: scale is 1e+300; f32 is computed in f32, where it must be finite");
	p = masked(true, "causal", KILN_F32);
	add_word(&p, "empty", "zero");
	refused(&p, "masked_softmax_backward: there is no attribute \"empty\"; those it takes: kind, "
				"keep, scale, diagonal");
}

static void masks(void **state)
{
	struct kernel_problem p = masked(false, "bool", KILN_F32);

	(void)state;
	refused(&p, "masked_softmax: mask is missing; kind bool needs one");
	p = masked(true, "lengths", KILN_F32);
	refused(&p, "masked_softmax_backward: mask is missing; kind lengths needs one");
	p = masked(false, "additive", KILN_F32);
	refused(&p, "masked_softmax: mask is missing; kind additive needs one");
	p = with(false, "causal", KILN_F32, KILN_BOOL, 1, SHAPE(40));
	refused(&p, "masked_softmax: mask is given; kind causal has none and it must be left out");
	p = with(false, "bool", KILN_F32, KILN_F32, 1, SHAPE(40));
	refused(&p, "masked_softmax: mask is f32; of kind bool it must be bool or u8");
	p = with(false, "lengths", KILN_F32, KILN_I64, 1, SHAPE(5));
	refused(&p, "masked_softmax: mask is i64; of kind lengths it must be i32");
	p = with(true, "additive", KILN_F32, KILN_I32, 1, SHAPE(40));
	refused(&p, "masked_softmax_backward: mask is i32; of kind additive it must be f16, bf16, f32 "
				"or f64");
	p = with(false, "additive", KILN_F32, KILN_F64, 1, SHAPE(40));
	p.tensors[1].alignment = 4;
	refused(&p, "masked_softmax: the address of mask is aligned to 4 bytes; elements of f64 need "
				"8");
}

static void mask_shapes(void **state)
{
	struct kernel_problem p = with(false, "bool", KILN_F32, KILN_BOOL, 3, SHAPE(3, 1, 39));

	(void)state;
	refused(&p, "masked_softmax: dimension 2 of mask has size 39; it must be 1 or that of "
				"dimension 3 of x, 40");
	p = with(true, "bool", KILN_F32, KILN_U8, 2, SHAPE(3, 40));
	refused(&p, "masked_softmax_backward: dimension 0 of mask has size 3; it must be 1 or that of "
				"dimension 2 of y, 5");
	p = with(false, "bool", KILN_F32, KILN_BOOL, 5, SHAPE(1, 2, 3, 5, 40));
	refused(&p, "masked_softmax: mask has rank 5; of kind bool it may have the 4 dimensions of x, "
				"or less");
	p = with(false, "lengths", KILN_F32, KILN_I32, 4, SHAPE(2, 3, 5, 1));
	refused(&p, "masked_softmax: mask has rank 4; of kind lengths it may have the 3 dimensions of "
				"x before its last, or less");
	p = with(false, "lengths", KILN_F32, KILN_I32, 2, SHAPE(5, 40));
	refused(&p, "masked_softmax: dimension 0 of mask has size 5; it must be 1 or that of dimension "
				"1 of x, 3");
	p = with(false, "additive", KILN_F32, KILN_F32, 1, SHAPE(0));
	refused(&p, "masked_softmax: dimension 0 of mask has size 0; it must be 1 or that of dimension "
				"3 of x, 40");
}

static void operands(void **state)
{
	struct kernel_problem p = flags();

	(void)state;
	p.tensors[0].dtype = KILN_I32;
	refused(&p, "masked_softmax: x is i32; it must be f16, bf16, f32 or f64");
	p = flags();
	p.tensors[2].dtype = KILN_F16;
	refused(&p, "masked_softmax: x is f32 and y is f16; they must agree");
	p = flags();
	p.tensors[2].stride[1] = 0;
	refused(&p, "masked_softmax: dimension 1 of y has stride 0; y must be contiguous, which is "
				"stride 200 there");
	p = masked(true, "causal", KILN_F32);
	p.tensors[1].shape[2] = 1;
	refused(&p, "masked_softmax_backward: dimension 2 has size 5 in y and 1 in dy; they must "
				"agree");
	p.tensors[1] = p.tensors[0];
	p.tensors[3].stride[3] = 2;
	refused(&p, "masked_softmax_backward: dimension 3 of dx has stride 2; dx must be contiguous, "
				"which is stride 1 there");
	p = flags();
	p.tensors[0].rank = p.tensors[1].rank = p.tensors[2].rank = 0;
	refused(&p, "masked_softmax: x has rank 0; it needs a dimension to go along");
	p = masked(false, "causal", KILN_F32);
	p.tensors[0].rank = p.tensors[2].rank = 1;
	refused(&p, "masked_softmax: x has rank 1; for kind causal it needs a dimension of queries "
				"before its last");
}

/* ---- What becomes of a mask ---- */

static void expect_mask(const struct kernel_problem *p, const char *mask, uint32_t alignment)
{
	struct kernel_plan plan = plan_on("sm_90", p);
	int index = strstr(p->op, "backward") ? 2 : 1;

	if (!strstr(plan.instantiation, mask))
		fail_msg("%s has no %s", plan.instantiation, mask);
	assert_int_equal(plan.extents[index].alignment, alignment);
	assert_false(plan.extents[index].written);
	assert_true(plan.extents[index + 1].written);
}

static void flags_come_in_together(void **state)
{
	struct kernel_problem p = flags();

	(void)state;
	expect_mask(&p,
				"MaskFlags<f32, 40, MASK_ZERO, false, 4, false>, "
				"MaskPlace<1, List<15>, List<0, 40>>",
				4);
	p.tensors[1].alignment = 1;
	expect_mask(&p, "MaskFlags<f32, 40, MASK_ZERO, false, MASK_BETWEEN, false>", 1);
	p.tensors[1].alignment = 2;
	expect_mask(&p, "MaskFlags<f32, 40, MASK_ZERO, false, 2, false>", 2);
	p = flags();
	p.tensors[1].stride[0] = 41;
	add_attr(&p, "keep", KILN_ATTR_INT)->i = 1;
	expect_mask(&p, "MaskFlags<f32, 40, MASK_ZERO, true, MASK_BETWEEN, false>", 1);
	p.tensors[1].stride[3] = 2;
	add_word(&p, "empty", "nan");
	expect_mask(&p, "MaskFlags<f32, 40, MASK_NAN, true, MASK_APART, false>, MaskPlace<2, ", 1);
	p = with(true, "bool", KILN_F16, KILN_U8, 2, SHAPE(5, 40));
	expect_mask(&p,
				"MaskFlags<f16, 40, MASK_ZERO, false, 8, false>, "
				"MaskPlace<1, List<5>, List<40, 0>>",
				8);
	/* x begins between two vectors, and so does every place in the mask. */
	p = with(false, "bool", KILN_F16, KILN_U8, 1, SHAPE(40));
	set_tensor(&p.tensors[0], KILN_F16, 2, SHAPE(15, 541));
	set_tensor(&p.tensors[2], KILN_F16, 2, SHAPE(15, 541));
	p.tensors[1].shape[0] = 541;
	expect_mask(&p, "MaskFlags<f16, 541, MASK_ZERO, false, MASK_BETWEEN, true>", 1);
}

static void one_element_for_a_row(void **state)
{
	struct kernel_problem p = with(false, "bool", KILN_F32, KILN_BOOL, 2, SHAPE(5, 1));

	(void)state;
	add_word(&p, "empty", "uniform");
	expect_mask(&p, "MaskWhole<f32, 40, MASK_UNIFORM, false>, MaskPlace<0, List<5>, List<1, 0>>",
				1);
	p = with(false, "bool", KILN_F32, KILN_BOOL, 0, NULL);
	expect_mask(&p, "MaskWhole<f32, 40, MASK_ZERO, false>, MaskPlace<0, List<>, List<0>>", 1);
	p = with(true, "lengths", KILN_BF16, KILN_I32, 3, SHAPE(2, 1, 1));
	expect_mask(&p, "MaskLengths<bf16, 40, MASK_ZERO>, MaskPlace<0, List<15>, List<0, 1>>", 4);
	p = with(false, "additive", KILN_F32, KILN_F16, 3, SHAPE(3, 1, 1));
	expect_mask(&p,
				"MaskAddedRow<f32, 40, MASK_ZERO, f16>, MaskPlace<0, List<5, 3>, "
				"List<0, 1, 0>>",
				2);
	p = with(false, "additive", KILN_F32, KILN_F16, 1, SHAPE(40));
	expect_mask(&p, "MaskAdded<f32, 40, MASK_ZERO, f16, 8, false>", 8);
	p = with(false, "additive", KILN_F16, KILN_F32, 1, SHAPE(40));
	expect_mask(&p, "MaskAdded<f16, 40, MASK_ZERO, f32, 16, false>", 16);
}

/* A causal mask is the query's position, and the diagonal is an argument. */
static void causal_masks_are_numbers(void **state)
{
	struct kernel_problem p = masked(false, "causal", KILN_F32);
	struct kernel_plan plan;

	(void)state;
	add_attr(&p, "diagonal", KILN_ATTR_INT)->i = -3;
	expect_mask(&p, "MaskCausal<f32, 40, MASK_ZERO>, MaskPlace<0, List<5>, List<1, 0>>", 0);
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.arg_count, 7);
	assert_int_equal(plan.args[0].operand, 0);
	assert_int_equal(plan.args[1].kind, KERNEL_ARG_SCALAR);
	assert_int_equal(plan.args[1].bytes, 8);
	assert_int_equal((int64_t)plan.args[1].value, -3);
	assert_int_equal(plan.args[2].operand, 2);
	assert_int_equal(plan.extents[1].bytes, 0);
	assert_int_equal(plan.bytes_moved, 2 * 2 * 3 * 5 * 40 * 4);
}

/* The factor of x is in one argument with an additive mask; elsewhere a power of two goes first. */
static void scales(void **state)
{
	struct kernel_problem p = with(false, "additive", KILN_F32, KILN_F32, 1, SHAPE(40));
	const float additive[] = {6, 1.44269504f, 1}, others[] = {1, 6 * 1.44269504f, 6};
	struct kernel_plan plan;

	(void)state;
	for (int i = 0; i < 2; i++) {
		if (i)
			p = flags();
		add_attr(&p, "scale", KILN_ATTR_INT)->i = 6;
		plan = plan_on("sm_90", &p);
		assert_int_equal(plan.arg_count, 7);
		assert_int_equal(plan.args[1].operand, 1);
		assert_int_equal(plan.args[6].value, 30);
		for (int k = 0; k < 3; k++) {
			uint32_t bits = (uint32_t)plan.args[3 + k].value;
			float value;
			memcpy(&value, &bits, sizeof(value));
			assert_true(fabsf(value - (i ? others : additive)[k]) < 1e-5f);
		}
	}
	assert_int_equal(plan.bytes_moved, 2 * 2 * 3 * 5 * 40 * 4 + 80);
	assert_int_equal(plan.extents[1].bytes, 80);
}

/* y has what an additive mask added, so its backward is softmax's. */
static void additive_backward_is_softmax(void **state)
{
	struct kernel_problem p = masked(true, "additive", KILN_F32), plain = p;
	struct kernel_plan plan = plan_on("sm_90", &p), other;

	(void)state;
	set_text(plain.op, sizeof(plain.op), "softmax_backward");
	plain.attr_count = 0;
	plain.tensor_count = 3;
	plain.tensors[2] = p.tensors[3];
	other = plan_on("sm_90", &plain);
	assert_string_equal(plan.instantiation, other.instantiation);
	assert_string_equal(plan.source, other.source);
	assert_int_equal(plan.arg_count, other.arg_count);
	for (int i = 0; i < plan.arg_count; i++)
		assert_int_equal(plan.args[i].operand, i == 2 ? 3 : other.args[i].operand);
	set_tensor(&p.tensors[2], KILN_F16, 1, SHAPE(40));
	other = plan_on("sm_90", &p);
	assert_string_equal(plan.instantiation, other.instantiation);
	assert_int_equal(other.extents[2].bytes, 0);
}

/* ---- Inference, nothing, candidates ---- */

static void outputs_are_inferred(void **state)
{
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	for (int back = 0; back < 2; back++) {
		struct kernel_problem p = with(back, "lengths", KILN_F16, KILN_I32, 1, SHAPE(5));
		struct kernel_tensor *output = &p.tensors[2 + back];
		p.tensors[0].stride[2] = 44;
		p.tensors[0].stride[1] = 220;
		p.tensors[0].stride[0] = 660;
		output->dtype = KILN_DTYPE_NONE;
		p.tensor_count--;
		assert_int_equal(plan_infer(&p, error), KILN_OK);
		assert_int_equal(p.tensor_count, 3 + back);
		assert_int_equal(output->dtype, KILN_F16);
		assert_int_equal(output->rank, 4);
		assert_int_equal(output->stride[0], 600);
		assert_int_equal(output->stride[3], 1);
		p.tensors[0].dtype = KILN_DTYPE_NONE;
		assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
		assert_string_equal(error, back ? "masked_softmax_backward: y is missing"
										: "masked_softmax: x is missing");
	}
}

static void nothing_to_do(void **state)
{
	struct kernel_problem p = with(false, "bool", KILN_F32, KILN_BOOL, 2, SHAPE(5, 40));
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], error[KERNEL_ERROR_MAX];
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_plan plan;

	(void)state;
	set_tensor(&p.tensors[0], KILN_F32, 3, SHAPE(0, 5, 40));
	set_tensor(&p.tensors[2], KILN_F32, 3, SHAPE(0, 5, 40));
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.kind, KERNEL_NOTHING);
	assert_true(plan.extents[2].written);
	assert_int_equal(plan_choices(&p, &limits, names, error), 1);
}

/* Any candidate is the plan that its name gives again; all have the same mask's rows. */
static void candidates(void **state)
{
	struct kernel_problem p = flags();
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], error[KERNEL_ERROR_MAX];
	struct kernel_limits limits = limits_of("sm_90");
	int count;

	(void)state;
	for (int i = 0; i < 3; i++) {
		p.tensors[i].shape[3] = 8192;
		plan_contiguous(&p.tensors[i]);
	}
	count = plan_choices(&p, &limits, names, error);
	assert_in_range(count, 4, PLAN_MAX_CHOICES);
	for (int i = 0; i < count; i++) {
		struct kernel_problem named = p;
		struct kernel_plan plan, own = plan_on("sm_90", &p);
		add_word(&named, PLAN_CHOICE, names[i]);
		plan = plan_on("sm_90", &named);
		assert_string_equal(plan.choice, names[i]);
		assert_non_null(strstr(plan.instantiation,
							   "MaskFlags<f32, 8192, MASK_ZERO, false, 4, false>, "
							   "MaskPlace<1, List<15>, List<0, 8192>>"));
		assert_int_equal(strcmp(plan.instantiation, own.instantiation) == 0, i == 0);
	}
	add_word(&p, PLAN_CHOICE, "rows 7x7 r7");
	refused(&p, "masked_softmax: there is no candidate \"rows 7x7 r7\" for rows of 8192 elements "
				"on sm_90");
}

/* Skewed rows of halves: parts of warps where a number says what takes part, pairs for flags.
 * Short rows whose masks begin elsewhere do not go by pairs, but for flags. */
static void parts_of_warps(void **state)
{
	static const struct {
		const char *kind;
		kiln_dtype mask;
		const char *choice;
	} cases[] = {{"causal", KILN_DTYPE_NONE, "skewed 16x5 r4"},
				 {"additive", KILN_F16, "skewed 16x5 r4"},
				 {"bool", KILN_BOOL, "pairs 16x9 r8"}};
	static const char *const few_ways[] = {"paired", "staged", "pairs"};
	const int64_t shape[] = {2, 3, 545, 545}, few[] = {2, 3, 77, 77};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int k = 0; k < 2; k++) {
			struct kernel_problem p = masked(false, cases[i].kind, KILN_F16);
			set_tensor(&p.tensors[0], KILN_F16, 4, k ? few : shape);
			set_tensor(&p.tensors[2], KILN_F16, 4, k ? few : shape);
			if (cases[i].mask != KILN_DTYPE_NONE)
				set_tensor(&p.tensors[1], cases[i].mask, 4, k ? few : shape);
			if (k == 0)
				assert_string_equal(plan_on("sm_90", &p).choice, cases[i].choice);
			else
				assert_string_equal(plan_on("sm_90", &p).variant, few_ways[i]);
		}
	}
}

/* Slots only where the mask comes in as wide as x does. */
static void slots_want_wide_masks(void **state)
{
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], error[KERNEL_ERROR_MAX];
	struct kernel_limits limits = limits_of("sm_90");

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct kernel_problem p = flags();
		int count, slots = 0;
		for (int k = 0; k < 3; k++) {
			p.tensors[k].shape[3] = i == 2 ? 16385 : 16384;
			plan_contiguous(&p.tensors[k]);
		}
		p.tensors[1].alignment = i == 1 ? 1 : 16;
		count = plan_choices(&p, &limits, names, error);
		for (int k = 0; k < count; k++)
			slots += strchr(names[k], '/') != NULL;
		assert_int_equal(slots > 0, i == 0);
	}
}

/* The planner counts what a thread keeps of a mask among its registers: with 8 bytes of mask for
 * each element of 2, a thread holds fewer elements than without. */
static void masks_take_registers(void **state)
{
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], error[KERNEL_ERROR_MAX];
	struct kernel_limits limits = limits_of("sm_90");
	unsigned most[2] = {0};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct kernel_problem p = with(false, "additive", KILN_F16, KILN_F64, 1, SHAPE(40));
		int count;
		for (int k = 0; k < 3; k++) {
			p.tensors[k].shape[p.tensors[k].rank - 1] = 1024;
			plan_contiguous(&p.tensors[k]);
		}
		if (i)
			set_tensor(&p.tensors[1], KILN_F64, 0, NULL);
		count = plan_choices(&p, &limits, names, error);
		for (int k = 0; k < count; k++) {
			unsigned size, held;
			if (sscanf(names[k], "rows %ux%u", &size, &held) == 2 && held > most[i])
				most[i] = held;
		}
	}
	assert_in_range(most[0], 1, 2);
	assert_true(most[1] >= 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kinds),
		cmocka_unit_test(numbers),
		cmocka_unit_test(masks),
		cmocka_unit_test(mask_shapes),
		cmocka_unit_test(operands),
		cmocka_unit_test(flags_come_in_together),
		cmocka_unit_test(one_element_for_a_row),
		cmocka_unit_test(causal_masks_are_numbers),
		cmocka_unit_test(scales),
		cmocka_unit_test(additive_backward_is_softmax),
		cmocka_unit_test(outputs_are_inferred),
		cmocka_unit_test(nothing_to_do),
		cmocka_unit_test(candidates),
		cmocka_unit_test(parts_of_warps),
		cmocka_unit_test(slots_want_wide_masks),
		cmocka_unit_test(masks_take_registers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
