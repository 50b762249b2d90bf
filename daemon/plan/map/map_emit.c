/*
 * map_emit.c: a statement's expressions as C++.  Integers go through functions of
 * common/map_numbers.cuh, for what is not defined in C++ (overflow, division by zero, shifts) is
 * defined in a statement.
 */
#include "map.h"

#include <stdio.h>
#include <string.h>

const char *map_cpp_name(enum map_type type)
{
	static const char *const names[] = {"bool", "i32", "u32", "i64", "u64", "f32", "f64"};

	return names[type];
}

const char *map_element_name(kiln_dtype dtype, bool saturates)
{
	if (saturates)
		return dtype == KILN_F8E4M3 ? "sat<f8e4m3>" : "sat<f8e5m2>";
	return dtype == KILN_BOOL ? "map_bool" : plan_dtype_name(dtype);
}

static void emit_number(const struct map_node *node, struct plan_text *out)
{
	switch (node->type) {
	case MAP_F32:
		plan_print(out, "%af", (double)(float)node->f);
		break;
	case MAP_F64:
		plan_print(out, "%a", node->f);
		break;
	case MAP_I32:
		plan_print(out, "%lld", (long long)node->i);
		break;
	case MAP_I64:
		plan_print(out, "%lldll", (long long)node->i);
		break;
	default:
		plan_print(out, "%lld%s", (long long)node->i, node->type == MAP_U32 ? "u" : "ull");
	}
}

/* An index that is a loop by itself, or always 0. */
static void emit_index(const struct map_loops *loops, const struct map_node *node,
					   struct plan_text *out)
{
	plan_print(out, "static_cast<%s>(", map_cpp_name(node->type));
	for (int k = 0; k < loops->count; k++) {
		if (loops->loop[k].last == node->which) {
			bool along = loops->stages ? loops->along >> k & 1 : k == loops->vector_loop;
			plan_print(out, "at.i%d%s)", k, along ? " + v" : "");
			return;
		}
	}
	plan_print(out, "0)");
}

static void emit_access(const struct map *map, const struct map_loops *loops, int number,
						struct plan_text *out)
{
	const struct map_node *node = &map->node[number];

	for (int i = 0; i < map->access_count; i++) {
		const struct map_access *access = &map->access[i];
		if (!map_same(map, access->node, number))
			continue;
		if (access->direct)
			plan_print(out, "map_at<%s, %lld>(%s.a%d, v)",
					   map_element_name(map->problem->tensors[node->which].dtype, false),
					   (long long)map_step(map, access, loops), loops->own >> i & 1 ? "at" : "held",
					   i);
		else
			plan_print(out, "take%d(at, held, v, strays)", i);
		return;
	}
}

static void emit_scalar(const struct map *map, const struct map_node *node, struct plan_text *out)
{
	struct map_scalar list[KERNEL_MAX_ATTRS * 2];
	int count = map_scalars(map, list);

	for (int i = 0; i < count; i++)
		if (list[i].attr == node->which && list[i].type == node->type)
			plan_print(out, "s%d", i);
}

static void emit_unary(const struct map *map, const struct map_loops *loops,
					   const struct map_node *node, struct plan_text *out)
{
	enum map_type as = node->op == MAP_NOT ? MAP_BOOL : node->common;

	if (node->op == MAP_NEGATE && !map_is_float(as))
		plan_print(out, "map_negate(");
	else
		plan_print(out, "(%s", node->op == MAP_NEGATE ? "-" : node->op == MAP_NOT ? "!" : "~");
	map_emit(map, loops, node->kid[0], as, out);
	plan_print(out, ")");
}

/* Is a node the quotient by what stands still in a row which a narrow element of the output is? */
static bool is_over(const struct map *map, const struct map_loops *loops,
					const struct map_node *node)
{
	return loops->stages > 0 && loops->now == loops->stages - 1 && node->op == MAP_DIV &&
		   node == &map->node[map->value] && node->common == MAP_F32 && !map->generic &&
		   map_element_bytes(map, map->output) < 4 && map_stands(map, loops, node->kid[1]);
}

static void emit_binary(const struct map *map, const struct map_loops *loops,
						const struct map_node *node, struct plan_text *out)
{
	static const char *const signs[] = {"+",  "-", "*",  "/", "%",  "&",  "|",  "^",  "<<",
										">>", "<", "<=", ">", ">=", "==", "!=", "&&", "||"};
	static const char *const functions[] = {"map_add", "map_sub", "map_mul", "map_div", "map_mod",
											NULL,      NULL,      NULL,      "map_shl", "map_shr"};
	bool whole = !map_is_float(node->common);
	const char *function = whole && node->op <= MAP_SHR ? functions[node->op]
						   : is_over(map, loops, node)  ? "map_over"
														: NULL;
	bool narrows = node->op >= MAP_AND && node->op <= MAP_XOR; /* C++ makes int of bool */

	if (narrows)
		plan_print(out, "static_cast<%s>", map_cpp_name(node->type));
	plan_print(out, "%s(", function ? function : "");
	map_emit(map, loops, node->kid[0], node->common, out);
	plan_print(out, function ? ", " : " %s ", signs[node->op]);
	map_emit(map, loops, node->kid[1], node->common, out);
	plan_print(out, ")");
}

