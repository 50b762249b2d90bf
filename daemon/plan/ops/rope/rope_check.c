/*
 * rope_check.c: what rope asks of a request, and the request as sizes and strides.
 */
#include "rope.h"

#include <string.h>

/* ---- Types ---- */

static int check_tables(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	kiln_dtype q = problem->tensors[ROPE_Q].dtype, cos = problem->tensors[ROPE_COS].dtype;
	bool fits = cos == q || (cos == KILN_F32 && q != KILN_F64);
	int status = KILN_OK;

	if (!fits && q == KILN_F64)
		return plan_refuse(error, KILN_EINVAL, "%s: cos is %s; with q of f64 it must be f64",
						   problem->op, plan_dtype_name(cos));
	if (!fits)
		return plan_refuse(error, KILN_EINVAL, "%s: cos is %s; with q of %s it must be %s%s",
						   problem->op, plan_dtype_name(cos), plan_dtype_name(q),
						   q == KILN_F32 ? "" : "f32 or ", plan_dtype_name(q));
	status = rows_check_aligned(problem, ROPE_COS, error);
	return status ? status : rows_check_like(problem, ROPE_SIN, ROPE_COS, error);
}

static int rope_check_dtypes(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *q = &problem->tensors[ROPE_Q], *k = &problem->tensors[ROPE_K];
	kiln_dtype positions = problem->tensors[ROPE_POSITIONS].dtype;
	int status = rows_check_float(problem, ROPE_Q, error);

	if (!status)
		status = check_tables(problem, error);
	if (status || !plan_has(problem, ROPE_POSITIONS))
		positions = KILN_I32;
	if (!status && positions != KILN_I32 && positions != KILN_I64)
		return plan_refuse(error, KILN_EINVAL, "%s: positions is %s; it must be i32 or i64",
						   problem->op, plan_dtype_name(positions));
	if (!status && plan_has(problem, ROPE_POSITIONS))
		status = rows_check_aligned(problem, ROPE_POSITIONS, error);
	if (status || !plan_has(problem, ROPE_K))
		return status;
	if (k->dtype != q->dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: q is %s and k is %s; they must agree",
						   problem->op, plan_dtype_name(q->dtype), plan_dtype_name(k->dtype));
	return rows_check_aligned(problem, ROPE_K, error);
}

/* ---- Shapes ---- */

static int check_heads(const struct kernel_problem *problem, int heads,
					   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *q = &problem->tensors[ROPE_Q], *k = &problem->tensors[ROPE_K];

	if (q->rank != 3 && q->rank != 4)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: q has rank %d; it must be 3, or 4 with a batch before", problem->op,
						   q->rank);
	if (!plan_has(problem, ROPE_K))
		return KILN_OK;
	if (k->rank != q->rank)
		return plan_refuse(error, KILN_EINVAL, "%s: q has rank %d and k rank %d; they must agree",
						   problem->op, q->rank, k->rank);
	for (int i = 0; i < q->rank; i++)
		if (i != heads && q->shape[i] != k->shape[i])
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d has size %lld in q and %lld in k; they must agree",
							   problem->op, i, (long long)q->shape[i], (long long)k->shape[i]);
	return KILN_OK;
}

/* Tables and positions begin with a batch, or all batches share them. */
static int check_batch(const struct kernel_problem *problem, int operand, int rank, int64_t batch,
					   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *tensor = &problem->tensors[operand];
	bool batched = problem->tensors[ROPE_Q].rank == 4;
	char name[16];

	plan_operand_name(problem->operands, operand, name);
	if (tensor->rank != rank && !(batched && tensor->rank == rank + 1))
		return plan_refuse(error, KILN_EINVAL, "%s: %s has rank %d; it must be %d%s", problem->op,
						   name, tensor->rank, rank,
						   batched ? ", or one more with a batch before" : "");
	if (tensor->rank > rank && tensor->shape[0] != batch && tensor->shape[0] != 1)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension 0 has size %lld in q and %lld in %s; they must agree, "
						   "or %s have 1",
						   problem->op, (long long)batch, (long long)tensor->shape[0], name, name);
	return KILN_OK;
}

static int check_rows(const struct kernel_problem *problem, const struct rope_problem *rope,
					  int64_t start, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *positions = &problem->tensors[ROPE_POSITIONS];

	if (2 * rope->half > rope->dim)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: the rows of cos have %lld numbers, for %lld elements of a head; "
						   "heads have %lld",
						   problem->op, (long long)rope->half, 2 * (long long)rope->half,
						   (long long)rope->dim);
	if (!rope->position_bytes && (start > rope->rows || rope->rows - start < rope->tokens))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: cos has %lld rows; %lld tokens from position %lld on need more",
						   problem->op, (long long)rope->rows, (long long)rope->tokens,
						   (long long)start);
	if (!rope->position_bytes)
		return KILN_OK;
	if (start)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: start is %lld, and positions say where tokens are; leave one out",
						   problem->op, (long long)start);
	if (positions->shape[positions->rank - 1] != rope->tokens)
		return plan_refuse(
			error, KILN_EINVAL, "%s: there are %lld positions for %lld tokens; they must agree",
			problem->op, (long long)positions->shape[positions->rank - 1], (long long)rope->tokens);
	if (rope->bounds != PLAN_CHECK && rope->rows == 0 && rope->tokens > 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: cos has no rows; with bounds %s it needs one to take", problem->op,
						   plan_attr_text(problem, "bounds"));
	return KILN_OK;
}

