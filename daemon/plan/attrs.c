/*
 * attrs.c: attributes by name, of one kind and within a range, each refusal with its sentence.
 */
#include "client/wire/plain.h"
#include "internal.h"

#include <math.h>
#include <string.h>

/* Is the word of this length in the list "a, b, c"? */
static bool is_listed(const char *list, const char *word, size_t length)
{
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 2 : NULL)
		if (strcspn(at, ",") == length && strncmp(at, word, length) == 0)
			return true;
	return false;
}

int plan_attrs_check(const struct kernel_problem *problem, const char *known,
					 char error[KERNEL_ERROR_MAX])
{
	for (int i = 0; i < problem->attr_count; i++) {
		const struct kernel_attr *attr = &problem->attrs[i];
		size_t length = strnlen(attr->name, sizeof(attr->name));
		if (length == 0 || !is_listed(known, attr->name, length))
			return plan_refuse(error, KILN_EINVAL,
							   "%s: there is no attribute \"%.24s\"; those it takes: %s",
							   problem->op, attr->name, known);
		if (plan_attr(problem, attr->name) != attr)
			return plan_refuse(error, KILN_EINVAL, "%s: %.24s is given twice", problem->op,
							   attr->name);
	}
	return KILN_OK;
}

int plan_attr_int(const struct kernel_problem *problem, const char *name, int64_t least,
				  int64_t most, int64_t *out, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_attr *attr = plan_attr(problem, name);

	if (!attr)
		return KILN_OK;
	if (attr->kind != KILN_ATTR_INT)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is not an integer", problem->op, name);
	if (attr->i < least || attr->i > most)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %lld; it may be %lld to %lld",
						   problem->op, name, (long long)attr->i, (long long)least,
						   (long long)most);
	*out = attr->i;
	return KILN_OK;
}

int plan_attr_real(const struct kernel_problem *problem, const char *name, double *out,
				   char error[KERNEL_ERROR_MAX])
{
	const struct kernel_attr *attr = plan_attr(problem, name);
	double value;

	if (!attr)
		return KILN_OK;
	if (attr->kind != KILN_ATTR_REAL && attr->kind != KILN_ATTR_INT)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is not a number", problem->op, name);
	value = attr->kind == KILN_ATTR_REAL ? attr->f : (double)attr->i;
	if (!isfinite(value))
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %g; it must be finite", problem->op, name,
						   value);
	*out = value;
	return KILN_OK;
}

int plan_attr_word(const struct kernel_problem *problem, const char *name,
				   const char *const words[], int *out, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_attr *attr = plan_attr(problem, name);
	char known[128] = "";
	struct plan_text list = {.text = known, .size = sizeof(known)};

	if (!attr)
		return KILN_OK;
	for (int i = 0; words[i]; i++) {
		if (attr->kind == KILN_ATTR_STRING &&
			strcmp(kernel_attr_text(problem, attr), words[i]) == 0) {
			*out = i;
			return KILN_OK;
		}
		plan_print(&list, "%s%s", i ? ", " : "", words[i]);
	}
	if (attr->kind != KILN_ATTR_STRING)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is not a text; it may be one of: %s",
						   problem->op, name, known);
	return plan_refuse(error, KILN_EINVAL, "%s: %s is \"%.*s\"; it may be one of: %s", problem->op,
					   name, PLAIN_CUT(kernel_attr_text(problem, attr), 40), known);
}

const char *plan_attr_text(const struct kernel_problem *problem, const char *name)
{
	const struct kernel_attr *attr = plan_attr(problem, name);

	return attr && attr->kind == KILN_ATTR_STRING ? kernel_attr_text(problem, attr) : NULL;
}
