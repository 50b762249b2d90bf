/*
 * run_prepare.c: the first call of a signature.  The daemon says which shapes the outputs have, and
 * prepares the kernel; both may wait, so they are one errand.
 */
#include "errand.h"
#include "errors.h"
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACE_SHARED 1u /* beside the alignment, 1 to 16, in the upper bits */

unsigned run_place(const struct connection *connection, const struct view *view, enum role role)
{
	uint64_t offset;
	if (role != ROLE_INPUT && role != ROLE_GIVEN && role != ROLE_KEPT)
		return 0;
	if (view->device != VIEW_HOST && connection->settings.mode == MODE_DAEMON) {
		unsigned low = (unsigned)((uintptr_t)view->data & 15);
		return PLACE_SHARED | (low ? low & -low : 16u) << 8;
	}
	if (view->device != VIEW_HOST)
		return 16u << 8; /* kiln_launch_local() keeps a variant for each alignment by itself */
	if (connection->range_count == 0)
		return 0;
	for (int i = 0; i < view->rank; i++)
		if (view->stride[i] < 0)
			return 0;
	if (!connection_shared(connection, view->data, view_span(view), &offset))
		return 0;
	unsigned low = (unsigned)(offset & 15);
	return PLACE_SHARED | (low ? low & -low : 16u) << 8;
}

/* Everything that the errand needs is its own: the caller may have gone. */
struct preparing {
	struct errand errand;
	kiln_client *client;
	char *texts; /* names and texts of the attributes */
	char op[64];
	int tensor_count, attr_count;
	bool asks; /* for the outputs' shapes */
	kiln_tensor tensors[KILN_MAX_OPERANDS];
	kiln_attr attrs[KILN_MAX_ATTRS];
	int64_t ints[KILN_MAX_RANK];
	kiln_call *call;
};

static int ask_shapes(struct preparing *preparing)
{
	kiln_reply *reply = NULL;
	char path[64];
	int status =
		kiln_explain(preparing->client, preparing->op, preparing->tensors, preparing->tensor_count,
					 preparing->attrs, preparing->attr_count, NULL, &reply);
	if (status != KILN_OK)
		return status;
	for (int i = 0; i < preparing->tensor_count; i++) {
		kiln_tensor *tensor = &preparing->tensors[i];
		if (tensor->dtype != KILN_DTYPE_NONE)
			continue;
		snprintf(path, sizeof(path), "operands[%d].d", i);
		tensor->dtype = (kiln_dtype)kiln_reply_int(reply, path);
		snprintf(path, sizeof(path), "operands[%d].s", i);
		tensor->rank = kiln_reply_count(reply, path);
		tensor->contiguous = 1;
		for (int k = 0; k < tensor->rank && k < KILN_MAX_RANK; k++) {
			snprintf(path, sizeof(path), "operands[%d].s[%d]", i, k);
			tensor->shape[k] = kiln_reply_int(reply, path);
		}
	}
	kiln_reply_free(reply);
	return KILN_OK;
}

static int preparing_work(struct errand *errand)
{
	struct preparing *preparing = (struct preparing *)errand;
	int status = preparing->asks ? ask_shapes(preparing) : KILN_OK;
	if (status != KILN_OK)
		return status;
	return kiln_prepare(preparing->client, preparing->op, preparing->tensors,
						preparing->tensor_count, preparing->attrs, preparing->attr_count,
						&preparing->call);
}

static void preparing_drop(struct errand *errand)
{
	struct preparing *preparing = (struct preparing *)errand;
	kiln_call_free(preparing->call);
	errand_end(errand);
	free(preparing->texts);
	free(preparing);
}

/* ---- Filling it in ---- */

static const char *append(char **at, const char *text)
{
	size_t bytes = strlen(text) + 1;
	const char *copy = memcpy(*at, text, bytes);
	*at += bytes;
	return copy;
}

