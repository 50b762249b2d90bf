/*
 * cases.c: the list itself: its families in their order, its members' names, and the comparison of
 * one number with what it ought to be.
 */
#include "cases_build.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	void (*add)(void);
	void (*random)(uint64_t *state, struct cases_case *out);
} families[CASES_FAMILIES] = {
	{"permute", cases_add_permute, cases_random_permute},
	{"softmax", cases_add_softmax, cases_random_softmax},
	{"masked_softmax", cases_add_masked_softmax, cases_random_masked_softmax},
	{"norm", cases_add_norm, cases_random_norm},
	{"norm_backward", cases_add_norm_backward, cases_random_norm_backward},
	{"gather", cases_add_gather, cases_random_gather},
	{"giou", cases_add_giou, cases_random_giou},
	{"map", cases_add_map, cases_random_map},
};

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
	for (int i = 0; i < CASES_FAMILIES && !complete; i++) {
		int first = listed;
		families[i].add();
		for (int k = first; k < listed; k++)
			list[k].family = families[i].name;
	}
	complete = true;
	*count = listed;
	return list;
}

void cases_random(uint64_t seed, uint64_t i, struct cases_case *out)
{
	uint64_t first = seed, second = i + 1, state = cases_word(&first) ^ cases_word(&second);

	memset(out, 0, sizeof(*out));
	families[i % CASES_FAMILIES].random(&state, out);
	out->family = families[i % CASES_FAMILIES].name;
}

bool cases_in_half(const char *name)
{
	uint64_t state = 0;
	for (; *name; name++) {
		state ^= (uint64_t)(unsigned char)*name;
		state = cases_word(&state);
	}
	return state & 1;
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

static const char *dtype_name(kiln_dtype dtype)
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

	cases_name(c, " %s%s", dtype_name(o->dtype), o->rank || !o->dtype ? "" : " scalar");
	for (int k = 0; k < o->rank; k++)
		cases_name(c, "%s%lld", k ? "x" : " ", (long long)o->shape[k]);
	for (int k = 0; !o->contiguous && k < o->rank; k++)
		cases_name(c, "%s%lld", k ? "," : " strides ", (long long)o->stride[k]);
	if (o->offset)
		cases_name(c, " at %u", o->offset);
}

/* ---- Judging ---- */

void cases_judge(struct cases_verdict *verdict, int operand, int64_t element, double got,
				 double expected, double relative, double absolute)
{
	double allowed = relative * fabs(expected) + absolute;

	/* An infinity is near nothing but itself. */
	if (verdict->wrong || (isnan(got) && isnan(expected)) || got == expected ||
		(isfinite(got) && isfinite(expected) && fabs(got - expected) <= allowed))
		return;
	verdict->wrong = true;
	verdict->operand = operand;
	verdict->element = element;
	verdict->got = got;
	verdict->expected = expected;
	verdict->allowed = allowed;
}
