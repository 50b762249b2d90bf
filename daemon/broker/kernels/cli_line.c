/* cli_line.c: writes problems as words of a command line, which client/cli/problem.h reads. */
#include "cli_line.h"

#include <string.h>

#include "daemon/plan/op.h"
#include "daemon/plan/plan.h"
#include "daemon/base/util.h"

#define SAFE "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,@%+-"

/* Appends a word, quoted for a shell where it needs it. */
static void add_word(struct util_text *line, const char *word)
{
	if (word[0] && strspn(word, SAFE) == strlen(word)) {
		util_text_add(line, " %s", word);
		return;
	}
	util_text_add(line, " '");
	for (; *word; word++)
		*word == '\'' ? util_text_add(line, "'\\''") : util_text_bytes(line, word, 1);
	util_text_add(line, "'");
}

static char *finish(struct util_text *line)
{
	if (!line->failed)
		return line->text;
	util_text_free(line);
	return NULL;
}

/* ---- Operands ---- */

static const char *dtype_name(kiln_dtype dtype)
{
	switch (dtype) {
#define LINE_DTYPE(NAME, name, value, bytes) \
	case KILN_##NAME:                        \
		return #name;
		KILN_DTYPE_LIST(LINE_DTYPE)
#undef LINE_DTYPE
	default:
		return "-";
	}
}

static void add_dims(struct util_text *line, const int64_t *values, int count, char between)
{
	if (!count)
		util_text_add(line, "scalar");
	for (int i = 0; i < count; i++) {
		util_text_bytes(line, &between, i > 0);
		util_text_add(line, "%lld", (long long)values[i]);
	}
}

/* Appends "f32:2x3:3,1@4", or "-" for an operand that is left out. */
static void add_operand(struct util_text *line, const struct kernel_tensor *tensor)
{
	struct kernel_tensor plain = *tensor;
	util_text_add(line, "%s", dtype_name(tensor->dtype));
	if (tensor->dtype == KILN_DTYPE_NONE)
		return;
	util_text_add(line, ":");
	add_dims(line, tensor->shape, tensor->rank, 'x');
	plan_contiguous(&plain);
	if (memcmp(plain.stride, tensor->stride, sizeof(*plain.stride) * (size_t)plain.rank) != 0) {
		util_text_add(line, ":");
		add_dims(line, tensor->stride, tensor->rank, ',');
	}
	/* The offset into memory that is aligned to 16 bytes. */
	if (tensor->alignment < 16)
		util_text_add(line, "@%u", (unsigned)tensor->alignment);
}

/* Operator map names its operands in an attribute; NULL for other operators. */
static const char *text_of(const struct kernel_problem *problem, const char *name)
{
	const struct kernel_attr *attr = strcmp(problem->op, "map") ? NULL : plan_attr(problem, name);
	return attr ? kernel_attr_text(problem, attr) : NULL;
}

/* Takes the next name of "x, s,y"; NULL: there is none. */
static const char *next_name(const char *at, int *length)
{
	at += strspn(at, ", ");
	*length = (int)strcspn(at, ", ");
	return *length ? at : NULL;
}

static void add_operands(struct util_text *line, const struct kernel_problem *problem)
{
	const char *name = text_of(problem, "names");
	int count = problem->tensor_count, length;
	while (count && problem->tensors[count - 1].dtype == KILN_DTYPE_NONE)
		count--;
	for (int i = 0; i < count; i++) {
		util_text_add(line, " --operand ");
		if (name && (name = next_name(name, &length))) {
			util_text_add(line, "%.*s=", length, name);
			name += length;
		}
		add_operand(line, &problem->tensors[i]);
	}
}

/* ---- Attributes ---- */

static void add_value(struct util_text *line, const struct kernel_problem *problem,
					  const struct kernel_attr *attr)
{
	char text[32];
	switch (attr->kind) {
	case KILN_ATTR_REAL:
		/* Without a point the command would read an integer. */
		snprintf(text, sizeof(text), "%.17g", attr->f);
		util_text_add(line, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
		break;
	case KILN_ATTR_INTS:
		add_dims(line, attr->ints, attr->count, ',');
		break;
	case KILN_ATTR_STRING:
		add_word(line, kernel_attr_text(problem, attr));
		break;
	default:
		util_text_add(line, "%lld", (long long)attr->i);
	}
}

/* Is its option one without a value? */
static bool is_flag(const struct kernel_problem *problem, const struct kernel_attr *attr)
{
	const struct plan_op *op = plan_find(problem->op);
	const struct op_attribute *row = op ? op->attributes : NULL;
	while (row && row->name && strcmp(row->name, attr->name) != 0)
		row++;
	return row && row->name && !row->value;
}

static void add_attribute(struct util_text *line, const struct kernel_problem *problem,
						  const struct kernel_attr *attr)
{
	bool map = !strcmp(problem->op, "map");
	if (map && (!strcmp(attr->name, "statement") || !strcmp(attr->name, "names")))
		return;
	if (is_flag(problem, attr) || (map && !strcmp(attr->name, "checked"))) {
		if (attr->i)
			util_text_add(line, " --%s", attr->name);
		return;
	}
	if (map && (attr->kind == KILN_ATTR_INT || attr->kind == KILN_ATTR_REAL))
		util_text_add(line, " --set %s=", attr->name);
	else
		util_text_add(line, " --%s%s", attr->name, attr->kind == KILN_ATTR_STRING ? "" : "=");
	add_value(line, problem, attr);
}

char *line_of_problem(const struct kernel_problem *problem)
{
	const char *statement = text_of(problem, "statement");
	struct util_text line = {0};
	util_text_add(&line, "kiln compile %s", problem->op);
	if (statement)
		add_word(&line, statement);
	add_operands(&line, problem);
	for (int i = 0; i < problem->attr_count; i++)
		add_attribute(&line, problem, &problem->attrs[i]);
	return finish(&line);
}

/* ---- Users' kernels ---- */

/* "NAME=VALUE" */
static void add_pair(struct util_text *line, const char *option, const char *name,
					 const char *value)
{
	struct util_text pair = {0};
	util_text_add(&pair, "%s=%s", name, value);
	util_text_add(line, " --%s", option);
	line->failed = line->failed || pair.failed;
	add_word(line, pair.failed ? "" : pair.text);
	util_text_free(&pair);
}

/* The command names a header by what follows its last '/'. */
static void add_header(struct util_text *line, const char *name)
{
	if (strchr(name, '/')) {
		add_pair(line, "include", name, name);
		return;
	}
	util_text_add(line, " --include");
	add_word(line, name);
}

char *line_of_raw(const struct compile_job *job, int extra)
{
	const struct compile_file *files = job->files + job->file_count - job->user_files;
	struct util_text line = {0};
	util_text_add(&line, "kiln compile raw");
	/* The command's word for standard input is "-". */
	add_word(&line, strcmp(files[0].name, "<stdin>") ? files[0].name : "-");
	util_text_add(&line, " --entry");
	add_word(&line, job->instantiation);
	for (int i = 1; i < job->user_files - extra; i++)
		add_header(&line, files[i].name);
	for (int i = 0; i < job->macro_count; i++)
		add_pair(&line, "macro", job->macros[i].name, job->macros[i].value);
	for (int i = 0; i < job->option_count; i++) {
		util_text_add(&line, " --option");
		add_word(&line, job->options[i]);
	}
	return finish(&line);
}
