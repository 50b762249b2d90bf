/*
 * test_plan_map: statements as the planner reads them: every refusal with its column, what is
 * inferred, what goes into the kernel's text and what stays out of it, and how accesses move.
 */
#include "plan_problems.h"

/* ---- Problems ---- */

static void add_text(struct kernel_problem *p, const char *name, const char *text)
{
	struct kernel_attr *attr = &p->attrs[p->attr_count++];

	set_text(attr->name, sizeof(attr->name), name);
	assert_true(kernel_attr_set_text(p, attr, text, strlen(text)));
}

static void add_number(struct kernel_problem *p, const char *name, double value, bool real)
{
	struct kernel_attr *attr = &p->attrs[p->attr_count++];

	set_text(attr->name, sizeof(attr->name), name);
	attr->kind = real ? KILN_ATTR_REAL : KILN_ATTR_INT;
	attr->f = real ? value : 0;
	attr->i = real ? 0 : (int64_t)value;
}

/* "f32 8x16" */
static void add_tensor(struct kernel_problem *p, const char *text)
{
	static const struct {
		const char *name;
		kiln_dtype dtype;
	} known[] = {
#define KNOWN(NAME, name, value, bytes) {#name " ", KILN_##NAME},
		KILN_DTYPE_LIST(KNOWN)
#undef KNOWN
	};
	struct kernel_tensor *tensor = &p->tensors[p->tensor_count++];
	char *end = (char *)strchr(text, ' ');

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strncmp(text, known[i].name, strlen(known[i].name)) == 0)
			tensor->dtype = known[i].dtype;
	tensor->alignment = 16;
	while (*end && end[1]) {
		tensor->shape[tensor->rank] = strtoll(end + 1, &end, 10);
		tensor->rank++;
	}
	plan_contiguous(tensor);
}

/* operands: "f32 8x16;f32 16" */
static struct kernel_problem problem_of(const char *statement, const char *names,
										const char *operands)
{
	struct kernel_problem p = {.op = "map"};
	char text[256];

	add_text(&p, "statement", statement);
	add_text(&p, "names", names);
	set_text(text, sizeof(text), operands);
	for (char *at = text, *end; *at; at = end) {
		end = at + strcspn(at, ";");
		end += *end == ';';
		if (end[-1] == ';')
			end[-1] = 0;
		add_tensor(&p, at);
	}
	return p;
}

/* Infers what is missing, and plans. */
static int plan_all(struct kernel_problem *p, struct kernel_plan *plan, char *error)
{
	struct kernel_limits limits = limits_of("sm_90");
	int status = plan_infer(p, error);

	return status ? status : plan_problem(p, &limits, plan, error);
}

static void refused_as(struct kernel_problem *p, const char *sentence)
{
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX] = "";

	assert_int_equal(plan_all(p, &plan, error), KILN_EINVAL);
	assert_string_equal(error, sentence);
}

static void planned(struct kernel_problem *p, struct kernel_plan *plan)
{
	char error[KERNEL_ERROR_MAX] = "";

	if (plan_all(p, plan, error))
		fail_msg("%s", error);
}

static void holds(const struct kernel_plan *plan, const char *piece)
{
	if (!strstr(plan->generated, piece))
		fail_msg("there is no \"%s\" in:\n%s", piece, plan->generated);
}

/* ---- Refusals ---- */

#define XY "x,y", "f32 8x16;f32 8x16"

