/*
 * python_operators.c: the Python functions of the operators, made of the planner's rows.
 *
 *   python_operators table     the table of client/python/src/operator.h, in C
 *   python_operators module    kiln/_operators.py
 *   python_operators stubs     kiln/_operators.pyi
 *   python_operators rows      kiln/_rows.py
 *
 * A new operator needs nothing here: required inputs come first, then optional ones, attributes and
 * outputs by keyword.  Where torch has the function, torch_order says its order of arguments.
 */
#include "daemon/plan/op.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PARAMETERS 24

/* torch's words for the planner's. */
static const char *const renamed[][2] = {
	{"x", "input"},        {"gamma", "weight"},          {"beta", "bias"},
	{"dgamma", "dweight"}, {"dbeta", "dbias"},           {"axis", "dim"},
	{"perm", "dims"},      {"axes", "normalized_shape"}, {"over", "dim"},
};

/* Arguments by position, where torch has the function.  Others that go along a dimension of their
 * one input have torch's order as well: input, dim, keepdim. */
static const char *const torch_order[][2] = {
	{"permute", "input dims"},
	{"layer_norm", "input normalized_shape weight bias eps"},
	{"rms_norm", "input normalized_shape weight eps"},
	{"rope", "q cos sin k positions"},
	{"vector_norm", "input ord dim keepdim"},
	{"var", "input dim"},
	{"index_select", "src dim idx"},
	{"embedding", "idx weight padding_idx"},
	{"take_along_axis", "src idx dim"},
	{"index_add", "input dim idx src"},
	{"scatter_add", "input dim idx src"},
	{"rope_kv_store", "q cos sin k v k_cache v_cache slots positions"},
	{"kv_store", "k v k_cache v_cache slots k_scale v_scale"},
	{"topk", "input k dim largest sorted"},
	{"sort", "input dim descending"},
};

/* Names that torch has, or takes as NumPy has them, for parameters that have another one here.
 * NULL: of any function. */
static const char *const also_named[][3] = {
	{"index_select", "src", "input"},    {"index_select", "idx", "index"},
	{"take_along_axis", "src", "input"}, {"take_along_axis", "idx", "indices"},
	{"index_add", "idx", "index"},       {"index_add", "src", "source"},
	{"scatter_add", "idx", "index"},     {"embedding", "idx", "input"},
	{"vector_norm", "input", "x"},       {NULL, "dim", "axis"},
	{NULL, "keepdim", "keepdims"},
};

/* Parameters of torch's that ask for what is the case always. */
static const char *const ignored[][4] = {
	{"topk", "sorted", "True", "the values are in order always"},
	{"sort", "stable", "False", "equals are in order of their places always"},
};

/* Defaults that are not the planner's: torch's own, or what callers mean most often. */
static const char *const presets[][3] = {
	{"rms_norm", "eps", "epsilon"},
	{"masked_softmax", "kind", "bool"},
	{"masked_softmax_backward", "kind", "bool"},
};

struct python_parameter {
	const char *name, *kind, *type;
	const char *attribute, *preset, *help, *also;
	char usual[32]; /* the default in the signature; "": it is required */
	int operand;    /* -1: none */
	bool positional;
};

struct python_function {
	const struct plan_op *op;
	struct python_parameter parameters[PARAMETERS];
	int count, positional;
	bool wants, keeps; /* outputs that may be left out; no others than those that the caller has */
};

static const char *python_name(const char *name)
{
	for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++)
		if (strcmp(renamed[i][0], name) == 0)
			return renamed[i][1];
	return name;
}

static const char *preset_of(const char *op, const char *attribute)
{
	for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++)
		if (strcmp(presets[i][0], op) == 0 && strcmp(presets[i][1], attribute) == 0)
			return presets[i][2];
	return NULL;
}

/* ---- One function ---- */

static struct python_parameter *add(struct python_function *function, const char *name,
									const char *kind, const char *type, const char *usual)
{
	struct python_parameter *made = &function->parameters[function->count++];
	*made = (struct python_parameter){.name = python_name(name), kind, type, .operand = -1};
	snprintf(made->usual, sizeof(made->usual), "%s", usual);
	for (size_t i = 0; i < sizeof(also_named) / sizeof(also_named[0]); i++) {
		const char *const *also = also_named[i];
		if ((!also[0] || strcmp(also[0], function->op->name) == 0) &&
			strcmp(also[1], made->name) == 0)
			made->also = also[2];
	}
	return made;
}

