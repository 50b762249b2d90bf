/*
 * reference_scene.h: one case with memory, for the tests of the references: its inputs filled, its
 * outputs to be written by the test, the reference's answers beside them.
 */
#ifndef KILN_TESTS_UNIT_REFERENCE_SCENE_H
#define KILN_TESTS_UNIT_REFERENCE_SCENE_H

#include "tests/ops/common/reference.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

struct scene {
	struct cases_case c;
	void *memory[CASES_MAX_OPERANDS];
	double *answers[CASES_MAX_OPERANDS]; /* of outputs */
};

static inline void scene_open(struct scene *scene, const struct cases_case *c, uint64_t seed)
{
	memset(scene, 0, sizeof(*scene));
	scene->c = *c;
	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *operand = &c->operand[i];
		if (operand->dtype == KILN_DTYPE_NONE)
			continue;
		scene->memory[i] = reference_memory((int64_t)cases_bytes(operand), 1);
		if (operand->output)
			scene->answers[i] = reference_memory(cases_elements(operand), sizeof(double));
		else
			cases_fill_operand(operand, scene->memory[i], seed * 16 + (uint64_t)i);
	}
}

static inline void scene_close(struct scene *scene)
{
	for (int i = 0; i < CASES_MAX_OPERANDS; i++) {
		free(scene->memory[i]);
		free(scene->answers[i]);
	}
}

/* What is compared bit for bit has no answers in f64. */
static inline bool scene_has_answers(const struct cases_case *c)
{
	return c->operand[0].dtype >= KILN_F16 && c->operand[0].dtype <= KILN_F64 &&
		   strcmp(c->family, "permute") != 0 && strcmp(c->family, "gather") != 0 &&
		   strcmp(c->family, "map") != 0; /* test_map_eval.c */
}

/* Asks the reference for its answers. */
static inline void scene_answer(struct scene *scene)
{
	reference_answers(&scene->c, (const void *const *)scene->memory, scene->answers);
}

/* What the judge thinks of the outputs. */
static inline struct cases_verdict scene_judge(struct scene *scene)
{
	struct cases_verdict verdict = {0};

	cases_judge(&scene->c, (const void *const *)scene->memory, 0, scene->c.op->units(&scene->c),
				&verdict);
	return verdict;
}

static inline double scene_get(const struct scene *scene, int operand, int64_t i)
{
	return cases_get(scene->c.operand[operand].dtype, scene->memory[operand], i);
}

static inline void scene_put(struct scene *scene, int operand, int64_t i, double value)
{
	cases_put(scene->c.operand[operand].dtype, scene->memory[operand], i, value);
}

#endif