static const struct refusal {
	const char *statement, *names, *operands, *sentence;
} refusals[] = {
	/* Words and their order. */
	{"", XY, "column 1: expected an operand of names (x,y) on the left side, not the end"},
	{"z[i,j] = 1", XY, "column 1: expected an operand of names (x,y) on the left side, not z"},
	{"y[i,3] = 1", XY,
	 "column 5: expected the name of an index, not 3: on the left side each subscript is one"},
	{"y[i,i] = 1", XY, "column 5: index i stands twice on the left side"},
	{"y[i,x] = 1", XY, "column 5: x is an operand and cannot be an index"},
	{"y[i,s] = 1", XY, "column 5: s is a scalar and cannot be an index"},
	{"y[i j] = 1", XY, "column 5: expected ']' or ',', not j"},
	{"y[i,j] x[i,j]", XY, "column 8: expected '=' (or +=, *=, min=, max=), not x"},
	{"y[i,j] max x[i,j]", XY, "column 12: expected '=' behind min or max, not x"},
	{"y[i,j] = ", XY, "column 10: expected a value, not the end"},
	{"y[i,j] = x[i,j] +", XY, "column 18: expected a value, not the end"},
	{"y[i,j] = x[i,j] 3", XY, "column 17: expected the end of the statement, not 3"},
	{"y[i,j] = (x[i,j]", XY, "column 17: expected ')' to close a parenthesis, not the end"},
	{"y[i,j] = x[i,j] ? 1", XY, "column 20: expected ':' behind what follows '?', not the end"},
	{"y[i,j] = 1 $ 2", XY, "column 12: there is a '$', which no statement has"},
	{"y[i,j] = 1x", XY, "column 10: a number ends in 'x'"},
	{"y[i,j] = 99999999999999999999", XY,
	 "column 10: 99999999999999999999 is no number of 64 bits"},
	{"y[i,j] = a_name_of_sixteen", XY,
	 "column 10: the name a_name_of_sixteen is longer than 15 characters"},
	/* Names. */
	{"y[i,j] = q[i,j]", XY, "column 10: there is no operand q; names has x,y"},
	{"y[i,j] = x[i,j] * q", XY,
	 "column 19: q is no operand of names, no index of the left side and no scalar that was given"},
	{"y[i,j] = y[i,j]", XY, "column 10: y is what the statement writes and cannot be read"},
	{"y[i,j] = sine(x[i,j])", XY,
	 "column 10: there is no function sine; docs/map.md lists those there are"},
	{"y[i,j] = sat_f16(x[i,j])", XY,
	 "column 10: there is no function sat_f16; docs/map.md lists those there are"},
	{"y[i,j] = sat_f8e4m3(x[i,j], 1)", XY, "column 10: sat_f8e4m3 takes 1 argument, not 2"},
	{"y[i,j] = pow(x[i,j])", XY, "column 10: pow takes 2 arguments, not 1"},
	{"y[i,j] = max(x[i,j])", XY, "column 10: max takes 2 or more arguments, not 1"},
	{"y[i,j] = f16() + x[i,j]", XY, "column 10: f16 takes 1 argument, not 0"},
	{"y[i,j] = 1", XY, "names has x, which the statement does not use"},
	{"y[i,j] = x[i,j]", "x,y,x", "f32 8x16;f32 8x16", "names has x twice"},
	{"y[i,j] = x[i,j]", "x,,y", "f32 8x16;f32 8x16",
	 "names has \"\"; a name is a letter or _, then letters, digits or _, 15 in all"},
	{"y[i,j] = x[i,j]", "x,2y", "f32 8x16;f32 8x16",
	 "names has \"2y\"; a name is a letter or _, then letters, digits or _, 15 in all"},
	/* Shapes. */
	{"y[i,j] = x[i]", XY, "column 10: x has 1 subscript here and rank 2"},
	{"y[i] = x[i,0]", XY, "column 1: y has 1 subscript here and rank 2"},
	{"y[i,j] = x[i,j] + k[i]", "x,k,y", "f32 8x16;f32 16;f32 8x16",
	 "column 21: index i goes over 8 values, and dimension 0 of k has size 16"},
	{"y[i,j] = x[j,i]", XY,
	 "column 12: index j goes over 16 values, and dimension 0 of x has size 8"},
	{"y[i,j] += x[i,j]", XY,
	 "column 1: every index is on the left side, so there is nothing to go over; write '='"},
	{"y[i,j] += x[i,j] * q", XY,
	 "column 20: how far q goes is not known: no operand that is there has it as a subscript by "
	 "itself"},
	/* Reductions. */
	{"y[i] = sum[](x[i,0])", XY,
	 "column 12: expected the name of an index of the reduction, not ]"},
	{"y[i,j] = sum[j](x[i,j])", XY,
	 "column 14: j is an index already; a reduction goes over indices of its own"},
	{"y[i,j] = sum[k](x[i,k] * max[k](x[i,k]))", XY,
	 "column 30: k is an index already; a reduction goes over indices of its own"},
	{"y[i,j] = sum[x](1)", XY, "column 14: x is an operand and cannot be an index"},
	{"y[i,j] = sum[k] x[i,k]", XY,
	 "column 17: expected '(' behind the indices of a reduction, not x"},
	{"y[i,j] = sum[k](x[i,k]", XY, "column 23: expected ')' to close a reduction, not the end"},
	{"y[i,j] = sum[k](x[i,k]) + k", XY,
	 "column 27: k is no operand of names, no index of the left side and no scalar that was given"},
	{"y[i,j] = x[i,j] + sum[k](2)", XY,
	 "column 23: how far k goes is not known: no operand that is there has it as a subscript by "
	 "itself"},
	{"y[i] += sum[k](x[i,k])", XY,
	 "column 9: a reduction stands in no sum; write '=' and a reduction around the right side"},
	{"y[i] = 1 + max[j](x[i,j])", "x,y", "f32 8x0;f32 8",
	 "column 12: max over j is of nothing: the index goes over no value"},
	{"y[i] = sum[k](x[i,k])", "x,y", "f32 8x16;i32 8",
	 "column 8: the right side is f32 and y is i32; write i32(...) around it"},
	/* Types. */
	{"y[i,j] = x[i,x[0,0]]", XY, "column 14: subscript 1 of x is f32; it must be an integer"},
	{"y[i,j] = x[i,m[j]]", "x,m,y", "f32 8x16;bool 16;f32 8x16",
	 "column 14: subscript 1 of x is bool; it must be an integer"},
	{"y[j] = u[j] + k[j]", "u,k,y", "u64 16;i32 16;f32 16",
	 "column 13: u64 and i32 have no type in common; cast one of them"},
	{"y[i,j] = x[i,j] % 2", XY, "column 17: % is of integers, and this is f32; fmod is of floats"},
	{"y[i,j] = ~x[i,j]", XY, "column 10: ~ is of integers, and this is f32"},
	{"y[j] = k[j] + 5000000000", "k,y", "i32 16;i64 16",
	 "column 15: 5000000000 does not fit i32, the type of what it meets"},
	{"y[i,j] = x[i,j] * 1e39", XY, "column 19: 1e+39 does not fit f32, the type of what it meets"},
	{"y[i] = x[i] * 2", "x,y", "f32 9;i32 9",
	 "column 8: the right side is f32 and y is i32; write i32(...) around it"},
	{"y[i] = x[i] & 1", "x,y", "i32 9;bool 9",
	 "column 8: the right side is i32 and y is bool; write bool(...) around it, or a comparison"},
	{"y[i] = x[i]", "x,y", "c64 9;c64 9", "x is c64; statements are of floats, integers and bool"},
};

