/*
 * test_map_eval: the interpreter that statements are verified by, against the same thing written
 * in C: its values, and that what is wrong by more than rounding is noticed.
 */
#include "tests/ops/map/eval.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 6
#define COLUMNS 8

static float x[ROWS][COLUMNS], b[COLUMNS];
static int32_t k[COLUMNS];
static uint8_t idx[ROWS];
static double s = 2.5;

static void fill(void)
{
	for (int i = 0; i < ROWS; i++) {
		idx[i] = (uint8_t)(i * 3 % COLUMNS);
		for (int j = 0; j < COLUMNS; j++)
			x[i][j] = sinf((float)(i * COLUMNS + j)) * 3;
	}
	for (int j = 0; j < COLUMNS; j++) {
		b[j] = (float)j / 4 - 1;
		k[j] = j * j - 20;
	}
}

/* A statement over x, b, k, idx and s that makes y, of rank 2, 1 or 0. */
static struct eval *open_statement(const char *statement, kiln_dtype dtype, int rank,
								   const char *bounds)
{
	const struct eval_operand operands[] = {
		{"x", KILN_F32, 2, {ROWS, COLUMNS}, {COLUMNS, 1}, x},
		{"b", KILN_F32, 1, {COLUMNS}, {1}, b},
		{"k", KILN_I32, 1, {COLUMNS}, {1}, k},
		{"idx", KILN_U8, 1, {ROWS}, {1}, idx},
		{"y", dtype, rank, {ROWS, COLUMNS}, {COLUMNS, 1}, NULL},
	};
	struct eval *eval = calloc(1, sizeof(*eval));
	const char *wrong;

	assert_non_null(eval);
	eval->statement = statement;
	eval->bounds = bounds;
	eval->operands = 5;
	memcpy(eval->operand, operands, sizeof(operands));
	eval->scalars = 1;
	eval->scalar[0] = (struct eval_scalar){.name = "s", .real = true, .f = s};
	wrong = eval_open(eval);
	if (wrong)
		fail_msg("%s: %s", statement, wrong);
	return eval;
}

/* ---- The same in C ---- */

static double affine(int i, int j)
{
	return (double)x[i][j] * s + (double)b[j];
}
static double mixed(int i, int j)
{
	return (double)x[i][j] * k[j] - 7 / 2 + i % 4 * 0.5;
}
static double chosen(int i, int j)
{
	return x[i][j] > b[j] ? exp((double)x[i][j]) : -fabs((double)b[j]);
}
static double shifted(int i, int j)
{
	return (double)x[i][COLUMNS - 1 - j] + (double)x[i][idx[i]];
}
static double edges(int i, int j)
{
	return (j > 0 ? (double)x[i][j - 1] : 0) + (j < COLUMNS - 1 ? (double)x[i][j + 1] : 0);
}
static double nearest(int i, int j)
{
	return (double)x[i][j > 0 ? j - 1 : 0];
}
static double functions(int i, int j)
{
	double at = (double)x[i][j];
	return tanh(at) + fmin(fmax(at, -1), s) + 1 / sqrt(1 + at * at) + floor((double)b[j]) +
		   pow(fabs(at), 1.5);
}
static double precedence(int i, int j)
{
	return ((((2 + (3 * k[j])) * 2) & 60) | (1 ^ i)) + ((k[j] < 0 || (i > 2 && j != 3)) ? 100 : 0);
}