static void add_inputs(struct python_function *function, bool required)
{
	const struct plan_op *op = function->op;
	for (int i = 0; op->operands[i].name; i++) {
		const struct op_operand *operand = &op->operands[i];
		if (operand->data == OP_WRITTEN || (operand->presence == OP_REQUIRED) != required)
			continue;
		struct python_parameter *made = add(function, operand->name, "INPUT",
											required ? "T" : "T | None", required ? "" : "None");
		made->operand = i;
		made->positional = true;
	}
}

static void add_attribute(struct python_function *function, const struct op_attribute *attribute)
{
	static const char *const kinds[][2] = {[KILN_ATTR_INT] = {"INT", "int"},
										   [KILN_ATTR_REAL] = {"REAL", "float"},
										   [KILN_ATTR_INTS] = {"INTS", "Sequence[int]"},
										   [KILN_ATTR_STRING] = {"TEXT", "str"}};
	bool shape = strcmp(attribute->name, "axes") == 0, over = strcmp(attribute->name, "over") == 0;
	bool dtype = strcmp(attribute->name, "to") == 0;
	const char *preset = preset_of(function->op->name, attribute->name);
	const char *usual = attribute->usual ? attribute->usual : attribute->value ? "None" : "False";
	struct python_parameter *made = add(function, attribute->name,
										shape   ? "SHAPE"
										: over  ? "OVER"
										: dtype ? "TYPE"
												: kinds[attribute->kind][0],
										shape || over ? "int | Sequence[int]"
										: dtype       ? "Any"
													  : kinds[attribute->kind][1],
										usual);
	bool text = attribute->kind == KILN_ATTR_STRING;
	made->attribute = attribute->name;
	made->preset = preset;
	made->help = shape             ? "the trailing dimensions that are normalized together"
				 : attribute->text ? attribute->text
								   : attribute->help;
	if (preset && strcmp(preset, "epsilon") == 0)
		snprintf(made->usual, sizeof(made->usual), "None");
	else if (text && (preset || attribute->usual))
		snprintf(made->usual, sizeof(made->usual), "'%s'", preset ? preset : attribute->usual);
	else if (shape || attribute->needed)
		made->usual[0] = 0;
	made->positional = made->usual[0] == 0;
}

static void add_attributes(struct python_function *function, bool needed)
{
	for (const struct op_attribute *at = function->op->attributes; at->name; at++) {
		bool first = strcmp(at->name, "axes") == 0 ||
					 (at->needed && !preset_of(function->op->name, at->name));
		if (first == needed)
			add_attribute(function, at);
	}
}

static void add_outputs(struct python_function *function)
{
	const struct plan_op *op = function->op;
	for (int i = 0; op->operands[i].name; i++) {
		const struct op_operand *operand = &op->operands[i];
		bool required = operand->presence == OP_REQUIRED;
		bool usual = operand->presence == OP_USUAL || operand->presence == OP_WITH_INPUT;
		if (operand->data != OP_WRITTEN)
			continue;
		struct python_parameter *made =
			add(function, required ? "out" : operand->name, required ? "OUT" : "WANT",
				required ? "T | None" : "T | bool | None", usual ? "True" : "None");
		made->operand = i;
		made->preset = usual ? "True" : NULL;
		function->wants = function->wants || !required;
		function->keeps = false;
	}
}

/* Does it go along a dimension of its one input? */
static bool goes_along(const struct python_function *function)
{
	int needed = 0;
	bool along = false, one = false;
	for (int i = 0; i < function->count; i++) {
		needed += !function->parameters[i].usual[0];
		one = one || strcmp(function->parameters[i].name, "input") == 0;
		along = along || strcmp(function->parameters[i].name, "dim") == 0;
	}
	return needed == 1 && one && along;
}

