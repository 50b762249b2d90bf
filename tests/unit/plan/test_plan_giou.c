/*
 * test_plan_giou: what the planner refuses of giou, giou_loss and their backward and how it says
 * so, what it makes of boxes that lie any way, and its candidates.
 */
#include "plan_problems.h"

static void set_tensor(struct kernel_tensor *tensor, kiln_dtype dtype, int rank,
					   const int64_t *shape)
{
	*tensor = (struct kernel_tensor){.dtype = dtype, .rank = rank, .alignment = 16};
	for (int k = 0; k < rank; k++)
		tensor->shape[k] = shape[k];
	plan_contiguous(tensor);
}

enum op { GIOU, GIOU_BACKWARD, LOSS, LOSS_BACKWARD };

/* 5 samples of 8 boxes. */
static struct kernel_problem boxes(enum op op, kiln_dtype pred, kiln_dtype target)
{
	static const char *const names[] = {"giou", "giou_backward", "giou_loss", "giou_loss_backward"};
	struct kernel_problem p = {.tensor_count = (int[]){3, 4, 5, 6}[op]};
	kiln_dtype computed = pred == KILN_F64 ? KILN_F64 : KILN_F32;

	set_text(p.op, sizeof(p.op), names[op]);
	set_tensor(&p.tensors[0], pred, 3, SHAPE(5, 8, 4));
	set_tensor(&p.tensors[1], target, 3, SHAPE(5, 8, 4));
	if (op == GIOU || op == GIOU_BACKWARD) {
		set_tensor(&p.tensors[2], pred, 2, SHAPE(5, 8));
	} else if (op == LOSS) {
		set_tensor(&p.tensors[3], computed, 0, NULL);
	} else {
		set_tensor(&p.tensors[3], KILN_I64, 0, NULL);
		set_tensor(&p.tensors[4], computed, 1, SHAPE(1));
	}
	if (op == GIOU_BACKWARD || op == LOSS_BACKWARD)
		set_tensor(&p.tensors[op == LOSS_BACKWARD ? 5 : 3], pred, 3, SHAPE(5, 8, 4));
	return p;
}

/* The same with 20 targets in one row. */
static struct kernel_problem ragged(enum op op)
{
	struct kernel_problem p = boxes(op, KILN_F32, KILN_U8);

	set_tensor(&p.tensors[1], KILN_U8, 2, SHAPE(20, 4));
	set_tensor(&p.tensors[2], KILN_I32, 1, SHAPE(6));
	return p;
}

/* ---- Refusals ---- */

static void attributes(void **state)
{
	struct kernel_problem p = boxes(GIOU, KILN_F32, KILN_F32);

	(void)state;
	add_attr(&p, "clamp", KILN_ATTR_INT)->i = 2;
	refused(&p, "giou: clamp is 2; it may be 0 to 1");
	p.attrs[0].kind = KILN_ATTR_STRING;
	refused(&p, "giou: clamp is not an integer");
	set_text(p.attrs[0].name, sizeof(p.attrs[0].name), "eps");
	refused(&p, "giou: there is no attribute \"eps\"; those it takes: clamp");
}

static void dtypes(void **state)
{
	struct kernel_problem p = boxes(GIOU, KILN_I32, KILN_F32);

	(void)state;
	refused(&p, "giou: pred is i32; it must be f16, bf16, f32 or f64");
	p = boxes(LOSS, KILN_F32, KILN_I32);
	refused(&p, "giou_loss: target is i32; it must be u8, f16, bf16, f32 or f64");
	p = boxes(GIOU, KILN_F16, KILN_U8);
	p.tensors[2].dtype = KILN_F32;
	refused(&p, "giou: y is f32; it must be f16, as pred is");
	p = boxes(LOSS, KILN_F16, KILN_U8);
	p.tensors[3].dtype = KILN_F16;
	refused(&p, "giou_loss: loss is f16; it must be f32, which is computed in");
	p = boxes(LOSS, KILN_F64, KILN_U8);
	p.tensors[3].dtype = KILN_F32;
	refused(&p, "giou_loss: loss is f32; it must be f64, as pred is");
	p = boxes(LOSS, KILN_F32, KILN_U8);
	set_tensor(&p.tensors[4], KILN_I32, 0, NULL);
	refused(&p, "giou_loss: count is i32; it must be i64");
	p = boxes(LOSS_BACKWARD, KILN_F32, KILN_U8);
	p.tensors[4].dtype = KILN_F16;
	refused(&p, "giou_loss_backward: dloss is f16; it must be f32, which is computed in");
	p = boxes(LOSS_BACKWARD, KILN_F32, KILN_U8);
	p.tensors[5].dtype = KILN_F16;
	refused(&p, "giou_loss_backward: pred is f32 and dpred is f16; they must agree");
	p = boxes(GIOU_BACKWARD, KILN_F32, KILN_U8);
	p.tensors[2].dtype = KILN_F64;
	refused(&p, "giou_backward: dy is f64; it must be f32, as pred is");
	p = boxes(GIOU, KILN_F32, KILN_F16);
	p.tensors[1].alignment = 1;
	refused(&p, "giou: the address of target is aligned to 1 bytes; elements of f16 need 2");
}

