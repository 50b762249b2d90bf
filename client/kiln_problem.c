/*
 * kiln_problem: from options to tensors and attributes, by the operator's row.  Checks that options
 * are for the operator and fit together; whether the request is right is the daemon's to say.
 */
#include "kiln_problem.h"

#include <string.h>

/* ---- Which options ---- */

/* All options that the operator takes and others do not: "--axis, --scale". */
static void list_options(const struct cli *cli, const struct cli_operator *row, char *text,
						 size_t size)
{
	const char *before = "";

	text[0] = 0;
	for (const struct cli_option *option = cli->command->options; option->name; option++) {
		size_t used = strlen(text);
		if (!cli_option_special(option->name) || !cli_operator_takes(row, option->name))
			continue;
		snprintf(text + used, size - used, "%s--%s", before, option->name);
		before = ", ";
	}
}

static int check_options(const struct cli *cli, const struct cli_operator *row)
{
	const struct cli_option *options = cli->command->options;
	char taken[256];

	for (int i = 0; options[i].name; i++) {
		if (!cli->values[i] || cli_operator_takes(row, options[i].name))
			continue;
		list_options(cli, row, taken, sizeof(taken));
		return cli_usage("--%s is no option of %s, which takes %s, and those of all operators; see "
						 "'kiln help %s'",
						 options[i].name, row->name, taken, cli->command->name);
	}
	return CLI_OK;
}

static int check_needs(const struct cli *cli, const struct cli_operator *row)
{
	const struct cli_option *option = cli->command->options;

	if (!row->needs || cli_value(cli, row->needs))
		return CLI_OK;
	while (strcmp(option->name, row->needs) != 0)
		option++;
	return cli_usage("'kiln %s %s' needs --%s, as --%s %s", cli->command->name, row->name,
					 option->name, option->name, option->value);
}

/* ---- The first operand ---- */

static void fill_strides(kiln_tensor *tensor)
{
	int64_t row = 1;

	for (int k = tensor->rank - 1; k >= 0; k--) {
		tensor->stride[k] = row;
		/* One that is too large is found where bytes are counted. */
		(void)__builtin_mul_overflow(row, tensor->shape[k] ? tensor->shape[k] : 1, &row);
	}
}

static int first_operand(const struct cli *cli, kiln_tensor *x)
{
	const char *dtype = cli_value(cli, "dtype"), *stride = cli_value(cli, "stride");
	const char *shape = cli_value(cli, "shape"), *offset = cli_value(cli, "offset");
	int status, strides;

	if (!shape)
		return cli_usage("'kiln %s' needs --shape, as --shape 2x3x4", cli->command->name);
	x->contiguous = 1;
	status = cli_dims("--shape", shape, x->shape, &x->rank);
	fill_strides(x);
	if (!status)
		status = cli_dtype("--dtype", dtype ? dtype : "f32", &x->dtype);
	if (!status && offset)
		status = cli_bytes("--offset", offset, &x->offset);
	if (status || !stride)
		return status;
	x->contiguous = 0;
	status = cli_dims("--stride", stride, x->stride, &strides);
	if (!status && strides != x->rank)
		return cli_usage("--stride '%s': %d strides for %d axes of --shape '%s'", stride, strides,
						 x->rank, shape);
	return status;
}

/* ---- Attributes ---- */

static int read_perm(const struct cli *cli, struct cli_problem *problem, const char *value,
					 int *count)
{
	int rank = problem->tensors[0].rank;
	int status = cli_perm("--perm", value, problem->perm, count);

	if (!status && *count != rank)
		return cli_usage("--perm '%s': %d axes for %d axes of --shape '%s'", value, *count, rank,
						 cli_value(cli, "shape"));
	return status;
}

static int read_attribute(const struct cli *cli, struct cli_problem *problem,
						  const struct cli_attribute *attribute)
{
	kiln_attr attr = {.name = attribute->name, .kind = attribute->kind, .ints = problem->perm};
	const char *value = cli_value(cli, attribute->name);
	char option[32];
	int status = CLI_OK;

	if (!value)
		return CLI_OK;
	snprintf(option, sizeof(option), "--%s", attribute->name);
	if (attr.kind == KILN_ATTR_INTS)
		status = read_perm(cli, problem, value, &attr.count);
	else if (attr.kind == KILN_ATTR_REAL)
		status = cli_real(option, value, &attr.f);
	else if (attr.kind == KILN_ATTR_STRING)
		attr.s = value;
	else if (!value[0]) /* a flag */
		attr.i = 1;
	else
		status = cli_integer(option, value, INT64_MIN, INT64_MAX, &attr.i);
	problem->attrs[problem->attr_count++] = attr;
	return status;
}

