/*
 * norm_way.c: the ways to take a row of layer_norm or rms_norm, and which of them the figures of an
 * H200 speak for.  Wrapped rows are in norm_wrap.c, blocks that stay in norm_ring.c.
 */
#include "norm.h"

#include <string.h>

/* 32-bit words of rows in the registers of a thread at most. */
#define NORM_REGISTERS 40
/* Registers that a thread needs beside them. */
#define NORM_BESIDE 40
/* Blocks of wrapped rows that a multiprocessor is to have room for. */
#define WRAP_BLOCKS 4
/* Rows of x that begin elsewhere than those of y are wrapped if they have so many vectors. */
#define APART_VECTORS 32
/* Candidates of rows that are each held by themselves; others come behind them. */
#define NORM_SHAPES 48

uint32_t norm_element(const struct norm_problem *norm)
{
	return kernel_dtype_bytes(norm->dtype);
}

static struct rows_need need_of(const struct norm_problem *norm, uint32_t together)
{
	struct rows_need need = norm->need;

	need.element = norm_element(norm);
	need.streams = together * (norm->residual >= 0 ? 2 : 1);
	need.registers = NORM_REGISTERS;
	need.along = norm->at.gamma >= 0 || norm->at.beta >= 0;
	need.skew = together == 1;
	need.slots = need.clusters = need.drawn = true;
	need.stream = together == 1;
	return need;
}

/* 32-bit words of numbers that a thread computes with. */
static uint32_t numbers(const struct norm_problem *norm, const struct norm_way *way)
{
	const struct rows_shape *shape = &way->shape;
	uint32_t element = norm_element(norm), inputs = norm->residual >= 0 ? 2 : 1;
	uint32_t elements = (shape->held - shape->slots) * shape->vector * way->together;

	if (element == 2 && elements > 32 && !way->each)
		return elements / 2 * inputs + 16; /* they stay halves; some of them are numbers */
	return elements * (element == 8 ? 2 : 1);
}

/*
 * Does a thread have registers enough?  Edges in every vector take many, and the compiler long: of
 * skewed rows most is to lie in slots, which are gone through in turn.
 */
static bool norm_way_fits(const struct norm_problem *norm, const struct norm_way *way)
{
	const struct rows_shape *shape = &way->shape;
	uint32_t threads = shape->size * shape->rows, most = 65536 / threads / 8 * 8;

	if (shape->stream || way->piece || way->stages)
		return true;
	if (shape->skewed && !way->each && (shape->held - shape->slots) * shape->vector > 16)
		return false;
	return numbers(norm, way) + NORM_BESIDE <= most;
}

void norm_keep(struct norm_ways *ways, const struct norm_way *way)
{
	for (int i = 0; i < ways->count; i++)
		if (memcmp(&ways->way[i], way, sizeof(*way)) == 0)
			return;
	if (ways->count < NORM_MAX_WAYS && norm_way_fits(ways->norm, way))
		ways->way[ways->count++] = *way;
}

static void offer_shapes(struct norm_ways *ways, const struct rows_shape *shapes, int count,
						 uint32_t together, int most)
{
	most += ways->count;
	for (int i = 0; i < count && ways->count < most; i++)
		norm_keep(ways, &(struct norm_way){.shape = shapes[i], .together = together});
}

/* Gamma and beta of slots come from the L2 cache while nothing else is to do: several at a time
 * wait less, and take more registers. */
static void offer_turns(struct norm_ways *ways)
{
	int count = ways->count, offered = 0;

	for (int i = 0; i < count && offered < 6; i++) {
		struct norm_way way = ways->way[i];
		if (way.each || way.stages || way.shape.stream || way.shape.skewed || way.shape.slots < 4)
			continue;
		for (way.turn = 2; way.turn <= 4; way.turn *= 2)
			norm_keep(ways, &way);
		offered++;
	}
}

/* Short rows of words that come one by one: two rows together, so that a warp has enough under
 * way. */
static void offer_apart(struct norm_ways *ways)
{
	uint32_t columns = ways->norm->form.columns <= 128 ? (uint32_t)ways->norm->form.columns : 0;
	uint32_t size = columns <= 32 ? 16 : 32;
	struct norm_way way = {.together = 2};

	way.shape = (struct rows_shape){.vector = 1,
									.held = (columns + size - 1) / size,
									.size = size,
									.rows = 128 / size,
									.cluster = 1};
	if (columns >= 32)
		norm_keep(ways, &way);
}

