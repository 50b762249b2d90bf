/*
 * problem.c: the steps of one call: its signature finds the prepared call, the outputs are made,
 * and run.c runs it.
 */
#include "problem.h"
#include "errors.h"
#include "run.h"

#include <string.h>

/* Operands and attributes are written when they are added, so that a call need not clear all. */
void problem_begin(struct problem *problem, const char *op)
{
	problem->op = op;
	problem->kind = NULL;
	problem->like = NULL;
	problem->like_view = NULL;
	problem->device = VIEW_HOST;
	problem->redirect = NULL;
	problem->unread = false;
	problem->settled = false;
	problem->along = problem->reduces = false;
	problem->point = false;
	problem->count = 0;
	problem->attr_count = 0;
}

void problem_end(struct problem *problem)
{
	for (int i = 0; i < problem->count; i++) {
		struct problem_operand *operand = &problem->operands[i];
		if (operand->role == ROLE_LEFT_OUT)
			continue;
		view_end(&operand->view);
		if (operand->role == ROLE_MADE || operand->copied)
			Py_XDECREF(operand->object);
	}
}

static struct problem_operand *add(struct problem *problem, enum role role, PyObject *object,
								   const char *name)
{
	if (problem->count == KILN_MAX_OPERANDS) {
		error_raise_value("%s: a call has at most %d operands", problem->op, KILN_MAX_OPERANDS);
		return NULL;
	}
	struct problem_operand *operand = &problem->operands[problem->count++];
	operand->role = role;
	operand->name = name;
	operand->object = object;
	operand->shape = SHAPE_PLANNED;
	operand->dtype = DTYPE_FIRST;
	operand->copied = false;
	operand->view.owner = NULL;
	return operand;
}

int problem_left_out(struct problem *problem, const char *name)
{
	return add(problem, ROLE_LEFT_OUT, NULL, name) ? 0 : RAISED;
}

/* The kind gets the call as it came: its tensor may have no memory. */
static int leave_unread(struct problem *problem, const struct kind *kind)
{
	problem->redirect = kind->dispatch ? kind->dispatch : kind->redirect;
	problem->unread = problem->redirect != NULL;
	return 0;
}

/* tensor: the argument, or NULL for none. */
static int ask(PyObject *function, PyObject *tensor, bool *yes)
{
	PyObject *answer = function ? PyObject_CallFunctionObjArgs(function, tensor, NULL) : NULL;
	if (!answer)
		return function ? RAISED : 0;
	*yes = *yes || PyObject_IsTrue(answer) == 1;
	Py_DECREF(answer);
	return 0;
}

/* Does the library watch calls now? */
static int ask_watching(const struct kind *kind, bool *yes)
{
	for (Py_ssize_t i = 0; kind->asks && i < PyTuple_Size(kind->asks); i++)
		if (ask(PyTuple_GetItem(kind->asks, i), NULL, yes) != 0)
			return RAISED;
	if (!kind->level)
		return 0;
	PyObject *level =
		PyObject_GetAttr(PyTuple_GetItem(kind->level, 0), PyTuple_GetItem(kind->level, 1));
	if (!level)
		return RAISED;
	long value = PyLong_AsLong(level);
	*yes = *yes || value >= 0;
	Py_DECREF(level);
	return value == -1 && PyErr_Occurred() ? RAISED : 0;
}

/* Elements may be other than their bytes say until somebody needs them. */
static int ask_lazy(const struct kind *kind, const struct problem_operand *operand, bool *yes)
{
	kiln_dtype dtype = operand->view.dtype;
	bool is_complex = dtype == KILN_C64 || dtype == KILN_C128;
	bool is_part = dtype == KILN_F16 || dtype == KILN_F32 || dtype == KILN_F64;
	if ((is_complex || is_part) && ask(kind->negated, operand->object, yes) != 0)
		return RAISED;
	return is_complex ? ask(kind->conjugated, operand->object, yes) : 0;
}

/* Reads a tensor that was passed, and compares its device with the others'. */
static int read_operand(struct problem *problem, struct problem_operand *operand)
{
	const struct kind *kind = kind_of(operand->object);
	if (!kind)
		return error_prefix("%s(): %s ", problem->op, operand->name);
	bool first = !problem->kind, half;
	bool taken = !problem->settled && kind->when == REDIRECT_ALWAYS && kind->redirect;
	if (!problem->settled && first && ask_watching(kind, &taken) != 0)
		return RAISED;
	if (taken)
		return leave_unread(problem, kind);
	if (view_read(kind, operand->object, operand->name, &operand->view) != 0) {
		if (problem->settled || !kind->dispatch)
			return error_prefix("%s(): ", problem->op);
		PyErr_Clear();
		return leave_unread(problem, kind);
	}
	if (problem->along && operand->view.rank == 0 && operand->role != ROLE_GIVEN) {
		operand->view.rank = 1;
		operand->view.shape[0] = operand->view.stride[0] = 1;
		problem->point = problem->point || first;
	}
	half = operand->view.dtype == KILN_F16 || operand->view.dtype == KILN_BF16;
	if (!problem->settled && first && half && ask(kind->asks_half, NULL, &taken) != 0)
		return RAISED;
	if (!problem->settled && ask_lazy(kind, operand, &taken) != 0)
		return RAISED;
	if (taken)
		return leave_unread(problem, kind);
	if (first) {
		problem->kind = kind;
		problem->like = operand->object;
		problem->like_view = &operand->view;
		problem->device = operand->view.device;
	}
	if (operand->view.device != problem->device)
		return error_raise_value("%s: %s is on another device than %s; all must be on one",
								 problem->op, operand->name, problem->operands[0].name);
	if (!problem->settled && kind->when == REDIRECT_GRAD) {
		PyObject *grad = PyObject_GetAttr(operand->object, word_requires_grad);
		if (!grad)
			return RAISED;
		bool records = grad == Py_True && !kind->records;
		if (grad == Py_True && ask(kind->records, NULL, &records) != 0) {
			Py_DECREF(grad);
			return RAISED;
		}
		if (records)
			problem->redirect = kind->redirect;
		Py_DECREF(grad);
	}
	return 0;
}

