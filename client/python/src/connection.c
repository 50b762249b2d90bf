/*
 * connection.c: the type Connection, the connections of a thread, and the settings of those that
 * are made on demand.
 */
#include "connection.h"
#include "argument.h"
#include "errors.h"
#include "lent.h"
#include "opening.h"
#include "view.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 65 /* VIEW_HOST and 64 GPUs */

/* A client whose daemon is gone, while calls of it may still launch by themselves. */
struct lost_client {
	struct lost_client *next;
	kiln_client *client;
};

/* The connections of a thread.  It lies in the thread's dictionary, which Python frees. */
struct thread_state {
	PyObject_HEAD struct connection *connections[DEVICES]; /* by device + 1 */
	struct connection *chosen;                             /* by _kiln.use(); NULL: those above */
	unsigned settings_version;
};

static PyObject *connection_type, *thread_type;
static struct settings defaults = {.flags = KILN_CONNECT_AUTOSTART};
static unsigned defaults_version;
static unsigned forks; /* of this process and its parents, as far as they are children of fork() */
static __thread struct thread_state *thread_now;

static void count_fork(void)
{
	forks++;
}

/* ---- Settings ---- */

static char *copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

/* socket, device, daemon, on_miss: texts or None; timeout_ms, flags, mode: numbers. */
static int settings_parse(PyObject *args, PyObject *named, struct settings *out)
{
	static char *names[] = {"socket",     "device", "daemon", "on_miss",
							"timeout_ms", "flags",  "mode",   NULL};
	const char *socket = NULL, *device = NULL, *daemon = NULL, *on_miss = NULL;
	int timeout_ms = 0, mode = MODE_LOCAL;
	unsigned flags = KILN_CONNECT_AUTOSTART;
	if (!PyArg_ParseTupleAndKeywords(args, named, "|zzzziIi", names, &socket, &device, &daemon,
									 &on_miss, &timeout_ms, &flags, &mode))
		return RAISED;
	*out = (struct settings){copy(socket), copy(device), copy(daemon), copy(on_miss),
							 timeout_ms,   flags,        mode};
	return 0;
}

PyObject *module_configure(PyObject *module, PyObject *args, PyObject *named)
{
	struct settings made;
	(void)module;
	if (settings_parse(args, named, &made) != 0)
		return NULL;
	settings_free(&defaults);
	defaults = made;
	defaults_version++;
	Py_RETURN_NONE;
}

/* ---- Opening ---- */

/* Helps a daemon that is to be started to find NVRTC among the packages of this Python. */
static int prepare_environment(void)
{
	PyObject *function = package_member("_nvrtc", "prepare");
	PyObject *result = function ? PyObject_CallFunctionObjArgs(function, NULL) : NULL;
	Py_XDECREF(function);
	Py_XDECREF(result);
	return result ? 0 : RAISED;
}

static void forget_memory(struct connection *connection)
{
	kiln_free(connection->arena);
	connection->arena = NULL;
	connection->arena_map = NULL;
	connection->arena_bytes = 0;
	for (int i = 0; i < connection->range_count; i++)
		connection->ranges[i].data = NULL; /* the buffers are their objects' own */
	connection->range_count = 0;
}

/* The client is closed, or its daemon is gone: what is lent is lent anew. */
static void forget_lent(struct connection *connection)
{
	for (struct lent *lent = connection->lent; lent; lent = lent->next) {
		(void)kiln_free(lent->buffer);
		lent->buffer = NULL;
		lent->state = LENT_HELD;
	}
}

static void free_lost(struct connection *connection)
{
	while (connection->lost) {
		struct lost_client *lost = connection->lost;
		connection->lost = lost->next;
		kiln_close(lost->client);
		free(lost);
	}
}

void connection_lost(struct connection *connection, bool keep_calls)
{
	struct lost_client *lost = keep_calls ? malloc(sizeof(*lost)) : NULL;
	if (lost) {
		*lost = (struct lost_client){connection->lost, connection->client};
		connection->lost = lost;
	} else {
		prepared_clear(&connection->prepared);
		kiln_close(connection->client);
	}
	/* Once it is closed nothing waits for a call that is under way. */
	forget_memory(connection);
	forget_lent(connection);
	connection->ticket_count = 0;
	connection->client = NULL;
	if (connection->state == CONNECTION_OPEN)
		connection->state = CONNECTION_NEW;
}

bool connection_keeps_calls(const struct connection *connection)
{
	return !connection->on_host && connection->settings.mode == MODE_LOCAL;
}

