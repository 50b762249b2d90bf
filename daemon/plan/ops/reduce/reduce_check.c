/*
 * reduce_check.c: what reductions ask of a request, and the request as rows.
 */
#include "reduce.h"

#include <math.h>
#include <string.h>

/* By enum reduce_kind. */
static const struct {
	const char *op;
	bool integers, choosing; /* takes integers; has no result for no elements */
} kinds[] = {
	[REDUCE_SUM] = {"sum", true, false},
	[REDUCE_MEAN] = {"mean", false, false},
	[REDUCE_PROD] = {"prod", true, false},
	[REDUCE_AMAX] = {"amax", true, true},
	[REDUCE_AMIN] = {"amin", true, true},
	[REDUCE_ARGMAX] = {"argmax", true, true},
	[REDUCE_ARGMIN] = {"argmin", true, true},
	[REDUCE_ANY] = {"any", true, false},
	[REDUCE_ALL] = {"all", true, false},
	[REDUCE_NORM] = {"vector_norm", false, false},
	[REDUCE_LOGSUMEXP] = {"logsumexp", false, false},
	[REDUCE_VAR] = {"var", false, false},
};

static enum reduce_kind reduce_kind_of(const char *op)
{
	int kind = 0;

	while (strcmp(kinds[kind].op, op) != 0)
		kind++;
	return (enum reduce_kind)kind;
}

/* The type of the results for an x of this type. */
static kiln_dtype reduce_result(enum reduce_kind kind, kiln_dtype dtype)
{
	switch (kind) {
	case REDUCE_SUM:
	case REDUCE_PROD:
		return plan_is_float(dtype) ? dtype : KILN_I64;
	case REDUCE_ARGMAX:
	case REDUCE_ARGMIN:
		return KILN_I64;
	case REDUCE_ANY:
	case REDUCE_ALL:
		return KILN_BOOL;
	default:
		return dtype;
	}
}

static bool is_integer(kiln_dtype dtype)
{
	return dtype == KILN_I8 || dtype == KILN_U8 || dtype == KILN_I16 || dtype == KILN_I32 ||
		   dtype == KILN_I64 || dtype == KILN_BOOL;
}

/* The reduced dimensions, as bits. */
static int find_over(const struct kernel_problem *problem, uint32_t *over,
					 char error[KERNEL_ERROR_MAX])
{
	const struct kernel_attr *attr = plan_attr(problem, "over");
	int rank = problem->tensors[0].rank;

	*over = (1u << rank) - 1;
	if (!attr)
		return KILN_OK;
	if (attr->kind != KILN_ATTR_INTS)
		return plan_refuse(error, KILN_EINVAL, "%s: over is not a list of integers", problem->op);
	/* None are all, as in torch. */
	if (attr->count > 0)
		*over = 0;
	for (int i = 0; i < attr->count; i++) {
		int64_t axis = attr->ints[i];
		if (rank == 0)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: over names dimension %lld, and x has none: leave over out",
							   problem->op, (long long)axis);
		if (axis < -rank || axis >= rank)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: over names dimension %lld; it may name %d to %d", problem->op,
							   (long long)axis, -rank, rank - 1);
		axis += axis < 0 ? rank : 0;
		if (*over & 1u << axis)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: over names dimension %lld twice; each comes once", problem->op,
							   (long long)axis);
		*over |= 1u << axis;
	}
	return KILN_OK;
}

/* The results' tensor. */
static void make_y(const struct kernel_problem *problem, uint32_t over, struct kernel_tensor *y)
{
	const struct kernel_tensor *x = &problem->tensors[0];
	bool keep = plan_int(problem, "keepdim") != 0;

	*y = (struct kernel_tensor){.alignment = 16};
	y->dtype = reduce_result(reduce_kind_of(problem->op), x->dtype);
	for (int k = 0; k < x->rank; k++)
		if (keep || !(over & 1u << k))
			y->shape[y->rank++] = over & 1u << k ? 1 : x->shape[k];
	plan_contiguous(y);
}

static int check_y(const struct kernel_problem *problem, uint32_t over,
				   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *y = &problem->tensors[1];
	struct kernel_tensor right;
	int status;

	make_y(problem, over, &right);
	if (y->dtype != right.dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: y is %s; of x in %s it must be %s", problem->op,
						   plan_dtype_name(y->dtype), plan_dtype_name(problem->tensors[0].dtype),
						   plan_dtype_name(right.dtype));
	if (y->rank != right.rank)
		return plan_refuse(error, KILN_EINVAL, "%s: y has rank %d; it must have rank %d",
						   problem->op, y->rank, right.rank);
	for (int k = 0; k < y->rank; k++)
		if (y->shape[k] != right.shape[k])
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of y has size %lld; it must be %lld", problem->op,
							   k, (long long)y->shape[k], (long long)right.shape[k]);
	status = rows_check_aligned(problem, 1, error);
	return status ? status : rows_check_contiguous(problem, 1, error);
}

