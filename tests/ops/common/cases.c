/*
 * cases.c: the list itself: its families, and its members' names.
 */
#include "family.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* KILN_FAMILIES comes from CMake, which found the files: FAMILY(gather) FAMILY(giou) ... */
#define FAMILY(name) extern const struct cases_family name##_family;
KILN_FAMILIES
#undef FAMILY
#define FAMILY(name) &name##_family,
static const struct cases_family *const families[] = {KILN_FAMILIES};
#undef FAMILY

#define FAMILIES ((int)(sizeof(families) / sizeof(families[0])))

static struct cases_case list[CASES_MOST];
static int listed;
static bool complete;

struct cases_case *cases_add(const struct cases_op *op, unsigned flags)
{
	struct cases_case *c = &list[listed];

	/* The last place is written over when the list is too short, which a test notices. */
	if (listed < CASES_MOST - 1)
		listed++;
	memset(c, 0, sizeof(*c));
	c->op = op;
	c->flags = flags;
	return c;
}

const struct cases_case *cases_all(int *count)
{
	for (int i = 0; i < FAMILIES && !complete; i++) {
		int first = listed;
		families[i]->add();
		for (int k = first; k < listed; k++)
			list[k].family = families[i]->name;
	}
	complete = true;
	*count = listed;
	return list;
}

void cases_random(uint64_t seed, uint64_t i, struct cases_case *out)
{
	uint64_t first = seed, second = i + 1, state = cases_word(&first) ^ cases_word(&second);

	memset(out, 0, sizeof(*out));
	families[i % (uint64_t)FAMILIES]->random(&state, out);
	out->family = families[i % (uint64_t)FAMILIES]->name;
}

int cases_families(void)
{
	return FAMILIES;
}

const char *cases_family_name(int family)
{
	return families[family]->name;
}

const struct cases_refusal *cases_refusals(int family)
{
	return families[family]->refusals;
}

bool cases_in_sample(const char *name)
{
	uint64_t state = 0;
	for (; *name; name++) {
		state ^= (uint64_t)(unsigned char)*name;
		state = cases_word(&state);
	}
	return state % 8 == 1 && state % 3 != 0;
}

/* ---- Names ---- */

void cases_name(struct cases_case *c, const char *format, ...)
{
	size_t used = strlen(c->name);
	va_list args;

	va_start(args, format);
	vsnprintf(c->name + used, sizeof(c->name) - used, format, args);
	va_end(args);
}

const char *cases_dtype_name(kiln_dtype dtype)
{
	switch (dtype) {
#define TEXT(NAME, name, value, bytes) \
	case KILN_##NAME:                  \
		return #name;
		KILN_DTYPE_LIST(TEXT)
#undef TEXT
	default:
		return "none";
	}
}

void cases_name_operand(struct cases_case *c, int operand)
{
	const struct cases_operand *o = &c->operand[operand];

	cases_name(c, " %s%s", cases_dtype_name(o->dtype), o->rank || !o->dtype ? "" : " scalar");
	for (int k = 0; k < o->rank; k++)
		cases_name(c, "%s%lld", k ? "x" : " ", (long long)o->shape[k]);
	for (int k = 0; !o->contiguous && k < o->rank; k++)
		cases_name(c, "%s%lld", k ? "," : " strides ", (long long)o->stride[k]);
	if (o->offset)
		cases_name(c, " at %u", o->offset);
}
