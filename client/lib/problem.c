/*
 * problem.c: puts an operator, its tensors and its attributes into messages.
 */
#include "problem.h"
#include "buffer.h"
#include "error.h"
#include "client/wire/protocol.h"

static int put_attr(struct wire_out *out, const kiln_attr *attr, int i)
{
	if (!attr->name || attr->name[0] == 0)
		return error_set(KILN_EINVAL, "attribute %d has no name", i);
	switch (attr->kind) {
	case KILN_ATTR_INT:
		wire_put_int(out, attr->name, attr->i);
		return KILN_OK;
	case KILN_ATTR_REAL:
		wire_put_real(out, attr->name, attr->f);
		return KILN_OK;
	case KILN_ATTR_INTS:
		if (attr->count < 0 || (attr->count > 0 && !attr->ints)) {
			return error_set(KILN_EINVAL,
							 "attribute \"%s\" has %d integers; it must have 0 or more, and ints "
							 "must point to them",
							 attr->name, attr->count);
		}
		wire_put_ints(out, attr->name, attr->ints, attr->count);
		return KILN_OK;
	case KILN_ATTR_STRING:
		if (!attr->s)
			return error_set(KILN_EINVAL, "attribute \"%s\" is a string and s is NULL", attr->name);
		wire_put_str(out, attr->name, attr->s);
		return KILN_OK;
	default:
		return error_set(KILN_EINVAL, "attribute \"%s\" has kind %d, which is no KILN_ATTR_*",
						 attr->name, (int)attr->kind);
	}
}

int problem_put_attrs(struct wire_out *out, const kiln_attr *attrs, int count)
{
	if (count < 0 || count > KILN_MAX_ATTRS || (count > 0 && !attrs)) {
		return error_set(KILN_EINVAL, "there are %d attributes; there must be 0 to %d", count,
						 KILN_MAX_ATTRS);
	}
	for (int i = 0; i < count; i++) {
		int status = put_attr(out, &attrs[i], i);
		if (status != KILN_OK)
			return status;
	}
	return KILN_OK;
}

static int put_left_out(struct wire_out *out, const kiln_tensor *tensor, int i)
{
	if (tensor->buffer) {
		return error_set(KILN_EINVAL,
						 "tensor %d is left out (its dtype is KILN_DTYPE_NONE) and has a buffer; "
						 "give it a dtype, or NULL for a buffer",
						 i);
	}
	wire_map_begin(out, NULL);
	wire_put_int(out, "d", KILN_DTYPE_NONE);
	wire_map_end(out);
	return KILN_OK;
}

static int put_tensor(kiln_client *client, struct wire_out *out, const kiln_tensor *tensor, int i)
{
	if (tensor->dtype == KILN_DTYPE_NONE)
		return put_left_out(out, tensor, i);
	if (tensor->rank < 0 || tensor->rank > KILN_MAX_RANK) {
		return error_set(KILN_EINVAL, "tensor %d has rank %d; it must be 0 to %d", i, tensor->rank,
						 KILN_MAX_RANK);
	}
	if (tensor->dtype > client->newest_dtype && kiln_dtype_name(tensor->dtype)) {
		return error_set(KILN_EVERSION,
						 "tensor %d is %s, which the kilnd that runs does not have; stop it and "
						 "start the one of this libkiln, " KILN_VERSION_STRING,
						 i, kiln_dtype_name(tensor->dtype));
	}
	if (tensor->buffer && tensor->buffer->client != client)
		return error_set(KILN_EINVAL, "tensor %d lies in a buffer of another client", i);
	wire_map_begin(out, NULL);
	wire_put_int(out, "d", (int64_t)tensor->dtype);
	wire_put_ints(out, "s", tensor->shape, tensor->rank);
	if (tensor->contiguous == 0)
		wire_put_ints(out, "t", tensor->stride, tensor->rank);
	if (tensor->buffer)
		wire_put_uint(out, "b", tensor->buffer->id);
	wire_put_uint(out, "o", tensor->offset);
	wire_map_end(out);
	return KILN_OK;
}

int problem_put(kiln_client *client, struct wire_out *out, const char *op,
				const kiln_tensor *tensors, int tensor_count, const kiln_attr *attrs,
				int attr_count)
{
	int status = KILN_OK;
	if (!op || op[0] == 0)
		return error_set(KILN_EINVAL, "the operator has no name");
	if (tensor_count > 0 && !tensors) {
		return error_set(KILN_EINVAL, "%s was given %d tensors, but tensors is NULL", op,
						 tensor_count);
	}
	if (tensor_count < 0 || tensor_count > KILN_MAX_OPERANDS) {
		return error_set(KILN_EINVAL, "%s was given %d tensors; there must be 0 to %d", op,
						 tensor_count, KILN_MAX_OPERANDS);
	}
	wire_put_str(out, "op", op);
	wire_list_begin(out, "tensors");
	for (int i = 0; i < tensor_count && status == KILN_OK; i++)
		status = put_tensor(client, out, &tensors[i], i);
	wire_list_end(out);
	wire_map_begin(out, "attrs");
	if (status == KILN_OK)
		status = problem_put_attrs(out, attrs, attr_count);
	wire_map_end(out);
	return status;
}