static int copy_attrs(const struct problem *problem, struct preparing *preparing)
{
	size_t bytes = 1;
	for (int i = 0; i < problem->attr_count; i++) {
		const kiln_attr *attr = &problem->attrs[i];
		bytes += strlen(attr->name) + 1;
		bytes += attr->kind == KILN_ATTR_STRING ? strlen(attr->s) + 1 : 0;
	}
	char *at = preparing->texts = malloc(bytes);
	if (!at) {
		PyErr_NoMemory();
		return RAISED;
	}
	for (int i = 0; i < problem->attr_count; i++) {
		kiln_attr *attr = &preparing->attrs[i];
		*attr = problem->attrs[i];
		attr->name = append(&at, attr->name);
		if (attr->kind == KILN_ATTR_STRING)
			attr->s = append(&at, attr->s);
		if (attr->kind == KILN_ATTR_INTS) {
			memcpy(preparing->ints, attr->ints, (size_t)attr->count * sizeof(attr->ints[0]));
			attr->ints = preparing->ints;
		}
	}
	preparing->attr_count = problem->attr_count;
	return 0;
}

/* The dtype of an output that may be left out. */
static kiln_dtype dtype_by_rule(const struct problem *problem, enum dtype_rule rule)
{
	kiln_dtype first = problem->operands[0].view.dtype;
	switch (rule) {
	case DTYPE_COMPUTED:
		return first == KILN_F64 ? KILN_F64 : KILN_F32;
	case DTYPE_I32:
		return KILN_I32;
	case DTYPE_I64:
		return KILN_I64;
	case DTYPE_TO:
		for (int i = 0; i < problem->attr_count; i++)
			if (strcmp(problem->attrs[i].name, "to") == 0)
				return kiln_dtype_parse(problem->attrs[i].s);
		return first;
	case DTYPE_OWN:
		/* A gradient of a factor has the factor's type. */
		for (int i = 1; i < problem->count; i++)
			if (problem->operands[i].role == ROLE_INPUT &&
				problem->operands[i].dtype == DTYPE_OWN &&
				problem->operands[i].shape == SHAPE_TRAILING)
				return problem->operands[i].view.dtype;
		return first;
	default:
		return first;
	}
}

static int64_t int_of(const struct problem *problem, const char *name, int64_t usual)
{
	for (int i = 0; i < problem->attr_count; i++)
		if (strcmp(problem->attrs[i].name, name) == 0)
			usual = problem->attrs[i].i;
	return usual;
}

static void shape_by_rule(const struct problem *problem, const struct problem_operand *operand,
						  kiln_tensor *tensor)
{
	const struct view *first = &problem->operands[0].view;
	int axes = (int)int_of(problem, "axes", 1), from = 0, to = first->rank;
	int64_t group = int_of(problem, "group", 0);
	axes = axes < 0 ? 0 : axes > first->rank ? first->rank : axes;
	if (operand->shape == SHAPE_TRAILING)
		from = first->rank - axes;
	bool halved = operand->shape == SHAPE_HALVED_GROUPS,
		 groups = halved || operand->shape == SHAPE_GROUPS;
	if (operand->shape == SHAPE_LEADING || (groups && group < 1 && to))
		to = first->rank - axes;
	if (operand->shape == SHAPE_ONE)
		to = 0;
	tensor->dtype = dtype_by_rule(problem, operand->dtype);
	tensor->contiguous = 1;
	for (int i = from; i < to; i++)
		tensor->shape[tensor->rank++] = first->shape[i];
	if (halved && problem->operands[1].role == ROLE_LEFT_OUT && group > 0 && to)
		tensor->shape[to - 1] /= 2;
	if (groups && group > 0 && to)
		tensor->shape[to - 1] /= group;
	if (operand->shape == SHAPE_TRANSPOSED && to > 1) {
		tensor->shape[to - 1] = first->shape[to - 2];
		tensor->shape[to - 2] = first->shape[to - 1];
	}
	if (operand->shape == SHAPE_FIRST_K) {
		int64_t axis = int_of(problem, "axis", -1);
		axis += axis < 0 ? to : 0;
		int64_t k = int_of(problem, "k", 1);
		/* The daemon refuses a wrong axis, and a wrong k by its name. */
		if (axis >= 0 && axis < to)
			tensor->shape[axis] = k < 0 ? 0 : k;
	}
}

