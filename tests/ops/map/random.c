/*
 * random.c: statements of map over small, mostly odd sizes: random ones of many forms and
 * types, and a list of sums.  Their answers are those of cases.c.
 */
#include "map.h"

#include <string.h>

#define FLOATS 1u
#define INTEGERS 2u
#define ANY (FLOATS | INTEGERS)

/* A statement whose dimensions are one index each. */
struct form {
	const char *statement, *names;
	int inputs;          /* the output comes behind them */
	const char *dims[3]; /* the indices of each operand; i, j and k only */
	unsigned types;
};

static const struct form forms[] = {
	{"y[i,j] = x[i,j] * 2 + b[j]", "x,b,y", 2, {"ij", "j", "ij"}, ANY},
	{"y[i,j] = x[j,i] - b[i]", "x,b,y", 2, {"ji", "i", "ij"}, ANY},
	{"y[i,j,k] = x[i,j,k] * b[i,k]", "x,b,y", 2, {"ijk", "ik", "ijk"}, ANY},
	{"y[i,j] = x[i,j] < b[j] ? x[i,j] : 3 - b[j]", "x,b,y", 2, {"ij", "j", "ij"}, ANY},
	{"y[i] = max(x[i], b[i]) - min(x[i], b[i])", "x,b,y", 2, {"i", "i", "i"}, ANY},
	{"y[i] = x[i] / b[i] + x[i] % b[i]", "x,b,y", 2, {"i", "i", "i"}, INTEGERS},
	{"y[i] = (x[i] & b[i]) << 3 ^ x[i] >> 2 | ~b[i]", "x,b,y", 2, {"i", "i", "i"}, INTEGERS},
	{"y[i] += x[i,j] * b[j]", "x,b,y", 2, {"ij", "j", "i"}, ANY},
	{"y[j] += x[i,j] * b[i]", "x,b,y", 2, {"ij", "i", "j"}, ANY},
	{"y[i,k] += x[i,j] * b[j,k]", "x,b,y", 2, {"ij", "jk", "ik"}, ANY},
	{"y[i,j] max= x[i,k] - b[k,j]", "x,b,y", 2, {"ik", "kj", "ij"}, ANY},
	{"y[j] += x[i,j] != b[j]", "x,b,y", 2, {"ij", "j", "j"}, INTEGERS},
	{"y[i] += x[i,j]", "x,y", 1, {"ij", "i"}, ANY},
	{"y[j] += x[i,j]", "x,y", 1, {"ij", "j"}, ANY},
	{"y += x[i,j]", "x,y", 1, {"ij", ""}, ANY},
	{"y[j,k] += x[i,j,k]", "x,y", 1, {"ijk", "jk"}, ANY},
	{"y[i,k] += x[i,j,k]", "x,y", 1, {"ijk", "ik"}, ANY},
	{"y[j] += x[i,j] * x[i,j]", "x,y", 1, {"ij", "j"}, ANY},
	{"y[j] *= x[i,j]", "x,y", 1, {"ij", "j"}, ANY},
	{"y[i] *= x[i,j]", "x,y", 1, {"ij", "i"}, ANY},
	{"y[i] max= x[i,j]", "x,y", 1, {"ij", "i"}, ANY},
	{"y[j] max= x[i,j]", "x,y", 1, {"ij", "j"}, ANY},
	{"y[i] min= abs(x[i,j])", "x,y", 1, {"ij", "i"}, ANY},
	{"y[j] min= x[i,j]", "x,y", 1, {"ij", "j"}, ANY},
	{"y[i,j] = x[i,j] - max[k](x[i,k])", "x,y", 1, {"ij", "ij"}, ANY},
	{"y[i,j] = x[i,j] * 2 - min[k](x[k,j])", "x,y", 1, {"ij", "ij"}, ANY},
	{"y[i,j] = x[i,j] * sum[k](x[i,k] * b[k]) + b[j]", "x,b,y", 2, {"ij", "j", "ij"}, FLOATS},
	{"y[i,k] = sum[j](x[i,j,k]) - b[k]", "x,b,y", 2, {"ijk", "k", "ik"}, FLOATS},
	{"y[j,k] = max[l](x[j,l]) - sum[i](b[i,k])", "x,b,y", 2, {"ji", "ik", "jk"}, FLOATS},
};

