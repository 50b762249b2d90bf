/*
 * problem_operands.c: all operands but the first: which are there, and of which type and shape.
 * Options and files say so; the rest follows from the first.
 */
#include "failure.h"
#include "files.h"
#include "problem.h"
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static int check_with(const struct plan_op *row, const char *with)
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

static bool is_asked_for(const struct cli *cli, const struct cli_problem *problem,
						 const char *operand)
{
	const char *with = cli_value(cli, "with");

	return (with && is_listed(with, operand)) || files_in(problem->files, operand) ||
		   files_out(problem->files, operand);
}

static bool is_there(const struct cli *cli, const struct cli_problem *problem,
					 const struct op_operand *operand)
{
	const char *kind = cli_problem_text(problem, "kind", "");
	bool backward = !strcmp(problem->row->operands[0].name, "y");

	if (is_asked_for(cli, problem, operand->name))
		return true;
	switch (operand->presence) {
	case OP_BY_KIND:
		/* The gradient does not depend on a mask that is added. */
		return cli_value(cli, "mask") ||
			   (strcmp(kind, "causal") != 0 && (strcmp(kind, "additive") != 0 || !backward));
	case OP_USUAL:
		return !cli_value(cli, "with");
	case OP_WITH_INPUT:
		return problem->tensors[plan_input_of(problem->row, operand)].dtype != KILN_DTYPE_NONE;
	case OP_OPTIONAL:
		return false;
	default:
		return true;
	}
}

static bool is_float(kiln_dtype dtype)
{
	return dtype == KILN_F16 || dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;
}

static int choose_dtype(const struct cli *cli, const struct cli_problem *problem,
						const struct op_operand *operand, kiln_dtype *dtype)
{
	kiln_dtype first = problem->tensors[0].dtype;
	const char *kind = cli_problem_text(problem, "kind", ""), *own;
	char name[32], option[40];

	snprintf(name, sizeof(name), "%s-dtype", operand->name);
	snprintf(option, sizeof(option), "--%s", name);
	own = cli_value(cli, name);
	*dtype = first;
	if (operand->dtype == OP_COMPUTED)
		*dtype = first == KILN_F64 ? KILN_F64 : KILN_F32;
	else if (operand->dtype == OP_MASK_DTYPE && strcmp(kind, "additive") != 0)
		*dtype = strcmp(kind, "lengths") ? KILN_BOOL : KILN_I32;
	else if (operand->dtype == OP_INDEX || operand->dtype == OP_I32)
		*dtype = KILN_I32;
	else if (operand->dtype == OP_I64)
		*dtype = KILN_I64;
	else if (operand->dtype == OP_BOOL)
		*dtype = KILN_BOOL;
	else if (operand->dtype == OP_SUMMED && !is_float(first))
		*dtype = KILN_I64;
	else if (operand->dtype == OP_TO)
		*dtype = kiln_dtype_parse(cli_problem_text(problem, "to", ""));
	return own ? cli_dtype(option, own, dtype) : CLI_OK;
}

/* Whether the first operand of a gather is a gradient. */
static bool is_backward(const struct cli_problem *problem)
{
	return !strcmp(problem->row->operands[0].name, "ddst");
}

static void set_shape(kiln_tensor *tensor, int rank, int64_t first, int64_t second)
{
	tensor->rank = rank;
	tensor->shape[0] = first;
	tensor->shape[1] = second;
}

int cli_problem_indexed_axis(const struct cli_problem *problem)
{
	const struct op_attribute *axis = cli_attribute(problem->row, "axis");
	int64_t usual = axis ? strtoll(axis->usual, NULL, 10) : 0, rank = problem->tensors[0].rank;
	int64_t along = cli_problem_int(problem, "axis", usual);

	if (problem->row->operands[1].shape == OP_LISTS)
		along = -1;
	along = along < 0 ? along + rank : along;
	return along < 0 || along >= rank ? 0 : (int)along;
}

/* Sets a shape that has --last along the axis that is indexed, or that of the list for it. */
static int along_shape(const struct cli *cli, const struct cli_problem *problem,
					   const struct op_operand *operand, kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0], *idx = &problem->tensors[1];
	const char *value = cli_value(cli, "last");
	int axis = cli_problem_indexed_axis(problem);
	int64_t own = first->rank ? first->shape[axis] : 1, last = own;
	int status = value ? cli_integer("--last", value, 0, INT64_MAX, &last) : CLI_OK;

	if (operand->shape == OP_LIST) {
		set_shape(tensor, 1, is_backward(problem) ? own : last, 0);
		return status;
	}
	/* The indices may come from a file. */
	if (!is_backward(problem) && operand != &problem->row->operands[1] && idx->rank)
		last = idx->shape[idx->rank == first->rank ? axis : 0];
	tensor->rank = first->rank;
	memcpy(tensor->shape, first->shape, sizeof(tensor->shape));
	if (first->rank)
		tensor->shape[axis] = last;
	return status;
}

