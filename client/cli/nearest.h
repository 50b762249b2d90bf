/*
 * nearest.h: of known names the one that a wrong word was probably meant to be.
 */
#ifndef KILN_CLI_NEAREST_H
#define KILN_CLI_NEAREST_H

#include <stddef.h>

#define NEAREST_WORDS_MAX 128

struct nearest {
	const char *word;
	size_t length;
	char name[48];   /* the nearest so far; "": none is near */
	size_t distance; /* letters that differ */
};

/* word: of so many bytes; it is not copied. */
struct nearest nearest_to(const char *word, size_t length);
void nearest_try(struct nearest *nearest, const char *name);
/* Writes " (did you mean 'name'?)", or "" where no name is near, and returns text. */
const char *nearest_words(const struct nearest *nearest, const char *prefix,
						  char text[NEAREST_WORDS_MAX]);

#endif