static void emit_call(const struct map *map, const struct map_loops *loops,
					  const struct map_node *node, struct plan_text *out)
{
	const char *name = map_functions[node->which].name;
	bool folds = map_functions[node->which].most > 3;

	for (int k = 0; folds && k < node->kids - 2; k++)
		plan_print(out, "map_%s(", name);
	plan_print(out, "map_%s(", name);
	for (int k = 0; k < node->kids; k++) {
		plan_print(out, "%s", k ? ", " : "");
		map_emit(map, loops, node->kid[k], node->common, out);
		if (folds && k > 0 && k < node->kids - 1)
			plan_print(out, ")");
	}
	plan_print(out, ")");
}

static void emit_choice(const struct map *map, const struct map_loops *loops,
						const struct map_node *node, struct plan_text *out)
{
	plan_print(out, "(");
	map_emit(map, loops, node->kid[0], MAP_BOOL, out);
	plan_print(out, " ? ");
	map_emit(map, loops, node->kid[1], node->common, out);
	plan_print(out, " : ");
	map_emit(map, loops, node->kid[2], node->common, out);
	plan_print(out, ")");
}

/* Writes a reduction: its value where that is worked out already, or a loop of the thread's own. */
static void emit_reduction(const struct map *map, const struct map_loops *loops,
						   const struct map_node *node, struct plan_text *out)
{
	if (map->fold[node->fold].local)
		plan_print(out, "local%d(at, held, v, strays)", node->fold);
	else if (map->reduce != MAP_PLAIN)
		plan_print(out, "sum");
	else
		plan_print(out, "at.r%d[%s]", node->fold, loops->rows ? "0" : "v");
}

static void emit_own(const struct map *map, const struct map_loops *loops, int number,
					 struct plan_text *out)
{
	const struct map_node *node = &map->node[number];

	switch (node->kind) {
	case MAP_NUMBER:
		emit_number(node, out);
		break;
	case MAP_INDEX:
		emit_index(loops, node, out);
		break;
	case MAP_SCALAR:
		emit_scalar(map, node, out);
		break;
	case MAP_ACCESS:
		emit_access(map, loops, number, out);
		break;
	case MAP_UNARY:
		emit_unary(map, loops, node, out);
		break;
	case MAP_BINARY:
		emit_binary(map, loops, node, out);
		break;
	case MAP_CHOICE:
		emit_choice(map, loops, node, out);
		break;
	case MAP_CALL:
		emit_call(map, loops, node, out);
		break;
	case MAP_CAST:
		plan_print(out, "map_cast<%s>(", map_element_name((kiln_dtype)node->which, node->i != 0));
		map_emit(map, loops, node->kid[0], map->node[node->kid[0]].type, out);
		plan_print(out, ")");
		break;
	case MAP_REDUCE:
		emit_reduction(map, loops, node, out);
		break;
	}
}

void map_emit(const struct map *map, const struct map_loops *loops, int node, enum map_type as,
			  struct plan_text *out)
{
	bool converts = map->node[node].type != as;
	int kept = map_kept(map, loops, node);

	if (converts)
		plan_print(out, "map_to<%s>(", map_cpp_name(as));
	if (kept < 0)
		emit_own(map, loops, node, out);
	else
		plan_print(out, "held.t%d[v]", kept);
	if (converts)
		plan_print(out, ")");
}

static void add_scalars(const struct map *map, int number, struct map_scalar *list, int *count)
{
	const struct map_node *node = &map->node[number];

	for (int k = 0; k < node->kids; k++)
		add_scalars(map, node->kid[k], list, count);
	if (node->kind != MAP_SCALAR)
		return;
	for (int i = 0; i < *count; i++)
		if (list[i].attr == node->which && list[i].type == node->type)
			return;
	if (*count < KERNEL_MAX_ATTRS * 2)
		list[(*count)++] = (struct map_scalar){node->which, node->type};
}

int map_scalars(const struct map *map, struct map_scalar list[KERNEL_MAX_ATTRS * 2])
{
	int count = 0;

	add_scalars(map, map->value, list, &count);
	return count;
}