static void statements_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct refusal *row = &refusals[i];
		struct kernel_problem p = problem_of(row->statement, row->names, row->operands);
		char sentence[KERNEL_ERROR_MAX];
		if (strstr(row->sentence, "a scalar"))
			add_number(&p, "s", 1, false);
		snprintf(sentence, sizeof(sentence), "map: %s", row->sentence);
		refused_as(&p, sentence);
	}
}

static void settings_are_refused(void **state)
{
	struct kernel_problem p = problem_of("y[i,j] = x[i,j]", XY);
	char text[512] = "y[i,j] = ";

	(void)state;
	add_number(&p, "s", 1, false);
	refused_as(&p, "map: scalar s is given, and the statement does not use it");
	p.attr_count = 2;
	add_text(&p, "bounds", "trust");
	refused_as(&p, "map: bounds is \"trust\"; it may be one of: check, clamp, zero");
	p.attr_count = 2;
	add_number(&p, "checked", 2, false);
	refused_as(&p, "map: checked is 2; it may be 0 to 1");
	p.attr_count = 1;
	refused_as(&p, "map: names is missing: the operands' names in their order, \"x,b,y\"");
	p.attrs[0] = p.attrs[1];
	refused_as(&p, "map: statement is missing, \"y[i,j] = x[i,j] * s + b[j]\"");
	p = problem_of("y[i,j] = x[i,j] * s", XY);
	add_text(&p, "s", "much");
	refused_as(&p, "map: column 19: scalar s is not a number");
	p = problem_of("y[i] = k[i] + s", "k,y", "i32 9;i32 9");
	add_number(&p, "s", 5e9, false);
	refused_as(&p, "map: column 15: scalar s is 5000000000, which does not fit i32, the type of "
				   "what it meets");
	memset(text + strlen(text), '(', 70);
	p = problem_of(text, XY);
	refused_as(&p, "map: column 42: the statement is nested more than 64 deep");
	p = problem_of("y[i,j] = x[i,j]", "x,y", "f32 8x16");
	p.tensors[0].dtype = KILN_DTYPE_NONE;
	refused_as(&p, "map: x is missing");
}

