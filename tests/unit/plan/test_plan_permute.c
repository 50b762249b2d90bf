/*
 * test_plan_permute: what the planner refuses of a permute and how it says so, canonical forms,
 * variants, the width of offsets.  Other tests run the kernels.
 */
#include "plan_problems.h"

#include <unistd.h>

static void permutations(void **state)
{
	struct kernel_problem p = good();

	(void)state;
	p.attr_count = 0;
	refused(&p, "permute: perm is missing: which of x's 3 dimensions each one of y is");
	p = good();
	set_text(p.attrs[0].name, sizeof(p.attrs[0].name), "axes");
	refused(&p, "permute: there is no attribute \"axes\"; those it takes: perm");
	p = good();
	p.attrs[1] = p.attrs[0];
	p.attr_count = 2;
	refused(&p, "permute: perm is given twice");
	p = good();
	p.attrs[0].kind = KILN_ATTR_INT;
	refused(&p, "permute: perm must be a list of integers");
	p = good();
	p.attrs[0].count = 2;
	refused(&p, "permute: perm has 2 entries, x has 3 dimensions: they must agree");
	p = good();
	p.attrs[0].ints[1] = 3;
	refused(&p, "permute: perm[1] is 3; the dimensions of x are 0 to 2");
	p.attrs[0].ints[1] = -1;
	refused(&p, "permute: perm[1] is -1; the dimensions of x are 0 to 2");
	p = good();
	p.attrs[0].ints[1] = 2;
	refused(&p, "permute: perm names dimension 2 twice; each comes once");
}

static void destinations(void **state)
{
	struct kernel_problem p = good();

	(void)state;
	p.tensors[1].dtype = KILN_I32;
	refused(&p, "permute: x is f32 and y is i32; permute does not convert");
	p = good();
	p.tensors[1].rank = 2;
	refused(&p, "permute: x has rank 3 and y rank 2; they must agree");
	p = good();
	p.tensors[1].shape[1] = 5;
	refused(&p, "permute: dimension 1 of y has size 5, but perm makes it dimension 0 of x, of "
				"size 2");
	p = good();
	p.tensors[1].stride[1] = 4;
	refused(&p, "permute: dimension 1 of y has stride 4; y must be contiguous, which is stride 3 "
				"there");
	p = good();
	p.tensors[1].stride[2] = 0;
	refused(&p, "permute: dimension 2 of y has stride 0; y must be contiguous, which is stride 1 "
				"there");
}

/* ---- Inference ---- */

static void outputs_are_inferred(void **state)
{
	struct kernel_problem p = make(KILN_C64, 4, SHAPE(2, 3, 4, 5), SHAPE(3, 1, 0, 2));
	const int64_t shape[] = {5, 3, 2, 4}, stride[] = {24, 8, 4, 1};
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	assert_int_equal(p.tensors[1].dtype, KILN_C64);
	assert_int_equal(p.tensors[1].rank, 4);
	assert_int_equal(p.tensors[1].alignment, 16);
	for (int k = 0; k < 4; k++) {
		assert_int_equal(p.tensors[1].shape[k], shape[k]);
		assert_int_equal(p.tensors[1].stride[k], stride[k]);
	}
	p.attrs[0].ints[0] = 1;
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	assert_string_equal(error, "permute: perm names dimension 1 twice; each comes once");
	p.tensor_count = 0;
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	assert_string_equal(error, "permute: x is missing");
}

/* ---- Canonical forms ---- */

static void same(const struct kernel_problem *a, const struct kernel_problem *b)
{
	struct kernel_plan first = plan_on("sm_90", a), second = plan_on("sm_90", b);

	assert_string_equal(first.instantiation, second.instantiation);
	assert_string_not_equal(first.instantiation, "");
	assert_memory_equal(first.grid, second.grid, sizeof(first.grid));
	assert_memory_equal(first.args, second.args, sizeof(first.args));
}

