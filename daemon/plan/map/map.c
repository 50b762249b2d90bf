/*
 * map.c: a statement over named operands: the plan, what is inferred, and what its launches report.
 */
#include "map.h"
#include "client/wire/plain.h"

#include <stdio.h>
#include <string.h>

static int understand_as(const struct kernel_problem *problem, bool generic, struct map *map,
						 char error[KERNEL_ERROR_MAX])
{
	int status = map_parse(problem, map, error);

	map->generic = generic;
	if (!status)
		status = map_extents(map);
	if (!status)
		status = map_types(map);
	if (!status)
		status = map_folds(map);
	if (status)
		return status;
	map_ranges(map);
	return map_accesses(map);
}

static int understand(const struct kernel_problem *problem, struct map *map,
					  char error[KERNEL_ERROR_MAX])
{
	return understand_as(problem, false, map, error);
}

/* ---- What is asked of operands ---- */

static int check_output(struct map *map)
{
	const struct kernel_tensor *output = &map->problem->tensors[map->output];
	int64_t stride = 1;

	for (int k = output->rank - 1; k >= 0; k--) {
		if (output->shape[k] != 1 && output->stride[k] != stride)
			return plan_refuse(map->error, KILN_EINVAL,
							   "map: dimension %d of %s has stride %lld; an output is contiguous, "
							   "with %lld there",
							   k, map->name[map->output], (long long)output->stride[k],
							   (long long)stride);
		if (output->shape[k] == 0)
			return KILN_OK;
		stride *= output->shape[k];
	}
	return KILN_OK;
}

/* An element has to be there to be the nearest one. */
static int check_clamp(struct map *map)
{
	for (int i = 0; i < map->access_count && map->bounds == MAP_CLAMP; i++) {
		const struct map_access *access = &map->access[i];
		const struct kernel_tensor *tensor = &map->problem->tensors[access->operand];
		for (int k = 0; k < tensor->rank; k++)
			if (tensor->shape[k] == 0 && !access->direct)
				return plan_refuse(map->error, KILN_EINVAL,
								   "map: dimension %d of %s has size 0; with bounds clamp it needs "
								   "an element to take",
								   k, map->name[access->operand]);
	}
	return KILN_OK;
}

/* The first bad access is one number of 64 bits, 8 of them for the subscript. */
static int check_countable(struct map *map, const struct map_loops *loops)
{
	int64_t all;

	all = map_extent(map, map_indices(0, map->index_count));
	if (!map->checked && __builtin_mul_overflow(loops->elements, loops->terms, &all))
		all = INT64_MAX;
	if (all > INT64_MAX >> 8)
		return plan_refuse(map->error, KILN_ENOTSUP,
						   "map: there are more than 2^55 values to go over");
	return KILN_OK;
}

static int map_check(struct map *map, struct map_loops *loops)
{
	int status = check_output(map);

	if (!status)
		status = check_clamp(map);
	if (!status)
		status = map_check_folds(map);
	map_loops(map, loops);
	return status ? status : check_countable(map, loops);
}

/* ---- The plan ---- */

/* Names the text among others. */
static uint64_t map_hash_of(const char *text)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t scalar_bits(const struct kernel_attr *attr, enum map_type type)
{
	double real = attr->kind == KILN_ATTR_INT ? (double)attr->i : attr->f;
	float single = (float)real;
	uint64_t bits = (uint64_t)attr->i;
	uint32_t word;

	if (type == MAP_F64) {
		memcpy(&bits, &real, sizeof(bits));
	} else if (type == MAP_F32) {
		memcpy(&word, &single, sizeof(word));
		bits = word;
	} else if (type == MAP_I32 || type == MAP_U32) {
		bits = (uint32_t)bits;
	}
	return bits;
}

/* reports: an access may be out of range. */
static void set_args(const struct map *map, const struct map_loops *loops, bool reports,
					 struct kernel_plan *out)
{
	struct map_scalar scalars[KERNEL_MAX_ATTRS * 2];
	struct map_size sizes[MAP_SIZES];
	int count = map_scalars(map, scalars), size_count;

