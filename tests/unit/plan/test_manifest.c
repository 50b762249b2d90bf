/*
 * manifest: problems as lines of text: every case of the list comes back the same, and each thing
 * that can be wrong with a line has its sentence and its column.
 */
#include "daemon/plan/manifest.h"

#include "tests/ops/common/problem.h"
#include "plan_problems.h"

#include <float.h>
#include <math.h>

static struct kernel_problem read(const char *text)
{
	struct kernel_problem problem;
	char error[KERNEL_ERROR_MAX] = "";

	if (manifest_read(text, &problem, error))
		fail_msg("'%s': %s", text, error);
	return problem;
}

static void prints(const struct kernel_problem *problem, const char *wanted)
{
	char text[MANIFEST_LINE_MAX];

	assert_true(manifest_print(problem, text, sizeof(text)));
	assert_string_equal(text, wanted);
}

/* The same but for bytes that mean nothing: behind texts, beyond ranks. */
static void assert_same(const struct kernel_problem *a, const struct kernel_problem *b)
{
	assert_string_equal(a->op, b->op);
	for (int i = 0; i < KERNEL_MAX_OPERANDS; i++) {
		const struct kernel_tensor *x = &a->tensors[i], *y = &b->tensors[i];
		assert_int_equal(x->dtype, y->dtype);
		if (x->dtype == KILN_DTYPE_NONE)
			continue;
		assert_int_equal(x->rank, y->rank);
		assert_int_equal(x->alignment, y->alignment);
		for (int k = 0; k < x->rank; k++) {
			assert_int_equal(x->shape[k], y->shape[k]);
			assert_int_equal(x->stride[k], y->stride[k]);
		}
	}
	assert_int_equal(a->attr_count, b->attr_count);
	for (int i = 0; i < a->attr_count; i++) {
		const struct kernel_attr *x = &a->attrs[i], *y = &b->attrs[i];
		assert_string_equal(x->name, y->name);
		assert_int_equal(x->kind, y->kind);
		assert_int_equal(x->i, y->i);
		assert_memory_equal(&x->f, &y->f, sizeof(x->f));
		assert_int_equal(x->count, y->count);
		assert_memory_equal(x->ints, y->ints, (size_t)x->count * sizeof(x->ints[0]));
		assert_string_equal(kernel_attr_text(a, x), kernel_attr_text(b, y));
	}
}

static void round_trip(const struct kernel_problem *problem)
{
	char text[MANIFEST_LINE_MAX];
	struct kernel_problem again;

	if (!manifest_print(problem, text, sizeof(text)))
		fail_msg("%s cannot be printed", problem->op);
	again = read(text);
	assert_same(problem, &again);
}

static void every_case_comes_back(void **state)
{
	int count;
	const struct cases_case *cases = cases_all(&count);
	(void)state;

	assert_true(count > 100);
	for (int i = 0; i < count; i++) {
		struct kernel_problem problem;
		cases_problem(&cases[i], &problem);
		round_trip(&problem);
	}
	for (uint64_t i = 0; i < 2000; i++) {
		struct cases_case one;
		struct kernel_problem problem;
		cases_random(5, i, &one);
		cases_problem(&one, &problem);
		round_trip(&problem);
	}
}

static void lines_read_well(void **state)
{
	struct kernel_problem problem = good();
	(void)state;

	prints(&problem, "permute x=f32:2x3x4 y=f32:4x2x3 perm=[2,0,1]");
	problem.tensors[0].alignment = 4;
	problem.tensors[0].stride[0] = 0;
	prints(&problem, "permute x=f32:2x3x4/0,4,1@4 y=f32:4x2x3 perm=[2,0,1]");
	problem = read("  softmax\ty=f16:scalar  x=f16:8x9 scale=1 axis=-1 # and so on");
	assert_int_equal(problem.tensor_count, 2);
	assert_int_equal(problem.tensors[1].rank, 0);
	prints(&problem, "softmax x=f16:8x9 y=f16:scalar scale=1 axis=-1");
	problem = read("masked_softmax x=f32:8x9 y=f32:8x9 kind=\"causal\"\n");
	prints(&problem, "masked_softmax x=f32:8x9 y=f32:8x9 kind=\"causal\"");
	problem =
		read("map names=\"a, b\" b=f32:8,9 statement=\"b[i, j] = a[i] # \\\"\\\\\\x0a\" a=f32:8");
	prints(&problem, "map a=f32:8 b=f32:8x9 names=\"a, b\" "
					 "statement=\"b[i, j] = a[i] # \\\"\\\\\\x0a\"");
}

