/*
 * raw_texts.c: the texts of a kernel, copied into one block.  A compile that was abandoned needs
 * them without the GIL, so the count is atomic.
 */
#include "raw.h"

#include "errors.h"

#include <stdlib.h>
#include <string.h>

struct raw_texts {
	int refs;
	kiln_raw raw; /* all it points to is in this block */
};

struct raw_texts *raw_texts_hold(struct raw_texts *texts)
{
	__atomic_add_fetch(&texts->refs, 1, __ATOMIC_RELAXED);
	return texts;
}

void raw_texts_unref(struct raw_texts *texts)
{
	if (texts && __atomic_sub_fetch(&texts->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free(texts);
}

const kiln_raw *raw_texts_read(const struct raw_texts *texts)
{
	return &texts->raw;
}

/* The text of a str, or of a path's bytes; NULL: an exception. */
static const char *text_of(PyObject *from, Py_ssize_t *size)
{
	char *bytes = NULL;
	if (!PyBytes_Check(from))
		return PyUnicode_AsUTF8AndSize(from, size);
	return PyBytes_AsStringAndSize(from, &bytes, size) == 0 ? bytes : NULL;
}

/* Bytes of a tuple's texts, of which each item has one or is a tuple of two; SIZE_MAX with an
 * exception. */
static size_t tuple_bytes(PyObject *tuple, int members)
{
	size_t bytes = 0;
	for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); i++) {
		PyObject *item = PyTuple_GetItem(tuple, i);
		for (int k = 0; k < members; k++) {
			Py_ssize_t size = 0;
			PyObject *text = members == 1 ? item : PyTuple_GetItem(item, k);
			if (!text || !text_of(text, &size))
				return SIZE_MAX;
			bytes += (size_t)size + 1;
		}
	}
	return bytes;
}

static const char *append(char **at, PyObject *text, size_t *bytes)
{
	Py_ssize_t size = 0;
	const char *from = text_of(text, &size);
	char *copy = *at;
	memcpy(copy, from, (size_t)size + 1);
	*at += size + 1;
	if (bytes)
		*bytes = (size_t)size;
	return copy;
}

static void place_pairs(PyObject *pairs, kiln_text *out, char **at)
{
	for (Py_ssize_t i = 0; i < PyTuple_Size(pairs); i++) {
		PyObject *item = PyTuple_GetItem(pairs, i);
		out[i].name = append(at, PyTuple_GetItem(item, 0), NULL);
		out[i].text = append(at, PyTuple_GetItem(item, 1), &out[i].bytes);
	}
}

static const char *const *place_words(PyObject *words, const char ***out, char **at)
{
	const char **first = *out;
	for (Py_ssize_t i = 0; i < PyTuple_Size(words); i++)
		*(*out)++ = append(at, PyTuple_GetItem(words, i), NULL);
	return first;
}

struct raw_texts *raw_texts_make(PyObject *main, const struct raw_lists *lists)
{
	PyObject *const parts[] = {main,           lists->headers, lists->macros,
							   lists->options, lists->folders, lists->toolkits};
	size_t all = sizeof(struct raw_texts);
	for (int i = 0; i < 6; i++) {
		bool pairs = i == 1 || i == 2;
		size_t bytes = tuple_bytes(parts[i], pairs ? 2 : 1);
		if (bytes == SIZE_MAX)
			return NULL;
		all +=
			bytes + (size_t)PyTuple_Size(parts[i]) * (pairs ? sizeof(kiln_text) : sizeof(char *));
	}
	struct raw_texts *texts = calloc(1, all);
	if (!texts)
		return (void *)PyErr_NoMemory();
	kiln_raw *raw = &texts->raw;
	raw->size = sizeof(*raw);
	raw->header_count = (int)PyTuple_Size(lists->headers);
	raw->macro_count = (int)PyTuple_Size(lists->macros);
	raw->option_count = (int)PyTuple_Size(lists->options);
	raw->folder_count = (int)PyTuple_Size(lists->folders);
	raw->toolkit_count = (int)PyTuple_Size(lists->toolkits);
	kiln_text *headers = (kiln_text *)(texts + 1), *macros = headers + raw->header_count;
	const char **words = (const char **)(macros + raw->macro_count);
	char *at = (char *)(words + raw->option_count + raw->folder_count + raw->toolkit_count);
	texts->refs = 1;
	raw->name = append(&at, PyTuple_GetItem(main, 0), NULL);
	raw->source = append(&at, PyTuple_GetItem(main, 1), &raw->source_bytes);
	raw->entry = append(&at, PyTuple_GetItem(main, 2), NULL);
	place_pairs(lists->headers, headers, &at);
	place_pairs(lists->macros, macros, &at);
	raw->headers = headers;
	raw->macros = macros;
	raw->options = place_words(lists->options, &words, &at);
	raw->folders = place_words(lists->folders, &words, &at);
	raw->toolkits = place_words(lists->toolkits, &words, &at);
	return texts;
}