static int check_x(const struct kernel_problem *problem, enum reduce_kind kind, uint32_t over,
				   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[0];

	if (!kinds[kind].integers) {
		int status = rows_check_float(problem, 0, error);
		if (status)
			return status;
	} else if (!plan_is_float(x->dtype) && !is_integer(x->dtype)) {
		return plan_refuse(error, KILN_EINVAL,
						   "%s: x is %s; it must be f16, bf16, f32, f64, i8, u8, i16, i32, i64 or "
						   "bool",
						   problem->op, plan_dtype_name(x->dtype));
	}
	for (int k = 0; k < x->rank && kinds[kind].choosing; k++)
		if (over & 1u << k && x->shape[k] == 0)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of x has size 0; there is nothing to choose from",
							   problem->op, k);
	return rows_check_aligned(problem, 0, error);
}

/* ---- The form ---- */

struct dims {
	int count, batch; /* the place of x's first dimension */
	int64_t size[KILN_MAX_RANK], x[KILN_MAX_RANK], y[KILN_MAX_RANK];
};

static void dims_add(struct dims *dims, int64_t size, int64_t x, int64_t y)
{
	dims->size[dims->count] = size;
	dims->x[dims->count] = x;
	dims->y[dims->count++] = y;
}

/* How slow a dimension of x is; one that repeats is the slowest. */
static int64_t slowness(const struct dims *dims, int k)
{
	return dims->x[k] ? dims->x[k] : INT64_MAX;
}

static void swap(int64_t *a, int64_t *b)
{
	int64_t other = *a;

	*a = *b;
	*b = other;
}

/* Sorts dimensions from `first` on, the slowest first; equals stay in order. */
static void dims_sort(struct dims *dims, int first)
{
	for (int i = first + 1; i < dims->count; i++)
		for (int k = i; k > first && slowness(dims, k - 1) < slowness(dims, k); k--) {
			dims->batch += dims->batch == k ? -1 : dims->batch == k - 1 ? 1 : 0;
			swap(&dims->size[k - 1], &dims->size[k]);
			swap(&dims->x[k - 1], &dims->x[k]);
			swap(&dims->y[k - 1], &dims->y[k]);
		}
}

/* The dimensions of a row, merged from the fast end. */
static void merge_row(const struct dims *dims, struct reduce_form *form)
{
	int64_t size[KILN_MAX_RANK], stride[KILN_MAX_RANK], span;
	int count = 0;

	form->columns = 1;
	for (int k = dims->count - 1; k >= 0; k--) {
		form->columns *= dims->size[k];
		if (dims->size[k] == 1 && !(form->open && k == dims->batch))
			continue;
		if (count && !__builtin_mul_overflow(stride[count - 1], size[count - 1], &span) &&
			span == dims->x[k]) {
			size[count - 1] *= dims->size[k];
			continue;
		}
		size[count] = dims->size[k];
		stride[count++] = dims->x[k];
	}
	form->rank = count;
	for (int k = 0; k < count; k++) {
		form->size[k] = size[count - 1 - k];
		form->stride[k] = stride[count - 1 - k];
	}
}

/* The widest vector, of `bytes` at most, at which all that stands beside it is aligned. */
static uint32_t narrow(const struct reduce_form *form, int64_t run, uint32_t bytes)
{
	const struct rows_form *kept = &form->kept;
	int kept_rank = kept->rank - (form->strided ? 1 : 0);
	int rank = form->rank - (form->strided ? 0 : 1);

	for (int k = 0; k < kept_rank; k++)
		while (bytes > form->element && (uint64_t)kept->stride[0][k] * form->element % bytes)
			bytes /= 2;
	for (int k = 0; k < rank; k++)
		while (bytes > form->element && (uint64_t)form->stride[k] * form->element % bytes)
			bytes /= 2;
	while (bytes > form->element && (uint64_t)run * form->element % bytes)
		bytes /= 2;
	return bytes > form->element ? bytes / form->element : 1;
}

/* A thread keeps four values of each row of a vector. */
static uint32_t columns_most(const struct reduce_form *form)
{
	uint32_t bytes = reduce_value_bytes(form);

	return bytes <= 4 ? 8 : bytes <= 12 ? 4 : 2;
}