static void layouts_are_refused(void **state)
{
	struct kernel_problem p = problem_of("y[i,j] = x[i,j]", XY);

	(void)state;
	p.tensors[1].stride[0] = 32;
	refused_as(&p, "map: dimension 0 of y has stride 32; an output is contiguous, with 16 there");
	p = problem_of("y[i] = x[k[i]]", "x,k,y", "f32 0;i32 9;f32 9");
	add_text(&p, "bounds", "clamp");
	refused_as(&p, "map: dimension 0 of x has size 0; with bounds clamp it needs an element to "
				   "take");
	/* The common rules call operands what the statement does. */
	p = problem_of("y[i,j] = first[i,j]", "first,y", "f32 8x16;f32 8x16");
	p.tensors[0].stride[1] = -1;
	refused_as(&p, "map: dimension 1 of first has stride -1; strides are 0 or more");
}

/* No operand has as many elements as the sum has terms. */
static void terms_are_countable(void **state)
{
	struct kernel_problem p =
		problem_of("y += a[i] * b[j]", "a,b,y", "f32 1099511627776;f32 1099511627776");
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX];

	(void)state;
	p.tensors[0].stride[0] = p.tensors[1].stride[0] = 0;
	assert_int_equal(plan_all(&p, &plan, error), KILN_ENOTSUP);
	assert_string_equal(error, "map: there are more than 2^55 values to go over");
}

/* ---- Plans ---- */

static void outputs_are_inferred(void **state)
{
	struct kernel_problem p = problem_of("y[j,i] = x[i,j] * b[j]", "x,b,y", "f16 8x16;f32 16");
	struct kernel_plan plan;

	(void)state;
	planned(&p, &plan);
	assert_int_equal(p.tensor_count, 3);
	assert_int_equal(p.tensors[2].dtype, KILN_F32);
	assert_int_equal(p.tensors[2].rank, 2);
	assert_int_equal(p.tensors[2].shape[0], 16);
	assert_int_equal(p.tensors[2].shape[1], 8);
	assert_string_equal(plan.operands, "x, b, y");
}

