/* chance.h: numbers that a seed determines (splitmix64). */
#ifndef KILN_TESTS_FUZZ_CHANCE_H
#define KILN_TESTS_FUZZ_CHANCE_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t chance_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* 0 .. count - 1; count is not 0. */
static inline size_t chance_pick(uint64_t *state, size_t count)
{
	return (size_t)(chance_next(state) % count);
}

#endif
