/*
 * kind.c: the types of tensors that were seen, each described once by kiln/_kinds.py.
 */
#include "kind.h"
#include "errors.h"

#include <stdlib.h>
#include <string.h>

#define KINDS 64

static struct kind *kinds[KINDS];
static int kind_count;

PyObject *module_forget_kinds(PyObject *module, PyObject *unused)
{
	(void)module, (void)unused;
	/* A call of another thread may be using one, so they stay: some hundred bytes for each
	 * integration that is loaded. */
	kind_count = 0;
	Py_RETURN_NONE;
}

static PyObject *member(PyObject *description, const char *name)
{
	PyObject *value = PyDict_GetItemString(description, name);
	if (!value || value == Py_None)
		return NULL;
	Py_INCREF(value);
	return value;
}

static int choice(PyObject *description, const char *name, const char *const *words, int count)
{
	PyObject *value = PyDict_GetItemString(description, name);
	for (int i = 0; value && i < count; i++)
		if (PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, words[i]) == 0)
			return i;
	return 0;
}

static int read_exchange(struct kind *kind)
{
	PyObject *capsule = PyObject_GetAttrString(kind->type, "__dlpack_c_exchange_api__");
	if (!capsule)
		return RAISED;
	kind->exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
	Py_DECREF(capsule);
	while (kind->exchange && kind->exchange->major != 1)
		kind->exchange = kind->exchange->older;
	if (!kind->exchange || !kind->exchange->view) {
		PyErr_Clear();
		kind->read = KIND_DLPACK;
	}
	return 0;
}

static struct kind *describe(PyObject *type)
{
	static const char *const reads[] = {"exchange", "attributes", "array", "dlpack"};
	static const char *const redirects[] = {"never", "grad", "always"};
	PyObject *function = package_member("_kinds", "describe");
	PyObject *description = function ? PyObject_CallFunctionObjArgs(function, type, NULL) : NULL;
	struct kind *kind = NULL;

	Py_XDECREF(function);
	if (!description)
		return NULL;
	kind = calloc(1, sizeof(*kind));
	if (!kind) {
		Py_DECREF(description);
		PyErr_NoMemory();
		return NULL;
	}
	Py_INCREF(type);
	kind->type = type;
	kind->read = (enum kind_read)choice(description, "read", reads, 4);
	kind->when = (enum kind_redirect)choice(description, "when", redirects, 3);
	kind->has_new_empty = PyDict_GetItemString(description, "new_empty") == Py_True;
	kind->empty_like = member(description, "empty_like");
	kind->pattern = member(description, "pattern");
	kind->empty = member(description, "empty");
	kind->stream = member(description, "stream");
	kind->written = member(description, "written");
	kind->redirect = member(description, "redirect");
	kind->dispatch = member(description, "dispatch");
	kind->asks = member(description, "asks");
	kind->level = member(description, "level");
	kind->records = member(description, "records");
	kind->packed = member(description, "packed");
	kind->negated = member(description, "negated");
	kind->conjugated = member(description, "conjugated");
	kind->asks_half = member(description, "asks_half");
	Py_DECREF(description);
	if (kind->read == KIND_EXCHANGE && read_exchange(kind) != 0) {
		free(kind);
		return NULL;
	}
	return kind;
}

const struct kind *kind_of(PyObject *object)
{
	PyObject *type = (PyObject *)Py_TYPE(object);
	for (int i = 0; i < kind_count; i++)
		if (kinds[i]->type == type)
			return kinds[i];
	struct kind *kind = describe(type);
	if (!kind)
		return NULL;
	/* More types than anybody has are described anew, in turn. */
	kinds[kind_count % KINDS] = kind;
	kind_count = kind_count < KINDS ? kind_count + 1 : KINDS;
	return kind;
}

int kind_stream(const struct kind *kind, int device, void **out)
{
	*out = NULL;
	if (kind->exchange && kind->exchange->stream)
		return kind->exchange->stream(PACK_CUDA, device, out);
	if (!kind->stream)
		return 0;
	PyObject *stream = PyObject_CallFunction(kind->stream, "i", device);
	if (!stream)
		return RAISED;
	*out = PyLong_AsVoidPtr(stream);
	Py_DECREF(stream);
	return PyErr_Occurred() ? RAISED : 0;
}

int kind_tell_written(const struct kind *kind, PyObject *tensor)
{
	if (!kind->written)
		return 0;
	PyObject *done = PyObject_CallFunctionObjArgs(kind->written, tensor, NULL);
	Py_XDECREF(done);
	return done ? 0 : RAISED;
}

PyObject *kind_pattern(const struct kind *kind, PyObject *like, PyObject *shape, kiln_dtype dtype)
{
	if (!kind->pattern || !kind->empty_like)
		return NULL;
	PyObject *pattern =
		PyObject_CallFunction(kind->pattern, "OOs", like, shape, kiln_dtype_name(dtype));
	if (pattern == Py_None)
		Py_CLEAR(pattern);
	return pattern;
}

PyObject *kind_like(const struct kind *kind, PyObject *like)
{
	return PyObject_CallFunctionObjArgs(kind->empty_like, like, NULL);
}

PyObject *kind_empty(const struct kind *kind, PyObject *like, enum likeness likeness,
					 PyObject *shape, kiln_dtype dtype)
{
	if (likeness == LIKE_WHOLE && kind->empty_like)
		return kind_like(kind, like);
	if (likeness != LIKE_NOT && kind->has_new_empty)
		return PyObject_CallMethodObjArgs(like, word_new_empty, shape, NULL);
	if (!kind->empty) {
		error_raise_type("Kiln cannot make an output of this type of tensor: pass out=");
		return NULL;
	}
	return PyObject_CallFunction(kind->empty, "OOs", like, shape, kiln_dtype_name(dtype));
}
