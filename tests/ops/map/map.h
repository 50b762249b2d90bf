/*
 * map.h: what the files of map's cases share.  eval.h is the interpreter that judges them.
 */
#ifndef KILN_TESTS_OPS_MAP_H
#define KILN_TESTS_OPS_MAP_H

#include "tests/ops/common/reference.h"

extern const struct cases_op map_op;
/* Makes up a small one (random.c). */
void map_random(uint64_t *state, struct cases_case *out);

#endif