	for (int i = 0; i < map->operand_count; i++)
		plan_arg_pointer(out, i);
	for (int i = 0; i < count; i++) {
		bool word =
			scalars[i].type == MAP_F32 || scalars[i].type == MAP_I32 || scalars[i].type == MAP_U32;
		plan_arg_scalar(out, word ? 4 : 8,
						scalar_bits(&map->problem->attrs[scalars[i].attr], scalars[i].type));
	}
	map_sizes(map, loops, sizes, &size_count);
	for (int i = 0; i < size_count; i++)
		plan_arg_scalar(out, sizes[i].bytes, sizes[i].value);
	plan_arg_scalar(out, 8, (uint64_t)(loops->stages ? loops->row_count : loops->elements));
	if (loops->pieces > 1)
		plan_arg_scratch(out);
	if (map_has_checks(map) && !reports)
		plan_arg_scalar(out, 8, 0);
	else if (map_has_checks(map))
		plan_arg_report(out, (uint64_t)loops->elements * (uint64_t)loops->terms, UINT64_MAX);
}

static void set_extents(const struct map *map, const struct map_loops *loops,
						struct kernel_plan *out)
{
	for (int i = 0; i < map->operand_count; i++) {
		uint32_t element = kernel_dtype_bytes(map->problem->tensors[i].dtype);
		plan_touch(map->problem, i, element < 16 ? element : 16, out);
		out->extents[i].written = i == map->output;
	}
	out->extents[map->output].alignment = map_store_width(map, loops);
	for (int i = 0; i < map->access_count; i++)
		for (int s = 0; s < loops->stages || s == 0; s++) {
			struct map_loops view = loops->stages ? map_stage_view(loops, s) : *loops;
			uint32_t width = map_width(map, &map->access[i], &view);
			struct kernel_extent *extent = &out->extents[map->access[i].operand];
			if (width > extent->alignment)
				extent->alignment = width;
		}
}

static bool set_grid(const struct map *map, const struct map_loops *loops,
					 const struct map_way *way, const struct kernel_limits *limits,
					 struct kernel_plan *out)
{
	bool sum = map->reduce != MAP_PLAIN;
	int64_t units = sum && loops->rows ? loops->elements : loops->elements / loops->vector;
	int64_t each = sum ? way->threads / way->share : (int64_t)way->threads * way->share;
	int64_t blocks = plan_divide_up(units, each);

	if (loops->stages > 0)
		blocks = plan_divide_up(loops->row_count / (loops->rows ? 1 : loops->vector),
								way->threads / way->share);
	blocks = (blocks < 1 ? 1 : blocks) * loops->pieces; /* 1: for less than a vector */
	return plan_launch(out, limits, (uint64_t)blocks, way->threads);
}

static int map_plan_way(const struct map *map, const struct map_loops *loops,
						const struct map_way *way, bool reports, const struct kernel_limits *limits,
						struct kernel_plan *out)
{
	struct plan_text text = {.text = out->generated, .size = sizeof(out->generated)};
	bool loop;

	if (!map_write(map, loops, &text))
		return plan_refuse(map->error, KILN_ENOTSUP,
						   "map: the kernel of the statement would have more than %d characters",
						   KERNEL_GENERATED_MAX - 1);
	snprintf(out->source, sizeof(out->source), "ops/map%s.cuh",
			 map_has_rows(map)          ? "_rows"
			 : map->reduce != MAP_PLAIN ? "_reduce"
										: "");
	loop = set_grid(map, loops, way, limits, out);
	snprintf(out->instantiation, sizeof(out->instantiation),
			 "map_statement<0x%016llxull, %u, %u, %s>",
			 (unsigned long long)map_hash_of(out->generated), way->threads, way->share,
			 loop || map->generic ? "true" : "false");
	out->scratch = map_scratch(map, loops, way);
	set_args(map, loops, reports, out);
	set_extents(map, loops, out);
	return KILN_OK;
}

