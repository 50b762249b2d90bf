/*
 * test_plan_norm_backward: layer_norm_backward and rms_norm_backward: what the planner refuses and
 * how it says so, which kernel takes what, what it reads, its scratch memory, and its candidates.
 * Other tests run the kernels.
 */
#include "plan_problems.h"

enum { X, DY, GAMMA, MEAN, RSTD, DX, DGAMMA, DBETA, ALL };
#define BIT(operand) (1u << (operand))

static struct kernel_tensor tensor(kiln_dtype dtype, int rank, const int64_t *shape)
{
	struct kernel_tensor out = {.dtype = dtype, .rank = rank, .alignment = 16};

	memcpy(out.shape, shape, sizeof(*shape) * (size_t)rank);
	plan_contiguous(&out);
	return out;
}

/* All operands, one axis, gamma, dgamma and dbeta as x. */
static struct kernel_problem layer(kiln_dtype dtype, int64_t rows, int64_t columns)
{
	struct kernel_problem p = {.op = "layer_norm_backward", .tensor_count = ALL};

	for (int i = 0; i < ALL; i++)
		p.tensors[i] = i == GAMMA || i >= DGAMMA ? tensor(dtype, 1, SHAPE(columns))
												 : tensor(dtype, 2, SHAPE(rows, columns));
	p.tensors[MEAN] = p.tensors[RSTD] =
		tensor(dtype == KILN_F64 ? KILN_F64 : KILN_F32, 1, SHAPE(rows));
	return p;
}

static void leave_out(struct kernel_problem *p, int index)
{
	memset(&p->tensors[index], 0, sizeof(p->tensors[index]));
	p->tensors[index].dtype = KILN_DTYPE_NONE;
}

/* Only some of gamma, dx, dgamma and dbeta. */
static struct kernel_problem some(kiln_dtype dtype, int64_t rows, int64_t columns, unsigned with)
{
	struct kernel_problem p = layer(dtype, rows, columns);

	for (int i = GAMMA; i < ALL; i++)
		if (i != MEAN && i != RSTD && !(with & BIT(i)))
			leave_out(&p, i);
	return p;
}

static void make_rms(struct kernel_problem *p)
{
	set_text(p->op, sizeof(p->op), "rms_norm_backward");
	memmove(&p->tensors[MEAN], &p->tensors[RSTD], (ALL - RSTD) * sizeof(p->tensors[0]));
	p->tensor_count--;
}

static bool names_type(const struct kernel_plan *plan, const char *text)
{
	return strstr(plan->instantiation, text) != NULL;
}

/* ---- What is refused ---- */

static void operands_are_checked(void **state)
{
	struct kernel_problem p = layer(KILN_I32, 4, 8);

	(void)state;
	refused(&p, "layer_norm_backward: x is i32; it must be f16, bf16, f32 or f64");
	p = layer(KILN_F16, 4, 8);
	p.tensors[DY].dtype = KILN_F32;
	refused(&p, "layer_norm_backward: x is f16 and dy is f32; they must agree");
	p = layer(KILN_F16, 4, 8);
	p.tensors[DX].shape[0] = 5;
	refused(&p, "layer_norm_backward: dimension 0 has size 4 in x and 5 in dx; they must agree");
	p = layer(KILN_F16, 4, 8);
	p.tensors[DX].stride[0] = 9;
	refused(&p, "layer_norm_backward: dimension 0 of dx has stride 9; dx must be contiguous, which "
				"is stride 8 there");
	p = layer(KILN_F16, 4, 8);
	p.tensors[GAMMA].dtype = KILN_I8;
	refused(&p, "layer_norm_backward: gamma is i8; it must be f16, bf16, f32 or f64");
	p = layer(KILN_F16, 4, 8);
	p.tensors[DGAMMA].shape[0] = 4;
	refused(&p, "layer_norm_backward: dimension 0 of dgamma has size 4; it must be that of "
				"dimension 1 of x, 8");
	p = layer(KILN_F16, 4, 8);
	p.tensors[DBETA] = tensor(KILN_F16, 2, SHAPE(4, 8));
	refused(&p, "layer_norm_backward: dbeta has rank 2; it must have the normalized dimensions of "
				"x, which are 1");
	p = layer(KILN_F16, 4, 8);
	p.tensors[MEAN].dtype = KILN_F16;
	refused(&p, "layer_norm_backward: mean is f16; for x of f16 it must be f32");
	p = layer(KILN_F64, 4, 8);
	p.tensors[RSTD].dtype = KILN_F32;
	refused(&p, "layer_norm_backward: rstd is f32; for x of f64 it must be f64");
	p = layer(KILN_F32, 4, 8);
	p.tensors[DBETA].alignment = 2;
	refused(&p, "layer_norm_backward: the address of dbeta is aligned to 2 bytes; elements of f32 "
				"need 4");
}