int problem_input(struct problem *problem, PyObject *object, const char *name)
{
	struct problem_operand *operand = add(problem, ROLE_INPUT, object, name);
	return operand ? read_operand(problem, operand) : RAISED;
}

int problem_pack(struct problem *problem)
{
	struct problem_operand *operand = &problem->operands[problem->count - 1];
	const struct kind *kind = kind_of(operand->object);
	if (!kind || !kind->packed || view_contiguous(&operand->view))
		return kind ? 0 : RAISED;
	PyObject *copy = PyObject_CallFunctionObjArgs(kind->packed, operand->object, NULL);
	if (!copy)
		return RAISED;
	view_end(&operand->view);
	operand->view.owner = NULL;
	operand->object = copy;
	operand->copied = true;
	return view_read(kind, copy, operand->name, &operand->view);
}

/* Reads a tensor that is written. */
static int read_written(struct problem *problem, struct problem_operand *operand)
{
	if (read_operand(problem, operand) != 0)
		return RAISED;
	return operand->view.read_only
			   ? error_raise_value("%s: %s cannot be written", problem->op, operand->name)
			   : 0;
}

int problem_kept(struct problem *problem, PyObject *object, const char *name)
{
	struct problem_operand *operand = add(problem, ROLE_KEPT, object, name);
	return operand ? read_written(problem, operand) : RAISED;
}

int problem_output(struct problem *problem, PyObject *object, const char *name,
				   enum shape_rule shape, enum dtype_rule dtype)
{
	struct problem_operand *operand = add(problem, object ? ROLE_GIVEN : ROLE_MADE, object, name);
	if (!operand)
		return RAISED;
	operand->shape = shape;
	operand->dtype = dtype;
	return object ? read_written(problem, operand) : 0;
}

kiln_attr *problem_attr(struct problem *problem, const char *name, kiln_attr_kind kind)
{
	if (problem->attr_count == KILN_MAX_ATTRS) {
		error_raise_value("%s: a call has at most %d attributes", problem->op, KILN_MAX_ATTRS);
		return NULL;
	}
	kiln_attr *attr = &problem->attrs[problem->attr_count++];
	memset(attr, 0, sizeof(*attr));
	attr->name = name;
	attr->kind = kind;
	return attr;
}

/* ---- The signature ---- */

static void put_operand(struct key *key, const struct problem_operand *operand, unsigned place)
{
	const struct view *view = &operand->view;
	if (operand->role == ROLE_LEFT_OUT || operand->role == ROLE_MADE) {
		key_put(key, (uint64_t)operand->role);
		return;
	}
	bool contiguous = view_contiguous(view);
	key_put(key, (uint64_t)operand->role | (uint64_t)view->dtype << 8 | (uint64_t)view->rank << 16 |
					 (uint64_t)contiguous << 24 | (uint64_t)place << 32);
	for (int i = 0; i < view->rank; i++)
		key_put(key, (uint64_t)view->shape[i]);
	for (int i = 0; i < view->rank && !contiguous; i++)
		key_put(key, (uint64_t)view->stride[i]);
}

static void put_attr(struct key *key, const kiln_attr *attr)
{
	uint64_t bits = (uint64_t)attr->i;
	key_put_text(key, attr->name);
	switch (attr->kind) {
	case KILN_ATTR_REAL:
		memcpy(&bits, &attr->f, sizeof(bits));
		key_put(key, bits);
		break;
	case KILN_ATTR_INTS:
		key_put(key, (uint64_t)attr->count);
		for (int i = 0; i < attr->count; i++)
			key_put(key, (uint64_t)attr->ints[i]);
		break;
	case KILN_ATTR_STRING:
		key_put_text(key, attr->s);
		break;
	default:
		key_put(key, bits);
	}
}

