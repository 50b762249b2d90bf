/*
 * map_values.cuh: what generated statements compute with: elements in and out of memory, and
 * arithmetic that is defined for all numbers of every type.
 */
#pragma once
#include "common/element.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* An element of dtype bool: true where it is not 0. */
struct map_bool {
	u8 bits;
};

template <typename A, typename B>
constexpr bool map_is = false;
template <typename A>
constexpr bool map_is<A, A> = true;
template <typename T>
constexpr bool map_is_byte = map_is<T, f8e4m3> || map_is<T, f8e5m2>;
template <typename T>
constexpr bool map_is_byte<sat<T>> = true;
/* Floats that are computed in f32. */
template <typename T>
constexpr bool map_is_narrow = map_is<T, f16> || map_is<T, bf16> || map_is_byte<T>;
template <typename T>
constexpr bool map_is_float = map_is<T, f32> || map_is<T, f64>;

/* ---- Elements ---- */

/* The type that an element is computed in. */
template <typename T>
struct map_computed {
	typedef typename index_choose<(sizeof(T) < 4), i32, T>::type type;
};
template <>
struct map_computed<f8e4m3> {
	typedef f32 type;
};
template <>
struct map_computed<f8e5m2> {
	typedef f32 type;
};
template <typename T>
struct map_computed<sat<T>> {
	typedef f32 type;
};
template <>
struct map_computed<f16> {
	typedef f32 type;
};
template <>
struct map_computed<bf16> {
	typedef f32 type;
};
template <>
struct map_computed<map_bool> {
	typedef bool type;
};

/* Takes the low bits of a word. */
template <typename T>
DEVICE typename map_computed<T>::type map_from(u64 word)
{
	if constexpr (map_is_narrow<T>) {
		const u32 words[1] = {static_cast<u32>(word)};
		return element_at<T, f32>(words, 0);
	} else if constexpr (map_is<T, map_bool>)
		return static_cast<u8>(word) != 0;
	else if constexpr (map_is<T, f32>)
		return __uint_as_float(static_cast<u32>(word));
	else if constexpr (map_is<T, f64>)
		return __longlong_as_double(static_cast<i64>(word));
	else
		return static_cast<T>(word);
}

/* The f32 on the way to a narrower float. */
template <typename Value>
DEVICE f32 map_near(Value value)
{
	if constexpr (map_is<Value, f64>)
		return element_near(value);
	else
		return static_cast<f32>(value);
}

template <typename T, typename Value>
DEVICE u64 map_bits(Value value)
{
	if constexpr (map_is_narrow<T>) {
		T narrow;
		element_narrow(map_near(value), narrow);
		return narrow.bits;
	} else if constexpr (map_is<T, map_bool>) {
		return value != 0;
	} else if constexpr (map_is<T, f32>) {
		return __float_as_uint(static_cast<f32>(value));
	} else if constexpr (map_is<T, f64>) {
		return static_cast<u64>(__double_as_longlong(static_cast<f64>(value)));
	} else if constexpr (sizeof(T) < 4) {
		return static_cast<u32>(value) & ((1u << sizeof(T) * 8) - 1);
	} else {
		return static_cast<u64>(static_cast<T>(value));
	}
}

/* Words that V elements take which lie STEP apart: only neighbours are packed. */
template <typename T, int V, i64 STEP>
constexpr int map_words = STEP == 1   ? vec_words<V *static_cast<int>(sizeof(T))>
						  : STEP == 0 ? vec_words<static_cast<int>(sizeof(T))>
									  : V *vec_words<static_cast<int>(sizeof(T))>;

