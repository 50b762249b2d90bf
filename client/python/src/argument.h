/*
 * argument.h: reads numbers and texts that a caller passed.  An argument that does not fit is
 * refused with the names of the function and the argument, the value and the rule.
 */
#ifndef KILN_PYTHON_ARGUMENT_H
#define KILN_PYTHON_ARGUMENT_H

#include "extension.h"

/* 0 or RAISED. */
int argument_integer(const char *function, const char *name, PyObject *value, int64_t *out);
int argument_real(const char *function, const char *name, PyObject *value, double *out);
/* The text is the object's own. */
int argument_text(const char *function, const char *name, PyObject *value, const char **out);
/* Reads a sequence of at most KILN_MAX_RANK integers: how many, or RAISED. */
int argument_integers(const char *function, const char *name, PyObject *value,
					  int64_t out[KILN_MAX_RANK]);

#endif