/* Sets a shape of gather or its backward: that of the lists of indices, or of the operand that has
 * --last for its last axis; the lists of gather have it, too.  The daemon refuses shapes without
 * these axes. */
static int gather_shape(const struct cli *cli, const struct cli_problem *problem,
						const struct op_operand *operand, kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0], *idx = &problem->tensors[1];
	const char *value = cli_value(cli, "last");
	int64_t own = first->rank ? first->shape[first->rank - 1] : 1, last = own;
	int status = value ? cli_integer("--last", value, 0, INT64_MAX, &last) : CLI_OK;

	if (operand->shape == OP_LISTS) {
		set_shape(tensor, 2, first->rank > 1 ? first->shape[first->rank - 2] : 1,
				  is_backward(problem) ? own : last);
		return status;
	}
	if (!is_backward(problem) && idx->rank)
		last = idx->shape[idx->rank - 1];
	tensor->rank = first->rank;
	memcpy(tensor->shape, first->shape, sizeof(tensor->shape));
	if (first->rank)
		tensor->shape[first->rank - 1] = last;
	return status;
}

/* Sets the shape of what goes with predicted boxes, which are padded or divided up by offsets. */
static void boxes_shape(const struct cli *cli, const struct cli_problem *problem,
						const struct op_operand *operand, kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0];
	int64_t boxes = 1;

	for (int k = 0; k < first->rank - 1; k++)
		(void)__builtin_mul_overflow(boxes, first->shape[k], &boxes);
	if (operand->shape == OP_BOUNDARIES) {
		set_shape(tensor, 1, first->rank ? first->shape[0] + 1 : 1, 0);
	} else if (operand->shape == OP_PER_BOX && is_asked_for(cli, problem, "offsets")) {
		set_shape(tensor, 2, boxes / 2, 4);
	} else if (operand->shape == OP_PER_BOX) {
		tensor->rank = first->rank;
		memcpy(tensor->shape, first->shape, sizeof(tensor->shape));
	}
}

/* Sets the shape of an operand that goes with the tokens of [.., tokens, heads, dim], or of [..,
 * heads, tokens, dim].  It has their positions, or rows of angles, of which the tokens use those
 * from attribute start on. */
static void tokens_shape(const struct cli_problem *problem, const struct op_operand *operand,
						 kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0];
	bool inside = !strcmp(cli_problem_text(problem, "layout", "bshd"), "bhsd");
	int at = first->rank - (inside ? 2 : 3);
	bool angles = operand->shape == OP_ANGLES;
	int64_t start = angles ? cli_problem_int(problem, "start", 0) : 0;

	set_shape(tensor, angles ? 2 : 1, (at < 0 ? 1 : first->shape[at]) + (start > 0 ? start : 0),
			  first->rank ? first->shape[first->rank - 1] / 2 : 1);
}

int cli_problem_place(const struct cli_problem *problem)
{
	return strcmp(cli_problem_text(problem, "kv_layout", "nhd"), "hnd") ? 1 : 2;
}

/* Sets the shape of a paged cache that has more slots than the first operand tokens. */
static void pages_shape(const struct cli_problem *problem, kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0];
	bool inside = !strcmp(cli_problem_text(problem, "layout", "bshd"), "bhsd");
	int place = cli_problem_place(problem);
	int64_t tokens = 1;

	tensor->rank = 4;
	tensor->shape[0] = tensor->shape[1] = tensor->shape[2] = tensor->shape[3] = 1;
	if (first->rank < 3)
		return;
	for (int k = 0; k < first->rank - 1; k++)
		if (k != first->rank - 2 - inside)
			(void)__builtin_mul_overflow(tokens, first->shape[k], &tokens);
	tensor->shape[0] = tokens / 16 + 1;
	tensor->shape[place] = 16;
	tensor->shape[3 - place] = first->shape[first->rank - 2 - inside];
	tensor->shape[3] = first->shape[first->rank - 1];
}

/* Sets the shape of a result over some axes of the first operand; over all if there is no list. */
static void reduced_shape(const struct cli_problem *problem, kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0];
	bool keep = cli_problem_int(problem, "keepdim", 0) != 0;
	unsigned over = 0;

	for (int i = 0; i < problem->attr_count; i++)
		for (int k = 0; strcmp(problem->attrs[i].name, "over") == 0 && k < problem->attrs[i].count;
			 k++)
			over |=
				1u << ((problem->perm[k] < 0 ? problem->perm[k] + first->rank : problem->perm[k]) &
					   31);
	over = over ? over : ~0u;
	tensor->rank = 0;
	for (int k = 0; k < first->rank; k++)
		if (keep || !(over >> k & 1))
			tensor->shape[tensor->rank++] = over >> k & 1 ? 1 : first->shape[k];
}

