/*
 * view.c: reads tensors.  The C exchange table costs tens of nanoseconds, attributes some hundred,
 * a dictionary or a capsule one or two microseconds.
 */
#include "view.h"
#include "errors.h"

#include <string.h>

void view_end(struct view *view)
{
	Py_XDECREF(view->owner);
	view->owner = NULL;
}

int64_t view_count(const struct view *view)
{
	int64_t count = 1;
	for (int i = 0; i < view->rank; i++)
		count *= view->shape[i];
	return count;
}

void view_set_contiguous(struct view *view)
{
	int64_t run = 1;
	for (int i = view->rank - 1; i >= 0; i--) {
		view->stride[i] = run;
		run *= view->shape[i];
	}
}

bool view_contiguous(const struct view *view)
{
	int64_t run = 1;
	for (int i = view->rank - 1; i >= 0; i--) {
		if (view->shape[i] != 1 && view->stride[i] != run)
			return view_count(view) == 0;
		run *= view->shape[i];
	}
	return true;
}

uint64_t view_span(const struct view *view)
{
	uint64_t last = 0;
	for (int i = 0; i < view->rank; i++) {
		if (view->shape[i] == 0)
			return 0;
		last += (uint64_t)(view->shape[i] - 1) * (uint64_t)view->stride[i];
	}
	return (last + 1) * kiln_dtype_size(view->dtype);
}

static int check_rank(int64_t rank, const char *name)
{
	if (rank < 0 || rank > KILN_MAX_RANK)
		return error_raise_value("%s has %lld dimensions; %d is the most", name, (long long)rank,
								 KILN_MAX_RANK);
	return 0;
}

/* ---- DLPack ---- */

static kiln_dtype dtype_of_pack(struct pack_dtype type)
{
	static const unsigned char table[13][5] = {
		/* 8, 16, 32, 64, 128 bits */
		{KILN_I8, KILN_I16, KILN_I32, KILN_I64, 0},
		{KILN_U8, KILN_U16, KILN_U32, KILN_U64, 0},
		{0, KILN_F16, KILN_F32, KILN_F64, 0},
		{0, 0, 0, 0, 0}, /* an opaque handle */
		{0, KILN_BF16, 0, 0, 0},
		{0, 0, 0, KILN_C64, KILN_C128},
		{KILN_BOOL, 0, 0, 0, 0},
		[10] = {KILN_F8E4M3, 0, 0, 0, 0},
		[12] = {KILN_F8E5M2, 0, 0, 0, 0},
	};
	int column = type.bits ? __builtin_ctz(type.bits) - 3 : -1;
	if (type.lanes != 1 || type.code > 12 || column < 0 || column > 4 || type.bits != 8 << column)
		return KILN_DTYPE_NONE;
	return (kiln_dtype)table[type.code][column];
}

static int read_pack(const struct pack_tensor *from, const char *name, struct view *out)
{
	switch (from->device_type) {
	case PACK_CPU:
	case PACK_CUDA_HOST:
		out->device = VIEW_HOST;
		break;
	case PACK_CUDA:
	case PACK_CUDA_MANAGED:
		out->device = from->device_id;
		break;
	default:
		return error_raise_type("%s is on a device of DLPack's type %d; Kiln takes memory of the "
								"host and of CUDA",
								name, (int)from->device_type);
	}
	out->data = (char *)from->data + from->byte_offset;
	out->dtype = dtype_of_pack(from->dtype);
	if (out->dtype == KILN_DTYPE_NONE)
		return error_raise_type("%s has an element type that Kiln does not have (DLPack code %d, "
								"%d bits)",
								name, from->dtype.code, from->dtype.bits);
	if (check_rank(from->rank, name) != 0)
		return RAISED;
	out->rank = from->rank;
	for (int i = 0; i < out->rank; i++) {
		out->shape[i] = from->shape[i];
		out->stride[i] = from->strides ? from->strides[i] : 0;
	}
	if (!from->strides)
		view_set_contiguous(out);
	return 0;
}