static void shapes(void **state)
{
	struct kernel_problem p = boxes(GIOU, KILN_F32, KILN_F32);

	(void)state;
	p.tensors[0].shape[2] = 5;
	refused(&p, "giou: dimension 2 of pred has size 5; it must be 4, for x1, y1, x2, y2");
	p.tensors[0].rank = 0;
	refused(&p, "giou: pred has rank 0; it needs a last dimension of 4, for x1, y1, x2, y2");
	p = boxes(LOSS, KILN_F32, KILN_F32);
	p.tensors[1].shape[1] = 7;
	refused(&p, "giou_loss: dimension 1 has size 8 in pred and 7 in target; they must agree");
	set_tensor(&p.tensors[1], KILN_F32, 2, SHAPE(40, 4));
	refused(&p, "giou_loss: target has rank 2; with pred of rank 3 it must have rank 3");
	p = boxes(GIOU, KILN_F32, KILN_F32);
	p.tensors[2].rank = 1;
	refused(&p, "giou: y has rank 1; with pred of rank 3 it must have rank 2");
	p = boxes(GIOU, KILN_F32, KILN_F32);
	p.tensors[2].stride[0] = 9;
	refused(&p, "giou: dimension 0 of y has stride 9; y must be contiguous, which is stride 8 "
				"there");
	p = boxes(LOSS, KILN_F32, KILN_F32);
	set_tensor(&p.tensors[3], KILN_F32, 2, SHAPE(1, 2));
	refused(&p, "giou_loss: dimension 1 of loss has size 2; loss is one number");
	p = boxes(LOSS_BACKWARD, KILN_F32, KILN_F32);
	p.tensors[5].stride[0] = 64;
	refused(&p, "giou_loss_backward: dimension 0 of dpred has stride 64; dpred must be contiguous, "
				"which is stride 32 there");
	p = boxes(LOSS_BACKWARD, KILN_F32, KILN_F32);
	p.tensors[3] = (struct kernel_tensor){.dtype = KILN_DTYPE_NONE};
	refused(&p, "giou_loss_backward: count is missing; its operands are: pred, target, offsets?, "
				"count, dloss, dpred (those with ? may be left out)");
}

static void offsets(void **state)
{
	struct kernel_problem p = ragged(LOSS);

	(void)state;
	p.tensors[2].dtype = KILN_I64;
	refused(&p, "giou_loss: offsets is i64; it must be i32");
	p = ragged(LOSS_BACKWARD);
	set_tensor(&p.tensors[2], KILN_I32, 1, SHAPE(5));
	refused(&p, "giou_loss_backward: offsets has 5 elements in 1 dimensions; it must have one "
				"dimension of 6, one more than pred has samples");
	p = ragged(LOSS);
	set_tensor(&p.tensors[1], KILN_U8, 3, SHAPE(5, 4, 4));
	refused(&p, "giou_loss: pred has rank 3 and target rank 3; with offsets they must have ranks 3 "
				"(samples, predictions, 4) and 2 (targets of all samples, 4)");
	p = ragged(LOSS);
	p.tensors[2].stride[0] = 2;
	refused(&p, "giou_loss: dimension 0 of offsets has stride 2; offsets must be contiguous, which "
				"is stride 1 there");
}

static void outputs(void **state)
{
	static const int last[] = {2, 3, 3, 5};
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	for (int op = GIOU; op <= LOSS_BACKWARD; op++) {
		struct kernel_problem p = boxes((enum op)op, KILN_F16, KILN_U8), whole = p;
		p.tensor_count = last[op];
		if (plan_infer(&p, error))
			fail_msg("%s", error);
		assert_int_equal(p.tensors[last[op]].dtype, op == LOSS ? KILN_F32 : KILN_F16);
		assert_int_equal(p.tensors[last[op]].rank, whole.tensors[last[op]].rank);
	}
}

/* ---- What becomes of a request ---- */

static void has(const struct kernel_plan *plan, const char *part)
{
	if (!strstr(plan->instantiation, part))
		fail_msg("%s is not in %s", part, plan->instantiation);
}

/* The size that the figures are of. */
static void one_launch(void **state)
{
	struct kernel_problem p = boxes(LOSS, KILN_F32, KILN_F32);
	struct kernel_plan plan;

	(void)state;
	for (int i = 0; i < 2; i++)
		set_tensor(&p.tensors[i], KILN_F32, 3, SHAPE(1024, 256, 4));
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.choice, "both 1024");
	assert_int_equal(plan.grid[0], 256);
	assert_int_equal(plan.scratch.counters, 256 + 256 * 8);
	assert_int_equal(plan.scratch.bytes, 256 + 256 * 8);
	assert_int_equal(plan.bytes_moved, 2 * 1024 * 256 * 16 + 4);
	assert_string_equal(plan.instantiation,
						"giou_loss<Boxes<f32, 16, 1, List<>, List<4>>, Boxes<f32, 16, 1, List<>, "
						"List<4>>, false, 1, true, true, 1, 1024, u32, false>");
	assert_int_equal(plan.extents[4].alignment, 0);
	/* Too many to be one to a thread. */
	for (int i = 0; i < 2; i++)
		set_tensor(&p.tensors[i], KILN_F32, 3, SHAPE(65536, 256, 4));
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.choice, "both 512x2");
	/* Any other count of samples is the same kernel. */
	for (int i = 0; i < 2; i++)
		set_tensor(&p.tensors[i], KILN_F32, 3, SHAPE(131072, 128, 4));
	assert_string_equal(plan_on("sm_90", &p).instantiation, plan.instantiation);
}

