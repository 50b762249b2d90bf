/*
 * test_plan: the rules that hold for any operator: operands, attributes, candidates, targets; each
 * refusal is one sentence, said in full.
 */
#include "daemon/plan/internal.h"
#include "plan_problems.h"

#include <math.h>

/* ---- Operators, operands, targets ---- */

static void operators_and_operands(void **state)
{
	struct kernel_problem p = good();
	char sentence[KERNEL_ERROR_MAX];

	(void)state;
	set_text(p.op, sizeof(p.op), "transmute");
	refused(&p, "there is no operator \"transmute\"; `kiln ops` lists them");
	memset(p.op, 'x', sizeof(p.op));
	refused(&p, "there is no operator \"xxxxxxxxxxxxxxxxxxxxxxxx\"; `kiln ops` lists them");
	p = good();
	p.tensor_count = 3;
	refused(&p, "permute takes 2 tensors (x, y), not 3");
	p.tensor_count = -1;
	refused(&p, "permute takes 2 tensors (x, y), not -1");
	p = good();
	p.attr_count = 99;
	snprintf(sentence, sizeof(sentence), "permute cannot have 99 attributes; the limit is %d",
			 KERNEL_MAX_ATTRS);
	refused(&p, sentence);
}

/* The table says of each operator what it takes, and can be read by name. */
static void operands_are_named(void **state)
{
	(void)state;
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op)) {
		char list[256] = "", name[16], operands[KERNEL_OPERANDS_MAX];
		int count;
		plan_operands(op, operands);
		count = plan_operand_count(operands);
		assert_in_range(count, 2, KERNEL_MAX_OPERANDS);
		assert_ptr_equal(plan_find(op->name), op);
		for (int i = 0; i < count; i++) {
			plan_operand_name(operands, i, name);
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s%s", i ? ", " : "",
					 name, plan_operand_optional(operands, i) ? "?" : "");
		}
		assert_string_equal(list, operands);
		plan_operand_name(operands, count, name);
		assert_string_equal(name, "operand");
		assert_false(plan_operand_optional(operands, count));
	}
}

static void missing_operands(void **state)
{
	struct kernel_problem p = good();

	(void)state;
	p.tensor_count = 1;
	refused(&p, "permute: y is missing; its operands are: x, y (those with ? may be left out)");
	p.tensor_count = 0;
	refused(&p, "permute: x is missing; its operands are: x, y (those with ? may be left out)");
	p = good();
	p.tensors[1].dtype = KILN_DTYPE_NONE;
	refused(&p, "permute: y is missing; its operands are: x, y (those with ? may be left out)");
}

/* layer_norm of x into y; its operands: x, gamma?, beta?, residual?, y, mean?, rstd?, sum? */
static struct kernel_problem norm(int tensor_count)
{
	struct kernel_problem p = {.op = "layer_norm", .tensor_count = tensor_count};

	for (int i = 0; i < tensor_count; i++) {
		if (i != 0 && i != 4)
			continue;
		p.tensors[i] = (struct kernel_tensor){
			.dtype = KILN_F32, .rank = 2, .shape = {30, 40}, .alignment = 16};
		plan_contiguous(&p.tensors[i]);
	}
	return p;
}

