/*
 * test_cases: the list of cases as a measure: numbers round once, data are what they are called,
 * and judges find what is wrong.
 */
#include "tests/ops/common/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Numbers ---- */

static void narrow_floats_round_once(void **state)
{
	static const struct {
		kiln_dtype dtype;
		double value;
		uint16_t bits;
	} rows[] = {
		{KILN_F16, 0, 0x0000},
		{KILN_F16, -0.0, 0x8000},
		{KILN_F16, 1, 0x3c00},
		{KILN_F16, -2.5, 0xc100},
		{KILN_F16, 1 + 0x1p-11, 0x3c00},           /* a tie, to even below */
		{KILN_F16, 1 + 0x3p-11, 0x3c02},           /* ... above */
		{KILN_F16, 1 + 0x1p-11 + 0x1p-50, 0x3c01}, /* a little more: twice rounded it were even */
		{KILN_F16, 1 + 0x3p-11 - 0x1p-50, 0x3c01},
		{KILN_F16, 2 - 0x1p-12, 0x4000}, /* a carry into the exponent */
		{KILN_F16, 65504, 0x7bff},
		{KILN_F16, 65519.99, 0x7bff},
		{KILN_F16, 65520, 0x7c00},
		{KILN_F16, -1e300, 0xfc00},
		{KILN_F16, 0x1p-14, 0x0400},
		{KILN_F16, 0x1p-14 - 0x1p-26, 0x0400}, /* a carry out of the subnormals */
		{KILN_F16, 0x1p-24, 0x0001},
		{KILN_F16, 0x1p-25, 0x0000},
		{KILN_F16, 0x1p-25 + 0x1p-60, 0x0001},
		{KILN_F16, 0x3p-25, 0x0002},
		{KILN_F16, -1e-300, 0x8000},
		{KILN_F16, INFINITY, 0x7c00},
		{KILN_BF16, 1, 0x3f80},
		{KILN_BF16, 1 + 0x1p-8, 0x3f80},
		{KILN_BF16, 1 + 0x3p-8, 0x3f82},
		{KILN_BF16, 1 + 0x1p-8 + 0x1p-40, 0x3f81},
		{KILN_BF16, 0x1.ffp127, 0x7f80},
		{KILN_BF16, 0x1.fep127, 0x7f7f},
		{KILN_BF16, 0x1p-133, 0x0001},
		{KILN_BF16, 0x1p-134, 0x0000},
		{KILN_BF16, -INFINITY, 0xff80},
	};
	uint16_t bits;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cases_put(rows[i].dtype, &bits, 0, rows[i].value);
		assert_int_equal(bits, rows[i].bits);
	}
	for (int half = 0; half < 2; half++) {
		kiln_dtype dtype = half ? KILN_F16 : KILN_BF16;
		for (uint32_t i = 0; i < 65536; i++) {
			uint16_t from = (uint16_t)i;
			double value = cases_get(dtype, &from, 0);
			cases_put(dtype, &bits, 0, value);
			if (isnan(value))
				assert_true(isnan(cases_get(dtype, &bits, 0)));
			else
				assert_int_equal(bits, from);
		}
	}
}

/* Between two numbers of 8 bits the nearer one counts, in the middle the even one. */
static void floats_of_eight_bits_are_rounded(void **state)
{
	static const struct {
		kiln_dtype dtype;
		int fraction, least, most; /* most: the code of the largest number */
		uint8_t over;              /* what is beyond */
	} types[] = {{KILN_F8E4M3, 3, -9, 0x7e, 0x7f}, {KILN_F8E5M2, 2, -16, 0x7b, 0x7c}};

	(void)state;
	for (int t = 0; t < 2; t++) {
		double number[2] = {0, ldexp(1, types[t].least)}, step = number[1];
		for (int code = 0; code <= types[t].most; code++) {
			uint8_t bits[4] = {(uint8_t)code}, next = (uint8_t)(code + 1);
			double middle = (number[0] + number[1]) / 2;
			next = code == types[t].most ? types[t].over : next;
			assert_true(cases_get(types[t].dtype, bits, 0) == number[0]);
			cases_put(types[t].dtype, bits, 0, -number[0]);
			assert_int_equal(bits[0], code | 0x80);
			cases_put(types[t].dtype, bits, 1, nextafter(middle, 0));
			cases_put(types[t].dtype, bits, 2, middle);
			cases_put(types[t].dtype, bits, 3, nextafter(middle, 1e9));
			assert_int_equal(bits[1], code);
			assert_int_equal(bits[2], code % 2 ? next : code);
			assert_int_equal(bits[3], next);
			/* The steps double after each whole round of fractions. */
			number[0] = number[1];
			step *= code + 1 >= 2 << types[t].fraction && (code + 1) % (1 << types[t].fraction) == 0
						? 2
						: 1;
			number[1] += step;
		}
	}
	for (int code = 0x7c; code < 0x80; code++) {
		uint8_t bits = (uint8_t)code;
		double value = cases_get(KILN_F8E5M2, &bits, 0);
		assert_true(code == 0x7c ? value == (double)INFINITY : isnan(value));
		assert_true(code < 0x7f || isnan(cases_get(KILN_F8E4M3, &bits, 0)));
	}
}

