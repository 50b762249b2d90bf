/*
 * call.c: _kiln.call(), the operators by name: for kiln.map, and for what is written in Python on
 * top of the core.
 */
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
	if (text) {
		attr->s = PyUnicode_AsUTF8AndSize(value, NULL);
		return attr->s ? 0 : RAISED;
	}
	if (real)
		attr->f = PyFloat_AsDouble(value);
	else if (whole)
		attr->i = PyLong_AsLongLong(value);
	if (real || whole)
		return PyErr_Occurred() ? RAISED : 0;
	attr->count = PyTuple_Check(value) ? (int)PyTuple_Size(value) : -1;
	if (attr->count < 0 || attr->count > KILN_MAX_RANK)
		return error_raise_type("%s(): %s is a text, a number, or a tuple of at most %d integers",
								problem->op, name, KILN_MAX_RANK);
	for (int i = 0; i < attr->count; i++)
		problem->ints[i] = PyLong_AsLongLong(PyTuple_GetItem(value, i));
	attr->ints = problem->ints;
	return PyErr_Occurred() ? RAISED : 0;
}

static int fill(struct problem *problem, PyObject *inputs, PyObject *outputs, PyObject *attrs)
{
	PyObject *name, *value;
	Py_ssize_t at = 0;

	for (Py_ssize_t i = 0; i < PyTuple_Size(inputs); i++) {
		PyObject *object = PyTuple_GetItem(inputs, i);
		int status = object == Py_None ? problem_left_out(problem, "an input")
									   : problem_input(problem, object, "an input");
		if (status != 0)
			return RAISED;
	}
	for (Py_ssize_t i = 0; i < PyTuple_Size(outputs); i++) {
		PyObject *object = PyTuple_GetItem(outputs, i);
		if (problem_output(problem, object == Py_None ? NULL : object, "an output", SHAPE_PLANNED,
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
	PyObject *inputs, *outputs, *attrs, *result = NULL;
	struct problem problem;
	const char *op;

	(void)module;
	if (!PyArg_ParseTuple(args, "sO!O!O!", &op, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
						  &PyDict_Type, &attrs))
		return NULL;
	problem_begin(&problem, op);
	problem.settled = true;
	if (fill(&problem, inputs, outputs, attrs) == 0)
		result = problem_run(&problem);
	problem_end(&problem);
	return result;
}