/* Puts torch's order first, and nothing else by position. */
static void order(struct python_function *function)
{
	const char *words = goes_along(function) ? "input dim keepdim" : NULL;
	int placed = 0;
	for (size_t i = 0; i < sizeof(torch_order) / sizeof(torch_order[0]); i++)
		if (strcmp(torch_order[i][0], function->op->name) == 0)
			words = torch_order[i][1];
	for (int i = 0; words && i < function->count; i++)
		function->parameters[i].positional = false;
	while (words && *words) {
		size_t length = strcspn(words, " ");
		for (int i = placed; i < function->count; i++) {
			struct python_parameter found = function->parameters[i];
			if (strlen(found.name) != length || strncmp(found.name, words, length) != 0)
				continue;
			memmove(&function->parameters[placed + 1], &function->parameters[placed],
					(size_t)(i - placed) * sizeof(found));
			found.positional = true;
			function->parameters[placed++] = found;
			break;
		}
		words += length + (words[length] == ' ');
	}
	/* An argument that stands before one without a default has none. */
	for (bool required = false; placed-- > 0; required = !function->parameters[placed].usual[0])
		if (required)
			function->parameters[placed].usual[0] = 0;
	for (function->positional = 0; function->positional < function->count &&
								   function->parameters[function->positional].positional;)
		function->positional++;
}

/* torch's functions that go along a dimension of their one input cast it before, where asked. */
static void add_dtype(struct python_function *function)
{
	if (!goes_along(function))
		return;
	struct python_parameter *made = add(function, "dtype", "DTYPE", "Any", "None");
	made->help = "the element type that input is cast to before";
	if (function->op->widens_integers) {
		made->preset = "i64";
		made->help = "the element type that input is cast to before, and the result's; i64 for "
					 "bools and for integers of 8 and 16 bits";
	}
	for (const struct op_operand *at = function->op->operands; at->name; at++)
		if (at->dtype == OP_SUMMED)
			made->help = "the element type that input is cast to before, and the result's";
}

static void add_ignored(struct python_function *function)
{
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		if (strcmp(ignored[i][0], function->op->name) == 0)
			add(function, ignored[i][1], "IGNORED", "bool", ignored[i][2])->help = ignored[i][3];
}

static void describe(const struct plan_op *op, struct python_function *function)
{
	*function = (struct python_function){.op = op, .keeps = true};
	add_inputs(function, true);
	add_attributes(function, true);
	add_inputs(function, false);
	add_attributes(function, false);
	add_ignored(function);
	add_dtype(function);
	add_outputs(function);
	order(function);
}

/* ---- Texts ---- */

static bool is_of(const struct plan_op *op, const char *name)
{
	for (int i = 0; op->operands[i].name; i++)
		if (strcmp(op->operands[i].name, name) == 0)
			return true;
	return false;
}

