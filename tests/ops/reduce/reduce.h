/* reduce.h: the reference of reductions (reference.c), for their cases. */
#ifndef KILN_TESTS_OPS_REDUCE_H
#define KILN_TESTS_OPS_REDUCE_H

#include "tests/ops/common/reference.h"

int64_t reduce_units(const struct cases_case *c);
void reduce_reference(const struct reference *r, int64_t first, int64_t last);

#endif