static void equal_forms_are_one_kernel(void **state)
{
	struct kernel_problem a =
		make(KILN_U8, 8, SHAPE(2, 2, 2, 2, 3, 3, 3, 3), SHAPE(4, 5, 6, 7, 0, 1, 2, 3));
	struct kernel_problem b = make(KILN_I8, 2, SHAPE(16, 81), SHAPE(1, 0));

	(void)state;
	same(&a, &b);
	/* the type of an element is its size */
	a = make(KILN_F32, 3, SHAPE(40, 50, 60), SHAPE(2, 1, 0));
	b = make(KILN_U32, 3, SHAPE(40, 50, 60), SHAPE(2, 1, 0));
	same(&a, &b);
	/* sizes of 1 go first, then neighbours meet */
	a = make(KILN_F16, 5, SHAPE(1, 40, 1, 50, 1), SHAPE(3, 2, 0, 1, 4));
	b = make(KILN_F16, 2, SHAPE(40, 50), SHAPE(1, 0));
	same(&a, &b);
	a = make(KILN_F16, 4, SHAPE(40, 5, 1, 10), SHAPE(1, 3, 0, 2));
	same(&a, &b);
	/* the stride of a size of 1 means nothing */
	a = make(KILN_F16, 3, SHAPE(40, 1, 50), SHAPE(2, 1, 0));
	a.tensors[0].stride[1] = 7777777;
	same(&a, &b);
	/* four bytes that stay together are one element of four bytes */
	a = make(KILN_U8, 3, SHAPE(40, 50, 4), SHAPE(1, 0, 2));
	b = make(KILN_F32, 2, SHAPE(40, 50), SHAPE(1, 0));
	same(&a, &b);
	/* a transposed view is a transpose */
	a = make(KILN_F32, 2, SHAPE(50, 40), SHAPE(0, 1));
	a.tensors[0].stride[0] = 1;
	a.tensors[0].stride[1] = 50;
	same(&a, &b);
}

static void batches_share_a_kernel(void **state)
{
	static const struct {
		int rank;
		int64_t shape[5], perm[5];
	} forms[] = {
		{3, {0, 100, 70}, {0, 2, 1}},        {4, {0, 256, 56, 56}, {0, 2, 3, 1}},
		{4, {0, 3, 64, 64}, {0, 2, 3, 1}},   {4, {0, 64, 64, 3}, {0, 3, 1, 2}},
		{4, {0, 128, 16, 64}, {0, 2, 1, 3}}, {5, {0, 6, 40, 7, 50}, {0, 4, 1, 3, 2}},
		{3, {0, 5, 7}, {0, 2, 1}},
	};
	static const int64_t batches[] = {2, 3, 16, 77, 300};

	(void)state;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		char first[KERNEL_INSTANTIATION_MAX] = "";
		for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++) {
			int64_t shape[5];
			memcpy(shape, forms[i].shape, sizeof(shape));
			shape[0] = batches[b];
			struct kernel_problem p = make(KILN_F16, forms[i].rank, shape, forms[i].perm);
			struct kernel_plan plan = plan_on("sm_90", &p);
			if (b == 0)
				set_text(first, sizeof(first), plan.instantiation);
			assert_string_equal(plan.instantiation, first);
		}
	}
	/* where everything behind the batch is turned, one item is no other kernel either */
	struct kernel_problem one = make(KILN_F16, 3, SHAPE(1, 100, 70), SHAPE(0, 2, 1));
	struct kernel_problem many = make(KILN_F16, 3, SHAPE(9, 100, 70), SHAPE(0, 2, 1));
	struct kernel_plan a = plan_on("sm_90", &one), b = plan_on("sm_90", &many);
	assert_string_equal(a.instantiation, b.instantiation);
}

