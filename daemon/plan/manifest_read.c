/*
 * manifest_read.c: problems from text, each refusal with its column.  A problem that is read here
 * is well formed, and need not make sense.
 */
#include "manifest.h"

#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 23 /* of operators, operands and attributes */

struct reader {
	const char *line, *at;
	char *error;
};

static int refuse(const struct reader *in, const char *at, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int refuse(const struct reader *in, const char *at, const char *format, ...)
{
	char sentence[KERNEL_ERROR_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return plan_refuse(in->error, KILN_EINVAL, "column %d: %.300s", (int)(at - in->line) + 1,
					   sentence);
}

/* Bytes up to the next blank or end: what is quoted in sentences. */
static int word_size(const char *at)
{
	size_t size = strcspn(at, " \t\r\n#");

	return size < 60 ? (int)size : 60;
}

static int read_name(struct reader *in, char name[NAME_MAX_BYTES + 1], const char *what)
{
	const char *at = in->at;
	size_t size = 0;

	while (plan_is_letter(at[size]) || (size && plan_is_digit(at[size])))
		size++;
	if (size == 0 || size > NAME_MAX_BYTES)
		return refuse(in, at, "\"%.*s\" is no name of %s: it has 1 to %d letters, digits and '_'",
					  word_size(at), at, what, NAME_MAX_BYTES);
	memcpy(name, at, size);
	name[size] = 0;
	in->at += size;
	return KILN_OK;
}

/* A whole number from least on. */
static int read_int(struct reader *in, int64_t least, const char *what, int64_t *out)
{
	const char *at = in->at;
	char *end = NULL;
	bool digits = at[*at == '-'] >= '0' && at[*at == '-'] <= '9';

	errno = 0;
	*out = digits ? strtoll(at, &end, 10) : 0;
	if (!digits || errno || *out < least)
		return refuse(in, at, "\"%.*s\" is no %s: a whole number from %lld to %lld", word_size(at),
					  at, what, (long long)least, (long long)INT64_MAX);
	in->at = end;
	return KILN_OK;
}

/* "64x1000" or "64,1000", at most KILN_MAX_RANK. */
static int read_ints(struct reader *in, int64_t least, const char *what, int64_t *values,
					 int *count)
{
	int status = KILN_OK;

	*count = 0;
	for (;;) {
		if (*count == KILN_MAX_RANK)
			return refuse(in, in->at, "there are more than %d numbers", KILN_MAX_RANK);
		status = read_int(in, least, what, &values[*count]);
		if (status)
			return status;
		++*count;
		if (*in->at != 'x' && *in->at != ',')
			return KILN_OK;
		in->at++;
	}
}

static kiln_dtype read_dtype(struct reader *in)
{
	size_t size = strcspn(in->at, ":");

#define IS(NAME, name, value, bytes)                                          \
	if (size == strlen(#name) && memcmp(in->at, #name, strlen(#name)) == 0) { \
		in->at += size + 1;                                                   \
		return KILN_##NAME;                                                   \
	}
	if (in->at[size] == ':')
		KILN_DTYPE_LIST(IS)
#undef IS
	return KILN_DTYPE_NONE;
}

static int read_alignment(struct reader *in, struct kernel_tensor *tensor)
{
	const char *at = in->at;
	int64_t value;
	int status = read_int(in, 1, "alignment", &value);

	if (!status && (value > MANIFEST_ALIGNMENT || (value & (value - 1))))
		return refuse(in, at, "an operand is aligned to 1, 2, 4, 8 or 16 bytes, not to %lld",
					  (long long)value);
	tensor->alignment = (uint32_t)value;
	return status;
}

static int read_tensor(struct reader *in, struct kernel_tensor *tensor)
{
	const char *at = in->at;
	int status = KILN_OK, strides;

	*tensor = (struct kernel_tensor){.dtype = read_dtype(in), .alignment = MANIFEST_ALIGNMENT};
	if (tensor->dtype == KILN_DTYPE_NONE)
		return refuse(in, at, "\"%.*s\" is no operand: TYPE:SHAPE, as f32:64x1000", word_size(at),
					  at);
	if (strncmp(in->at, "scalar", 6) == 0)
		in->at += 6;
	else
		status = read_ints(in, 0, "size of an axis", tensor->shape, &tensor->rank);
	if (status)
		return status;
	plan_contiguous(tensor);
	if (*in->at == '/') {
		at = ++in->at;
		status = read_ints(in, 0, "stride", tensor->stride, &strides);
		if (!status && strides != tensor->rank)
			return refuse(in, at, "there are %d strides for %d axes", strides, tensor->rank);
	}
	if (!status && *in->at == '@') {
		in->at++;
		status = read_alignment(in, tensor);
	}
	return status;
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c) : NULL;

	return found ? (int)(found - digits) : -1;
}

/* A character of a quoted text; -1: there is none. */
static int read_char(struct reader *in)
{
	const char *at = in->at;
	int high, low;

	if (!*at || *at == '\n')
		return -1;
	if (*at != '\\') {
		in->at++;
		return (unsigned char)*at;
	}
	if (at[1] == '"' || at[1] == '\\') {
		in->at += 2;
		return (unsigned char)at[1];
	}
	high = at[1] == 'x' ? hex_digit(at[2]) : -1;
	low = high >= 0 ? hex_digit(at[3]) : -1;
	if (low < 0 || high + low == 0)
		return -1;
	in->at += 4;
	return high * 16 + low;
}

static int read_text(struct reader *in, struct kernel_problem *problem, struct kernel_attr *attr)
{
	const char *at = in->at++;
	char text[KERNEL_TEXT_MAX];
	size_t size = 0;

	while (*in->at != '"') {
		const char *here = in->at;
		int c = read_char(in);
		if (c < 0)
			return refuse(in, here, "%s",
						  *here && *here != '\n'
							  ? "in a text a backslash is followed by another, by a quote, or by x "
								"and two hexadecimal digits that are not 00"
							  : "the text does not end in a quote");
		if (size == sizeof(text))
			return refuse(in, at, "the text has more than %d bytes", KERNEL_TEXT_MAX - 1);
		text[size++] = (char)c;
	}
	in->at++;
	if (!kernel_attr_set_text(problem, attr, text, size))
		return refuse(in, at, "texts of a problem have at most %d bytes together",
					  KERNEL_TEXT_MAX - 1);
	return KILN_OK;
}

static int read_list(struct reader *in, struct kernel_attr *attr)
{
	int status = KILN_OK;

	in->at++;
	attr->kind = KILN_ATTR_INTS;
	if (*in->at != ']')
		status = read_ints(in, INT64_MIN, "integer of a list", attr->ints, &attr->count);
	if (status)
		return status;
	if (*in->at != ']')
		return refuse(in, in->at, "expected ',' or ']'");
	in->at++;
	return KILN_OK;
}

static int read_number(struct reader *in, struct kernel_attr *attr)
{
	const char *at = in->at;
	size_t size = strcspn(at, " \t\r\n#");
	char *end;

	if (at[strspn(at, "-0123456789")] == 0 || strspn(at, "-0123456789") >= size) {
		attr->kind = KILN_ATTR_INT;
		return read_int(in, INT64_MIN, "integer", &attr->i);
	}
	attr->kind = KILN_ATTR_REAL;
	attr->f = strspn(at, "+-0123456789.eEinfa") >= size ? strtod(at, &end) : 0;
	if (strspn(at, "+-0123456789.eEinfa") < size || end != at + size)
		return refuse(in, at,
					  "\"%.*s\" is no value: an operand TYPE:SHAPE, an integer, a real, [1,2] or "
					  "\"text\"",
					  word_size(at), at);
	in->at += size;
	return KILN_OK;
}

/* A member of the line that is an operand is put aside until all attributes are known, which may
 * name operands. */
struct pending {
	char name[NAME_MAX_BYTES + 1];
	const char *at;
	struct kernel_tensor tensor;
};

static int add_attr(struct reader *in, struct kernel_problem *problem, const char *name,
					const char *at)
{
	struct kernel_attr *attr = &problem->attrs[problem->attr_count];

	if (problem->attr_count == KERNEL_MAX_ATTRS)
		return refuse(in, at, "there are more than %d attributes", KERNEL_MAX_ATTRS);
	if (plan_attr(problem, name))
		return refuse(in, at, "%s is given twice", name);
	problem->attr_count++;
	memcpy(attr->name, name, strlen(name) + 1);
	if (*in->at == '"')
		return read_text(in, problem, attr);
	return *in->at == '[' ? read_list(in, attr) : read_number(in, attr);
}

static bool is_operand(const char *at)
{
	size_t size = strcspn(at, ":\" \t\r\n#[");

	return at[size] == ':';
}

static int read_members(struct reader *in, struct kernel_problem *problem,
						struct pending pending[KERNEL_MAX_OPERANDS], int *count)
{
	int status = KILN_OK;

	for (;;) {
		char name[NAME_MAX_BYTES + 1];
		const char *at = in->at;
		in->at += strspn(in->at, " \t");
		if (strchr("\n\r#", *in->at)) /* or the end of the text */
			return KILN_OK;
		if (in->at == at)
			return refuse(in, at, "expected a blank or the end of the line");
		at = in->at;
		status = read_name(in, name, "an operand or an attribute");
		if (!status && *in->at != '=')
			return refuse(in, in->at, "expected '=' and a value for %s", name);
		if (!status && is_operand(++in->at)) {
			if (*count == KERNEL_MAX_OPERANDS)
				return refuse(in, at, "there are more than %d operands", KERNEL_MAX_OPERANDS);
			memcpy(pending[*count].name, name, sizeof(name));
			pending[*count].at = at;
			status = read_tensor(in, &pending[(*count)++].tensor);
		} else if (!status) {
			status = add_attr(in, problem, name, at);
		}
		if (status)
			return status;
	}
}

static int place(struct reader *in, struct kernel_problem *problem, const char *list,
				 const struct pending *pending)
{
	char name[16];

	for (int i = 0; list[0] && i < plan_operand_count(list); i++) {
		plan_operand_name(list, i, name);
		if (strcmp(name, pending->name) != 0)
			continue;
		if (problem->tensors[i].dtype != KILN_DTYPE_NONE)
			return refuse(in, pending->at, "%s is given twice", name);
		problem->tensors[i] = pending->tensor;
		if (problem->tensor_count <= i)
			problem->tensor_count = i + 1;
		return KILN_OK;
	}
	return refuse(in, pending->at, "%s has no operand \"%s\"; its operands are: %s", problem->op,
				  pending->name, list);
}

const char *manifest_begin(const char *text)
{
	return text + strspn(text, " \t");
}

int manifest_read(const char *text, struct kernel_problem *out, char error[KERNEL_ERROR_MAX])
{
	struct reader in = {.line = text, .at = manifest_begin(text), .error = error};
	struct pending pending[KERNEL_MAX_OPERANDS];
	const char *at = in.at;
	char list[KERNEL_OPERANDS_MAX], why[KERNEL_ERROR_MAX], name[NAME_MAX_BYTES + 1];
	const struct plan_op *op;
	int count = 0, status;

	memset(out, 0, sizeof(*out));
	status = read_name(&in, name, "an operator");
	if (status)
		return status;
	op = plan_find(name);
	if (!op)
		return refuse(&in, at, "there is no operator \"%s\"; `kiln ops` lists them", name);
	memcpy(out->op, name, sizeof(name));
	status = read_members(&in, out, pending, &count);
	if (!status && manifest_operands(out, op, list, why) != KILN_OK)
		return refuse(&in, at, "%s", why);
	for (int i = 0; i < count && !status; i++)
		status = place(&in, out, list, &pending[i]);
	return status;
}