/* ---- Layouts ---- */

/* An output is contiguous, or as its input, whose place it may have. */
static int check_output(const struct kernel_problem *problem, int output, int input,
						char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *to = &problem->tensors[output];
	int status = rows_check_like(problem, output, input, error);

	if (!status && plan_lies_alike(to, &problem->tensors[input]) && plan_is_distinct(to))
		return KILN_OK;
	return status ? status : rows_check_contiguous(problem, output, error);
}

static int check_layouts(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	static const int inputs[] = {ROPE_Q, ROPE_COS, ROPE_SIN, ROPE_K};
	int status = KILN_OK;

	for (int i = 0; i < 4 && !status; i++)
		if (plan_has(problem, inputs[i]))
			status = rows_check_inner(problem, inputs[i], error);
	if (!status)
		status = check_output(problem, ROPE_Q_OUT, ROPE_Q, error);
	if (!status && plan_has(problem, ROPE_K) != plan_has(problem, ROPE_K_OUT))
		return plan_refuse(error, KILN_EINVAL, "%s: there is %s; it goes with %s", problem->op,
						   plan_has(problem, ROPE_K) ? "k and no k_out" : "k_out and no k",
						   plan_has(problem, ROPE_K) ? "its result" : "what is rotated");
	if (status || !plan_has(problem, ROPE_K))
		return status;
	return check_output(problem, ROPE_K_OUT, ROPE_K, error);
}

/* rank: of the operand without a batch; token, head: its dimensions, -1 for none, without one. */
static struct rope_strides find_strides(const struct kernel_tensor *tensor, int rank, int token,
										int head)
{
	bool batched = tensor->rank > rank;
	struct rope_strides strides = {0};

	if (tensor->dtype == KILN_DTYPE_NONE)
		return strides;
	if (batched && tensor->shape[0] > 1)
		strides.batch = tensor->stride[0];
	if (tensor->shape[batched + token] > 1)
		strides.token = tensor->stride[batched + token];
	if (head >= 0 && tensor->shape[batched + head] > 1)
		strides.head = tensor->stride[batched + head];
	return strides;
}

static void find_all_strides(const struct kernel_problem *problem, int token, int head,
							 struct rope_problem *rope)
{
	static const int heads[] = {ROPE_Q, ROPE_K, ROPE_Q_OUT, ROPE_K_OUT};

	for (int i = 0; i < 4; i++)
		rope->strides[heads[i]] = find_strides(&problem->tensors[heads[i]], 3, token, head);
	for (int i = ROPE_COS; i <= ROPE_SIN; i++)
		rope->strides[i] = find_strides(&problem->tensors[i], 2, 0, -1);
	rope->strides[ROPE_POSITIONS] = find_strides(&problem->tensors[ROPE_POSITIONS], 1, 0, -1);
}

int rope_check(const struct kernel_problem *problem, struct rope_problem *out,
			   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *q = &problem->tensors[ROPE_Q], *k = &problem->tensors[ROPE_K];
	const struct kernel_tensor *cos = &problem->tensors[ROPE_COS];
	int token = plan_word(problem, "layout") == 0 ? 0 : 1, head = 1 - token;
	int status = rope_check_dtypes(problem, error), batched = q->rank == 4;

	memset(out, 0, sizeof(*out));
	if (!status)
		status = check_heads(problem, batched + head, error);
	if (status)
		return status;
	out->dtype = q->dtype;
	out->table = cos->dtype;
	out->sign = plan_attr(problem, "inverse") && plan_int(problem, "inverse") ? -1 : 1;
	out->interleaved = plan_int(problem, "interleaved") != 0;
	out->bounds = plan_bounds(problem);
	out->batch = batched ? q->shape[0] : 1;
	out->tokens = q->shape[batched + token];
	out->q_heads = q->shape[batched + head];
	out->k_heads = plan_has(problem, ROPE_K) ? k->shape[batched + head] : 0;
	out->dim = q->shape[q->rank - 1];
	if (plan_has(problem, ROPE_POSITIONS))
		out->position_bytes = kernel_dtype_bytes(problem->tensors[ROPE_POSITIONS].dtype);
	status = check_batch(problem, ROPE_COS, 2, out->batch, error);
	if (!status && out->position_bytes)
		status = check_batch(problem, ROPE_POSITIONS, 1, out->batch, error);
	if (status)
		return status;
	out->half = cos->shape[cos->rank - 1];
	out->rows = cos->shape[cos->rank - 2];
	status = check_rows(problem, out, plan_int(problem, "start"), error);
	if (!status)
		status = check_layouts(problem, error);
	if (!status)
		find_all_strides(problem, token, head, out);
	return status;
}
