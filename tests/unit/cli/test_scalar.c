/* Numbers by value on the command line: every bit of what a kernel is given, and the sentences. */
#include "client/cli/scalar.c"

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

static char sentence[512];

/* Stands for the command's, to see its sentence. */
int cli_usage(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(sentence, sizeof(sentence), format, list);
	va_end(list);
	return CLI_USAGE;
}

static uint64_t bits_of(const char *text)
{
	uint8_t value[8] = {0};
	uint64_t bits = 0;
	kiln_dtype dtype;
	if (cli_scalar("--scalar", text, &dtype, value) != CLI_OK)
		fail_msg("%s", sentence);
	memcpy(&bits, value, kiln_dtype_size(dtype));
	return bits;
}

static void integers_are_exact(void **state)
{
	static const struct {
		const char *text;
		uint64_t bits;
	} rows[] = {
		{"i8:-128", 0x80},
		{"i8:127", 0x7f},
		{"u8:255", 0xff},
		{"i16:-1", 0xffff},
		{"u16:65535", 0xffff},
		{"i32:-2147483648", 0x80000000},
		{"u32:4294967295", 0xffffffff},
		{"i64:-9223372036854775808", 0x8000000000000000},
		{"i64:9223372036854775807", 0x7fffffffffffffff},
		{"u64:18446744073709551615", 0xffffffffffffffff},
		{"u64:0", 0},
		{"bool:1", 1},
		{"bool:0", 0},
		{"i32:-0", 0},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(bits_of(rows[i].text), rows[i].bits);
}

static void reals_are_rounded_once(void **state)
{
	static const struct {
		const char *text;
		uint64_t bits;
	} rows[] = {
		{"f64:0.1", 0x3fb999999999999a},
		{"f32:0.1", 0x3dcccccd},
		{"f32:-0", 0x80000000},
		{"f32:inf", 0x7f800000},
		{"f16:1", 0x3c00},
		{"f16:-1.875", 0xbf80},
		{"f16:65504", 0x7bff},
		{"f16:65519.9", 0x7bff},
		{"f16:65520", 0x7c00},
		{"f16:1e9", 0x7c00},
		{"f16:-inf", 0xfc00},
		{"f16:nan", 0x7e00},
		{"f16:-0.0", 0x8000},
		{"f16:5.9604644775390625e-8", 0x0001},  /* the least */
		{"f16:2.98023223876953125e-8", 0x0000}, /* half of it: a tie, to even */
		{"f16:2.99e-8", 0x0001},
		{"f16:6.1035156e-05", 0x0400},  /* the least normal one */
		{"f16:6.09755516e-05", 0x03ff}, /* and the one below */
		{"f16:1.00048828125", 0x3c00},  /* ties */
		{"f16:1.00146484375", 0x3c02},
		{"f16:2047.5", 0x6800}, /* over into the exponent: 2048 */
		{"bf16:1", 0x3f80},
		{"bf16:-3.140625", 0xc049},
		{"bf16:1.00390625", 0x3f80}, /* ties */
		{"bf16:1.01171875", 0x3f82},
		{"bf16:3.4e38", 0x7f80}, /* beyond the largest, 3.39e38 */
		{"bf16:3.3895e38", 0x7f7f},
		{"bf16:9.2e-41", 0x0001}, /* the least */
		{"bf16:nan", 0x7fc0},
		{"f8e4m3:-1.5", 0xbc},
		{"f8e4m3:464", 0x7e}, /* a tie, to the largest */
		{"f8e4m3:464.1", 0x7f},
		{"f8e4m3:-inf", 0xff},
		{"f8e4m3:nan", 0x7f},
		{"f8e4m3:0.0009765625", 0x00}, /* half of the least */
		{"f8e4m3:0.00098", 0x01},
		{"f8e5m2:1.125", 0x3c}, /* ties */
		{"f8e5m2:-1.375", 0xbe},
		{"f8e5m2:61439", 0x7b},
		{"f8e5m2:61440", 0x7c},
		{"f8e5m2:1e-5", 0x01},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (bits_of(rows[i].text) != rows[i].bits)
			fail_msg("%s is %llx", rows[i].text, (unsigned long long)bits_of(rows[i].text));
}

static void others_are_refused(void **state)
{
	static const char *const rows[][2] = {
		{"i8:128", "--scalar 'i8:128': expected an integer from -128 to 127 after i8:"},
		{"i8:-129", "--scalar 'i8:-129': expected an integer from -128 to 127 after i8:"},
		{"u8:-1", "--scalar 'u8:-1': expected an integer from 0 to 255 after u8:"},
		{"u8:256", "--scalar 'u8:256': expected an integer from 0 to 255 after u8:"},
		{"bool:2", "--scalar 'bool:2': expected an integer from 0 to 1 after bool:"},
		{"i32:", "--scalar 'i32:': expected an integer from -2147483648 to 2147483647 after i32:"},
		{"i32:1.5",
		 "--scalar 'i32:1.5': expected an integer from -2147483648 to 2147483647 after i32:"},
		{"u64:18446744073709551616",
		 "--scalar 'u64:18446744073709551616': expected an integer from "
		 "0 to 18446744073709551615 after u64:"},
		{"f32:", "--scalar 'f32:': expected a number after f32:, as 0.125 or 1e-5"},
		{"f16:1x", "--scalar 'f16:1x': expected a number after f16:, as 0.125 or 1e-5"},
		{"f32", "--scalar 'f32': expected TYPE:VALUE, as f32:2.5, where TYPE is that of a real "
				"number, of an integer or bool"},
		{"c64:1", "--scalar 'c64:1': expected TYPE:VALUE, as f32:2.5, where TYPE is that of a real "
				  "number, of an integer or bool"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t value[8];
		kiln_dtype dtype;
		assert_int_equal(cli_scalar("--scalar", rows[i][0], &dtype, value), CLI_USAGE);
		assert_string_equal(sentence, rows[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_are_exact),
		cmocka_unit_test(reals_are_rounded_once),
		cmocka_unit_test(others_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
