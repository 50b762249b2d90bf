/*
 * errors.c: a status and a sentence become an instance of one of the classes of kiln/_errors.py.
 */
#include "errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TYPE_STATUS 1 /* no status of the library: the argument has the wrong Python type */

#define SENTENCE_MOST 2048

static PyObject *make, *refusal, *base; /* members of kiln._errors */

int errors_init(void)
{
	make = package_member("_errors", "make");
	refusal = package_member("_errors", "refusal");
	base = package_member("_errors", "Error");
	return make && refusal && base ? 0 : RAISED;
}

static void set_error(PyObject *error)
{
	if (error)
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_XDECREF(error);
}

void *error_raise_text(int status, const char *sentence, const char *log)
{
	/* A path in it may be no UTF-8. */
	PyObject *text =
		PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "backslashreplace");
	if (text)
		set_error(PyObject_CallFunction(make, "izOz", status, kiln_status_name(status), text,
										log && log[0] ? log : NULL));
	Py_XDECREF(text);
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

int error_raise_unread(const char *name)
{
	PyObject *type, *error, *trace;

	if (!PyErr_ExceptionMatches(PyExc_RuntimeError) && !PyErr_ExceptionMatches(PyExc_BufferError))
		return RAISED;
	PyErr_Fetch(&type, &error, &trace);
	PyObject *sentence = error ? PyObject_Str(error) : NULL;
	const char *text = sentence ? PyUnicode_AsUTF8AndSize(sentence, NULL) : NULL;
	/* torch's own stack follows in further lines. */
	size_t line = text ? strcspn(text, "\n") : 0;
	PyErr_Clear();
	error_raise_type("%s cannot be read: %.*s", name, line < 300 ? (int)line : 300,
					 text ? text : "");
	Py_XDECREF(sentence);
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(trace);
	return RAISED;
}

int error_raise_argument(const char *function, const char *name, PyObject *value, bool wrong_type,
						 const char *rule)
{
	PyErr_Clear();
	set_error(
		PyObject_CallFunction(refusal, "ssOsi", function, name, value, rule, (int)wrong_type));
	return RAISED;
}

/* ---- Sentences written anew ---- */

int error_rewrite(error_writer *write, const void *by)
{
	PyObject *type, *error, *trace;
	char to[SENTENCE_MOST];

	PyErr_Fetch(&type, &error, &trace);
	PyErr_NormalizeException(&type, &error, &trace);
	PyObject *sentence =
		error && PyObject_IsInstance(error, base) == 1 ? PyObject_Str(error) : NULL;
	const char *from = sentence ? PyUnicode_AsUTF8AndSize(sentence, NULL) : NULL;
	if (from && strlen(from) < sizeof(to) / 2) {
		write(from, to, sizeof(to), by);
		PyObject *args = Py_BuildValue("(s)", to);
		if (args)
			(void)PyObject_SetAttrString(error, "args", args);
		Py_XDECREF(args);
	}
	Py_XDECREF(sentence);
	PyErr_Clear();
	PyErr_Restore(type, error, trace);
	return RAISED;
}

static void put_before(const char *from, char *to, size_t size, const void *by)
{
	snprintf(to, size, "%s%s", (const char *)by, from);
}

int error_prefix(const char *format, ...)
{
	char words[128];
	va_list values;
	va_start(values, format);
	vsnprintf(words, sizeof(words), format, values);
	va_end(values);
	return error_rewrite(put_before, words);
}