static void optional_operands(void **state)
{
	struct kernel_problem brief = norm(5), whole = norm(8), wild = whole;
	struct kernel_plan a = plan_on("sm_90", &brief), b = plan_on("sm_90", &whole), c;
	const struct kernel_extent nothing = {0};
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	/* A list that ends early and operands that are left out in the middle are the same. */
	assert_memory_equal(&a, &b, kernel_plan_bytes(&a));
	assert_int_equal(a.operand_count, 8);
	for (int i = 0; i < 8; i++)
		if (i == 0 || i == 4)
			assert_int_equal(a.extents[i].bytes, 30 * 40 * 4);
		else
			assert_memory_equal(&a.extents[i], &nothing, sizeof(nothing));
	/* Nothing else of an operand that is left out is looked at. */
	memset(&wild.tensors[2], 0x99, sizeof(wild.tensors[2]));
	wild.tensors[2].dtype = KILN_DTYPE_NONE;
	c = plan_on("sm_90", &wild);
	assert_memory_equal(&a, &c, kernel_plan_bytes(&a));

	brief = norm(4);
	refused(&brief, "layer_norm: y is missing; its operands are: x, gamma?, beta?, residual?, y, "
					"mean?, rstd?, sum? (those with ? may be left out)");
	assert_int_equal(plan_infer(&brief, error), KILN_OK);
	assert_int_equal(brief.tensors[4].dtype, KILN_F32);
	c = plan_on("sm_90", &brief);
	assert_memory_equal(&a, &c, kernel_plan_bytes(&a));
	whole.tensors[0].dtype = KILN_DTYPE_NONE;
	refused(&whole, "layer_norm: x is missing; its operands are: x, gamma?, beta?, residual?, y, "
					"mean?, rstd?, sum? (those with ? may be left out)");
}

static void tensors(void **state)
{
	struct kernel_problem p = good();

	(void)state;
	p.tensors[0].dtype = (kiln_dtype)99;
	refused(&p, "permute: x has dtype 99, which is no element type");
	p = good();
	p.tensors[0].rank = 9;
	refused(&p, "permute: x has rank 9; ranks are 0 to 8");
	p.tensors[0].rank = -1;
	refused(&p, "permute: x has rank -1; ranks are 0 to 8");
	p = good();
	p.tensors[0].shape[1] = -3;
	refused(&p, "permute: dimension 1 of x has size -3; sizes are 0 or more");
	p = good();
	p.tensors[0].stride[2] = -1;
	refused(&p, "permute: dimension 2 of x has stride -1; strides are 0 or more");
	p = good();
	p.tensors[1].alignment = 12;
	refused(&p, "permute: y has an alignment of 12 bytes, which is no power of two");
	p.tensors[1].alignment = 0;
	refused(&p, "permute: y has an alignment of 0 bytes, which is no power of two");
}

static void sizes_beyond_counting(void **state)
{
	struct kernel_problem p = good();

	(void)state;
	p.tensors[0].shape[0] = p.tensors[0].shape[1] = INT64_C(1) << 32;
	refused(&p, "permute: x has more elements than 62 bits can count in bytes");
	p = good();
	p.tensors[0].shape[0] = INT64_C(1) << 61; /* the elements fit, their bytes do not */
	p.tensors[0].shape[1] = p.tensors[0].shape[2] = 1;
	refused(&p, "permute: x has more elements than 62 bits can count in bytes");
	p = good();
	p.tensors[0].dtype = KILN_U8; /* 63 bits hold it, but not rounded up to any unit */
	p.tensors[0].shape[0] = INT64_MAX;
	p.tensors[0].shape[1] = p.tensors[0].shape[2] = 1;
	refused(&p, "permute: x has more elements than 62 bits can count in bytes");
	p = good();
	p.tensors[0].shape[0] = 0;
	p.tensors[0].shape[1] = p.tensors[0].shape[2] = INT64_C(1) << 32;
	refused(&p,
			"permute: x has more elements than 62 bits can count in bytes, sizes of 0 counted as "
			"1");
	p = good();
	p.tensors[0].shape[0] = 0;
	p.tensors[0].stride[1] = INT64_MAX;
	refused(&p, "permute: the strides of x reach further than 62 bits can count in bytes");
	p = good();
	p.tensors[0].stride[0] = INT64_MAX;
	refused(&p, "permute: the strides of x reach further than 62 bits can count in bytes");
	p = good();
	p.tensors[0].stride[0] = INT64_MAX / 4; /* times 4 bytes, plus the rest */
	refused(&p, "permute: the strides of x reach further than 62 bits can count in bytes");
	p = good();
	p.tensors[0].stride[0] = p.tensors[0].stride[1] = INT64_MAX / 2;
	refused(&p, "permute: the strides of x reach further than 62 bits can count in bytes");
}

