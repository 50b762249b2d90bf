/*
 * cross_entropy.c: which kernel takes the loss of rows, and the gradient with it.
 *
 * With the gradient, rows are read and written as those of softmax are, and spread likewise.
 * Without, nothing of a row need be held: long ones are read in steps, by blocks so small that a
 * multiprocessor has several.  A soft cap takes so much work an element that its rows are read
 * twice.
 */
#include "cross_entropy.h"

#include <stdio.h>
#include <string.h>

#define COUNTER_BYTES 256      /* before the sums, in scratch memory; total.cuh has it, too */
#define MOST_BLOCKS (1u << 24) /* each has a sum in scratch memory */
#define READ_VECTORS 1024      /* from here on rows are read in steps, or wait */
#define READ_THREADS 256u
#define READ_HELD 4u
#define READ_BLOCKS \
	8u /* of these a multiprocessor has room for, if a thread has one vector at a time */

#define BOUNDED_CAP 64.0     /* up to that, sums of powers under a soft cap need no largest term */
#define BOUNDED_COLUMNS 4096 /* longer rows bear approximations */

/* Long rows of bf16 under a soft cap: blocks that run at once take the rows in turn, so that each
 * makes its list of powers once. */
#define LISTED_COLUMNS 32768
#define LISTED_THREADS 512u
#define LISTED_BLOCKS 2u /* of a multiprocessor */

/* ---- Candidates ---- */

static bool is_bounded(const struct cross_entropy *call)
{
	return call->cap != 0 && call->cap <= BOUNDED_CAP && call->dtype != KILN_F64;
}

static bool is_listed(const struct cross_entropy *call, const struct rows_shape *shape)
{
	return is_bounded(call) && call->dtype == KILN_BF16 && !call->grad && call->smoothing == 0 &&
		   call->columns >= LISTED_COLUMNS && shape->stream && !shape->skewed &&
		   shape->vector == 8 && shape->size == LISTED_THREADS && shape->held == READ_HELD;
}

static void find_need(const struct cross_entropy *call, struct rows_need *need)
{
	bool cap = call->cap != 0;

	*need = (struct rows_need){.element = call->element, .streams = 1};
	need->held = call->grad ? 1u | 1u << 2 : 1u;
	need->alignment = call->alignment < 16 ? call->alignment : 16;
	need->converted = call->element == 2 ? 4 : 0;
	need->registers = cap ? 0 : need->converted ? 60 : 40;
	need->around = call->dtype == KILN_F64 ? 34 : 9; /* for 2^x and log() */
	need->skew = need->stream = true;
	need->slots = need->clusters = !cap;
}

/* held: of rows that are only read. */
static bool is_usual(const struct cross_entropy *call, const struct rows_shape *shape,
					 const struct rows_shape *first, uint32_t held)
{
	if (!call->grad)
		return shape->stream && shape->size == READ_THREADS && shape->held == held;
	return first->slots && !shape->stream && shape->size * 2 == first->size &&
		   shape->held == first->held * 2 && shape->slots * 2 == shape->held &&
		   shape->cluster == first->cluster;
}

/* Puts first the shape that is better than softmax's for long rows, if it is there: where nothing
 * is stored steps of a small block, short ones if all rows find room at once with them; where rows
 * wait for the count half as many threads, each with twice as much, half of it in slots. */
static void prefer(const struct cross_entropy *call, const struct kernel_limits *limits,
				   struct rows_shape *shapes, int count)
{
	uint64_t room = (uint64_t)limits->multiprocessors * READ_BLOCKS;
	uint32_t held = call->cap == 0 && (uint64_t)call->rows <= room ? 1 : READ_HELD;

	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < count; i++) {
			struct rows_shape found = shapes[i];
			if (turn == 0 ? !is_listed(call, &found) : !is_usual(call, &found, &shapes[0], held))
				continue;
			memmove(&shapes[1], &shapes[0], sizeof(found) * (size_t)i);
			shapes[0] = found;
			return;
		}
	}
}

static int find_shapes(const struct cross_entropy *call, const struct kernel_limits *limits,
					   struct rows_shape shapes[PLAN_MAX_CHOICES])
{
	struct kernel_limits fewer = *limits;
	struct rows_need need;
	int count;

