/*
 * map_name.c: a statement's names: an operand is one of the attribute names, an index is on the
 * left side or a subscript by itself, a scalar is an attribute.
 */
#include "map_parse.h"

#include <string.h>

int map_find_operand(const struct map *map, const char *name)
{
	for (int i = 0; i < map->operand_count; i++)
		if (strcmp(map->name[i], name) == 0)
			return i;
	return -1;
}

int map_find_index(const struct map *map, const char *name)
{
	for (int i = 0; i < map->index_count; i++)
		if (!map->index[i].closed && strcmp(map->index[i].name, name) == 0)
			return i;
	return -1;
}

/* Is the attribute one that the row names, and no scalar of the statement? */
static bool map_is_setting(const struct map *map, const char *name)
{
	for (const struct op_attribute *row = map->problem->attributes; row->name; row++)
		if (row->kind != KILN_ATTR_REAL &&
			strncmp(row->name, name, sizeof(((struct kernel_attr *)0)->name)) == 0)
			return true;
	return false;
}

int map_find_scalar(const struct map *map, const char *name)
{
	const struct kernel_attr *attr = plan_attr(map->problem, name);

	return attr && !map_is_setting(map, name) ? (int)(attr - map->problem->attrs) : -1;
}

int map_add_index(struct map_parser *parser, const char *name, int column)
{
	struct map *map = parser->map;
	struct map_index *index = &map->index[map->index_count];

	if (map->index_count == MAP_INDICES) {
		FAIL(parser, column, "%s is one index too many; a statement has %d at most", name,
			 MAP_INDICES);
		return 0;
	}
	*index = (struct map_index){.extent = -1, .column = column};
	memcpy(index->name, name, strlen(name) + 1);
	return map->index_count++;
}

int map_parse_names(const struct kernel_problem *problem, struct map *map)
{
	const char *at = plan_attr_text(problem, "names");

	if (!at)
		return plan_refuse(map->error, KILN_EINVAL,
						   "map: names is missing: the operands' names in their order, \"x,b,y\"");
	for (;;) {
		size_t bytes;
		at += strspn(at, " ");
		bytes = strcspn(at, ", ");
		if (bytes == 0 || bytes >= MAP_NAME || !plan_is_letter(*at) ||
			strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") < bytes)
			return plan_refuse(map->error, KILN_EINVAL,
							   "map: names has \"%.*s\"; a name is a letter or _, then letters, "
							   "digits or _, %d in all",
							   bytes < 40 ? (int)bytes : 40, at, MAP_NAME - 1);
		if (map->operand_count == KERNEL_MAX_OPERANDS)
			return plan_refuse(map->error, KILN_EINVAL,
							   "map: names has more than %d names, which is the most",
							   KERNEL_MAX_OPERANDS);
		memcpy(map->name[map->operand_count], at, bytes);
		map->name[map->operand_count][bytes] = 0;
		if (map_find_operand(map, map->name[map->operand_count]) >= 0)
			return plan_refuse(map->error, KILN_EINVAL, "map: names has %s twice",
							   map->name[map->operand_count]);
		map->operand_count++;
		at += bytes + strspn(at + bytes, " ");
		if (*at == 0)
			return KILN_OK;
		at += *at == ',';
	}
}

int map_check_used(struct map *map)
{
	const struct kernel_problem *problem = map->problem;

	for (int i = 0; i < map->operand_count; i++)
		if (!map->operand_used[i])
			return plan_refuse(map->error, KILN_EINVAL,
							   "map: names has %s, which the statement does not use", map->name[i]);
	for (int i = 0; i < problem->attr_count; i++) {
		const char *attr = problem->attrs[i].name;
		if (plan_attr(problem, attr) != &problem->attrs[i])
			return plan_refuse(map->error, KILN_EINVAL, "map: %.24s is given twice", attr);
		if (!map->scalar_used[i] && !map_is_setting(map, attr))
			return plan_refuse(map->error, KILN_EINVAL,
							   "map: scalar %.24s is given, and the statement does not use it",
							   attr);
	}
	if (map->reduce != MAP_PLAIN && map->index_count == map->output_rank)
		return map_refuse(map, map->output_column,
						  "every index is on the left side, so there is nothing to go over; write "
						  "'='");
	return KILN_OK;
}
