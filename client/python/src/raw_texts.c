/*
 * raw_texts.c: the texts of a kernel, and the type Text, the text of a header.  Kernels share that,
 * for a tree of headers has megabytes.  A compile that was abandoned needs the texts without the
 * GIL, so counts are atomic.
 */
#include "raw.h"

#include "errors.h"

#include <stdlib.h>
#include <string.h>

/* ---- Shared texts ---- */

struct raw_text {
	int refs;
	size_t bytes;
	char text[];
};

struct text_object {
	PyObject_HEAD struct raw_text *text;
};

static PyTypeObject *text_type;

static struct raw_text *raw_text_make(PyObject *from)
{
	Py_ssize_t bytes = 0;
	if (Py_TYPE(from) == text_type) {
		struct raw_text *text = ((struct text_object *)from)->text;
		__atomic_add_fetch(&text->refs, 1, __ATOMIC_RELAXED);
		return text;
	}
	const char *utf8 = PyUnicode_AsUTF8AndSize(from, &bytes);
	struct raw_text *text = utf8 ? malloc(sizeof(*text) + (size_t)bytes + 1) : NULL;
	if (!text) {
		if (utf8)
			PyErr_NoMemory();
		return NULL;
	}
	text->refs = 1;
	text->bytes = (size_t)bytes;
	memcpy(text->text, utf8, (size_t)bytes + 1);
	return text;
}

static void raw_text_unref(struct raw_text *text)
{
	if (text && __atomic_sub_fetch(&text->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free(text);
}

static PyObject *text_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
	PyObject *from;
	(void)named;
	if (!PyArg_ParseTuple(args, "U", &from))
		return NULL;
	struct raw_text *text = raw_text_make(from);
	PyObject *self = text ? ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0) : NULL;
	if (self)
		((struct text_object *)self)->text = text;
	else
		raw_text_unref(text);
	return self;
}

static void text_free(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	raw_text_unref(((struct text_object *)self)->text);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyType_Slot text_slots[] = {
	{Py_tp_new, text_new},
	{Py_tp_dealloc, text_free},
	{Py_tp_doc, "Text(text): a text that kernels share, without a copy each"},
	{0, NULL},
};

static PyType_Spec text_spec = {"kiln._kiln.Text", sizeof(struct text_object), 0,
								Py_TPFLAGS_DEFAULT, text_slots};

int raw_texts_init(PyObject *module)
{
	text_type = (PyTypeObject *)PyType_FromSpec(&text_spec);
	return text_type ? PyModule_AddObjectRef(module, "Text", (PyObject *)text_type) : RAISED;
}

/* ---- The texts of a kernel ---- */

struct raw_texts {
	int refs;
	kiln_raw raw; /* all it points to is in this block, or in shared */
	kiln_text *headers, *macros;
	struct raw_text **shared; /* the texts of the headers */
	const char **options;
};

struct raw_texts *raw_texts_hold(struct raw_texts *texts)
{
	__atomic_add_fetch(&texts->refs, 1, __ATOMIC_RELAXED);
	return texts;
}

void raw_texts_unref(struct raw_texts *texts)
{
	if (!texts || __atomic_sub_fetch(&texts->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	for (int i = 0; i < texts->raw.header_count; i++)
		raw_text_unref(texts->shared[i]);
	free(texts);
}

const kiln_raw *raw_texts_read(const struct raw_texts *texts)
{
	return &texts->raw;
}

/* Bytes of the first members of each item, those that are copied; SIZE_MAX with an exception. */
static size_t tuple_texts(PyObject *tuple, int members, int copied, Py_ssize_t *count)
{
	size_t bytes = 0;
	*count = PyTuple_Size(tuple);
	for (Py_ssize_t i = 0; i < *count; i++) {
		PyObject *item = PyTuple_GetItem(tuple, i);
		for (int k = 0; k < copied; k++) {
			Py_ssize_t size = 0;
			PyObject *text = members == 1 ? item : PyTuple_GetItem(item, k);
			if (!text || !PyUnicode_AsUTF8AndSize(text, &size))
				return SIZE_MAX;
			bytes += (size_t)size + 1;
		}
	}
	return bytes;
}

static const char *append(char **at, PyObject *text)
{
	Py_ssize_t size = 0;
	const char *from = PyUnicode_AsUTF8AndSize(text, &size);
	char *copy = *at;
	memcpy(copy, from, (size_t)size + 1);
	*at += size + 1;
	return copy;
}

static void place_macros(struct raw_texts *texts, PyObject *macros, char **at)
{
	for (int i = 0; i < texts->raw.macro_count; i++) {
		PyObject *item = PyTuple_GetItem(macros, i);
		texts->macros[i].name = append(at, PyTuple_GetItem(item, 0));
		texts->macros[i].text = append(at, PyTuple_GetItem(item, 1));
	}
}

/* False with an exception. */
static bool place_headers(struct raw_texts *texts, PyObject *headers, char **at)
{
	int count = (int)PyTuple_Size(headers);
	for (int i = 0; i < count; i++) {
		PyObject *item = PyTuple_GetItem(headers, i);
		PyObject *text = PyTuple_GetItem(item, 1);
		struct raw_text *shared = texts->shared[i] = text ? raw_text_make(text) : NULL;
		if (!shared)
			return false;
		texts->raw.header_count = i + 1;
		texts->headers[i] =
			(kiln_text){append(at, PyTuple_GetItem(item, 0)), shared->text, shared->bytes};
	}
	return true;
}

static struct raw_texts *texts_new(size_t headers, size_t macros, size_t options, size_t bytes)
{
	size_t all = sizeof(struct raw_texts) + (headers + macros) * sizeof(kiln_text) +
				 (headers + options) * sizeof(char *) + bytes;
	struct raw_texts *texts = calloc(1, all);
	if (!texts)
		return (void *)PyErr_NoMemory();
	texts->refs = 1;
	texts->headers = (kiln_text *)(texts + 1);
	texts->macros = texts->headers + headers;
	texts->shared = (struct raw_text **)(texts->macros + macros);
	texts->options = (const char **)(texts->shared + headers);
	texts->raw = (kiln_raw){.size = sizeof(kiln_raw),
							.headers = texts->headers,
							.macros = texts->macros,
							.macro_count = (int)macros,
							.options = texts->options,
							.option_count = (int)options};
	return texts;
}

struct raw_texts *raw_texts_make(PyObject *main, PyObject *headers, PyObject *macros,
								 PyObject *options)
{
	Py_ssize_t count[4];
	const size_t bytes[] = {
		tuple_texts(main, 1, 1, &count[0]), tuple_texts(headers, 2, 1, &count[1]),
		tuple_texts(macros, 2, 2, &count[2]), tuple_texts(options, 1, 1, &count[3])};
	size_t all = 0;
	for (int i = 0; i < 4; i++) {
		if (bytes[i] == SIZE_MAX)
			return NULL;
		all += bytes[i];
	}
	struct raw_texts *texts = texts_new((size_t)count[1], (size_t)count[2], (size_t)count[3], all);
	if (!texts)
		return NULL;
	char *at = (char *)(texts->options + count[3]);
	texts->raw.name = append(&at, PyTuple_GetItem(main, 0));
	texts->raw.source = append(&at, PyTuple_GetItem(main, 1));
	texts->raw.entry = append(&at, PyTuple_GetItem(main, 2));
	place_macros(texts, macros, &at);
	for (int i = 0; i < count[3]; i++)
		texts->options[i] = append(&at, PyTuple_GetItem(options, i));
	if (place_headers(texts, headers, &at))
		return texts;
	raw_texts_unref(texts);
	return NULL;
}