	find_need(call, &need);
	fewer.grid_x = limits->grid_x < MOST_BLOCKS ? limits->grid_x : MOST_BLOCKS;
	count = rows_shapes(&call->form, &need, &fewer, shapes, PLAN_MAX_CHOICES);
	if (count && call->columns / shapes[0].vector >= READ_VECTORS)
		prefer(call, limits, shapes, count);
	return count;
}

int cross_entropy_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct rows_shape shapes[PLAN_MAX_CHOICES];
	struct cross_entropy call;
	char error[KERNEL_ERROR_MAX];
	int count;

	if (cross_entropy_check(problem, &call, error))
		return 0;
	count = find_shapes(&call, limits, shapes);
	for (int i = 0; i < count; i++)
		rows_shape_name(&shapes[i], names[i]);
	return count;
}

/* ---- The plan ---- */

static bool is_summed(const struct kernel_problem *problem, const struct cross_entropy *call)
{
	return call->reduction != CROSS_ENTROPY_NONE || plan_has(problem, CROSS_ENTROPY_COUNT);
}

/* A sum and a count for each block. */
static void pass_operands(const struct kernel_problem *problem, const struct cross_entropy *call,
						  struct kernel_plan *out)
{
	uint64_t part = call->dtype == KILN_F64 ? 16 : 8;

	for (int i = 0; i < CROSS_ENTROPY_OPERANDS; i++)
		plan_arg_pointer(out, i);
	if (call->rows > 0)
		plan_arg_report(out, (uint64_t)call->rows, (uint64_t)call->columns);
	else
		plan_arg_scalar(out, 8, 0);
	if (is_summed(problem, call)) {
		out->scratch.bytes = out->scratch.counters = COUNTER_BYTES + out->grid[0] * part;
		plan_arg_scratch(out);
	} else {
		plan_arg_scalar(out, 8, 0);
	}
	plan_arg_scalar(out, 8, (uint64_t)call->rows);
	cross_entropy_pass(call, out);
}

static void touch(const struct kernel_problem *problem, uint32_t vector, struct kernel_plan *out)
{
	for (int i = 0; i < CROSS_ENTROPY_OPERANDS; i++) {
		uint32_t element = kernel_dtype_bytes(problem->tensors[i].dtype);
		bool rows = i == CROSS_ENTROPY_X || i == CROSS_ENTROPY_GRAD;
		if (plan_has(problem, i))
			plan_touch(problem, i, rows ? vector * element : element, out);
	}
	if (plan_has(problem, CROSS_ENTROPY_GRAD))
		plan_over(problem, CROSS_ENTROPY_GRAD, CROSS_ENTROPY_X, out);
}

static const char *truth(bool value)
{
	return value ? "true" : "false";
}

static int plan_shape(const struct kernel_problem *problem, const struct cross_entropy *call,
					  const struct rows_shape *shape, const struct kernel_limits *limits,
					  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct kernel_limits fewer = *limits;
	struct rows_need need;
	bool loop, listed = is_listed(call, shape);

	find_need(call, &need);
	fewer.grid_x = limits->grid_x < MOST_BLOCKS ? limits->grid_x : MOST_BLOCKS;
	if (listed && fewer.grid_x > limits->multiprocessors * LISTED_BLOCKS)
		fewer.grid_x = limits->multiprocessors * LISTED_BLOCKS;
	loop = rows_launch(&call->form, &need, shape, &fewer, out) || listed;
	/* Without rows a block goes through its loop not once. */
	if (call->rows == 0) {
		out->grid[0] = 1;
		loop = true;
	}
	snprintf(out->source, sizeof(out->source), "ops/cross_entropy%s.cuh",
			 shape->stream ? "_stream" : "");
	plan_print(&id, "cross_entropy_%s<",
			   shape->stream        ? "stream"
			   : shape->cluster > 1 ? "cluster"
									: "rows");
	rows_print_shape(&id, call->dtype, &call->form, shape);
	plan_print(&id, ", %s, %s", truth(call->grad), truth(call->smoothing != 0));
	if (shape->stream)
		plan_print(
			&id, ", CROSS_ENTROPY_%s, %s",
			listed             ? "LISTED"
			: is_bounded(call) ? "BOUNDED"
			: call->cap != 0   ? "CAPPED"
							   : "UNCAPPED",
			truth(is_bounded(call) && shape->vector == 8 && call->columns > BOUNDED_COLUMNS));
	plan_print(&id, ", %s, %s", truth(loop), plan_dtype_name(call->target));
	cross_entropy_print_rows(&id, call, 2);
	plan_print(&id, ", %s>", rows_index_type(&call->form));
	pass_operands(problem, call, out);
	touch(problem, shape->skewed ? 1 : shape->vector, out);
	rows_shape_name(shape, out->choice);
	snprintf(out->note, sizeof(out->note),
			 "rows of %lld classes; threads a row: %u; vectors a thread: %u of %u bytes%s",
			 (long long)call->columns, shape->size * shape->cluster, shape->held,
			 shape->vector * call->element,
			 !shape->stream ? ""
			 : call->grad   ? " at a time, read twice"
							: " at a time");
	return plan_check_name(&id, out, error);
}