int connection_open(struct connection *connection)
{
	if (connection->state == CONNECTION_OPEN && connection->forks == forks)
		return 0;
	if (connection->state == CONNECTION_CLOSED)
		return error_raise_value("the client is closed");
	if (connection->state == CONNECTION_OPEN) {
		/* In a child of fork() what was inherited is good for freeing only. */
		connection_lost(connection, false);
		free_lost(connection);
	}
	if (prepare_environment() != 0)
		return RAISED;
	struct opening *opening =
		opening_new(&connection->settings, connection->device, connection->demanded);
	if (!opening)
		return RAISED;
	int status = errand_run(&opening->errand);
	if (status == ERRAND_ABANDONED)
		return RAISED;
	if (status == KILN_OK && connection->state == CONNECTION_NEW) {
		connection->client = opening->client;
		opening->client = NULL;
		connection->forks = forks;
		connection->state = CONNECTION_OPEN;
		connection->on_host = strcmp(kiln_device(connection->client), "cpu") == 0;
	} else if (status != KILN_OK) {
		errand_raise(&opening->errand);
	}
	opening->errand.drop(&opening->errand);
	return status == KILN_OK ? 0 : RAISED;
}

void connection_close(struct connection *connection)
{
	if (connection->state == CONNECTION_OPEN)
		connection_lost(connection, false);
	prepared_clear(&connection->prepared);
	free_lost(connection);
	connection->state = CONNECTION_CLOSED;
}

kiln_buffer *connection_shared(const struct connection *connection, const char *data,
							   uint64_t bytes, uint64_t *offset)
{
	for (int i = 0; i < connection->range_count; i++) {
		const struct shared_range *range = &connection->ranges[i];
		if (data >= range->data && data + bytes <= range->data + range->bytes) {
			*offset = (uint64_t)(data - range->data);
			return range->buffer;
		}
	}
	return NULL;
}

/* ---- The type Connection ---- */

static struct connection *connection_new(int device, bool demanded, const struct settings *settings)
{
	allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)connection_type, Py_tp_alloc);
	struct connection *made = (struct connection *)allocate((PyTypeObject *)connection_type, 0);
	if (!made)
		return NULL;
	made->device = device;
	made->demanded = demanded;
	settings_copy(settings, &made->settings);
	return made;
}

static PyObject *connection_make(PyTypeObject *type, PyObject *args, PyObject *named)
{
	struct settings settings;
	(void)type;
	if (settings_parse(args, named, &settings) != 0)
		return NULL;
	PyObject *made = (PyObject *)connection_new(VIEW_HOST, false, &settings);
	settings_free(&settings);
	return made;
}

