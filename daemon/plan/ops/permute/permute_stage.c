/*
 * permute_stage.c: transposes of unaligned rows, staged in shared memory as they are.
 */
#include "permute.h"

static bool permute_stage_find(const struct permute_form *form, struct permute_matrix *matrix,
							   bool *run, struct plan_text *why)
{
	if (form->element > 4 ||
		!permute_skewed_find(form, form->element == 4 ? 64 : 128, "stage", matrix, run, why))
		return false;
	/* Rows of shared memory are at equal distances, as those of x have to be. */
	if (matrix->row_mask & (matrix->row_mask - 1)) {
		plan_print(why, "not stage: rows are of several dimensions; ");
		return false;
	}
	return true;
}

/* ---- The kernel's geometry ---- */

static uint32_t up(uint32_t n)
{
	return (n + 15) / 16 * 16;
}

/* Bytes between rows in shared memory: congruent to those in x, and no two rows in one aligned
 * piece, wherever they begin; an odd number of pieces if it is a whole one. */
static uint32_t pitch_of(const struct permute_form *form, uint32_t columns)
{
	uint32_t element = form->element, bytes = columns * element;
	uint32_t pitch = (uint32_t)(form->dim[form->rank - 1].from % 16 * element % 16);

	for (uint32_t begin = 0; begin < 16; begin += element)
		while ((begin + pitch) / 16 * 16 < up(begin + bytes))
			pitch += 16;
	return pitch % 32 == 0 ? pitch + 16 : pitch;
}

static uint32_t stage_bytes(const struct permute_form *form, const struct permute_choice *c)
{
	uint32_t element = form->element, rows = c->rows + c->store / element - 1;
	uint32_t pieces = (c->columns * element + 31 - element) / 16;

	return up((rows - 1) * pitch_of(form, c->columns) + pieces * 16 + 16);
}

/* ---- Making ---- */

static bool geometry(const struct permute_choice *c, bool run, uint32_t element,
					 struct plan_text *why)
{
	const char *rule = NULL;
	uint32_t words = c->store ? c->rows * element / c->store : 0;

	if (c->store != 4 && c->store != 8)
		rule = "stores are 4 or 8 bytes";
	else if (!c->rows || c->rows > 1024 || (!run && (c->rows * element % c->store)))
		rule = "rows are all there are, or whole stores, 1024 at most";
	else if (!c->columns || c->columns > 1024)
		rule = "columns are 1 to 1024";
	else if (c->threads < 32 || c->threads % 32 || c->threads > 1024 ||
			 (!run && c->threads % words))
		rule = "threads are whole warps, and whole columns of stores";
	else if (!c->resident || c->resident * c->threads > 2048 || c->resident > 16)
		rule = "a multiprocessor has 2048 threads and 16 blocks at most";
	else if (c->band > 1)
		rule = "orders are r and c";
	if (rule)
		plan_print(why, "%s", rule);
	return !rule;
}

static bool permute_stage_make(const struct permute_form *form, const struct kernel_limits *limits,
							   const struct permute_choice *c, struct kernel_plan *out,
							   struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct permute_matrix matrix;
	uint64_t blocks;
	bool loop, run;

	if (!permute_stage_find(form, &matrix, &run, why))
		return false;
	run = run && c->rows == matrix.rows;
	if (!geometry(c, run, form->element, why) ||
		!permute_skewed_fits(c, stage_bytes(form, c), limits, why))
		return false;
	out->shared_bytes = stage_bytes(form, c);
	permute_batch(form, matrix.row_mask | matrix.column_mask, c->band == 1, &matrix.batch);
	blocks = permute_matrix_blocks(&matrix, c);
	loop = plan_launch(out, limits, blocks, c->threads);
	plan_print(&id, "permute_stage<%u, %u, %u, %u, %s, %u, %u, %u, %lld, %lld, %lld", form->element,
			   c->store, c->rows, c->columns, run ? "true" : "false", c->threads, c->resident,
			   pitch_of(form, c->columns), (long long)matrix.rows, (long long)matrix.columns,
			   (long long)form->dim[form->rank - 1].from);
	permute_matrix_print_columns(form, &matrix, &id);
	permute_print_batch(&id, form, &matrix.batch);
	plan_print(&id, ", %s, %s>", permute_offset_type_bytes(form, matrix.batch.outer),
			   loop ? "true" : "false");
	permute_batch_args(out, form, &matrix.batch, blocks);
	out->extents[0].alignment = out->extents[1].alignment = form->element;
	plan_print(why,
			   "%lld rows by %lld columns, which begin anywhere, staged %u by %u, %u bytes a "
			   "store",
			   (long long)matrix.rows, (long long)matrix.columns, c->rows, c->columns, c->store);
	return !id.full;
}

/* ---- Suggesting ---- */

/* Picks as many blocks as threads and shared memory let a multiprocessor hold. */
static uint32_t pick_resident(const struct permute_form *form, const struct permute_choice *c,
							  const struct kernel_limits *limits)
{
	uint32_t by_threads = 2048 / c->threads;
	uint32_t by_shared = (limits->shared_optin + 1024) / (stage_bytes(form, c) + 1024);

	return by_shared < 1 ? 1 : by_shared < by_threads ? by_shared : by_threads;
}

static void suggest_threads(struct permute_list *list, const struct permute_choice *tile)
{
	static const uint32_t threads[] = {512, 256, 1024};

	for (uint32_t store = 8; store >= 4; store /= 2) {
		for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++) {
			struct permute_choice c = *tile;
			c.store = store;
			c.threads = threads[i];
			c.resident = pick_resident(list->form, &c, list->limits);
			permute_suggest(list, &c);
		}
	}
}

static void permute_stage_suggest(struct permute_list *list, struct plan_text *why)
{
	const uint32_t element = list->form->element, side = element == 4 ? 64 : 128;
	struct permute_matrix matrix;
	struct permute_choice c = {.rows = side, .columns = side, .store = 8};
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	bool run;

	/* The note does not mention that rows are aligned. */
	if (!permute_stage_find(list->form, &matrix, &run, &unsaid))
		return;
	if (run) {
		c.rows = (uint32_t)matrix.rows;
		const uint64_t columns = (uint64_t)matrix.columns;
		c.columns = (uint32_t)permute_tiles(columns, permute_tiles(columns, 1024));
		while (c.columns * element > 64 &&
			   stage_bytes(list->form, &c) > list->limits->shared_optin / 3 - 1024)
			c.columns = (uint32_t)permute_tiles(columns, permute_tiles(columns, c.columns - 1));
	}
	/* Runs of y are long enough by themselves. */
	c.band = run ? 1 : PERMUTE_BAND_ALL;
	suggest_threads(list, &c);
	if (list->count) {
		struct permute_choice other = list->choice[0];
		other.band = run ? PERMUTE_BAND_ALL : 1;
		permute_suggest(list, &other);
	}
	c.columns = run ? (c.columns + 1) / 2 : 2 * side;
	suggest_threads(list, &c);
	if (!run) {
		c.columns = permute_even_side(matrix.columns, side, 1, 0);
		suggest_threads(list, &c);
	}
	if (list->count == 0)
		plan_print(why, "not stage: no tile fits a block; ");
}

const struct permute_variant permute_stage = {
	.name = "stage",
	.source = "ops/permute_stage.cuh",
	.fields = "xstmo",
	.suggest = permute_stage_suggest,
	.make = permute_stage_make,
};
