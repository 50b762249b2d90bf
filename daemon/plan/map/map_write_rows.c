/*
 * map_write_rows.c: the file that is generated for a statement of rows: a structure with a type for
 * each stage, and a kernel that hands both to map_rows of ops/map_rows.cuh.
 */
#include "map_write.h"

#include <stdio.h>

static bool is_sweep(const struct map_loops *loops, int stage)
{
	return loops->stage[stage].fold < 0;
}

static void stage_name(const struct map_loops *loops, int stage, char name[16])
{
	if (is_sweep(loops, stage))
		snprintf(name, 16, "Sweep");
	else
		snprintf(name, 16, "Stage%d", stage);
}

static bool keeps_terms(const struct map_loops *loops)
{
	for (int s = 0; s < loops->stages; s++)
		if (loops->stage[s].keeps)
			return true;
	return false;
}

/* Returns the operands that a stage's threads load with a vector, without those that stand still in
 * a row.  Where a row is held, these are the operands of all stages. */
static uint32_t held_reads(const struct map_loops *loops, int stage)
{
	uint32_t reads = loops->stage[stage].reads;

	for (int s = 0; s < loops->stages && loops->holds; s++)
		reads |= loops->stage[s].reads;
	return reads & ~loops->own;
}

/* The loops as accesses that stand still in a row see them. */
static struct map_loops own_view(const struct map_loops *loops)
{
	struct map_loops view = *loops;

	view.vector_loop = loops->rows || loops->vector == 1 ? -1 : loops->outputs - 1;
	view.vector = view.vector_loop < 0 ? 1 : loops->vector;
	return view;
}

static void write_place(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	struct map_loops view = own_view(loops);

	plan_print(out, "\tstruct Place {\n\t\tOffset none");
	for (int k = 0; k < loops->count; k++)
		plan_print(out, ", i%d", k);
	plan_print(out, ";\n");
	map_write_arrays(map, &view, loops->own, out);
	for (int s = 0; s < loops->stages; s++)
		if (!is_sweep(loops, s))
			plan_print(out, "\t\t%s r%d[%d];\n",
					   map_cpp_name(map->node[map->fold[loops->stage[s].fold].node].type),
					   loops->stage[s].fold, loops->rows ? 1 : loops->vector);
	plan_print(out, "\t};\n");
}

static void write_stage_types(const struct map *map, const struct map_loops *loops,
							  struct plan_text *out)
{
	for (int s = 0; s < loops->stages; s++) {
		const struct map_stage *stage = &loops->stage[s];
		struct map_loops view = map_stage_view(loops, s);
		int node = stage->fold < 0 ? map->value : map->fold[stage->fold].node;
		char name[16];
		stage_name(loops, s, name);
		if (s == 0 || !loops->holds) {
			plan_print(out, "\tstruct Held%d {\n", s);
			map_write_arrays(map, &view, held_reads(loops, s), out);
			for (int k = 0; k < loops->stages; k++)
				if (loops->stage[k].keeps)
					plan_print(out, "\t\tf32 t%d[%d];\n", k, view.vector);
			plan_print(out, "\t};\n");
		}
		plan_print(out,
				   "\tstruct %s {\n\t\ttypedef Held%d Held;\n\t\ttypedef %s Result;\n"
				   "\t\tstatic constexpr int vector = %d;\n"
				   "\t\tstatic constexpr Number count = %lld;\n",
				   name, loops->holds ? 0 : s,
				   map_cpp_name(stage->fold < 0 ? map->result : map->node[node].type), view.vector,
				   map->generic ? 0 : (long long)stage->terms);
		if (stage->fold >= 0)
			map_write_combine((enum map_reduce)map->node[node].which, "\t\t", out);
		plan_print(out, "\t};\n");
	}
}

/* Writes how a stage that has no registers of the ones before works their kept terms out again. */
static void write_again(const struct map_loops *loops, int s, const char *name,
						struct plan_text *out)
{
	if (!keeps_terms(loops))
		return;
	plan_print(out,
			   "\tDEVICE void again(const Place &at, Held0 &held, %s) const\n\t{\n"
			   "\t\tMapStrays strays;\n\t\t(void)at;\n\t\t(void)held;\n",
			   name);
	for (int k = 0; k < s; k++)
		if (loops->stage[k].keeps)
			plan_print(out,
					   "\t\tfor (int v = 0; v < Stage%d::vector; v++)\n"
					   "\t\t\tvalue(at, held, v, strays, Stage%d());\n",
					   k, k);
	plan_print(out, "\t}\n");
}

static void write_stage(const struct map *map, const struct map_loops *loops, int s,
						struct plan_text *out)
{
	const struct map_stage *stage = &loops->stage[s];
	struct map_loops view = map_stage_view(loops, s);
	const struct map_node *node = stage->fold < 0 ? NULL : &map->node[map->fold[stage->fold].node];
	char name[16], tag[20];