/* Do rows of inputs begin elsewhere between two vectors than those of y, whose elements lie side by
 * side as theirs do, and does less than 8 bytes move at once? */
static bool norm_apart(const struct norm_problem *norm, const struct rows_need *need)
{
	const struct rows_form *form = &norm->form;
	uint32_t wide = 16 / need->element;

	for (int i = 0; i < form->operands; i++)
		if (form->step[i] != 1)
			return false;
	return !norm->pieces && need->alignment >= 16 && form->columns >= APART_VECTORS * wide &&
		   rows_vector(form, need) * need->element < 8 && !rows_congruent(form, need);
}

/*
 * Rows in registers, the best ones that were timed: of layer_norm for lengths that no table has; of
 * rms_norm, which agrees on one number, of f32, by few vectors a thread, and many where rows are
 * long.
 */
static void offer_known(struct norm_ways *ways)
{
	static const uint32_t others[] = {8, 7, 9};
	const struct norm_problem *norm = ways->norm;
	uint32_t vector = 16 / norm_element(norm), held = 0;
	uint64_t vectors = (uint64_t)norm->form.columns / vector;
	bool tabled = (vectors & (vectors - 1)) == 0;
	struct norm_way way = {.together = 1};

	if (norm->residual >= 0 || norm->at.gamma < 0)
		return;
	if (norm->rms) {
		if (vector == 4 && vectors > 768 && vectors <= 1024)
			held = tabled ? 1 : 2;
		else if (vector == 4 && vectors > 4096 && vectors <= 6144)
			held = 8;
		way.together = held == 1 ? 2 : 1;
	} else if (norm->at.beta >= 0 && !tabled) {
		if (vector == 8 && vectors > 1600 && vectors <= 3840)
			held = vectors <= 2432 ? 5 : 10;
		else if (vector == 8 && vectors >= 896 && vectors % (7 * 32) == 0)
			held = 5;
		else if (vector == 4 && vectors > 2048 && vectors <= 4480)
			held = vectors <= 4096 ? (uint32_t)plan_divide_up(vectors, 512) : 10;
		else if (vector == 4 && vectors > 4480 && vectors <= 6144)
			held = 12;
	}
	/* If threads hold exactly the vectors of a row, the compiler makes numbers of all of them at
	 * once, which took half as long again when it was timed. */
	for (size_t i = 0; held > 5 && vector == 8 && i < 3; i++)
		if (rows_group(vectors, held) * held == vectors)
			held = others[i];
	if (!held)
		return;
	way.shape = (struct rows_shape){
		.vector = vector, .held = held, .size = rows_group(vectors, held), .rows = 1, .cluster = 1};
	if (held == 12) {
		way.shape.slots = 6;
		way.turn = 4;
	}
	if (way.shape.size <= ways->limits->max_threads)
		norm_keep(ways, &way);
}

/*
 * Adds a block for each row, for lengths that no table has: a row that several warps hold waits for
 * no other row then, and neither does one of which a single warp holds much.
 */
static void offer_alone(struct norm_ways *ways, struct rows_shape shape)
{
	int64_t columns = ways->norm->form.columns;
	uint32_t least = shape.size >= 96 ? 1 : shape.size >= 64 ? 3 : 5;

	if ((columns & (columns - 1)) == 0 || columns == 768 || shape.size < 32 || shape.rows == 1 ||
		shape.held < least || shape.stream)
		return;
	shape.rows = 1;
	norm_keep(ways, &(struct norm_way){.shape = shape, .together = 1});
}

void norm_ways(const struct norm_problem *norm, const struct kernel_limits *limits,
			   struct norm_ways *ways)
{
	struct rows_shape shapes[NORM_MAX_WAYS];
	struct rows_need need = need_of(norm, 1);
	int count = rows_shapes(&norm->form, &need, limits, shapes, NORM_MAX_WAYS);
	bool skewed = false, wide = count, clusters = false, crowded;

	for (int i = 0; i < count; i++) {
		skewed = skewed || shapes[i].skewed;
		clusters = clusters || shapes[i].cluster > 1;
		wide = wide && !skewed && shapes[i].vector * norm_element(norm) == 16;
	}

