/*
 * giou_check.c: what giou, giou_loss and their backward ask of a request, and the request as pairs.
 */
#include "giou.h"

#include <string.h>

static struct giou_op giou_op_of(const struct kernel_problem *problem)
{
	static const struct giou_op ops[] = {
		/* pred, target, y */
		{false, false, 0, 1, -1, 2, -1, -1, -1, -1, -1},
		/* pred, target, dy, dpred */
		{false, true, 0, 1, -1, -1, 2, -1, -1, -1, 3},
		/* pred, target, offsets?, loss, count? */
		{true, false, 0, 1, 2, -1, -1, 3, 4, -1, -1},
		/* pred, target, offsets?, count, dloss, dpred */
		{true, true, 0, 1, 2, -1, -1, -1, 3, 4, 5},
	};

	return ops[2 * (strncmp(problem->op, "giou_loss", 9) == 0) +
			   (strstr(problem->op, "backward") != NULL)];
}

kiln_dtype giou_computed(kiln_dtype pred)
{
	return pred == KILN_F64 ? KILN_F64 : KILN_F32;
}

static void name_of(const struct kernel_problem *problem, int operand, char name[16])
{
	plan_operand_name(problem->operands, operand, name);
}

static int check_dtype(const struct kernel_problem *problem, int index, kiln_dtype dtype,
					   const char *why, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[index];
	char name[16];

	name_of(problem, index, name);
	if (tensor->dtype != dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; it must be %s%s", problem->op, name,
						   plan_dtype_name(tensor->dtype), plan_dtype_name(dtype), why);
	return rows_check_aligned(problem, index, error);
}

/* Boxes are the rows of four numbers of a tensor. */
static int check_boxes(const struct kernel_problem *problem, int index,
					   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[index];
	int last = tensor->rank - 1;
	char name[16];

	name_of(problem, index, name);
	if (tensor->rank == 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has rank 0; it needs a last dimension of 4, for x1, y1, x2, y2",
						   problem->op, name);
	if (tensor->shape[last] != 4)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of %s has size %lld; it must be 4, for x1, y1, x2, y2",
						   problem->op, last, name, (long long)tensor->shape[last]);
	return rows_check_aligned(problem, index, error);
}

/* Leading dimensions of index are those of pred. */
static int check_leading(const struct kernel_problem *problem, int index,
						 char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *pred = &problem->tensors[0], *tensor = &problem->tensors[index];
	int rank = pred->rank - 1, boxes = index == 1;
	char name[16];

	name_of(problem, index, name);
	if (tensor->rank != rank + boxes)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has rank %d; with pred of rank %d it must "
						   "have rank %d",
						   problem->op, name, tensor->rank, pred->rank, rank + boxes);
	for (int k = 0; k < rank; k++)
		if (tensor->shape[k] != pred->shape[k])
			return plan_refuse(
				error, KILN_EINVAL,
				"%s: dimension %d has size %lld in pred and %lld in %s; they must agree",
				problem->op, k, (long long)pred->shape[k], (long long)tensor->shape[k], name);
	return KILN_OK;
}

static int check_one(const struct kernel_problem *problem, int index, kiln_dtype dtype,
					 const char *why, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[index];
	char name[16];

	name_of(problem, index, name);
	for (int k = 0; k < tensor->rank; k++)
		if (tensor->shape[k] != 1)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of %s has size %lld; %s is one number",
							   problem->op, k, name, (long long)tensor->shape[k], name);
	return check_dtype(problem, index, dtype, why, error);
}

static int check_ragged(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *pred = &problem->tensors[0], *target = &problem->tensors[1];
	const struct kernel_tensor *offsets = &problem->tensors[2];
	int status = check_dtype(problem, 2, KILN_I32, "", error);

	if (status)
		return status;
	if (pred->rank != 3 || target->rank != 2)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: pred has rank %d and target rank %d; with offsets they must have "
						   "ranks 3 (samples, predictions, 4) and 2 (targets of all samples, 4)",
						   problem->op, pred->rank, target->rank);
	if (offsets->rank != 1 || offsets->shape[0] != pred->shape[0] + 1)
		return plan_refuse(
			error, KILN_EINVAL,
			"%s: offsets has %lld elements in %d dimensions; it must have one dimension "
			"of %lld, one more than pred has samples",
			problem->op, (long long)(offsets->rank ? offsets->shape[0] : 1), offsets->rank,
			(long long)pred->shape[0] + 1);
	return rows_check_contiguous(problem, 2, error);
}

