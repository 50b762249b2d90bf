/*
 * module.c: the module kiln._kiln: its functions, and what the whole extension has once.
 */
#include "extension.h"

static PyMethodDef functions[] = {
	{"call", module_call, METH_VARARGS,
	 "call(op, inputs, outputs, attributes, names=()): runs an operator by its name.  inputs and "
	 "outputs are\n"
	 "tuples of tensors; None is an input that is left out, or an output to be made.  names: of "
	 "the\noperands, for messages."},
	{"configure", (PyCFunction)(void (*)(void))module_configure, METH_VARARGS | METH_KEYWORDS,
	 "Sets what connections that are made on demand are made with, from now on."},
	{"current", module_current, METH_VARARGS,
	 "current(device=-1): this thread's connection for tensors of a CUDA device, -1: of the host."},
	{"synchronize", module_synchronize, METH_O,
	 "Waits until the daemon has done all calls of a connection, and raises the first failure."},
	{"use", module_use, METH_O,
	 "Makes a connection this thread's for all tensors, or none by None; the one before."},
	{"forget_kinds", module_forget_kinds, METH_NOARGS,
	 "Makes kiln._kinds describe each type of tensors anew."},
	{NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
										"kiln._kiln",
										"libkiln for Python; use the package kiln.",
										-1,
										functions,
										NULL,
										NULL,
										NULL,
										NULL};

PyMODINIT_FUNC PyInit__kiln(void);
__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__kiln(void)
{
	PyObject *module = PyModule_Create(&definition);
	if (!module)
		return NULL;
	if (words_init() != 0 || errors_init() != 0 || connection_init(module) != 0 ||
		shared_init(module) != 0 || lent_init(module) != 0 || raw_init(module) != 0 ||
		operators_init(module) != 0 ||
		PyModule_AddStringConstant(module, "version", kiln_version()) != 0) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