/* Does an output lie as the input does, so that it may be written in place? */
static bool has_like_output(const struct problem *problem, const struct view *view)
{
	for (int i = 0; i < problem->count; i++) {
		const struct view *other = &problem->operands[i].view;
		if (problem->operands[i].role == ROLE_GIVEN && other->rank == view->rank &&
			memcmp(other->shape, view->shape, (size_t)view->rank * sizeof(int64_t)) == 0 &&
			memcmp(other->stride, view->stride, (size_t)view->rank * sizeof(int64_t)) == 0)
			return true;
	}
	return false;
}

/* Elements of an input that lie thinly, or backwards, are copied one by one and then lie side by
 * side. */
static bool is_packed(const struct problem *problem, const struct view *view)
{
	for (int i = 0; i < view->rank; i++)
		if (view->stride[i] < 0)
			return true;
	return view_span(view) / 2 > (uint64_t)view_count(view) * kiln_dtype_size(view->dtype) &&
		   !has_like_output(problem, view);
}

static void describe(const struct problem *problem, const struct connection *connection, int i,
					 struct preparing *preparing)
{
	const struct problem_operand *operand = &problem->operands[i];
	const struct view *view = &operand->view;
	kiln_tensor *tensor = &preparing->tensors[i];

	if (operand->role == ROLE_LEFT_OUT)
		return;
	if (operand->role == ROLE_MADE) {
		if (operand->shape == SHAPE_PLANNED)
			preparing->asks = true;
		else
			shape_by_rule(problem, operand, tensor);
		return;
	}
	unsigned place = run_place(connection, view, operand->role);
	tensor->dtype = view->dtype;
	tensor->rank = view->rank;
	tensor->contiguous =
		view_contiguous(view) || (operand->role == ROLE_INPUT && view->device == VIEW_HOST &&
								  !(place & PLACE_SHARED) && is_packed(problem, view));
	if (place & PLACE_SHARED && place >> 8 != 16)
		tensor->offset = place >> 8;
	memcpy(tensor->shape, view->shape, sizeof(tensor->shape));
	memcpy(tensor->stride, view->stride, sizeof(tensor->stride));
	/* A tensor of one element in a row has such a result, unless the row is reduced. */
	bool reduced = problem->reduces && !int_of(problem, "keepdim", 0);
	if (operand->role == ROLE_GIVEN && problem->point && !reduced && view->rank == 0) {
		tensor->rank = 1;
		tensor->shape[0] = tensor->stride[0] = 1;
	}
}

/* ---- Keeping it ---- */

static PyObject *tuple_of(const kiln_tensor *tensor)
{
	PyObject *tuple = PyTuple_New(tensor->rank);
	for (int i = 0; i < tensor->rank && tuple; i++) {
		PyObject *extent = PyLong_FromLongLong(tensor->shape[i]);
		if (!extent)
			Py_CLEAR(tuple);
		else
			PyTuple_SetItem(tuple, i, extent);
	}
	return tuple;
}

static enum likeness likeness_of(const struct view *like, const kiln_tensor *tensor)
{
	if (like->dtype != tensor->dtype)
		return LIKE_NOT;
	bool whole = like->rank == tensor->rank && view_contiguous(like);
	for (int i = 0; whole && i < like->rank; i++)
		whole = like->shape[i] == tensor->shape[i];
	return whole ? LIKE_WHOLE : LIKE_DTYPE;
}

static int keep_operand(const struct problem *problem, const struct preparing *preparing, int i,
						struct prepared *prepared)
{
	const struct problem_operand *operand = &problem->operands[i];
	const kiln_tensor *tensor = &preparing->tensors[i];
	struct prepared_operand *kept = &prepared->operands[i];
	struct view layout = {.dtype = tensor->dtype, .rank = tensor->rank};

