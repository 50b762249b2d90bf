/*
 * quantize.c: the plans of quantize and dequantize, whose scales are given: how their vectors are
 * spread over threads.
 */
#include "quantize.h"

#include <stdio.h>
#include <string.h>

#include "daemon/plan/ops/rows/flat.h"

#define SOURCE "ops/quantize.cuh"
#define GENERIC_THREADS 256u /* QUANTIZE_THREADS */

enum { X, SCALE, Y };

/* A problem as rows of columns; all that merges is one row of any length. */
struct form {
	struct rows_form rows; /* of x */
	bool back, one;
	bool apart; /* scales do not lie side by side */
	int64_t elements, group;
	kiln_dtype from, to;
	uint32_t vector; /* elements */
	enum flat_way way;
};

/* Vectors of a thread, and threads of a block. */
struct spread {
	uint32_t count, threads;
};
static const struct spread spreads[] = {{2, 128}, {2, 256}, {1, 128}}; /* the own choice first */
#define SPREADS ((int)(sizeof(spreads) / sizeof(spreads[0])))

/* ---- Rows ---- */

/* The widest vector of which the wider side takes 16 bytes and y is aligned to, and how x is read
 * in such. */
static void quantize_find_vector(const struct kernel_problem *problem, struct form *form)
{
	const struct kernel_tensor *x = &problem->tensors[X], *y = &problem->tensors[Y];
	uint32_t from = kernel_dtype_bytes(form->from), to = kernel_dtype_bytes(form->to), read;

	form->vector = 16 / (from > to ? from : to);
	while (form->vector > 1 && form->vector * to > y->alignment)
		form->vector /= 2;
	read = form->vector * from;
	read = rows_narrow(&form->rows, 0, from, x->alignment < read ? x->alignment : read);
	while (read > from && !form->one && (uint64_t)form->rows.columns * from % read)
		read /= 2;
	form->way = read == form->vector * from ? FLAT_WHOLE
				: form->vector * from >= 4  ? FLAT_SKEWED
											: FLAT_APART;
	if (form->rows.step[0] != 1 && form->rows.columns > 1)
		form->way = FLAT_APART;
}

static void quantize_find_form(const struct kernel_problem *problem, int64_t group,
							   struct form *form)
{
	const struct kernel_tensor *x = &problem->tensors[X];
	char error[KERNEL_ERROR_MAX];

	memset(form, 0, sizeof(*form));
	form->back = quantize_is_back(problem);
	form->group = group;
	form->apart = group > 0 && rows_check_contiguous(problem, SCALE, error) != KILN_OK;
	form->from = x->dtype;
	form->to = problem->tensors[Y].dtype;
	form->elements = flat_rows(&form->rows, x->rank, x->shape, 1,
							   (const int64_t *const[]){x->stride}, &form->one);
	quantize_find_vector(problem, form);
}

/* ---- The plan ---- */

static void quantize_finish(const struct kernel_problem *problem, const struct form *form,
							uint32_t threads, struct kernel_plan *out)
{
	uint32_t from = kernel_dtype_bytes(form->from), to = kernel_dtype_bytes(form->to);

	plan_touch(problem, X, (form->way == FLAT_WHOLE ? form->vector : 1) * from, out);
	plan_touch(problem, SCALE, 4, out);
	plan_touch(problem, Y, form->vector * to, out);
	snprintf(out->note, sizeof(out->note),
			 "a vector of %u elements a thread, %u threads a block%s%s", form->vector, threads,
			 form->way == FLAT_SKEWED  ? "; x is cut out of two"
			 : form->way == FLAT_APART ? "; x is read element by element"
									   : "",
			 out->variant[0] ? "; sizes and strides are arguments" : "");
}

/* Scales that each row of x has. */
static int64_t scales_of_row(const struct kernel_problem *problem, const struct form *form)
{
	const struct kernel_tensor *x = &problem->tensors[X];

	return x->shape[x->rank - 1] / form->group;
}

static void quantize_pass(const struct kernel_problem *problem, const struct form *form,
						  struct kernel_plan *out)
{
	for (int i = X; i <= Y; i++)
		plan_arg_pointer(out, i);
	plan_arg_scalar(out, 8, (uint64_t)form->elements);
	if (form->apart)
		quantize_pass_scales(problem, SCALE,
							 problem->tensors[SCALE].rank == problem->tensors[X].rank, out);
}

static void quantize_name_choice(const struct form *form, const struct spread *spread,
								 char name[KERNEL_CHOICE_MAX])
{
	snprintf(name, KERNEL_CHOICE_MAX, "%s %ux%u", flat_way_word(form->way), spread->threads,
			 spread->count);
}