static void elements(void **state)
{
	static const struct {
		const char *statement, *bounds;
		kiln_dtype dtype;
		double (*right)(int i, int j);
	} rows[] = {
		{"y[i,j] = x[i,j] * s + b[j]", "check", KILN_F32, affine},
		{"y[i,j] = x[i,j] * k[j] - 7 / 2 + i % 4 * 0.5", "check", KILN_F32, mixed},
		{"y[i,j] = x[i,j] > b[j] ? exp(x[i,j]) : -abs(b[j])", "check", KILN_F32, chosen},
		{"y[i,j] = x[i,7-j] + x[i,idx[i]]", "check", KILN_F32, shifted},
		{"y[i,j] = x[i,j-1] + x[i,j+1]", "zero", KILN_F32, edges},
		{"y[i,j] = x[i,j-1]", "clamp", KILN_F32, nearest},
		{"y[i,j] = tanh(x[i,j]) + clamp(x[i,j], -1, s) + rsqrt(1 + x[i,j] * x[i,j]) + floor(b[j]) "
		 "+ pow(abs(x[i,j]), 1.5)",
		 "check", KILN_F32, functions},
		{"y[i,j] = (2 + 3 * k[j] << 1 & 60 | 1 ^ i) + (k[j] < 0 || i > 2 && j != 3 ? 100 : 0)",
		 "check", KILN_I32, precedence},
	};
	(void)state;
	fill();
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		struct eval *eval = open_statement(rows[r].statement, rows[r].dtype, 2, rows[r].bounds);
		for (int e = 0; e < ROWS * COLUMNS; e++) {
			struct eval_value value = eval_element(eval, e);
			double expected = rows[r].right(e / COLUMNS, e % COLUMNS), got, allowed;
			float single = (float)expected;
			int32_t whole = (int32_t)expected;
			if (rows[r].dtype == KILN_I32) {
				assert_int_equal(value.whole, whole);
				assert_true(eval_fits(KILN_I32, &whole, 0, &value, &got, &allowed));
				whole++;
				assert_false(eval_fits(KILN_I32, &whole, 0, &value, &got, &allowed));
				continue;
			}
			if (!eval_fits(KILN_F32, &single, 0, &value, &got, &allowed))
				fail_msg("%s: element %d is %.9g +- %.3g, not %.9g", rows[r].statement, e,
						 value.value, allowed, expected);
			assert_true(allowed < 1e-4 * (fabs(expected) + 1));
			single = nextafterf((float)(expected + 3 * allowed), INFINITY);
			assert_false(eval_fits(KILN_F32, &single, 0, &value, &got, &allowed));
			single = NAN;
			assert_false(eval_fits(KILN_F32, &single, 0, &value, &got, &allowed));
		}
		free(eval);
	}
}

static void sums(void **state)
{
	struct eval *sum = open_statement("y[i] += x[i,j] * b[j]", KILN_F32, 1, "check");
	struct eval *most = open_statement("y[i] max= x[i,j]", KILN_F32, 1, "check");
	struct eval *count = open_statement("y += x[i,j] > 0", KILN_I64, 0, "check");
	int64_t positive = 0;

	(void)state;
	fill();
	for (int i = 0; i < ROWS; i++) {
		double all = 0, largest = -INFINITY;
		struct eval_value value = eval_element(sum, i);
		for (int j = 0; j < COLUMNS; j++) {
			all += (double)x[i][j] * (double)b[j];
			largest = fmax(largest, (double)x[i][j]);
			positive += x[i][j] > 0;
		}
		assert_true(fabs(value.value - all) < 1e-12);
		assert_true(value.error > 0 && value.error < 1e-4);
		assert_true(eval_element(most, i).value == largest);
	}
	assert_int_equal(eval_element(count, 0).whole, positive);
	free(sum);
	free(most);
	free(count);
}

/* A result that depends on rounding is not held against a kernel; one that strays is counted. */
static void doubts(void **state)
{
	struct eval *eval =
		open_statement("y[i] = f32(idx[i]) * 0.1 * 10 < idx[i]", KILN_BOOL, 1, "check");
	struct eval *stray = open_statement("y[i] = x[i + 3,0]", KILN_F32, 1, "check");
	uint8_t either[] = {0, 1};
	double got, allowed;
	struct eval_value value;

	(void)state;
	fill();
	value = eval_element(eval, 1);
	assert_true(eval_fits(KILN_BOOL, either, 0, &value, &got, &allowed));
	assert_true(eval_fits(KILN_BOOL, either, 1, &value, &got, &allowed));
	for (int i = 0; i < ROWS; i++)
		value = eval_element(stray, i);
	assert_int_equal(stray->strays, 3);
	assert_true(value.value == 0);
	free(eval);
	free(stray);
}

/* ---- Types ---- */