static void reduce_find_vector(struct reduce_form *form, uint32_t alignment)
{
	const struct rows_form *kept = &form->kept;
	uint32_t bytes = alignment < 16 ? alignment : 16, wide = 16 / form->element;
	int64_t step = form->rank ? form->stride[form->rank - 1] : 1;
	int64_t side = kept->rank ? kept->stride[0][kept->rank - 1] : 0;

	form->strided = kept->rank && form->rank && step != 1 && (side == 1 || side < step) && side > 0;
	form->inner = form->strided ? kept->size[kept->rank - 1] : 1;
	form->vector = 1;
	if (form->columns == 0)
		return;
	if (form->strided) {
		uint32_t most = columns_most(form) * form->element;
		if (side == 1)
			form->vector = narrow(form, form->inner, bytes < most ? bytes : most);
		return;
	}
	if (form->rank == 0 || step != 1)
		return;
	form->vector = narrow(form, form->size[form->rank - 1], bytes);
	if ((form->vector < wide || form->open) && form->rank == 1 && alignment >= 16 &&
		(form->columns >= 4 * (int64_t)wide || form->open)) {
		form->vector = wide;
		form->skewed = true;
	}
}

static void find_form(const struct kernel_problem *problem, uint32_t over, struct reduce_form *form)
{
	const struct kernel_tensor *x = &problem->tensors[0];
	struct dims kept = {0}, row = {0};
	int64_t step = 1; /* of y */
	int culprit;

	for (int k = x->rank - 1; k >= 0; k--)
		step *= over & 1u << k ? 1 : x->shape[k];
	for (int k = 0; k < x->rank; k++) {
		if (over & 1u << k) {
			dims_add(&row, x->shape[k],
					 k ? x->stride[k] : plan_batch_stride(x->rank, x->shape, x->stride), 0);
		} else {
			step /= x->shape[k] ? x->shape[k] : 1;
			dims_add(&kept, x->shape[k], x->stride[k], step);
		}
	}
	form->open = over & 1;
	if (form->kind != REDUCE_ARGMAX && form->kind != REDUCE_ARGMIN)
		dims_sort(&row, 0);
	/* The batch stays the slowest, so that its size is none of the kernel's. */
	dims_sort(&kept, 1);
	merge_row(&row, form);
	const int64_t *const strides[] = {kept.x, kept.y};
	(void)rows_form(&form->kept, kept.count, kept.size, 2, strides, kept.count, 0, &culprit);
	reduce_find_vector(form, x->alignment);
}

static int find_real(const struct kernel_problem *problem, struct reduce_form *form,
					 char error[KERNEL_ERROR_MAX])
{
	double order;

	form->real = 1;
	if (form->kind == REDUCE_MEAN)
		form->real = (double)form->columns;
	if (form->kind == REDUCE_VAR)
		form->real = (double)form->columns - plan_real(problem, "correction");
	if (form->kind == REDUCE_VAR && form->real < 0)
		form->real = 0;
	if (form->kind != REDUCE_NORM)
		return KILN_OK;
	order = plan_real(problem, "ord");
	if (isnan(order))
		return plan_refuse(error, KILN_EINVAL, "vector_norm: ord is nan; it must be a number");
	if (form->columns == 0 && order < 0)
		return plan_refuse(error, KILN_EINVAL,
						   "vector_norm: x has no elements to reduce, and the norm of order %g of "
						   "nothing is no number",
						   order);
	form->real = order;
	return KILN_OK;
}

int reduce_check(const struct kernel_problem *problem, struct reduce_form *out,
				 char error[KERNEL_ERROR_MAX])
{
	uint32_t over;
	int status = find_over(problem, &over, error);

	memset(out, 0, sizeof(*out));
	out->kind = reduce_kind_of(problem->op);
	if (!status)
		status = check_x(problem, out->kind, over, error);
	if (!status)
		status = check_y(problem, over, error);
	if (status)
		return status;
	out->dtype = problem->tensors[0].dtype;
	out->y_dtype = problem->tensors[1].dtype;
	out->element = kernel_dtype_bytes(out->dtype);
	find_form(problem, over, out);
	return find_real(problem, out, error);
}

int reduce_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct reduce_form form;
	uint32_t over;
	int status = find_over(problem, &over, error);

	if (!status && !plan_has(problem, 1))
		make_y(problem, over, &problem->tensors[1]);
	return status ? status : reduce_check(problem, &form, error);
}