/* Prints a text inside a C string, or a Python docstring, with torch's words for the planner's. */
static void print_text(const struct plan_op *op, const char *text)
{
	while (*text) {
		char word[32];
		size_t length = 0;
		while (isalnum((unsigned char)text[length]) || text[length] == '_')
			length++;
		if (length == 0 || length >= sizeof(word)) {
			printf("%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
			text++;
			continue;
		}
		snprintf(word, sizeof(word), "%.*s", (int)length, text);
		fputs(op && is_of(op, word) ? python_name(word) : word, stdout);
		text += length;
	}
}

static void print_signature(const struct python_function *function, bool typed)
{
	for (int i = 0; i < function->count; i++) {
		const struct python_parameter *at = &function->parameters[i];
		if (i == function->positional)
			printf("%s*", i ? ", " : "");
		printf("%s%s", i ? ", " : "", at->name);
		if (typed)
			printf(": %s%s", at->type,
				   strcmp(at->usual, "None") == 0 && !strstr(at->type, "None") ? " | None" : "");
		if (at->usual[0])
			printf(typed ? " = %s" : "=%s", typed ? "..." : at->usual);
	}
}

static void print_doc(const struct python_function *function, const char *newline)
{
	print_text(function->op, function->op->summary);
	printf(".%s", newline);
	for (int i = 0; i < function->count; i++) {
		const struct python_parameter *at = &function->parameters[i];
		if (strcmp(at->kind, "OUT") == 0)
			printf("%sout: the tensor to write, of the result's shape and type, contiguous",
				   newline);
		else if (strcmp(at->kind, "WANT") == 0)
			printf("%s%s: True to have it, too, or the tensor to write", newline, at->name);
		else if (at->help) {
			printf("%s%s: ", newline, at->name);
			print_text(function->op, at->help);
		} else if (strcmp(at->kind, "INPUT") == 0) {
			printf("%s%s: a tensor%s", newline, at->name,
				   function->op->operands[at->operand].data == OP_KEPT ? ", which is written"
				   : at->usual[0]                                      ? ", may be left out"
																	   : "");
		}
	}
	printf("%s", newline);
}

/* ---- The table ---- */

static const char *shape_rule(const struct op_operand *operand)
{
	switch (operand->shape) {
	case OP_LIKE_FIRST:
		return "SHAPE_FIRST";
	case OP_TRAILING:
		return "SHAPE_TRAILING";
	case OP_LEADING:
		return "SHAPE_LEADING";
	case OP_ONE:
		return "SHAPE_ONE";
	case OP_GROUPS:
		return "SHAPE_GROUPS";
	case OP_HALVED_GROUPS:
		return "SHAPE_HALVED_GROUPS";
	case OP_TRANSPOSED:
		return "SHAPE_TRANSPOSED";
	case OP_FIRST_K:
		return "SHAPE_FIRST_K";
	default:
		return "SHAPE_PLANNED";
	}
}

static const char *dtype_rule(const struct op_operand *operand)
{
	switch (operand->dtype) {
	case OP_COMPUTED:
		return "DTYPE_COMPUTED";
	case OP_OWN:
		return "DTYPE_OWN";
	case OP_I32:
		return "DTYPE_I32";
	case OP_I64:
		return "DTYPE_I64";
	case OP_SUMMED:
		return "DTYPE_SUMMED";
	case OP_TO:
		return "DTYPE_TO";
	default:
		return "DTYPE_FIRST";
	}
}

static void print_quoted(const char *text)
{
	if (text)
		printf("\"%s\"", text);
	else
		printf("NULL");
}

static void print_parts(const struct python_function *function)
{
	const struct plan_op *op = function->op;
	printf("static const struct operator_operand %s_operands[] = {\n", op->name);
	for (int i = 0; op->operands[i].name; i++)
		printf("\t{\"%s\", %s, %s, %s, %s, %d},\n", op->operands[i].name,
			   op->operands[i].data == OP_WRITTEN ? "true" : "false",
			   op->operands[i].data == OP_KEPT ? "true" : "false", shape_rule(&op->operands[i]),
			   dtype_rule(&op->operands[i]), plan_input_of(op, &op->operands[i]));
	printf("};\nstatic const struct parameter %s_parameters[] = {\n", op->name);
	for (int i = 0; i < function->count; i++) {
		const struct python_parameter *at = &function->parameters[i];
		printf("\t{\"%s\", PARAMETER_%s, %s, %d, ", at->name, at->kind,
			   at->usual[0] ? "false" : "true", at->operand);
		print_quoted(at->attribute);
		printf(", ");
		print_quoted(at->preset);
		printf(", ");
		print_quoted(at->also);
		printf("},\n");
	}
	printf("};\nstatic const char %s_doc[] = \"%s(", op->name, op->name);
	print_signature(function, false);
	printf(")\\n--\\n\\n");
	print_doc(function, "\\n");
	printf("\";\n\n");
}

static void print_row(const struct python_function *function)
{
	const char *name = function->op->name;
	int operands = 0;
	while (function->op->operands[operands].name)
		operands++;
	printf("\t{\"%s\", %s_doc, %s_operands, %d, %s_parameters, %d, %d},\n", name, name, name,
		   operands, name, function->count, function->positional);
}

static void print_stub(const struct python_function *function)
{
	printf("def %s(", function->op->name);
	print_signature(function, true);
	printf(") -> %s:\n    \"\"\"", function->keeps ? "None" : function->wants ? "Any" : "T");
	print_doc(function, "\n    ");
	printf("\"\"\"\n\n");
}

/* Calls print for each operator that has a function; map takes the names of its statement. */
static void each(void (*print)(const struct python_function *function))
{
	struct python_function function;
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op)) {
		if (op->names)
			continue;
		describe(op, &function);
		print(&function);
	}
}

