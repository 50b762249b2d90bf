/*
 * map_write.c: writes the source of a statement.  It has a structure that knows where elements are
 * and what each becomes, and a kernel that hands this structure to one of ops/map*.cuh.
 */
#include "map_write.h"

#include <stdio.h>
#include <string.h>

static const char *offset_name(const struct map_loops *loops)
{
	return loops->wide ? "i64" : "i32";
}

static const char *operand_type(const struct map *map, int operand)
{
	return map_element_name(map->problem->tensors[operand].dtype,
							operand == map->output && map->saturates);
}

/* ---- Members ---- */

/* Writes the values that the kernel takes and the structure holds: with their types, or by name. */
struct held_values {
	const char *between, *last;
	bool types;
	int left; /* that follow */
};

static void write_value_of(struct held_values *values, const char *type, const char *name,
						   int number, struct plan_text *out)
{
	plan_print(out, "%s%s", values->types ? type : "", values->types ? " " : "");
	if (number < 0)
		plan_print(out, "%s", name);
	else
		plan_print(out, "%s%d", name, number);
	plan_print(out, "%s", --values->left ? values->between : values->last);
}

/* Number and Offset have no names yet in the parameters of the kernel. */
static const char *size_type(const struct map_loops *loops, const struct map_size *size)
{
	if (strcmp(size->type, "Number") == 0)
		return loops->wide ? "u64" : "u32";
	return strcmp(size->type, "Offset") == 0 ? offset_name(loops) : size->type;
}

void map_write_values(const struct map *map, const struct map_loops *loops, const char *between,
					  const char *last, bool types, struct plan_text *out)
{
	struct map_scalar scalars[KERNEL_MAX_ATTRS * 2];
	struct map_size sizes[MAP_SIZES];
	int count = map_scalars(map, scalars), size_count;
	struct held_values values = {between, last, types, map->operand_count + count};

	map_sizes(map, loops, sizes, &size_count);
	values.left += size_count;
	for (int i = 0; i < map->operand_count; i++) {
		char type[32];
		snprintf(type, sizeof(type), "%s%s *", i == map->output ? "" : "const ",
				 operand_type(map, i));
		write_value_of(&values, type, "p", i, out);
	}
	for (int i = 0; i < count; i++)
		write_value_of(&values, map_cpp_name(scalars[i].type), "s", i, out);
	for (int i = 0; i < size_count; i++)
		write_value_of(&values, size_type(loops, &sizes[i]), sizes[i].name, -1, out);
}

void map_write_types(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	plan_print(out, "\ttypedef %s Number;\n\ttypedef %s Offset;\n", loops->wide ? "u64" : "u32",
			   offset_name(loops));
	plan_print(out, "\ttypedef %s Element;\n", operand_type(map, map->output));
	plan_print(out, "\tstatic constexpr int vector = V, store = %u;\n",
			   map_store_width(map, loops));
	plan_print(out, "\tstatic constexpr bool rows = %s, first = %s, reports = %s, sized = %s;\n",
			   loops->rows ? "true" : "false", map->checked ? "true" : "false",
			   map_has_checks(map) ? "true" : "false", map->generic ? "true" : "false");
}

static void write_sum_types(const struct map *map, const struct map_loops *loops,
							struct plan_text *out)
{
	bool sum = map->reduce != MAP_PLAIN;

	plan_print(out, "\ttypedef %s Result;\n", map_cpp_name(sum ? map_sum_type(map) : map->result));
	plan_print(out, "\tstatic constexpr bool rest = %s, parts = %s;\n",
			   loops->count == 1 ? "true" : "false", loops->pieces > 1 ? "true" : "false");
	if (sum && !map->generic)
		plan_print(
			out, "\tstatic constexpr Number terms = %lld;\n\tstatic constexpr u32 pieces = %lld;\n",
			(long long)(loops->rows ? loops->terms / loops->vector : loops->terms),
			(long long)loops->pieces);
}

/* ---- Where elements are ---- */

/* Turns a number into the places in loops [first, last), the fastest first; the vector's loop
 * counts whole vectors. */
