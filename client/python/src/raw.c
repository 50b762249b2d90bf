/*
 * raw.c: the type Raw, a kernel of CUDA C++ that the program brings along: kernel(grid, block,
 * args).  libkiln finds its headers; the kernel of each connection is one of its prepared calls.
 */
#include "raw.h"
#include "errand.h"
#include "errors.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

#define TEXTS_MOST 4096
#define ATTEMPTS 3 /* the first may meet a daemon that is gone, the second a connection that is */
#define FIGURES 3
static const char *const figure_names[FIGURES] = {"registers", "shared", "local"};

struct raw {
	PyObject_HEAD struct raw_texts *texts;
	uint64_t number;   /* of all kernels that this process made, in the signature of its calls */
	PyObject *written; /* bytes: which parameters it may write to; NULL: nobody has asked yet */
	int device;        /* of the last launch, or VIEW_HOST */
	int64_t figures[FIGURES]; /* of the target that it was compiled for last; -1: not known */
};

static uint64_t numbers;

/* ---- Compiling ---- */

struct raw_preparing {
	struct errand errand;
	kiln_client *client;
	struct raw_texts *texts;
	unsigned flags;
	char *target; /* compiled for, and not prepared, "": for the client's device; NULL: prepared */
	int64_t figures[FIGURES];
	kiln_call *call;
};

static int raw_preparing_work(struct errand *errand)
{
	struct raw_preparing *preparing = (struct raw_preparing *)errand;
	kiln_raw raw = *raw_texts_read(preparing->texts);
	raw.flags = preparing->flags;
	if (!preparing->target)
		return kiln_prepare_raw(preparing->client, &raw, &preparing->call);
	kiln_reply *reply = NULL, *row = NULL;
	int status = kiln_compile_raw(preparing->client, &raw,
								  preparing->target[0] ? preparing->target : NULL, &reply);
	/* A cache that has not written the row yet, or cannot, knows no figures. */
	const kiln_attr key = {.name = "key",
						   .kind = KILN_ATTR_STRING,
						   .s = status == KILN_OK ? kiln_reply_str(reply, "key") : ""};
	bool found = status == KILN_OK &&
				 kiln_request(preparing->client, "cache.show", &key, 1, &row) == KILN_OK;
	for (int i = 0; i < FIGURES; i++)
		preparing->figures[i] = found ? kiln_reply_int(row, figure_names[i]) : -1;
	kiln_reply_free(row);
	kiln_reply_free(reply);
	return status;
}

static void raw_preparing_drop(struct errand *errand)
{
	struct raw_preparing *preparing = (struct raw_preparing *)errand;
	kiln_call_free(preparing->call);
	free(preparing->target);
	raw_texts_unref(preparing->texts);
	errand_end(errand);
	free(preparing);
}

static struct raw_preparing *raw_preparing_new(const struct raw *kernel,
											   const struct connection *connection)
{
	struct raw_preparing *preparing = calloc(1, sizeof(*preparing));
	if (!preparing)
		return (void *)PyErr_NoMemory();
	preparing->errand.work = raw_preparing_work;
	preparing->errand.drop = raw_preparing_drop;
	preparing->client = connection->client;
	preparing->texts = raw_texts_hold(kernel->texts);
	return preparing;
}

/* Runs the errand: KILN_OK, RAISED when it is gone, KILN_ECONN without an exception where another
 * attempt may help, or another status that was raised. */
static int ask(struct connection *connection, struct raw_preparing *preparing, bool last)
{
	int status = errand_run(&preparing->errand);
	if (status == ERRAND_ABANDONED) {
		/* The thread is still inside the client, so nobody else may use it. */
		connection_lost(connection, !connection->on_host);
		return RAISED;
	}
	if (status == KILN_OK)
		return status;
	if (status == KILN_ECONN)
		connection_lost(connection, !connection->on_host);
	if (status != KILN_ECONN || last) {
		errand_raise(&preparing->errand);
		status = KILN_EIO;
	}
	raw_preparing_drop(&preparing->errand);
	return status == KILN_ECONN ? KILN_ECONN : RAISED;
}