/* V elements, STEP apart, W bytes at once where they are neighbours. */
template <int V, int W, i64 STEP, typename T, int WORDS>
DEVICE void map_fetch(const T *from, u32 (&words)[WORDS])
{
	constexpr int es = sizeof(T), all = V * es, w = STEP != 1 ? es : W < all ? W : all;

	if constexpr (STEP == 1 && w < 4 && all > w) {
		/* Pieces of a word. */
#pragma unroll
		for (int n = 0; n < WORDS; n++)
			words[n] = 0;
#pragma unroll
		for (int n = 0; n < all / w; n++) {
			u32 piece[1];
			vec_load<w>(reinterpret_cast<const u8 *>(from) + n * w, piece);
			words[n * w / 4] |= piece[0] << n * w % 4 * 8;
		}
	} else {
#pragma unroll
		for (int n = 0; n < (STEP == 0 ? 1 : all / w); n++)
			vec_load<w>(reinterpret_cast<const u8 *>(from) + n * w * (STEP == 0 ? 1 : STEP),
						words + n * vec_words<w>);
	}
}

/* V elements, `step` apart, each in a word or more of its own. */
template <int V, typename T, int WORDS>
DEVICE void map_fetch_apart(const T *from, i64 step, u32 (&words)[WORDS])
{
	constexpr int es = sizeof(T);

#pragma unroll
	for (int n = 0; n < V; n++)
		vec_load<es>(from + n * step, words + n * vec_words<es>);
}

/* Element v of them. */
template <typename T, i64 STEP, int WORDS>
DEVICE typename map_computed<T>::type map_at(const u32 (&words)[WORDS], int v)
{
	constexpr int es = sizeof(T);

	if constexpr (STEP == 0)
		v = 0;
	if constexpr (map_is_byte<T> && (STEP == 1 || STEP == 0))
		return element_at<T, f32>(words, v);
	else if constexpr (es == 8)
		return map_from<T>(static_cast<u64>(words[2 * v + 1]) << 32 | words[2 * v]);
	else if constexpr (es == 4 || (STEP != 1 && STEP != 0))
		return map_from<T>(words[v]);
	else
		return map_from<T>(words[v * es / 4] >> v * es % 4 * 8);
}

/* Puts element v of a vector in its place; words are 0 before. */
template <typename T, typename Value>
DEVICE void map_put(u32 *words, int v, Value value)
{
	constexpr int es = sizeof(T);
	const u64 bits = map_bits<T>(value);

	if constexpr (es == 8) {
		words[2 * v] = static_cast<u32>(bits);
		words[2 * v + 1] = static_cast<u32>(bits >> 32);
	} else {
		words[v * es / 4] |= static_cast<u32>(bits) << v * es % 4 * 8;
	}
}

/* V values, of which get(i) is one, as elements in words. */
template <typename T, int V, class GET>
DEVICE void map_pack(u32 *words, GET get)
{
	if constexpr (map_is_byte<T>) { /* two numbers are one conversion */
		f32 near[V];
#pragma unroll
		for (int i = 0; i < V; i++)
			near[i] = map_near(get(i));
		element_pack<T>(near, words);
	} else {
#pragma unroll
		for (int w = 0; w < vec_words<V *static_cast<int>(sizeof(T))>; w++)
			words[w] = 0;
#pragma unroll
		for (int i = 0; i < V; i++)
			map_put<T>(words, i, get(i));
	}
}

template <typename T>
DEVICE typename map_computed<T>::type map_load(const T *from)
{
	u32 words[vec_words<sizeof(T)>];

	vec_load<sizeof(T)>(from, words);
	return map_at<T, 1>(words, 0);
}

/* V elements out of words, W bytes at once. */
template <int V, int W, typename T>
DEVICE void map_store(T *to, const u32 *words)
{
	constexpr int all = V * static_cast<int>(sizeof(T)), w = W < all ? W : all;

#pragma unroll
	for (int n = 0; n < all / w; n++) {
		u8 *const at = reinterpret_cast<u8 *>(to) + n * w;
		if constexpr (w < 4) {
			const u32 piece = words[n * w / 4] >> n * w % 4 * 8;
			vec_store<w>(at, &piece);
		} else {
			vec_store<w>(at, words + n * w / 4);
		}
	}
}

/* ---- Numbers ---- */

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

/* Rounds as if the value were stored as T and loaded again. */
template <typename T, typename Value>
DEVICE typename map_computed<T>::type map_cast(Value value)
{
	if constexpr (map_is_narrow<T>)
		return map_from<T>(map_bits<T>(value));
	else if constexpr (map_is<T, map_bool>)
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