static void numbers_come_back(void **state)
{
	static const struct {
		kiln_dtype dtype;
		double least, most;
	} rows[] = {
		{KILN_I8, -128, 127},
		{KILN_U8, 0, 255},
		{KILN_BOOL, 0, 1},
		{KILN_I16, -32768, 32767},
		{KILN_U16, 0, 65535},
		{KILN_I32, INT32_MIN, INT32_MAX},
		{KILN_U32, 0, UINT32_MAX},
		{KILN_I64, -0x1p62, 0x1p62},
		{KILN_U64, 0, 0x1p63},
		{KILN_F32, -0x1.fffffep127, 0x1p-149},
		{KILN_F64, -1e308, 0x1p-1074},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unsigned char memory[4 * 8];
		memset(memory, 0x5a, sizeof(memory));
		cases_put(rows[i].dtype, memory, 1, rows[i].least);
		cases_put(rows[i].dtype, memory, 2, rows[i].most);
		assert_true(cases_get(rows[i].dtype, memory, 1) == rows[i].least);
		assert_true(cases_get(rows[i].dtype, memory, 2) == rows[i].most);
		assert_int_equal(memory[0], 0x5a);
	}
}

/* ---- Data ---- */

#define ROWS 70
#define COLUMNS 40

static struct cases_operand matrix(kiln_dtype dtype, enum cases_fill fill)
{
	struct cases_operand operand = {
		.dtype = dtype, .rank = 2, .shape = {ROWS, COLUMNS}, .fill = fill};

	cases_contiguous(&operand);
	return operand;
}

/* The whole, and the same in parts. */
static double *filled(const struct cases_operand *operand, uint64_t seed)
{
	uint64_t bytes = cases_bytes(operand);
	int64_t count = (int64_t)(bytes / cases_element(operand)), rows = cases_rows(operand);
	char *whole = malloc(bytes), *parts = malloc(bytes), *other = malloc(bytes);
	double *values = malloc((size_t)count * sizeof(*values));

	assert_true(whole && parts && other && values);
	cases_fill_operand(operand, whole, seed);
	for (int64_t i = 0; i < count; i += 64)
		cases_fill_memory(operand, parts, i, i + 64 < count ? i + 64 : count, seed);
	for (int64_t row = rows - 1; row >= 0; row--)
		cases_fill_rows(operand, parts, row, row + 1, seed);
	assert_memory_equal(whole, parts, bytes);
	cases_fill_operand(operand, other, seed + 1);
	assert_memory_not_equal(whole, other, bytes);
	for (int64_t i = 0; i < count; i++)
		values[i] = cases_get(operand->dtype, whole, i);
	free(whole);
	free(parts);
	free(other);
	return values;
}

static void data_are_as_called(void **state)
{
	struct cases_operand normal = matrix(KILN_F32, CASES_NORMAL);
	double *values, sum = 0, squares = 0;
	const double count = ROWS * COLUMNS;

	(void)state;
	normal.mean = 100;
	normal.deviation = 3;
	values = filled(&normal, 5);
	for (int i = 0; i < ROWS * COLUMNS; i++) {
		sum += values[i] - 100;
		squares += (values[i] - 100) * (values[i] - 100);
	}
	assert_true(fabs(sum / count) < 0.3);
	assert_true(fabs(squares / count / 9 - 1) < 0.1);
	free(values);

	struct cases_operand probable = matrix(KILN_F64, CASES_PROBABLE);
	values = filled(&probable, 5);
	for (int row = 0; row < ROWS; row++) {
		sum = 0;
		for (int k = 0; k < COLUMNS; k++) {
			assert_true(values[row * COLUMNS + k] > 0);
			sum += values[row * COLUMNS + k];
		}
		assert_true(sum > 0.4 && sum < 1.8);
	}
	free(values);

	struct cases_operand logarithm = matrix(KILN_F64, CASES_LOGARITHM);
	values = filled(&logarithm, 5);
	for (int row = 0; row < ROWS; row++) {
		sum = 0;
		for (int k = 0; k < COLUMNS; k++)
			sum += exp(values[row * COLUMNS + k]);
		assert_true(sum > 0.4 && sum < 1.8);
	}
	free(values);
}

static void rows_are_unusual(void **state)
{
	struct cases_operand operand = matrix(KILN_BF16, CASES_UNUSUAL);
	int ordinary = 0, none = 0, plus = 0, minus = 0, all = 0;
	double *values = filled(&operand, 9);

	(void)state;
	for (int row = 0; row < ROWS; row++) {
		int finite = 0, nans = 0, ups = 0, downs = 0;
		for (int k = 0; k < COLUMNS; k++) {
			double value = values[row * COLUMNS + k];
			finite += isfinite(value) != 0;
			nans += isnan(value) != 0;
			ups += value == INFINITY;
			downs += value == -INFINITY;
		}
		ordinary += finite == COLUMNS;
		none += nans == 1;
		plus += ups == 1;
		minus += downs > 0 && downs < COLUMNS;
		all += downs == COLUMNS;
	}
	assert_int_equal(ordinary, 30);
	assert_int_equal(none, 10);
	assert_int_equal(plus, 10);
	assert_int_equal(minus, 10);
	assert_int_equal(all, 10);
	free(values);
}

