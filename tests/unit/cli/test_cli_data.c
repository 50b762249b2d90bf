/* The kiln command's data: values that are valid for their type, and results that are close. */
#include "client/cli/data.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

/* Operand 1 is of this kind, beside a first one of rows of so many columns. */
static void fill(enum op_data data, kiln_dtype dtype, int64_t columns, void *space, uint64_t bytes,
				 uint64_t seed)
{
	const struct plan_op row = {.operands = {{.name = "x"}, {.name = "y", .data = data}}};
	struct cli_problem problem = {.row = &row, .tensor_count = 2};
	problem.tensors[0] = (kiln_tensor){.dtype = KILN_F32, .rank = 2, .shape = {1, columns}};
	problem.tensors[1] = (kiln_tensor){.dtype = dtype, .rank = 2, .shape = {1, columns}};
	data_operand(&problem, 1, space, bytes, seed);
}

static void halves_are_read(void **state)
{
	static const struct {
		uint16_t bits;
		double f16, bf16;
	} rows[] = {
		{0x0000, 0, 0},
		{0x3c00, 1, 0.0078125},
		{0xbf80, -1.875, -1},
		{0x4248, 3.140625, 50},
		{0x0001, 5.9604644775390625e-08, 9.183549615799121e-41},
		{0x03ff, 6.097555160522461e-05, 1.49876e-36},
		{0x7bff, 65504, 2.64807e36},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double wide = data_real(KILN_BF16, &rows[i].bits);
		assert_true(data_real(KILN_F16, &rows[i].bits) == rows[i].f16);
		assert_true(fabs(wide - rows[i].bf16) <= 1e-4 * fabs(rows[i].bf16));
	}
	assert_true(isinf(data_real(KILN_F16, &(uint16_t){0x7c00})));
	assert_true(isnan(data_real(KILN_F16, &(uint16_t){0x7c01})));
	assert_true(isinf(data_real(KILN_BF16, &(uint16_t){0xff80})));
	assert_true(data_real(KILN_F8E4M3, &(uint8_t){0x7e}) == 448);
	assert_true(data_real(KILN_F8E4M3, &(uint8_t){0x81}) == -0x1p-9);
	assert_true(isnan(data_real(KILN_F8E4M3, &(uint8_t){0xff})));
	assert_true(data_real(KILN_F8E5M2, &(uint8_t){0xbd}) == -1.25);
	assert_true(data_real(KILN_F8E5M2, &(uint8_t){0x7c}) == (double)INFINITY);
	assert_true(isnan(data_real(KILN_F8E5M2, &(uint8_t){0x7d})));
}

static void reals_are_about_normal(void **state)
{
	static const kiln_dtype dtypes[] = {KILN_F16, KILN_BF16, KILN_F32, KILN_F64};
	enum { COUNT = 20000 };
	static double space[COUNT];
	(void)state;
	for (int d = 0; d < 4; d++) {
		size_t size = kiln_dtype_size(dtypes[d]);
		double sum = 0, squares = 0, most = 0;
		memset(space, 0xff, sizeof(space));
		fill(OP_NORMAL, dtypes[d], 10, space, COUNT * size, 7);
		for (int i = 0; i < COUNT; i++) {
			double value = data_real(dtypes[d], (const uint8_t *)space + (size_t)i * size);
			assert_true(isfinite(value));
			sum += value;
			squares += value * value;
			most = fmax(most, fabs(value));
		}
		assert_true(fabs(sum / COUNT) < 0.05);
		assert_true(fabs(squares / COUNT - 1) < 0.05);
		assert_true(most > 2.5 && most < 3.6);
	}
}

/* The softmax of normal numbers: rows sum to about 1, in halves, too; and its logarithm. */
static void probabilities_sum_to_one(void **state)
{
	enum { COLUMNS = 50000 };
	static uint16_t halves[COLUMNS];
	static float logarithms[COLUMNS];
	double sum = 0, other = 0;
	(void)state;
	fill(OP_PROBABILITY, KILN_F16, COLUMNS, halves, sizeof(halves), 5);
	fill(OP_LOGARITHM, KILN_F32, COLUMNS, logarithms, sizeof(logarithms), 6);
	for (int i = 0; i < COLUMNS; i++) {
		double value = data_real(KILN_F16, &halves[i]);
		assert_true(value >= 0 && value < 1);
		assert_true(logarithms[i] < 0);
		sum += value;
		other += exp((double)logarithms[i]);
	}
	assert_true(fabs(sum - 1) < 0.1);
	assert_true(fabs(other - 1) < 0.05);
}

static void bits_are_any(void **state)
{
	uint8_t bytes[4000], bools[4000], again[4000];
	bool seen[256] = {false};
	unsigned values = 0;
	(void)state;
	fill(OP_BITS, KILN_F32, 10, bytes, sizeof(bytes), 3);
	for (int i = 0; i < 4000; i++)
		seen[bytes[i]] = true;
	for (int i = 0; i < 256; i++)
		assert_true(seen[i]);
	memset(bools, 0xff, sizeof(bools));
	fill(OP_BITS, KILN_BOOL, 10, bools, sizeof(bools), 3);
	for (int i = 0; i < 4000; i++)
		values |= 1u << bools[i];
	assert_int_equal(values, 3);
	fill(OP_BITS, KILN_BOOL, 10, again, sizeof(again), 3);
	assert_memory_equal(bools, again, sizeof(bools));
	fill(OP_BITS, KILN_BOOL, 10, again, sizeof(again), 4);
	assert_true(memcmp(bools, again, sizeof(bools)) != 0);
}

enum { MASK_ROWS = 400, MASK_COLUMNS = 9 };

