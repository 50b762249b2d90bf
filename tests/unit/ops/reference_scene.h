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
	double *answers[CASES_MAX_OPERANDS]; /* of outputs, by places in memory */
	bool *exact[CASES_MAX_OPERANDS];     /* which of them are right with their bytes only */
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
		if (operand->output) {
			int64_t places = (int64_t)(cases_bytes(operand) / cases_element(operand));
			scene->answers[i] = reference_memory(places, sizeof(double));
			scene->exact[i] = reference_memory(places, sizeof(bool));
		} else {
			cases_fill_operand(operand, scene->memory[i], seed * 16 + (uint64_t)i);
		}
	}
}

static inline void scene_close(struct scene *scene)
{
	for (int i = 0; i < CASES_MAX_OPERANDS; i++) {
		free(scene->memory[i]);
		free(scene->answers[i]);
		free(scene->exact[i]);
	}
}

/* Asks the reference for its answers. */
static inline void scene_answer(struct scene *scene)
{
	reference_answers(&scene->c, (const void *const *)scene->memory, scene->answers);
}

/* Judges the outputs. */
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

static inline void scene_take_value(void *taker, int operand, int64_t element, double expected,
									double allowed)
{
	struct scene *scene = taker;

	(void)allowed;
	scene->answers[operand][element] = expected;
	scene_put(scene, operand, element, expected);
}

static inline void scene_take_bytes(void *taker, int operand, int64_t element, const void *expected)
{
	struct scene *scene = taker;
	uint32_t bytes = cases_element(&scene->c.operand[operand]);

	scene->exact[operand][element] = true;
	memcpy((char *)scene->memory[operand] + element * bytes, expected, bytes);
}

static inline void scene_take_invalid(void *taker, int operand, int64_t element, const char *is,
									  const char *must)
{
	const struct scene *scene = taker;

	fail_msg("%s: element %lld of operand %d is %s; it must be %s", scene->c.name,
			 (long long)element, operand, is, must);
}

/* Writes the reference's answers where results belong.  Bytes are kept as they are: a double holds
 * neither each NaN nor an integer of 64 bits. */
static inline void scene_write(struct scene *scene)
{
	const struct reference r = {.c = &scene->c,
								.memory = (const void *const *)scene->memory,
								.unwritten = true,
								.taker = scene,
								.value = scene_take_value,
								.bytes = scene_take_bytes,
								.invalid = scene_take_invalid};

	scene->c.op->reference(&r, 0, scene->c.op->units(&scene->c));
}

#endif
