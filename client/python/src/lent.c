/*
 * lent.c: see lent.h.
 */
#include "lent.h"
#include "cuda.h"
#include "errors.h"
#include "view.h"

#include <stdio.h>
#include <string.h>

struct lent *lent_find(const struct connection *connection, const char *data, uint64_t bytes)
{
	for (struct lent *lent = connection->lent; lent; lent = lent->next)
		if (data >= lent->data && data + bytes <= lent->data + lent->bytes)
			return lent;
	return NULL;
}

int lent_buffer(struct lent *lent, const char *data, kiln_operand *out)
{
	kiln_client *client = lent->connection->client;
	int status = KILN_OK;
	if (lent->state != LENT_LENT) {
		kiln_buffer *buffer = NULL;
		Py_INCREF(lent); /* another thread may give it up meanwhile */
		Py_BEGIN_ALLOW_THREADS;
		bool entered = cuda_enter(lent->device);
		status = kiln_lend_cuda(client, (uint64_t)(uintptr_t)lent->data, lent->bytes, "a tensor",
								&buffer);
		if (entered)
			cuda_leave();
		Py_END_ALLOW_THREADS;
		if (status == KILN_OK) {
			lent->buffer = buffer;
			lent->state = LENT_LENT;
		}
		Py_DECREF(lent);
		if (status != KILN_OK)
			return status;
	}
	*out = (kiln_operand){lent->buffer, (uint64_t)(data - lent->data)};
	return KILN_OK;
}

/* The advice of libkiln is for programs in C. */
static int raise_refused(int status)
{
	char text[512];
	snprintf(text, sizeof(text), "%s", kiln_errmsg());
	char *advice = strstr(text, "; use ");
	advice = advice ? advice : strstr(text, ": use ");
	if (!advice)
		return error_raise_kiln(status);
	*advice = 0;
	size_t used = strlen(text);
	snprintf(text + used, sizeof(text) - used,
			 "; use mode=\"local\", which lends nothing, or memory of cudaMalloc (torch: neither "
			 "expandable_segments nor cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF)");
	error_raise_text(status, text, NULL);
	return RAISED;
}

static int lend(struct lent *lent, PyObject *tensor)
{
	const struct kind *kind = kind_of(tensor);
	kiln_operand operand;
	struct view view;
	if (!kind)
		return error_prefix("lend(): tensor ");
	if (view_read(kind, tensor, "tensor", &view) != 0)
		return error_prefix("lend(): ");
	lent->data = view.data;
	lent->bytes = view_span(&view);
	lent->device = view.device;
	view_end(&view);
	if (lent->device == VIEW_HOST)
		return error_raise_value("lend() takes a tensor on CUDA; memory of the host that the "
								 "daemon shares is made with kiln.empty()");
	if (lent->bytes == 0)
		return error_raise_value("a tensor without elements cannot be lent");
	lent->connection = connection_for(lent->device);
	if (!lent->connection)
		return RAISED;
	int status = lent_buffer(lent, lent->data, &operand);
	if (status != KILN_OK)
		return raise_refused(status);
	Py_INCREF(tensor);
	lent->tensor = tensor;
	lent->next = lent->connection->lent;
	lent->connection->lent = lent;
	return 0;
}

static PyObject *lent_make(PyTypeObject *type, PyObject *args, PyObject *named)
{
	static char *names[] = {"tensor", NULL};
	PyObject *tensor;
	if (!PyArg_ParseTupleAndKeywords(args, named, "O", names, &tensor))
		return NULL;
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct lent *lent = (struct lent *)allocate(type, 0);
	if (lent && lend(lent, tensor) != 0)
		Py_CLEAR(lent);
	return (PyObject *)lent;
}

/* Takes the memory back once no call uses it: KILN_OK, or KILN_EBUSY while another thread is inside
 * the client.  Other failures are those of a daemon that is gone. */
static int take_back(struct lent *lent)
{
	kiln_buffer *buffer = lent->buffer;
	int status;
	struct lent **link = lent->connection ? &lent->connection->lent : NULL;
	if (lent->state == LENT_ENDED)
		return KILN_OK;
	while (link && *link && *link != lent)
		link = &(*link)->next;
	if (link && *link)
		*link = lent->next;
	lent->buffer = NULL;
	Py_BEGIN_ALLOW_THREADS;
	status = kiln_free(buffer);
	Py_END_ALLOW_THREADS;
	if (status == KILN_EBUSY) {
		lent->buffer = buffer;
		lent->next = lent->connection->lent;
		lent->connection->lent = lent;
		return status;
	}
	lent->state = LENT_ENDED;
	Py_CLEAR(lent->tensor);
	return KILN_OK;
}

static void lent_free(PyObject *self)
{
	struct lent *lent = (struct lent *)self;
	PyTypeObject *type = Py_TYPE(self);
	if (take_back(lent) != KILN_OK) {
		/* The daemon still has the memory: it stays, with the tensor, until the client closes. */
		struct lent **link = &lent->connection->lent;
		while (*link != lent)
			link = &(*link)->next;
		*link = lent->next;
	}
	Py_XDECREF(lent->connection);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyObject *method_close(PyObject *self, PyObject *unused)
{
	(void)unused;
	if (take_back((struct lent *)self) != KILN_OK) {
		error_raise_kiln(KILN_EBUSY);
		return NULL;
	}
	Py_RETURN_NONE;
}

static PyObject *method_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	Py_INCREF(self);
	return self;
}

static PyObject *method_exit(PyObject *self, PyObject *unused)
{
	return method_close(self, unused);
}

static PyMethodDef lent_methods[] = {
	{"close", method_close, METH_NOARGS,
	 "Takes the memory back; waits until no call uses it any more."},
	{"__enter__", method_enter, METH_NOARGS, "Returns itself."},
	{"__exit__", method_exit, METH_VARARGS, "Takes the memory back."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot lent_slots[] = {
	{Py_tp_new, lent_make},
	{Py_tp_dealloc, lent_free},
	{Py_tp_methods, lent_methods},
	{Py_tp_doc, "Lent(tensor): memory of a CUDA tensor that the daemon may use while this lives"},
	{0, NULL},
};

static PyType_Spec lent_spec = {"kiln._kiln.Lent", sizeof(struct lent), 0, Py_TPFLAGS_DEFAULT,
								lent_slots};

int lent_init(PyObject *module)
{
	return module_add_type(module, "Lent", &lent_spec);
}