static void map_describe(const struct map *map, const struct map_loops *loops,
						 const struct map_way *way, struct kernel_plan *out)
{
	struct plan_text note = {.text = out->note, .size = sizeof(out->note)};
	bool sum = map->reduce != MAP_PLAIN;
	int taken = 0;

	memcpy(out->choice, way->name, sizeof(out->choice));
	snprintf(out->statement, sizeof(out->statement), "%.*s",
			 PLAIN_CUT(map->text, (int)sizeof(out->statement) - 1));
	snprintf(out->variant, sizeof(out->variant), "%s",
			 map->generic             ? PLAN_GENERIC
			 : !sum && !loops->stages ? "elements"
			 : loops->rows            ? "rows"
									  : "columns");
	plan_print(&note, "%d at once along %s", loops->vector,
			   loops->vector_loop < 0 ? "nothing"
									  : map->index[loops->loop[loops->vector_loop].last].name);
	if (loops->stages > 1)
		plan_print(&note, "; %d reduction%s of a row, %s", loops->stages - 1,
				   loops->stages > 2 ? "s" : "",
				   loops->holds ? "which is held if it fits registers" : "which is read for each");
	for (int k = 0; k < loops->count; k++)
		plan_print(
			&note, "%s%s%s%s of %lld", k ? ", " : "; loops ", map->index[loops->loop[k].first].name,
			loops->loop[k].first == loops->loop[k].last ? "" : "..",
			loops->loop[k].first == loops->loop[k].last ? "" : map->index[loops->loop[k].last].name,
			(long long)loops->loop[k].extent);
	for (int i = 0; i < map->access_count; i++)
		taken += !map->access[i].direct;
	if (taken)
		plan_print(&note, "; %d of %d accesses by computed subscripts%s", taken, map->access_count,
				   map_has_checks(map) ? ", which are checked" : "");
}

static int nothing(const struct map *map, const struct map_loops *loops, struct kernel_plan *out)
{
	set_extents(map, loops, out);
	plan_no_elements(out);
	return KILN_OK;
}

/* The kernel of all sizes.  reports: of these sizes an access may be out of range. */
static int map_plan_generic(const struct kernel_problem *problem, bool reports,
							const struct kernel_limits *limits, struct kernel_plan *out,
							char error[KERNEL_ERROR_MAX])
{
	struct map map;
	struct map_loops loops;
	struct map_size sizes[MAP_SIZES];
	struct map_way way;
	int status = understand_as(problem, true, &map, error), count;

	if (status)
		return status;
	map_loops(&map, &loops);
	if (!map_sizes(&map, &loops, sizes, &count))
		return plan_refuse(error, KILN_ENOTSUP,
						   "map: the generic kernel of the statement would have more than %d "
						   "arguments: it reads too many operands by too many indices",
						   KERNEL_MAX_ARGS);
	way = map_generic_way(&map, &loops, limits);
	status = map_plan_way(&map, &loops, &way, reports, limits, out);
	if (!status)
		map_describe(&map, &loops, &way, out);
	return status;
}

int map_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct map map;
	struct map_loops loops;
	struct map_way ways[MAP_WAYS];
	int status = understand(problem, &map, error), count, chosen = 0;

	if (!status)
		status = map_check(&map, &loops);
	if (status)
		return status;
	if (loops.elements == 0)
		return nothing(&map, &loops, out);
	if (plan_is_generic(choice))
		return map_plan_generic(problem, map_has_checks(&map), limits, out, error);
	count = map_ways(&map, &loops, limits, ways);
	while (choice && chosen < count && strcmp(choice, ways[chosen].name) != 0)
		chosen++;
	if (chosen == count)
		return plan_refuse(error, KILN_EINVAL,
						   "map: there is no candidate \"%s\" for this statement on %s", choice,
						   limits->target);
	status = map_plan_way(&map, &loops, &ways[chosen], true, limits, out);
	if (!status)
		map_describe(&map, &loops, &ways[chosen], out);
	return status;
}