static void connection_free(PyObject *self)
{
	struct connection *connection = (struct connection *)self;
	PyTypeObject *type = Py_TYPE(self);
	connection_close(connection);
	settings_free(&connection->settings);
	free(connection->ranges);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

bool connection_check(PyObject *object)
{
	return PyObject_TypeCheck(object, (PyTypeObject *)connection_type);
}

static PyObject *method_open(PyObject *self, PyObject *unused)
{
	(void)unused;
	if (connection_open((struct connection *)self) != 0)
		return NULL;
	Py_RETURN_NONE;
}

/* A call of another thread, or one that a signal handler interrupts, uses the arena. */
static bool is_busy(PyObject *self)
{
	bool busy = ((struct connection *)self)->busy;
	if (busy)
		error_raise_text(KILN_EBUSY, "a call of this client is under way", NULL);
	return busy;
}

static PyObject *method_close(PyObject *self, PyObject *unused)
{
	(void)unused;
	if (is_busy(self))
		return NULL;
	connection_close((struct connection *)self);
	Py_RETURN_NONE;
}

static PyObject *get_device(PyObject *self, void *unused)
{
	struct connection *connection = (struct connection *)self;
	(void)unused;
	return connection_open(connection) == 0 ? PyUnicode_FromString(kiln_device(connection->client))
											: NULL;
}

static PyObject *get_prepared(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromLong(((struct connection *)self)->prepared.count);
}

static int read_argument(PyObject *name, PyObject *value, kiln_attr *attr)
{
	static const char function[] = "request";
	if (argument_text(function, "an argument", name, &attr->name) != 0)
		return RAISED;
	attr->kind = PyFloat_Check(value)     ? KILN_ATTR_REAL
				 : PyUnicode_Check(value) ? KILN_ATTR_STRING
										  : KILN_ATTR_INT;
	return attr->kind == KILN_ATTR_REAL ? argument_real(function, attr->name, value, &attr->f)
		   : attr->kind == KILN_ATTR_STRING
			   ? argument_text(function, attr->name, value, &attr->s)
			   : argument_integer(function, attr->name, value, &attr->i);
}

/* request(name, {argument: int, float or text}): the reply as JSON. */
static PyObject *method_request(PyObject *self, PyObject *args)
{
	struct connection *connection = (struct connection *)self;
	kiln_attr attrs[KILN_MAX_ATTRS] = {{0}};
	PyObject *arguments, *name, *value;
	const char *request;
	Py_ssize_t at = 0;
	kiln_reply *reply = NULL;
	int count = 0, status;

	if (!PyArg_ParseTuple(args, "sO!", &request, &PyDict_Type, &arguments) || is_busy(self))
		return NULL;
	while (PyDict_Next(arguments, &at, &name, &value)) {
		if (count == KILN_MAX_ATTRS) {
			error_raise_value("a request has at most %d arguments", KILN_MAX_ATTRS);
			return NULL;
		}
		if (read_argument(name, value, &attrs[count++]) != 0)
			return NULL;
	}
	if (connection_open(connection) != 0)
		return NULL;
	kiln_client *client = connection->client;
	Py_BEGIN_ALLOW_THREADS;
	status = kiln_request(client, request, attrs, count, &reply);
	Py_END_ALLOW_THREADS;
	if (status != KILN_OK) {
		if (status == KILN_ECONN)
			connection_lost(connection, true);
		error_raise_kiln(status);
		return NULL;
	}
	PyObject *text = PyUnicode_FromString(kiln_reply_json(reply));
	kiln_reply_free(reply);
	return text;
}

static PyMethodDef connection_methods[] = {
	{"open", method_open, METH_NOARGS, "Connects, if that has not happened yet."},
	{"close", method_close, METH_NOARGS, "Ends the connection and frees what was prepared."},
	{"request", method_request, METH_VARARGS, "Sends a request; the reply as JSON."},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef connection_members[] = {
	{"device", get_device, NULL, "The daemon's device: 'cpu', 'cuda:0'.", NULL},
	{"prepared", get_prepared, NULL, "How many calls are prepared.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot connection_slots[] = {
	{Py_tp_new, connection_make},
	{Py_tp_dealloc, connection_free},
	{Py_tp_methods, connection_methods},
	{Py_tp_getset, connection_members},
	{Py_tp_doc, "Connection(socket, device, daemon, on_miss, timeout_ms, flags, mode)"},
	{0, NULL},
};

static PyType_Spec connection_spec = {"kiln._kiln.Connection", sizeof(struct connection), 0,
									  Py_TPFLAGS_DEFAULT, connection_slots};

/* ---- The connections of a thread ---- */

static void thread_clear(struct thread_state *state)
{
	for (int i = 0; i < DEVICES; i++)
		Py_CLEAR(state->connections[i]);
}

static void thread_free(PyObject *self)
{
	struct thread_state *state = (struct thread_state *)self;
	PyTypeObject *type = Py_TYPE(self);
	if (thread_now == state)
		thread_now = NULL;
	thread_clear(state);
	Py_CLEAR(state->chosen);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyType_Slot thread_slots[] = {{Py_tp_dealloc, thread_free}, {0, NULL}};
static PyType_Spec thread_spec = {"kiln._kiln.Thread", sizeof(struct thread_state), 0,
								  Py_TPFLAGS_DEFAULT, thread_slots};

static struct thread_state *thread_state(void)
{
	if (thread_now)
		return thread_now;
	PyObject *dictionary = PyThreadState_GetDict();
	allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)thread_type, Py_tp_alloc);
	PyObject *made = dictionary ? allocate((PyTypeObject *)thread_type, 0) : NULL;
	if (!made) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_RuntimeError, "Python has no state for this thread");
		return NULL;
	}
	int status = PyDict_SetItemString(dictionary, "kiln._kiln", made);
	Py_DECREF(made); /* the dictionary has it now */
	if (status == 0)
		thread_now = (struct thread_state *)made;
	return thread_now;
}

struct connection *connection_for(int device)
{
	struct thread_state *state = thread_state();
	if (!state)
		return NULL;
	struct connection *found = state->chosen;
	if (!found && state->settings_version != defaults_version) {
		thread_clear(state);
		state->settings_version = defaults_version;
	}
	if (!found && (device < VIEW_HOST || device + 1 >= DEVICES)) {
		error_raise_value("there is no device %d", device);
		return NULL;
	}
	if (!found) {
		struct connection **place = &state->connections[device + 1];
		if (!*place)
			*place = connection_new(device, true, &defaults);
		found = *place;
	}
	Py_XINCREF(found);
	if (found && connection_open(found) != 0)
		Py_CLEAR(found);
	return found;
}

PyObject *module_current(PyObject *module, PyObject *args)
{
	int device = VIEW_HOST;
	(void)module;
	return PyArg_ParseTuple(args, "|i", &device) ? (PyObject *)connection_for(device) : NULL;
}

PyObject *module_use(PyObject *module, PyObject *connection)
{
	struct thread_state *state = thread_state();
	(void)module;
	if (!state)
		return NULL;
	if (connection != Py_None && !connection_check(connection)) {
		error_raise_type("use() takes a Connection or None");
		return NULL;
	}
	PyObject *before = (PyObject *)state->chosen;
	state->chosen = NULL;
	if (connection != Py_None) {
		Py_INCREF(connection);
		state->chosen = (struct connection *)connection;
	}
	if (!before)
		Py_RETURN_NONE;
	return before;
}

int connection_init(PyObject *module)
{
	connection_type = PyType_FromSpec(&connection_spec);
	thread_type = PyType_FromSpec(&thread_spec);
	if (!connection_type || !thread_type)
		return RAISED;
	Py_INCREF(connection_type);
	pthread_atfork(NULL, NULL, count_fork);
	return PyModule_AddObject(module, "Connection", connection_type);
}
