/*
 * operator.c: binds the arguments of a call to the parameters of its operator.
 */
#include "operator.h"
#include "argument.h"
#include "errors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE_TEXT 256 /* KILN_MAX_RANK numbers of 64 bits, and what is between them */

struct operator
{
	const struct operator_row *row;
	bool along;    /* it goes along a dimension */
	bool reduces;  /* that dimension is reduced */
	bool reorders; /* its parameter of integers puts the dimensions in another order */
	bool narrows;  /* it computes integers in i64, and has the type that is asked for */
	int dtype_at;  /* the parameter that the input is cast to; -1: there is none */
	PyMethodDef method, here;
	PyObject *name;                   /* the key of a kind's functions; interned */
	PyObject *names[PARAMETERS_MOST]; /* interned */
};

static struct operator* operators;

/* ---- Arguments to parameters ---- */

static int find_parameter(const struct operator* op, PyObject *name)
{
	for (int i = 0; i < op->row->parameter_count; i++)
		if (op->names[i] == name)
			return i;
	for (int i = 0; i < op->row->parameter_count; i++)
		if (PyUnicode_Compare(op->names[i], name) == 0)
			return i;
	for (int i = 0; i < op->row->parameter_count; i++)
		if (op->row->parameters[i].also &&
			PyUnicode_CompareWithASCIIString(name, op->row->parameters[i].also) == 0)
			return i;
	return -1;
}

/* A name that no parameter has: the sentence lists those that there are. */
static int refuse_name(const struct operator_row *row, PyObject *name)
{
	char known[384] = "";
	size_t used = 0;

	for (int i = 0; i < row->parameter_count && used < sizeof(known); i++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
								 row->parameters[i].name);
	return error_raise_type("%s() has no parameter %s; those it has: %s", row->name,
							PyUnicode_AsUTF8AndSize(name, NULL), known);
}

/* torch has all results in one out: spreads such a tuple over the parameters. */
static int spread_out(const struct operator_row *row, PyObject **slots)
{
	int at = 0;

	while (at < row->parameter_count && row->parameters[at].kind != PARAMETER_OUT)
		at++;
	if (at == row->parameter_count || !slots[at] || !PyTuple_Check(slots[at]))
		return 0;
	PyObject *out = slots[at];
	Py_ssize_t count = PyTuple_Size(out);
	bool fits = count > 0 && count <= row->parameter_count - at;
	for (Py_ssize_t i = 1; fits && i < count; i++)
		fits = row->parameters[at + i].kind == PARAMETER_WANT && !slots[at + i];
	if (!fits)
		return error_raise_type("%s(): out is a tuple of %zd; it must be one tensor, or a tuple of "
								"the results that are not passed by name",
								row->name, count);
	for (Py_ssize_t i = 0; i < count; i++)
		slots[at + i] = PyTuple_GetItem(out, i);
	return 0;
}

static int bind(const struct operator* op, PyObject *const *args, Py_ssize_t count,
				PyObject *keywords, PyObject **slots)
{
	const struct operator_row *row = op->row;
	Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;

	if (count > row->positional)
		return error_raise_type("%s() takes %d positional arguments, and %zd were given", row->name,
								row->positional, count);
	for (int i = 0; i < row->parameter_count; i++)
		slots[i] = i < count ? args[i] : NULL;
	for (Py_ssize_t i = 0; i < named; i++) {
		PyObject *name = PyTuple_GetItem(keywords, i);
		int at = find_parameter(op, name);
		if (at < 0)
			return refuse_name(row, name);
		if (slots[at])
			return error_raise_type("%s() got %s twice", row->name, row->parameters[at].name);
		slots[at] = args[count + i];
	}
	if (spread_out(row, slots) != 0)
		return RAISED;
	for (int i = 0; i < row->parameter_count; i++) {
		if (slots[i] == Py_None)
			slots[i] = NULL;
		if (!slots[i] && row->parameters[i].required)
			return error_raise_type("%s() needs %s", row->name, row->parameters[i].name);
	}
	return 0;
}

/* ---- Attributes ---- */

