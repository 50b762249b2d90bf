/*
 * map_values.cuh: the elements of generated statements, in and out of memory: a value is of the
 * type that it is computed in (map_numbers.cuh), an element of its tensor's.
 */
#pragma once
#include "common/element.cuh"
#include "common/map_numbers.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* An element of dtype bool: true where it is not 0. */
struct map_bool {
	u8 bits;
};

template <typename T>
constexpr bool map_is_byte = map_is<T, f8e4m3> || map_is<T, f8e5m2>;
template <typename T>
constexpr bool map_is_byte<sat<T>> = true;
/* Floats that are computed in f32. */
template <typename T>
constexpr bool map_is_narrow = map_is<T, f16> || map_is<T, bf16> || map_is_byte<T>;

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

/* A whole number as an f64 that rounds to fewer bits as the number does: the last bit of an f64
 * stands for all behind it. */
template <typename Value>
DEVICE f64 map_near_whole(Value value)
{
	const f64 near = static_cast<f64>(value);

	if constexpr (sizeof(Value) == 8) {
		if (fabs(near) >= 0x1p53)
			return static_cast<f64>((value & ~0xfff) | (value & 0xfff ? 0x800 : 0));
	}
	return near;
}

/* The f32 on the way to a narrower T.  Only bf16 holds whole numbers that an f32 rounds. */
template <typename T, typename Value>
DEVICE f32 map_near(Value value)
{
	if constexpr (map_is<Value, f64>)
		return element_near(value);
	else if constexpr (map_is<T, bf16> && !map_is<Value, f32> && sizeof(Value) >= 4)
		return element_near(map_near_whole(value));
	else
		return static_cast<f32>(value);
}

template <typename T, typename Value>
DEVICE u64 map_bits(Value value)
{
	if constexpr (map_is_narrow<T>) {
		T narrow;
		element_narrow(map_near<T>(value), narrow);
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
			near[i] = map_near<T>(get(i));
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
