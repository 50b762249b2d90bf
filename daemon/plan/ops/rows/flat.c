/*
 * flat.c: rows, ways to read them and blocks of operators of which each thread makes a vector.
 */
#include "flat.h"

#include <stdio.h>
#include <string.h>

static const uint32_t threads_tried[] = {256, 128, 512};
#define THREADS_TRIED 3

const char *flat_way_word(enum flat_way way)
{
	static const char *const words[] = {"whole", "skewed", "apart"};

	return words[way];
}

const char *flat_way_name(enum flat_way way)
{
	static const char *const names[] = {"FLAT_WHOLE", "FLAT_SKEWED", "FLAT_APART"};

	return names[way];
}

int64_t flat_rows(struct rows_form *form, int rank, const int64_t *shape, int operands,
				  const int64_t *const stride[], bool *one)
{
	int64_t size[KILN_MAX_RANK + 1] = {0}, strides[ROWS_MAX_OPERANDS][KILN_MAX_RANK + 1] = {{0}};
	const int64_t *wider[ROWS_MAX_OPERANDS];
	int64_t elements;
	int culprit;

	memcpy(size, shape, sizeof(size[0]) * (size_t)rank);
	for (int i = 0; i < operands; i++) {
		memcpy(strides[i], stride[i], sizeof(size[0]) * (size_t)rank);
		wider[i] = strides[i];
	}
	/* Behind the last dimension there is one of one column, so that all others number rows. */
	size[rank] = 1;
	(void)rows_form(form, rank + 1, size, operands, wider, rank, 1, &culprit);
	elements = form->columns = form->rows;
	*one = form->rank < 2;
	if (form->rank == 0)
		return elements;
	form->rank--;
	form->columns = form->size[form->rank];
	form->rows = elements / form->columns;
	for (int i = 0; i < operands; i++)
		form->step[i] = form->stride[i][form->rank];
	return elements;
}

static int find_threads(const struct kernel_limits *limits, uint32_t threads[THREADS_TRIED])
{
	int count = 0;

	for (int i = 0; i < THREADS_TRIED; i++)
		if (threads_tried[i] <= limits->max_threads)
			threads[count++] = threads_tried[i];
	if (count == 0)
		threads[count++] = limits->max_threads;
	return count;
}

static void name_threads(const char *word, uint32_t threads, char name[KERNEL_CHOICE_MAX])
{
	snprintf(name, KERNEL_CHOICE_MAX, "%s %u", word, threads);
}

int flat_choices(const char *word, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	uint32_t threads[THREADS_TRIED];
	int count = find_threads(limits, threads);

	for (int i = 0; i < count; i++)
		name_threads(word, threads[i], names[i]);
	return count;
}

uint32_t flat_threads(const char *word, const struct kernel_limits *limits, const char *choice,
					  char name[KERNEL_CHOICE_MAX])
{
	uint32_t threads[THREADS_TRIED];
	int count = find_threads(limits, threads);

	for (int i = 0; i < count; i++) {
		name_threads(word, threads[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return threads[i];
	}
	return 0;
}