/* An output that is left out has the dtype of what is written to it, and its indices' sizes. */
static void outputs_have_the_right_sides_dtype(void **state)
{
	static const struct {
		const char *statement, *operands; /* of x and m */
		kiln_dtype dtype;
	} rows[] = {
		{"y[i] = m[i] ? 0 : x[i] * 2", "f16 9;bool 9", KILN_F16},
		{"y[i] = m[i] + x[i]", "f16 9;f32 9", KILN_F32},
		{"y[i] = m[i] + x[i]", "bf16 9;f16 9", KILN_F32},
		{"y[i] = m[i] * x[i]", "f16 9;i64 9", KILN_F16},
		{"y[i] = m[i] ? -x[i] : 0", "f8e4m3 9;bool 9", KILN_F8E4M3},
		{"y[i] = m[i] + x[i]", "f8e4m3 9;f8e5m2 9", KILN_F32},
		{"y[i] = m[i] * sat_f8e5m2(x[i])", "f32 9;u8 9", KILN_F8E5M2},
		{"y[i] = m[i] * x[i]", "i8 9;i8 9", KILN_I8},
		{"y[i] = m[i] * x[i]", "i8 9;u16 9", KILN_I32},
		{"y[i] = m[i] * x[i]", "i8 9;u32 9", KILN_I64},
		{"y[i] = m[i] + x[i]", "u32 9;bool 9", KILN_U32},
		{"y[i] = m[i] + x[i]", "u64 9;bool 9", KILN_U64},
		{"y[i] = m[i] + x[i]", "bool 9;bool 9", KILN_I32},
		{"y[i] = m[i] | x[i]", "bool 9;bool 9", KILN_BOOL},
		{"y[i] = m[i] ? x[i] : 0.5", "i64 9;bool 9", KILN_F32},
		{"y[i] = m[i] < x[i]", "f64 9;f64 9", KILN_BOOL},
		{"y[i] = exp(x[i]) * m[i]", "i32 9;u8 9", KILN_F32},
		{"y[i] = u8(x[i] * 255) * m[i]", "f32 9;bool 9", KILN_U8},
		{"y[i] = x[m[i]]", "f16 9;i64 9", KILN_F16},
		{"y[i] = x[i] > 0 || m[i] ? 1 : 2", "f16 9;bool 9", KILN_I64},
		{"y[] += x[i] && m[i]", "f16 9;bool 9", KILN_I64},
		{"y[] max= x[i] && m[i]", "f16 9;bool 9", KILN_BOOL},
		{"y[i] = x[i] / sum[k](x[k]) * m[i]", "f16 9;bool 9", KILN_F16},
		{"y[i] = sum[k](x[k]) * m[i]", "i8 9;bool 9", KILN_I64},
		{"y[i] = max[k](x[k]) + m[i]", "i8 9;bool 9", KILN_I8},
		{"y[i] = any[k](x[k] > 2) && m[i]", "i8 9;bool 9", KILN_BOOL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kernel_problem p = problem_of(rows[i].statement, "x,m,y", rows[i].operands);
		struct kernel_plan plan;
		planned(&p, &plan);
		if (p.tensors[2].dtype != rows[i].dtype)
			fail_msg("%s of %s has dtype %d and not %d", rows[i].statement, rows[i].operands,
					 p.tensors[2].dtype, rows[i].dtype);
	}
}

/* A bool takes the type that it meets: it goes with u64, and a difference of u32 wraps. */
static void bools_take_the_type_they_meet(void **state)
{
	struct kernel_problem p = problem_of("y[i] = m[i] - x[i]", "m,x,y", "bool 9;u32 9;i64 9");
	struct kernel_plan plan;

	(void)state;
	planned(&p, &plan);
	holds(&plan, "u32");
	assert_null(strstr(plan.generated, "i64("));
	p = problem_of("y[i] = m[i] - x[i]", "m,x,y", "bool 9;u64 9;u64 9");
	planned(&p, &plan);
}

/* Reductions that say the same are one, whatever their indices are called, and a row is read once;
 * how many rows there are is no part of the kernel. */
static void reductions_of_a_row_are_worked_out_once(void **state)
{
	struct kernel_problem p =
		problem_of("y[i,j] = exp(x[i,j] - max[k](x[i,k])) / sum[k](exp(x[i,k] "
				   "- max[l](x[i,l])))",
				   "x,y", "f32 64x1024;f32 64x1024");
	struct kernel_plan plan, other;

	(void)state;
	planned(&p, &plan);
	holds(&plan, "Map::Sweep, Map::Stage0, Map::Stage1>");
	holds(&plan, "holds = true");
	assert_null(strstr(plan.generated, "Held1"));
	p.tensors[0].shape[0] = p.tensors[1].shape[0] = 100000;
	planned(&p, &other);
	assert_string_equal(plan.generated, other.generated);
	assert_string_equal(plan.instantiation, other.instantiation);
}

/* A value and a batch size change nothing of the kernel. */
static void values_are_arguments(void **state)
{
	struct kernel_problem p =
		problem_of("y[i,j] = x[i,j] * s + b[j]", "x,b,y", "f32 4096x1024;f32 1024;f32 4096x1024");
	struct kernel_plan one, other;

	(void)state;
	add_number(&p, "s", 2.5, true);
	planned(&p, &one);
	p.attrs[2].f = 3.5;
	p.tensors[0].shape[0] = p.tensors[2].shape[0] = 8192;
	planned(&p, &other);
	assert_string_equal(one.generated, other.generated);
	assert_string_equal(one.instantiation, other.instantiation);
	assert_int_equal(one.args[3].bytes, 4);
	assert_int_equal(one.args[3].value, 0x40200000);
	assert_int_equal(other.args[3].value, 0x40600000);
	/* A whole number is the same to floats. */
	p.attrs[2].kind = KILN_ATTR_INT;
	p.attrs[2].i = 3;
	planned(&p, &other);
	assert_string_equal(one.instantiation, other.instantiation);
	assert_int_equal(other.args[3].value, 0x40400000);
	/* Another statement is another kernel. */
	p = problem_of("y[i,j] = x[i,j] * s - b[j]", "x,b,y", "f32 4096x1024;f32 1024;f32 4096x1024");
	add_number(&p, "s", 2.5, true);
	planned(&p, &other);
	assert_string_not_equal(one.instantiation, other.instantiation);
}

static void accesses_move_whole_vectors(void **state)
{
	struct kernel_problem p =
		problem_of("y[i,j] = x[i,j] * s + b[j]", "x,b,y", "f16 64x96;f32 96;f16 64x96");
	struct kernel_plan plan;

	(void)state;
	add_number(&p, "s", 2.5, true);
	planned(&p, &plan);
	holds(&plan, "map_fetch<V, 16, 1>(p0");
	holds(&plan, "vector = V, store = 16");
	holds(&plan, "MapStatement<8> map");
	assert_int_equal(plan.extents[0].alignment, 16);
	assert_int_equal(plan.extents[2].alignment, 16);
	/* An address that is not aligned costs its own operand only. */
	p.tensors[0].alignment = 2;
	planned(&p, &plan);
	holds(&plan, "map_fetch<V, 2, 1>(p0");
	holds(&plan, "map_fetch<V, 16, 1>(p1");
	assert_int_equal(plan.extents[0].alignment, 2);
	/* Dimensions that follow one another everywhere are one loop, and any size of it will do. */
	p = problem_of("y[i,j,k] = x[i,j,k] * 2", "x,y", "f32 31x7x3;f32 31x7x3");
	planned(&p, &plan);
	assert_string_equal(plan.note, "4 at once along k; loops i..k of 651");
	assert_int_equal(plan.extents[0].alignment, 16);
	assert_null(strstr(plan.generated, "%"));
}

static void subscripts_are_checked_where_they_may_stray(void **state)
{
	static const struct {
		const char *statement, *operands;
		bool checked;
	} rows[] = {
		{"y[i] = x[k[i]]", "f32 200;i32 64;f32 64", true},
		{"y[i] = x[k[i]]", "f32 200;u8 64;f32 64", true},
		{"y[i] = x[k[i]]", "f32 256;u8 64;f32 64", false},
		{"y[i] = x[k[i] & 127]", "f32 200;u8 64;f32 64", false},
		{"y[i] = x[clamp(k[i], 0, 199)]", "f32 200;i64 64;f32 64", false},
		{"y[i] = x[clamp(k[i], 0, 200)]", "f32 200;i64 64;f32 64", true},
		{"y[i] = x[i + 1] + k[i]", "f32 65;i32 64;f32 64", false},
		{"y[i] = x[i + 1] + k[i]", "f32 64;i32 64;f32 64", true},
		{"y[i] = x[63 - i] + k[i]", "f32 64;i32 64;f32 64", false},
		{"y[i] = x[i - 1] + k[i]", "f32 64;i32 64;f32 64", true},
		{"y[i] = x[(i * 7 + 3) % 50] + k[i]", "f32 50;i32 64;f32 64", false},
		{"y[i] = x[i / 2] + k[i]", "f32 32;i32 64;f32 64", false},
	};
	struct kernel_plan plan;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kernel_problem p = problem_of(rows[i].statement, "x,k,y", rows[i].operands);
		planned(&p, &plan);
		assert_int_equal(plan.report.indices != 0, rows[i].checked);
		/* Without a report there are still no wild reads. */
		add_text(&p, "bounds", "zero");
		planned(&p, &plan);
		assert_int_equal(plan.report.indices, 0);
		assert_int_equal(strstr(plan.generated, "map_within") != NULL, rows[i].checked);
		/* Each of them, whatever is known, on request. */
		add_number(&p, "checked", 1, false);
		planned(&p, &plan);
		assert_true(plan.report.indices != 0);
	}
}

