/*
 * reduction.c: a reduction on the right side, as it is written: over all places of its own indices.
 */
#include "value.h"

#include <math.h>
#include <string.h>

bool eval_is_reduction(const char *name)
{
	static const char *const names[] = {"sum", "prod", "min", "max", "any", "all"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* ---- Indices ---- */

/* The token behind a reduction whose name is at `first`; 0: it does not end. */
static int find_end(const struct eval *eval, int first)
{
	int depth = 0;

	for (int i = first + 1; i < eval->tokens; i++) {
		const struct eval_token *token = &eval->token[i];
		if (eval_is_sign(token, "(") || eval_is_sign(token, "["))
			depth++;
		if (eval_is_sign(token, ")") || eval_is_sign(token, "]"))
			depth--;
		if (depth == 0 && eval_is_sign(token, ")"))
			return i + 1;
	}
	return 0;
}

/* The reduction's own indices, each a new one, wherever they stand in it; false: a list of them
 * does not follow its name. */
static bool name_own(struct eval *eval, int first, int end)
{
	for (int i = first + 2; i < end; i += 2) {
		if (eval->token[i].kind != EVAL_INDEX || eval->token[i].which >= 0 ||
			eval->indices == EVAL_INDICES)
			return false;
		memcpy(eval->index[eval->indices], eval->token[i].text, EVAL_NAME);
		eval->extent[eval->indices] = -1;
		for (int k = i; k < end; k++)
			if (eval->token[k].kind == EVAL_INDEX &&
				!strcmp(eval->token[k].text, eval->index[eval->indices]))
				eval->token[k].which = eval->indices;
		eval->indices++;
		if (eval_is_sign(&eval->token[i + 1], "]"))
			return eval_is_sign(&eval->token[i + 2], "(");
		if (!eval_is_sign(&eval->token[i + 1], ","))
			return false;
	}
	return false;
}

bool eval_find_own(struct eval *eval)
{
	for (int i = eval->right; i < eval->tokens; i++) {
		struct eval_token *token = &eval->token[i];
		if (token->kind != EVAL_REDUCTION)
			continue;
		if (eval->reductions == EVAL_REDUCTIONS || !find_end(eval, i) ||
			!name_own(eval, i, find_end(eval, i)))
			return false;
		token->which = eval->reductions++;
		memset(&eval->reduction[token->which], 0, sizeof(eval->reduction[0]));
		eval->reduction[token->which].end = find_end(eval, i);
	}
	return true;
}

void eval_find_depends(struct eval *eval)
{
	for (int i = eval->right; i < eval->tokens; i++) {
		const struct eval_token *token = &eval->token[i];
		uint32_t own = 0;
		if (token->kind != EVAL_REDUCTION)
			continue;
		struct eval_reduction *reduction = &eval->reduction[token->which];
		for (int k = i; k < reduction->end; k++) {
			if (eval->token[k].kind == EVAL_INDEX)
				reduction->depends |= UINT32_C(1) << eval->token[k].which;
			for (int n = k + 2;
				 eval->token[k].kind == EVAL_REDUCTION && !eval_is_sign(&eval->token[n - 1], "]");
				 n += 2)
				own |= UINT32_C(1) << eval->token[n].which;
		}
		reduction->depends &= ~own;
	}
}

/* ---- Values ---- */

static kiln_dtype dtype_of(const char *name, const struct eval_value *term)
{
	bool counts = name[0] == 's' || name[0] == 'p';

	if (name[0] == 'a')
		return KILN_BOOL;
	if (term->dtype == KILN_DTYPE_NONE)
		return term->real ? KILN_F32 : KILN_I64;
	if (term->real || term->dtype == KILN_U64)
		return term->dtype;
	return counts ? KILN_I64 : term->dtype == KILN_BOOL ? KILN_I32 : term->dtype;
}

struct sums {
	struct eval_value value;
	double error, magnitude, relative;
	int64_t terms;
	bool unsure;
};

static void add_term(struct eval *eval, const char *name, struct sums *sums, struct eval_value term)
{
	struct eval_value *value = &sums->value;
	bool first = sums->terms++ == 0, is;

	if (name[0] == 'a') {
		is = eval_truth(term, &sums->unsure);
		sums->unsure = sums->unsure || (term.real && isinf(term.error));
		value->whole = !strcmp(name, "any") ? value->whole || is : value->whole && is;
	} else if (name[0] == 'm') {
		bool nan = (!first && isnan(value->value)) || (term.real && isnan(term.value));
		*value = first ? term : eval_smaller(*value, term, !strcmp(name, "min"));
		if (nan)
			value->value = NAN;
	} else {
		if (first && term.real)
			*value = (struct eval_value){.real = true, .value = name[0] == 'p'};
		sums->error += term.error;
		sums->magnitude += fabs(eval_as_real(term).value);
		sums->relative += term.error / fabs(eval_as_real(term).value);
		*value = eval_arithmetic(eval, name[0] == 's' ? '+' : '*', *value, term);
	}
}

static struct eval_value finish(const struct eval *eval, const char *name, const struct sums *sums)
{
	struct eval_value value = sums->value;
	double many = (double)sums->terms * eval->unit;

	if (value.real && name[0] == 's')
		value.error = sums->error + many * sums->magnitude;
	if (value.real && name[0] == 'p')
		value.error = fabs(value.value) * (sums->relative + many);
	if (sums->unsure) {
		value.real = true;
		value.error = INFINITY;
	}
	return value;
}

/* Goes over all places; the words are read anew for each. */
static struct eval_value go_over(struct eval *eval, const char *name, const int *own, int count)
{
	struct sums sums = {.value.whole = !strcmp(name, "prod") || !strcmp(name, "all")};
	int first = eval->at, live = eval->live, k;
	struct eval_value term;
	kiln_dtype dtype;

	for (k = 0; k < count; k++) {
		eval->place[own[k]] = 0;
		eval->live = eval->live && eval->extent[own[k]] > 0;
	}
	do {
		eval->at = first;
		term = eval_expression(eval);
		dtype = dtype_of(name, &term);
		if (eval->live)
			add_term(eval, name, &sums, term);
		else if (term.real && name[0] != 'a')
			sums.value = (struct eval_value){.real = true, .value = name[0] == 'p'};
		for (k = count - 1; k >= 0 && ++eval->place[own[k]] >= eval->extent[own[k]]; k--)
			eval->place[own[k]] = 0;
	} while (k >= 0 && eval->live);
	eval->live = live;
	term = eval_wrap(finish(eval, name, &sums), dtype);
	term.dtype = dtype;
	return term;
}

/* The place for the value that a reduction has where the indices are now. */
static struct eval_kept *find_kept(struct eval *eval, struct eval_reduction *reduction, bool *same)
{
	struct eval_kept *kept;
	uint64_t hash = 0;

	for (int k = 0; k < eval->indices; k++)
		if (reduction->depends >> k & 1)
			hash = hash * 31 + (uint64_t)eval->place[k];
	kept = &reduction->kept[hash % EVAL_KEPT];
	*same = kept->known;
	for (int k = 0; k < eval->indices; k++)
		if (reduction->depends >> k & 1)
			*same = *same && kept->place[k] == eval->place[k];
	return kept;
}

struct eval_value eval_reduction(struct eval *eval, const struct eval_token *token)
{
	struct eval_reduction *reduction = &eval->reduction[token->which];
	int own[EVAL_INDICES], count = 0;
	struct eval_value value;
	struct eval_kept *kept;
	bool same;

	kept = find_kept(eval, reduction, &same);
	if (same && eval->live) {
		eval->at = reduction->end;
		return kept->value;
	}
	eval_take(eval, "[");
	do
		own[count++] = eval->token[eval->at++].which;
	while (eval_take(eval, ","));
	eval_take(eval, "]");
	eval_take(eval, "(");
	value = go_over(eval, token->text, own, count);
	eval->at = reduction->end;
	if (eval->live) {
		kept->known = true;
		memcpy(kept->place, eval->place, sizeof(kept->place));
		kept->value = value;
	}
	return value;
}
