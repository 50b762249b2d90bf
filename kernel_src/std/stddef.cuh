/* stddef.cuh: for users' kernels. */
#pragma once

typedef decltype(sizeof(0)) size_t;
typedef decltype((char *)0 - (char *)0) ptrdiff_t;
#define NULL 0
#define offsetof(type, member) __builtin_offsetof(type, member)

namespace std
{
using ::ptrdiff_t;
using ::size_t;
} // namespace std