/* The variant that a problem has, and how its kernel's name begins. */
static const struct {
	kiln_dtype dtype;
	int rank;
	int64_t shape[4], perm[4];
	const char *variant, *begins;
} chosen[] = {
	{KILN_F32, 2, {8192, 8192}, {1, 0}, "tile", "permute_tile<4, 64, 64, 4, 16, 16, 512, "},
	{KILN_F16, 2, {8192, 8192}, {1, 0}, "tile", "permute_tile<2, 128, 128, 8, 16, 16, 256, "},
	{KILN_I8, 2, {8192, 8192}, {1, 0}, "tile", "permute_tile<1, 256, 256, 16, 16, 16, 256, "},
	{KILN_I8, 4, {32, 1024, 16, 64}, {0, 2, 1, 3}, "near", "permute_near<16, 128, 4096, "},
	{KILN_I8, 4, {32, 64, 16, 1024}, {0, 2, 1, 3}, "vector", "permute_vector<16, 1, 128, "},
	{KILN_F16, 3, {5, 7, 1031}, {1, 0, 2}, "rows", "permute_rows<2, 1, 128, 1031, "},
	{KILN_I8, 3, {32, 64, 6}, {1, 0, 2}, "box", "permute_box<12416, 2, 16, 512, "},
	{KILN_I8, 3, {32, 64, 12}, {1, 0, 2}, "vector", "permute_vector<4, 4, 128, "},
	{KILN_F32, 4, {64, 3, 512, 512}, {0, 2, 3, 1}, "interleave", "permute_interleave<4, 3, 8, "},
	{KILN_I8, 4, {64, 512, 512, 3}, {0, 3, 1, 2}, "interleave", "permute_interleave<1, 3, 8, "},
	{KILN_F16, 4, {6, 2, 24, 40}, {0, 2, 3, 1}, "braid", "permute_braid<2, 2, 8, 1, 960, "},
	{KILN_F32, 4, {6, 2, 35, 35}, {0, 2, 3, 1}, "braid", "permute_braid<4, 2, 4, 2, 1225, "},
	{KILN_F16, 4, {31, 129, 65, 127}, {2, 0, 3, 1}, "shift", "permute_shift<2, 129, "},
	{KILN_F16, 4, {295, 9, 197, 128}, {0, 1, 3, 2}, "shift", "permute_shift<2, 197, 64, 4, "},
	{KILN_F16, 4, {5, 13, 120, 67}, {2, 3, 1, 0}, "shift", "permute_shift<2, 65, "},
	{KILN_F16,
	 3,
	 {183, 37, 71},
	 {2, 1, 0},
	 "step",
	 "permute_shift<2, 64, 72, 4, 16, true, true, false, 192, 6, 106, 6771, 71, List<183>, "},
	{KILN_F16, 3, {1031, 469, 40}, {0, 2, 1}, "step", "permute_shift<2, 128, 40, 4, 16, "},
	{KILN_I32, 3, {1141, 11582, 6}, {1, 0, 2}, "box", "permute_box<18432, 4, 16, 256, "},
	{KILN_F32, 4, {31, 129, 65, 127}, {2, 0, 3, 1}, "shift", "permute_shift<4, 129, "},
	{KILN_I8, 2, {1023, 4099}, {1, 0}, "step", "permute_shift<1, 256, 128, "},
	{KILN_F16,
	 2,
	 {90001, 161},
	 {1, 0},
	 "step",
	 "permute_shift<2, 128, 56, 4, 16, true, true, false, 256, 4, 8, "},
	{KILN_F32, 2, {54001, 130}, {1, 0}, "step", "permute_shift<4, 64, 68, 4, 16, "},
	{KILN_F64, 2, {1023, 4099}, {1, 0}, "step", "permute_shift<8, 32, 32, "},
	{KILN_F32, 2, {3, 2}, {1, 0}, "strided", "permute_strided<4, "},
	{KILN_F32, 3, {4, 5, 6}, {0, 1, 2}, "copy", ""},
	{KILN_F32, 2, {1, 6}, {1, 0}, "copy", ""},
	{KILN_F32, 0, {0}, {0}, "copy", ""},
	{KILN_F32, 2, {0, 6}, {1, 0}, "nothing", ""},
};

static void variants_are_chosen(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++) {
		struct kernel_problem p =
			make(chosen[i].dtype, chosen[i].rank, chosen[i].shape, chosen[i].perm);
		struct kernel_plan plan = plan_on("sm_90", &p);
		assert_string_equal(plan.variant, chosen[i].variant);
		if (strncmp(plan.instantiation, chosen[i].begins, strlen(chosen[i].begins)) != 0)
			fail_msg("%s, not %s", plan.instantiation, chosen[i].begins);
		assert_int_equal(plan.kind == KERNEL_LAUNCH, chosen[i].begins[0] != 0);
	}
}

