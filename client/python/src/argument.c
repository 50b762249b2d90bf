/*
 * argument.c: see argument.h.
 */
#include "argument.h"
#include "errors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Refuses a value that Python did not convert; an exception of the value's own code stays. */
static int not_read(const char *function, const char *name, PyObject *value, const char *rule)
{
	bool overflow = PyErr_ExceptionMatches(PyExc_OverflowError);
	if (!overflow && !PyErr_ExceptionMatches(PyExc_TypeError))
		return RAISED;
	return error_raise_argument(function, name, value, !overflow, rule);
}

int argument_integer(const char *function, const char *name, PyObject *value, int64_t *out)
{
	*out = PyLong_AsLongLong(value);
	return *out == -1 && PyErr_Occurred()
			   ? not_read(function, name, value, "an integer of at most 64 bits")
			   : 0;
}

int argument_real(const char *function, const char *name, PyObject *value, double *out)
{
	const char *rule = "a number that a double holds";

	*out = PyFloat_AsDouble(value);
	if (*out == -1.0 && PyErr_Occurred())
		return not_read(function, name, value, rule);
	if (!PyLong_Check(value) || fabs(*out) < 0x1p53)
		return 0;
	/* An integer that is rounded is another one. */
	PyObject *held = PyLong_FromDouble(*out);
	int same = held ? PyObject_RichCompareBool(held, value, Py_EQ) : RAISED;
	Py_XDECREF(held);
	return same == 0   ? error_raise_argument(function, name, value, false, rule)
		   : same == 1 ? 0
					   : RAISED;
}

int argument_text(const char *function, const char *name, PyObject *value, const char **out)
{
	if (!PyUnicode_Check(value))
		return error_raise_argument(function, name, value, true, "a text");
	Py_ssize_t size;
	*out = PyUnicode_AsUTF8AndSize(value, &size);
	if (!*out)
		return error_raise_argument(function, name, value, false, "a text that UTF-8 has");
	/* libkiln would end the text there. */
	if (strlen(*out) != (size_t)size)
		return error_raise_argument(function, name, value, false, "a text without a zero byte");
	return 0;
}

int argument_integers(const char *function, const char *name, PyObject *value,
					  int64_t out[KILN_MAX_RANK])
{
	char item_name[64], rule[48];
	bool list = PySequence_Check(value) && !PyUnicode_Check(value) && !PyBytes_Check(value);
	Py_ssize_t count = list ? PySequence_Size(value) : -1;

	if (count < 0 || count > KILN_MAX_RANK) {
		snprintf(rule, sizeof(rule), "a list of at most %d integers", KILN_MAX_RANK);
		return error_raise_argument(function, name, value, count < 0, rule);
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *item = PySequence_GetItem(value, i);
		snprintf(item_name, sizeof(item_name), "%s[%zd]", name, i);
		int status = item ? argument_integer(function, item_name, item, &out[i]) : RAISED;
		Py_XDECREF(item);
		if (status != 0)
			return RAISED;
	}
	return (int)count;
}