void map_write_place(const struct map *map, const struct map_loops *loops, const char *name,
					 int first, int last, const char *tag, struct plan_text *out)
{
	plan_print(out, "\t%sDEVICE void %s(Number n, Place &at%s)%s\n\t{\n",
			   map->generic ? "" : "static ", name, tag, map->generic ? " const" : "");
	if (first == last)
		plan_print(out, "\t\t(void)n;\n\t\t(void)at;\n");
	for (int k = last - 1; k >= first; k--) {
		const char *times = k == loops->vector_loop ? " * V" : "";
		const char *over = k == loops->vector_loop ? " / V" : "";
		long long extent = loops->loop[k].extent > 0 ? (long long)loops->loop[k].extent : 1;
		if (k > first && map->generic)
			plan_print(out,
					   "\t\tconst Number n%d = Divisor<Number>{e%d_size, e%d_magic, "
					   "e%d_shift}.quotient(n);\n"
					   "\t\tat.i%d = static_cast<Offset>((n - n%d * e%d_size)%s);\n\t\tn = n%d;\n",
					   k, k, k, k, k, k, k, times, k);
		else if (k > first)
			plan_print(out,
					   "\t\tat.i%d = static_cast<Offset>(n %% static_cast<Number>(%lld%s)%s);\n"
					   "\t\tn /= static_cast<Number>(%lld%s);\n",
					   k, extent, over, times, extent, over);
		else
			plan_print(out, "\t\tat.i%d = static_cast<Offset>(n%s);\n", k, times);
	}
	plan_print(out, "\t}\n");
}

void map_write_arrays(const struct map *map, const struct map_loops *loops, uint32_t reads,
					  struct plan_text *out)
{
	for (int i = 0; i < map->access_count; i++)
		if ((reads >> i & 1) && map->access[i].direct)
			plan_print(out, "\t\tu32 a%d[map_words<%s, %d, %lld>];\n", i,
					   operand_type(map, map->access[i].operand), loops->vector,
					   (long long)map_step(map, &map->access[i], loops));
}

static void write_held(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	plan_print(out, "\tstruct Place {\n\t\tOffset none");
	for (int k = 0; k < loops->count; k++)
		plan_print(out, ", i%d", k);
	plan_print(out, ";\n\t};\n\tstruct Held {\n");
	for (int i = 0; i < map->access_count; i++)
		if ((map_reads(map, map->term) >> i & 1) && map->access[i].direct)
			plan_print(out, "\t\tu32 a%d[map_words<%s, V, %lld>];\n", i,
					   operand_type(map, map->access[i].operand),
					   (long long)map_step(map, &map->access[i], loops));
	plan_print(out, "\t};\n");
}

/* " + at.i0 * stride" for the loops along which an access moves. */
static void write_moves(const struct map *map, const struct map_loops *loops, int number,
						struct plan_text *out)
{
	const struct map_access *access = &map->access[number];

	for (int k = 0; k < loops->count; k++) {
		int64_t step = k == map_vector_loop(map, access, loops) ? map_step(map, access, loops) : 2;
		if (!map_moves(map, access, loops, k) || (map->generic && step == 0))
			continue;
		if (!map->generic)
			plan_print(out, " + at.i%d * static_cast<Offset>(%lld)", k,
					   (long long)map_stride(map, access, loops, k));
		else if (step == 1)
			plan_print(out, " + at.i%d", k);
		else
			plan_print(out, " + at.i%d * t%d_%d", k, number, k);
	}
}

void map_write_loads(const struct map *map, const struct map_loops *loops, uint32_t reads,
					 const char *to, struct plan_text *out)
{
	char vector[12];

	/* A statement without rows has a structure for a vector and one for a single element. */
	snprintf(vector, sizeof(vector), "%d", loops->vector);
	for (int i = 0; i < map->access_count; i++) {
		const struct map_access *access = &map->access[i];
		const char *v = loops->stages ? vector : "V";
		bool apart = map->generic && map_step(map, access, loops) == 2;
		if (!(reads >> i & 1) || !access->direct)
			continue;
		if (apart)
			plan_print(out, "\t\tmap_fetch_apart<%s>(p%d + (static_cast<Offset>(0)", v,
					   access->operand);
		else
			plan_print(out, "\t\tmap_fetch<%s, %u, %lld>(p%d + (static_cast<Offset>(%lld)", v,
					   map_width(map, access, loops), (long long)map_step(map, access, loops),
					   access->operand, (long long)access->start);
		write_moves(map, loops, i, out);
		if (apart)
			plan_print(out, "), t%d_%d, %s.a%d);\n", i, map_vector_loop(map, access, loops), to, i);
		else
			plan_print(out, "), %s.a%d);\n", to, i);
	}
}

static void write_fetch(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	plan_print(out, "\tDEVICE void fetch(const Place &at, Held &held) const\n\t{\n"
					"\t\t(void)at;\n\t\t(void)held;\n");
	map_write_loads(map, loops, map_reads(map, map->term), "held", out);
	plan_print(out, "\t}\n");
}

/* ---- Values ---- */

