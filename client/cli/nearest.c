/*
 * nearest.c: the distance of two words: how many letters are to be put in, left out, replaced or
 * swapped with their neighbour (F. J. Damerau, "A technique for computer detection and correction
 * of spelling errors", Communications of the ACM 7(3), 1964).
 */
#include "nearest.h"

#include <stdio.h>
#include <string.h>

#define LONGEST 40 /* letters of a word that is compared */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t rows[3][LONGEST + 1];
	size_t *before = rows[0], *last = rows[1], *now = rows[2];
	for (size_t j = 0; j <= nb; j++)
		last[j] = j;
	for (size_t i = 1; i <= na; i++) {
		now[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
			now[j] = least(replaced, least(last[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = least(now[j], before[j - 2] + 1);
		}
		size_t *free_row = before;
		before = last;
		last = now;
		now = free_row;
	}
	return last[nb];
}

struct nearest nearest_to(const char *word, size_t length)
{
	/* A third of the letters may differ, and of short words one. */
	return (struct nearest){word, length, "", (length < 6 ? 1 : length / 3) + 1};
}

void nearest_try(struct nearest *nearest, const char *name)
{
	size_t length = strlen(name);
	if (nearest->length > LONGEST || length > LONGEST)
		return;
	size_t found = distance(nearest->word, nearest->length, name, length);
	if (found >= nearest->distance)
		return;
	nearest->distance = found;
	snprintf(nearest->name, sizeof(nearest->name), "%s", name);
}

const char *nearest_words(const struct nearest *nearest, const char *prefix,
						  char text[NEAREST_WORDS_MAX])
{
	text[0] = 0;
	if (nearest->name[0])
		snprintf(text, NEAREST_WORDS_MAX, " (did you mean '%s%s'?)", prefix, nearest->name);
	return text;
}
