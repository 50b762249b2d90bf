/*
 * listed.h: is a word in a list such as "softmax,layer_norm"?
 */
#ifndef KILN_TESTS_BENCH_LISTED_H
#define KILN_TESTS_BENCH_LISTED_H

#include <stdbool.h>
#include <string.h>

/* A list that is NULL holds every word. */
static inline bool is_listed(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strcspn(at, ",") == length && strncmp(at, word, length) == 0)
			return true;
	return !list;
}

#endif
