/*
 * fuzz.h: what the fuzz targets share.  A property that does not hold is a crash, which libFuzzer
 * and the replay both report.
 */
#ifndef KILN_TESTS_FUZZ_H
#define KILN_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A target: one input.  Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "fuzz: %s\n", what);
		abort();
	}
}

/* A refusal must be one line that says something. */
static inline void require_sentence(const char *error)
{
	if (!error || strlen(error) < 4 || strchr(error, '\n')) {
		fprintf(stderr, "fuzz: refused with \"%s\", which is no sentence\n", error ? error : "");
		abort();
	}
}

/* The bytes as a text, malloc'd: with a zero byte, and none before it. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	require(text, "no memory");
	for (size_t i = 0; i < size; i++)
		text[i] = data[i] ? (char)data[i] : ' ';
	text[size] = 0;
	return text;
}

/* The next piece of *text up to the mark, which is overwritten; NULL behind the last. */
static inline char *fuzz_piece(char **text, const char *mark)
{
	return strsep(text, mark);
}

/* Words that the mutators put in, ended by NULL: of targets that are linked with one.  They may
 * have marks (words.h). */
extern const char *const fuzz_words[];

#endif