static void make_key(const struct problem *problem, const struct connection *connection,
					 struct key *key)
{
	key->count = 0;
	key_put_text(key, problem->op);
	key_put(key, (uint64_t)problem->point << 48 | (uint64_t)problem->count << 32 |
					 (uint64_t)problem->attr_count);
	for (int i = 0; i < problem->count; i++)
		put_operand(key, &problem->operands[i],
					run_place(connection, &problem->operands[i].view, problem->operands[i].role));
	for (int i = 0; i < problem->attr_count; i++) {
		key_put(key, (uint64_t)problem->attrs[i].kind);
		put_attr(key, &problem->attrs[i]);
	}
	key_finish(key);
}

/* ---- Running ---- */

/* The first may meet a call of a daemon that is gone, the second a connection that is. */
#define ATTEMPTS 3

/* Makes an output like the pattern that the prepared call has for this kind and device. */
static PyObject *make_output(const struct problem *problem, struct prepared_operand *is)
{
	const struct kind *kind = problem->kind;
	enum likeness likeness = (enum likeness)is->likeness;
	bool fits = is->pattern_kind == kind && is->pattern_device == problem->device;

	if (likeness == LIKE_WHOLE)
		return kind_empty(kind, problem->like, likeness, is->shape, is->dtype);
	if (!fits) {
		PyObject *pattern = kind_pattern(kind, problem->like, is->shape, is->dtype);
		if (!pattern && PyErr_Occurred())
			return NULL;
		PyObject *before = is->pattern;
		is->pattern = pattern;
		is->pattern_kind = kind;
		is->pattern_device = problem->device;
		Py_XDECREF(before);
	}
	if (!is->pattern)
		return kind_empty(kind, problem->like, likeness, is->shape, is->dtype);
	/* Another thread may put another one in its place meanwhile. */
	PyObject *pattern = is->pattern;
	Py_INCREF(pattern);
	PyObject *output = kind_like(kind, pattern);
	Py_DECREF(pattern);
	return output;
}

/* Makes the outputs that the call makes; those of a first attempt stay. */
static int make_outputs(struct problem *problem, const struct prepared *prepared)
{
	for (int i = 0; i < problem->count; i++) {
		struct problem_operand *operand = &problem->operands[i];
		if (operand->role != ROLE_MADE || operand->object)
			continue;
		operand->object = make_output(problem, &prepared->operands[i]);
		const struct kind *kind = operand->object ? kind_of(operand->object) : NULL;
		if (!kind || view_read(kind, operand->object, operand->name, &operand->view) != 0)
			return RAISED;
	}
	return 0;
}

static PyObject *result(struct problem *problem)
{
	PyObject *outputs[KILN_MAX_OPERANDS];
	int count = 0;
	for (int i = 0; i < problem->count; i++)
		if (problem->operands[i].role == ROLE_GIVEN || problem->operands[i].role == ROLE_MADE)
			outputs[count++] = problem->operands[i].object;
	if (count == 0)
		Py_RETURN_NONE;
	if (count == 1) {
		Py_INCREF(outputs[0]);
		return outputs[0];
	}
	PyObject *tuple = PyTuple_New(count);
	for (int i = 0; i < count && tuple; i++) {
		Py_INCREF(outputs[i]);
		PyTuple_SetItem(tuple, i, outputs[i]);
	}
	return tuple;
}

static int run(struct problem *problem, struct connection *connection, struct prepared *prepared,
			   bool last)
{
	if (problem->device == VIEW_HOST)
		return run_copied(problem, connection, prepared, last);
	if (connection->settings.mode == MODE_DAEMON)
		return run_daemon(problem, connection, prepared, last);
	return run_local(problem, connection, prepared, last);
}

/* One attempt: KILN_OK, KILN_ECONN without an exception where another one may help, or RAISED. */
static int attempt(struct problem *problem, struct connection *connection, bool last)
{
	struct prepared *prepared;
	struct key key;

	make_key(problem, connection, &key);
	prepared = prepared_find(&connection->prepared, &key);
	if (!prepared) {
		int status = run_prepare(problem, connection, &key, last, &prepared);
		if (status != KILN_OK)
			return status;
	}
	int status = make_outputs(problem, prepared);
	if (status == 0)
		status = run(problem, connection, prepared, last);
	prepared_unref(prepared);
	return status;
}

static int tell_written(const struct problem *problem)
{
	for (int i = 0; i < problem->count; i++) {
		PyObject *object = problem->operands[i].object;
		enum role role = problem->operands[i].role;
		if (role != ROLE_GIVEN && role != ROLE_KEPT)
			continue;
		const struct kind *kind = kind_of(object);
		if (!kind || kind_tell_written(kind, object) != 0)
			return RAISED;
	}
	return 0;
}

PyObject *problem_run(struct problem *problem)
{
	for (int i = 0; i < ATTEMPTS; i++) {
		struct connection *connection = connection_for(problem->device);
		if (!connection)
			return NULL;
		int status = attempt(problem, connection, i == ATTEMPTS - 1);
		Py_DECREF(connection);
		if (status == KILN_OK)
			return tell_written(problem) == 0 ? result(problem) : NULL;
		if (status != KILN_ECONN)
			return NULL;
	}
	return NULL;
}