/* A row as Python has it: what is written on top of the core follows the planner's rules by it. */
static void print_python_row(const struct python_function *function)
{
	static const char *const shapes[] = {
		[OP_LIKE_FIRST] = "first",
		[OP_TRAILING] = "trailing",
		[OP_LEADING] = "leading",
		[OP_MASK_SHAPE] = "mask",
		[OP_LAST] = "last",
		[OP_LISTS] = "lists",
		[OP_LOSS] = "loss",
		[OP_HALVED] = "halved",
		[OP_PER_BOX] = "per_box",
		[OP_BOUNDARIES] = "boundaries",
		[OP_ONE] = "one",
		[OP_ALONG] = "along",
		[OP_LIST] = "list",
		[OP_TOKENS] = "tokens",
		[OP_ANGLES] = "angles",
		[OP_LIKE_INPUT] = "input",
		[OP_REDUCED] = "reduced",
		[OP_GROUPS] = "groups",
		[OP_TRANSPOSED] = "transposed",
		[OP_PAGES] = "pages",
		[OP_FIRST_K] = "first_k",
		[OP_HALVED_GROUPS] = "halved_groups",
	};
	static const char *const dtypes[] = {
		[OP_SAME] = "first",      [OP_COMPUTED] = "computed", [OP_OWN] = "own",
		[OP_MASK_DTYPE] = "mask", [OP_INDEX] = "index",       [OP_I32] = "i32",
		[OP_I64] = "i64",         [OP_SUMMED] = "summed",     [OP_BOOL] = "bool",
		[OP_TO] = "to",
	};
	printf("    \"%s\": ((\n", function->op->name);
	for (const struct op_operand *at = function->op->operands; at->name; at++)
		printf("        (\"%s\", \"%s\", \"%s\", \"%s\"),\n", at->name,
			   at->data == OP_WRITTEN ? "out"
			   : at->data == OP_KEPT  ? "kept"
									  : "in",
			   shapes[at->shape], dtypes[at->dtype]);
	printf("    ), (\n");
	for (int i = 0; i < function->count; i++) {
		const struct python_parameter *at = &function->parameters[i];
		printf("        (\"%s\", \"%s\", %d, %s, %s),\n", at->name, at->kind, at->operand,
			   at->usual[0] ? "False" : "True", at->preset ? "True" : "False");
	}
	printf("    ), %d),\n", function->positional);
}

static void print_import(const struct python_function *function)
{
	printf("    %s,\n", function->op->name);
}

static void print_name(const struct python_function *function)
{
	printf("    \"%s\",\n", function->op->name);
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";
	if (strcmp(what, "table") == 0) {
		puts("/* operator_table.c: written by the build from the operators' rows. */\n"
			 "#include \"operator.h\"\n");
		each(print_parts);
		puts("const struct operator_row operator_rows[] = {");
		each(print_row);
		puts("};\nconst int operator_row_count = "
			 "(int)(sizeof(operator_rows) / sizeof(operator_rows[0]));");
		return 0;
	}
	if (strcmp(what, "module") == 0) {
		puts("\"\"\"The operators: written by the build from their rows.\"\"\"\n"
			 "from ._kiln import (");
		each(print_import);
		puts(")\n\n__all__ = [");
		each(print_name);
		puts("]");
		return 0;
	}
	if (strcmp(what, "stubs") == 0) {
		puts("\"\"\"The operators: written by the build from their rows.\"\"\"\n"
			 "from typing import Any, Sequence, TypeVar\n\nT = TypeVar(\"T\")\n");
		each(print_stub);
		return 0;
	}
	if (strcmp(what, "rows") == 0) {
		puts("\"\"\"The operators' rows: written by the build.\n\n"
			 "name: (operands (name, in, out or kept, shape, dtype), parameters (name, kind, "
			 "operand, "
			 "required,\nhas a default of its own), how many by position)\n\"\"\"\nROWS = {");
		each(print_python_row);
		puts("}");
		return 0;
	}
	fputs("usage: python_operators table|module|stubs|rows\n", stderr);
	return 2;
}