static void fill_mask_of(const char *kind, int64_t keep, kiln_dtype dtype, int rank, void *space,
						 uint64_t bytes)
{
	const struct plan_op row = {.operands = {{.name = "x"}, {.name = "mask", .data = OP_MASK}}};
	struct cli_problem problem = {.row = &row, .tensor_count = 2, .attr_count = 2};
	problem.attrs[0] = (kiln_attr){.name = "kind", .kind = KILN_ATTR_STRING, .s = kind};
	problem.attrs[1] = (kiln_attr){.name = "keep", .kind = KILN_ATTR_INT, .i = keep};
	problem.tensors[0] =
		(kiln_tensor){.dtype = KILN_F32, .rank = 2, .shape = {MASK_ROWS, MASK_COLUMNS}};
	problem.tensors[1] = problem.tensors[0];
	problem.tensors[1].dtype = dtype;
	problem.tensors[1].rank = rank;
	data_operand(&problem, 1, space, bytes, 11);
}

/* Each row keeps a beginning; none, all and every number between are there. */
static void masks_are_of_padded_rows(void **state)
{
	static uint8_t flags[MASK_ROWS][MASK_COLUMNS], kept[MASK_ROWS][MASK_COLUMNS];
	static float added[MASK_ROWS][MASK_COLUMNS];
	int32_t lengths[MASK_ROWS];
	unsigned seen = 0, seen_lengths = 0;
	(void)state;
	fill_mask_of("bool", 0, KILN_BOOL, 2, flags, sizeof(flags));
	fill_mask_of("bool", 1, KILN_U8, 2, kept, sizeof(kept));
	fill_mask_of("additive", 0, KILN_F32, 2, added, sizeof(added));
	fill_mask_of("lengths", 0, KILN_I32, 1, lengths, sizeof(lengths));
	for (int i = 0; i < MASK_ROWS; i++) {
		int length = 0;
		while (length < MASK_COLUMNS && !flags[i][length])
			length++;
		for (int k = 0; k < MASK_COLUMNS; k++) {
			assert_int_equal(flags[i][k], k >= length);
			assert_true(k == 0 || (kept[i][k] != 0) <= (kept[i][k - 1] != 0));
			assert_true(isfinite(added[i][k]) || (isinf(added[i][k]) && added[i][k] < 0));
		}
		seen |= 1u << length;
		assert_in_range(lengths[i], 0, MASK_COLUMNS);
		seen_lengths |= 1u << lengths[i];
	}
	assert_int_equal(seen, (1u << (MASK_COLUMNS + 1)) - 1);
	assert_int_equal(seen_lengths, (1u << (MASK_COLUMNS + 1)) - 1);
}

static void close_is_close(void **state)
{
	float a[4] = {1, -2, 1e-6f, 0}, b[4] = {1, -2, 1e-6f, 0};
	int32_t i[2] = {100000, 3}, k[2] = {100000, 3};
	(void)state;
	assert_true(data_close(KILN_F32, a, b, sizeof(a)));
	b[0] = 1.0004f;
	b[2] = 2e-6f; /* small beside the others */
	assert_true(data_close(KILN_F32, a, b, sizeof(a)));
	b[0] = 1.01f;
	assert_false(data_close(KILN_F32, a, b, sizeof(a)));
	b[0] = NAN;
	assert_false(data_close(KILN_F32, a, b, sizeof(a)));
	assert_false(data_close(KILN_F32, b, a, sizeof(a)));
	a[0] = -(float)NAN;
	assert_true(data_close(KILN_F32, a, b, sizeof(a)));
	a[0] = b[0] = INFINITY;
	assert_true(data_close(KILN_F32, a, b, sizeof(a)));
	b[0] = -INFINITY;
	assert_false(data_close(KILN_F32, a, b, sizeof(a)));
	/* Integers are equal or wrong. */
	assert_true(data_close(KILN_I32, i, k, sizeof(i)));
	k[0]++;
	assert_false(data_close(KILN_I32, i, k, sizeof(i)));
	assert_true(data_close(KILN_I32, i, k, 0));
}

static void random_values_are_valid(void **state)
{
	enum { COUNT = 1000 };
	static uint8_t space[16 * COUNT], again[16 * COUNT];
	int ones = 0;
	(void)state;
	for (int dtype = KILN_F16; dtype <= KILN_F8E5M2; dtype++) {
		size_t size = kiln_dtype_size(dtype), part = size;
		kiln_dtype real = dtype;
		if (dtype == KILN_C64 || dtype == KILN_C128) {
			real = dtype == KILN_C64 ? KILN_F32 : KILN_F64;
			part = size / 2;
		}
		data_random(dtype, space, COUNT * size, 3);
		data_random(dtype, again, COUNT * size, 3);
		assert_memory_equal(space, again, COUNT * size);
		data_random(dtype, again, COUNT * size, 4);
		assert_memory_not_equal(space, again, COUNT * size);
		for (size_t at = 0; is_real(real) && at < COUNT * size; at += part)
			assert_true(fabs(data_real(real, space + at)) < 3.6);
		for (int i = 0; dtype == KILN_BOOL && i < COUNT; i++) {
			assert_true(space[i] <= 1);
			ones += space[i];
		}
	}
	assert_true(ones > 400 && ones < 600);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(halves_are_read),          cmocka_unit_test(reals_are_about_normal),
		cmocka_unit_test(probabilities_sum_to_one), cmocka_unit_test(bits_are_any),
		cmocka_unit_test(masks_are_of_padded_rows), cmocka_unit_test(close_is_close),
		cmocka_unit_test(random_values_are_valid),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