/* "(2, 3)" and "(5,)", as Python writes a tuple. */
static void print_shape(const int64_t *shape, int rank, char text[SHAPE_TEXT])
{
	size_t used = (size_t)snprintf(text, SHAPE_TEXT, "(");
	for (int i = 0; i < rank; i++)
		used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%lld", i ? ", " : "",
								 (long long)shape[i]);
	snprintf(text + used, SHAPE_TEXT - used, rank == 1 ? ",)" : ")");
}

/* normalized_shape: must be the trailing dimensions of the first operand. */
static int read_trailing(struct problem *problem, const struct parameter *parameter,
						 PyObject *value, kiln_attr *attr)
{
	const struct view *first = &problem->operands[0].view;
	char given[SHAPE_TEXT], whole[SHAPE_TEXT];
	int64_t shape[KILN_MAX_RANK];
	bool one = PyIndex_Check(value) && !PySequence_Check(value);
	int count = !one ? argument_integers(problem->op, parameter->name, value, shape)
				: argument_integer(problem->op, parameter->name, value, shape) == 0 ? 1
																					: RAISED;
	if (count < 0)
		return RAISED;
	bool fits = count >= 1 && count <= first->rank;
	for (int i = 0; fits && i < count; i++)
		fits = shape[i] == first->shape[first->rank - count + i];
	attr->i = count;
	if (fits)
		return 0;
	print_shape(shape, count, given);
	print_shape(first->shape, first->rank, whole);
	return error_raise_value("%s(): %s is %s; it must be the end of %s's shape %s%s", problem->op,
							 parameter->name, given, problem->operands[0].name, whole,
							 count == 0 ? ", and not empty" : "");
}

/* Returns the epsilon of the type that is computed in, as torch does: f16 and bf16 are computed in
 * f32. */
static double epsilon_of(kiln_dtype dtype)
{
	return dtype == KILN_F64 ? 0x1p-52 : 0x1p-23;
}

/* Reads an element type; *out: a word of the planner's, which Python keeps. */
static int read_type(const char *function, const char *name, PyObject *value, const char **out)
{
	static PyObject *known; /* words by what is no text */
	PyObject *word = NULL;

	if (PyUnicode_Check(value)) {
		*out = PyUnicode_AsUTF8AndSize(value, NULL);
		if (*out && kiln_dtype_parse(*out) != KILN_DTYPE_NONE)
			return 0;
		PyErr_Clear();
	} else if (known) {
		word = PyDict_GetItemWithError(known, value);
		PyErr_Clear(); /* a value without a hash is refused below */
	}
	if (!word) {
		PyObject *ask = package_member("_kinds", "type_word");
		PyObject *answer = ask ? PyObject_CallFunction(ask, "ssO", function, name, value) : NULL;
		Py_XDECREF(ask);
		if (!known)
			known = PyDict_New();
		bool kept = answer && known && PyDict_SetItem(known, value, answer) == 0;
		word = kept ? answer : NULL;
		Py_XDECREF(answer);
	}
	*out = word ? PyUnicode_AsUTF8AndSize(word, NULL) : NULL;
	return *out ? 0 : RAISED;
}

static int read_value(struct problem *problem, const struct parameter *parameter, PyObject *value,
					  kiln_attr *attr)
{
	switch (parameter->kind) {
	case PARAMETER_INT:
		return argument_integer(problem->op, parameter->name, value, &attr->i);
	case PARAMETER_REAL:
		return argument_real(problem->op, parameter->name, value, &attr->f);
	case PARAMETER_TEXT:
		return argument_text(problem->op, parameter->name, value, &attr->s);
	case PARAMETER_TYPE:
		return read_type(problem->op, parameter->name, value, &attr->s);
	case PARAMETER_OVER:
		attr->ints = problem->ints;
		attr->count = 1;
		if (PyIndex_Check(value) && !PySequence_Check(value))
			return argument_integer(problem->op, parameter->name, value, problem->ints);
		attr->count = argument_integers(problem->op, parameter->name, value, problem->ints);
		return attr->count < 0 ? RAISED : 0;
	case PARAMETER_INTS:
		attr->count = argument_integers(problem->op, parameter->name, value, problem->ints);
		attr->ints = problem->ints;
		/* Lists are of dimensions, which torch counts from the end where they are negative. */
		for (int i = 0; i < attr->count; i++)
			if (problem->ints[i] < 0)
				problem->ints[i] += problem->operands[0].view.rank;
		return attr->count < 0 ? RAISED : 0;
	default:
		return read_trailing(problem, parameter, value, attr);
	}
}