static void what_must_be_there(void **state)
{
	struct kernel_problem p = some(KILN_F16, 4, 8, BIT(GAMMA));

	(void)state;
	refused(&p, "layer_norm_backward: dx, dgamma and dbeta are all left out; one of them must be "
				"there");
	p = layer(KILN_F16, 4, 8);
	leave_out(&p, MEAN);
	refused(&p,
			"layer_norm_backward: mean is missing; its operands are: x, dy, gamma?, mean, rstd, "
			"dx?, dgamma?, dbeta? (those with ? may be left out)");
	p = layer(KILN_F16, 4, 8);
	make_rms(&p);
	leave_out(&p, MEAN);
	refused(&p, "rms_norm_backward: rstd is missing; its operands are: x, dy, gamma?, rstd, dx?, "
				"dgamma?, dbeta? (those with ? may be left out)");
	p = layer(KILN_F16, 4, 8);
	set_text(p.op, sizeof(p.op), "rms_norm_backward");
	refused(&p, "rms_norm_backward takes 7 tensors (x, dy, gamma?, rstd, dx?, dgamma?, dbeta?), "
				"not 8");
}

static void attributes_are_checked(void **state)
{
	struct kernel_problem p = layer(KILN_F16, 4, 8);

	(void)state;
	add_attr(&p, "axes", KILN_ATTR_INT)->i = 3;
	refused(&p, "layer_norm_backward: axes is 3; it may be 1 to 2");
	p.attr_count = 0;
	add_attr(&p, "eps", KILN_ATTR_REAL)->f = 1;
	refused(&p, "layer_norm_backward: there is no attribute \"eps\"; those it takes: axes");
	p.attr_count = 0;
	set_choice(&p, "rows 1x1 r1");
	refused(&p, "layer_norm_backward: there is no candidate \"rows 1x1 r1\" for rows of 8 elements "
				"on sm_90");
}

/* Outputs are never made up: leaving them out means something. */
static void nothing_is_inferred(void **state)
{
	struct kernel_problem p = some(KILN_F16, 4, 8, BIT(DGAMMA)), before = p;
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	assert_int_equal(plan_infer(&p, error), KILN_OK);
	assert_memory_equal(&p, &before, sizeof(p));
	p = some(KILN_F16, 4, 8, 0);
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	p = layer(KILN_F16, 4, 8);
	leave_out(&p, RSTD);
	assert_int_equal(plan_infer(&p, error), KILN_EINVAL);
	assert_string_equal(error, "layer_norm_backward: rstd is missing");
}

/* ---- Which kernel ---- */

