/*
 * fake_children.h: the daemon's child.h without processes: device processes that succeed at
 * everything and compilers that compile nothing, which answer when the target lets them, and say
 * whatever else it makes them say.
 */
#ifndef KILN_TESTS_FUZZ_FAKE_CHILDREN_H
#define KILN_TESTS_FUZZ_FAKE_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lets children speak, at most so many times; false: none had anything to say. */
bool children_speak(int times);
/* The next count answers are failures. */
void children_fail(int count);
/* A child, of those there are by this number, says these bytes: nonsense, perhaps. */
void children_say(unsigned number, const uint8_t *bytes, size_t size);
void children_die(unsigned number);
/* After an input: there are none, or the broker has lost one. */
void children_reset(void);

#endif