static const kiln_attr *find_attr(const struct cli_problem *problem, const char *name)
{
	for (int i = 0; i < problem->attr_count; i++)
		if (!strcmp(problem->attrs[i].name, name))
			return &problem->attrs[i];
	return NULL;
}

int64_t cli_problem_int(const struct cli_problem *problem, const char *name, int64_t otherwise)
{
	const kiln_attr *attr = find_attr(problem, name);
	return attr ? attr->i : otherwise;
}

double cli_problem_real(const struct cli_problem *problem, const char *name, double otherwise)
{
	const kiln_attr *attr = find_attr(problem, name);
	return attr ? attr->f : otherwise;
}

const char *cli_problem_text(const struct cli_problem *problem, const char *name,
							 const char *otherwise)
{
	const kiln_attr *attr = find_attr(problem, name);
	return attr ? attr->s : otherwise;
}

bool cli_problem_written(const struct cli_problem *problem, int operand)
{
	return problem->row && problem->row->operands[operand].data == DATA_WRITTEN;
}

/* ---- The other operands ---- */

/* Is the word one of "a,b,c"? */
static bool is_listed(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strcspn(at, ",") == length && !strncmp(at, word, length))
			return true;
	return false;
}

/* Every word of --with is an optional operand. */
static int check_with(const struct cli_operator *row, const char *with)
{
	char names[CLI_NAMES_MAX];

	cli_operator_optional(row, names);
	for (const char *at = with; *at;) {
		size_t length = strcspn(at, ",");
		char word[32];
		snprintf(word, sizeof(word), "%.*s", (int)length, at);
		if (!is_listed(names, word))
			return cli_usage("--with '%s': %s has no optional operand '%s'; it has %s", with,
							 row->name, word, names);
		at += length + (at[length] == ',');
	}
	return CLI_OK;
}

/* With a mask that is added, the gradient does not depend on it. */
static bool kind_has_mask(const struct cli_problem *problem)
{
	const char *kind = cli_problem_text(problem, "kind", "");
	bool backward = !strcmp(problem->row->operands[0].name, "y");

	return strcmp(kind, "causal") != 0 && (strcmp(kind, "additive") != 0 || !backward);
}

static bool is_there(const struct cli *cli, const struct cli_problem *problem,
					 const struct cli_operand *operand)
{
	const char *with = cli_value(cli, "with");

	switch (operand->presence) {
	case BY_KIND:
		return cli_value(cli, "mask") || kind_has_mask(problem);
	case USUAL:
		return !with || is_listed(with, operand->name);
	case OPTIONAL:
		return with && is_listed(with, operand->name);
	default:
		return true;
	}
}

static int choose_dtype(const struct cli *cli, const struct cli_problem *problem,
						const struct cli_operand *operand, kiln_dtype *dtype)
{
	kiln_dtype first = problem->tensors[0].dtype;
	const char *kind = cli_problem_text(problem, "kind", ""), *own;
	char name[32], option[40];

	snprintf(name, sizeof(name), "%s-dtype", operand->name);
	snprintf(option, sizeof(option), "--%s", name);
	own = cli_value(cli, name);
	*dtype = first;
	if (operand->dtype == DTYPE_COMPUTED)
		*dtype = first == KILN_F64 ? KILN_F64 : KILN_F32;
	else if (operand->dtype == DTYPE_MASK && strcmp(kind, "additive") != 0)
		*dtype = strcmp(kind, "lengths") ? KILN_BOOL : KILN_I32;
	else if (operand->dtype == DTYPE_INDEX || operand->dtype == DTYPE_I32)
		*dtype = KILN_I32;
	else if (operand->dtype == DTYPE_I64)
		*dtype = KILN_I64;
	return own ? cli_dtype(option, own, dtype) : CLI_OK;
}

static void set_shape(kiln_tensor *tensor, int rank, int64_t first, int64_t second)
{
	tensor->rank = rank;
	tensor->shape[0] = first;
	tensor->shape[1] = second;
}

/* Of gather and its backward: the lists of indices, and the side that has --last for its last axis.
 * Shapes without these axes are refused by the daemon. */
