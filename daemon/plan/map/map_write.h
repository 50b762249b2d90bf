/*
 * map_write.h: pieces of the file that is generated for a statement: map_write.c and
 * map_write_functions.c have them.  map_write.c writes the file of a statement without rows,
 * map_write_rows.c that of one with rows.
 */
#ifndef KILN_DAEMON_PLAN_MAP_WRITE_H
#define KILN_DAEMON_PLAN_MAP_WRITE_H

#include "map.h"

/* The kernel's arguments: with their types, or by name. */
void map_write_values(const struct map *map, const struct map_loops *loops, const char *between,
					  const char *last, bool types, struct plan_text *out);
/* The members that all structures begin with. */
void map_write_types(const struct map *map, const struct map_loops *loops, struct plan_text *out);
/* A function that turns a number into the places in loops [first, last); tag: its last parameter,
 * ", Stage0", or "". */
void map_write_place(const struct map *map, const struct map_loops *loops, const char *name,
					 int first, int last, const char *tag, struct plan_text *out);
/* Members that hold what some accesses read of a vector, and the loads of them. */
void map_write_arrays(const struct map *map, const struct map_loops *loops, uint32_t reads,
					  struct plan_text *out);
void map_write_loads(const struct map *map, const struct map_loops *loops, uint32_t reads,
					 const char *to, struct plan_text *out);
/* identity() and combine() of a reduction. */
void map_write_combine(enum map_reduce reduce, const char *indent, struct plan_text *out);
/* Functions for computed subscripts, for local reductions, and the order of all values. */
void map_write_functions(const struct map *map, const struct map_loops *loops,
						 struct plan_text *out);
/* The structure and the kernel of a statement of rows. */
void map_write_rows(const struct map *map, const struct map_loops *loops, struct plan_text *out);

#endif
