/*
 * atomics: CUDA's atomic functions, fences and loads and stores with cache hints.  Relaxed, like
 * CUDA's; blocks run on several host threads, so they are real atomics.
 */
#pragma once
#include "cpu/keywords.cuh"
#include "cpu/math.cuh"

namespace kiln_cpu
{
/* Replaces *address by f(*address) in one step; returns what was there. */
template <class T, class Word, class F>
static __forceinline__ T update(T *address, F f)
{
	static_assert(sizeof(T) == sizeof(Word), "same size");
	Word *word = (Word *)(void *)address;
	Word seen = __atomic_load_n(word, __ATOMIC_RELAXED);
	for (;;) {
		T old = bits<T>(seen);
		if (__atomic_compare_exchange_n(word, &seen, bits<Word>(f(old)), true, __ATOMIC_RELAXED,
										__ATOMIC_RELAXED))
			return old;
	}
}
template <int bytes>
struct word;
template <>
struct word<2> {
	typedef unsigned short type;
};
template <>
struct word<4> {
	typedef unsigned int type;
};
template <>
struct word<8> {
	typedef unsigned long long type;
};
template <class T, class F>
static __forceinline__ T atomically(T *address, F f)
{
	return update<T, typename word<sizeof(T)>::type>(address, f);
}
/* A parameter that does not take part in deduction: atomicAdd(&unsigned, 1) works. */
template <class T>
struct same {
	typedef T type;
};
} // namespace kiln_cpu

KILN_CPU_T T atomicAdd(T *address, typename kiln_cpu::same<T>::type value)
{
	return kiln_cpu::atomically(
		address, [=](T old) { return (T)(old + value); });
}
static __forceinline__ int atomicAdd(int *address, int value)
{
	return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
static __forceinline__ unsigned int atomicAdd(unsigned int *address, unsigned int value)
{
	return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
static __forceinline__ unsigned long long atomicAdd(unsigned long long *address,
													unsigned long long value)
{
	return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
KILN_CPU_T T atomicSub(T *address, typename kiln_cpu::same<T>::type value)
{
	return kiln_cpu::atomically(
		address, [=](T old) { return (T)(old - value); });
}
KILN_CPU_T T atomicMin(T *address, typename kiln_cpu::same<T>::type value)
{
	return kiln_cpu::atomically(
		address, [=](T old) { return value < old ? (T)value : old; });
}
KILN_CPU_T T atomicMax(T *address, typename kiln_cpu::same<T>::type value)
{
	return kiln_cpu::atomically(
		address, [=](T old) { return value > old ? (T)value : old; });
}
KILN_CPU_T T atomicAnd(T *address, typename kiln_cpu::same<T>::type value)
{
	return __atomic_fetch_and(address, value, __ATOMIC_RELAXED);
}
KILN_CPU_T T atomicOr(T *address, typename kiln_cpu::same<T>::type value)
{
	return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
}
KILN_CPU_T T atomicXor(T *address, typename kiln_cpu::same<T>::type value)
{
	return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);
}
KILN_CPU_T T atomicExch(T *address, typename kiln_cpu::same<T>::type value)
{
	return kiln_cpu::atomically(
		address, [=](T) { return (T)value; });
}
KILN_CPU_T T atomicCAS(T *address, typename kiln_cpu::same<T>::type compare,
					   typename kiln_cpu::same<T>::type value)
{
	__atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED,
								__ATOMIC_RELAXED);
	return compare;
}
/* Counts up to the limit and starts again at 0; counts down and starts again at the limit. */
static __forceinline__ unsigned int atomicInc(unsigned int *address, unsigned int limit)
{
	return kiln_cpu::atomically(
		address, [=](unsigned int old) { return old >= limit ? 0u : old + 1u; });
}
static __forceinline__ unsigned int atomicDec(unsigned int *address, unsigned int limit)
{
	return kiln_cpu::atomically(
		address, [=](unsigned int old) { return old == 0u || old > limit ? limit : old - 1u; });
}
#define KILN_CPU_SCOPE(name)                                                                   \
	template <class T>                                                                         \
	static __forceinline__ T name##_block(T *address, typename kiln_cpu::same<T>::type value)  \
	{                                                                                          \
		return name(address, value);                                                           \
	}                                                                                          \
	template <class T>                                                                         \
	static __forceinline__ T name##_system(T *address, typename kiln_cpu::same<T>::type value) \
	{                                                                                          \
		return name(address, value);                                                           \
	}
KILN_CPU_SCOPE(atomicAdd)
KILN_CPU_SCOPE(atomicMin)
KILN_CPU_SCOPE(atomicMax)
KILN_CPU_SCOPE(atomicExch)
#undef KILN_CPU_SCOPE

static __forceinline__ void __threadfence()
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static __forceinline__ void __threadfence_block()
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static __forceinline__ void __threadfence_system()
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define KILN_CPU_LOAD(name)             \
	KILN_CPU_T T name(const T *address) \
	{                                   \
		return *address;                \
	}
#define KILN_CPU_STORE(name)                                                 \
	KILN_CPU_T void name(T *address, typename kiln_cpu::same<T>::type value) \
	{                                                                        \
		*address = value;                                                    \
	}
KILN_CPU_LOAD(__ldg)
KILN_CPU_LOAD(__ldca)
KILN_CPU_LOAD(__ldcg)
KILN_CPU_LOAD(__ldcs)
KILN_CPU_LOAD(__ldlu)
KILN_CPU_STORE(__stwb)
KILN_CPU_STORE(__stcg)
KILN_CPU_STORE(__stcs)
KILN_CPU_STORE(__stwt)
#undef KILN_CPU_LOAD
#undef KILN_CPU_STORE
/* Reads memory each time it is called. */
KILN_CPU_T T __ldcv(const T *address)
{
	return *(const volatile T *)address;
}
