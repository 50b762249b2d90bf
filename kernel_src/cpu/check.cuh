/*
 * check: what a checked kernel (kilnd --memcheck) calls before it touches memory.  The compiler
 * puts the calls in: before every load and store with -fsanitize=kernel-address, and where an
 * address or an index is not what its type allows with -fsanitize=alignment,bounds.  The names are
 * the compiler's.  Nothing here is checked itself, or it would call itself.
 *
 * An access in one of the ranges of the state is fine; of all others the executor decides.
 */
#pragma once
#include "cpu/keywords.cuh"

#ifdef KILN_CPU_CHECK
#define KILN_CPU_UNCHECKED __attribute__((no_sanitize("kernel-address", "alignment", "bounds")))
#define KILN_CPU_CALLED extern "C" __attribute__((visibility("hidden"))) KILN_CPU_UNCHECKED

namespace kiln_cpu
{
static kiln_cpu_variables variables;

KILN_CPU_UNCHECKED static __forceinline__ void touch(kiln_cpu_doubt doubt, unsigned long address,
													 unsigned long bytes, const void *after)
{
	kiln_cpu_state *self = kiln_cpu_self;
	const kiln_cpu_range *ranges = self->ranges;
	unsigned int last = self->range_last;
	for (unsigned int i = 0; i < self->range_count; i++, last++) {
		if (last >= self->range_count)
			last = 0;
		unsigned long offset = address - ranges[last].begin;
		if (offset < ranges[last].bytes && bytes <= ranges[last].bytes - offset) {
			self->range_last = last;
			self->accesses += last > 0; /* the first one is the state itself: threadIdx and so on */
			return;
		}
	}
	kiln_cpu_access access = {doubt, address, bytes, 0, 0, 0, after};
	self->runtime->check(self, &access);
}

/* The compiler hands these over where undefined behaviour begins. */
struct place {
	const char *file;
	unsigned int line, column;
};
struct type {
	unsigned short kind, info;
	char name[1];
};
struct mismatch {
	place where;
	const type *object;
	unsigned char log_alignment, kind;
};
struct out_of_bounds {
	place where;
	const type *array, *index;
};
} // namespace kiln_cpu

#define KILN_CPU_HERE __builtin_return_address(0)
#define KILN_CPU_TOUCH(bytes)                                                 \
	KILN_CPU_CALLED void __asan_load##bytes##_noabort(unsigned long address)  \
	{                                                                         \
		kiln_cpu::touch(KILN_CPU_READS, address, bytes, KILN_CPU_HERE);       \
	}                                                                         \
	KILN_CPU_CALLED void __asan_store##bytes##_noabort(unsigned long address) \
	{                                                                         \
		kiln_cpu::touch(KILN_CPU_WRITES, address, bytes, KILN_CPU_HERE);      \
	}
KILN_CPU_TOUCH(1)
KILN_CPU_TOUCH(2)
KILN_CPU_TOUCH(4)
KILN_CPU_TOUCH(8)
KILN_CPU_TOUCH(16)
#undef KILN_CPU_TOUCH

KILN_CPU_CALLED void __asan_loadN_noabort(unsigned long address, unsigned long bytes)
{
	kiln_cpu::touch(KILN_CPU_READS, address, bytes, KILN_CPU_HERE);
}

KILN_CPU_CALLED void __asan_storeN_noabort(unsigned long address, unsigned long bytes)
{
	kiln_cpu::touch(KILN_CPU_WRITES, address, bytes, KILN_CPU_HERE);
}

KILN_CPU_CALLED void __asan_handle_no_return()
{
}

KILN_CPU_CALLED void __asan_register_globals(const kiln_cpu_variable *first, unsigned long count)
{
	kiln_cpu::variables.first = first;
	kiln_cpu::variables.count = count;
}

KILN_CPU_CALLED void __asan_unregister_globals(const kiln_cpu_variable *, unsigned long)
{
}

KILN_CPU_CALLED void __ubsan_handle_type_mismatch_v1(const kiln_cpu::mismatch *what,
													 unsigned long address)
{
	kiln_cpu_access access = {KILN_CPU_MISALIGNED, address,          1ul << what->log_alignment,
							  what->object->name,  what->where.file, (int)what->where.line,
							  KILN_CPU_HERE};
	kiln_cpu_self->runtime->check(kiln_cpu_self, &access);
}

KILN_CPU_CALLED void __ubsan_handle_out_of_bounds(const kiln_cpu::out_of_bounds *what,
												  unsigned long index)
{
	kiln_cpu_access access = {
		KILN_CPU_INDEX,        index,        0, what->array->name, what->where.file,
		(int)what->where.line, KILN_CPU_HERE};
	kiln_cpu_self->runtime->check(kiln_cpu_self, &access);
}

/* Large copies are calls that the compiler does not check.  The loops are volatile, or they would
 * become calls of what they are. */
namespace kiln_cpu
{
KILN_CPU_UNCHECKED static __forceinline__ void *copy(void *to, const void *from, size_t bytes,
													 const void *after)
{
	volatile char *target = (volatile char *)to;
	const volatile char *source = (const volatile char *)from;
	if (bytes) {
		touch(KILN_CPU_READS, (unsigned long)from, bytes, after);
		touch(KILN_CPU_WRITES, (unsigned long)to, bytes, after);
	}
	bool forward = (size_t)((char *)to - (const char *)from) >= bytes;
	for (size_t i = 0; i < bytes; i++) {
		size_t at = forward ? i : bytes - 1 - i;
		target[at] = source[at];
	}
	return to;
}
} // namespace kiln_cpu

KILN_CPU_CALLED void *memcpy(void *to, const void *from, size_t bytes)
{
	return kiln_cpu::copy(to, from, bytes, KILN_CPU_HERE);
}

KILN_CPU_CALLED void *memmove(void *to, const void *from, size_t bytes)
{
	return kiln_cpu::copy(to, from, bytes, KILN_CPU_HERE);
}

KILN_CPU_CALLED void *memset(void *to, int value, size_t bytes)
{
	if (bytes)
		kiln_cpu::touch(KILN_CPU_WRITES, (unsigned long)to, bytes, KILN_CPU_HERE);
	for (size_t i = 0; i < bytes; i++)
		((volatile char *)to)[i] = (char)value;
	return to;
}

#define KILN_CPU_VARIABLES &kiln_cpu::variables
#else
#define KILN_CPU_VARIABLES 0
#endif