/* A statement over a and b of these dtypes, of four elements each. */
static struct eval *open_pair(const char *statement, kiln_dtype dtype_a, const void *of_a,
							  kiln_dtype dtype_b, const void *of_b, kiln_dtype dtype_y)
{
	struct eval *eval = calloc(1, sizeof(*eval));
	const char *wrong;

	assert_non_null(eval);
	eval->statement = statement;
	eval->bounds = "check";
	eval->operands = 3;
	eval->operand[0] = (struct eval_operand){"a", dtype_a, 1, {4}, {1}, of_a};
	eval->operand[1] = (struct eval_operand){"b", dtype_b, 1, {4}, {1}, of_b};
	eval->operand[2] = (struct eval_operand){"y", dtype_y, -1, {0}, {0}, NULL};
	wrong = eval_open(eval);
	if (wrong)
		fail_msg("%s: %s", statement, wrong);
	return eval;
}

static void dtypes(void **state)
{
	static const struct {
		const char *statement;
		kiln_dtype a, b, y;
	} rows[] = {
		{"y[i] = b[i] ? 0 : a[i] * 2", KILN_F16, KILN_BOOL, KILN_F16},
		{"y[i] = a[i] + b[i]", KILN_F16, KILN_F32, KILN_F32},
		{"y[i] = a[i] + b[i]", KILN_BF16, KILN_F16, KILN_F32},
		{"y[i] = a[i] * b[i]", KILN_I64, KILN_F16, KILN_F16},
		{"y[i] = a[i] * b[i]", KILN_I8, KILN_I8, KILN_I8},
		{"y[i] = a[i] * b[i]", KILN_I8, KILN_U16, KILN_I32},
		{"y[i] = a[i] * b[i]", KILN_I8, KILN_U32, KILN_I64},
		{"y[i] = -a[i] + b[i]", KILN_U32, KILN_BOOL, KILN_U32},
		{"y[i] = a[i] + b[i]", KILN_BOOL, KILN_BOOL, KILN_I32},
		{"y[i] = a[i] | b[i]", KILN_BOOL, KILN_BOOL, KILN_BOOL},
		{"y[i] = b[i] ? a[i] : 0.5", KILN_I64, KILN_BOOL, KILN_F32},
		{"y[i] = !a[i] && b[i]", KILN_F32, KILN_F64, KILN_BOOL},
		{"y[i] = exp(a[i]) * b[i]", KILN_I32, KILN_U8, KILN_F32},
		{"y[i] = u8(a[i] * 255) * b[i]", KILN_F32, KILN_BOOL, KILN_U8},
		{"y[i] = a[b[i]]", KILN_F16, KILN_I64, KILN_F16},
		{"y[i] = a[i] > 0 || isnan(b[i]) ? 1 : 2", KILN_F16, KILN_F32, KILN_I64},
		{"y += a[i] && b[i]", KILN_F16, KILN_F16, KILN_I64},
		{"y max= a[i] && b[i]", KILN_F16, KILN_F16, KILN_BOOL},
		/* The daemon has words for these; here they must only come to an end. */
		{"y[i] = a + b[", KILN_F16, KILN_F16, KILN_F16},
		{"y[i] = ", KILN_F16, KILN_F16, KILN_I64},
		{"y[i] = min(", KILN_F16, KILN_F16, KILN_I64},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct eval *eval = open_pair(rows[i].statement, rows[i].a, NULL, rows[i].b, NULL, 0);
		if (eval_dtype(eval) != rows[i].y)
			fail_msg("%s: dtype %d and not %d", rows[i].statement, eval_dtype(eval), rows[i].y);
		free(eval);
	}
}

/* The least and the largest are terms, also where the output's type holds none of them. */
static void ends_are_terms(void **state)
{
	static const uint32_t large[4] = {4000000000, 3000000000, 3500000000, UINT32_MAX};
	static const int64_t low[4] = {-5000000000, -6000000000, -7000000000, -8000000000};
	struct eval *least = open_pair("y min= b[i]", KILN_F32, NULL, KILN_U32, large, KILN_U16);
	struct eval *most = open_pair("y max= b[i]", KILN_F32, NULL, KILN_I64, low, KILN_U32);

	(void)state;
	assert_true(eval_element(least, 0).whole == 3000000000);
	assert_true(eval_element(most, 0).whole == -5000000000);
	free(least);
	free(most);
}