static void set_operands(struct cases_case *c, const struct form *form, const kiln_dtype dtypes[3],
						 const int64_t extent[3])
{
	memset(c, 0, sizeof(*c));
	c->op = &map_op;
	c->family = "map";
	make_word(c, "statement", form->statement);
	make_word(c, "names", form->names);
	for (int i = 0; i <= form->inputs; i++) {
		struct make_shape shape = {(int)strlen(form->dims[i]), {0}};
		for (int k = 0; k < shape.rank; k++)
			shape.size[k] = extent[form->dims[i][k] - 'i'];
		if (i == form->inputs)
			make_output(c, i, dtypes[i], &shape);
		else
			make_input(c, i, dtypes[i], &shape);
	}
}

static void name(struct cases_case *c)
{
	cases_name(c, "map %s :", c->attr[0].s);
	for (int i = 0; i < c->operand_count; i++)
		cases_name_operand(c, i);
}

/* Integers that have a type in common, or floats. */
static void random_types(uint64_t *state, unsigned types, kiln_dtype dtypes[3])
{
	static const kiln_dtype mixed[] = {KILN_I8,  KILN_U8,  KILN_I16, KILN_U16,
									   KILN_I32, KILN_U32, KILN_I64};
	static const kiln_dtype large[] = {KILN_U32, KILN_U64};
	bool floats = types == FLOATS || (types == ANY && make_chance(state, 2));
	bool same = make_chance(state, 2), unsign = make_chance(state, 5);

	for (int i = 0; i < 3; i++) {
		if (floats)
			dtypes[i] = make_float(make_below(state, 4));
		else if (unsign)
			dtypes[i] = large[make_below(state, MAKE_COUNT(large))];
		else
			dtypes[i] = mixed[make_below(state, MAKE_COUNT(mixed))];
		if (same)
			dtypes[i] = dtypes[0];
	}
}

void map_random(uint64_t *state, struct cases_case *out)
{
	const struct form *form = &forms[make_below(state, MAKE_COUNT(forms))];
	int64_t extent[3];
	kiln_dtype dtypes[3];

	random_types(state, form->types, dtypes);
	for (int k = 0; k < 3; k++)
		extent[k] = make_random_size(state);
	/* Longer products of floats end at nothing: the reference has more exponents than f32. */
	for (int k = 0; k < 3 && strstr(form->statement, "*="); k++)
		extent[k] = extent[k] % 40 + 1;
	/* The reference goes over every term of every element. */
	if (extent[0] * extent[1] * extent[2] > 1 << 17)
		extent[2] = 1 + make_below(state, 7);
	set_operands(out, form, dtypes, extent);
	for (int i = 0; i < out->operand_count; i++)
		make_random_layout(state, &out->operand[i]);
	for (int i = 0; i < out->operand_count; i++)
		if (out->operand[i].fill == CASES_UNUSUAL)
			out->operand[i].fill = CASES_NORMAL;
	name(out);
}

/* ---- Sums ---- */

const struct cases_case *cases_sums(int *count)
{
	static const int64_t terms[] = {1,  2,  3,  5,  7,  8,  9,  10, 15, 17, 18,
									20, 23, 26, 31, 33, 34, 47, 50, 63, 66, 70};
	static const struct {
		struct form form;
		int64_t others; /* the index that is not added up */
	} kinds[] = {{{"y[i] += x[i,j]", "x,y", 1, {"ij", "i"}, ANY}, 3},
				 {{"y[j] += x[i,j]", "x,y", 1, {"ij", "j"}, ANY}, 6},
				 {{"y[j] += x[i,j]", "x,y", 1, {"ij", "j"}, ANY}, 4}};
	static const kiln_dtype dtypes[] = {KILN_I32, KILN_U32};
	static struct cases_case list[MAKE_COUNT(kinds) * MAKE_COUNT(dtypes) * MAKE_COUNT(terms)];

	*count = MAKE_COUNT(list);
	for (int i = 0; i < MAKE_COUNT(list) && !list[i].op; i++) {
		int kind = i % MAKE_COUNT(kinds);
		kiln_dtype dtype = dtypes[i / MAKE_COUNT(kinds) % MAKE_COUNT(dtypes)];
		int64_t along = terms[i / MAKE_COUNT(kinds) / MAKE_COUNT(dtypes)];
		bool rows = kinds[kind].form.dims[1][0] == 'i';
		set_operands(&list[i], &kinds[kind].form, (const kiln_dtype[]){dtype, dtype, dtype},
					 (const int64_t[]){rows ? kinds[kind].others : along,
									   rows ? along : kinds[kind].others, 1});
		name(&list[i]);
	}
	return list;
}
