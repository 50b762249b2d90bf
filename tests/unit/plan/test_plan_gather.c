/*
 * test_plan_gather: what the planner refuses of gather and its backward and how it says so, what it
 * makes of sizes, strides and bounds, and its candidates.
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

/* outer x lists rows: of `few` elements in src or dsrc, of `many` in dst or ddst. */
static struct kernel_problem gather(bool back, kiln_dtype dtype, kiln_dtype index, int64_t outer,
									int64_t lists, int64_t few, int64_t many)
{
	struct kernel_problem p = {.tensor_count = 3};

	set_text(p.op, sizeof(p.op), back ? "gather_backward" : "gather");
	set_tensor(&p.tensors[0], dtype, 3, SHAPE(outer, lists, back ? many : few));
	set_tensor(&p.tensors[1], index, 2, SHAPE(lists, many));
	set_tensor(&p.tensors[2], dtype, 3, SHAPE(outer, lists, back ? few : many));
	return p;
}

static struct kernel_problem usual(bool back)
{
	return gather(back, KILN_F32, KILN_I32, 2, 3, 40, 50);
}

static void add_bounds(struct kernel_problem *p, const char *word)
{
	struct kernel_attr *attr = &p->attrs[p->attr_count++];

	set_text(attr->name, sizeof(attr->name), "bounds");
	attr->kind = KILN_ATTR_STRING;
	set_text(attr->s, sizeof(attr->s), word);
}

/* ---- Refusals ---- */

static void attributes(void **state)
{
	struct kernel_problem p = usual(false);

	(void)state;
	add_bounds(&p, "wrap");
	refused(&p, "gather: bounds is \"wrap\"; it may be one of: check, clamp, trust");
	p.attrs[0].kind = KILN_ATTR_INT;
	refused(&p, "gather: bounds is not a text; it may be one of: check, clamp, trust");
	set_text(p.attrs[0].name, sizeof(p.attrs[0].name), "axis");
	refused(&p, "gather: there is no attribute \"axis\"; those it takes: bounds");
}

static void dtypes(void **state)
{
	struct kernel_problem p = gather(false, KILN_F32, KILN_I16, 2, 3, 40, 50);

	(void)state;
	refused(&p, "gather: idx is i16; it must be u8, u16, i32 or i64");
	p = gather(true, KILN_BOOL, KILN_I32, 2, 3, 40, 50);
	refused(&p, "gather_backward: ddst is bool; it must be an integer or a float of 16 bits or "
				"more, which can be added up");
	p = gather(true, KILN_F8E5M2, KILN_I32, 2, 3, 40, 50);
	refused(&p, "gather_backward: ddst is f8e5m2; it must be an integer or a float of 16 bits or "
				"more, which can be added up");
	p = usual(false);
	p.tensors[2].dtype = KILN_I32;
	refused(&p, "gather: src is f32 and dst is i32; they must agree");
	p = usual(false);
	p.tensors[1].alignment = 2;
	refused(&p, "gather: the address of idx is aligned to 2 bytes; elements of i32 need 4");
	p = gather(false, KILN_C128, KILN_U8, 2, 3, 40, 50);
	p.tensors[2].alignment = 8;
	refused(&p, "gather: the address of dst is aligned to 8 bytes; elements of c128 need 16");
}

static void shapes(void **state)
{
	struct kernel_problem p = usual(false);

	(void)state;
	set_tensor(&p.tensors[0], KILN_F32, 1, SHAPE(40));
	refused(&p, "gather: src has rank 1; it needs 2 dimensions at least, those of idx and any "
				"before them");
	p = usual(false);
	set_tensor(&p.tensors[1], KILN_I32, 3, SHAPE(2, 3, 50));
	refused(&p, "gather: idx has rank 3; it must have rank 2");
	p = usual(false);
	set_tensor(&p.tensors[2], KILN_F32, 2, SHAPE(3, 50));
	refused(&p, "gather: src has rank 3 and dst rank 2; they must agree");
	p = usual(false);
	p.tensors[1].shape[0] = 4;
	refused(&p, "gather: dimension 0 of idx has size 4; it must be that of dimension 1 of src, 3");
	p = usual(true);
	p.tensors[1].shape[0] = 4;
	refused(&p, "gather_backward: dimension 0 of idx has size 4; it must be that of dimension 1 of "
				"ddst, 3");
	p = usual(false);
	p.tensors[1].shape[1] = 49;
	refused(&p, "gather: dimension 1 of idx has size 49; it must be that of dimension 2 of dst, "
				"50");
	p = usual(true);
	p.tensors[1].shape[1] = 49;
	refused(&p, "gather_backward: dimension 1 of idx has size 49; it must be that of dimension 2 "
				"of ddst, 50");
	p = usual(false);
	p.tensors[2].shape[0] = 1;
	refused(&p, "gather: dimension 0 of dst has size 1; it must be that of dimension 0 of src, 2");
	p = usual(true);
	p.tensors[2].stride[1] = 41;
	refused(&p, "gather_backward: dimension 1 of dsrc has stride 41; dsrc must be contiguous, "
				"which is stride 40 there");
}

