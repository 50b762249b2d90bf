/*
 * op.c: the rows of operators one after the other, by name, and as texts.
 */
#include "internal.h"

#include <string.h>

const struct plan_op *plan_op_next(const struct plan_op *op)
{
	const struct plan_op *const *family = plan_families;

	if (!op)
		return *family;
	if (op[1].name)
		return op + 1;
	/* The last of its family: the family is the one that ends there. */
	for (; *family; family++) {
		const struct plan_op *last = *family;
		while (last[1].name)
			last++;
		if (last == op)
			return family[1];
	}
	return NULL;
}

/* The rows by their names, open addressing: the rows themselves are so large that a walk over all
 * of them touches more pages than the rest of a plan. */
#define NAMES 512
static const struct plan_op *by_name[NAMES];

static size_t name_slot(const char *op)
{
	uint32_t hash = 0;

	for (; *op; op++)
		hash = hash * 31 + (unsigned char)*op;
	return hash * 2654435761u >> 23; /* nine bits */
}

/* The table is a constant that the compiler cannot write: it is made before main() runs. */
__attribute__((constructor)) static void index_names(void)
{
	for (const struct plan_op *row = plan_op_next(NULL); row; row = plan_op_next(row)) {
		size_t at = name_slot(row->name);
		while (by_name[at])
			at = (at + 1) % NAMES;
		by_name[at] = row;
	}
}

const struct plan_op *plan_find(const char *op)
{
	for (size_t at = name_slot(op); by_name[at]; at = (at + 1) % NAMES)
		if (strcmp(by_name[at]->name, op) == 0)
			return by_name[at];
	return NULL;
}

int plan_input_of(const struct plan_op *op, const struct op_operand *output)
{
	size_t length = strlen(output->name) - strlen("_out");

	for (int i = 0; output->presence == OP_WITH_INPUT && op->operands[i].name; i++)
		if (strlen(op->operands[i].name) == length &&
			strncmp(op->operands[i].name, output->name, length) == 0)
			return i;
	return -1;
}

void plan_operands(const struct plan_op *op, char list[KERNEL_OPERANDS_MAX])
{
	struct plan_text text = {.text = list, .size = KERNEL_OPERANDS_MAX};

	list[0] = 0;
	for (const struct op_operand *operand = op->operands; operand->name; operand++) {
		plan_add(&text, ", ", operand == op->operands ? 0 : 2);
		plan_add(&text, operand->name, strlen(operand->name));
		plan_add(&text, "?", operand->presence != OP_REQUIRED);
	}
}

void plan_attributes(const struct plan_op *op, char text[OP_ATTRIBUTES_MAX])
{
	struct plan_text out = {.text = text, .size = OP_ATTRIBUTES_MAX};

	text[0] = 0;
	for (const struct op_attribute *attribute = op->attributes; attribute->name; attribute++) {
		plan_print(&out, "%s%s: %s", attribute == op->attributes ? "" : "; ", attribute->name,
				   attribute->text ? attribute->text : attribute->help);
		if (!attribute->text && attribute->usual)
			plan_print(&out, " (default %s)", attribute->usual);
	}
}
