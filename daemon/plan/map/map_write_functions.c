/*
 * map_write_functions.c: the functions of a generated structure: for subscripts that are computed
 * or checked, for reductions, and for the order of all values.
 */
#include "map_write.h"

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