static int read_capsule(PyObject *object, const char *name, struct view *out)
{
	PyObject *capsule = PyObject_CallMethodObjArgs(object, word_dlpack, NULL);
	if (!capsule)
		return RAISED;
	const struct pack_tensor *tensor = NULL;
	if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
		struct pack_versioned *versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
		tensor = &versioned->tensor;
		out->read_only = versioned->flags & PACK_READ_ONLY;
	} else if (PyCapsule_IsValid(capsule, "dltensor")) {
		tensor = &((struct pack_managed *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
	}
	out->owner = capsule; /* its destructor gives the tensor back, which is never consumed */
	return tensor ? read_pack(tensor, name, out)
				  : error_raise_type("%s: __dlpack__() gave no DLPack capsule", name);
}

static int read_exchange(const struct kind *kind, PyObject *object, const char *name,
						 struct view *out)
{
	struct pack_tensor tensor;
	if (kind->exchange->view(object, &tensor) != 0)
		return error_raise_unread(name);
	return read_pack(&tensor, name, out);
}

/* ---- Names ---- */

/* The name behind the last dot: "float32" of torch.float32. */
static kiln_dtype dtype_of_name(PyObject *object)
{
	static const struct {
		const char *name;
		kiln_dtype dtype;
	} table[] = {{"float32", KILN_F32},        {"float16", KILN_F16},
				 {"bfloat16", KILN_BF16},      {"float8_e4m3fn", KILN_F8E4M3},
				 {"float8_e5m2", KILN_F8E5M2}, {"float64", KILN_F64},
				 {"int64", KILN_I64},          {"int32", KILN_I32},
				 {"int16", KILN_I16},          {"int8", KILN_I8},
				 {"uint8", KILN_U8},           {"uint16", KILN_U16},
				 {"uint32", KILN_U32},         {"uint64", KILN_U64},
				 {"bool", KILN_BOOL},          {"complex64", KILN_C64},
				 {"complex128", KILN_C128}};
	PyObject *dtype = PyObject_GetAttrString(object, "dtype");
	PyObject *text = dtype ? PyObject_Str(dtype) : NULL;
	const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
	const char *dot = name ? strrchr(name, '.') : NULL;
	kiln_dtype found = KILN_DTYPE_NONE;

	name = dot ? dot + 1 : name;
	for (size_t i = 0; name && i < sizeof(table) / sizeof(table[0]); i++)
		if (strcmp(name, table[i].name) == 0)
			found = table[i].dtype;
	Py_XDECREF(dtype);
	Py_XDECREF(text);
	return found;
}

/* ---- NumPy's dictionary ---- */

/* The element type of "<f4"; of "V2" and "f1", which ml_dtypes has, by the name of the dtype. */
static kiln_dtype dtype_of_text(const char *text, PyObject *object)
{
	static const struct {
		const char *text;
		kiln_dtype dtype;
	} table[] = {{"f2", KILN_F16}, {"f4", KILN_F32},  {"f8", KILN_F64}, {"i1", KILN_I8},
				 {"u1", KILN_U8},  {"i2", KILN_I16},  {"u2", KILN_U16}, {"i4", KILN_I32},
				 {"u4", KILN_U32}, {"i8", KILN_I64},  {"u8", KILN_U64}, {"b1", KILN_BOOL},
				 {"c8", KILN_C64}, {"c16", KILN_C128}};
	if (text[0] == '>')
		return KILN_DTYPE_NONE;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strcmp(text + 1, table[i].text) == 0)
			return table[i].dtype;
	if (strcmp(text + 1, "V2") != 0 && strcmp(text + 1, "V1") != 0 && strcmp(text + 1, "f1") != 0)
		return KILN_DTYPE_NONE;
	kiln_dtype found = dtype_of_name(object);
	PyErr_Clear();
	return found;
}

/* Writes a tuple or list of integers; how many, or RAISED. */
static int read_ints(PyObject *sequence, int64_t values[KILN_MAX_RANK], const char *name)
{
	Py_ssize_t count = PySequence_Size(sequence);
	if (count < 0 || check_rank(count, name) != 0)
		return RAISED;
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *item = PySequence_GetItem(sequence, i);
		values[i] = item ? PyLong_AsLongLong(item) : -1;
		Py_XDECREF(item);
		if (values[i] == -1 && PyErr_Occurred())
			return RAISED;
	}
	return (int)count;
}

static int read_dictionary(PyObject *dictionary, PyObject *object, const char *name,
						   struct view *out)
{
	PyObject *data = PyDict_GetItemString(dictionary, "data");
	PyObject *shape = PyDict_GetItemString(dictionary, "shape");
	PyObject *strides = PyDict_GetItemString(dictionary, "strides");
	PyObject *type = PyDict_GetItemString(dictionary, "typestr");
	const char *text = type ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;

