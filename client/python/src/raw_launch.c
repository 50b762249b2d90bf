/*
 * raw_launch.c: launches a kernel that the program brought along.  Its arguments are read here, and
 * handed over: on CUDA as addresses, on device cpu as copies that come back.
 */
#include "argument.h"
#include "cuda.h"
#include "errors.h"
#include "raw.h"
#include "run.h"

#include <string.h>

/* ---- Types of arguments ---- */

#define TYPES 32

static struct {
	PyObject *type;
	bool by_value;
} types[TYPES];
static int type_count;

/* Is an object a scalar of NumPy or ctypes, whose bytes are the argument?  1, 0 or RAISED. */
static int is_by_value(PyObject *object)
{
	PyObject *type = (PyObject *)Py_TYPE(object);
	int known = type_count < TYPES ? type_count : TYPES;
	for (int i = 0; i < known; i++)
		if (types[i].type == type)
			return types[i].by_value;
	PyObject *function = package_member("_raw", "is_by_value");
	PyObject *result = function ? PyObject_CallFunctionObjArgs(function, type, NULL) : NULL;
	Py_XDECREF(function);
	if (!result)
		return RAISED;
	int by_value = PyObject_IsTrue(result) == 1;
	Py_DECREF(result);
	/* More types than anybody has are looked at anew, in turn. */
	PyObject *before = types[type_count % TYPES].type;
	Py_INCREF(type);
	types[type_count % TYPES].type = type;
	types[type_count % TYPES].by_value = by_value;
	type_count = type_count + 1 < 2 * TYPES ? type_count + 1 : TYPES;
	Py_XDECREF(before);
	return by_value;
}

/* ---- Arguments ---- */

static int add_number(struct raw_launch *launch, int i, const void *value, size_t bytes)
{
	memcpy(&launch->values[i], value, bytes);
	launch->args[i] = (kiln_raw_arg){.bytes = bytes, .value = &launch->values[i]};
	return 0;
}

static int add_whole(struct raw_launch *launch, int i, PyObject *object)
{
	int overflow;
	long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
	if (overflow > 0)
		value = (long long)PyLong_AsUnsignedLongLong(object);
	if (overflow < 0 || PyErr_Occurred()) {
		PyErr_Clear();
		return error_raise_value("argument %d is an integer of more than 64 bits", i);
	}
	return add_number(launch, i, &value, sizeof(value));
}

static int add_bytes(struct raw_launch *launch, int i, PyObject *object)
{
	char *data;
	Py_ssize_t bytes;
	PyObject *held = launch->held[i] = PyBytes_FromObject(object);
	if (!held || PyBytes_AsStringAndSize(held, &data, &bytes) != 0)
		return RAISED;
	launch->args[i] = (kiln_raw_arg){.bytes = (uint64_t)bytes, .value = data};
	return 0;
}

static int add_tensor(struct raw_launch *launch, int i, PyObject *object)
{
	char name[32];
	struct view *view = &launch->views[launch->tensor_count];
	const struct kind *kind = kind_of(object);
	PyOS_snprintf(name, sizeof(name), "argument %d", i);
	view->owner = NULL;
	if (!kind)
		return error_prefix("%s ", name);
	launch->tensors[launch->tensor_count++] = i;
	if (view_read(kind, object, name, view) != 0)
		return RAISED;
	if (launch->tensor_count == 1) {
		launch->kind = kind;
		launch->device = view->device;
	} else if (view->device != launch->device) {
		return error_raise_value("argument %d is on another device than argument %d", i,
								 launch->tensors[0]);
	}
	uint64_t address = (uint64_t)(uintptr_t)view->data;
	return add_number(launch, i, &address, sizeof(address));
}