static int add_attribute(struct problem *problem, const struct parameter *parameter,
						 PyObject *value)
{
	static const kiln_attr_kind kinds[] = {
		[PARAMETER_INT] = KILN_ATTR_INT,     [PARAMETER_REAL] = KILN_ATTR_REAL,
		[PARAMETER_TEXT] = KILN_ATTR_STRING, [PARAMETER_TYPE] = KILN_ATTR_STRING,
		[PARAMETER_INTS] = KILN_ATTR_INTS,   [PARAMETER_SHAPE] = KILN_ATTR_INT,
		[PARAMETER_OVER] = KILN_ATTR_INTS,
	};
	bool none = parameter->kind == PARAMETER_DTYPE || parameter->kind == PARAMETER_IGNORED;
	if (none || (!value && !parameter->preset))
		return 0;
	kiln_attr *attr = problem_attr(problem, parameter->attribute, kinds[parameter->kind]);
	if (!attr)
		return RAISED;
	if (value)
		return read_value(problem, parameter, value, attr);
	if (parameter->kind == PARAMETER_REAL)
		attr->f = epsilon_of(problem->operands[0].view.dtype);
	else
		attr->s = parameter->preset;
	return 0;
}

/* ---- A call ---- */

static int add_operand(const struct operator* op, struct problem *problem,
					   const struct operator_operand *is, const struct parameter *parameter,
					   PyObject *value)
{
	if (!is->written) {
		if (!value)
			return problem_left_out(problem, parameter->name);
		if ((is->kept ? problem_kept : problem_input)(problem, value, parameter->name) != 0)
			return RAISED;
		problem->operands[problem->count - 1].shape = is->shape;
		problem->operands[problem->count - 1].dtype = is->dtype;
		/* Weights and the like are few numbers, which kernels read as they lie side by side. */
		return is->shape == SHAPE_TRAILING && !problem->unread ? problem_pack(problem) : 0;
	}
	bool optional = parameter->kind == PARAMETER_WANT;
	bool alone = is->input >= 0 && problem->operands[is->input].role == ROLE_LEFT_OUT;
	bool asked = value == Py_True || (!value && parameter->preset);
	if (optional && (value == Py_False || (!value && !asked) || (asked && alone)))
		return problem_left_out(problem, parameter->name);
	if (value == Py_True)
		value = NULL;
	/* An output like the first operand is nothing to ask the daemon for. */
	bool plain = is->shape == SHAPE_FIRST && is->dtype == DTYPE_FIRST && !op->reorders;
	return problem_output(problem, value, parameter->name,
						  optional || plain ? is->shape : SHAPE_PLANNED, is->dtype);
}

static int fill(const struct operator* op, PyObject *const *slots, struct problem *problem)
{
	const struct operator_row *row = op->row;
	int of[KILN_MAX_OPERANDS];

	problem->along = op->along;
	problem->reduces = op->reduces;
	for (int i = 0; i < row->parameter_count; i++)
		if (row->parameters[i].kind <= PARAMETER_OUT)
			of[row->parameters[i].operand] = i;
	for (int i = 0; i < row->operand_count; i++) {
		if (add_operand(op, problem, &row->operands[i], &row->parameters[of[i]], slots[of[i]]) != 0)
			return RAISED;
		if (problem->unread)
			return 0;
	}
	for (int i = 0; i < row->parameter_count; i++)
		if (row->parameters[i].kind > PARAMETER_OUT &&
			add_attribute(problem, &row->parameters[i], slots[i]) != 0)
			return RAISED;
	return 0;
}

/* Runs a call that is filled in; a refusal has the function's names. */
static PyObject *run_named(const struct operator* op, struct problem *problem)
{
	PyObject *result = problem_run(problem);
	if (!result)
		operator_name_error(op->row);
	return result;
}

