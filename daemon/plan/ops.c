/*
 * ops.c: the table of operators and the way into it: common checks first, then the operator's own.
 */
#include "internal.h"

#include <string.h>

const struct plan_op plan_ops[] = {
	{
		.name = "permute",
		.operands = "x, y",
		.attributes = "perm: which dimension of x each dimension of y is",
		.summary =
			"y = x with its dimensions reordered, bit for bit; x may be strided or broadcast",
		.plan = permute_plan,
		.infer = permute_infer,
		.choices = permute_choices,
		.generics = permute_generics,
	},
	{
		.name = "softmax",
		.operands = "x, y",
		.attributes = "axis: the dimension to go along, from the end if below 0 (default -1); "
					  "scale: factor of x (default 1)",
		.summary = "y = exp(scale * x) along an axis, divided by its sum",
		.plan = softmax_plan,
		.infer = softmax_infer,
		.choices = softmax_choices,
		.generics = softmax_generics,
	},
	{
		.name = "log_softmax",
		.operands = "x, y",
		.attributes = "axis: the dimension to go along, from the end if below 0 (default -1); "
					  "scale: factor of x (default 1)",
		.summary = "y = scale * x along an axis, less the logarithm of the sum of exp(scale * x)",
		.plan = softmax_plan,
		.infer = softmax_infer,
		.choices = softmax_choices,
		.generics = softmax_generics,
	},
	{
		.name = "softmax_backward",
		.operands = "y, dy, dx",
		.attributes = "axis: the dimension to go along, from the end if below 0 (default -1); "
					  "scale: factor of x (default 1)",
		.summary = "dx = scale * y * (dy - sum(dy * y)) along an axis",
		.plan = softmax_plan,
		.infer = softmax_infer,
		.choices = softmax_choices,
		.generics = softmax_backward_generics,
	},
	{
		.name = "log_softmax_backward",
		.operands = "y, dy, dx",
		.attributes = "axis: the dimension to go along, from the end if below 0 (default -1); "
					  "scale: factor of x (default 1)",
		.summary = "dx = scale * (dy - exp(y) * sum(dy)) along an axis",
		.plan = softmax_plan,
		.infer = softmax_infer,
		.choices = softmax_choices,
		.generics = softmax_backward_generics,
	},
	{
		.name = "masked_softmax",
		.operands = "x, mask?, y",
		.attributes =
			"kind: bool (mask is bool or u8), lengths (i32, one a row), causal (no mask), "
			"additive (floats); keep: for kind bool, 1 if what is not 0 is kept (default "
			"0, masked); empty: zero, nan or uniform, what a row becomes that is all "
			"masked (default zero); scale: factor of x (default 1); diagonal: for kind "
			"causal, column k of query q is kept if k <= q + diagonal (default 0)",
		.summary = "softmax of scale * x along the last dimension over the elements that the mask "
				   "leaves, 0 elsewhere",
		.plan = masked_softmax_plan,
		.infer = masked_softmax_infer,
		.choices = masked_softmax_choices,
		.generics = masked_softmax_generics,
	},
	{
		.name = "masked_softmax_backward",
		.operands = "y, dy, mask?, dx",
		.attributes = "kind: bool, lengths, causal, additive (needs no mask); keep, scale, "
					  "diagonal: as of masked_softmax",
		.summary = "dx = scale * y * (dy - sum(dy * y)) over the elements that the mask leaves, 0 "
				   "elsewhere",
		.plan = masked_softmax_plan,
		.infer = masked_softmax_infer,
		.choices = masked_softmax_choices,
		.generics = masked_softmax_backward_generics,
	},
	{
		.name = "layer_norm",
		.operands = "x, gamma?, beta?, residual?, y, mean?, rstd?, sum?",
		.attributes = "eps: added to the variance (default 1e-5); "
					  "axes: how many trailing dimensions are normalized (default 1)",
		.summary = "y = (s - mean) / sqrt(variance + eps) * gamma + beta over the rows of s = x + "
				   "residual",
		.plan = norm_plan,
		.infer = norm_infer,
		.choices = norm_choices,
		.generics = norm_generics,
	},
	{
		.name = "rms_norm",
		.operands = "x, gamma?, beta?, residual?, y, rstd?, sum?",
		.attributes = "eps: added to the mean of squares (default 1e-5); "
					  "axes: how many trailing dimensions are normalized (default 1)",
		.summary =
			"y = s / sqrt(mean of s * s + eps) * gamma + beta over the rows of s = x + residual",
		.plan = norm_plan,
		.infer = norm_infer,
		.choices = norm_choices,
		.generics = norm_generics,
	},
	{
		.name = "layer_norm_backward",
		.operands = "x, dy, gamma?, mean, rstd, dx?, dgamma?, dbeta?",
		.attributes = "axes: how many trailing dimensions are normalized (default 1)",
		.summary = "with n = (x - mean) * rstd and g = dy * gamma: dx = rstd * (g - mean of g - n "
				   "* mean of g * n), dgamma = sum of dy * n and dbeta = sum of dy over the rows",
		.plan = norm_backward_plan,
		.infer = norm_backward_infer,
		.choices = norm_backward_choices,
		.generics = layer_norm_backward_generics,
	},
	{
		.name = "rms_norm_backward",
		.operands = "x, dy, gamma?, rstd, dx?, dgamma?, dbeta?",
		.attributes = "axes: how many trailing dimensions are normalized (default 1)",
		.summary = "with n = x * rstd and g = dy * gamma: dx = rstd * (g - n * mean of g * n), "
				   "dgamma = sum of dy * n and dbeta = sum of dy over the rows",
		.plan = norm_backward_plan,
		.infer = norm_backward_infer,
		.choices = norm_backward_choices,
		.generics = rms_norm_backward_generics,
	},
	{
		.name = "gather",
		.operands = "src, idx, dst",
		.attributes = "bounds: of indices, check (default: 0 is written where one is out of range, "
					  "and the call ends in KILN_EINDEX), clamp (the nearest element is taken) or "
					  "trust (all are in range)",
		.summary = "dst[i,j,k] = src[i,j,idx[j,k]], bit for bit: one list of indices for each j, "
				   "shared by all i",
		.plan = gather_plan,
		.infer = gather_infer,
		.choices = gather_choices,
		.generics = gather_generics,
	},
	{
		.name = "gather_backward",
		.operands = "ddst, idx, dsrc",
		.attributes = "bounds: of indices, check (default: one that is out of range names nothing, "
					  "and the call ends in KILN_EINDEX), clamp (it names the nearest element) or "
					  "trust (all are in range)",
		.summary = "dsrc[i,j,p] = the sum of ddst[i,j,k] over the k with idx[j,k] = p, by rising k",
		.plan = gather_backward_plan,
		.infer = gather_backward_infer,
		.choices = gather_backward_choices,
		.generics = gather_backward_generics,
	},
	{
		.name = "giou",
		.operands = "pred, target, y",
		.attributes = "clamp: 1 if sides of the intersection are at least 0 (default), 0 if boxes "
					  "that are apart in both directions count as intersecting",
		.summary =
			"y = intersection / union - (enclosing - union) / enclosing of boxes x1, y1, x2, "
			"y2; 0 where y2 of target is 0",
		.plan = giou_plan,
		.infer = giou_infer,
		.choices = giou_choices,
		.generics = giou_generics,
	},
	{
		.name = "giou_backward",
		.operands = "pred, target, dy, dpred",
		.attributes = "clamp: as of giou",
		.summary = "dpred = dy * the derivatives of giou by x1, y1, x2, y2 of pred; 0 where y2 of "
				   "target is 0",
		.plan = giou_plan,
		.infer = giou_infer,
		.choices = giou_choices,
		.generics = giou_backward_generics,
	},
	{
		.name = "giou_loss",
		.operands = "pred, target, offsets?, loss, count?",
		.attributes = "clamp: as of giou",
		.summary = "loss = the sum of giou over the pairs where y2 of target is not 0, divided by "
				   "their count (by 1 if there are none); with offsets, sample s has the targets "
				   "offsets[s] .. offsets[s+1]-1",
		.plan = giou_plan,
		.infer = giou_infer,
		.choices = giou_choices,
		.generics = giou_loss_generics,
	},
	{
		.name = "giou_loss_backward",
		.operands = "pred, target, offsets?, count, dloss, dpred",
		.attributes = "clamp: as of giou",
		.summary = "dpred = dloss / max(count, 1) * the derivatives of giou by x1, y1, x2, y2 of "
				   "pred; 0 where there is no target, or its y2 is 0",
		.plan = giou_plan,
		.infer = giou_infer,
		.choices = giou_choices,
		.generics = giou_loss_backward_generics,
	},
	{
		.name = "map",
		.operands = "inputs?, output",
		.attributes =
			"statement: what is computed, \"y[i,j] = x[i,j] * s + b[j]\"; names: of the "
			"operands in their order, \"x,b,y\"; NAME: a scalar of the statement; bounds: "
			"of indices, check (default: 0 is read where one is out of range, and the call "
			"ends in KILN_EINDEX), clamp (the nearest element is read) or zero (0 is read); "
			"checked: 1 if every access is checked and the first bad one is named",
		.summary = "what the statement says, for each element of the operand on its left",
		.names = map_names,
		.plan = map_plan,
		.infer = map_infer,
		.choices = map_choices,
		.report = map_report,
	},
	{.name = NULL},
};

