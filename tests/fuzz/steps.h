/*
 * steps.h: the input of targets that are talked to: steps, one after another, each a kind, a number
 * for the target to use, and bytes, which for some kinds are a message.
 *
 *   kind, number, the count of bytes (two, the lower first), the bytes
 */
#ifndef KILN_TESTS_FUZZ_STEPS_H
#define KILN_TESTS_FUZZ_STEPS_H

#include "fuzz.h"

#define STEPS_MOST 64
#define STEP_HEAD 4

struct step {
	uint8_t kind, number;
	const uint8_t *bytes;
	size_t size;
};

/* The step at *data, which is moved on; false behind the last.  One that is cut short is taken as
 * far as it goes. */
static inline bool step_next(const uint8_t **data, size_t *size, struct step *step)
{
	if (*size < STEP_HEAD)
		return false;
	const uint8_t *at = *data;
	size_t bytes = at[2] | (size_t)at[3] << 8;
	if (bytes > *size - STEP_HEAD)
		bytes = *size - STEP_HEAD;
	*step = (struct step){at[0], at[1], at + STEP_HEAD, bytes};
	*data += STEP_HEAD + bytes;
	*size -= STEP_HEAD + bytes;
	return true;
}

/* The mutator knows of a target the names of messages with those of their members, "buf, bytes,
 * flags?" (it passes over anything in brackets and behind ':'), ended by a row without a name; and
 * which kinds of steps are messages, a bit each. */
struct steps_message {
	const char *name, *members;
};
extern const struct steps_message fuzz_messages[];
extern const unsigned fuzz_kinds, fuzz_message_kinds;

#endif
