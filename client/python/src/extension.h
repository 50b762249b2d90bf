/*
 * extension.h: what every file of the extension includes: Python's limited API, libkiln's public
 * API, and the few objects that belong to the whole extension.
 *
 * Conventions: a function that returns NULL or -1 has set a Python exception, unless its comment
 * says otherwise.  All state is touched with the GIL held; functions that run without the GIL say
 * so.
 */
#ifndef KILN_PYTHON_EXTENSION_H
#define KILN_PYTHON_EXTENSION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stdint.h>

#define RAISED (-1)

/* Strings that are looked up on every call, interned once. */
extern PyObject *word_requires_grad, *word_new_empty, *word_array_interface, *word_dlpack;

/* Loads the module kiln.NAME and returns one of its members; a new reference. */
PyObject *package_member(const char *module, const char *name);

/* Makes a type and adds it to the module: 0 or RAISED. */
int module_add_type(PyObject *module, const char *name, PyType_Spec *spec);

/* Adds the types and functions of each file to the module: 0 or RAISED. */
int words_init(void);
int errors_init(void);
int connection_init(PyObject *module);
int shared_init(PyObject *module);
int raw_init(PyObject *module);
int lent_init(PyObject *module);
int operators_init(PyObject *module);

/* Functions of the module, each documented in module.c's table. */
PyObject *module_call(PyObject *module, PyObject *args);
PyObject *module_forget_kinds(PyObject *module, PyObject *unused);
PyObject *module_configure(PyObject *module, PyObject *args, PyObject *named);
PyObject *module_current(PyObject *module, PyObject *args);
PyObject *module_synchronize(PyObject *module, PyObject *connection);
PyObject *module_use(PyObject *module, PyObject *connection);

#endif
