/*
 * map_numbers.cuh: the arithmetic of generated statements, defined for all numbers of every type.
 */
#pragma once
#include "common/index.cuh"
#include "common/types.cuh"

template <typename A, typename B>
constexpr bool map_is = false;
template <typename A>
constexpr bool map_is<A, A> = true;
template <typename T>
constexpr bool map_is_float = map_is<T, f32> || map_is<T, f64>;

template <typename T>
struct map_unsigned {
	typedef typename index_choose<(sizeof(T) == 8), u64, u32>::type type;
};

template <typename T>
DEVICE T map_zero()
{
	return static_cast<T>(0);
}
template <typename T>
DEVICE T map_one()
{
	return static_cast<T>(1);
}
template <typename T>
DEVICE T map_highest()
{
	if constexpr (map_is<T, f32>)
		return __uint_as_float(0x7f800000u);
	else if constexpr (map_is<T, f64>)
		return __longlong_as_double(0x7ff0000000000000ll);
	else if constexpr (static_cast<T>(-1) < static_cast<T>(1))
		return static_cast<T>(~static_cast<typename map_unsigned<T>::type>(0) >> 1);
	else
		return ~static_cast<T>(0);
}
template <typename T>
DEVICE T map_lowest()
{
	if constexpr (map_is_float<T>)
		return -map_highest<T>();
	else if constexpr (static_cast<T>(-1) < static_cast<T>(1))
		return static_cast<T>(-map_highest<T>() - 1);
	else
		return static_cast<T>(0);
}

/* Converts to T: whole numbers wrap, floats stop at the ends of what T holds, and a NaN is 0. */
template <typename T, typename Value>
DEVICE T map_whole(Value value)
{
	constexpr bool has_sign = static_cast<T>(-1) < static_cast<T>(1);
	constexpr int bits = static_cast<int>(sizeof(T)) * 8 - has_sign;

	if constexpr (!map_is_float<Value>) {
		return static_cast<T>(value);
	} else {
		/* The first number beyond is a power of two, and so exact. */
		constexpr Value end = static_cast<Value>(1ull << (bits - 1)) * static_cast<Value>(2);
		constexpr u64 most = ~0ull >> (64 - bits);
		if (value >= end)
			return static_cast<T>(most);
		if (has_sign ? value < -end : value <= static_cast<Value>(-1))
			return has_sign ? static_cast<T>(~most) : static_cast<T>(0);
		return value == value ? static_cast<T>(value) : static_cast<T>(0);
	}
}

/* Converts from one type that is computed in to another. */
template <typename T, typename Value>
DEVICE T map_to(Value value)
{
	if constexpr (map_is<T, bool>)
		return value != static_cast<Value>(0);
	else if constexpr (map_is_float<T>)
		return static_cast<T>(value);
	else
		return map_whole<T>(value);
}

/* Sums, differences and products of integers wrap. */
#define MAP_ARITHMETIC(name, sign)                                                         \
	template <typename T>                                                                  \
	DEVICE T name(T a, T b)                                                                \
	{                                                                                      \
		typedef typename map_unsigned<T>::type Unsigned;                                   \
		if constexpr (map_is_float<T>)                                                     \
			return a sign b;                                                               \
		else                                                                               \
			return static_cast<T>(static_cast<Unsigned>(a) sign static_cast<Unsigned>(b)); \
	}
MAP_ARITHMETIC(map_add, +)
MAP_ARITHMETIC(map_sub, -)
MAP_ARITHMETIC(map_mul, *)
#undef MAP_ARITHMETIC

template <typename T>
DEVICE T map_negate(T a)
{
	return map_sub(static_cast<T>(0), a);
}

/* A division by 0 gives 0; the least number divided by -1 gives itself. */
template <typename T>
DEVICE T map_div(T a, T b)
{
	if (static_cast<T>(-1) < static_cast<T>(1) && b == static_cast<T>(-1))
		return map_negate(a);
	return b == 0 ? static_cast<T>(0) : static_cast<T>(a / b);
}

/* a / b, nearly, where b is the same for many: their compiler makes its inverse once.  Of a b that
 * is so small that it has none, a multiple is taken. */
DEVICE f32 map_over(f32 a, f32 b)
{
	const f32 scale = fabsf(b) < 0x1p-60f ? 0x1p64f : 1.0f;

	return a * __frcp_rn(b * scale) * scale;
}