/* No plan asks for more shared memory than there is to be had. */
static void default_shared_memory(void **state)
{
	struct kernel_problem p = make(KILN_I8, 2, SHAPE(8192, 8192), SHAPE(1, 0));
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX];

	(void)state;
	limits.shared_optin = limits.shared_default;
	assert_int_equal(plan_problem(&p, &limits, &plan, error), KILN_OK);
	assert_int_equal(strncmp(plan.instantiation, "permute_tile<1, 64, 256, ", 25), 0);
}

/* A name makes exactly its kernel, or is refused with the rule that it breaks. */
static void choices_by_name(void **state)
{
	static const struct {
		const char *name, *begins, *refusal;
	} choices[] = {
		{"tile 128x64 k2 l8 s4 t128 b4", "permute_tile<4, 128, 64, 2, 8, 4, 128, 4, ", NULL},
		{"tile 96x48 k4 l16 s16 t96 c", "permute_tile<4, 96, 48, 4, 16, 16, 96, 1, ", NULL},
		{"strided 8 t64", "permute_strided<4, 2, ", NULL},
		{"tile 64x64 k4 l16 s16 t256 b3", "permute_tile<4, 64, 64, 4, 16, 16, 256, 3, ", NULL},
		{"tile 64x64 k4 l16 s16 t48 r", NULL, "threads are whole warps"},
		{"tile 64x62 k4 l16 s16 t256 r", NULL, "columns are whole loads"},
		{"tile 64x64 k3 l16 s16 t256 r", NULL, "rows of a thread are 4, 8 or 16 bytes"},
		{"tile 40x64 k4 l16 s16 t320 r", NULL, "rows are 1, 2, 4 or a multiple of 8 times"},
		{"tile 64x64 k4 l32 s16 t256 r", NULL, "loads and stores are at least an element"},
		{"tile 512x512 k4 l16 s16 t256 r", NULL, "a block has at most 232448 bytes"},
		{"tile 64x64 k4 l16 s16 t2048 r", NULL, "a block has at most 1024 threads"},
		{"vector 16 k1 t256", NULL, "the fastest dimension moves"},
		{"stage 64x64 s8 t256 m1 r", NULL, "vectors of 16 and 16 bytes are wide enough"},
		{"strided 32 t64", NULL, "vectors are 4 to 16 bytes here"},
		{"tile 64x64  k4 l16 s16 t256 r", NULL, "names no candidate"},
		{"tile 064x64 k4 l16 s16 t256 r", NULL, "names no candidate"},
		{"tile 64x64 k4 l16 s16 t256 r m1", NULL, "names no candidate"},
		{"tiles 64x64 k4 l16 s16 t256 r", NULL, "names no candidate"},
	};
	const struct kernel_limits limits = limits_of("sm_90");

	(void)state;
	for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
		struct kernel_problem p = make(KILN_F32, 2, SHAPE(1024, 512), SHAPE(1, 0));
		struct kernel_plan plan;
		char error[KERNEL_ERROR_MAX] = "";
		set_text(p.attrs[1].name, sizeof(p.attrs[1].name), PLAN_CHOICE);
		p.attrs[1].kind = KILN_ATTR_STRING;
		set_text(p.attrs[1].s, sizeof(p.attrs[1].s), choices[i].name);
		p.attr_count = 2;
		int status = plan_problem(&p, &limits, &plan, error);
		if (choices[i].refusal) {
			assert_int_equal(status, KILN_EINVAL);
			if (!strstr(error, choices[i].refusal) || !strstr(error, choices[i].name))
				fail_msg("%s: %s", choices[i].name, error);
		} else {
			if (status || strncmp(plan.instantiation, choices[i].begins, strlen(choices[i].begins)))
				fail_msg("%s: %s%s", choices[i].name, error, plan.instantiation);
			assert_string_equal(plan.choice, choices[i].name);
		}
	}
}