	stage_name(loops, s, name);
	snprintf(tag, sizeof(tag), ", %s", name);
	if (!loops->rows) /* vectors lie along the row's index */
		view.vector_loop = -1;
	map_write_place(map, &view, "step", stage->first, stage->last, tag, out);
	view = map_stage_view(loops, s);
	plan_print(out, "\tDEVICE Number terms(%s) const\n\t{\n\t\treturn ", name);
	if (map->generic)
		plan_print(out, "terms%d;\n\t}\n", s);
	else
		plan_print(out, "%s::count;\n\t}\n", name);
	if (s == 0 || !loops->holds) {
		plan_print(out,
				   "\tDEVICE void fetch(const Place &at, Held%d &held) const\n\t{\n"
				   "\t\t(void)at;\n\t\t(void)held;\n",
				   s);
		map_write_loads(map, &view, held_reads(loops, s), "held", out);
		plan_print(out, "\t}\n");
	}
	plan_print(out,
			   "\tDEVICE %s::Result value(const Place &at, %sHeld%d &held, int v, "
			   "MapStrays &strays, %s) const\n\t{\n"
			   "\t\t(void)at;\n\t\t(void)held;\n\t\t(void)v;\n\t\t(void)strays;\n\t\treturn ",
			   name, stage->keeps ? "" : "const ", loops->holds ? 0 : s, name);
	if (stage->keeps)
		plan_print(out, "held.t%d[v] = ", s);
	map_emit(map, &view, node ? node->kid[0] : map->value, node ? node->common : map->result, out);
	plan_print(out, ";\n\t}\n");
	write_again(loops, s, name, out);
	if (node)
		plan_print(out,
				   "\tstatic DEVICE void keep(Place &at, const %s::Result (&all)[%d], %s)\n\t{\n"
				   "\t\tfor (int i = 0; i < %d; i++)\n\t\t\tat.r%d[i] = all[i];\n\t}\n",
				   name, loops->rows ? 1 : loops->vector, name, loops->rows ? 1 : loops->vector,
				   stage->fold);
}

/* Writes the function that returns the place of an element of the output. */
static void write_target(const struct map *map, const struct map_loops *loops,
						 struct plan_text *out)
{
	plan_print(out, "\tDEVICE Offset target(const Place &at) const\n\t{\n"
					"\t\treturn at.none");
	for (int k = 0; k < loops->inner; k++) {
		if (loops->loop[k].last >= map->output_rank)
			continue;
		if (map->generic)
			plan_print(out, " + at.i%d * o%d", k, k);
		else
			plan_print(out, " + at.i%d * static_cast<Offset>(%lld)", k,
					   (long long)map_output_stride(map, loops, k));
	}
	plan_print(out, ";\n\t}\n\tDEVICE Element *output() const\n\t{\n\t\treturn p%d;\n\t}\n",
			   map->output);
}

static void write_structure(const struct map *map, const struct map_loops *loops,
							struct plan_text *out)
{
	int sweep = loops->stages - 1, words = 0;
	struct map_loops view = map_stage_view(loops, sweep), own = own_view(loops), rows = own;
	int64_t apart = view.vector_loop < 0 ? 1 : map_output_stride(map, loops, view.vector_loop);

	for (int s = 0; s < loops->stages; s++)
		if (held_reads(loops, s)) {
			view = map_stage_view(loops, s);
			words = map_held_words(map, &view, held_reads(loops, s));
		}
	view = map_stage_view(loops, sweep);
	plan_print(out, "struct MapStatement {\n\tstatic constexpr int V = %d;\n", loops->vector);
	map_write_types(map, &view, out);
	plan_print(out,
			   "\tstatic constexpr bool holds = %s, keeps = %s;\n"
			   "\tstatic constexpr int words = %d;\n\tstatic constexpr i64 apart = %lld;\n",
			   loops->holds ? "true" : "false", keeps_terms(loops) ? "true" : "false",
			   words > 0 ? words : 1, (long long)apart);
	write_place(map, loops, out);
	write_stage_types(map, loops, out);
	plan_print(out, "\t");
	map_write_values(map, loops, ";\n\t", ";\n", true, out);
	map_write_place(map, &rows, "place", 0, loops->outputs, "", out);
	plan_print(out, "\tDEVICE void own(Place &at) const\n\t{\n\t\t(void)at;\n");
	map_write_loads(map, &own, loops->own, "at", out);
	plan_print(out, "\t}\n");
	map_write_functions(map, loops, out);
	for (int s = 0; s < loops->stages; s++)
		write_stage(map, loops, s, out);
	write_target(map, loops, out);
	plan_print(out, "};\n");
}

void map_write_rows(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	char name[16];

	write_structure(map, loops, out);
	plan_print(out, "template <u64 ID, int THREADS, int SPLIT, bool LOOP>\n"
					"__global__ LAUNCH_BOUNDS(THREADS) void map_statement(");
	map_write_values(map, loops, ", ", ", ", true, out);
	plan_print(out, "u64 rows%s)\n{\n\ttypedef MapStatement Map;\n\tconst Map map = {",
			   map_has_checks(map) ? ", u64 *report" : "");
	map_write_values(map, loops, ", ", "};\n", false, out);
	plan_print(out, "\tmap_rows<THREADS, SPLIT, LOOP, Map::Sweep");
	for (int s = 0; s < loops->stages - 1; s++) {
		stage_name(loops, s, name);
		plan_print(out, ", Map::%s", name);
	}
	plan_print(out, ">(map, rows, %s);\n}\n", map_has_checks(map) ? "report" : "nullptr");
}
