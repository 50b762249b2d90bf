/*
 * fuzz_map: texts as statements of the operator map: through the planner's words, tree, types,
 * ranges and loops to the C++ it writes, and through the command's interpreter, which reads
 * statements by itself.  A refusal is one sentence; a plan is the same twice, and its candidates
 * are plans, too.
 *
 * A line of the input is the statement; each further one "operand NAME TYPE 4x5", "int NAME 7",
 * "real NAME 0.5" or "text NAME WORD", of an attribute.
 */
#include "tests/ops/map/eval.h"
#include "daemon/plan/plan.h"
#include "words.h"

const char *const fuzz_words[] = {"y[i,j] = x[i,j]",
								  "+=",
								  "*=",
								  "min=",
								  "max=",
								  "x[",
								  "y[",
								  "]",
								  "[i,j]",
								  "[j,i]",
								  "(",
								  ")",
								  ",",
								  "? ",
								  " : ",
								  " << ",
								  " >> ",
								  " && ",
								  " || ",
								  "==",
								  "!=",
								  "<=",
								  ">=",
								  "!",
								  "~",
								  "-",
								  "+",
								  "*",
								  "/",
								  "%",
								  "&",
								  "|",
								  "^",
								  "exp(",
								  "pow(",
								  "min(",
								  "max(",
								  "sum[k](",
								  "max[k,l](",
								  "any[j](",
								  "clamp(",
								  "fma(",
								  "isnan(",
								  "abs(",
								  "s",
								  "i",
								  "j",
								  "k",
								  "i+1",
								  "i*7+3",
								  "%50",
								  "\noperand idx i32 5",
								  "\noperand y ",
								  "\nreal s 2.5",
								  "\nint n 3",
								  "\nint checked 1",
								  "\ntext choice generic",
								  FUZZ_DTYPE "(",
								  "\noperand x " FUZZ_DTYPE " 4x5",
								  "\noperand y " FUZZ_DTYPE " 4x5",
								  "\ntext bounds " FUZZ_VALUE,
								  "\ntext " FUZZ_ATTRIBUTE " " FUZZ_VALUE,
								  NULL};

struct problem {
	struct kernel_problem kernel;
	struct eval eval;
	char names[128];
};

static struct kernel_attr *new_attr(struct problem *p, const char *name)
{
	struct kernel_problem *kernel = &p->kernel;
	if (kernel->attr_count == KERNEL_MAX_ATTRS)
		return NULL;
	struct kernel_attr *attr = &kernel->attrs[kernel->attr_count];
	if (strlen(name) >= sizeof(attr->name))
		return NULL;
	memcpy(attr->name, name, strlen(name) + 1);
	kernel->attr_count++;
	return attr;
}

static void add_text(struct problem *p, const char *name, const char *text)
{
	struct kernel_attr *attr = new_attr(p, name);
	if (attr && !kernel_attr_set_text(&p->kernel, attr, text, strlen(text)))
		p->kernel.attr_count--;
}

static void add_number(struct problem *p, const char *name, const char *text, bool real)
{
	struct kernel_attr *attr = new_attr(p, name);
	if (!attr)
		return;
	attr->kind = real ? KILN_ATTR_REAL : KILN_ATTR_INT;
	attr->f = real ? strtod(text, NULL) : 0;
	attr->i = real ? 0 : strtoll(text, NULL, 10);
	struct eval_scalar *scalar = &p->eval.scalar[p->eval.scalars++];
	snprintf(scalar->name, sizeof(scalar->name), "%s", name);
	scalar->real = real;
	scalar->f = attr->f;
	scalar->i = attr->i;
}

static void add_operand(struct problem *p, const char *name, const char *type, char *dims)
{
	struct kernel_tensor *tensor = &p->kernel.tensors[p->kernel.tensor_count];
	size_t used = strlen(p->names);
	if (p->kernel.tensor_count == KERNEL_MAX_OPERANDS || used + strlen(name) + 2 > sizeof(p->names))
		return;
	snprintf(p->names + used, sizeof(p->names) - used, "%s%s", used ? "," : "", name);
	p->kernel.tensor_count++;
	tensor->dtype = kiln_dtype_parse(type);
	tensor->alignment = 16;
	for (char *dim; tensor->rank < KILN_MAX_RANK && (dim = fuzz_piece(&dims, "x"));)
		tensor->shape[tensor->rank++] = strtoll(dim, NULL, 10);
	plan_contiguous(tensor);
	struct eval_operand *operand = &p->eval.operand[p->eval.operands++];
	snprintf(operand->name, sizeof(operand->name), "%s", name);
	operand->dtype = tensor->dtype;
	operand->rank = tensor->dtype ? tensor->rank : -1;
	memcpy(operand->shape, tensor->shape, sizeof(operand->shape));
	memcpy(operand->stride, tensor->stride, sizeof(operand->stride));
}