/* Sets the shape of what has attribute k along attribute axis. */
static void first_k_shape(const struct cli_problem *problem, kiln_tensor *tensor)
{
	const kiln_tensor *first = &problem->tensors[0];
	int64_t axis = cli_problem_int(problem, "axis", -1);

	tensor->rank = first->rank;
	memcpy(tensor->shape, first->shape, sizeof(tensor->shape));
	axis += axis < 0 ? tensor->rank : 0;
	int64_t k = cli_problem_int(problem, "k", 1);
	/* The daemon refuses a wrong axis, and a wrong k by its name. */
	if (axis >= 0 && axis < tensor->rank)
		tensor->shape[axis] = k < 0 ? 0 : k;
}

/* Sets the shape of what is there for each group of the last axis, or for each row. */
static void groups_shape(const struct cli_problem *problem, bool halved, kiln_tensor *tensor)
{
	int64_t group = cli_problem_int(problem, "group", 0);

	tensor->rank = problem->tensors[0].rank;
	memcpy(tensor->shape, problem->tensors[0].shape, sizeof(tensor->shape));
	if (tensor->rank && halved && problem->tensors[1].dtype == KILN_DTYPE_NONE)
		tensor->shape[tensor->rank - 1] /= 2;
	if (tensor->rank && group < 1)
		tensor->rank--;
	else if (tensor->rank)
		tensor->shape[tensor->rank - 1] /= group;
}

/* Sets a shape that has some of the first operand's dimensions, or of those of the input that the
 * operand goes with. */
static void part_shape(const struct cli_problem *problem, const struct op_operand *operand,
					   kiln_tensor *tensor)
{
	bool like_input = operand->shape == OP_LIKE_INPUT;
	const kiln_tensor *first =
		&problem->tensors[like_input ? plan_input_of(problem->row, operand) : 0];
	const char *kind = cli_problem_text(problem, "kind", "");
	int64_t axes = cli_problem_int(problem, "axes", 1);
	bool permuted = cli_operator_takes(problem->row, "perm");
	int from = 0, to = first->rank;

	/* Wrong ones are cut off here and refused by the daemon. */
	axes = axes < 0 ? 0 : axes > first->rank ? first->rank : axes;
	if (operand->shape == OP_LOSS)
		to -= strcmp(cli_problem_text(problem, "reduction", "mean"), "none") ? to : to > 0;
	if (operand->shape == OP_TRAILING)
		from = first->rank - (int)axes;
	else if (operand->shape == OP_LEADING)
		to = first->rank - (int)axes;
	else if (operand->shape == OP_MASK_SHAPE && !strcmp(kind, "lengths") && to > 0)
		to--;
	tensor->rank = to - from;
	for (int k = 0; k < tensor->rank; k++)
		tensor->shape[k] = first->shape[from + k];
	if (operand->shape == OP_TRANSPOSED && to > 1) {
		tensor->shape[to - 1] = first->shape[to - 2];
		tensor->shape[to - 2] = first->shape[to - 1];
	}
	if (operand->shape == OP_HALVED && problem->tensors[1].dtype == KILN_DTYPE_NONE && to > 0)
		tensor->shape[to - 1] /= 2;
	for (int k = 0; operand->data == OP_WRITTEN && permuted && k < to; k++)
		tensor->shape[k] = first->shape[problem->perm[k]];
}

static int choose_shape(const struct cli *cli, const struct cli_problem *problem,
						const struct op_operand *operand, kiln_tensor *tensor)
{
	const char *mask = cli_value(cli, "mask");

	switch (operand->shape) {
	case OP_LAST:
	case OP_LISTS:
		return gather_shape(cli, problem, operand, tensor);
	case OP_ALONG:
	case OP_LIST:
		return along_shape(cli, problem, operand, tensor);
	case OP_REDUCED:
		reduced_shape(problem, tensor);
		break;
	case OP_TOKENS:
	case OP_ANGLES:
		tokens_shape(problem, operand, tensor);
		break;
	case OP_PAGES:
		pages_shape(problem, tensor);
		break;
	case OP_FIRST_K:
		first_k_shape(problem, tensor);
		break;
	case OP_GROUPS:
	case OP_HALVED_GROUPS:
		groups_shape(problem, operand->shape == OP_HALVED_GROUPS, tensor);
		break;
	case OP_PER_BOX:
	case OP_BOUNDARIES:
		boxes_shape(cli, problem, operand, tensor);
		break;
	case OP_ONE:
		tensor->rank = 0;
		break;
	case OP_MASK_SHAPE:
		if (mask)
			return cli_dims("--mask", mask, tensor->shape, &tensor->rank);
		/* fall through */
	default:
		part_shape(problem, operand, tensor);
	}
	return CLI_OK;
}