/* Gives the call, as it came, to a tensor's kind: a result, or NULL. */
static PyObject *redirect(const struct operator* op, const struct problem *problem,
						  PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	Py_ssize_t keys = keywords ? PyTuple_Size(keywords) : 0;
	PyObject *own = PyDict_Check(problem->redirect)
						? PyDict_GetItemWithError(problem->redirect, op->name)
						: NULL;
	PyObject *positional = PyTuple_New(count), *result = NULL;
	PyObject *named = keys > 0 || !own ? PyDict_New() : NULL;
	bool whole = positional && (named || (keys == 0 && own));

	for (Py_ssize_t i = 0; positional && i < count; i++) {
		Py_INCREF(args[i]);
		PyTuple_SetItem(positional, i, args[i]);
	}
	for (Py_ssize_t i = 0; whole && i < keys; i++) {
		int at = find_parameter(op, PyTuple_GetItem(keywords, i));
		whole = at >= 0 && PyDict_SetItem(named, op->names[at], args[count + i]) == 0;
	}
	if (whole && own)
		result = PyObject_Call(own, positional, named);
	else if (whole)
		result = PyObject_CallFunctionObjArgs(problem->redirect, op->name, positional, named, NULL);
	Py_XDECREF(positional);
	Py_XDECREF(named);
	return result;
}

/* Runs a call, whatever the kinds of its tensors say. */
static PyObject *run_here(const struct operator* op, PyObject *const *slots)
{
	PyObject *result = NULL;
	struct problem problem;

	problem_begin(&problem, op->row->name);
	problem.settled = true;
	if (fill(op, slots, &problem) == 0)
		result = run_named(op, &problem);
	problem_end(&problem);
	return result;
}

static PyObject *call_here(PyObject *self, PyObject *const *args, Py_ssize_t count,
						   PyObject *keywords)
{
	const struct operator* op = PyCapsule_GetPointer(self, "kiln operator");
	PyObject *slots[PARAMETERS_MOST];

	if (!op || bind(op, args, count, keywords, slots) != 0)
		return NULL;
	return run_here(op, slots);
}

static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);

/* The result in the element type that the caller asked for; a tensor that was passed stays. */
static PyObject *cast_result(const struct operator* op, PyObject *const *slots, PyObject *result,
							 PyObject *dtype)
{
	for (int i = 0; i < op->row->parameter_count; i++)
		if (result == slots[i])
			return result;
	PyObject *function = package_member("_kinds", "cast");
	PyObject *made =
		function ? PyObject_CallFunction(function, "sOO", op->row->name, result, dtype) : NULL;
	Py_XDECREF(function);
	Py_DECREF(result);
	return made;
}

/* Makes the call again, with its first parameter cast as the one for that says. */
static PyObject *call_cast(PyObject *self, const struct operator* op, PyObject **slots)
{
	PyObject *function = package_member("_kinds", "cast"), *result = NULL;
	PyObject *input = function ? PyObject_CallFunction(function, "sOO", op->row->name, slots[0],
													   slots[op->dtype_at])
							   : NULL;
	PyObject *names = NULL, *values[PARAMETERS_MOST], *dtype = slots[op->dtype_at];
	int count = 0;

	slots[0] = input;
	slots[op->dtype_at] = NULL;
	for (int i = 0; i < op->row->parameter_count; i++)
		count += slots[i] != NULL;
	if (input)
		names = PyTuple_New(count);
	count = 0;
	for (int i = 0; names && i < op->row->parameter_count; i++) {
		if (!slots[i])
			continue;
		Py_INCREF(op->names[i]);
		PyTuple_SetItem(names, count, op->names[i]);
		values[count++] = slots[i];
	}
	if (names)
		result = call(self, values, 0, names);
	if (result && op->narrows)
		result = cast_result(op, slots, result, dtype);
	Py_XDECREF(names);
	Py_XDECREF(input);
	Py_XDECREF(function);
	return result;
}