const struct plan_op *plan_find(const char *op)
{
	for (const struct plan_op *row = plan_ops; row->name; row++)
		if (strcmp(row->name, op) == 0)
			return row;
	return NULL;
}

/* The problem's operator: its row of the table, with the operands' names that this problem has. */
struct found_op {
	struct plan_op row;
	char operands[KERNEL_OPERANDS_MAX];
};

static int find(const struct kernel_problem *problem, struct found_op *op,
				char error[KERNEL_ERROR_MAX])
{
	char names[512] = "";
	struct plan_text known = {.text = names, .size = sizeof(names)};
	const struct plan_op *found = NULL;

	if (memchr(problem->op, 0, sizeof(problem->op)))
		found = plan_find(problem->op);
	if (found) {
		op->row = *found;
		if (!found->names)
			return KILN_OK;
		op->row.operands = op->operands;
		return found->names(problem, op->operands, error);
	}
	for (const struct plan_op *row = plan_ops; row->name; row++)
		plan_print(&known, "%s%s", row == plan_ops ? "" : ", ", row->name);
	return plan_refuse(error, KILN_EINVAL, "there is no operator \"%.24s\"; there is: %s",
					   problem->op, names);
}

static int check_tensors(const struct plan_op *op, const struct kernel_problem *problem,
						 char error[KERNEL_ERROR_MAX])
{
	int count = plan_operand_count(op);

	if (problem->tensor_count < 0 || problem->tensor_count > count)
		return plan_refuse(error, KILN_EINVAL, "%s takes %d tensors (%s), not %d", op->name, count,
						   op->operands, problem->tensor_count);
	if (problem->attr_count < 0 || problem->attr_count > KERNEL_MAX_ATTRS)
		return plan_refuse(error, KILN_EINVAL, "%s cannot have %d attributes; the limit is %d",
						   op->name, problem->attr_count, KERNEL_MAX_ATTRS);
	for (int i = 0; i < problem->tensor_count; i++) {
		int status = plan_check_tensor(op, i, &problem->tensors[i], error);
		if (status)
			return status;
	}
	return KILN_OK;
}

