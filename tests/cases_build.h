/*
 * cases_build.h: between cases.c, which makes up the list, and cases_data.c.
 */
#ifndef KILN_TESTS_CASES_BUILD_H
#define KILN_TESTS_CASES_BUILD_H

#include "cases.h"

/* Row-major strides. */
void cases_contiguous(struct cases_case *c);
/* Names a case by what it is. */
void cases_name(struct cases_case *c);

#endif