static void read_line(struct problem *p, char *line)
{
	char *kind = fuzz_piece(&line, " "), *name = fuzz_piece(&line, " ");
	if (!name)
		return;
	if (!strcmp(kind, "operand")) {
		char *type = fuzz_piece(&line, " ");
		if (type)
			add_operand(p, name, type, line);
	} else if (line && (!strcmp(kind, "int") || !strcmp(kind, "real"))) {
		add_number(p, name, line, kind[0] == 'r');
	} else if (line && !strcmp(kind, "text")) {
		add_text(p, name, line);
		if (!strcmp(name, "bounds"))
			p->eval.bounds = line;
	}
}

/* False: it is refused. */
static bool check_plan(const struct problem *p, const char *target)
{
	static struct kernel_plan first, second;
	char error[KERNEL_ERROR_MAX] = "", text[4096];
	char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX];
	struct kernel_problem problem = p->kernel;
	struct kernel_limits limits;

	require(plan_limits_for(target, &limits, error) == KILN_OK, "no such target");
	int status = plan_infer(&problem, error);
	if (status == KILN_OK)
		status = plan_problem(&problem, &limits, &first, error);
	if (status != KILN_OK) {
		require_sentence(error);
		return false;
	}
	require(plan_problem(&problem, &limits, &second, error) == KILN_OK &&
				!memcmp(&first, &second, sizeof(first)),
			"the same problem has two plans");
	plan_explain(&first, &limits, text, sizeof(text));
	require(text[0] != 0, "a plan that says nothing");
	/* One that was chosen is not the planner's own. */
	if (plan_attr(&problem, PLAN_CHOICE) || problem.attr_count == KERNEL_MAX_ATTRS)
		return true;
	int count = plan_choices(&problem, &limits, names, error);
	require(count >= 1 && !strcmp(names[0], first.choice), "the plan is not its first candidate");
	for (int i = 0; i < count && i < 4; i++) {
		struct problem chosen = {.kernel = problem};
		add_text(&chosen, PLAN_CHOICE, names[i]);
		require(plan_problem(&chosen.kernel, &limits, &second, error) == KILN_OK &&
					!strcmp(second.choice, names[i]),
				"a candidate is no plan");
	}
	return true;
}

/* The interpreter's own reading: memory is there for what it looks at. */
static void check_eval(struct problem *p)
{
	static const uint8_t zeros[1 << 16];
	for (int i = 0; i < p->eval.operands; i++) {
		struct eval_operand *operand = &p->eval.operand[i];
		struct kernel_tensor tensor = {.dtype = operand->dtype, .rank = operand->rank};
		uint64_t bytes = 0;
		if (operand->rank < 0)
			continue;
		memcpy(tensor.shape, operand->shape, sizeof(tensor.shape));
		memcpy(tensor.stride, operand->stride, sizeof(tensor.stride));
		for (int k = 0; k < tensor.rank; k++)
			if (tensor.shape[k] < 0)
				return;
		if (!plan_extent(&tensor, &bytes) || bytes > sizeof(zeros))
			return;
		operand->data = zeros;
	}
	if (eval_open(&p->eval) || p->eval.output_rank < 0)
		return;
	int64_t elements = 1;
	for (int i = 0; i < p->eval.output_rank; i++) {
		if (p->eval.extent[i] <= 0 || p->eval.extent[i] > 64)
			return;
		elements *= p->eval.extent[i];
	}
	for (int i = p->eval.output_rank; i < p->eval.indices; i++)
		if (p->eval.extent[i] > 64 || i > p->eval.output_rank + 1)
			return;
	(void)eval_element(&p->eval, 0);
	(void)eval_element(&p->eval, elements - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct problem p;
	char *text = fuzz_text(data, size), *rest = text, *line;
	char *statement = fuzz_piece(&rest, "\n");

	memset(&p, 0, sizeof(p));
	memcpy(p.kernel.op, "map", 4);
	p.eval.bounds = "check";
	p.eval.statement = statement;
	add_text(&p, "statement", statement);
	while ((line = fuzz_piece(&rest, "\n")) && p.eval.scalars < KILN_MAX_ATTRS)
		read_line(&p, line);
	add_text(&p, "names", p.names);
	check_plan(&p, "sm_90");
	/* The command works out what the daemon has planned. */
	if (check_plan(&p, "cpu"))
		check_eval(&p);
	free(text);
	return 0;
}