static int add_argument(struct raw_launch *launch, int i, PyObject *object)
{
	launch->held[i] = NULL;
	launch->launch.arg_count = i + 1;
	if (PyBool_Check(object)) {
		uint8_t truth = object == Py_True;
		return add_number(launch, i, &truth, sizeof(truth));
	}
	if (PyLong_Check(object))
		return add_whole(launch, i, object);
	if (PyFloat_Check(object) || PyComplex_Check(object)) {
		double parts[2] = {PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)};
		return add_number(launch, i, parts, PyFloat_Check(object) ? 8 : 16);
	}
	if (object == Py_None)
		return add_number(launch, i, &(uint64_t){0}, sizeof(uint64_t));
	int by_value = is_by_value(object);
	return by_value < 0 ? RAISED
		   : by_value   ? add_bytes(launch, i, object)
						: add_tensor(launch, i, object);
}

/* Reads an integer of at least 1; 0 or RAISED, with an exception that the caller replaces. */
static int read_extent(PyObject *object, const char *name, uint32_t *out)
{
	int64_t value;
	if (argument_integer("kernel", name, object, &value) != 0 || value < 1 || value > UINT32_MAX)
		return RAISED;
	*out = (uint32_t)value;
	return 0;
}

static int read_extents(PyObject *object, const char *name, uint32_t out[3])
{
	bool many = PyTuple_Check(object) || PyList_Check(object);
	Py_ssize_t count = many ? PySequence_Size(object) : 1;
	int status = count < 1 || count > 3 ? RAISED : 0;
	out[0] = out[1] = out[2] = 1;
	if (!many)
		status = read_extent(object, name, &out[0]);
	for (Py_ssize_t i = 0; many && status == 0 && i < count; i++) {
		PyObject *item = PySequence_GetItem(object, i);
		status = item ? read_extent(item, name, &out[i]) : RAISED;
		Py_XDECREF(item);
	}
	return status == 0 ? 0
					   : error_raise_argument("kernel", name, object, false,
											  "one to three integers from 1 to 4294967295");
}

void raw_launch_begin(struct raw_launch *launch)
{
	launch->device = VIEW_HOST;
	launch->kind = NULL;
	launch->tensor_count = 0;
	launch->launch = (kiln_launch){.size = sizeof(kiln_launch), .args = launch->args};
}

int raw_launch_fill(struct raw_launch *launch, PyObject *grid, PyObject *block, PyObject *arguments,
					PyObject *shared_mem)
{
	int64_t shared = 0;
	if (read_extents(grid, "grid", launch->launch.grid) != 0 ||
		read_extents(block, "block", launch->launch.block) != 0)
		return RAISED;
	if (shared_mem && argument_integer("kernel", "shared_mem", shared_mem, &shared) != 0)
		return RAISED;
	if (shared < 0 || shared > UINT32_MAX)
		return error_raise_argument("kernel", "shared_mem", shared_mem, false,
									"a number of bytes from 0 to 4294967295");
	Py_ssize_t count = PyTuple_Size(arguments);
	if (count > KILN_MAX_RAW_ARGS)
		return error_raise_value("the launch has %zd arguments; %d are the most", count,
								 KILN_MAX_RAW_ARGS);
	launch->launch.shared_bytes = (unsigned)shared;
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *item = PyTuple_GetItem(arguments, i);
		if (!item || add_argument(launch, (int)i, item) != 0)
			return RAISED;
	}
	return 0;
}

bool raw_launch_tells(const struct raw_launch *launch)
{
	return launch->kind && launch->kind->written;
}

int raw_launch_tell(const struct raw_launch *launch, PyObject *arguments, PyObject *written)
{
	char *may;
	Py_ssize_t count;
	if (PyBytes_AsStringAndSize(written, &may, &count) != 0)
		return RAISED;
	bool known = count == launch->launch.arg_count;
	for (int i = 0; i < launch->tensor_count; i++) {
		int at = launch->tensors[i];
		PyObject *tensor = PyTuple_GetItem(arguments, at);
		const struct kind *kind = (known && !may[at]) || !tensor ? NULL : kind_of(tensor);
		if (kind && kind_tell_written(kind, tensor) != 0)
			return RAISED;
	}
	return 0;
}