static void kernels_by_results(void **state)
{
	static const struct {
		unsigned with;
		const char *source;
	} kinds[] = {
		{BIT(DX), "ops/norm_backward.cuh"},
		{BIT(GAMMA) | BIT(DX), "ops/norm_backward.cuh"},
		{BIT(DGAMMA), "ops/norm_backward_columns.cuh"},
		{BIT(DBETA) | BIT(GAMMA), "ops/norm_backward_columns.cuh"},
		{BIT(DX) | BIT(DBETA), "ops/norm_backward_all.cuh"},
		{BIT(GAMMA) | BIT(DX) | BIT(DGAMMA) | BIT(DBETA), "ops/norm_backward_all.cuh"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct kernel_problem p = some(KILN_F16, 512, 1024, kinds[i].with);
		struct kernel_plan plan = plan_on("sm_90", &p);
		assert_string_equal(plan.source, kinds[i].source);
		assert_int_equal(plan.kind, KERNEL_LAUNCH);
		make_rms(&p);
		plan = plan_on("sm_90", &p);
		assert_string_equal(plan.source, kinds[i].source);
	}
}

/* Rows that no block can hold together with their sums: clusters can, and elsewhere they are read
 * again. */
static void long_rows(void **state)
{
	struct kernel_problem p = layer(KILN_F32, 64, 65536);
	struct kernel_plan plan = plan_on("sm_80", &p);

	(void)state;
	assert_string_equal(plan.source, "ops/norm_backward_both.cuh");
	assert_true(names_type(&plan, "norm_backward_both<RowS"));
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.source, "ops/norm_backward_ring.cuh");
	assert_true(names_type(&plan, "norm_backward_ring<BackwardRingShape<f32, 65536, 4, "));
	assert_int_equal(plan.grid[0] % 8, 0);
	/* Each cluster leaves one set of sums. */
	assert_int_equal(plan.scratch.bytes, plan.scratch.counters + plan.grid[0] / 8 * 2 * 65536 * 4);
}

/* Operands that the results do not depend on are not touched. */
static void operands_that_are_read(void **state)
{
	static const struct {
		unsigned with, read;
	} kinds[] = {
		{BIT(GAMMA) | BIT(DX), BIT(X) | BIT(DY) | BIT(GAMMA) | BIT(MEAN) | BIT(RSTD)},
		{BIT(GAMMA) | BIT(DGAMMA), BIT(X) | BIT(DY) | BIT(MEAN) | BIT(RSTD)},
		{BIT(GAMMA) | BIT(DGAMMA) | BIT(DBETA), BIT(X) | BIT(DY) | BIT(MEAN) | BIT(RSTD)},
		{BIT(GAMMA) | BIT(DBETA), BIT(DY)},
		{BIT(GAMMA) | BIT(DX) | BIT(DBETA), BIT(X) | BIT(DY) | BIT(GAMMA) | BIT(MEAN) | BIT(RSTD)},
	};

	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct kernel_problem p = some(KILN_F16, 64, 1024, kinds[k].with);
		struct kernel_plan plan = plan_on("sm_90", &p);
		uint64_t moved = 0;
		for (int i = 0; i < ALL; i++) {
			bool there = p.tensors[i].dtype != KILN_DTYPE_NONE;
			bool touched = there && (i >= DX || kinds[k].read & BIT(i));
			assert_int_equal(plan.extents[i].bytes != 0, touched);
			assert_int_equal(plan.extents[i].written, there && i >= DX);
			moved += plan.extents[i].bytes;
		}
		assert_int_equal(plan.bytes_moved, moved);
	}
}

/* The widest vectors that all of them bear; the sums alone bear any address. */
static void alignment(void **state)
{
	struct kernel_problem p = layer(KILN_F16, 64, 1024);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_int_equal(plan.extents[X].alignment, 16);
	assert_int_equal(plan.extents[DX].alignment, 16);
	assert_int_equal(plan.extents[GAMMA].alignment, 16);
	assert_int_equal(plan.extents[DGAMMA].alignment, 2);
	assert_int_equal(plan.extents[MEAN].alignment, 4);
	p.tensors[DY].alignment = 4;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.extents[X].alignment, 4);
	assert_int_equal(plan.extents[DY].alignment, 4);
	p = some(KILN_F16, 64, 1024, BIT(DGAMMA));
	p.tensors[DY].alignment = 2;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.extents[X].alignment, 2);
	assert_true(names_type(&plan, "ColumnsShape<f16, 1024, 8, 32, 32, 1, true, false>"));
	/* x has no part in dbeta, and no say. */
	p = some(KILN_F16, 64, 1024, BIT(DBETA));
	p.tensors[X].alignment = 2;
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.extents[DY].alignment, 16);
	assert_true(names_type(&plan, "NormBackwardWith<void, void, f16, "));
}

/* ---- How many blocks ---- */

