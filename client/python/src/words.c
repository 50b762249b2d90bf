/*
 * words.c: strings that every call looks up, and members of the package's own modules.
 */
#include "extension.h"

#include <stdio.h>

PyObject *word_requires_grad, *word_new_empty, *word_array_interface, *word_dlpack;

int words_init(void)
{
	word_requires_grad = PyUnicode_InternFromString("requires_grad");
	word_new_empty = PyUnicode_InternFromString("new_empty");
	word_array_interface = PyUnicode_InternFromString("__array_interface__");
	word_dlpack = PyUnicode_InternFromString("__dlpack__");
	return word_requires_grad && word_new_empty && word_array_interface && word_dlpack ? 0 : RAISED;
}

PyObject *package_member(const char *module, const char *name)
{
	char path[64];
	snprintf(path, sizeof(path), "kiln.%s", module);
	PyObject *loaded = PyImport_ImportModule(path);
	PyObject *member = loaded ? PyObject_GetAttrString(loaded, name) : NULL;
	Py_XDECREF(loaded);
	return member;
}

int module_add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
	PyObject *type = PyType_FromSpec(spec);
	return type ? PyModule_AddObject(module, name, type) : RAISED;
}
