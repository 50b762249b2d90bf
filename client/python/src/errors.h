/*
 * errors.h: Python exceptions from statuses.  kiln/_errors.py has the classes and chooses one.
 */
#ifndef KILN_PYTHON_ERRORS_H
#define KILN_PYTHON_ERRORS_H

#include "extension.h"

/* Raise the class of the status, and return NULL or RAISED for the caller to return. */
void *error_raise_text(int status, const char *sentence, const char *log);
int error_raise_kiln(int status); /* with the sentence and log of this thread's last failure */
/* Raises kiln.WrongType, which is a TypeError. */
int error_raise_type(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Raises kiln.InvalidArgument, which is a ValueError. */
int error_raise_value(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Raises that an argument of a function of kiln is not of the type, or within the range, that the
 * rule names ("an integer"). */
int error_raise_argument(const char *function, const char *name, PyObject *value, bool wrong_type,
						 const char *rule);
/* Raises kiln.WrongType in the place of what a library has raised instead of showing a tensor. */
int error_raise_unread(const char *name);
/* Puts words before the sentence of the exception that is set, if it is one of kiln's; RAISED. */
int error_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Writes a sentence anew; the texts belong to error_rewrite(), and at most size bytes are there. */
typedef void error_writer(const char *from, char *to, size_t size, const void *by);
/* Has the sentence of the exception that is set, if it is one of kiln's, written anew; RAISED. */
int error_rewrite(error_writer *write, const void *by);

#endif
