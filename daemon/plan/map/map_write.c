/*
 * map_write.c: the file that is generated for a statement: a structure that knows where its
 * elements are and what each becomes, and a kernel that hands it to one of ops/map.cuh.
 */
#include "map.h"

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

bool map_has_checks(const struct map *map)
{
	if (map->bounds != MAP_CHECK && !map->checked)
		return false;
	for (int i = 0; i < map->access_count; i++) {
		const struct map_access *access = &map->access[i];
		for (int k = 0; k < map->node[access->node].kids; k++)
			if (!access->direct && !access->subscript[k].within)
				return true;
	}
	return false;
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

static void write_values(const struct map *map, const struct map_loops *loops, const char *between,
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

static void write_types(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	bool sum = map->reduce != MAP_PLAIN;

	plan_print(out, "\ttypedef %s Number;\n\ttypedef %s Offset;\n", loops->wide ? "u64" : "u32",
			   offset_name(loops));
	plan_print(out, "\ttypedef %s Element;\n\ttypedef %s Result;\n", operand_type(map, map->output),
			   map_cpp_name(sum ? map_sum_type(map) : map->result));
	plan_print(out, "\tstatic constexpr int vector = V, store = %u;\n",
			   map_store_width(map, loops));
	plan_print(out, "\tstatic constexpr bool rows = %s, first = %s, reports = %s, rest = %s;\n",
			   loops->rows ? "true" : "false", map->checked ? "true" : "false",
			   map_has_checks(map) ? "true" : "false", loops->count == 1 ? "true" : "false");
	plan_print(out, "\tstatic constexpr bool parts = %s, sized = %s;\n",
			   loops->pieces > 1 ? "true" : "false", map->generic ? "true" : "false");
	if (sum && !map->generic)
		plan_print(
			out, "\tstatic constexpr Number terms = %lld;\n\tstatic constexpr u32 pieces = %lld;\n",
			(long long)(loops->rows ? loops->terms / loops->vector : loops->terms),
			(long long)loops->pieces);
}

/* ---- Where elements are ---- */

/* Turns a number into the places in loops [first, last), the fastest first; the vector's loop
 * counts whole vectors. */
static void write_place(const struct map *map, const struct map_loops *loops, const char *name,
						int first, int last, struct plan_text *out)
{
	plan_print(out, "\t%sDEVICE void %s(Number n, Place &at)%s\n\t{\n",
			   map->generic ? "" : "static ", name, map->generic ? " const" : "");
	if (first == last)
		plan_print(out, "\t\t(void)n;\n\t\t(void)at;\n");
	for (int k = last - 1; k >= first; k--) {
		const char *times = k == loops->vector_loop ? " * V" : "";
		const char *over = k == loops->vector_loop ? " / V" : "";
		long long extent = (long long)loops->loop[k].extent;
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

static void write_held(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	plan_print(out, "\tstruct Place {\n\t\tOffset none");
	for (int k = 0; k < loops->count; k++)
		plan_print(out, ", i%d", k);
	plan_print(out, ";\n\t};\n\tstruct Held {\n");
	for (int i = 0; i < map->access_count; i++)
		if (map->access[i].direct)
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
		int64_t step = k == loops->vector_loop ? map_step(map, access, loops) : 2;
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

static void write_fetch(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	plan_print(out, "\tDEVICE void fetch(const Place &at, Held &held) const\n\t{\n"
					"\t\t(void)at;\n\t\t(void)held;\n");
	for (int i = 0; i < map->access_count; i++) {
		const struct map_access *access = &map->access[i];
		if (!access->direct)
			continue;
		if (map->generic && map_step(map, access, loops) == 2)
			plan_print(out, "\t\tmap_fetch_apart<V>(p%d + (static_cast<Offset>(0)",
					   access->operand);
		else
			plan_print(out, "\t\tmap_fetch<V, %u, %lld>(p%d + (static_cast<Offset>(%lld)",
					   map_width(map, access, loops), (long long)map_step(map, access, loops),
					   access->operand, (long long)access->start);
		write_moves(map, loops, i, out);
		if (map->generic && map_step(map, access, loops) == 2)
			plan_print(out, "), t%d_%d, held.a%d);\n", i, loops->vector_loop, i);
		else
			plan_print(out, "), held.a%d);\n", i);
	}
	plan_print(out, "\t}\n");
}

/* The number of an element, and of a term in it, in the order of all indices. */
static void write_position(const struct map *map, const struct map_loops *loops,
						   struct plan_text *out)
{
	plan_print(out,
			   "\t%sDEVICE u64 position(const Place &at, int v)%s\n\t{\n"
			   "\t\tu64 n = 0;\n\t\t(void)at;\n\t\t(void)v;\n",
			   map->generic ? "" : "static ", map->generic ? " const" : "");
	for (int k = 0; k < loops->count; k++) {
		const char *v = k == loops->vector_loop ? " + v" : "";
		if (!map->generic)
			plan_print(out, "\t\tn = n * %lldull + static_cast<u64>(at.i%d%s);\n",
					   (long long)loops->loop[k].extent, k, v);
		else if (k == 0)
			plan_print(out, "\t\tn = static_cast<u64>(at.i0%s);\n", v);
		else
			plan_print(out, "\t\tn = n * e%d_size%s + static_cast<u64>(at.i%d%s);\n", k,
					   k == loops->vector_loop ? " * V" : "", k, v);
	}
	plan_print(out, "\t\treturn n;\n\t}\n");
}

/* ---- Accesses that are not direct ---- */

static int first_number(const struct map *map, int access)
{
	int number = 0;

	for (int i = 0; i < access; i++)
		number += map->node[map->access[i].node].kids;
	return number;
}

static void write_subscripts(const struct map *map, const struct map_loops *loops, int number,
							 struct plan_text *out)
{
	const struct map_access *access = &map->access[number];
	const struct map_node *node = &map->node[access->node];
	const struct kernel_tensor *tensor = &map->problem->tensors[access->operand];

	for (int k = 0; k < node->kids; k++) {
		const struct map_node *kid = &map->node[node->kid[k]];
		plan_print(out, "\t\tconst %s d%d = ", map_cpp_name(kid->type), k);
		/* A dimension of size 1 goes with any index. */
		if (map->generic && kid->kind == MAP_INDEX)
			plan_print(out, "z%d_%d == 1 ? 0 : ", number, k);
		if (!map->generic && tensor->shape[k] == 1 && kid->kind == MAP_INDEX &&
			!(k == 0 && map_is_batch_of_one(map, kid->which)))
			plan_print(out, "0");
		else
			map_emit(map, loops, node->kid[k], kid->type, out);
		plan_print(out, ";\n");
		if (access->subscript[k].within)
			continue;
		if (map->generic)
			plan_print(out, "\t\tconst bool in%d = map_within_of(d%d, z%d_%d);\n", k, k, number, k);
		else
			plan_print(out, "\t\tconst bool in%d = map_within<%lld>(d%d);\n", k,
					   (long long)tensor->shape[k], k);
		if (map->checked)
			plan_print(out, "\t\tstrays.note(in%d, position(at, v), %d);\n", k,
					   first_number(map, number) + k);
	}
}

static void write_take(const struct map *map, const struct map_loops *loops, int number,
					   struct plan_text *out)
{
	const struct map_access *access = &map->access[number];
	const struct map_node *node = &map->node[access->node];
	const struct kernel_tensor *tensor = &map->problem->tensors[access->operand];
	const char *type = map_cpp_name(node->type);
	bool clamps = map->bounds == MAP_CLAMP;
	int64_t elements;

	plan_print(out,
			   "\tDEVICE %s take%d(const Place &at, const Held &held, int v, MapStrays &strays) "
			   "const\n\t{\n\t\t(void)at;\n\t\t(void)held;\n\t\t(void)v;\n\t\t(void)strays;\n",
			   type, number);
	write_subscripts(map, loops, number, out);
	plan_print(out, "\t\tconst bool in = true");
	for (int k = 0; k < node->kids && !clamps; k++)
		if (!access->subscript[k].within)
			plan_print(out, " && in%d", k);
	plan_print(out, ";\n");
	if (map->bounds == MAP_CHECK && !map->checked && map_has_checks(map))
		plan_print(out, "\t\tstrays.count += !in;\n");
	plan_elements(tensor, &elements);
	if (elements == 0) {
		plan_print(out, "\t\t(void)in;\n\t\treturn %s();\n\t}\n", type);
		return;
	}
	plan_print(out, "\t\tOffset offset = 0;\n");
	for (int k = 0; k < node->kids; k++) {
		bool within = access->subscript[k].within;
		const char *how = within ? "trusted" : clamps ? "clamped" : "masked";
		if (map->generic)
			plan_print(out, "\t\toffset += map_%s_of<Offset>(d%d, z%d_%d) * u%d_%d;\n", how, k,
					   number, k, number, k);
		else
			plan_print(
				out, "\t\toffset += map_%s<%lld, Offset>(d%d) * static_cast<Offset>(%lld);\n", how,
				within ? 0 : (long long)tensor->shape[k], k,
				(long long)(k ? tensor->stride[k]
							  : plan_batch_stride(tensor->rank, tensor->shape, tensor->stride)));
	}
	plan_print(out,
			   "\t\tconst %s value = map_load(p%d + offset);\n\t\treturn in ? value : %s();\n\t}\n",
			   type, access->operand, type);
}

/* ---- Values ---- */

static void write_value(const struct map *map, const struct map_loops *loops, struct plan_text *out)
{
	enum map_type as = map->reduce == MAP_PLAIN ? map->result : map_sum_type(map);

	plan_print(out,
			   "\tDEVICE Result value(const Place &at, const Held &held, int v, MapStrays &strays) "
			   "const\n\t{\n\t\t(void)at;\n\t\t(void)held;\n\t\t(void)v;\n\t\t(void)strays;\n"
			   "\t\treturn ");
	map_emit(map, loops, map->value, as, out);
	plan_print(out, ";\n\t}\n");
}

static void write_sum(const struct map *map, struct plan_text *out)
{
	static const char *const identities[] = {NULL, "map_zero", "map_one", "map_highest",
											 "map_lowest"};
	static const char *const functions[] = {NULL, "map_add", "map_mul", "map_min", "map_max"};

	if (map->reduce == MAP_PLAIN)
		return;
	plan_print(out,
			   "\tstatic DEVICE Result identity()\n\t{\n\t\treturn %s<Result>();\n\t}\n"
			   "\tstatic DEVICE Result combine(Result a, Result b)\n\t{\n\t\treturn %s(a, b);\n"
			   "\t}\n",
			   identities[map->reduce], functions[map->reduce]);
}

/* ---- The file ---- */

static void write_structure(const struct map *map, const struct map_loops *loops,
							struct plan_text *out)
{
	plan_print(out, "template <int V>\nstruct MapStatement {\n");
	write_types(map, loops, out);
	write_held(map, loops, out);
	plan_print(out, "\t");
	write_values(map, loops, ";\n\t", ";\n", true, out);
	write_place(map, loops, "place", 0, loops->outputs, out);
	write_place(map, loops, "term", loops->outputs, loops->count, out);
	write_fetch(map, loops, out);
	if (map->checked)
		write_position(map, loops, out);
	for (int i = 0; i < map->access_count; i++)
		if (!map->access[i].direct)
			write_take(map, loops, i, out);
	write_value(map, loops, out);
	write_sum(map, out);
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
	write_values(map, loops, ", ", ", ", true, out);
	plan_print(out, "u64 elements%s%s)\n{\n", loops->pieces > 1 ? ", void *scratch" : "",
			   map_has_checks(map) ? ", u64 *report" : "");
	plan_print(out, "\tconst MapStatement<%d> map = {", loops->vector);
	write_values(map, loops, ", ", "};\n", false, out);
	if (!sum) {
		plan_print(out, "\tconst MapStatement<1> one = {");
		write_values(map, loops, ", ", "};\n", false, out);
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
	write_structure(map, loops, out);
	write_kernel(map, loops, out);
	return !out->full;
}
