/*
 * errors.c: a status and a sentence become an instance of one of the classes of kiln/_errors.py.
 */
#include "errors.h"

#include <stdarg.h>
#include <stdio.h>

#define TYPE_STATUS 1 /* no status of the library: the argument has the wrong Python type */

static PyObject *make; /* kiln._errors.make */

int errors_init(void)
{
	make = package_member("_errors", "make");
	return make ? 0 : RAISED;
}

void *error_raise_text(int status, const char *sentence, const char *log)
{
	PyObject *error = PyObject_CallFunction(make, "izzz", status, kiln_status_name(status),
											sentence, log && log[0] ? log : NULL);
	if (error)
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_XDECREF(error);
	return NULL;
}

int error_raise_kiln(int status)
{
	const char *sentence = kiln_errmsg();
	error_raise_text(status, sentence[0] ? sentence : kiln_status_text(status), kiln_errlog());
	return RAISED;
}

static int raise_format(int status, const char *format, va_list values)
{
	char sentence[512];
	vsnprintf(sentence, sizeof(sentence), format, values);
	error_raise_text(status, sentence, NULL);
	return RAISED;
}

int error_raise_type(const char *format, ...)
{
	va_list values;
	va_start(values, format);
	raise_format(TYPE_STATUS, format, values);
	va_end(values);
	return RAISED;
}

int error_raise_value(const char *format, ...)
{
	va_list values;
	va_start(values, format);
	raise_format(KILN_EINVAL, format, values);
	va_end(values);
	return RAISED;
}
