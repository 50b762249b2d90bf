/*
 * map.cuh: what generated statements are made with: elements in and out, arithmetic that is defined
 * for all integers, subscripts, and the two ways of going through a statement.
 *
 *   map_elements  each thread makes UNROLL vectors of the output, with all their loads in flight
 *   map_reduce    SPLIT threads share an output, or a vector of them, and join what each has in an
 *                 order that the shape alone decides; of long sums blocks have parts, which the
 *                 last one joins
 *
 * MAP is the generated structure: place() and term() turn numbers into places, fetch() loads what
 * lies side by side, value() is the right side for element v of a vector.
 */
#pragma once
#include "common/element.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/last.cuh"
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
constexpr bool map_is_half = map_is<T, f16> || map_is<T, bf16>;
template <typename T>
constexpr bool map_is_float = map_is<T, f32> || map_is<T, f64>;

/* ---- Elements ---- */

/* The type that an element is computed in. */
template <typename T>
struct map_computed {
	typedef typename index_choose<(sizeof(T) < 4), i32, T>::type type;
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

/* From the low bits of a word. */
template <typename T>
DEVICE typename map_computed<T>::type map_from(u64 word)
{
	if constexpr (map_is_half<T>)
		return element_widen(T{static_cast<u16>(word)});
	else if constexpr (map_is<T, map_bool>)
		return static_cast<u8>(word) != 0;
	else if constexpr (map_is<T, f32>)
		return __uint_as_float(static_cast<u32>(word));
	else if constexpr (map_is<T, f64>)
		return __longlong_as_double(static_cast<i64>(word));
	else
		return static_cast<T>(word);
}

template <typename T, typename Value>
DEVICE u64 map_bits(Value value)
{
	if constexpr (map_is_half<T>) {
		T half;
		element_narrow(static_cast<f32>(value), half);
		return half.bits;
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

/* Element v of them. */
template <typename T, i64 STEP, int WORDS>
DEVICE typename map_computed<T>::type map_at(const u32 (&words)[WORDS], int v)
{
	constexpr int es = sizeof(T);

	if constexpr (STEP == 0)
		v = 0;
	if constexpr (es == 8)
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

/* To T: whole numbers wrap, floats stop at the ends of what T holds, and a NaN is 0. */
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

/* From one type that is computed in to another. */
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

/* As if it were stored as T and loaded again. */
template <typename T, typename Value>
DEVICE typename map_computed<T>::type map_cast(Value value)
{
	if constexpr (map_is_half<T>)
		return map_from<T>(map_bits<T>(static_cast<f32>(value)));
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

/* By 0: 0.  The least number by -1: itself. */
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

/* By as many bits as fit the type. */
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

/* ---- Subscripts ---- */

template <i64 SIZE, typename T>
DEVICE bool map_within(T at)
{
	if constexpr (sizeof(T) == 4 && SIZE <= 0x7fffffff)
		return static_cast<u32>(at) < static_cast<u32>(SIZE);
	else
		return (static_cast<T>(-1) > static_cast<T>(1) || at >= 0) &&
			   static_cast<u64>(at) < static_cast<u64>(SIZE);
}
/* Known to be within. */
template <i64 SIZE, typename Offset, typename T>
DEVICE Offset map_trusted(T at)
{
	return static_cast<Offset>(at);
}
/* The nearest that is within. */
template <i64 SIZE, typename Offset, typename T>
DEVICE Offset map_clamped(T at)
{
	const bool below = static_cast<T>(-1) < static_cast<T>(1) && at < static_cast<T>(1);
	return map_within<SIZE>(at) ? static_cast<Offset>(at)
								: static_cast<Offset>(below ? 0 : SIZE - 1);
}
/* The first element, where what is read is not used. */
template <i64 SIZE, typename Offset, typename T>
DEVICE Offset map_masked(T at)
{
	return map_within<SIZE>(at) ? static_cast<Offset>(at) : static_cast<Offset>(0);
}

/* Subscripts that were out of range: how many, and of those that are numbered the first, as what is
 * left to the largest number of 64 bits. */
struct MapStrays {
	u64 first = 0;
	u32 count = 0;

	DEVICE void note(bool within, u64 position, u32 subscript)
	{
		const u64 code = ~(position << 8 | subscript);
		if (!within && code > first)
			first = code;
	}
	DEVICE void add(const MapStrays &other)
	{
		first = other.first > first ? other.first : first;
		count += other.count;
	}
};

template <class MAP>
DEVICE void map_report(const MapStrays &strays, u64 *report)
{
	if constexpr (MAP::reports && !MAP::first) {
		indices_report(report, strays.count);
	} else if constexpr (MAP::reports) {
		u64 seen = strays.first ? *static_cast<volatile u64 *>(report) : 0;
		while (seen < strays.first) {
			const u64 before = atomicCAS(report, seen, strays.first);
			if (before == seen)
				break;
			seen = before;
		}
	}
}

/* ---- Element by element ---- */

template <int THREADS, int UNROLL, bool LOOP, class MAP, class ONE>
DEVICE void map_elements(const MAP &map, const ONE &one, u64 elements, u64 *report)
{
	typedef typename MAP::Number Number;
	typedef typename MAP::Element Element;
	constexpr int v = MAP::vector, words = vec_words<v *static_cast<int>(sizeof(Element))>;
	const Number vectors = static_cast<Number>(elements / v);
	Number first = static_cast<Number>(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
	MapStrays strays;

	if (vectors > 0)
		do {
			typename MAP::Place at[UNROLL];
			typename MAP::Held held[UNROLL];
			u32 out[UNROLL][words];
			/* What is beyond the end does the last one again, and does not store it. */
#pragma unroll
			for (int u = 0; u < UNROLL; u++) {
				const Number n = first + u * THREADS;
				MAP::place(n < vectors ? n : vectors - 1, at[u]);
				map.fetch(at[u], held[u]);
			}
#pragma unroll
			for (int u = 0; u < UNROLL; u++) {
				MapStrays mine;
#pragma unroll
				for (int w = 0; w < words; w++)
					out[u][w] = 0;
#pragma unroll
				for (int i = 0; i < v; i++)
					map_put<Element>(out[u], i, map.value(at[u], held[u], i, mine));
				if (MAP::reports && first + u * THREADS < vectors)
					strays.add(mine);
			}
#pragma unroll
			for (int u = 0; u < UNROLL; u++) {
				const Number n = first + u * THREADS;
				if (n < vectors)
					map_store<v, MAP::store>(map.output() + static_cast<u64>(n) * v, out[u]);
			}
			first += static_cast<Number>(gridDim.x) * (THREADS * UNROLL);
		} while (LOOP && first < vectors);
	if constexpr (v > 1 && MAP::rest) {
		/* What is less than a vector. */
		const u64 rest = static_cast<u64>(vectors) * v + threadIdx.x;
		if (blockIdx.x == 0 && threadIdx.x < v && rest < elements) {
			typename ONE::Place at;
			typename ONE::Held held;
			u32 out[vec_words<static_cast<int>(sizeof(Element))>] = {0};
			ONE::place(static_cast<Number>(rest), at);
			one.fetch(at, held);
			map_put<Element>(out, 0, one.value(at, held, 0, strays));
			map_store<1, ONE::store>(one.output() + rest, out);
		}
	}
	map_report<MAP>(strays, report);
}

/* ---- Sums, products, least and greatest ---- */

/* Of one output, or of V, the terms of a piece that part number `part` of SPLIT has. */
template <int SPLIT, class MAP>
DEVICE void map_terms(const MAP &map, const typename MAP::Place &at, u32 piece, u32 part,
					  typename MAP::Result (&sum)[MAP::vector], MapStrays &strays)
{
	typedef typename MAP::Number Number;
	constexpr int unroll = 4, v = MAP::vector;
	constexpr Number each = (MAP::terms + MAP::pieces - 1) / MAP::pieces;
	const Number begin = each * piece;
	const Number end = MAP::pieces == 1 || MAP::terms - begin < each ? MAP::terms : begin + each;
	const Number rounds = (end - begin) / (SPLIT * unroll);

#pragma unroll 1
	for (Number n = 0; n < rounds; n++) {
		typename MAP::Place place[unroll];
		typename MAP::Held held[unroll];
#pragma unroll
		for (int u = 0; u < unroll; u++) {
			place[u] = at;
			MAP::term(begin + (n * unroll + u) * SPLIT + part, place[u]);
			map.fetch(place[u], held[u]);
		}
#pragma unroll
		for (int u = 0; u < unroll; u++) {
#pragma unroll
			for (int i = 0; i < v; i++)
				sum[i] = MAP::combine(sum[i], map.value(place[u], held[u], i, strays));
		}
	}
#pragma unroll 1
	for (Number n = begin + rounds * (SPLIT * unroll) + part; n < end; n += SPLIT) {
		typename MAP::Place place = at;
		typename MAP::Held held;
		MAP::term(n, place);
		map.fetch(place, held);
#pragma unroll
		for (int i = 0; i < v; i++)
			sum[i] = MAP::combine(sum[i], map.value(place, held, i, strays));
	}
}

/* Part 0 gets what all parts of its lane have, by halves. */
template <int THREADS, int SPLIT, int OUTS, class MAP>
DEVICE void map_join(u32 part, u32 lane, typename MAP::Result (&sum)[MAP::vector])
{
	constexpr int lanes = THREADS / SPLIT;
	__shared__ typename MAP::Result partial[SPLIT][lanes][OUTS];

#pragma unroll
	for (int i = 0; i < OUTS; i++)
		partial[part][lane][i] = sum[i];
	__syncthreads();
#pragma unroll 1
	for (u32 half = SPLIT / 2; half > 0; half /= 2) {
		if (part < half) {
#pragma unroll
			for (int i = 0; i < OUTS; i++) {
				sum[i] = MAP::combine(sum[i], partial[part + half][lane][i]);
				partial[part][lane][i] = sum[i];
			}
		}
		__syncthreads();
	}
}

/*
 * What the pieces of a group of outputs have comes together in scratch memory, behind a counter for
 * each group.  True for the threads of the block that comes last: sum is all of it then, in the
 * order of the pieces.
 */
template <int LANES, int OUTS, class MAP>
DEVICE bool map_gather(u8 *scratch, typename MAP::Number groups, typename MAP::Number group,
					   u32 piece, u32 part, u32 lane, typename MAP::Result (&sum)[MAP::vector])
{
	typedef typename MAP::Result Result;
	const u64 counters = (static_cast<u64>(groups) * 4 + 255) / 256 * 256;
	Result *const own = reinterpret_cast<Result *>(scratch + counters) +
						(static_cast<u64>(group) * MAP::pieces * LANES + lane) * OUTS;
	bool last = false;

	if (part == 0) {
#pragma unroll
		for (int i = 0; i < OUTS; i++)
			own[static_cast<u64>(piece) * LANES * OUTS + i] = sum[i];
	}
	__syncthreads();
	if (threadIdx.x == 0)
		last = last_of(reinterpret_cast<u32 *>(scratch) + group, MAP::pieces);
	if (!__syncthreads_or(last))
		return false;
	if (part == 0) {
#pragma unroll
		for (int i = 0; i < OUTS; i++)
			sum[i] = MAP::identity();
#pragma unroll 4
		for (u32 p = 0; p < MAP::pieces; p++) {
#pragma unroll
			for (int i = 0; i < OUTS; i++)
				sum[i] = MAP::combine(sum[i], own[static_cast<u64>(p) * LANES * OUTS + i]);
		}
	}
	return true;
}

template <int THREADS, int SPLIT, bool LOOP, class MAP>
DEVICE void map_reduce(const MAP &map, u64 elements, void *scratch, u64 *report)
{
	typedef typename MAP::Number Number;
	typedef typename MAP::Element Element;
	constexpr int v = MAP::vector, outs = MAP::rows ? 1 : v, lanes = THREADS / SPLIT;
	const Number outputs = static_cast<Number>(elements / outs);
	const u32 part = MAP::rows ? threadIdx.x % SPLIT : threadIdx.x / lanes;
	const u32 lane = MAP::rows ? threadIdx.x / SPLIT : threadIdx.x % lanes;
	const Number groups = (outputs + lanes - 1) / lanes;
	Number unit = static_cast<Number>(blockIdx.x);
	MapStrays strays;

	do {
		const Number group = unit / MAP::pieces, n = group * lanes + lane;
		const u32 piece = static_cast<u32>(unit - group * MAP::pieces);
		bool stores = true;
		typename MAP::Place at;
		typename MAP::Result sum[v];
		MapStrays mine;
#pragma unroll
		for (int i = 0; i < v; i++)
			sum[i] = MAP::identity();
		MAP::place(n < outputs ? n : outputs - 1, at);
		map_terms<SPLIT>(map, at, piece, part, sum, mine);
		if (MAP::reports && n < outputs)
			strays.add(mine);
		if constexpr (MAP::rows) {
#pragma unroll
			for (int i = 1; i < v; i++)
				sum[0] = MAP::combine(sum[0], sum[i]);
		}
		if constexpr (SPLIT > 1)
			map_join<THREADS, SPLIT, outs, MAP>(part, lane, sum);
		if constexpr (MAP::pieces > 1)
			stores = map_gather<lanes, outs, MAP>(static_cast<u8 *>(scratch), groups, group, piece,
												  part, lane, sum);
		if (stores && part == 0 && n < outputs) {
			u32 out[vec_words<outs *static_cast<int>(sizeof(Element))>] = {0};
#pragma unroll
			for (int i = 0; i < outs; i++)
				map_put<Element>(out, i, sum[i]);
			map_store<outs, MAP::store>(map.output() + static_cast<u64>(n) * outs, out);
		}
		unit += static_cast<Number>(gridDim.x);
	} while (LOOP && unit < groups * MAP::pieces);
	map_report<MAP>(strays, report);
}
