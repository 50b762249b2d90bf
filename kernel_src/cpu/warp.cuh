/*
 * warp: barriers of a block and collectives of a warp.  All of them are calls of the executor,
 * which suspends the calling thread until those it waits for are there, and ends the launch with a
 * sentence if they cannot come.  The place of the call travels along for that sentence.
 */
#pragma once
#include "cpu/keywords.cuh"

#define KILN_CPU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static __forceinline__ int kiln_cpu_barrier_at(kiln_cpu_barrier kind, int predicate,
											   const char *file, int line)
{
	return kiln_cpu_self->runtime->barrier(kiln_cpu_self, kind, predicate, file, line);
}
static inline void __syncthreads(KILN_CPU_HERE)
{
	kiln_cpu_barrier_at(KILN_CPU_SYNC, 0, file, line);
}
static inline int __syncthreads_count(int predicate, KILN_CPU_HERE)
{
	return kiln_cpu_barrier_at(KILN_CPU_SYNC_COUNT, predicate, file, line);
}
static inline int __syncthreads_and(int predicate, KILN_CPU_HERE)
{
	return kiln_cpu_barrier_at(KILN_CPU_SYNC_AND, predicate, file, line);
}
static inline int __syncthreads_or(int predicate, KILN_CPU_HERE)
{
	return kiln_cpu_barrier_at(KILN_CPU_SYNC_OR, predicate, file, line);
}

namespace kiln_cpu
{
static inline unsigned long long collective(kiln_cpu_collective kind, unsigned int mask,
											unsigned long long value, int operand, int width,
											bool is_signed, const char *file, int line)
{
	kiln_cpu_call call = {kind, mask, value, operand, width, is_signed, file, line};
	return kiln_cpu_self->runtime->collective(kiln_cpu_self, &call);
}
template <class T>
static inline T shuffle(kiln_cpu_collective kind, unsigned int mask, T value, int operand,
						int width, const char *file, int line)
{
	static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
	unsigned long long word = 0;
	__builtin_memcpy(&word, &value, sizeof(value));
	word = collective(kind, mask, word, operand, width, false, file, line);
	__builtin_memcpy(&value, &word, sizeof(value));
	return value;
}
} // namespace kiln_cpu

static inline void __syncwarp(unsigned int mask = 0xffffffffu, KILN_CPU_HERE)
{
	kiln_cpu::collective(KILN_CPU_WARP_SYNC, mask, 0, 0, 0, false, file, line);
}
template <class T>
static inline T __shfl_sync(unsigned int mask, T value, int lane, int width = 32, KILN_CPU_HERE)
{
	return kiln_cpu::shuffle(KILN_CPU_SHFL, mask, value, lane, width, file, line);
}
template <class T>
static inline T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32,
							   KILN_CPU_HERE)
{
	return kiln_cpu::shuffle(KILN_CPU_SHFL_UP, mask, value, (int)delta, width, file, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32,
								 KILN_CPU_HERE)
{
	return kiln_cpu::shuffle(KILN_CPU_SHFL_DOWN, mask, value, (int)delta, width, file, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned int mask, T value, int lanes, int width = 32,
								KILN_CPU_HERE)
{
	return kiln_cpu::shuffle(KILN_CPU_SHFL_XOR, mask, value, lanes, width, file, line);
}
static inline unsigned int __ballot_sync(unsigned int mask, int predicate, KILN_CPU_HERE)
{
	return (unsigned int)kiln_cpu::collective(KILN_CPU_BALLOT, mask, predicate != 0, 0, 0, false,
											  file, line);
}
static inline int __any_sync(unsigned int mask, int predicate, KILN_CPU_HERE)
{
	return (int)kiln_cpu::collective(KILN_CPU_ANY, mask, predicate != 0, 0, 0, false, file, line);
}
static inline int __all_sync(unsigned int mask, int predicate, KILN_CPU_HERE)
{
	return (int)kiln_cpu::collective(KILN_CPU_ALL, mask, predicate != 0, 0, 0, false, file, line);
}
template <class T>
static inline unsigned int __match_any_sync(unsigned int mask, T value, KILN_CPU_HERE)
{
	unsigned long long word = 0;
	static_assert(sizeof(T) <= 8, "a match compares at most 8 bytes");
	__builtin_memcpy(&word, &value, sizeof(value));
	return (unsigned int)kiln_cpu::collective(KILN_CPU_MATCH_ANY, mask, word, 0, 0, false, file,
											  line);
}
/* The lanes that come to this place together: those of the warp that can, before the block stalls.
 */
static inline unsigned int __activemask(KILN_CPU_HERE)
{
	return (unsigned int)kiln_cpu::collective(KILN_CPU_CONVERGE, 0xffffffffu, 0, 0, 0, false, file,
											  line);
}

#define KILN_CPU_REDUCE(name, kind)                                                                \
	static inline unsigned int name(unsigned int mask, unsigned int value, KILN_CPU_HERE)          \
	{                                                                                              \
		return (unsigned int)kiln_cpu::collective(kind, mask, value, 0, 0, false, file, line);     \
	}                                                                                              \
	static inline int name(unsigned int mask, int value, KILN_CPU_HERE)                            \
	{                                                                                              \
		return (int)kiln_cpu::collective(kind, mask, (unsigned int)value, 0, 0, true, file, line); \
	}
KILN_CPU_REDUCE(__reduce_add_sync, KILN_CPU_REDUCE_ADD)
KILN_CPU_REDUCE(__reduce_min_sync, KILN_CPU_REDUCE_MIN)
KILN_CPU_REDUCE(__reduce_max_sync, KILN_CPU_REDUCE_MAX)
KILN_CPU_REDUCE(__reduce_and_sync, KILN_CPU_REDUCE_AND)
KILN_CPU_REDUCE(__reduce_or_sync, KILN_CPU_REDUCE_OR)
KILN_CPU_REDUCE(__reduce_xor_sync, KILN_CPU_REDUCE_XOR)
#undef KILN_CPU_REDUCE
#undef KILN_CPU_HERE