/* Is the input of a type that the operator casts by itself? */
static bool is_widened(const struct operator* op, const struct problem *problem)
{
	kiln_dtype dtype = problem->unread ? KILN_DTYPE_NONE : problem->operands[0].view.dtype;

	return op->dtype_at >= 0 && op->row->parameters[op->dtype_at].preset &&
		   (dtype == KILN_BOOL || dtype == KILN_I8 || dtype == KILN_U8 || dtype == KILN_I16 ||
			dtype == KILN_U16);
}

static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
	const struct operator* op = PyCapsule_GetPointer(self, "kiln operator");
	PyObject *slots[PARAMETERS_MOST], *result = NULL;
	bool widened = false;
	struct problem problem;

	if (!op || bind(op, args, count, keywords, slots) != 0)
		return NULL;
	if (op->dtype_at >= 0 && slots[op->dtype_at])
		return call_cast(self, op, slots);
	problem_begin(&problem, op->row->name);
	if (fill(op, slots, &problem) == 0) {
		widened = is_widened(op, &problem);
		if (!widened)
			result = problem.redirect ? redirect(op, &problem, args, count, keywords)
									  : run_named(op, &problem);
	}
	problem_end(&problem);
	if (widened) {
		PyObject *wide = PyUnicode_FromString(op->row->parameters[op->dtype_at].preset);
		slots[op->dtype_at] = wide;
		result = wide ? call_cast(self, op, slots) : NULL;
		Py_XDECREF(wide);
	}
	return result;
}

/* The functions that call_here() is behind: the dictionary `here`, by the operators' names. */
static int make_here(PyObject *here, struct operator* op)
{
	op->here = (PyMethodDef){op->row->name, (PyCFunction)(void (*)(void))call_here,
							 METH_FASTCALL | METH_KEYWORDS, op->row->documentation};
	PyObject *self = PyCapsule_New(op, "kiln operator", NULL);
	PyObject *function = self ? PyCFunction_NewEx(&op->here, self, NULL) : NULL;
	int status = function ? PyDict_SetItemString(here, op->row->name, function) : RAISED;
	Py_XDECREF(self);
	Py_XDECREF(function);
	return status;
}

static int make_function(PyObject *module, struct operator* op, const struct operator_row *row)
{
	op->row = row;
	op->dtype_at = -1;
	op->name = PyUnicode_InternFromString(row->name);
	if (!op->name)
		return RAISED;
	for (int i = 0; i < row->parameter_count; i++) {
		op->names[i] = PyUnicode_InternFromString(row->parameters[i].name);
		if (!op->names[i])
			return RAISED;
		const char *attribute = row->parameters[i].attribute;
		if (row->parameters[i].kind == PARAMETER_DTYPE)
			op->dtype_at = i;
		op->reduces = op->reduces || (attribute && strcmp(attribute, "over") == 0);
		op->along = op->along || op->reduces || (attribute && strcmp(attribute, "axis") == 0);
		op->reorders = op->reorders || row->parameters[i].kind == PARAMETER_INTS;
	}
	op->narrows = op->dtype_at >= 0 && row->parameters[op->dtype_at].preset;
	for (int i = 0; i < row->operand_count; i++)
		op->narrows = op->narrows || row->operands[i].dtype == DTYPE_SUMMED;
	op->method = (PyMethodDef){row->name, (PyCFunction)(void (*)(void))call,
							   METH_FASTCALL | METH_KEYWORDS, row->documentation};
	PyObject *self = PyCapsule_New(op, "kiln operator", NULL);
	PyObject *name = PyUnicode_FromString("kiln");
	PyObject *function = self && name ? PyCFunction_NewEx(&op->method, self, name) : NULL;
	Py_XDECREF(self);
	Py_XDECREF(name);
	return function ? PyModule_AddObject(module, row->name, function) : RAISED;
}

int operators_init(PyObject *module)
{
	PyObject *here = PyDict_New();
	operators = calloc((size_t)operator_row_count, sizeof(*operators));
	for (int i = 0; i < operator_row_count; i++)
		if (!operators || !here || make_function(module, &operators[i], &operator_rows[i]) != 0 ||
			make_here(here, &operators[i]) != 0) {
			Py_XDECREF(here);
			return RAISED;
		}
	return PyModule_AddObject(module, "here", here);
}