static void what_cannot_be_taken(void **state)
{
	static const char *const bounds[] = {"clamp", "trust"};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct kernel_problem p = gather(false, KILN_F32, KILN_I32, 2, 3, 0, 50);
		char sentence[120];
		add_bounds(&p, bounds[i]);
		snprintf(sentence, sizeof(sentence),
				 "gather: dimension 2 of src has size 0; with bounds %s it needs an element to "
				 "take",
				 bounds[i]);
		refused(&p, sentence);
	}
	/* Zeros, and all of them counted. */
	struct kernel_problem p = gather(false, KILN_F32, KILN_I32, 2, 3, 0, 50);
	struct kernel_plan plan = plan_on("sm_90", &p);
	assert_int_equal(plan.kind, KERNEL_LAUNCH);
	assert_string_equal(plan.variant, "direct");
	assert_int_equal(plan.report.indices, 150);
	assert_int_equal(plan.report.end, 0);
}

static void outputs(void **state)
{
	struct kernel_problem p = usual(false);
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	p.tensor_count = 2;
	p.tensors[0].stride[1] = 64;
	assert_int_equal(plan_infer(&p, error), KILN_OK);
	assert_int_equal(p.tensors[2].dtype, KILN_F32);
	assert_int_equal(p.tensors[2].rank, 3);
	assert_int_equal(p.tensors[2].shape[2], 50);
	assert_int_equal(p.tensors[2].stride[1], 50);
	assert_int_equal(p.tensors[2].stride[0], 150);
	p = usual(true);
	p.tensor_count = 2;
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	assert_string_equal(error, "gather_backward: dsrc is missing; how long its rows are does not "
							   "follow from the others");
	p = usual(false);
	p.tensor_count = 1;
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	assert_string_equal(error, "gather: idx is missing");
}

/* ---- What becomes of a request ---- */

static void has(const struct kernel_plan *plan, const char *part)
{
	if (!strstr(plan->instantiation, part))
		fail_msg("%s is not in %s", part, plan->instantiation);
}

/* The shape that the figures are of: 128 threads, two rows, 16 bytes in and out. */
static void two_rows_a_block(void **state)
{
	struct kernel_problem p = gather(false, KILN_F32, KILN_U8, 512, 64, 256, 512);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_string_equal(plan.choice, "stage 2x128");
	assert_int_equal(plan.grid[0], 512 * 64 / 2);
	assert_int_equal(plan.block[0], 128);
	assert_int_equal(plan.shared_bytes, 2 * 256 * 4);
	has(&plan, "GatherShape<4, u8, INDICES_TRUST, 256, 512, true, 2, 1024, 128, 16, 4, 4, false>");
	assert_int_equal(plan.bytes_moved, 512ll * 64 * (256 + 512) * 4 + 64 * 512);
	for (int i = 0; i < 3; i++)
		assert_int_equal(plan.extents[i].alignment, i == 1 ? 4 : 16);
	/* All that u8 holds are in range. */
	assert_int_equal(plan.report.indices, 0);
	p = gather(false, KILN_F32, KILN_U8, 512, 64, 255, 512);
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.report.indices, 64 * 512);
	assert_int_equal(plan.report.end, 255);
	add_bounds(&p, "clamp");
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.report.indices, 0);
	has(&plan, "INDICES_CLAMP");
}

/* Another count of rows is the same kernel. */
static void rows_are_a_matter_of_the_launch(void **state)
{
	(void)state;
	for (int back = 0; back < 2; back++) {
		struct kernel_problem p = gather(back, KILN_F16, KILN_I32, 1000, 64, 256, 512);
		struct kernel_problem q = gather(back, KILN_F16, KILN_I32, 4000, 64, 256, 512);
		struct kernel_plan first = plan_on("sm_90", &p), second = plan_on("sm_90", &q);
		assert_string_equal(first.instantiation, second.instantiation);
		assert_true(first.grid[0] < second.grid[0]);
	}
}