static void numbers_stay(void **state)
{
	static const double reals[] = {0.0,     -0.0,        1.0,      0.1,      1e300,  1e-5,
								   1.0 / 3, -2.5,        DBL_MAX,  DBL_MIN,  5e-324, 1e15,
								   1e16,    123456789.0, INFINITY, -INFINITY};
	struct kernel_problem problem = read("softmax x=f32:8x9 scale=1.5 axis=-9223372036854775808");
	(void)state;

	for (size_t i = 0; i < sizeof(reals) / sizeof(*reals); i++) {
		problem.attrs[0].f = reals[i];
		round_trip(&problem);
	}
	assert_int_equal(problem.attrs[1].i, INT64_MIN);
	problem.attrs[0].f = 2;
	prints(&problem, "softmax x=f32:8x9 scale=2.0 axis=-9223372036854775808");
}

static void long_lines_have_no_room(void **state)
{
	struct kernel_problem problem = good();
	char text[MANIFEST_LINE_MAX];
	size_t size;
	(void)state;

	assert_true(manifest_print(&problem, text, sizeof(text)));
	size = strlen(text);
	for (size_t room = 1; room <= size; room++)
		assert_false(manifest_print(&problem, text, room));
	assert_true(manifest_print(&problem, text, size + 1));
}

static void each_fault_has_its_column(void **state)
{
	static const struct {
		const char *line, *sentence;
	} cases[] = {
		{"", "column 1: \"\" is no name of an operator: it has 1 to 23 letters, digits and '_'"},
		{"  9x",
		 "column 3: \"9x\" is no name of an operator: it has 1 to 23 letters, digits and '_'"},
		{"softmix x=f32:1", "column 1: there is no operator \"softmix\"; `kiln ops` lists them"},
		{"softmax x", "column 10: expected '=' and a value for x"},
		{"softmax =1", "column 9: \"=1\" is no name of an operand or an attribute: it has 1 to 23 "
					   "letters, digits and '_'"},
		{"softmax z=f32:8", "column 9: softmax has no operand \"z\"; its operands are: x, y"},
		{"softmax x=f32:8 x=f32:8", "column 17: x is given twice"},
		{"softmax axis=1 axis=2", "column 16: axis is given twice"},
		{"softmax x=f33:8", "column 11: \"f33:8\" is no operand: TYPE:SHAPE, as f32:64x1000"},
		{"softmax x=f32:", "column 15: \"\" is no size of an axis: a whole number from 0 to "
						   "9223372036854775807"},
		{"softmax x=f32:8x-1", "column 17: \"-1\" is no size of an axis: a whole number from 0 to "
							   "9223372036854775807"},
		{"softmax x=f32:1x1x1x1x1x1x1x1x1", "column 31: there are more than 8 numbers"},
		{"softmax x=f32:9223372036854775808",
		 "column 15: \"9223372036854775808\" is no size of an axis: a whole number from 0 to "
		 "9223372036854775807"},
		{"softmax x=f32:8x9/1", "column 19: there are 1 strides for 2 axes"},
		{"softmax x=f32:8@3",
		 "column 17: an operand is aligned to 1, 2, 4, 8 or 16 bytes, not to 3"},
		{"softmax x=f32:8@32",
		 "column 17: an operand is aligned to 1, 2, 4, 8 or 16 bytes, not to 32"},
		{"softmax x=f32:8y", "column 16: expected a blank or the end of the line"},
		{"softmax axis=1.5.2",
		 "column 14: \"1.5.2\" is no value: an operand TYPE:SHAPE, an integer, "
		 "a real, [1,2] or \"text\""},
		{"softmax axis=", "column 14: \"\" is no integer: a whole number from -9223372036854775808 "
						  "to 9223372036854775807"},
		{"softmax axis=word",
		 "column 14: \"word\" is no value: an operand TYPE:SHAPE, an integer, a "
		 "real, [1,2] or \"text\""},
		{"permute perm=[0,1", "column 18: expected ',' or ']'"},
		{"masked_softmax kind=\"bool", "column 26: the text does not end in a quote"},
		{"masked_softmax kind=\"\\q\"",
		 "column 22: in a text a backslash is followed by another, by a quote, or by x and two "
		 "hexadecimal digits that are not 00"},
		{"masked_softmax kind=\"\\x00\"",
		 "column 22: in a text a backslash is followed by another, by a quote, or by x and two "
		 "hexadecimal digits that are not 00"},
	};
	struct kernel_problem problem;
	char error[KERNEL_ERROR_MAX];
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(manifest_read(cases[i].line, &problem, error), KILN_EINVAL);
		assert_string_equal(error, cases[i].sentence);
	}
	assert_int_equal(manifest_read("map a=f32:8", &problem, error), KILN_EINVAL);
	assert_memory_equal(error, "column 1: map: ", 15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_case_comes_back),
		cmocka_unit_test(lines_read_well),
		cmocka_unit_test(numbers_stay),
		cmocka_unit_test(long_lines_have_no_room),
		cmocka_unit_test(each_fault_has_its_column),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