/* Atomic additions count 2^44 vectors: beyond them they are no candidate, and others are. */
static void candidates_beyond_counting(void **state)
{
	static char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX];
	struct kernel_problem p = {.op = "index_add", .tensor_count = 4};
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX] = "";
	int count;

	(void)state;
	plan_made_tensor(&p, 0, KILN_F32, 3, SHAPE(200, INT32_MAX, 97));
	plan_made_tensor(&p, 1, KILN_I32, 1, SHAPE(33));
	plan_made_tensor(&p, 2, KILN_F32, 3, SHAPE(33, INT32_MAX, 97));
	plan_made_tensor(&p, 3, KILN_F32, 3, SHAPE(200, INT32_MAX, 97));
	plan_made_int(&p, "deterministic", 0);
	count = plan_choices(&p, &limits, names, error);
	assert_true(count > 1);
	plan_made_word(&p, PLAN_CHOICE, "");
	for (int i = 0; i < count; i++) {
		set_text(p.attrs[1].s, sizeof(p.attrs[1].s), names[i]);
		if (plan_problem(&p, &limits, &plan, error))
			fail_msg("%s: %s", names[i], error);
	}
}

static void targets(void **state)
{
	struct kernel_problem p = good();
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	assert_int_equal(limits.shared_optin, 232448);
	assert_int_equal(limits_of("sm_75").shared_optin, 65536);
	assert_int_equal(limits_of("sm_120").shared_optin, 101376);
	assert_string_equal(limits_of("cpu").target, "cpu");
	assert_int_equal(plan_limits_for("sm_91", &limits, error), KILN_EINVAL);
	assert_string_equal(error, "\"sm_91\" is no known target; known are cpu sm_75 sm_80 sm_86 "
							   "sm_87 sm_88 sm_89 sm_90 sm_100 sm_103 sm_110 sm_120 sm_121");
	limits.max_threads = 16;
	assert_int_equal(plan_problem(&p, &limits, &plan, error), KILN_ENOTSUP);
	assert_non_null(strstr(error, "blocks of 16 threads"));
}

/* ---- Attributes ---- */

static const struct op_attribute rows[] = {
	{"axis", KILN_ATTR_INT, .usual = "-1", .range = OP_AXIS},
	{"scale", KILN_ATTR_REAL, .usual = "0.125", .range = OP_FINITE},
	{"axes", KILN_ATTR_INT, .usual = "1", .range = OP_AXES},
	{"depth", KILN_ATTR_INT, .range = OP_BETWEEN, .least = -40, .most = 30},
	{"eps", KILN_ATTR_REAL, .usual = "1e-5", .range = OP_FROM},
	{"empty", KILN_ATTR_STRING, .usual = "nan", .range = OP_WORD, .words = {"zero", "nan"}},
	{"kind", KILN_ATTR_STRING, .range = OP_WORD, .words = {"bool", "lengths"}},
	{.name = NULL},
};

/* One attribute of an operator on x, f32 of rank 4. */
static struct kernel_problem with_attr(const char *name, kiln_attr_kind kind)
{
	struct kernel_problem p = {
		.op = "bake", .operands = "x", .attributes = rows, .attr_count = 1, .tensor_count = 1};

	p.tensors[0] = (struct kernel_tensor){.dtype = KILN_F32, .rank = 4};
	set_text(p.attrs[0].name, sizeof(p.attrs[0].name), name);
	p.attrs[0].kind = kind;
	return p;
}

static void refused_value(const struct kernel_problem *p, const char *sentence)
{
	char error[KERNEL_ERROR_MAX] = "";

	assert_int_equal(plan_attrs_check_values(p, error), KILN_EINVAL);
	assert_string_equal(error, sentence);
}

static void good_value(const struct kernel_problem *p)
{
	char error[KERNEL_ERROR_MAX] = "";

	assert_int_equal(plan_attrs_check_values(p, error), KILN_OK);
}

