/*
 * shared.c: the type Shared, memory that this process and the daemon's device cpu both have.
 * Operands that lie in it are not copied.
 */
#include "connection.h"
#include "errors.h"
#include "view.h"

#include <stdlib.h>

struct shared {
	PyObject_HEAD struct connection *connection; /* of the thread that made it */
	kiln_buffer *buffer;
	void *data;
	uint64_t bytes;
};

static int remember_range(struct connection *connection, const struct shared *shared)
{
	size_t count = (size_t)connection->range_count + 1;
	struct shared_range *ranges = realloc(connection->ranges, count * sizeof(*ranges));
	if (!ranges) {
		PyErr_NoMemory();
		return RAISED;
	}
	connection->ranges = ranges;
	ranges[connection->range_count++] =
		(struct shared_range){shared->data, shared->bytes, shared->buffer};
	return 0;
}

static void forget_range(struct connection *connection, const struct shared *shared)
{
	for (int i = 0; i < connection->range_count; i++)
		if (connection->ranges[i].buffer == shared->buffer)
			connection->ranges[i] = connection->ranges[--connection->range_count];
}

static PyObject *shared_make(PyTypeObject *type, PyObject *args, PyObject *named)
{
	static char *names[] = {"bytes", NULL};
	unsigned long long bytes;
	if (!PyArg_ParseTupleAndKeywords(args, named, "K", names, &bytes))
		return NULL;
	struct connection *connection = connection_for(VIEW_HOST);
	if (!connection)
		return NULL;
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct shared *shared = (struct shared *)allocate(type, 0);
	if (!shared) {
		Py_DECREF(connection);
		return NULL;
	}
	shared->connection = connection;
	shared->bytes = bytes;
	int status = connection->on_host ? kiln_alloc(connection->client, bytes ? bytes : 1,
												  KILN_BUFFER_SHARED, "shared", &shared->buffer)
									 : KILN_ENOTSUP;
	if (status == KILN_OK)
		status = kiln_map(shared->buffer, &shared->data);
	if (status == KILN_OK && remember_range(connection, shared) == 0)
		return (PyObject *)shared;
	if (!connection->on_host)
		error_raise_text(status, "memory is shared with device cpu alone", NULL);
	else if (status != KILN_OK)
		error_raise_kiln(status);
	Py_DECREF(shared);
	return NULL;
}

static void shared_free(PyObject *self)
{
	struct shared *shared = (struct shared *)self;
	PyTypeObject *type = Py_TYPE(self);
	if (shared->buffer)
		forget_range(shared->connection, shared);
	/* The daemon answers when nothing uses the memory any more.  KILN_EBUSY: another thread is
	 * inside the client, which frees the buffer when it closes. */
	Py_BEGIN_ALLOW_THREADS;
	(void)kiln_free(shared->buffer);
	Py_END_ALLOW_THREADS;
	Py_XDECREF(shared->connection);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyObject *get_address(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromVoidPtr(((struct shared *)self)->data);
}

static PyObject *get_bytes(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(((struct shared *)self)->bytes);
}

static PyObject *get_interface(PyObject *self, void *unused)
{
	struct shared *shared = (struct shared *)self;
	(void)unused;
	return Py_BuildValue("{s:(KO),s:(K),s:s,s:i}", "data",
						 (unsigned long long)(uintptr_t)shared->data, Py_False, "shape",
						 (unsigned long long)shared->bytes, "typestr", "|u1", "version", 3);
}

static PyGetSetDef shared_members[] = {
	{"address", get_address, NULL, "Where it lies in this process.", NULL},
	{"bytes", get_bytes, NULL, "How long it is.", NULL},
	{"__array_interface__", get_interface, NULL, "Its bytes as NumPy reads them.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot shared_slots[] = {
	{Py_tp_new, shared_make},
	{Py_tp_dealloc, shared_free},
	{Py_tp_getset, shared_members},
	{Py_tp_doc, "Shared(bytes): memory that this process and device cpu both have"},
	{0, NULL},
};

static PyType_Spec shared_spec = {"kiln._kiln.Shared", sizeof(struct shared), 0, Py_TPFLAGS_DEFAULT,
								  shared_slots};

int shared_init(PyObject *module)
{
	return module_add_type(module, "Shared", &shared_spec);
}