void raw_launch_end(struct raw_launch *launch)
{
	for (int i = 0; i < launch->launch.arg_count; i++)
		Py_XDECREF(launch->held[i]);
	for (int i = 0; i < launch->tensor_count; i++)
		view_end(&launch->views[i]);
}

/* ---- On CUDA ---- */

int raw_run_local(struct raw_launch *launch, struct connection *connection,
				  struct prepared *prepared, bool last)
{
	void *stream;
	int status;
	if (kind_stream(launch->kind, launch->device, &stream) != 0)
		return RAISED;
	Py_BEGIN_ALLOW_THREADS;
	bool entered = cuda_enter(launch->device);
	status = kiln_launch_local_raw(prepared->call, &launch->launch, stream);
	if (entered)
		cuda_leave();
	Py_END_ALLOW_THREADS;
	return status == KILN_OK ? KILN_OK : run_failed_local(connection, prepared, status, last);
}

/* ---- On copies ---- */

/* Memory of one or several tensors that lie in each other. */
struct range {
	char *from, *to;
	bool written;
	uint64_t room; /* in the arena */
};

struct copies {
	struct range ranges[KILN_MAX_OPERANDS];
	int count;
	uint64_t bytes; /* of the arena */
};

static bool overlaps(const struct range *a, const struct range *b)
{
	return a->from < b->to && b->from < a->to;
}

/* Adds a range to those there are; whatever it overlaps becomes one with it, for the kernel sees
 * through one address what it writes through another. */
static void add_range(struct copies *copies, struct range added)
{
	for (int i = 0; i < copies->count; i++) {
		const struct range *range = &copies->ranges[i];
		if (!overlaps(range, &added))
			continue;
		added.from = range->from < added.from ? range->from : added.from;
		added.to = range->to > added.to ? range->to : added.to;
		added.written |= range->written;
		copies->ranges[i] = copies->ranges[--copies->count];
		i = -1;
	}
	copies->ranges[copies->count++] = added;
}

static const struct range *range_of(const struct copies *copies, const struct view *view)
{
	for (int i = 0; i < copies->count; i++)
		if (view->data >= copies->ranges[i].from && view->data < copies->ranges[i].to)
			return &copies->ranges[i];
	return NULL; /* memory that both sides share, or nothing */
}

/* Finds what is to be copied. */
static int plan_copies(const struct raw_launch *launch, const struct connection *connection,
					   struct copies *copies)
{
	uint64_t offset;
	copies->count = 0;
	copies->bytes = 0;
	if (launch->tensor_count > KILN_MAX_OPERANDS)
		return error_raise_value("the launch has %d tensors; %d are the most on device cpu",
								 launch->tensor_count, KILN_MAX_OPERANDS);
	for (int i = 0; i < launch->tensor_count; i++) {
		const struct view *view = &launch->views[i];
		for (int k = 0; k < view->rank; k++)
			if (view->stride[k] < 0)
				return error_raise_value("argument %d has a negative stride: pass a copy",
										 launch->tensors[i]);
		uint64_t span = view_span(view);
		if (span == 0 || connection_shared(connection, view->data, span, &offset))
			continue;
		add_range(copies, (struct range){view->data, view->data + span, !view->read_only, 0});
	}
	/* A copy is aligned as its original is. */
	for (int i = 0; i < copies->count; i++) {
		struct range *range = &copies->ranges[i];
		range->room = copies->bytes + ((uintptr_t)range->from & 63);
		copies->bytes = (range->room + (uint64_t)(range->to - range->from) + 63) & ~UINT64_C(63);
	}
	return 0;
}

/* The next functions run without the GIL. */