	ways->norm = norm;
	ways->limits = limits;
	ways->apart = norm_apart(norm, &need);
	ways->count = 0;
	norm_offer_staged(ways);
	/* Planes of gamma and beta that are large leave room for too few blocks. */
	crowded = (skewed || ways->apart) &&
			  WRAP_BLOCKS * norm_wrap_bytes(norm, false) > limits->shared_optin;
	/* Halves need none of them: they are cut out of vectors. */
	if ((skewed || ways->apart) && (!crowded || norm_element(norm) == 2))
		norm_offer_wraps(ways);
	/* Rows of f32 beyond a block: gamma and beta, which are as long, come in once. */
	if (wide && clusters && norm_element(norm) == 4 && norm->form.columns > 32768)
		norm_offer_rings(ways, clusters);
	if (wide && need.along)
		offer_known(ways);
	if (wide && count && need.along && shapes[0].slots >= 4 && shapes[0].cluster == 1)
		norm_keep(ways, &(struct norm_way){.shape = shapes[0],
										   .together = 1,
										   .turn = norm_element(norm) == 2 ? 4 : 2});
	if (count && shapes[0].vector == 1 && norm_element(norm) == 4)
		offer_apart(ways);
	if (count && !skewed && shapes[0].vector * norm_element(norm) >= 8)
		offer_alone(ways, shapes[0]);
	offer_shapes(ways, shapes, count, 1, skewed && !crowded ? NORM_MAX_WAYS : NORM_SHAPES);
	for (uint32_t together = 2; together <= 3 && !skewed; together++) {
		need = need_of(norm, together);
		count = rows_shapes(&norm->form, &need, limits, shapes, NORM_MAX_WAYS);
		offer_shapes(ways, shapes, count, together, 6);
	}
	if (need.along && wide)
		offer_turns(ways);
	if (crowded && norm_element(norm) != 2)
		norm_offer_wraps(ways);
	if (wide)
		norm_offer_rings(ways, clusters);
}

void norm_way_name(const struct norm_way *way, char name[KERNEL_CHOICE_MAX])
{
	const struct rows_shape *shape = &way->shape;
	struct plan_text text = {.text = name, .size = KERNEL_CHOICE_MAX};

	if (way->each) {
		plan_print(&text, "wrap %ux%u r%u e%u%s%s", shape->size, shape->held, shape->rows,
				   way->each,
				   way->wide      ? " wide"
				   : way->windows ? " windows"
								  : "",
				   way->apart ? " apart" : "");
		return;
	}
	if (way->piece) {
		plan_print(&text, "staged %ux%u r%u", shape->size, shape->held, way->piece);
		return;
	}
	if (way->stages) {
		plan_print(&text, "ring%u %ux%u s%u", shape->cluster, shape->size, shape->held,
				   way->stages);
		return;
	}
	rows_shape_name(shape, name);
	text.used = strlen(name);
	if (way->together > 1)
		plan_print(&text, " t%u", way->together);
	if (way->turn)
		plan_print(&text, " u%u", way->turn);
}

bool norm_launch(const struct norm_problem *norm, const struct norm_way *way,
				 const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct rows_need need = need_of(norm, way->together);
	struct rows_form form = norm->form;
	uint32_t taken = way->piece  ? way->piece / way->shape.rows
					 : way->each ? way->each * way->together
								 : way->together;
	bool loop;

	/* The rows that a group takes together count as one row. */
	form.rows = (form.rows + taken - 1) / taken;
	loop = rows_launch(&form, &need, &way->shape, limits, out);
	if (way->each)
		out->shared_bytes = way->windows ? 0 : norm_wrap_bytes(norm, way->wide);
	if (way->piece)
		out->shared_bytes = norm_staged_bytes(norm, way);
	if (way->stages) {
		uint32_t blocks = norm_ring_blocks(way, limits);
		out->shared_bytes = norm_ring_bytes(way, way->stages);
		if (out->grid[0] > blocks)
			out->grid[0] = blocks;
	}
	return loop;
}

void norm_note(const struct norm_problem *norm, const struct norm_way *way, struct kernel_plan *out)
{
	const struct rows_shape *shape = &way->shape;
	struct plan_text text = {.text = out->note, .size = sizeof(out->note)};

	plan_print(&text, "rows of %lld elements; threads a row: %u; vectors a thread: %u of %u bytes",
			   (long long)norm->form.columns, shape->size * shape->cluster, shape->held,
			   shape->vector * norm_element(norm));
	if (way->together > 1)
		plan_print(&text, ", %u rows together", way->together);
	if (way->stages)
		plan_print(&text, "; blocks stay, and take one row after another");
	if (way->each && !way->windows)
		plan_print(&text, "; gamma and beta by way of shared memory, for rows begin between two "
						  "vectors");
}
