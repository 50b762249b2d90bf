/*
 * map.h: what the files of map's cases share.  eval.h is the interpreter that judges them.
 */
#ifndef KILN_TESTS_OPS_MAP_H
#define KILN_TESTS_OPS_MAP_H

#include "tests/ops/common/reference.h"

extern const struct cases_op map_op;
/* Makes up a small one (random.c). */
void map_random(uint64_t *state, struct cases_case *out);

/* A row of a table of cases; cases.c says what stands in it. */
struct map_row {
	const char *statement, *names, *operands; /* operands: "f32 8x16; f32 16; f32 8x16" */
	const char *more;                         /* "s=2.5 n=3 bounds=clamp checked=1", or NULL */
	unsigned flags;
};
extern const struct map_row map_rows[]; /* rows.c; ends with one of NULL */

#endif