static void attributes_are_known(void **state)
{
	static const struct op_attribute two[] = {{"axis"}, {"scale"}, {.name = NULL}};
	struct kernel_problem p = with_attr("axis", KILN_ATTR_INT);
	static const char *const strangers[] = {"axi", "axis ", "scales", ", ", "", "cale"};
	char error[KERNEL_ERROR_MAX] = "", sentence[KERNEL_ERROR_MAX];

	(void)state;
	p.attributes = two;
	assert_int_equal(plan_attrs_check_names(&p, error), KILN_OK);
	p.attrs[1] = p.attrs[0];
	p.attr_count = 2;
	assert_int_equal(plan_attrs_check_names(&p, error), KILN_EINVAL);
	assert_string_equal(error, "bake: axis is given twice");
	set_text(p.attrs[1].name, sizeof(p.attrs[1].name), "scale");
	assert_int_equal(plan_attrs_check_names(&p, error), KILN_OK);
	for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
		p = with_attr(strangers[i], KILN_ATTR_INT);
		p.attributes = two;
		assert_int_equal(plan_attrs_check_names(&p, error), KILN_EINVAL);
		snprintf(sentence, sizeof(sentence),
				 "bake: there is no attribute \"%s\"; those it takes: axis, scale", strangers[i]);
		assert_string_equal(error, sentence);
	}
	memset(p.attrs[0].name, 'n', sizeof(p.attrs[0].name));
	assert_int_equal(plan_attrs_check_names(&p, error), KILN_EINVAL);
	assert_string_equal(error, "bake: there is no attribute \"nnnnnnnnnnnnnnnnnnnnnnnn\"; those it "
							   "takes: axis, scale");
}

static void integers(void **state)
{
	struct kernel_problem p = with_attr("axis", KILN_ATTR_INT);

	(void)state;
	assert_int_equal(plan_int(&p, "depth"), 0);
	assert_int_equal(plan_int(&p, "axes"), 1);
	for (p.attrs[0].i = -4; p.attrs[0].i <= 3; p.attrs[0].i++) {
		good_value(&p);
		assert_int_equal(plan_int(&p, "axis"), p.attrs[0].i);
		assert_int_equal(plan_axis(&p), (p.attrs[0].i + 4) % 4);
	}
	refused_value(&p, "bake: axis is 4; it may be -4 to 3");
	p.attrs[0].i = -5;
	refused_value(&p, "bake: axis is -5; it may be -4 to 3");
	p = with_attr("axis", KILN_ATTR_REAL);
	refused_value(&p, "bake: axis is not an integer");
	p.attr_count = 0;
	good_value(&p);
	assert_int_equal(plan_int(&p, "axis"), -1);
	assert_int_equal(plan_axis(&p), 3);
	p.tensors[0].rank = 0;
	refused_value(&p, "bake: x has rank 0; it needs a dimension to go along");
	p.attributes = &rows[2];
	refused_value(&p, "bake: x has rank 0; it needs a dimension to normalize");
	p = with_attr("axes", KILN_ATTR_INT);
	refused_value(&p, "bake: axes is 0; it may be 1 to 4");
	for (p.attrs[0].i = 1; p.attrs[0].i <= 4; p.attrs[0].i++)
		good_value(&p);
	refused_value(&p, "bake: axes is 5; it may be 1 to 4");
	p = with_attr("depth", KILN_ATTR_INT);
	for (p.attrs[0].i = -40; p.attrs[0].i <= 30; p.attrs[0].i++) {
		good_value(&p);
		assert_int_equal(plan_int(&p, "depth"), p.attrs[0].i);
	}
	refused_value(&p, "bake: depth is 31; it may be -40 to 30");
	p.attrs[0].i = -41;
	refused_value(&p, "bake: depth is -41; it may be -40 to 30");
}