int map_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct map map;
	struct map_loops loops;
	struct map_way ways[MAP_WAYS];
	char error[KERNEL_ERROR_MAX];
	int count;

	if (understand(problem, &map, error) || map_check(&map, &loops))
		return 0;
	count = map_ways(&map, &loops, limits, ways);
	for (int i = 0; i < count; i++)
		memcpy(names[i], ways[i].name, KERNEL_CHOICE_MAX);
	return count;
}

/* ---- Names, outputs, reports ---- */

int map_names(const struct kernel_problem *problem, char list[KERNEL_OPERANDS_MAX],
			  char error[KERNEL_ERROR_MAX])
{
	struct map map = {.problem = problem, .error = error};
	struct plan_text text = {.text = list, .size = KERNEL_OPERANDS_MAX};
	int status = map_parse_names(problem, &map);

	for (int i = 0; i < map.operand_count && !status; i++)
		plan_print(&text, "%s%s", i ? ", " : "", map.name[i]);
	return status;
}

/* The output has the indices' extents and the right side's dtype. */
int map_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct map map;
	int status = map_parse(problem, &map, error);
	struct kernel_tensor *output;

	if (status)
		return status;
	output = &problem->tensors[map.output];
	for (int i = 0; i < map.operand_count; i++)
		if (i != map.output && problem->tensors[i].dtype == KILN_DTYPE_NONE)
			return plan_refuse(error, KILN_EINVAL, "map: %s is missing", map.name[i]);
	if (output->dtype == KILN_DTYPE_NONE) {
		status = map_extents(&map);
		if (!status && map.operand_count == 1)
			status = plan_refuse(error, KILN_EINVAL, "map: %s is missing", map.name[0]);
		if (status)
			return status;
		*output = (struct kernel_tensor){
			.dtype = map_natural_dtype(&map), .rank = map.output_rank, .alignment = 16};
		for (int k = 0; k < map.output_rank; k++)
			output->shape[k] = map.index[k].extent;
		plan_contiguous(output);
	}
	return understand(problem, &map, error);
}

/* Names the subscript with this number, its access, and its column. */
static void name_subscript(const struct map *map, int number, struct plan_text *out)
{
	for (int i = 0; i < map->access_count; i++) {
		const struct map_access *access = &map->access[i];
		const struct map_node *node = &map->node[access->node];
		if (number >= node->kids) {
			number -= node->kids;
			continue;
		}
		plan_print(out, "subscript %d of %s at column %d is not within 0 to %lld", number,
				   map->name[access->operand], map_column(map, node->kid[number]),
				   (long long)map->problem->tensors[access->operand].shape[number] - 1);
		return;
	}
}

void map_report(const struct kernel_problem *problem, uint64_t reported,
				char error[KERNEL_ERROR_MAX])
{
	char own[KERNEL_ERROR_MAX] = "", ignored[KERNEL_ERROR_MAX];
	struct plan_text text = {.text = own, .size = sizeof(own)};
	int64_t at[MAP_INDICES];
	struct map map;
	uint64_t position;

	if (reported == 0 || understand(problem, &map, ignored))
		return;
	if (!map.checked) {
		plan_print(&text,
				   "%llu subscript%s out of range, and 0 was read there; checked names the first",
				   (unsigned long long)reported, reported == 1 ? " was" : "s were");
		memcpy(error, own, sizeof(own));
		return;
	}
	position = ~reported >> 8;
	name_subscript(&map, (int)(~reported & 0xff), &text);
	for (int k = map.index_count - 1; k >= 0; k--) {
		uint64_t extent = map.index[k].extent > 0 ? (uint64_t)map.index[k].extent : 1;
		at[k] = (int64_t)(position % extent);
		position /= extent;
	}
	for (int k = 0; k < map.index_count; k++)
		plan_print(&text, "%s%s=%lld", k ? ", " : "; first where ", map.index[k].name,
				   (long long)at[k]);
	memcpy(error, own, sizeof(own));
}