static int check_limits(const struct kernel_limits *limits, char error[KERNEL_ERROR_MAX])
{
	if (limits->max_threads < 32 || limits->warp != 32 || limits->grid_x == 0)
		return plan_refuse(error, KILN_ENOTSUP,
						   "target %.16s has blocks of %u threads, warps of %u and grids of %u: "
						   "kernels need at least 32, 32 and 1",
						   limits->target, limits->max_threads, limits->warp, limits->grid_x);
	return KILN_OK;
}

/* What the caller left out at the end is written as left out. */
static void complete(const struct plan_op *op, struct kernel_problem *problem)
{
	int count = plan_operand_count(op);

	for (int i = problem->tensor_count; i < count; i++)
		problem->tensors[i] = (struct kernel_tensor){.dtype = KILN_DTYPE_NONE};
	problem->tensor_count = count;
}

/* What is required must be there. */
static int check_required(const struct plan_op *op, struct kernel_problem *problem,
						  char error[KERNEL_ERROR_MAX])
{
	int count = plan_operand_count(op);

	complete(op, problem);
	for (int i = 0; i < count; i++) {
		char name[16];
		plan_operand_name(op, i, name);
		if (problem->tensors[i].dtype == KILN_DTYPE_NONE && !plan_operand_optional(op, i))
			return plan_refuse(error, KILN_EINVAL,
							   "%s: %s is missing; its operands are: %s (those with ? may be left "
							   "out)",
							   op->name, name, op->operands);
	}
	return KILN_OK;
}

/* Takes the attribute "choice" out of the problem: no operator sees it among its own. */
static int take_choice(struct kernel_problem *problem, const char **choice,
					   char text[KERNEL_CHOICE_MAX], char error[KERNEL_ERROR_MAX])
{
	*choice = NULL;
	for (int i = 0; i < problem->attr_count; i++) {
		const struct kernel_attr *attr = &problem->attrs[i];
		if (strncmp(attr->name, PLAN_CHOICE, sizeof(attr->name)) != 0)
			continue;
		if (*choice)
			return plan_refuse(error, KILN_EINVAL, "%s: choice is given twice", problem->op);
		if (attr->kind != KILN_ATTR_STRING || attr->at ||
			strnlen(attr->s, sizeof(attr->s)) >= KERNEL_CHOICE_MAX)
			return plan_refuse(error, KILN_EINVAL, "%s: choice is not a text of less than %d bytes",
							   problem->op, KERNEL_CHOICE_MAX);
		memcpy(text, attr->s, KERNEL_CHOICE_MAX);
		text[KERNEL_CHOICE_MAX - 1] = 0;
		*choice = text;
		problem->attr_count--;
		memmove(&problem->attrs[i], &problem->attrs[i + 1],
				(size_t)(problem->attr_count - i) * sizeof(problem->attrs[0]));
		i--;
	}
	return KILN_OK;
}

