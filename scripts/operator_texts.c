/*
 * operator_texts.c: texts that are made of the rows of the operators, for write_operators.sh.
 *
 *   operator_texts table             the table of docs/operators.md
 *   operator_texts helpers NAME...   helpers for include/kiln/ops.h, of all operators but these
 */
#include "daemon/plan/op.h"

#include <stdio.h>
#include <string.h>

/* Markdown takes a bare * for emphasis and | for the end of a cell. */
static void print_cell(const char *text)
{
	for (; *text; text++)
		printf("%s%c", *text == '*' || *text == '|' ? "\\" : "", *text);
}

static void print_row(const struct plan_op *op)
{
	char operands[KERNEL_OPERANDS_MAX];

	plan_operands(op, operands);
	printf("| `%s` | %s | ", op->name, operands);
	for (const struct op_attribute *attribute = op->attributes; attribute->name; attribute++)
		printf("%s%s", attribute == op->attributes ? "" : ", ", attribute->name);
	printf(" | ");
	print_cell(op->summary);
	puts(" |");
}

/* A text as lines of a comment, of 100 columns at most. */
static void print_comment(const char *text)
{
	int column = printf(" *") - 1;

	while (*text) {
		int length = (int)strcspn(text, " ");
		if (column + 1 + length > 98)
			column = printf("\n *") - 2;
		column += printf(" %.*s", length, text);
		text += length + (text[length] == ' ');
	}
	putchar('\n');
}

/* A helper of plain arguments: all operands are there, and attributes are numbers. */
static bool is_plain(const struct plan_op *op)
{
	for (const struct op_operand *operand = op->operands; operand->name; operand++)
		if (operand->presence != OP_REQUIRED)
			return false;
	for (const struct op_attribute *attribute = op->attributes; attribute->name; attribute++)
		if (attribute->kind != KILN_ATTR_INT && attribute->kind != KILN_ATTR_REAL)
			return false;
	return !op->names;
}

static void print_helper(const struct plan_op *op)
{
	char operands[KERNEL_OPERANDS_MAX], attributes[OP_ATTRIBUTES_MAX], text[1024];
	int tensors = 0, attrs = 0;

	plan_operands(op, operands);
	plan_attributes(op, attributes);
	snprintf(text, sizeof(text), "%s (%s): %s.", op->name, operands, op->summary);
	puts("/*");
	print_comment(text);
	if (*attributes)
		print_comment(attributes);
	puts(" */");
	printf("static inline int kiln_%s(kiln_client *client", op->name);
	for (; op->operands[tensors].name; tensors++)
		printf(", kiln_tensor %s", op->operands[tensors].name);
	for (; op->attributes[attrs].name; attrs++)
		printf(", %s %s", op->attributes[attrs].kind == KILN_ATTR_INT ? "int64_t" : "double",
			   op->attributes[attrs].name);
	printf(")\n{\nkiln_tensor tensors[%d];\n", tensors);
	if (attrs)
		printf("kiln_attr attrs[%d];\n", attrs);
	for (int i = 0; i < tensors; i++)
		printf("tensors[%d] = %s;\n", i, op->operands[i].name);
	for (int i = 0; i < attrs; i++)
		printf("attrs[%d] = kiln_attr_%s(\"%s\", %s);\n", i,
			   op->attributes[i].kind == KILN_ATTR_INT ? "int" : "real", op->attributes[i].name,
			   op->attributes[i].name);
	printf("return kiln_run(client, \"%s\", tensors, %d, %s, %d);\n}\n\n", op->name, tensors,
		   attrs ? "attrs" : "(const kiln_attr *)0", attrs);
}

int main(int argc, char **argv)
{
	bool table = argc == 2 && strcmp(argv[1], "table") == 0;

	if (!table && (argc < 2 || strcmp(argv[1], "helpers") != 0))
		return 2;
	if (table)
		puts("| operator | operands | attributes | what it does |\n|---|---|---|---|");
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op)) {
		bool skipped = false;
		for (int i = 2; i < argc; i++)
			skipped = skipped || strcmp(argv[i], op->name) == 0;
		if (table)
			print_row(op);
		else if (!skipped && is_plain(op))
			print_helper(op);
	}
	return 0;
}