/* Teams of three warps hold 1536 halves; rows with gaps between them they do not take. */
static void rows_of_warps(void **state)
{
	struct kernel_problem p = layer(KILN_F16, 84736, 1536);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_string_equal(plan.choice, "warps 96x2 w15 r1 s4");
	assert_int_equal(plan.block[0], 480);
	assert_int_equal(plan.scratch.bytes, 256 + plan.grid[0] * 2 * 1536 * 4);
	p.tensors[X].stride[0] = 2048;
	plan = plan_on("sm_90", &p);
	assert_int_not_equal(strncmp(plan.choice, "warps", 5), 0);
	p = layer(KILN_F16, 84736, 1536);
	plan = plan_on("sm_80", &p);
	assert_int_not_equal(strncmp(plan.choice, "warps", 5), 0);
}

/* Short rows go to memory as whole pieces; blocks that take long ones keep to rows that begin
 * equally far behind a vector. */
static void odd_rows(void **state)
{
	struct kernel_problem p = layer(KILN_F16, 605376, 37);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_string_equal(plan.choice, "warps 4x10 w16 r32 s2");
	/* Rows of 254 bytes lie nearly on the same banks: pieces have some that are further apart. */
	p = layer(KILN_F16, 108861, 127);
	assert_string_equal(plan_on("sm_90", &p).choice, "warps 4x32 w8 r16 s2");
	p = layer(KILN_F32, 72768, 345);
	assert_string_equal(plan_on("sm_90", &p).choice, "all skewed 64x2 r10 b1 a0");
	p = layer(KILN_F16, 1274, 9255);
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.choice, "ring2 skewed 320x2 s5");
	assert_true(names_type(&plan, "BackwardRingShape<f16, 9255, 8, 2, 320, 2, 5, 8>"));
	assert_int_equal(plan.grid[0] % 16, 0);
}

/* One full wave and few chunks; scratch memory for the sums of each chunk. */
static void strips_and_chunks(void **state)
{
	struct kernel_problem p = some(KILN_F16, 49152, 1024, BIT(DGAMMA) | BIT(DBETA));
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_string_equal(plan.choice, "columns 32x32 u2 b1");
	assert_int_equal(plan.grid[0], 4 * 32);
	assert_int_equal(plan.block[0], 1024);
	assert_int_equal(plan.scratch.counters, 256);
	assert_int_equal(plan.scratch.bytes, 256 + 32 * 2 * 1024 * 4);
	p = some(KILN_F16, 4096, 8192, BIT(DGAMMA) | BIT(DBETA));
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.grid[0], 32 * 4);
	/* So many strips that rows need no cutting, however many there are. */
	p = some(KILN_F16, 4096, 262144, BIT(DGAMMA));
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.grid[0], 1024);
	assert_int_equal(plan.scratch.bytes, 0);
}

/* As few blocks as give no block more rows. */
static void blocks_and_their_sums(void **state)
{
	struct kernel_problem p = layer(KILN_F16, 4096, 8192);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_int_equal(plan.grid[0], 128);
	assert_int_equal(plan.scratch.counters, 256);
	assert_int_equal(plan.scratch.bytes, 256 + 128 * 2 * 8192 * 4);
	assert_string_equal(plan.choice, "ring1 256x4 s5");
	p = layer(KILN_F32, 16384, 4096);
	assert_string_equal(plan_on("sm_90", &p).choice, "ring1 256x4 s5");
	p = layer(KILN_F16, 832, 9216);
	assert_string_equal(plan_on("sm_90", &p).choice, "ring2 192x3 s5");
	p = layer(KILN_BF16, 701, 11008);
	assert_string_equal(plan_on("sm_90", &p).choice, "ring2 352x2 s5");
	p = layer(KILN_F32, 2618, 7680);
	assert_string_equal(plan_on("sm_90", &p).choice, "ring2 320x3 s5");
	p = layer(KILN_F16, 3, 8192);
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.grid[0], 3);
}