static int check_results(const struct kernel_problem *problem, const struct giou_op *op,
						 char error[KERNEL_ERROR_MAX])
{
	kiln_dtype pred = problem->tensors[0].dtype, computed = giou_computed(pred);
	const char *why = pred == KILN_F64 ? ", as pred is" : ", which is computed in";
	int per_pair = op->y >= 0 ? op->y : op->dy, status = KILN_OK;

	if (per_pair >= 0)
		status = check_leading(problem, per_pair, error);
	if (!status && per_pair >= 0)
		status = check_dtype(problem, per_pair, pred, ", as pred is", error);
	if (!status && op->y >= 0)
		status = rows_check_contiguous(problem, op->y, error);
	if (!status && op->loss_out >= 0)
		status = check_one(problem, op->loss_out, computed, why, error);
	if (!status && op->dloss >= 0)
		status = check_one(problem, op->dloss, computed, why, error);
	if (!status && op->count >= 0 && problem->tensors[op->count].dtype != KILN_DTYPE_NONE)
		status = check_one(problem, op->count, KILN_I64, "", error);
	if (!status && op->dpred >= 0)
		status = rows_check_like(problem, op->dpred, 0, error);
	if (!status && op->dpred >= 0)
		status = rows_check_contiguous(problem, op->dpred, error);
	return status;
}

static void make_forms(const struct kernel_problem *problem, struct giou_problem *out)
{
	const struct kernel_tensor *pred = &problem->tensors[0], *target = &problem->tensors[1];
	int64_t dy[KILN_MAX_RANK] = {0};
	const int64_t *stride[] = {pred->stride, target->stride, dy};
	int operands = out->ragged ? 1 : out->op.dy >= 0 ? 3 : 2, culprit;

	for (int k = 0; out->op.dy >= 0 && k < pred->rank - 1; k++)
		dy[k] = problem->tensors[out->op.dy].stride[k];
	(void)rows_form(&out->form, pred->rank, pred->shape, operands, stride, pred->rank - 1, 1,
					&culprit);
	if (out->ragged)
		(void)rows_form(&out->targets, target->rank, target->shape, 1, stride + 1, 1, 1, &culprit);
	out->pairs = out->form.rows;
	out->most = out->ragged ? pred->shape[1] : 0;
	/* More than offsets can name are not there. */
	out->boxes = !out->ragged ? 0 : target->shape[0] < INT32_MAX ? target->shape[0] : INT32_MAX;
}

int giou_check(const struct kernel_problem *problem, struct giou_problem *out,
			   char error[KERNEL_ERROR_MAX])
{
	struct giou_op op = giou_op_of(problem);
	bool ragged = op.offsets >= 0 && problem->tensors[op.offsets].dtype != KILN_DTYPE_NONE;
	kiln_dtype dtype = problem->tensors[1].dtype;
	int status = rows_check_float(problem, 0, error);

	memset(out, 0, sizeof(*out));
	if (!status && dtype != KILN_U8 && !plan_is_float(dtype))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: target is %s; it must be u8, f16, bf16, f32 or f64", problem->op,
						   plan_dtype_name(dtype));
	for (int i = 0; i < 2 && !status; i++)
		status = check_boxes(problem, i, error);
	if (!status)
		status = ragged ? check_ragged(problem, error) : check_leading(problem, 1, error);
	if (!status)
		status = check_results(problem, &op, error);
	if (status)
		return status;
	out->op = op;
	out->clamp = plan_int(problem, "clamp") != 0;
	out->ragged = ragged;
	out->pred = problem->tensors[0].dtype;
	out->target = dtype;
	make_forms(problem, out);
	return KILN_OK;
}

void giou_complete(struct kernel_problem *problem)
{
	struct giou_op op = giou_op_of(problem);
	const struct kernel_tensor *pred = &problem->tensors[0];

	if (op.y >= 0 && problem->tensors[op.y].dtype == KILN_DTYPE_NONE && pred->rank > 0) {
		struct kernel_tensor *y = &problem->tensors[op.y];
		*y = *pred;
		y->alignment = 16;
		y->rank--;
		plan_contiguous(y);
	}
	if (op.loss_out >= 0 && problem->tensors[op.loss_out].dtype == KILN_DTYPE_NONE)
		problem->tensors[op.loss_out] =
			(struct kernel_tensor){.dtype = giou_computed(pred->dtype), .alignment = 16};
	if (op.dpred >= 0)
		rows_infer_like(problem, op.dpred, 0);
}
