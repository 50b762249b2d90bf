/*
 * map_write.c: the file that is generated for a statement: a structure that knows where its
 * elements are and what each becomes, and a kernel that hands it to one of ops/map*.cuh.
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

/* The number of an element, and of a term in it, in the order of all indices. */
static void write_position(const struct map *map, const struct map_loops *loops,
						   struct plan_text *out)
{
	bool first = true;

	plan_print(out,
			   "\t%sDEVICE u64 position(const Place &at, int v)%s\n\t{\n"
			   "\t\tu64 n = 0;\n\t\t(void)at;\n\t\t(void)v;\n",
			   map->generic ? "" : "static ", map->generic ? " const" : "");
	for (int q = 0; q < map->index_count; q++)
		for (int k = 0; k < loops->count; k++) {
			long long extent = loops->loop[k].extent > 0 ? (long long)loops->loop[k].extent : 1;
			const char *v = k == loops->vector_loop ? " + v" : "";
			if (loops->loop[k].last != q)
				continue;
			if (!map->generic || first)
				plan_print(out, "\t\tn = n * %lldull + static_cast<u64>(at.i%d%s);\n",
						   first ? 0 : extent, k, v);
			else
				plan_print(out, "\t\tn = n * e%d_size%s + static_cast<u64>(at.i%d%s);\n", k,
						   k == loops->vector_loop ? " * V" : "", k, v);
			first = false;
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
			   "\ttemplate <class HELD>\n"
			   "\tDEVICE %s take%d(const Place &at, const HELD &held, int v, MapStrays &strays) "
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

static const char *const identities[] = {
	[MAP_SUM] = "map_zero",    [MAP_PRODUCT] = "map_one", [MAP_LEAST] = "map_highest",
	[MAP_MOST] = "map_lowest", [MAP_MIN] = "map_highest", [MAP_MAX] = "map_lowest",
	[MAP_ANY] = "map_zero",    [MAP_ALL] = "map_one"};
static const char *const combines[] = {
	[MAP_SUM] = "map_add",    [MAP_PRODUCT] = "map_mul", [MAP_LEAST] = "map_min",
	[MAP_MOST] = "map_max",   [MAP_MIN] = "map_minimum", [MAP_MAX] = "map_maximum",
	[MAP_ANY] = "map_either", [MAP_ALL] = "map_both"};

void map_write_combine(enum map_reduce reduce, const char *indent, struct plan_text *out)
{
	plan_print(out,
			   "%sstatic DEVICE Result identity()\n%s{\n%s\treturn %s<Result>();\n%s}\n"
			   "%sstatic DEVICE Result combine(Result a, Result b)\n%s{\n%s\treturn %s(a, b);\n"
			   "%s}\n",
			   indent, indent, indent, identities[reduce], indent, indent, indent, indent,
			   combines[reduce], indent);
}

/* A reduction that a thread goes over by itself, as it stands. */
static void write_local(const struct map *map, const struct map_loops *loops, int number,
						struct plan_text *out)
{
	const struct map_node *node = &map->node[map->fold[number].node];
	const char *type = map_cpp_name(node->type);

	plan_print(out,
			   "\ttemplate <class HELD>\n"
			   "\tDEVICE %s local%d(Place at, const HELD &held, int v, MapStrays &strays) const\n"
			   "\t{\n\t\t%s sum = %s<%s>();\n\t\t(void)held;\n\t\t(void)v;\n"
			   "\t\t(void)strays;\n",
			   type, number, type, identities[node->which], type);
	for (int i = 1; i < node->kids; i++) {
		int index = map->node[node->kid[i]].which, k = 0;
		while (k < loops->count && loops->loop[k].last != index)
			k++;
		if (k == loops->count && map->index[index].extent == 1)
			continue;
		plan_print(out, "\t\tfor (at.i%d = 0; at.i%d < ", k, k);
		if (map->generic)
			plan_print(out, "static_cast<Offset>(e%d_size); at.i%d++)\n", k, k);
		else
			plan_print(out, "%lld; at.i%d++)\n", (long long)map->index[index].extent, k);
	}
	plan_print(out, "\t\t\tsum = %s(sum, ", combines[node->which]);
	map_emit(map, loops, node->kid[0], node->common, out);
	plan_print(out, ");\n\t\treturn sum;\n\t}\n");
}

void map_write_functions(const struct map *map, const struct map_loops *loops,
						 struct plan_text *out)
{
	if (map->checked)
		write_position(map, loops, out);
	for (int i = 0; i < map->access_count; i++)
		if (!map->access[i].direct)
			write_take(map, loops, i, out);
	for (int i = 0; i < map->fold_count; i++)
		if (map->fold[i].local)
			write_local(map, loops, i, out);
}

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

/* What is done to the result of a sum, and what that reads besides. */
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