/* How many share a sum does not depend on how many sums there are. */
static void sums_have_an_order_of_their_own(void **state)
{
	struct kernel_problem p = problem_of("y[i] += x[i,j]", "x,y", "f32 7x4096;f32 7");
	struct kernel_plan few, many;

	(void)state;
	planned(&p, &few);
	p.tensors[0].shape[0] = p.tensors[1].shape[0] = 70000;
	planned(&p, &many);
	assert_string_equal(few.variant, "rows");
	assert_string_equal(few.instantiation, many.instantiation);
	assert_string_equal(few.generated, many.generated);
	p = problem_of("y[j] += x[i,j]", "x,y", "f32 4096x64;f32 64");
	planned(&p, &few);
	assert_string_equal(few.variant, "columns");
	assert_int_equal(few.scratch.bytes, 256 + 4 * 64 * 4); /* counters, then 4 pieces */
	/* Blocks have pieces of a long one, again by its own length. */
	p = problem_of("y[i] += x[i,j]", "x,y", "f32 2x100000;f32 2");
	planned(&p, &few);
	assert_int_equal(few.grid[0], 2 * 6);
	assert_int_equal(few.scratch.counters, 256);
	assert_int_equal(few.scratch.bytes, 256 + 2 * 6 * 4);
	p.tensors[0].shape[0] = p.tensors[1].shape[0] = 500;
	planned(&p, &many);
	assert_string_equal(few.instantiation, many.instantiation);
	assert_int_equal(many.grid[0], 500 * 6);
}