/* Kernels of elements, and of f64, take a cap or none. */
static bool generic_is_capped(const struct cross_entropy *call, uint32_t vector)
{
	return vector == 1 || call->element == 8 || call->cap != 0;
}

static int plan_generic(const struct kernel_problem *problem, const struct cross_entropy *call,
						const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct kernel_limits fewer = *limits;
	struct rows_need need;
	struct rows_any any;
	uint32_t places, shared;

	find_need(call, &need);
	fewer.grid_x = limits->grid_x < MOST_BLOCKS ? limits->grid_x : MOST_BLOCKS;
	rows_any(&call->form, &need, 5, ROWS_ANY_THREADS, limits, &any);
	places = rows_any_ring(&call->form, call->element, 1, 1, limits, &any, &shared);
	plan_generic_launch(out, &fewer, "ops/cross_entropy_generic.cuh", any.blocks ? any.blocks : 1,
						any.threads);
	out->shared_bytes = shared;
	plan_print(&id, "cross_entropy_generic<%s, %u, %s>", plan_dtype_name(call->dtype), any.vector,
			   truth(generic_is_capped(call, any.vector)));
	pass_operands(problem, call, out);
	plan_arg_scalar(out, 4, call->target == KILN_I64);
	plan_arg_scalar(out, 8, (uint64_t)call->columns);
	plan_arg_scalar(out, 4, any.shift);
	plan_arg_scalar(out, 8, (uint64_t)call->form.step[0]);
	plan_arg_scalar(out, 4, places);
	rows_pass_sizes(out, &call->form, 8);
	for (int i = 0; i < 2; i++)
		rows_pass_strides(out, &call->form, i);
	touch(problem, 1, out);
	rows_any_describe(&any, call->element, out);
	return KILN_OK;
}

int cross_entropy_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct rows_shape shapes[PLAN_MAX_CHOICES];
	struct cross_entropy call;
	int status = cross_entropy_check(problem, &call, error), count;

	if (status)
		return status;
	/* The sum and the mean of no rows are written, by one block that has none. */
	if (call.rows == 0 && !is_summed(problem, &call)) {
		plan_no_elements(out);
		return KILN_OK;
	}
	if (call.columns == 0)
		call.form.columns = call.columns = 1;
	if (plan_is_generic(choice))
		return plan_generic(problem, &call, limits, out);
	count = find_shapes(&call, limits, shapes);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		rows_shape_name(&shapes[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return plan_shape(problem, &call, &shapes[i], limits, out, error);
	}
	return rows_no_candidate(problem, choice, &call.form, limits, error);
}

/* Each type has two, by vectors and by elements; and another by vectors with a cap. */
int cross_entropy_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64};
	int which = index < 8 ? index / 2 : index - 8;
	const int64_t shape[] = {2, index < 8 && index % 2 ? 3 : 4096};

	if (index >= 11)
		return KILN_ENOENT;
	plan_made_tensor(out, CROSS_ENTROPY_X, dtypes[which], 2, shape);
	plan_made_tensor(out, CROSS_ENTROPY_TARGET, KILN_I64, 1, shape);
	plan_made_tensor(out, CROSS_ENTROPY_LOSS, which == 3 ? KILN_F64 : KILN_F32, 0, NULL);
	if (index >= 8)
		plan_made_int(out, "softcap", 1);
	return KILN_OK;
}