/* A box stores whole elements. */
static void boxes_store_elements(void **state)
{
	static const char *const names[] = {"box 256x64 k48 s8 t512 m1024",
										"box 256x64 k48 s4 t512 m1024"};
	static const int64_t strides[] = {2733720, 546744, 28776, 1308, 6, 1};
	const struct kernel_limits limits = limits_of("sm_90");

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct kernel_problem p =
			make(KILN_C64, 6, SHAPE(12, 5, 19, 22, 218, 3), SHAPE(5, 3, 4, 2, 0, 1));
		struct kernel_plan plan;
		char error[KERNEL_ERROR_MAX] = "";
		memcpy(p.tensors[0].stride, strides, sizeof(strides));
		set_text(p.attrs[1].name, sizeof(p.attrs[1].name), PLAN_CHOICE);
		p.attrs[1].kind = KILN_ATTR_STRING;
		set_text(p.attrs[1].s, sizeof(p.attrs[1].s), names[i]);
		p.attr_count = 2;
		assert_int_equal(plan_problem(&p, &limits, &plan, error), i ? KILN_EINVAL : KILN_OK);
		if (i && !strstr(error, "stores are 4, 8 or 16 bytes, and have an element"))
			fail_msg("%s", error);
	}
}

/* Kernels that count the bytes of a row in 31 bits do not get a longer one. */
static void long_rows(void **state)
{
	const int64_t most = INT64_C(1) << 29; /* words that 31 bits do not count in bytes */

	(void)state;
	for (int64_t columns = most - 1; columns <= most; columns++) {
		struct kernel_problem p = make(KILN_F32, 2, SHAPE(2, columns), SHAPE(0, 1));
		p.tensors[0].stride[0] = columns + 1;
		struct kernel_plan plan = plan_on("sm_90", &p);
		assert_string_equal(plan.variant, columns < most ? "rows" : "vector");
		p = make(KILN_F32, 2, SHAPE(65, columns), SHAPE(1, 0));
		p.tensors[0].stride[0] = most + 1;
		plan = plan_on("sm_90", &p);
		if ((strncmp(plan.instantiation, "permute_shift<", 14) == 0) != (columns < most))
			fail_msg("%s", plan.instantiation);
	}
}

/* Offsets are 64 bits wide exactly where a batch needs them. */
static void wide_offsets(void **state)
{
	struct kernel_problem p = make(KILN_U8, 2, SHAPE(46341, 46343), SHAPE(1, 0));
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_non_null(strstr(plan.instantiation, ", i64, false"));
	assert_int_equal(plan.extents[0].bytes, INT64_C(46341) * 46343);
	p = make(KILN_U8, 3, SHAPE(4096, 1024, 1024), SHAPE(0, 2, 1));
	plan = plan_on("sm_90", &p);
	assert_non_null(strstr(plan.instantiation, ", i32, false"));
	p = make(KILN_U8, 2, SHAPE(32768, 32768), SHAPE(1, 0)); /* the last offset is 2^30 - 1 */
	plan = plan_on("sm_90", &p);
	assert_non_null(strstr(plan.instantiation, ", i32, false"));
	p = make(KILN_U8, 2, SHAPE(32768, 32769), SHAPE(1, 0));
	plan = plan_on("sm_90", &p);
	assert_non_null(strstr(plan.instantiation, ", i64, false"));
	/* no merge goes beyond 31 bits; a copy may */
	p = make(KILN_F64, 3, SHAPE(3, 65536, 32769), SHAPE(1, 2, 0));
	plan = plan_on("sm_90", &p);
	assert_null(strstr(plan.instantiation, "2147549184>"));
	p = make(KILN_U8, 2, SHAPE(65536, 65537), SHAPE(0, 1));
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.kind, KERNEL_COPY);
	assert_int_equal(plan.copy_bytes, INT64_C(65536) * 65537);
}

/* ---- Text ---- */

