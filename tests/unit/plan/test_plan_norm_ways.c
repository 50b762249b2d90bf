/*
 * test_plan_norm_ways: layer_norm and rms_norm: which kernel takes what, and its candidates.
 */
#include "norm_problems.h"

/* ---- Which kernel takes what ---- */

static const char *variant_on(const char *target, const struct kernel_problem *p)
{
	static struct kernel_plan plan;

	plan = plan_on(target, p);
	return plan.variant;
}

static void variants(void **state)
{
	struct kernel_problem p = plain(KILN_F16, 100, 1024);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_string_equal(plan.variant, "staged");
	assert_string_equal(plan.source, "ops/norm_staged.cuh");
	p = plain(KILN_F16, 100, 16000);
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "rows");
	assert_string_equal(plan.source, "ops/norm.cuh");
	assert_int_equal(strncmp(plan.choice, "rows ", 5), 0);
	p = plain(KILN_F16, 100, 1023);
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "wrap");
	assert_string_equal(plan.source, "ops/norm_wrap.cuh");
	assert_int_equal(plan.shared_bytes, 15 * 128 * 8);
	p = plain(KILN_F16, 100, 767);
	assert_int_equal(plan_on("sm_90", &p).shared_bytes, 15 * 96 * 8);
	p.tensors[BETA].dtype = KILN_F32;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.shared_bytes, 15 * 96 * 8);
	leave_out(&p, GAMMA);
	leave_out(&p, BETA);
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.shared_bytes, 0);
	/* Rows of y begin elsewhere between two vectors than those of x. */
	p = plain(KILN_F16, 100, 449);
	p.tensors[X].stride[0] = 898;
	assert_non_null(strstr(plan_on("sm_90", &p).choice, " apart"));
	/* Nobody knows where those of x do. */
	p.tensors[X].alignment = 2;
	assert_string_equal(variant_on("sm_90", &p), "rows");
	p = plain(KILN_F32, 100, 1 << 20);
	assert_string_equal(variant_on("sm_75", &p), "stream");
	assert_string_equal(plan_on("sm_75", &p).source, "ops/norm_stream.cuh");
}

/* Short rows that begin between two vectors come and go as pieces of some rows. */
static void pieces(void **state)
{
	struct kernel_problem p = plain(KILN_F16, 1000, 97);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_string_equal(plan.choice, "staged 16x7 r64");
	assert_string_equal(plan.source, "ops/norm_staged.cuh");
	assert_int_equal(plan.shared_bytes, 64 * 97 * 2 + 256);
	assert_int_equal(plan.grid[0], 16);
	assert_int_equal(plan.block[0], 128);
	assert_string_equal(variant_on("sm_80", &p), "staged");
	p = plain(KILN_F32, 1000, 79);
	assert_string_equal(plan_on("sm_90", &p).choice, "staged 8x10 r16");
	/* The gaps between rows of x come with them, and y has a place of its own. */
	p = plain(KILN_BF16, 1000, 79);
	p.tensors[X].stride[0] = 83;
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.choice, "staged 8x10 r32");
	assert_int_equal(plan.shared_bytes, 32 * (83 + 79) * 2 + 256);
	/* Too much would come. */
	p.tensors[X].stride[0] = 158;
	assert_string_equal(variant_on("sm_90", &p), "rows");
	/* Nobody knows where rows begin. */
	p = plain(KILN_F16, 1000, 97);
	p.tensors[Y].alignment = 2;
	assert_string_equal(variant_on("sm_90", &p), "rows");
}

/* Short rows of whole vectors: few threads have much of each. */
static void whole_pieces(void **state)
{
	struct kernel_problem p = plain(KILN_F16, 10000, 768);
	struct kernel_plan plan = plan_on("sm_90", &p);
	const char *end;

	(void)state;
	assert_string_equal(plan.choice, "staged 32x3 r4");
	assert_int_equal(plan.shared_bytes, 4 * 768 * 2 + 256);
	assert_int_equal(plan.grid[0], 2500);
	assert_int_equal(plan.block[0], 64);
	end = plan.instantiation + strlen(plan.instantiation);
	assert_string_equal(end - 7, " false>");
	p = plain(KILN_F32, 10000, 256);
	assert_string_equal(plan_on("sm_90", &p).choice, "staged 32x2 r4");
	/* Other ways beside them take as long. */
	p = rms(KILN_F16, 10000, 768);
	assert_string_equal(variant_on("sm_90", &p), "rows");
	p = plain(KILN_F16, 10000, 768);
	p.tensors[X].stride[0] = 776;
	assert_string_equal(variant_on("sm_90", &p), "rows");
	/* Without bulk copies, and long rows. */
	p = plain(KILN_F16, 10000, 768);
	assert_string_equal(variant_on("sm_80", &p), "rows");
	p = plain(KILN_F16, 10000, 9216);
	assert_string_equal(variant_on("sm_90", &p), "rows");
}