static void flags_and_lengths(void **state)
{
	struct cases_operand flags = matrix(KILN_U8, CASES_FLAGS);
	struct cases_operand lengths = matrix(KILN_I32, CASES_LENGTHS);
	int zero = 0, full = 0, mixed = 0, below = 0, above = 0, most = 0, large = 0;
	double *values = filled(&flags, 2);

	(void)state;
	for (int row = 0; row < ROWS; row++) {
		int set = 0;
		for (int k = 0; k < COLUMNS; k++) {
			set += values[row * COLUMNS + k] != 0;
			large += values[row * COLUMNS + k] > 1;
		}
		zero += set == 0;
		full += set == COLUMNS;
		mixed += set > 0 && set < COLUMNS;
	}
	assert_true(zero >= 14 && full >= 14 && mixed >= 28 && large > 100);
	free(values);
	lengths.most = 33;
	values = filled(&lengths, 2);
	for (int i = 0; i < ROWS * COLUMNS; i++) {
		below += values[i] < 0;
		above += values[i] > 33;
		most += values[i] == 33;
		zero += values[i] >= 0 && values[i] < 33;
	}
	assert_true(below > 100 && above > 100 && most > 50 && zero > ROWS * COLUMNS / 2);
	free(values);
}

/* ---- Judging ---- */

static void one_number_is_judged(void **state)
{
	static const struct {
		double got, expected, relative, absolute;
		bool wrong;
	} rows[] = {
		{1, 1, 0, 0, false},
		{1.01, 1, 0.01000001, 0, false},
		{1.02, 1, 0.01, 0, true},
		{0, 1, 0, 1, false},
		{-1, 1, 0.5, 1, true},
		{NAN, NAN, 0, 0, false},
		{NAN, 1, 1e9, 1e9, true},
		{1, NAN, 1e9, 1e9, true},
		{INFINITY, INFINITY, 0, 0, false},
		{INFINITY, -INFINITY, 1, 1, true},
		{1e308, INFINITY, 1, 1, true},
		{INFINITY, 1e308, 1, 1, true},
		{-INFINITY, NAN, 1, 1, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cases_verdict verdict = {0};
		cases_judge_value(&verdict, 3, 17, rows[i].got, rows[i].expected, rows[i].relative,
						  rows[i].absolute);
		assert_int_equal(verdict.wrong, rows[i].wrong);
		if (!verdict.wrong)
			continue;
		/* what was noted first stays */
		cases_judge_value(&verdict, 4, 18, 5, 6, 0, 0);
		assert_int_equal(verdict.operand, 3);
		assert_int_equal(verdict.element, 17);
	}
}

struct operands {
	char *memory[CASES_MAX_OPERANDS];
	const void *first[CASES_MAX_OPERANDS];
};

static void fill_case(const struct cases_case *c, int poison, struct operands *out)
{
	memset(out, 0, sizeof(*out));
	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *o = &c->operand[i];
		if (o->dtype == KILN_DTYPE_NONE)
			continue;
		out->memory[i] = malloc(cases_bytes(o) + 1);
		assert_non_null(out->memory[i]);
		out->first[i] = out->memory[i];
		if (o->output)
			memset(out->memory[i], poison, cases_bytes(o));
		else
			cases_fill_operand(o, out->memory[i], 3 + (uint64_t)i);
	}
}

/* No judge takes both of two sorts of bytes that nobody wrote for the answer. */
static void judges_miss_nothing_written(void **state)
{
	int count;
	const struct cases_case *list = cases_all(&count);

	(void)state;
	for (int i = 0; i < count; i++) {
		const struct cases_case *c = &list[i];
		int64_t written = 0, bytes = 0;
		bool wrong = false;
		for (int k = 0; k < c->operand_count; k++) {
			written += c->operand[k].output ? cases_elements(&c->operand[k]) : 0;
			bytes += (int64_t)cases_bytes(&c->operand[k]);
		}
		if (bytes > 1 << 18)
			continue;
		for (int poison = 0; poison < 2; poison++) {
			struct cases_verdict verdict = {0};
			struct operands operands;
			fill_case(c, poison ? 0xff : 0x41, &operands);
			cases_judge(c, operands.first, 0, c->op->units(c), &verdict);
			wrong = wrong || verdict.wrong;
			for (int k = 0; k < c->operand_count; k++)
				free(operands.memory[k]);
		}
		if (wrong != (written > 0))
			fail_msg("%s: %s", c->name, wrong ? "nothing is wrong" : "no result was taken for one");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(narrow_floats_round_once),
		cmocka_unit_test(floats_of_eight_bits_are_rounded),
		cmocka_unit_test(numbers_come_back),
		cmocka_unit_test(data_are_as_called),
		cmocka_unit_test(rows_are_unusual),
		cmocka_unit_test(flags_and_lengths),
		cmocka_unit_test(one_number_is_judged),
		cmocka_unit_test(judges_miss_nothing_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
