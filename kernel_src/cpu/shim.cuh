/*
 * shim: CUDA C++ as host C++, for the cpu device: stands in front of every kernel, and of nothing
 * else.  No system header is included: built-ins of the compiler, and the executor's table of
 * functions (abi.cuh) for what needs a library or another thread.
 *
 * A thread block runs on one worker thread of the executor, its threads one after another on fibers
 * of that worker.  Hence `__shared__` is thread-local storage of the worker: one copy for each
 * block that runs at the moment, and no copy shared between two objects.  Kernels that are checked
 * (check.cuh) run one block at a time.
 */
#pragma once
#include "cpu/unavailable.cuh"
#include "cpu/keywords.cuh"
#include "cpu/vectors.cuh"
#include "cpu/math.cuh"
#include "cpu/bits.cuh"
#include "cpu/atomics.cuh"
#include "cpu/warp.cuh"
#include "cpu/check.cuh"

/* Dynamic shared memory: in CUDA `extern __shared__ T name[]`. */
#define DYN_SHARED(T, name) T *name = (T *)kiln_cpu_self->shared

namespace kiln_cpu
{
/* `extern __shared__ T name[]` outside of functions becomes this. */
template <class T>
struct dynamic_shared {
	operator T *() const
	{
		return (T *)kiln_cpu_self->shared;
	}
	template <class U>
	explicit operator U *() const
	{
		return (U *)kiln_cpu_self->shared;
	}
};
} // namespace kiln_cpu

#define assert(condition)                                                                       \
	((condition) ? (void)0                                                                      \
				 : kiln_cpu_self->runtime->fail(kiln_cpu_self, "assertion failed: " #condition, \
												__FILE__, __LINE__))

static inline void __trap(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
	kiln_cpu_self->runtime->fail(kiln_cpu_self, "__trap was called", file, line);
}

/* The text goes to the program that launched the kernel. */
__attribute__((format(printf, 1, 2))) static inline int printf(const char *format, ...)
{
	__builtin_va_list values;
	__builtin_va_start(values, format);
	int bytes = kiln_cpu_self->runtime->print(kiln_cpu_self, format, values);
	__builtin_va_end(values);
	return bytes;
}

static inline void __nanosleep(unsigned int)
{
	kiln_cpu_self->runtime->yield(kiln_cpu_self);
}

static inline long long clock64()
{
	return (long long)kiln_cpu_self->runtime->clock();
}

static inline void cudaGridDependencySynchronize()
{
}

static inline void cudaTriggerProgrammaticLaunchCompletion()
{
}

/* ---- The entry: unpacks void **args by the kernel's parameter types ---- */

namespace kiln_cpu
{
template <int... I>
struct indices {
};
template <int N, int... I>
struct make_indices : make_indices<N - 1, N - 1, I...> {
};
template <int... I>
struct make_indices<0, I...> {
	typedef indices<I...> type;
};

template <class T>
struct kernel;
template <class... P>
struct kernel<void (*)(P...)> {
	static constexpr unsigned int count = sizeof...(P);
	static constexpr unsigned int bytes[sizeof...(P) + 1] = {(unsigned int)sizeof(P)..., 0};

	template <int... I>
	static __forceinline__ void call(void (*function)(P...), void **args, indices<I...>)
	{
		(void)args;
		function(*(P *)args[I]...);
	}
	static __forceinline__ void run(void (*function)(P...), void **args)
	{
		call(function, args, typename make_indices<sizeof...(P)>::type());
	}
};

static void attach(kiln_cpu_state *state)
{
	kiln_cpu_self = state;
}
} // namespace kiln_cpu

/* The argument is a template-id, with commas in it. */
#define KILN_CPU_ENTRY(...)                                                                   \
	extern "C" __attribute__((visibility("default"))) void kiln_cpu_entry(void **args)        \
	{                                                                                         \
		kiln_cpu::kernel<decltype(&__VA_ARGS__)>::run(&__VA_ARGS__, args);                    \
	}                                                                                         \
	extern "C" __attribute__((visibility("default")))                                         \
	const kiln_cpu_module kiln_cpu_module = {KILN_CPU_ABI,                                    \
											 kiln_cpu::kernel<decltype(&__VA_ARGS__)>::count, \
											 kiln_cpu::kernel<decltype(&__VA_ARGS__)>::bytes, \
											 #__VA_ARGS__,                                    \
											 kiln_cpu::attach,                                \
											 KILN_CPU_VARIABLES};