/* ---- From files ---- */

/* Takes an operand from its file, and checks that options say the same. */
static int operand_from_file(const struct cli *cli, const struct cli_problem *problem,
							 const struct op_operand *operand, struct file *file,
							 kiln_tensor *tensor)
{
	const char *mask = operand->shape == OP_MASK_SHAPE ? cli_value(cli, "mask") : NULL;
	const char *last = operand->shape == OP_LISTS ? cli_value(cli, "last") : NULL;
	int64_t own, wanted;
	char option[40];
	int status = CLI_OK;

	snprintf(option, sizeof(option), "--%s-dtype", operand->name);
	if (cli_value(cli, option + 2))
		status = files_check_dtype(file, option, cli_value(cli, option + 2));
	if (!status && mask)
		status = files_check_shape(file, "--mask", mask);
	*tensor = files_tensor(file);
	if (status || !last || is_backward(problem))
		return status;
	own = wanted = tensor->rank ? tensor->shape[tensor->rank - 1] : 1;
	status = cli_integer("--last", last, 0, INT64_MAX, &wanted);
	if (!status && wanted != own)
		return cli_usage("--last '%s': %s comes from %s, whose last axis has %lld", last,
						 file->name, file->path, (long long)own);
	return status;
}

static int refuse_name(const struct plan_op *row, const char *option, const struct file *file)
{
	char names[CLI_NAMES_MAX] = "";

	for (const struct op_operand *operand = row->operands; operand->name; operand++) {
		size_t used = strlen(names);
		snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", operand->name);
	}
	return cli_usage("--%s '%s=%s': %s has no operand '%s'; it has %s", option, file->name,
					 file->path, row->name, file->name, names);
}

/* Every file is for an operand, and goes the way that one does. */
static int check_ways(const struct plan_op *row, const struct file *files, int count, bool written)
{
	const char *option = written ? "out" : "in", *other = written ? "in" : "out";

	for (int i = 0; i < count; i++) {
		const struct op_operand *operand = row->operands;
		while (operand->name && strcmp(operand->name, files[i].name) != 0)
			operand++;
		if (!operand->name)
			return refuse_name(row, option, &files[i]);
		if (op_is_output(operand->data) != written)
			return cli_usage("--%s '%s=%s': %s %s %s; --%s is for that", option, files[i].name,
							 files[i].path, row->name, written ? "reads" : "writes", operand->name,
							 other);
	}
	return CLI_OK;
}

int cli_problem_files(const struct cli *cli, const struct cli_problem *problem)
{
	const struct files *files = problem->files;
	int at = 0, status;
	const char *dtype = files ? NULL : cli_next(cli, "dtype", &at);

	if (dtype)
		return cli_usage("--dtype '%s': 'kiln %s' takes no files; --dtype TYPE is that of the "
						 "first operand",
						 dtype, cli->command->name);
	status = files ? files_read_dtypes(cli, problem->files) : CLI_OK;
	if (status || !files || !problem->row)
		return status;
	status = check_ways(problem->row, files->in, files->in_count, false);
	return status ? status : check_ways(problem->row, files->out, files->out_count, true);
}

/* ---- All of them ---- */

static int make_operand(const struct cli *cli, const struct cli_problem *problem,
						const struct op_operand *operand, kiln_tensor *tensor)
{
	struct file *file = files_in(problem->files, operand->name);
	int status;

	if (file)
		return operand_from_file(cli, problem, operand, file, tensor);
	tensor->contiguous = 1;
	status = choose_dtype(cli, problem, operand, &tensor->dtype);
	if (!status)
		status = choose_shape(cli, problem, operand, tensor);
	cli_problem_strides(tensor);
	return status;
}

int cli_problem_operands(const struct cli *cli, struct cli_problem *problem)
{
	const struct plan_op *row = problem->row;
	const char *with = cli_value(cli, "with");
	int status = with ? check_with(row, with) : CLI_OK;

	for (int i = 1; !status && row->operands[i].name; i++) {
		problem->tensor_count = i + 1;
		if (is_there(cli, problem, &row->operands[i]))
			status = make_operand(cli, problem, &row->operands[i], &problem->tensors[i]);
	}
	return status;
}