/* The mean of nothing is written, gradients of nothing are not. */
static void no_pairs(void **state)
{
	(void)state;
	for (int op = GIOU; op <= LOSS_BACKWARD; op++) {
		struct kernel_problem p = boxes((enum op)op, KILN_F32, KILN_F32);
		for (int i = 0; i < p.tensor_count; i++)
			if (p.tensors[i].rank > 1)
				p.tensors[i].shape[0] = 0;
		struct kernel_plan plan = plan_on("sm_90", &p);
		assert_int_equal(plan.kind, op == LOSS ? KERNEL_LAUNCH : KERNEL_NOTHING);
		if (op == LOSS)
			assert_int_equal(plan.grid[0], 1);
	}
}

static void boxes_anywhere(void **state)
{
	struct kernel_problem p = boxes(GIOU, KILN_F16, KILN_U8);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	has(&plan, "giou_pairs<Boxes<f16, 8, 1, List<>, List<4>>, Boxes<u8, 4, 1, List<>, List<4>>, "
			   "true, 256, u32, false>");
	p.tensors[0].alignment = 4;
	p.tensors[1].alignment = 1;
	plan = plan_on("sm_90", &p);
	has(&plan, "Boxes<f16, 4, 1, List<>, List<4>>, Boxes<u8, 1, 1, ");
	assert_int_equal(plan.extents[0].alignment, 4);
	assert_int_equal(plan.extents[1].alignment, 1);
	p = boxes(GIOU, KILN_F64, KILN_F32);
	p.tensors[0].stride[1] = 6;
	p.tensors[0].stride[0] = 51;
	p.tensors[1].stride[2] = 2;
	p.tensors[1].stride[1] = 8;
	p.tensors[1].stride[0] = 64;
	plan = plan_on("sm_90", &p);
	has(&plan, "Boxes<f64, 8, 1, List<8>, List<6, 51>>, Boxes<f32, 4, 2, List<8>, List<8, 64>>");
	p = boxes(GIOU_BACKWARD, KILN_F16, KILN_F32);
	p.tensors[2].stride[0] = 16;
	p.tensors[2].stride[1] = 2;
	p.tensors[3].alignment = 2;
	add_attr(&p, "clamp", KILN_ATTR_INT)->i = 0;
	plan = plan_on("sm_90", &p);
	has(&plan, "giou_pairs_backward<Boxes<f16, 8, 1, List<>, List<4>>, Boxes<f32, 16, 1, List<>, "
			   "List<4>>, false, 2, List<>, List<2>, 256, u32, false>");
	p = ragged(LOSS);
	plan = plan_on("sm_90", &p);
	has(&plan, "giou_loss<Boxes<f32, 16, 1, List<>, List<4>>, Boxes<u8, 4, 1, List<>, List<4>>, "
			   "true, 8, true, false, 1, 1024, u32, false>");
	p = ragged(LOSS_BACKWARD);
	plan = plan_on("sm_90", &p);
	has(&plan, "giou_loss_backward<Boxes<f32, 16, 1, List<>, List<4>>, Boxes<u8, 4, 1, List<>, "
			   "List<4>>, true, 8, true, false, 1, 16, 256, u32, false>");
}

static void candidates(void **state)
{
	struct kernel_problem p = boxes(LOSS, KILN_F32, KILN_F32);
	struct kernel_attr *attr = add_attr(&p, "choice", KILN_ATTR_STRING);

	(void)state;
	set_text(attr->s, sizeof(attr->s), "pairs 100");
	refused(&p, "giou_loss: there is no candidate \"pairs 100\" for 40 pairs on sm_90");
	set_text(attr->s, sizeof(attr->s), "pairs 1024");
	assert_string_equal(plan_on("sm_90", &p).variant, "pairs");
	p = ragged(LOSS);
	attr = add_attr(&p, "choice", KILN_ATTR_STRING);
	set_text(attr->s, sizeof(attr->s), "both 512");
	refused(&p, "giou_loss: there is no candidate \"both 512\" for 40 pairs on sm_90");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attributes), cmocka_unit_test(dtypes),
		cmocka_unit_test(shapes),     cmocka_unit_test(offsets),
		cmocka_unit_test(outputs),    cmocka_unit_test(one_launch),
		cmocka_unit_test(no_pairs),   cmocka_unit_test(boxes_anywhere),
		cmocka_unit_test(candidates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