/* Integers are of the type that they are computed in, whatever they are written to. */
static void integers_wrap(void **state)
{
	static const int32_t large[4] = {2000000000, -2000000000, INT32_MIN, 7};
	static const uint32_t small[4] = {1, 33, 3, 4};
	static const uint64_t huge[4] = {UINT64_MAX, UINT64_C(1) << 63, 5, 0};
	static const uint8_t truths[4] = {1, 0, 1, 0};
	static const struct {
		const char *statement;
		kiln_dtype b;
		const void *of_b;
		int64_t first, second;
	} rows[] = {
		{"y[i] = a[i] * a[i]", KILN_U32, small, -1651507200, -1651507200},
		{"y[i] = a[i] - b[i]", KILN_U32, small, 1999999999, -2000000033},
		{"y[i] = b[i] - 2", KILN_U32, small, UINT32_MAX, 31},
		{"y[i] = u8(a[i]) << i32(b[i])", KILN_U32, small, 0, 0},
		{"y[i] = ~b[i]", KILN_U32, small, UINT32_MAX - 1, UINT32_MAX - 33},
		{"y[i] = -abs(a[i] - 300000000)", KILN_U32, small, -1700000000, -1994967296},
		{"y[i] = a[i] << b[i]", KILN_I32, small, -294967296, 294967296},
		{"y[i] = b[i] / 2", KILN_U64, huge, INT64_MAX, INT64_C(1) << 62},
		{"y[i] = b[i] >> 60", KILN_U64, huge, 15, 8},
		{"y[i] = b[i] > 9 ? 1 : 0", KILN_U64, huge, 1, 1},
		{"y[i] = max(b[i], 9)", KILN_U64, huge, -1, INT64_MIN},
		{"y[i] = b[i] - 2", KILN_BOOL, truths, -1, -2},
		{"y[i] = b[i] - u32(2)", KILN_BOOL, truths, UINT32_MAX, UINT32_MAX - 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct eval *eval =
			open_pair(rows[i].statement, KILN_I32, large, rows[i].b, rows[i].of_b, KILN_I64);
		int64_t got[2];
		for (int e = 0; e < 2; e++)
			got[e] = eval_element(eval, e).whole;
		if (got[0] != rows[i].first || got[1] != rows[i].second)
			fail_msg("%s: %lld and %lld", rows[i].statement, (long long)got[0], (long long)got[1]);
		free(eval);
	}
}

/* An operand of size 1 says nothing of an index that another has. */
static void sizes(void **state)
{
	struct eval *eval = calloc(1, sizeof(*eval));

	(void)state;
	assert_non_null(eval);
	eval->statement = "y[i,j] = a[i,j] + b[i,j]";
	eval->bounds = "check";
	eval->operands = 3;
	eval->operand[0] = (struct eval_operand){"a", KILN_F32, 2, {1, 5}, {5, 1}, NULL};
	eval->operand[1] = (struct eval_operand){"b", KILN_F32, 2, {4, 1}, {1, 1}, NULL};
	eval->operand[2] = (struct eval_operand){"y", KILN_F32, -1, {0}, {0}, NULL};
	assert_null(eval_open(eval));
	assert_int_equal(eval->extent[0], 4);
	assert_int_equal(eval->extent[1], 5);
	/* The output's own are what they are. */
	eval->operand[2].rank = 2;
	eval->operand[2].shape[0] = eval->operand[2].shape[1] = 1;
	assert_null(eval_open(eval));
	assert_int_equal(eval->extent[0], 1);
	assert_int_equal(eval->extent[1], 1);
	free(eval);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements),      cmocka_unit_test(sums),
		cmocka_unit_test(doubts),        cmocka_unit_test(dtypes),
		cmocka_unit_test(integers_wrap), cmocka_unit_test(ends_are_terms),
		cmocka_unit_test(sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