static void widths_follow_sizes_and_addresses(void **state)
{
	struct kernel_problem p = gather(false, KILN_F16, KILN_I32, 3, 64, 255, 512);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	/* Four rows of 510 bytes are no whole vectors: those around them are staged. */
	has(&plan,
		"INDICES_CHECK, 255, 512, true, 4, 2048, 128, 0, 8, 16, false>, GatherPlaces<true, 1, 1, ");
	assert_int_equal(plan.shared_bytes, 4 * 510 + 8 + 16);
	p.tensors[0].stride[1] = 256;
	p.tensors[0].stride[0] = 256 * 64;
	plan = plan_on("sm_90", &p);
	has(&plan, "128, 2, 8, 16, false>, GatherPlaces<false, 1, 1, ");
	p = gather(false, KILN_F16, KILN_I32, 3, 64, 256, 512);
	p.tensors[0].stride[2] = 3;
	plan = plan_on("sm_90", &p);
	has(&plan, "128, 2, 8, 16, false>, GatherPlaces<false, 3, 1, ");
	p = gather(false, KILN_F16, KILN_I32, 3, 64, 256, 512);
	p.tensors[1].stride[1] = 2;
	plan = plan_on("sm_90", &p);
	has(&plan, "16, 8, 0, false>, GatherPlaces<true, 1, 2, ");
	p = gather(false, KILN_F16, KILN_I32, 3, 64, 256, 512);
	p.tensors[2].alignment = 4;
	p.tensors[1].alignment = 4;
	plan = plan_on("sm_90", &p);
	has(&plan, "16, 2, 4, false>");
	/* Elements of two rows in one vector: indices come one by one. */
	p = gather(false, KILN_F16, KILN_I32, 1, 64, 256, 511);
	plan = plan_on("sm_90", &p);
	has(&plan, ", 16, 8, 0, false>");
	/* Rows that share a list go by it. */
	p = gather(false, KILN_F16, KILN_I32, 100, 64, 256, 511);
	plan = plan_on("sm_90", &p);
	has(&plan,
		"gather_alike<GatherAlike<2, i32, INDICES_CHECK, 256, 511, 2, 65, 32, false, false, ");
	assert_int_equal(plan.grid[0], 25 * 64);
	p = gather(false, KILN_F32, KILN_I32, 100, 64, 256, 511);
	plan = plan_on("sm_90", &p);
	has(&plan, "gather_list<GatherList<4, i32, INDICES_CHECK, 256, 511, ");
	/* Long lists: a block has four rows that begin alike, which are eight rows apart, or follow one
	 * another. */
	p = gather(false, KILN_F16, KILN_I64, 197, 3, 2688, 3607);
	plan = plan_on("sm_90", &p);
	has(&plan, "gather_alike<GatherAlike<2, i64, INDICES_CHECK, 2688, 3607, 2, 452, 256, false, "
			   "false, false>");
	assert_int_equal(plan.grid[0], 7 * 8 * 3);
	p = gather(false, KILN_F32, KILN_I32, 9, 7, 1024, 28672);
	plan = plan_on("sm_90", &p);
	has(&plan, "gather_alike<GatherAlike<4, i32, INDICES_CHECK, 1024, 28672, 2, 768, 256, false, "
			   "true, false>");
	assert_int_equal(plan.grid[0], 5 * 7 * 10);
}

static void long_rows(void **state)
{
	struct kernel_problem p = gather(false, KILN_F32, KILN_I32, 4, 8, 100000, 64);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_string_equal(plan.variant, "direct"); /* more than shared memory holds */
	p = gather(false, KILN_F32, KILN_I32, 4, 8, 20000, 64);
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "direct"); /* little is wanted of them */
	assert_int_equal(plan.bytes_moved, 2 * 4 * 8 * 64 * 4 + 8 * 64 * 4);
	p = gather(false, KILN_F32, KILN_I32, 4, 8, 20000, 20000);
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "stage");
	assert_int_equal(plan.shared_bytes, 80000);
	plan = plan_on("cpu", &p);
	assert_string_equal(plan.variant, "stage");
	p = gather(false, KILN_F32, KILN_I32, 4, 8, 40000, 20000);
	plan = plan_on("sm_75", &p);
	assert_string_equal(plan.variant, "direct");
	/* Many indices: several blocks share a row. */
	p = gather(false, KILN_F32, KILN_I32, 1, 8, 256, 100000);
	plan = plan_on("sm_90", &p);
	assert_true(plan.grid[0] > 8);
	assert_int_equal(plan.grid[0] % 8, 0);
	/* Rows that share a list are taken together as long as 31 bits count the bytes of one. */
	p = gather(false, KILN_F64, KILN_I32, 2, 1, 16, INT64_C(1) << 27);
	plan = plan_on("sm_90", &p);
	assert_non_null(strstr(plan.instantiation, "gather_group<"));
	p = gather(false, KILN_F64, KILN_I32, 2, 1, 16, INT64_C(1) << 28);
	plan = plan_on("sm_90", &p);
	assert_null(strstr(plan.instantiation, "gather_group<"));
}