static void plans_explain_themselves(void **state)
{
	struct kernel_problem p = make(KILN_F32, 2, SHAPE(1024, 512), SHAPE(1, 0));
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_plan plan = plan_on("sm_90", &p);
	char text[4096], little[40];

	(void)state;
	assert_int_equal(plan.bytes_moved, 2 * 4 * 1024 * 512);
	plan_explain(&plan, &limits, text, sizeof(text));
	assert_string_equal(
		text, "op             permute\n"
			  "target         sm_90\n"
			  "variant        tile (kernel)\n"
			  "choice         tile 64x32 k4 l16 s16 t256 r\n"
			  "source         ops/permute_tile.cuh\n"
			  "instantiation  permute_tile<4, 64, 32, 4, 16, 16, 256, 16, 1024, 512, 1, List<>, "
			  "List<512>, List<>, List<1024>, List<>, List<>, List<>, i32, false>\n"
			  "grid x block   256,1,1 x 256,1,1\n"
			  "shared memory  8192 bytes\n"
			  "x              2097152 bytes read, aligned to 16\n"
			  "y              2097152 bytes written, aligned to 16\n"
			  "bytes moved    4194304\n"
			  "note           not vector: the fastest dimension moves; not interleave: no 2 to 16 "
			  "elements meet a long dimension; 1024 rows by 512 columns in tiles of 64 by 32, 16 "
			  "bytes a load, 16 a store\n");
	plan_explain(&plan, &limits, little, sizeof(little));
	assert_string_equal(little, "op             permute\n");

	/* an element that is repeated is read once */
	p.tensors[0].stride[0] = 0;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.bytes_moved, 4 * 512 + 4 * 1024 * 512);
}

/* Nobody has such memory, and anybody may ask for a plan of it, which the daemon's loop makes. */
static void sizes_beyond_all_memory(void **state)
{
	static const int64_t sizes[] = {1, 2, 5, 16, 63, 97, 251, 4096, 65521, INT64_C(1) << 31};
	static const char *const targets[] = {"cpu", "sm_80", "sm_90"};
	static const kiln_dtype dtypes[] = {KILN_U8, KILN_F16, KILN_F32, KILN_F64};
	uint64_t random = 1;

	(void)state;
	alarm(60);
	struct kernel_problem p =
		make(KILN_F32, 4, SHAPE(INT64_C(1) << 31, 2, 97, 63), SHAPE(2, 3, 1, 0));
	memcpy(p.tensors[0].stride, SHAPE(12222, 6111, 63, 1), 4 * sizeof(int64_t));
	plan_on("cpu", &p);
	p = make(KILN_U8, 3, SHAPE(251, 1, INT64_C(1) << 45), SHAPE(1, 2, 0));
	p.tensors[0].stride[1] = 0;
	plan_on("sm_90", &p);
	for (int i = 0; i < 1000; i++) {
		int64_t shape[6], perm[6], elements = 1;
		int rank = 2 + i % 5;
		for (int k = 0; k < rank; k++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			shape[k] = sizes[(random >> 33) % (sizeof(sizes) / sizeof(sizes[0]))];
			shape[k] = elements > (INT64_C(1) << 56) / shape[k] ? 1 : shape[k];
			elements *= shape[k];
			perm[k] = (k + i / 5) % rank;
		}
		p = make(dtypes[i % 4], rank, shape, perm);
		p.tensors[0].stride[0] *= 1 + i / 4 % 2;
		plan_on(targets[i % 3], &p);
	}
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(permutations),
		cmocka_unit_test(destinations),
		cmocka_unit_test(outputs_are_inferred),
		cmocka_unit_test(equal_forms_are_one_kernel),
		cmocka_unit_test(batches_share_a_kernel),
		cmocka_unit_test(variants_are_chosen),
		cmocka_unit_test(default_shared_memory),
		cmocka_unit_test(long_rows),
		cmocka_unit_test(wide_offsets),
		cmocka_unit_test(plans_explain_themselves),
		cmocka_unit_test(choices_by_name),
		cmocka_unit_test(boxes_store_elements),
		cmocka_unit_test(sizes_beyond_all_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
