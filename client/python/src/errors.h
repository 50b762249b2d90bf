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

#endif
