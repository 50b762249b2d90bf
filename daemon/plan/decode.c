/* decode.c: from a message to a problem.  The broker reads so what programs ask for, and a device
 * process what they lay on the desk of a lane. */
#include "decode.h"
#include "client/wire/plain.h"
#include "internal.h"

#include <stdio.h>
#include <string.h>

#define TENSOR_MEMBERS_MOST 32 /* unknown ones count, for each search walks over all */

#define ERROR(status, ...) plan_refuse(error, status, __VA_ARGS__)

static int decode_attr(struct wire_in *message, const msgpack_object_kv *pair,
					   struct kernel_problem *problem, struct kernel_attr *attr,
					   char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *value = &pair->val;
	memset(attr, 0, sizeof(*attr));
	if (pair->key.type != MSGPACK_OBJECT_STR || pair->key.via.str.size >= sizeof(attr->name))
		return ERROR(KILN_EINVAL, "an attribute's name is not a text of less than %zu bytes",
					 sizeof(attr->name));
	memcpy(attr->name, pair->key.via.str.ptr, pair->key.via.str.size);
	switch (value->type) {
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		if (value->via.u64 > INT64_MAX)
			return ERROR(KILN_EINVAL, "attribute %s is larger than %lld", attr->name,
						 (long long)INT64_MAX);
		attr->kind = KILN_ATTR_INT;
		attr->i = (int64_t)value->via.u64;
		return KILN_OK;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		attr->kind = KILN_ATTR_INT;
		attr->i = value->via.i64;
		return KILN_OK;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		attr->kind = KILN_ATTR_REAL;
		attr->f = value->via.f64;
		return KILN_OK;
	case MSGPACK_OBJECT_STR:
		if (!kernel_attr_set_text(problem, attr, value->via.str.ptr, value->via.str.size))
			return ERROR(KILN_EINVAL, "attribute %s is a text of %u bytes; the most is %d for all",
						 attr->name, value->via.str.size, KERNEL_TEXT_MAX - 1);
		return KILN_OK;
	default:
		attr->kind = KILN_ATTR_INTS;
	}
	const msgpack_object *map = wire_get(&message->root, "attrs");
	attr->count = wire_get_ints(map, attr->name, attr->ints, KILN_MAX_RANK);
	if (attr->count < 0)
		return ERROR(KILN_EINVAL,
					 "attribute %s is neither an integer, a real, a text nor a list of integers",
					 attr->name);
	if (attr->count > KILN_MAX_RANK)
		return ERROR(KILN_EINVAL, "attribute %s has %d integers; the most is %d", attr->name,
					 attr->count, KILN_MAX_RANK);
	return KILN_OK;
}

const char *plan_decode_name(const struct plan_op *op, int i, char number[24])
{
	const char *name = op->names || i >= OP_OPERANDS ? NULL : op->operands[i].name;
	/* Missing names end the row's list, and an index beyond the list is one of them. */
	if (!name)
		snprintf(number, 24, "operand %d", i);
	return name ? name : number;
}

static int decode_tensor(const msgpack_object *map, const struct plan_op *op, int index,
						 struct kernel_problem *problem, uint64_t *buffer, uint64_t *offset,
						 char error[KERNEL_ERROR_MAX])
{
	struct kernel_tensor *tensor = &problem->tensors[index];
	char number[24];
	const char *name = plan_decode_name(op, index, number);
	if (wire_count(map) > TENSOR_MEMBERS_MOST)
		return ERROR(KILN_EINVAL, "%s has %u members; the most is %d", name, wire_count(map),
					 TENSOR_MEMBERS_MOST);
	*offset = *buffer = 0;
	memset(tensor, 0, sizeof(*tensor));
	int64_t dtype = wire_get_int(map, "d", -1);
	if (dtype == KILN_DTYPE_NONE && wire_get_uint(map, "b", 0))
		return ERROR(KILN_EINVAL, "%s is left out and names buffer %llu; it can have none", name,
					 (unsigned long long)wire_get_uint(map, "b", 0));
	if (dtype == KILN_DTYPE_NONE)
		return KILN_OK;
	if (!kernel_dtype_bytes(dtype))
		return ERROR(KILN_EINVAL,
					 "%s has element type %lld, which a daemon of version %s does not have", name,
					 (long long)dtype, KILN_VERSION_STRING);
	tensor->dtype = (kiln_dtype)dtype;
	tensor->rank = wire_get_ints(map, "s", tensor->shape, KILN_MAX_RANK);
	if (tensor->rank < 0 || tensor->rank > KILN_MAX_RANK)
		return ERROR(KILN_EINVAL, "%s has rank %d; ranks 0 to %d are possible", name, tensor->rank,
					 KILN_MAX_RANK);
	if (wire_get(map, "t")) {
		int strides = wire_get_ints(map, "t", tensor->stride, KILN_MAX_RANK);
		if (strides != tensor->rank)
			return ERROR(KILN_EINVAL, "%s has rank %d and %d strides", name, tensor->rank, strides);
	} else {
		plan_contiguous(tensor);
	}
	*offset = wire_get_uint(map, "o", 0);
	*buffer = wire_get_uint(map, "b", 0);
	return KILN_OK;
}

int plan_decode(struct wire_in *message, struct kernel_problem *problem,
				uint64_t buffers[KERNEL_MAX_OPERANDS], uint64_t offsets[KERNEL_MAX_OPERANDS],
				char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *tensors = wire_get(&message->root, "tensors");
	const msgpack_object *attrs = wire_get(&message->root, "attrs");
	const char *name = wire_get_str(message, &message->root, "op");
	const struct plan_op *op = name ? plan_find(name) : NULL;
	int status = KILN_OK;
	/* Nobody reads the rest, which stays: a problem uses a tenth of its memory at most. */
	memset(problem->op, 0, sizeof(problem->op));
	problem->operands = NULL;
	problem->attributes = NULL;
	problem->tensor_count = problem->attr_count = 0;
	problem->texts_used = 0;
	if (!op)
		return ERROR(KILN_EINVAL, "there is no operator %.*s; `kiln ops` lists them",
					 PLAIN_CUT(name ? name : "without a name", 40));
	memcpy(problem->op, op->name, strlen(op->name) + 1);
	if (wire_count(tensors) > KERNEL_MAX_OPERANDS || wire_count(attrs) > KERNEL_MAX_ATTRS)
		return ERROR(KILN_EINVAL, "%u tensors and %u attributes; the most are %d and %d",
					 wire_count(tensors), wire_count(attrs), KERNEL_MAX_OPERANDS, KERNEL_MAX_ATTRS);
	problem->tensor_count = (int)wire_count(tensors);
	for (int i = 0; i < problem->tensor_count && status == KILN_OK; i++)
		status = decode_tensor(wire_at(tensors, (uint32_t)i), op, i, problem, &buffers[i],
							   &offsets[i], error);
	if (attrs && attrs->type == MSGPACK_OBJECT_MAP)
		problem->attr_count = (int)wire_count(attrs);
	for (int i = 0; i < problem->attr_count && status == KILN_OK; i++)
		status = decode_attr(message, &attrs->via.map.ptr[i], problem, &problem->attrs[i], error);
	return status;
}
