/*
 * words.h: the words that mutators put in.  A mark in a word of the target stands for any name that
 * the operators' rows have of that kind.
 */
#ifndef KILN_TESTS_FUZZ_WORDS_H
#define KILN_TESTS_FUZZ_WORDS_H

#include "fuzz.h"

#define FUZZ_OPERATOR "\1"  /* "softmax" */
#define FUZZ_ATTRIBUTE "\2" /* "axis" */
#define FUZZ_VALUE "\3"     /* "causal": a word that an attribute may be, or its default */
#define FUZZ_OPERAND "\4"   /* "gamma" */
#define FUZZ_DTYPE "\5"     /* "bf16" */

/* One of the target's words.  The text lasts for a few calls. */
const char *fuzz_word(uint64_t *state);

#endif