static void reports_are_read(void **state)
{
	struct kernel_problem p = problem_of("y[i,j] = x[i,k[j]]", "x,k,y", "f32 8x10;i32 16;f32 8x16");
	char error[KERNEL_ERROR_MAX] = "";

	(void)state;
	plan_report(&p, 3, error);
	assert_string_equal(error, "3 subscripts were out of range, and 0 was read there; checked "
							   "names the first");
	add_number(&p, "checked", 1, false);
	/* The element 5, 7; k[j] is the first access, so subscript 1 of x is number 2 of all. */
	plan_report(&p, ~(uint64_t)((5 * 16 + 7) << 8 | 2), error);
	assert_string_equal(error, "subscript 1 of x at column 14 is not within 0 to 9; first where "
							   "i=5, j=7");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(statements_are_refused),
		cmocka_unit_test(settings_are_refused),
		cmocka_unit_test(layouts_are_refused),
		cmocka_unit_test(terms_are_countable),
		cmocka_unit_test(outputs_are_inferred),
		cmocka_unit_test(outputs_have_the_right_sides_dtype),
		cmocka_unit_test(bools_take_the_type_they_meet),
		cmocka_unit_test(reductions_of_a_row_are_worked_out_once),
		cmocka_unit_test(values_are_arguments),
		cmocka_unit_test(accesses_move_whole_vectors),
		cmocka_unit_test(subscripts_are_checked_where_they_may_stray),
		cmocka_unit_test(sums_have_an_order_of_their_own),
		cmocka_unit_test(reports_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