static int prepare(struct raw *kernel, struct connection *connection, const struct key *key,
				   bool local, bool last, struct prepared **out)
{
	struct raw_preparing *preparing = raw_preparing_new(kernel, connection);
	if (!preparing)
		return RAISED;
	preparing->flags = local ? KILN_RAW_LOCAL : 0;
	int status = ask(connection, preparing, last);
	if (status != KILN_OK)
		return status;
	struct prepared *prepared = *out = prepared_new(key, 0);
	if (prepared) {
		prepared->call = preparing->call;
		prepared->client = preparing->client;
		preparing->call = NULL;
		prepared_add(&connection->prepared, prepared);
	}
	raw_preparing_drop(&preparing->errand);
	return prepared ? KILN_OK : RAISED;
}

/* Compiles into the daemon's cache, for a target that no device here need have. */
static int compile_for(struct raw *kernel, struct connection *connection, const char *target,
					   bool last)
{
	struct raw_preparing *preparing = raw_preparing_new(kernel, connection);
	if (!preparing)
		return RAISED;
	preparing->target = strdup(target);
	if (!preparing->target) {
		PyErr_NoMemory();
		raw_preparing_drop(&preparing->errand);
		return RAISED;
	}
	int status = ask(connection, preparing, last);
	if (status == KILN_OK) {
		memcpy(kernel->figures, preparing->figures, sizeof(kernel->figures));
		raw_preparing_drop(&preparing->errand);
	}
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
static int attempt(struct raw *kernel, struct raw_launch *launch, const char *target,
				   struct connection *connection, bool last)
{
	if (target)
		return compile_for(kernel, connection, target, last);
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

static void forget_figures(struct raw *kernel)
{
	for (int i = 0; i < FIGURES; i++)
		kernel->figures[i] = -1;
}

/* launch: NULL to compile alone, for target unless that is NULL. */
static PyObject *run(struct raw *kernel, struct raw_launch *launch, const char *target, int device)
{
	if (!kernel->texts) {
		error_raise_value("the kernel was not made: RawKernel.__init__() has not been called");
		return NULL;
	}
	if (launch && launch->device != kernel->device) {
		kernel->device = launch->device;
		forget_figures(kernel);
	}
	for (int i = 0; i < ATTEMPTS; i++) {
		struct connection *connection = connection_for(device);
		if (!connection)
			return NULL;
		int status = attempt(kernel, launch, target, connection, i == ATTEMPTS - 1);
		Py_DECREF(connection);
		if (status == KILN_OK)
			Py_RETURN_NONE;
		if (status != KILN_ECONN)
			return NULL;
	}
	return NULL;
}

/* Tells the tensors' library what was written; takes the result. */
static PyObject *tell(struct raw *kernel, const struct raw_launch *launch, PyObject *arguments,
					  PyObject *result)
{
	if (!result || !raw_launch_tells(launch))
		return result;
	if (!kernel->written)
		kernel->written = PyObject_CallMethod((PyObject *)kernel, "_written", NULL);
	if (kernel->written && raw_launch_tell(launch, arguments, kernel->written) == 0)
		return result;
	Py_DECREF(result);
	return NULL;
}

static PyObject *raw_call(PyObject *self, PyObject *args, PyObject *named)
{
	static char *names[] = {"grid", "block", "args", "shared_mem", NULL};
	PyObject *grid, *block, *arguments, *shared = NULL;
	struct raw_launch launch;
	if (!PyArg_ParseTupleAndKeywords(args, named, "OOO|O:kernel", names, &grid, &block, &arguments,
									 &shared))
		return NULL;
	if (!PyTuple_Check(arguments) && !PyList_Check(arguments)) {
		error_raise_type("args is a tuple of tensors and scalars, and of nothing else");
		return NULL;
	}
	/* A list may be changed by others while the kernel runs. */
	arguments = PySequence_Tuple(arguments);
	if (!arguments)
		return NULL;
	raw_launch_begin(&launch);
	PyObject *result = NULL;
	if (raw_launch_fill(&launch, grid, block, arguments, shared) == 0)
		result = run((struct raw *)self, &launch, NULL, launch.device);
	result = tell((struct raw *)self, &launch, arguments, result);
	raw_launch_end(&launch);
	Py_DECREF(arguments);
	return result;
}

static PyObject *raw_compile(PyObject *self, PyObject *args, PyObject *named)
{
	static char *names[] = {"target", NULL};
	const char *target = NULL;
	if (!PyArg_ParseTupleAndKeywords(args, named, "|z:compile", names, &target))
		return NULL;
	return run((struct raw *)self, NULL, target, VIEW_HOST);
}

/* Returns the figures of compile()'s last target, or of the device of the last launch. */
static PyObject *raw_figures(PyObject *self, PyObject *unused)
{
	struct raw *kernel = (struct raw *)self;
	(void)unused;
	if (kernel->figures[0] < 0) {
		PyObject *none = run(kernel, NULL, "", kernel->device);
		if (!none)
			return NULL;
		Py_DECREF(none);
	}
	return Py_BuildValue("LLL", (long long)kernel->figures[0], (long long)kernel->figures[1],
						 (long long)kernel->figures[2]);
}

/* ---- The type Raw ---- */

static int raw_start(PyObject *self, PyObject *args, PyObject *named)
{
	PyObject *main;
	struct raw_lists lists;
	struct raw *kernel = (struct raw *)self;
	if (named && PyDict_Size(named) > 0) {
		error_raise_type("Raw() takes no names");
		return RAISED;
	}
	if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!", &PyTuple_Type, &main, &PyTuple_Type, &lists.headers,
						  &PyTuple_Type, &lists.macros, &PyTuple_Type, &lists.options,
						  &PyTuple_Type, &lists.folders, &PyTuple_Type, &lists.toolkits))
		return RAISED;
	if (PyTuple_Size(lists.headers) + PyTuple_Size(lists.macros) + PyTuple_Size(lists.options) >
		TEXTS_MOST)
		return error_raise_value("a kernel has at most %d headers, macros and options", TEXTS_MOST);
	struct raw_texts *texts = raw_texts_make(main, &lists);
	if (!texts)
		return RAISED;
	raw_texts_unref(kernel->texts);
	Py_CLEAR(kernel->written);
	kernel->texts = texts;
	kernel->number = ++numbers;
	kernel->device = VIEW_HOST;
	forget_figures(kernel);
	return 0;
}

static void raw_free(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	raw_texts_unref(((struct raw *)self)->texts);
	Py_XDECREF(((struct raw *)self)->written);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef raw_methods[] = {
	{"compile", (PyCFunction)(void (*)(void))raw_compile, METH_VARARGS | METH_KEYWORDS,
	 "compile(target=None): compiles without a launch, for the device of tensors of the host or "
	 "of\n"
	 "kiln.connect(), or into the daemon's cache for a target such as \"sm_90\"."},
	{"_figures", raw_figures, METH_NOARGS, "Registers, shared and local bytes; -1: not known."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot raw_slots[] = {
	{Py_tp_init, raw_start},
	{Py_tp_dealloc, raw_free},
	{Py_tp_call, raw_call},
	{Py_tp_methods, raw_methods},
	{Py_tp_doc, "Raw((name, source, entry), headers, macros, options, folders, toolkits): see "
				"kiln.RawKernel"},
	{0, NULL},
};

static PyType_Spec raw_spec = {"kiln._kiln.Raw", sizeof(struct raw), 0,
							   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, raw_slots};

int raw_init(PyObject *module)
{
	return module_add_type(module, "Raw", &raw_spec);
}
