/* The kiln command's data: values that are valid for their type, and results that are close. */
#include "client/kiln_data.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

/* The library's function, which this program does not link. */
size_t kiln_dtype_size(kiln_dtype dtype)
{
	switch (dtype) {
#define SIZE(NAME, name, value, bytes) \
	case value:                        \
		return bytes;
		KILN_DTYPE_LIST(SIZE)
#undef SIZE
	default:
		return 0;
	}
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
		data_fill(dtypes[d], space, COUNT * size, 7);
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

static void integers_are_small(void **state)
{
	int32_t ints[4000];
	uint8_t bools[4000], again[4000];
	unsigned seen = 0;
	(void)state;
	memset(ints, 0xff, sizeof(ints));
	data_fill(KILN_I32, ints, sizeof(ints), 3);
	for (int i = 0; i < 4000; i++) {
		assert_in_range(ints[i], 0, 15);
		seen |= 1u << ints[i];
	}
	assert_int_equal(seen, 0xffff);
	data_fill(KILN_BOOL, bools, sizeof(bools), 3);
	seen = 0;
	for (int i = 0; i < 4000; i++)
		seen |= 1u << bools[i];
	assert_int_equal(seen, 3);
	data_fill(KILN_BOOL, again, sizeof(again), 3);
	assert_memory_equal(bools, again, sizeof(bools));
	data_fill(KILN_BOOL, again, sizeof(again), 4);
	assert_true(memcmp(bools, again, sizeof(bools)) != 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(halves_are_read),
		cmocka_unit_test(reals_are_about_normal),
		cmocka_unit_test(integers_are_small),
		cmocka_unit_test(close_is_close),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