/* What holds of any operator's plan: all operands are described, and scratch memory has a limit.
 * An operand that is touched and says nothing of its address would be launched at any. */
static int finish(const struct plan_op *op, const struct kernel_problem *problem,
				  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	memcpy(out->operands, op->operands, strlen(op->operands) + 1);
	out->operand_count = problem->tensor_count;
	for (int i = 0; i < out->operand_count; i++) {
		struct kernel_extent *extent = &out->extents[i];
		if (problem->tensors[i].dtype == KILN_DTYPE_NONE)
			*extent = (struct kernel_extent){0};
		else if (extent->bytes > 0 && extent->alignment == 0)
			return plan_refuse(error, KILN_EINTERNAL,
							   "%s: the plan does not say how operand %d is aligned", problem->op,
							   i);
		else if (extent->alignment == 0)
			extent->alignment = 1;
	}
	if (out->scratch.bytes > KERNEL_SCRATCH_MAX || out->scratch.counters > out->scratch.bytes)
		return plan_refuse(
			error, KILN_ENOTSUP,
			"%s: the kernel for these shapes would need %llu bytes of scratch memory, "
			"%llu of them counters; the limit is %u",
			problem->op, (unsigned long long)out->scratch.bytes,
			(unsigned long long)out->scratch.counters, KERNEL_SCRATCH_MAX);
	return KILN_OK;
}

int plan_problem(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem whole;
	char text[KERNEL_CHOICE_MAX];
	struct found_op found;
	const struct plan_op *op = &found.row;
	const char *choice = NULL;
	int status;

	memset(out, 0, sizeof(*out));
	status = find(problem, &found, error);
	if (!status)
		status = check_tensors(op, problem, error);
	if (!status) {
		whole = *problem;
		status = check_required(op, &whole, error);
	}
	if (!status)
		status = take_choice(&whole, &choice, text, error);
	if (!status)
		status = check_limits(limits, error);
	if (status)
		return status;

	memcpy(out->op, problem->op, strlen(problem->op) + 1);
	status = op->plan(&whole, limits, choice, out, error);
	if (!status)
		status = finish(op, &whole, out, error);
	if (status)
		memset(out, 0, sizeof(*out));
	return status;
}

int plan_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX], char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem whole = *problem;
	char text[KERNEL_CHOICE_MAX];
	struct found_op found;
	const struct plan_op *op = &found.row;
	const char *choice;
	struct kernel_plan plan;
	int status = plan_problem(problem, limits, &plan, error);

	if (!status)
		status = find(problem, &found, error);
	if (status)
		return status;
	if (!op->choices || plan.kind != KERNEL_LAUNCH) {
		memcpy(names[0], plan.choice, KERNEL_CHOICE_MAX);
		return 1;
	}
	check_required(op, &whole, error);
	take_choice(&whole, &choice, text, error);
	return op->choices(&whole, limits, names, PLAN_MAX_CHOICES);
}

int plan_generic_at(const struct plan_op *op, int index, const struct kernel_limits *limits,
					struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem problem = {0};

	if (!op->generics || index < 0 || op->generics(index, &problem))
		return plan_refuse(error, KILN_ENOENT, "%s: there is no generic kernel number %d", op->name,
						   index);
	memcpy(problem.op, op->name, strlen(op->name) + 1);
	plan_made_word(&problem, PLAN_CHOICE, PLAN_GENERIC);
	return plan_problem(&problem, limits, out, error);
}

int plan_required(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem whole = *problem;
	struct found_op found;
	int status = find(problem, &found, error);

	if (!status)
		status = check_tensors(&found.row, problem, error);
	return status ? status : check_required(&found.row, &whole, error);
}

int plan_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem plain;
	char text[KERNEL_CHOICE_MAX];
	struct found_op found;
	const struct plan_op *op = &found.row;
	const char *choice;
	int status = find(problem, &found, error);

	if (!status)
		status = check_tensors(op, problem, error);
	if (status)
		return status;
	complete(op, problem);
	plain = *problem;
	status = take_choice(&plain, &choice, text, error);
	if (!status)
		status = op->infer(&plain, error);
	if (status)
		return status;
	memcpy(problem->tensors, plain.tensors, sizeof(problem->tensors));
	problem->tensor_count = plain.tensor_count;
	return KILN_OK;
}

void plan_report(const struct kernel_problem *problem, uint64_t reported,
				 char error[KERNEL_ERROR_MAX])
{
	const struct plan_op *op = plan_find(problem->op);

	if (op && op->report)
		op->report(problem, reported, error);
}
