/*
 * raw.c: the type Raw, a kernel of CUDA C++ that the program brings along: kernel(grid, block,
 * args).  kiln/_raw.py finds its headers; the kernel of each connection is one of its prepared
 * calls.
 */
#include "raw.h"
#include "errand.h"
#include "errors.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

#define HEADERS_MOST 1024
#define ATTEMPTS 3 /* the first may meet a daemon that is gone, the second a connection that is */

/* ---- What is sent ---- */

/* The texts of a kernel.  A compile that was abandoned needs them without the GIL, so the count is
 * atomic. */
struct raw_texts {
	int refs;
	kiln_raw raw; /* all it points to is in this block */
	kiln_text *headers, *macros;
	const char **options;
};

struct raw {
	PyObject_HEAD struct raw_texts *texts;
	uint64_t number; /* of all kernels that this process made, in the signature of its calls */
};

static uint64_t numbers;

static void texts_unref(struct raw_texts *texts)
{
	if (texts && __atomic_sub_fetch(&texts->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free(texts);
}

static size_t tuple_texts(PyObject *tuple, int members, Py_ssize_t *count)
{
	size_t bytes = 0;
	*count = PyTuple_Size(tuple);
	for (Py_ssize_t i = 0; i < *count; i++) {
		PyObject *item = PyTuple_GetItem(tuple, i);
		for (int k = 0; k < members; k++) {
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

/* Copies the texts of the tuple (name, source, entry) and of the others into one block. */
static struct raw_texts *texts_make(PyObject *main, PyObject *headers, PyObject *macros,
									PyObject *options)
{
	Py_ssize_t mains, header_count, macro_count, option_count;
	size_t bytes[] = {tuple_texts(main, 1, &mains), tuple_texts(headers, 2, &header_count),
					  tuple_texts(macros, 2, &macro_count), tuple_texts(options, 1, &option_count)};
	size_t all = sizeof(struct raw_texts) +
				 (size_t)(header_count + macro_count) * sizeof(kiln_text) +
				 (size_t)option_count * sizeof(char *);
	for (int i = 0; i < 4; i++) {
		if (bytes[i] == SIZE_MAX)
			return NULL;
		all += bytes[i];
	}
	struct raw_texts *texts = calloc(1, all);
	if (!texts)
		return (void *)PyErr_NoMemory();
	texts->refs = 1;
	texts->headers = (kiln_text *)(texts + 1);
	texts->macros = texts->headers + header_count;
	texts->options = (const char **)(texts->macros + macro_count);
	char *at = (char *)(texts->options + option_count);
	texts->raw =
		(kiln_raw){.size = sizeof(kiln_raw), .name = append(&at, PyTuple_GetItem(main, 0))};
	texts->raw.source = append(&at, PyTuple_GetItem(main, 1));
	texts->raw.entry = append(&at, PyTuple_GetItem(main, 2));
	for (int i = 0; i < header_count + macro_count; i++) {
		PyObject *item = i < header_count ? PyTuple_GetItem(headers, i)
										  : PyTuple_GetItem(macros, i - header_count);
		texts->headers[i].name = append(&at, PyTuple_GetItem(item, 0));
		texts->headers[i].text = append(&at, PyTuple_GetItem(item, 1));
	}
	for (int i = 0; i < option_count; i++)
		texts->options[i] = append(&at, PyTuple_GetItem(options, i));
	texts->raw.headers = texts->headers;
	texts->raw.header_count = (int)header_count;
	texts->raw.macros = texts->macros;
	texts->raw.macro_count = (int)macro_count;
	texts->raw.options = texts->options;
	texts->raw.option_count = (int)option_count;
	return texts;
}

/* ---- Compiling ---- */

struct raw_preparing {
	struct errand errand;
	kiln_client *client;
	struct raw_texts *texts;
	unsigned flags;
	kiln_call *call;
};

static int raw_preparing_work(struct errand *errand)
{
	struct raw_preparing *preparing = (struct raw_preparing *)errand;
	kiln_raw raw = preparing->texts->raw;
	raw.flags = preparing->flags;
	return kiln_prepare_raw(preparing->client, &raw, &preparing->call);
}

static void raw_preparing_drop(struct errand *errand)
{
	struct raw_preparing *preparing = (struct raw_preparing *)errand;
	kiln_call_free(preparing->call);
	texts_unref(preparing->texts);
	errand_end(errand);
	free(preparing);
}

static int prepare(struct raw *kernel, struct connection *connection, const struct key *key,
				   bool local, bool last, struct prepared **out)
{
	struct raw_preparing *preparing = calloc(1, sizeof(*preparing));
	if (!preparing) {
		PyErr_NoMemory();
		return RAISED;
	}
	preparing->errand.work = raw_preparing_work;
	preparing->errand.drop = raw_preparing_drop;
	preparing->client = connection->client;
	preparing->texts = kernel->texts;
	preparing->flags = local ? KILN_RAW_LOCAL : 0;
	__atomic_add_fetch(&kernel->texts->refs, 1, __ATOMIC_RELAXED);
	int status = errand_run(&preparing->errand);
	if (status == ERRAND_ABANDONED) {
		/* The thread is still inside the client, so nobody else may use it. */
		connection_lost(connection, !connection->on_host);
		return RAISED;
	}
	if (status == KILN_OK) {
		struct prepared *prepared = *out = prepared_new(key, 0);
		status = prepared ? KILN_OK : RAISED;
		if (prepared) {
			prepared->call = preparing->call;
			prepared->client = preparing->client;
			preparing->call = NULL;
			prepared_add(&connection->prepared, prepared);
		}
	} else if (status == KILN_ECONN) {
		connection_lost(connection, !connection->on_host);
		status = last ? errand_raise(&preparing->errand) : KILN_ECONN;
	} else {
		status = errand_raise(&preparing->errand);
	}
	raw_preparing_drop(&preparing->errand);
	return status;
}

/* Finds the kernel among the connection's calls, or compiles it. */
static int find(struct raw *kernel, struct connection *connection, bool local, bool last,
				struct prepared **out)
{
	struct key key;
	key.count = 0;
	key_put_text(&key, "raw");
	key_put(&key, kernel->number);
	key_put(&key, local);
	key_finish(&key);
	*out = prepared_find(&connection->prepared, &key);
	return *out ? KILN_OK : prepare(kernel, connection, &key, local, last, out);
}

/* ---- Calling ---- */

/* One attempt: KILN_OK, KILN_ECONN without an exception where another one may help, or RAISED. */
static int attempt(struct raw *kernel, struct raw_launch *launch, struct connection *connection,
				   bool last)
{
	bool local = launch && launch->device != VIEW_HOST;
	struct prepared *prepared;
	if (local && connection->on_host)
		return error_raise_value("the tensors are on CUDA and the client's device is cpu");
	int status = find(kernel, connection, local, last, &prepared);
	if (status != KILN_OK)
		return status;
	if (local)
		status = raw_run_local(launch, connection, prepared, last);
	else if (launch)
		status = raw_run_copied(launch, connection, prepared, last);
	prepared_unref(prepared);
	return status;
}

/* launch: NULL to compile alone. */
static PyObject *run(struct raw *kernel, struct raw_launch *launch, int device)
{
	if (!kernel->texts) {
		error_raise_value("the kernel was not made: RawKernel.__init__() has not been called");
		return NULL;
	}
	for (int i = 0; i < ATTEMPTS; i++) {
		struct connection *connection = connection_for(device);
		if (!connection)
			return NULL;
		int status = attempt(kernel, launch, connection, i == ATTEMPTS - 1);
		Py_DECREF(connection);
		if (status == KILN_OK)
			Py_RETURN_NONE;
		if (status != KILN_ECONN)
			return NULL;
	}
	return NULL;
}

static PyObject *raw_call(PyObject *self, PyObject *args, PyObject *named)
{
	static char *names[] = {"grid", "block", "args", "shared_mem", NULL};
	PyObject *grid, *block, *arguments;
	unsigned shared = 0;
	struct raw_launch launch;
	if (!PyArg_ParseTupleAndKeywords(args, named, "OOO|I:kernel", names, &grid, &block, &arguments,
									 &shared))
		return NULL;
	raw_launch_begin(&launch);
	PyObject *result = NULL;
	if (raw_launch_fill(&launch, grid, block, arguments, shared) == 0)
		result = run((struct raw *)self, &launch, launch.device);
	raw_launch_end(&launch);
	return result;
}

static PyObject *raw_compile(PyObject *self, PyObject *unused)
{
	(void)unused;
	return run((struct raw *)self, NULL, VIEW_HOST);
}

/* ---- The type Raw ---- */

static int raw_start(PyObject *self, PyObject *args, PyObject *named)
{
	PyObject *main, *headers, *macros, *options;
	struct raw *kernel = (struct raw *)self;
	if (named && PyDict_Size(named) > 0) {
		error_raise_type("Raw() takes no names");
		return RAISED;
	}
	if (!PyArg_ParseTuple(args, "O!O!O!O!", &PyTuple_Type, &main, &PyTuple_Type, &headers,
						  &PyTuple_Type, &macros, &PyTuple_Type, &options))
		return RAISED;
	if (PyTuple_Size(headers) + PyTuple_Size(macros) + PyTuple_Size(options) > HEADERS_MOST)
		return error_raise_value("a kernel has at most %d headers, macros and options",
								 HEADERS_MOST);
	struct raw_texts *texts = texts_make(main, headers, macros, options);
	if (!texts)
		return RAISED;
	texts_unref(kernel->texts);
	kernel->texts = texts;
	kernel->number = ++numbers;
	return 0;
}

static void raw_free(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	texts_unref(((struct raw *)self)->texts);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef raw_methods[] = {
	{"compile", raw_compile, METH_NOARGS,
	 "Compiles for the device of tensors of the host, or of kiln.connect(), without a launch."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot raw_slots[] = {
	{Py_tp_init, raw_start},
	{Py_tp_dealloc, raw_free},
	{Py_tp_call, raw_call},
	{Py_tp_methods, raw_methods},
	{Py_tp_doc, "Raw((name, source, entry), headers, macros, options): see kiln.RawKernel"},
	{0, NULL},
};

static PyType_Spec raw_spec = {"kiln._kiln.Raw", sizeof(struct raw), 0,
							   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, raw_slots};

int raw_init(PyObject *module)
{
	return module_add_type(module, "Raw", &raw_spec);
}