static int copy_ranges(const struct copies *copies, const struct connection *connection, bool back)
{
	int status = KILN_OK;
	for (int i = 0; i < copies->count && status == KILN_OK; i++) {
		const struct range *range = &copies->ranges[i];
		uint64_t bytes = (uint64_t)(range->to - range->from);
		char *map = connection->arena_map ? connection->arena_map + range->room : NULL;
		if (back && !range->written)
			continue;
		if (map)
			memcpy(back ? range->from : map, back ? map : range->from, bytes);
		else
			status = back ? kiln_read(connection->arena, range->room, range->from, bytes)
						  : kiln_write(connection->arena, range->room, range->from, bytes);
	}
	return status;
}

static void place_tensors(const struct raw_launch *launch, const struct connection *connection,
						  const struct copies *copies, kiln_raw_arg args[KILN_MAX_RAW_ARGS])
{
	memcpy(args, launch->args, (size_t)launch->launch.arg_count * sizeof(args[0]));
	for (int i = 0; i < launch->tensor_count; i++) {
		const struct view *view = &launch->views[i];
		const struct range *range = range_of(copies, view);
		kiln_raw_arg *arg = &args[launch->tensors[i]];
		uint64_t span = view_span(view), offset = 0;
		if (span == 0)
			continue;
		*arg = (kiln_raw_arg){.buffer = connection->arena, .bytes = span};
		if (range) {
			arg->offset = range->room + (uint64_t)(view->data - range->from);
			arg->access = range->written ? KILN_READ | KILN_WRITE : KILN_READ;
		} else {
			arg->buffer = connection_shared(connection, view->data, span, &offset);
			arg->offset = offset;
		}
	}
}

static int begin(const struct raw_launch *launch, struct connection *connection,
				 const struct prepared *prepared, const struct copies *copies, kiln_ticket *ticket)
{
	kiln_raw_arg args[KILN_MAX_RAW_ARGS];
	kiln_launch placed = launch->launch;
	int status = run_grow_arena(connection, copies->bytes);
	if (status == KILN_OK)
		status = copy_ranges(copies, connection, false);
	if (status != KILN_OK)
		return status;
	place_tensors(launch, connection, copies, args);
	placed.args = args;
	return kiln_submit_raw(prepared->call, &placed, 0, ticket);
}

/* Hands what kernels printed to sys.stdout, as the driver does on CUDA. */
static void show_printed(const struct connection *connection)
{
	uint64_t cut;
	const char *text = kiln_printed(connection->client, &cut);
	if (!text || (!text[0] && cut == 0))
		return;
	PyObject *shown = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
	if (shown)
		PySys_FormatStdout("%U", shown);
	else
		PyErr_Clear();
	if (cut > 0)
		PySys_WriteStdout("\n(%llu bytes more were printed and are not kept)\n",
						  (unsigned long long)cut);
	Py_XDECREF(shown);
}

int raw_run_copied(struct raw_launch *launch, struct connection *connection,
				   struct prepared *prepared, bool last)
{
	struct copies copies;
	kiln_ticket ticket;
	int status;
	if (plan_copies(launch, connection, &copies) != 0)
		return RAISED;
	if (connection->busy) {
		error_raise_text(KILN_EBUSY, "the client is in use by another thread", NULL);
		return RAISED;
	}
	connection->busy = true;
	Py_BEGIN_ALLOW_THREADS;
	status = begin(launch, connection, prepared, &copies, &ticket);
	Py_END_ALLOW_THREADS;
	if (status == KILN_OK)
		status = run_wait(connection, ticket);
	if (status == KILN_OK) {
		Py_BEGIN_ALLOW_THREADS;
		status = copy_ranges(&copies, connection, true);
		Py_END_ALLOW_THREADS;
	}
	connection->busy = false;
	if (status == RAISED_HERE)
		return RAISED;
	show_printed(connection);
	if (status != KILN_OK)
		return run_failed(connection, status, last);
	run_trim_arena(connection);
	return KILN_OK;
}