static int gather_shape(const struct cli *cli, const struct cli_problem *problem,
						const struct cli_operand *operand, kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0];
	bool backward = !strcmp(problem->row->operands[0].name, "ddst");
	const char *value = cli_value(cli, "last");
	int64_t own = first->rank ? first->shape[first->rank - 1] : 1, last = own;
	int status = value ? cli_integer("--last", value, 0, INT64_MAX, &last) : CLI_OK;

	if (operand->shape == SHAPE_INDICES) {
		set_shape(tensor, 2, first->rank > 1 ? first->shape[first->rank - 2] : 1,
				  backward ? own : last);
		return status;
	}
	tensor->rank = first->rank;
	memcpy(tensor->shape, first->shape, sizeof(tensor->shape));
	if (first->rank)
		tensor->shape[first->rank - 1] = last;
	return status;
}

/* Of boxes: what goes with predictions that are padded, or that offsets divide up. */
static void boxes_shape(const struct cli *cli, const struct cli_problem *problem,
						const struct cli_operand *operand, kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0];
	const char *with = cli_value(cli, "with");
	int64_t boxes = 1;

	for (int k = 0; k < first->rank - 1; k++)
		(void)__builtin_mul_overflow(boxes, first->shape[k], &boxes);
	if (operand->shape == SHAPE_OFFSETS) {
		set_shape(tensor, 1, first->rank ? first->shape[0] + 1 : 1, 0);
	} else if (operand->shape == SHAPE_TARGETS && with && is_listed(with, "offsets")) {
		set_shape(tensor, 2, boxes / 2, 4);
	} else if (operand->shape == SHAPE_TARGETS) {
		tensor->rank = first->rank;
		memcpy(tensor->shape, first->shape, sizeof(tensor->shape));
	}
}

static int choose_shape(const struct cli *cli, const struct cli_problem *problem,
						const struct cli_operand *operand, kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0];
	const char *mask = cli_value(cli, "mask"), *kind = cli_problem_text(problem, "kind", "");
	int64_t axes = cli_problem_int(problem, "axes", 1);
	int from = 0, to = first->rank;

	/* Wrong ones are cut off here and refused by the daemon. */
	axes = axes < 0 ? 0 : axes > first->rank ? first->rank : axes;
	if (operand->shape == SHAPE_LAST || operand->shape == SHAPE_INDICES)
		return gather_shape(cli, problem, operand, tensor);
	if (operand->shape >= SHAPE_TARGETS) {
		boxes_shape(cli, problem, operand, tensor);
		return CLI_OK;
	}
	if (operand->shape == SHAPE_MASK && mask)
		return cli_dims("--mask", mask, tensor->shape, &tensor->rank);
	if (operand->shape == SHAPE_TRAILING)
		from = first->rank - (int)axes;
	else if (operand->shape == SHAPE_LEADING)
		to = first->rank - (int)axes;
	else if (operand->shape == SHAPE_MASK && !strcmp(kind, "lengths") && to > 0)
		to--;
	tensor->rank = to - from;
	for (int k = 0; k < tensor->rank; k++)
		tensor->shape[k] = first->shape[from + k];
	for (int k = 0; operand->data == DATA_WRITTEN && find_attr(problem, "perm") && k < to; k++)
		tensor->shape[k] = first->shape[problem->perm[k]];
	return CLI_OK;
}

static int other_operands(const struct cli *cli, struct cli_problem *problem)
{
	const struct cli_operator *row = problem->row;
	const char *with = cli_value(cli, "with");
	int status = with ? check_with(row, with) : CLI_OK;

	for (int i = 1; !status && row->operands[i].name; i++) {
		kiln_tensor *tensor = &problem->tensors[i];
		problem->tensor_count = i + 1;
		if (!is_there(cli, problem, &row->operands[i]))
			continue;
		tensor->contiguous = 1;
		status = choose_dtype(cli, problem, &row->operands[i], &tensor->dtype);
		if (!status)
			status = choose_shape(cli, problem, &row->operands[i], tensor);
		fill_strides(tensor);
	}
	return status;
}

int cli_problem(const struct cli *cli, struct cli_problem *problem)
{
	int status = CLI_OK;

	memset(problem, 0, sizeof(*problem));
	problem->op = cli->positional[0];
	problem->row = cli_operator(problem->op);
	problem->tensor_count = 1;
	if (problem->row)
		status = check_options(cli, problem->row);
	if (!status)
		status = first_operand(cli, &problem->tensors[0]);
	if (!status && problem->row)
		status = check_needs(cli, problem->row);
	for (int i = 0; !status && cli_attributes[i].name; i++)
		status = read_attribute(cli, problem, &cli_attributes[i]);
	if (!status && problem->row)
		status = other_operands(cli, problem);
	return status;
}