static void reals(void **state)
{
	struct kernel_problem p = with_attr("scale", KILN_ATTR_REAL);

	(void)state;
	assert_true(plan_real(&p, "eps") == 1e-5);
	p.attrs[0].f = -2.5e-300;
	good_value(&p);
	assert_true(plan_real(&p, "scale") == -2.5e-300);
	p.attrs[0].f = NAN;
	refused_value(&p, "bake: scale is nan; it must be finite");
	p.attrs[0].f = -INFINITY;
	refused_value(&p, "bake: scale is -inf; it must be finite");
	p.attrs[0].f = 1e39;
	refused_value(&p, "bake: scale is 1e+39; f32 is computed in f32, where it must be finite");
	p.tensors[0].dtype = KILN_F64;
	good_value(&p);
	p = with_attr("scale", KILN_ATTR_INT);
	p.attrs[0].i = -3;
	good_value(&p);
	assert_true(plan_real(&p, "scale") == -3);
	p = with_attr("scale", KILN_ATTR_STRING);
	refused_value(&p, "bake: scale is not a number");
	p.attr_count = 0;
	good_value(&p);
	assert_true(plan_real(&p, "scale") == 0.125);
	p = with_attr("eps", KILN_ATTR_REAL);
	good_value(&p);
	assert_true(plan_real(&p, "eps") == 0);
	p.attrs[0].f = -1e-30;
	refused_value(&p, "bake: eps is -1e-30; it must be 0 or more");
}

static void words(void **state)
{
	static const struct op_attribute needed[] = {
		{"kind", KILN_ATTR_STRING, .range = OP_WORD, .words = {"bool", "lengths"}, .needed = true},
		{.name = NULL}};
	static const char *const kinds[] = {"bool", "lengths"};
	struct kernel_problem p = with_attr("kind", KILN_ATTR_STRING);

	(void)state;
	assert_int_equal(plan_word(&p, "empty"), 1);
	for (int i = 0; i < 2; i++) {
		set_text(p.attrs[0].s, sizeof(p.attrs[0].s), kinds[i]);
		good_value(&p);
		assert_int_equal(plan_word(&p, "kind"), i);
	}
	set_text(p.attrs[0].s, sizeof(p.attrs[0].s), "boo");
	refused_value(&p, "bake: kind is \"boo\"; it may be one of: bool, lengths");
	set_text(p.attrs[0].s, sizeof(p.attrs[0].s), "bool ");
	refused_value(&p, "bake: kind is \"bool \"; it may be one of: bool, lengths");
	p = with_attr("kind", KILN_ATTR_INT);
	refused_value(&p, "bake: kind is not a text; it may be one of: bool, lengths");
	p.attr_count = 0;
	good_value(&p);
	assert_int_equal(plan_word(&p, "kind"), 0);
	p.attributes = needed;
	refused_value(&p, "bake: kind is missing; it may be one of: bool, lengths");
}

/* ---- Candidates ---- */

static struct kernel_problem with_choice(const char *choice)
{
	struct kernel_problem p = make(KILN_F32, 2, SHAPE(1024, 512), SHAPE(1, 0));

	/* Before the operator's own, which must be found behind it. */
	p.attrs[1] = p.attrs[0];
	p.attrs[0] = (struct kernel_attr){.name = PLAN_CHOICE, .kind = KILN_ATTR_STRING};
	p.attr_count = 2;
	set_text(p.attrs[0].s, sizeof(p.attrs[0].s), choice);
	return p;
}

static void choices_are_refused(void **state)
{
	struct kernel_problem p = with_choice("vector");

	(void)state;
	refused(&p, "permute: choice \"vector\" names no candidate; a name is such as "
				"\"tile 64x64 k4 l16 s16 t256 r\"");
	p = with_choice("");
	refused(&p, "permute: choice \"\" names no candidate; a name is such as "
				"\"tile 64x64 k4 l16 s16 t256 r\"");
	p = with_choice("tile");
	p.attrs[2] = p.attrs[0];
	p.attr_count = 3;
	refused(&p, "permute: choice is given twice");
	p.attr_count = 2;
	p.attrs[0].kind = KILN_ATTR_INT;
	refused(&p, "permute: choice is not a text of less than 48 bytes");
	p.attrs[0].kind = KILN_ATTR_STRING;
	memset(p.attrs[0].s, 't', KERNEL_CHOICE_MAX);
	refused(&p, "permute: choice is not a text of less than 48 bytes");
	memset(p.attrs[0].s, 't', sizeof(p.attrs[0].s));
	refused(&p, "permute: choice is not a text of less than 48 bytes");
}