	if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2 || !shape || !text)
		return error_raise_type("%s: its __array_interface__ is not whole", name);
	out->device = VIEW_HOST;
	out->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
	out->read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1)) == 1;
	out->dtype = dtype_of_text(text, object);
	if (out->dtype == KILN_DTYPE_NONE)
		return error_raise_type("%s has element type %s, which Kiln does not have", name, text);
	out->rank = read_ints(shape, out->shape, name);
	if (out->rank < 0 || PyErr_Occurred())
		return RAISED;
	if (!strides || strides == Py_None) {
		view_set_contiguous(out);
		return 0;
	}
	if (read_ints(strides, out->stride, name) != out->rank)
		return PyErr_Occurred() ? RAISED : error_raise_type("%s: shape and strides differ", name);
	int64_t size = (int64_t)kiln_dtype_size(out->dtype);
	for (int i = 0; i < out->rank; i++) {
		if (out->stride[i] % size != 0)
			return error_raise_value("%s has a stride of %lld bytes, which is no number of "
									 "elements: pass a copy",
									 name, (long long)out->stride[i]);
		out->stride[i] /= size;
	}
	return 0;
}

static int read_array(PyObject *object, const char *name, struct view *out)
{
	PyObject *dictionary = PyObject_GetAttr(object, word_array_interface);
	if (!dictionary)
		return RAISED;
	int status = PyDict_Check(dictionary)
					 ? read_dictionary(dictionary, object, name, out)
					 : error_raise_type("%s: its __array_interface__ is no dictionary", name);
	Py_DECREF(dictionary);
	return status;
}

/* ---- Attributes, as torch has them ---- */

static int read_place(PyObject *object, const char *name, struct view *out)
{
	PyObject *device = PyObject_GetAttrString(object, "device");
	PyObject *type = device ? PyObject_GetAttrString(device, "type") : NULL;
	PyObject *index = type ? PyObject_GetAttrString(device, "index") : NULL;
	int status = 0;

	if (!index)
		status = RAISED;
	else if (PyUnicode_CompareWithASCIIString(type, "cpu") == 0)
		out->device = VIEW_HOST;
	else if (PyUnicode_CompareWithASCIIString(type, "cuda") == 0)
		out->device = index == Py_None ? 0 : (int)PyLong_AsLong(index);
	else
		status = error_raise_type("%s is on a device that is neither cpu nor cuda", name);
	Py_XDECREF(device);
	Py_XDECREF(type);
	Py_XDECREF(index);
	return status;
}

static int read_attributes(PyObject *object, const char *name, struct view *out)
{
	PyObject *address = PyObject_CallMethod(object, "data_ptr", NULL);
	PyObject *shape = address ? PyObject_GetAttrString(object, "shape") : NULL;
	PyObject *stride = shape ? PyObject_CallMethod(object, "stride", NULL) : NULL;
	int status = stride ? 0 : RAISED;

	if (status == 0) {
		out->data = PyLong_AsVoidPtr(address);
		out->dtype = dtype_of_name(object);
		out->rank = read_ints(shape, out->shape, name);
		if (out->rank < 0 || read_ints(stride, out->stride, name) < 0)
			status = RAISED;
		else if (out->dtype == KILN_DTYPE_NONE)
			status = error_raise_type("%s has an element type that Kiln does not have", name);
		else
			status = read_place(object, name, out);
	}
	Py_XDECREF(address);
	Py_XDECREF(shape);
	Py_XDECREF(stride);
	return status;
}

static int read_as(const struct kind *kind, PyObject *object, const char *name, struct view *out)
{
	switch (kind->read) {
	case KIND_EXCHANGE:
		return read_exchange(kind, object, name, out);
	case KIND_ATTRIBUTES:
		return read_attributes(object, name, out);
	case KIND_ARRAY:
		return read_array(object, name, out);
	default:
		return read_capsule(object, name, out);
	}
}

int view_read(const struct kind *kind, PyObject *object, const char *name, struct view *out)
{
	out->owner = NULL;
	out->read_only = false;
	int status = read_as(kind, object, name, out);
	if (status != 0)
		view_end(out);
	return status;
}