	kept->there = operand->role != ROLE_LEFT_OUT;
	if (!kept->there)
		return 0;
	kept->made = operand->role == ROLE_MADE;
	kept->likeness = kept->made ? (int)likeness_of(problem->like_view, tensor) : LIKE_NOT;
	kept->dtype = tensor->dtype;
	kept->rank = tensor->rank;
	memcpy(kept->dims, tensor->shape, sizeof(kept->dims));
	memcpy(layout.shape, tensor->shape, sizeof(layout.shape));
	memcpy(layout.stride, tensor->stride, sizeof(layout.stride));
	if (tensor->contiguous)
		view_set_contiguous(&layout);
	kept->bytes = view_span(&layout);
	kept->packed = !kept->made && tensor->contiguous && !view_contiguous(&operand->view);
	kept->room = prepared->arena_bytes;
	prepared->arena_bytes += (kept->bytes + 63) & ~UINT64_C(63);
	/* The caller's tensor is no row, which may have another length than one. */
	if (kept->made && problem->point && view_count(&layout) != 1)
		return error_raise_value(
			"%s(): %s has rank 0, and %s would have %lld elements; it must have "
			"rank 1",
			problem->op, problem->operands[0].name, operand->name, (long long)view_count(&layout));
	if (kept->made && problem->point)
		kept->shape = PyTuple_New(0);
	else if (kept->made)
		kept->shape = tuple_of(tensor);
	if (kept->made && !kept->shape)
		return RAISED;
	return 0;
}

static int keep(const struct problem *problem, struct connection *connection, const struct key *key,
				struct preparing *preparing, struct prepared **out)
{
	struct prepared *prepared = prepared_new(key, problem->count);
	if (!prepared)
		return RAISED;
	prepared->call = preparing->call;
	prepared->client = preparing->client;
	preparing->call = NULL;
	for (int i = 0; i < problem->count; i++) {
		if (keep_operand(problem, preparing, i, prepared) != 0) {
			prepared_unref(prepared);
			return RAISED;
		}
	}
	prepared_add(&connection->prepared, prepared);
	*out = prepared;
	return KILN_OK;
}

/* A daemon that ends answers what it has not begun with KILN_ECANCELED, and then goes. */
static bool is_gone(int status)
{
	return status == KILN_ECONN || status == KILN_ECANCELED;
}

int run_failed(struct connection *connection, int status, bool last)
{
	bool gone = is_gone(status);

	if (gone)
		connection_lost(connection, connection_keeps_calls(connection));
	return gone && !last ? KILN_ECONN : error_raise_kiln(status);
}

int run_prepare(struct problem *problem, struct connection *connection, const struct key *key,
				bool last, struct prepared **out)
{
	struct preparing *preparing = calloc(1, sizeof(*preparing));
	if (!preparing) {
		PyErr_NoMemory();
		return RAISED;
	}
	preparing->errand.work = preparing_work;
	preparing->errand.drop = preparing_drop;
	preparing->client = connection->client;
	preparing->tensor_count = problem->count;
	snprintf(preparing->op, sizeof(preparing->op), "%s", problem->op);
	for (int i = 0; i < problem->count; i++)
		describe(problem, connection, i, preparing);
	if (copy_attrs(problem, preparing) != 0) {
		preparing_drop(&preparing->errand);
		return RAISED;
	}
	int status = errand_run(&preparing->errand);
	if (status == ERRAND_ABANDONED) {
		/* The thread is still inside the client, so nobody else may use it. */
		connection_lost(connection, connection_keeps_calls(connection));
		return RAISED;
	}
	if (status == KILN_OK) {
		status = keep(problem, connection, key, preparing, out);
	} else if (is_gone(status)) {
		connection_lost(connection, connection_keeps_calls(connection));
		status = last ? errand_raise(&preparing->errand) : KILN_ECONN;
	} else {
		status = errand_raise(&preparing->errand);
	}
	preparing_drop(&preparing->errand);
	return status;
}