static void choices_are_taken(void **state)
{
	const char *own = "tile 64x32 k4 l16 s16 t256 r";
	struct kernel_problem chosen = with_choice(own), free = chosen;
	struct kernel_limits limits = limits_of("sm_90");
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], error[KERNEL_ERROR_MAX] = "";

	(void)state;
	free.attrs[0] = free.attrs[1];
	free.attr_count = 1;
	struct kernel_plan a = plan_on("sm_90", &free), b = plan_on("sm_90", &chosen);
	assert_memory_equal(&a, &b, kernel_plan_bytes(&a));
	assert_string_equal(a.choice, own);
	int count = plan_choices(&free, &limits, names, error);
	assert_in_range(count, 2, PLAN_MAX_CHOICES);
	assert_string_equal(names[0], own);
	assert_int_equal(plan_choices(&chosen, &limits, names, error), count);
	chosen = with_choice("nothing of the kind");
	assert_int_equal(plan_choices(&chosen, &limits, names, error), KILN_EINVAL);
	assert_string_equal(
		error, "permute: choice \"nothing of the kind\" names no candidate; a name is such "
			   "as \"tile 64x64 k4 l16 s16 t256 r\"");
}

/* ---- Text ---- */

/* A plan may have parts that permute's do not have. */
static void every_part_of_a_plan_is_told(void **state)
{
	struct kernel_limits limits = limits_of("sm_90");
	struct kernel_plan plan = {.kind = KERNEL_LAUNCH,
							   .op = "permute",
							   .variant = "sums",
							   .choice = "sums 4x128",
							   .operands = "x, y",
							   .source = "ops/sums.cuh",
							   .instantiation = "sums<4>",
							   .grid = {3, 2, 1},
							   .block = {128, 1, 1},
							   .shared_bytes = 50000,
							   .scratch = {70000, 512},
							   .report = {4096, 200},
							   .extents = {{.bytes = 640, .alignment = 16}, {0}},
							   .operand_count = 2,
							   .bytes_moved = 640,
							   .note = "one launch"};
	char text[1024];

	(void)state;
	plan_explain(&plan, &limits, text, sizeof(text));
	assert_string_equal(text, "op             permute\n"
							  "target         sm_90\n"
							  "variant        sums (kernel)\n"
							  "choice         sums 4x128\n"
							  "source         ops/sums.cuh\n"
							  "instantiation  sums<4>\n"
							  "grid x block   3,2,1 x 128,1,1\n"
							  "shared memory  50000 bytes (by request)\n"
							  "scratch memory 70000 bytes, 512 of them counters\n"
							  "reports        which of 4096 indices are not below 200\n"
							  "x              640 bytes read, aligned to 16\n"
							  "y              left out\n"
							  "bytes moved    640\n"
							  "note           one launch\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operators_and_operands),
		cmocka_unit_test(operands_are_named),
		cmocka_unit_test(missing_operands),
		cmocka_unit_test(optional_operands),
		cmocka_unit_test(tensors),
		cmocka_unit_test(sizes_beyond_counting),
		cmocka_unit_test(candidates_beyond_counting),
		cmocka_unit_test(targets),
		cmocka_unit_test(attributes_are_known),
		cmocka_unit_test(integers),
		cmocka_unit_test(reals),
		cmocka_unit_test(words),
		cmocka_unit_test(choices_are_refused),
		cmocka_unit_test(choices_are_taken),
		cmocka_unit_test(every_part_of_a_plan_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