static int quantize_spreads(const struct form *form, const struct kernel_limits *limits,
							struct spread out[SPREADS])
{
	int count = 0;

	for (int i = 0; i < SPREADS; i++) {
		struct spread spread = spreads[i];
		bool known = false;
		if (form->way != FLAT_WHOLE)
			spread.count = 1;
		while (spread.threads > limits->max_threads)
			spread.threads /= 2;
		for (int k = 0; k < count; k++)
			known = known || memcmp(&out[k], &spread, sizeof(spread)) == 0;
		if (!known)
			out[count++] = spread;
	}
	return count;
}

static int quantize_plan_exact(const struct kernel_problem *problem, const struct form *form,
							   const struct spread *spread, const struct kernel_limits *limits,
							   struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t block = (uint64_t)form->vector * spread->count * spread->threads;
	bool loop =
		plan_launch(out, limits, ((uint64_t)form->elements + block - 1) / block, spread->threads);

	snprintf(out->source, sizeof(out->source), SOURCE);
	quantize_name_choice(form, spread, out->choice);
	plan_print(&id, "quantize%s<%s, %s, %s, %u, %u, %s, %u, %s, %lld", form->apart ? "_apart" : "",
			   plan_dtype_name(form->from), quantize_type(form->to), form->back ? "true" : "false",
			   form->vector, spread->count, flat_way_name(form->way), spread->threads,
			   loop ? "true" : "false", (long long)form->group);
	if (form->apart)
		plan_print(&id, ", %lld", (long long)scales_of_row(problem, form));
	plan_print(&id, ", %lld", form->one ? 0 : (long long)form->rows.columns);
	rows_print_sizes(&id, &form->rows);
	rows_print_step(&id, &form->rows, 0);
	rows_print_strides(&id, &form->rows, 0);
	/* A thread goes as far as one step beyond the last element. */
	plan_print(&id, ", %s>", form->elements > INT32_MAX ? "i64" : "u32");
	quantize_pass(problem, form, out);
	quantize_finish(problem, form, spread->threads, out);
	return plan_check_name(&id, out, error);
}

/* The widest vectors of aligned operands, or elements. */
static int quantize_plan_generic(const struct kernel_problem *problem, struct form *form,
								 const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint32_t from = kernel_dtype_bytes(form->from), to = kernel_dtype_bytes(form->to);

	if (form->way != FLAT_WHOLE || form->vector != 16 / (from > to ? from : to)) {
		form->vector = 1;
		form->way = FLAT_APART;
	}
	plan_generic_spread(out, limits, SOURCE, (uint64_t)plan_divide_up(form->elements, form->vector),
						GENERIC_THREADS);
	plan_print(&id, "quantize%s_generic<%s, %s, %s, %u, %s>", form->apart ? "_apart" : "",
			   plan_dtype_name(form->from), quantize_type(form->to), form->back ? "true" : "false",
			   form->vector, flat_way_name(form->way));
	quantize_pass(problem, form, out);
	if (form->apart)
		plan_arg_divisor(out, 8, (uint64_t)scales_of_row(problem, form));
	plan_arg_divisor(out, 8, form->group ? (uint64_t)form->group : 1);
	plan_arg_scalar(out, 4, form->group == 0);
	plan_arg_divisor(out, 8, (uint64_t)form->rows.columns);
	plan_arg_scalar(out, 4, form->one);
	plan_arg_scalar(out, 8, (uint64_t)form->rows.step[0]);
	rows_pass_sizes(out, &form->rows, 8);
	rows_pass_strides(out, &form->rows, 0);
	quantize_finish(problem, form, out->block[0], out);
	return KILN_OK;
}

int quantize_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct spread fitting[SPREADS];
	struct form form;
	int64_t elements, group;
	int status = quantize_check(problem, &group, error), count;

	if (status)
		return status;
	plan_elements(&problem->tensors[X], &elements);
	if (elements == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	quantize_find_form(problem, group, &form);
	if (plan_is_generic(choice))
		return quantize_plan_generic(problem, &form, limits, out);
	count = quantize_spreads(&form, limits, fitting);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		quantize_name_choice(&form, &fitting[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return quantize_plan_exact(problem, &form, &fitting[i], limits, out, error);
	}
	return rows_no_candidate(problem, choice, &form.rows, limits, error);
}

int quantize_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct spread fitting[SPREADS];
	char error[KERNEL_ERROR_MAX];
	struct form form;
	int64_t group;
	int count;

	if (quantize_check(problem, &group, error))
		return 0;
	quantize_find_form(problem, group, &form);
	count = quantize_spreads(&form, limits, fitting);
	for (int i = 0; i < count; i++)
		quantize_name_choice(&form, &fitting[i], names[i]);
	return count;
}