static void chains(void **state)
{
	struct kernel_problem p = gather(true, KILN_F32, KILN_U8, 512, 64, 256, 512);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	has(&plan, "gather_backward_link<ScatterLink<f32, u8, INDICES_TRUST, 256, 512, 128, false, "
			   "1>");
	assert_string_equal(plan.choice, "link 128 r4x4");
	assert_int_equal(plan.grid[0], 512 / 16 * 64);
	assert_int_equal(plan.shared_bytes, 512 * 18 + 512 * 2 + 16 + 256 * 4 + 16 + 256 * 2);
	/* Few blocks: one group of rows each. */
	p = gather(true, KILN_F32, KILN_U8, 16, 64, 256, 512);
	assert_string_equal(plan_on("sm_90", &p).choice, "link 128 r4x1");
	/* Many indices for each element. */
	p = gather(true, KILN_F32, KILN_U8, 3, 64, 40, 512);
	plan = plan_on("sm_90", &p);
	has(&plan, "gather_backward_rows<ScatterShape<f32, u8, INDICES_CHECK, 40, 512, 40, 512, 4, "
			   "128, 16, 1>");
	assert_string_equal(plan.choice, "chain 128 r4");
	assert_int_equal(plan.grid[0], 64);
	assert_int_equal(plan.shared_bytes, 4 * 512 * 4 + 40 * 2 + 512 * 2);
	p = gather(true, KILN_I16, KILN_I32, 2, 3, 100000, 20000);
	plan = plan_on("sm_90", &p);
	/* Signs are of no account; chunks and tiles. */
	has(&plan, "ScatterShape<u16, i32, INDICES_CHECK, 100000, 20000, 8192, 8192, 1, ");
	assert_int_equal(plan.grid[0], 2 * 3 * 13);
	assert_int_equal(plan.report.indices, 3 * 20000);
	/* No indices: the sums of nothing are written. */
	p = gather(true, KILN_F32, KILN_I32, 2, 3, 40, 0);
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.kind, KERNEL_LAUNCH);
	assert_int_equal(plan.report.indices, 0);
	p = gather(true, KILN_F32, KILN_I32, 2, 3, 0, 40);
	assert_int_equal(plan_on("sm_90", &p).kind, KERNEL_NOTHING);
}

static void candidates(void **state)
{
	(void)state;
	for (int back = 0; back < 2; back++) {
		struct kernel_problem p = gather(back, KILN_F32, KILN_U8, 512, 64, 256, 512);
		struct kernel_attr *attr = &p.attrs[p.attr_count++];
		set_text(attr->name, sizeof(attr->name), "choice");
		attr->kind = KILN_ATTR_STRING;
		set_text(attr->s, sizeof(attr->s), "stage 3x7");
		refused(&p, back ? "gather_backward: there is no candidate \"stage 3x7\" for rows of 256 "
						   "elements and 512 indices on sm_90"
						 : "gather: there is no candidate \"stage 3x7\" for rows of 256 elements "
						   "and 512 indices on sm_90");
		set_text(attr->s, sizeof(attr->s), back ? "chain 128 r4" : "direct 2x256");
		struct kernel_plan plan = plan_on("sm_90", &p);
		assert_string_equal(plan.variant, back ? "chain" : "direct");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attributes),
		cmocka_unit_test(dtypes),
		cmocka_unit_test(shapes),
		cmocka_unit_test(what_cannot_be_taken),
		cmocka_unit_test(outputs),
		cmocka_unit_test(two_rows_a_block),
		cmocka_unit_test(rows_are_a_matter_of_the_launch),
		cmocka_unit_test(widths_follow_sizes_and_addresses),
		cmocka_unit_test(long_rows),
		cmocka_unit_test(chains),
		cmocka_unit_test(candidates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