/* The sign is that of a; by 0: 0. */
template <typename T>
DEVICE T map_mod(T a, T b)
{
	if (b == 0 || (static_cast<T>(-1) < static_cast<T>(1) && b == static_cast<T>(-1)))
		return static_cast<T>(0);
	return static_cast<T>(a % b);
}

/* Shifts by as many bits as fit the type. */
template <typename T>
DEVICE T map_shl(T a, T b)
{
	typedef typename map_unsigned<T>::type Unsigned;
	return static_cast<T>(static_cast<Unsigned>(a) << (static_cast<u32>(b) & (sizeof(T) * 8 - 1)));
}
template <typename T>
DEVICE T map_shr(T a, T b)
{
	return static_cast<T>(a >> (static_cast<u32>(b) & (sizeof(T) * 8 - 1)));
}

template <typename T>
DEVICE T map_abs(T a)
{
	if constexpr (map_is<T, f32>)
		return fabsf(a);
	else if constexpr (map_is<T, f64>)
		return fabs(a);
	else
		return a < static_cast<T>(0) ? map_negate(a) : a;
}

/* A NaN loses against a number. */
template <typename T>
DEVICE T map_min(T a, T b)
{
	if constexpr (map_is<T, f32>)
		return fminf(a, b);
	else if constexpr (map_is<T, f64>)
		return fmin(a, b);
	else
		return b < a ? b : a;
}
template <typename T>
DEVICE T map_max(T a, T b)
{
	if constexpr (map_is<T, f32>)
		return fmaxf(a, b);
	else if constexpr (map_is<T, f64>)
		return fmax(a, b);
	else
		return a < b ? b : a;
}
/* A NaN wins. */
template <typename T>
DEVICE T map_minimum(T a, T b)
{
	return a < b || a != a ? a : b;
}
template <typename T>
DEVICE T map_maximum(T a, T b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	if constexpr (map_is<T, f32>) {
		f32 most;
		asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
		return most;
	}
#endif
	return b < a || a != a ? a : b;
}
DEVICE bool map_either(bool a, bool b)
{
	return a || b;
}
DEVICE bool map_both(bool a, bool b)
{
	return a && b;
}
template <typename T>
DEVICE T map_clamp(T a, T low, T high)
{
	return map_min(map_max(a, low), high);
}

#define MAP_FUNCTION(name)       \
	DEVICE f32 map_##name(f32 a) \
	{                            \
		return name##f(a);       \
	}                            \
	DEVICE f64 map_##name(f64 a) \
	{                            \
		return name(a);          \
	}
MAP_FUNCTION(exp)
MAP_FUNCTION(exp2)
MAP_FUNCTION(expm1)
MAP_FUNCTION(log)
MAP_FUNCTION(log2)
MAP_FUNCTION(log10)
MAP_FUNCTION(log1p)
MAP_FUNCTION(sqrt)
MAP_FUNCTION(rsqrt)
MAP_FUNCTION(cbrt)
MAP_FUNCTION(sin)
MAP_FUNCTION(cos)
MAP_FUNCTION(tan)
MAP_FUNCTION(asin)
MAP_FUNCTION(acos)
MAP_FUNCTION(atan)
MAP_FUNCTION(sinh)
MAP_FUNCTION(cosh)
MAP_FUNCTION(tanh)
MAP_FUNCTION(erf)
MAP_FUNCTION(erfc)
MAP_FUNCTION(floor)
MAP_FUNCTION(ceil)
MAP_FUNCTION(trunc)
MAP_FUNCTION(rint)
#undef MAP_FUNCTION
#define MAP_FUNCTION(name)              \
	DEVICE f32 map_##name(f32 a, f32 b) \
	{                                   \
		return name##f(a, b);           \
	}                                   \
	DEVICE f64 map_##name(f64 a, f64 b) \
	{                                   \
		return name(a, b);              \
	}
MAP_FUNCTION(pow)
MAP_FUNCTION(atan2)
MAP_FUNCTION(fmod)
MAP_FUNCTION(hypot)
#undef MAP_FUNCTION
DEVICE f32 map_fma(f32 a, f32 b, f32 c)
{
	return fmaf(a, b, c);
}
DEVICE f64 map_fma(f64 a, f64 b, f64 c)
{
	return fma(a, b, c);
}
template <typename T>
DEVICE bool map_isnan(T a)
{
	return a != a;
}
template <typename T>
DEVICE bool map_isinf(T a)
{
	return map_abs(a) == map_highest<T>();
}
template <typename T>
DEVICE bool map_isfinite(T a)
{
	return map_abs(a) < map_highest<T>();
}
