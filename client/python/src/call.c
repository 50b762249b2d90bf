/*
 * call.c: _kiln.call(), the operators by name: for kiln.map, and for what is written in Python on
 * top of the core.
 */
#include "argument.h"
#include "errors.h"
#include "problem.h"

/* The attribute has the kind that its value has. */
static int add_value(struct problem *problem, const char *name, PyObject *value)
{
	bool text = PyUnicode_Check(value), real = PyFloat_Check(value);
	bool whole = PyLong_Check(value); /* a bool, too */
	kiln_attr *attr = problem_attr(problem, name,
								   text    ? KILN_ATTR_STRING
								   : real  ? KILN_ATTR_REAL
								   : whole ? KILN_ATTR_INT
										   : KILN_ATTR_INTS);
	if (!attr)
		return RAISED;
	if (text)
		return argument_text(problem->op, name, value, &attr->s);
	if (real)
		return argument_real(problem->op, name, value, &attr->f);
	if (whole)
		return argument_integer(problem->op, name, value, &attr->i);
	if (!PyTuple_Check(value))
		return error_raise_argument(problem->op, name, value, true,
									"a text, a number, or a tuple of integers");
	attr->count = argument_integers(problem->op, name, value, problem->ints);
	attr->ints = problem->ints;
	return attr->count < 0 ? RAISED : 0;
}

/* Operand number at has this name in messages; names is a tuple of texts, or NULL. */
static const char *operand_name(PyObject *names, Py_ssize_t at, const char *usual)
{
	bool there = names && at < PyTuple_Size(names);
	const char *name = there ? PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, at), NULL) : NULL;
	PyErr_Clear();
	return name ? name : usual;
}

static int fill(struct problem *problem, PyObject *inputs, PyObject *outputs, PyObject *attrs,
				PyObject *names)
{
	PyObject *name, *value;
	Py_ssize_t at = 0;

	for (Py_ssize_t i = 0; i < PyTuple_Size(inputs); i++) {
		PyObject *object = PyTuple_GetItem(inputs, i);
		const char *called = operand_name(names, i, "an input");
		int status = object == Py_None ? problem_left_out(problem, called)
									   : problem_input(problem, object, called);
		if (status != 0)
			return RAISED;
	}
	for (Py_ssize_t i = 0; i < PyTuple_Size(outputs); i++) {
		PyObject *object = PyTuple_GetItem(outputs, i);
		const char *called = operand_name(names, PyTuple_Size(inputs) + i, "an output");
		if (problem_output(problem, object == Py_None ? NULL : object, called, SHAPE_PLANNED,
						   DTYPE_FIRST) != 0)
			return RAISED;
	}
	while (PyDict_Next(attrs, &at, &name, &value)) {
		const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
		if (!text || add_value(problem, text, value) != 0)
			return RAISED;
	}
	if (!problem->kind)
		return error_raise_type("%s() needs a tensor", problem->op);
	return 0;
}

PyObject *module_call(PyObject *module, PyObject *args)
{
	PyObject *inputs, *outputs, *attrs, *names = NULL, *result = NULL;
	struct problem problem;
	const char *op;

	(void)module;
	if (!PyArg_ParseTuple(args, "sO!O!O!|O!", &op, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
						  &PyDict_Type, &attrs, &PyTuple_Type, &names))
		return NULL;
	problem_begin(&problem, op);
	problem.settled = true;
	if (fill(&problem, inputs, outputs, attrs, names) == 0)
		result = problem_run(&problem);
	problem_end(&problem);
	return result;
}