static void clusters(void **state)
{
	const char *const without[] = {"cpu", "sm_75", "sm_80", "sm_86"};
	struct kernel_problem p = plain(KILN_F32, 100, 131072);

	(void)state;
	assert_string_equal(variant_on("sm_90", &p), "ring8");
	assert_string_equal(variant_on("sm_100", &p), "ring8");
	p = layer(KILN_F32, 2, SHAPE(100, 131072));
	assert_int_equal(strncmp(variant_on("sm_90", &p), "cluster", 7), 0);
	for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++) {
		struct kernel_limits limits = limits_of(without[i]);
		static char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX];
		char error[KERNEL_ERROR_MAX];
		int count = plan_choices(&p, &limits, names, error);
		assert_true(count > 0);
		for (int k = 0; k < count; k++)
			assert_null(strstr(names[k], "cluster"));
	}
}

/* A grid that is too small for the rows: blocks take further ones. */
static void small_grids(void **state)
{
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_problem p = plain(KILN_F32, 1000, 1024), q = plain(KILN_F32, 1000, 1023);
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX];
	const char *end;

	(void)state;
	limits.grid_x = 7;
	assert_int_equal(plan_problem(&p, &limits, &plan, error), KILN_OK);
	assert_int_equal(plan.grid[0], 7);
	end = plan.instantiation + strlen(plan.instantiation);
	assert_string_equal(end - 6, " true>");
	assert_int_equal(plan_problem(&q, &limits, &plan, error), KILN_OK);
	assert_int_equal(plan.grid[0], 7);
	end = plan.instantiation + strlen(plan.instantiation);
	assert_string_equal(end - 6, " true>");
}

/* ---- Candidates ---- */

static void check_choices(const char *target, const struct kernel_problem *p)
{
	static char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX];
	struct kernel_limits limits = limits_of(target);
	struct kernel_plan own = plan_on(target, p), plan;
	char error[KERNEL_ERROR_MAX] = "";
	int count = plan_choices(p, &limits, names, error);

	assert_in_range(count, 3, PLAN_MAX_CHOICES);
	assert_string_equal(names[0], own.choice);
	for (int i = 0; i < count; i++) {
		struct kernel_problem q = *p;
		set_choice(&q, names[i]);
		if (plan_problem(&q, &limits, &plan, error))
			fail_msg("%s: %s", names[i], error);
		assert_string_equal(plan.choice, names[i]);
		assert_in_range(plan.block[0], 32, limits.max_threads);
		assert_int_equal(plan.block[0] % 32, 0);
		assert_true(plan.shared_bytes <= limits.shared_optin);
		for (int k = 0; k < i; k++)
			assert_string_not_equal(names[k], names[i]);
	}
}

static void candidates(void **state)
{
	const kiln_dtype dtypes[] = {KILN_F16, KILN_BF16, KILN_F32, KILN_F64};
	const int64_t columns[] = {1, 33, 64, 1000, 1023, 4096, 32768, 131072, 1000001};

	(void)state;
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		for (size_t k = 0; k < sizeof(columns) / sizeof(columns[0]); k++) {
			struct kernel_problem p = plain(dtypes[i], 12, columns[k]);
			check_choices("sm_90", &p);
			p = layer(dtypes[i], 2, SHAPE(12, columns[k]));
			check_choices("sm_80", &p);
			p = rms(dtypes[i], 12, columns[k]);
			check_choices("cpu", &p);
		}
	}
}

/* Rows that are held together are so many fewer blocks. */
static void rows_together(void **state)
{
	struct kernel_problem p = plain(KILN_F16, 1001, 8192), q;
	struct kernel_plan plan;

	(void)state;
	q = p;
	set_choice(&q, "rows 512x2 r1 t2");
	plan = plan_on("sm_90", &q);
	assert_int_equal(plan.grid[0], 501);
	assert_int_equal(plan.block[0], 512);
	assert_non_null(strstr(plan.instantiation, ", 2, false>"));
	assert_non_null(strstr(plan.note, "2 rows together"));
	q = p;
	set_choice(&q, "rows 512x2 r1");
	assert_int_equal(plan_on("sm_90", &q).grid[0], 1001);
}

/* As many blocks as stay at once, and no more than there are rows for. */
static void rings(void **state)
{
	struct kernel_problem p = plain(KILN_F16, 2048, 131072), few = plain(KILN_F16, 7, 131072), q;
	struct kernel_plan plan;

	(void)state;
	set_choice(&p, "ring4 512x8 s3");
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "ring4");
	assert_string_equal(plan.source, "ops/norm_ring.cuh");
	assert_int_equal(plan.grid[0], 120);
	assert_int_equal(plan.block[0], 512);
	assert_int_equal(plan.shared_bytes, 3 * 8 * 512 * 16);
	set_choice(&few, "ring4 512x8 s3");
	assert_int_equal(plan_on("sm_90", &few).grid[0], 28);
	/* The residual that is added to x would have to come in as well. */
	q = layer(KILN_F16, 2, SHAPE(2048, 131072));
	set_choice(&q, "ring4 512x8 s3");
	refused(&q, "layer_norm: there is no candidate \"ring4 512x8 s3\" for rows of 131072 elements "
				"on sm_90");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(variants),   cmocka_unit_test(pieces),
		cmocka_unit_test(clusters),   cmocka_unit_test(small_grids),
		cmocka_unit_test(candidates), cmocka_unit_test(rows_together),
		cmocka_unit_test(rings),      cmocka_unit_test(whole_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