/* The number of rows is no part of a kernel's name. */
static void rows_are_run_time(void **state)
{
	static const unsigned with[] = {BIT(DX), BIT(DGAMMA) | BIT(DBETA),
									BIT(DX) | BIT(DGAMMA) | BIT(DBETA)};

	(void)state;
	for (int i = 0; i < 3; i++) {
		for (int64_t columns = 64; columns <= 65536; columns *= 32) {
			struct kernel_problem few = some(KILN_BF16, 7, columns, with[i]);
			struct kernel_problem many = some(KILN_BF16, 6000, columns, with[i]);
			struct kernel_plan a = plan_on("sm_90", &few), b = plan_on("sm_90", &many);
			assert_string_equal(a.instantiation, b.instantiation);
		}
	}
}

/* Sums over no rows are zeros, which are written; dx has nothing to write. */
static void no_rows_and_no_columns(void **state)
{
	struct kernel_problem p = layer(KILN_F16, 0, 64);
	struct kernel_plan plan = plan_on("sm_90", &p);

	(void)state;
	assert_int_equal(plan.kind, KERNEL_LAUNCH);
	assert_int_equal(plan.extents[DGAMMA].bytes, 128);
	p = some(KILN_F16, 0, 64, BIT(DBETA));
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.kind, KERNEL_LAUNCH);
	p = some(KILN_F16, 0, 64, BIT(DX));
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.kind, KERNEL_NOTHING);
	p = layer(KILN_F16, 5, 0);
	plan = plan_on("sm_90", &p);
	assert_int_equal(plan.kind, KERNEL_NOTHING);
}

/* Three dimensions of rows that do not merge: in the kernel's type, in both inputs. */
static void strides(void **state)
{
	struct kernel_problem p = layer(KILN_F32, 1, 64);
	struct kernel_plan plan;

	(void)state;
	p.tensors[X] = p.tensors[DY] = p.tensors[DX] = tensor(KILN_F32, 3, SHAPE(5, 6, 64));
	p.tensors[MEAN] = p.tensors[RSTD] = tensor(KILN_F32, 2, SHAPE(5, 6));
	p.tensors[DY].stride[0] = 64;
	p.tensors[DY].stride[1] = 320;
	plan = plan_on("sm_90", &p);
	assert_true(names_type(&plan, "NormPlace<List<6>, List<64, 384>, List<320, 64>, List<>, "
								  "List<1>, List<1>, u32>"));
}

/* ---- Candidates ---- */

static void candidates(void **state)
{
	static const unsigned with[] = {BIT(DX), BIT(DGAMMA) | BIT(DBETA),
									BIT(DX) | BIT(DGAMMA) | BIT(DBETA)};
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], error[KERNEL_ERROR_MAX] = "";
	struct kernel_limits limits = limits_of("sm_90");

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct kernel_problem p = some(KILN_F16, 4096, 4096, with[i]);
		int count = plan_choices(&p, &limits, names, error);
		assert_in_range(count, 6, PLAN_MAX_CHOICES);
		set_choice(&p, names[count - 1]);
		assert_string_equal(plan_on("sm_90", &p).choice, names[count - 1]);
	}
	/* Where blocks hold the sums, others may still take the columns. */
	struct kernel_problem p = layer(KILN_F16, 4096, 4096);
	struct kernel_plan plan;
	set_choice(&p, "both rows 256x2 r1 u2");
	plan = plan_on("sm_90", &p);
	assert_string_equal(plan.variant, "both");
	assert_string_equal(plan.source, "ops/norm_backward_both.cuh");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operands_are_checked),
		cmocka_unit_test(what_must_be_there),
		cmocka_unit_test(attributes_are_checked),
		cmocka_unit_test(nothing_is_inferred),
		cmocka_unit_test(kernels_by_results),
		cmocka_unit_test(long_rows),
		cmocka_unit_test(operands_that_are_read),
		cmocka_unit_test(alignment),
		cmocka_unit_test(rows_of_warps),
		cmocka_unit_test(odd_rows),
		cmocka_unit_test(strips_and_chunks),
		cmocka_unit_test(blocks_and_their_sums),
		cmocka_unit_test(rows_are_run_time),
		cmocka_unit_test(no_rows_and_no_columns),
		cmocka_unit_test(strides),
		cmocka_unit_test(candidates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