static void write_value(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	enum map_type as = map->reduce == MAP_PLAIN ? map->result : map_sum_type(map);

	if (map->reduce == MAP_ANY || map->reduce == MAP_ALL)
		as = MAP_BOOL;
	plan_print(out,
			   "\tDEVICE Result value(const Place &at, const Held &held, int v, MapStrays &strays) "
			   "const\n\t{\n\t\t(void)at;\n\t\t(void)held;\n\t\t(void)v;\n\t\t(void)strays;\n"
			   "\t\treturn ");
	map_emit(map, loops, map->term, as, out);
	plan_print(out, ";\n\t}\n");
}

/* Writes the operations on the result of a sum, with the elements that they read besides. */
static void write_finish(const struct map *map, const struct map_loops *loops,
						 struct plan_text *out)
{
	uint32_t reads = map->term == map->value ? 0 : map_reads(map, map->value);

	plan_print(out, "\tstruct Last {\n");
	map_write_arrays(map, loops, reads, out);
	plan_print(out, "\t};\n\tDEVICE void fetch(const Place &at, Last &last) const\n\t{\n"
					"\t\t(void)at;\n\t\t(void)last;\n");
	map_write_loads(map, loops, reads, "last", out);
	plan_print(out,
			   "\t}\n\tDEVICE %s finish(const Place &at, const Last &held, int v, Result sum, "
			   "MapStrays &strays) const\n\t{\n\t\t(void)at;\n\t\t(void)held;\n\t\t(void)v;\n"
			   "\t\t(void)strays;\n\t\treturn ",
			   map_cpp_name(map->term == map->value ? map_sum_type(map) : map->result));
	if (map->term == map->value)
		plan_print(out, "sum");
	else
		map_emit(map, loops, map->value, map->result, out);
	plan_print(out, ";\n\t}\n");
}

/* ---- The file ---- */

static void write_structure(const struct map *map, const struct map_loops *loops,
							struct plan_text *out)
{
	plan_print(out, "template <int V>\nstruct MapStatement {\n");
	map_write_types(map, loops, out);
	write_sum_types(map, loops, out);
	write_held(map, loops, out);
	plan_print(out, "\t");
	map_write_values(map, loops, ";\n\t", ";\n", true, out);
	map_write_place(map, loops, "place", 0, loops->outputs, "", out);
	map_write_place(map, loops, "term", loops->outputs, loops->inner, "", out);
	write_fetch(map, loops, out);
	map_write_functions(map, loops, out);
	write_value(map, loops, out);
	if (map->reduce != MAP_PLAIN) {
		map_write_combine(map->reduce, "\t", out);
		write_finish(map, loops, out);
	}
	plan_print(out, "\tDEVICE Element *output() const\n\t{\n\t\treturn p%d;\n\t}\n};\n",
			   map->output);
}

static void write_kernel(const struct map *map, const struct map_loops *loops,
						 struct plan_text *out)
{
	bool sum = map->reduce != MAP_PLAIN;

	plan_print(out,
			   "template <u64 ID, int THREADS, int %s, bool LOOP>\n"
			   "__global__ LAUNCH_BOUNDS(THREADS) void map_statement(",
			   sum ? "SPLIT" : "UNROLL");
	map_write_values(map, loops, ", ", ", ", true, out);
	plan_print(out, "u64 elements%s%s)\n{\n", loops->pieces > 1 ? ", void *scratch" : "",
			   map_has_checks(map) ? ", u64 *report" : "");
	plan_print(out, "\tconst MapStatement<%d> map = {", loops->vector);
	map_write_values(map, loops, ", ", "};\n", false, out);
	if (!sum) {
		plan_print(out, "\tconst MapStatement<1> one = {");
		map_write_values(map, loops, ", ", "};\n", false, out);
	}
	plan_print(out, "\tmap_%s<THREADS, %s, LOOP>(map%s, elements, %s%s);\n}\n",
			   sum ? "reduce" : "elements", sum ? "SPLIT" : "UNROLL", sum ? "" : ", one",
			   !sum                ? ""
			   : loops->pieces > 1 ? "scratch, "
								   : "nullptr, ",
			   map_has_checks(map) ? "report" : "nullptr");
}

bool map_write(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	/* The first line is the statement's, which has no line ends once it is parsed into words. */
	plan_print(out, "// ");
	for (const char *at = map->text; *at; at++)
		plan_print(out, "%c", *at == '\n' ? ' ' : *at);
	plan_print(out, "\n");
	if (map_has_rows(map)) {
		map_write_rows(map, loops, out);
		return !out->full;
	}
	write_structure(map, loops, out);
	write_kernel(map, loops, out);
	return !out->full;
}
