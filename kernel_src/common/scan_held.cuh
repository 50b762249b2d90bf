/*
 * scan_held.cuh: what scans (scan.cuh) read, hold and write of each operand, and what lanes tell
 * each other of it.
 */
#pragma once
#include "common/element.cuh"
#include "common/index.cuh"
#include "common/space.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

struct ScanNone {
};

template <typename T>
constexpr bool scan_has = true;
template <>
constexpr bool scan_has<ScanNone> = false;
template <typename T>
constexpr bool scan_integer = false;
template <>
constexpr bool scan_integer<i32> = true;
template <>
constexpr bool scan_integer<i64> = true;

template <typename T, int V>
constexpr int scan_words = vec_words<V *static_cast<int>(sizeof(T))>;

/* Where the operands begin, how far elements of a row are apart in each, and how far a row is from
 * the beginning. */
struct ScanOperands {
	const void *in[3];
	void *y, *z;
};
struct ScanSteps {
	i64 in[3], out;
};
struct ScanPlace {
	i64 in[3], out;
};

/* V elements of each input. */
template <class S, int V>
struct ScanHeld {
	u32 a[scan_words<typename S::A, V>];
	u32 b[scan_words<typename S::B, V>];
	u32 c[scan_words<typename S::C, V>];
};
template <class S, int V>
struct ScanOut {
	typename S::Result y[V];
	i64 z[V];
};

/* ---- Elements in words ---- */

template <typename T>
DEVICE void scan_set_bits(u32 *words, int v, u64 bits)
{
	if constexpr (sizeof(T) == 8) {
		words[2 * v] = static_cast<u32>(bits);
		words[2 * v + 1] = static_cast<u32>(bits >> 32);
	} else if constexpr (sizeof(T) == 4) {
		words[v] = static_cast<u32>(bits);
	} else {
		words[v / 2] = (words[v / 2] & 0xffff0000u >> v % 2 * 16) | static_cast<u32>(bits)
																		<< v % 2 * 16;
	}
}

template <typename T, typename Real>
DEVICE Real scan_get(const u32 *words, int v)
{
	if constexpr (scan_integer<T>)
		return static_cast<Real>(vec_element<sizeof(T)>(words, v));
	else
		return element_at<T, Real>(words, v);
}

template <typename T, typename Real>
DEVICE void scan_set(u32 *words, int v, Real value)
{
	if constexpr (scan_integer<T>) {
		scan_set_bits<T>(words, v, static_cast<u64>(value));
	} else {
		u32 one[2] = {0, 0};
		const Real in[1] = {value};
		element_pack<T>(in, one);
		const u64 high = sizeof(T) == 8 ? one[1] : 0;
		scan_set_bits<T>(words, v, high << 32 | one[0]);
	}
}

/* Vectors of more than 16 bytes move in parts. */
template <typename T, int V>
DEVICE void scan_load(const T *from, u32 (&words)[scan_words<T, V>])
{
	constexpr int bytes = V * static_cast<int>(sizeof(T)), each = bytes < 16 ? bytes : 16;
#pragma unroll
	for (int i = 0; i < bytes / each; i++)
		vec_load<each>(reinterpret_cast<const u8 *>(from) + i * each, words + i * vec_words<each>);
}

template <typename T, int V, typename Real>
DEVICE void scan_store(T *to, const Real (&in)[V])
{
	constexpr int bytes = V * static_cast<int>(sizeof(T)), each = bytes < 16 ? bytes : 16;
	u32 words[scan_words<T, V>] = {};
	if constexpr (scan_integer<T>) {
#pragma unroll
		for (int v = 0; v < V; v++)
			scan_set_bits<T>(words, v, static_cast<u64>(in[v]));
	} else {
		element_pack<T>(in, words);
	}
#pragma unroll
	for (int i = 0; i < bytes / each; i++)
		vec_store_far<each>(reinterpret_cast<u8 *>(to) + i * each, words + i * vec_words<each>);
}

/* The chunk (scan.cuh) of a thread's elements; nothing where there are none. */
template <class S, int HELD, int N, bool CHUNKS = S::chunks>
struct ScanChunk {
	typename S::template Chunk<HELD, N> chunk;
};
template <class S, int HELD, int N>
struct ScanChunk<S, HELD, N, false> {
};

/* ---- Vectors of the operands ---- */

template <class S, int V>
DEVICE void scan_clear(ScanHeld<S, V> &held)
{
#pragma unroll
	for (int v = 0; v < V; v++)
		S::clear(held, v);
}

/* Reads a vector whose element 0 is number `at` of its row. */
template <class S, int V>
DEVICE void scan_read(ScanHeld<S, V> &held, const ScanOperands &from, const ScanPlace &row,
					  const ScanSteps &steps, i64 at)
{
	typedef typename S::A A;
	typedef typename S::B B;
	typedef typename S::C C;
	scan_load<A, V>(static_cast<const A *>(from.in[0]) + row.in[0] + at * steps.in[0], held.a);
	if constexpr (scan_has<B>)
		scan_load<B, V>(static_cast<const B *>(from.in[1]) + row.in[1] + at * steps.in[1], held.b);
	if constexpr (scan_has<C>)
		scan_load<C, V>(static_cast<const C *>(from.in[2]) + row.in[2] + at * steps.in[2], held.c);
}

/* ---- Values of lanes ---- */

template <class Value>
union ScanWords {
	Value value;
	u32 word[sizeof(Value) / sizeof(u32)];
};

/* The value of the lane that is `far` lanes before, among WIDTH. */
template <int WIDTH, class Value>
DEVICE Value scan_from_before(const Value &mine, int far)
{
	ScanWords<Value> words = {mine};
#pragma unroll
	for (int w = 0; w < static_cast<int>(sizeof(Value) / sizeof(u32)); w++)
		words.word[w] = __shfl_up_sync(0xffffffffu, words.word[w], far, WIDTH);
	return words.value;
}
template <int WIDTH, class Value>
DEVICE Value scan_from(const Value &mine, int lane)
{
	ScanWords<Value> words = {mine};
#pragma unroll
	for (int w = 0; w < static_cast<int>(sizeof(Value) / sizeof(u32)); w++)
		words.word[w] = __shfl_sync(0xffffffffu, words.word[w], lane, WIDTH);
	return words.value;
}

/* The values of the lanes up to this one, among WIDTH, of which the first `lanes` are asked. */
template <int WIDTH, class Value>
DEVICE Value scan_lanes(Value mine, int lane, int lanes = WIDTH)
{
#pragma unroll
	for (int far = 1; far < WIDTH; far *= 2) {
		if (far >= lanes)
			break;
		Value upto = scan_from_before<WIDTH>(mine, far);
		upto.merge(mine);
		if (lane >= far)
			mine = upto;
	}
	return mine;
}

/* The number of the lane that differs in its last bit. */
DEVICE i64 scan_from_beside(i64 mine)
{
	const u64 bits = static_cast<u64>(mine);
	const u32 low = __shfl_xor_sync(0xffffffffu, static_cast<u32>(bits), 1);
	const u32 high = __shfl_xor_sync(0xffffffffu, static_cast<u32>(bits >> 32), 1);
	return static_cast<i64>(static_cast<u64>(high) << 32 | low);
}

/*
 * Writes vectors of all lanes of a warp that have one `here`.  A vector of Z's that is longer than
 * 16 bytes goes out with that of the lane beside, half of each by either: so the halves of a sector
 * leave together.
 */
template <class S, int V>
DEVICE void scan_write(const ScanOut<S, V> &out, const ScanOperands &to, i64 at, bool here)
{
	typedef typename S::Y Y;
	typedef typename S::Z Z;
	if (here)
		scan_store(static_cast<Y *>(to.y) + at, out.y);
	if constexpr (scan_has<Z>) {
		constexpr int half = 16 / static_cast<int>(sizeof(Z)), parts = V / half;
		if (!to.z)
			return;
		if constexpr (parts < 2) {
			if (here)
				scan_store(static_cast<Z *>(to.z) + at, out.z);
		} else {
			/* First the vector of the even lane, then that of the odd one. */
			const bool odd = threadIdx.x % 2;
			const i64 mine = here ? at : i64(-1), other = scan_from_beside(mine);
			const i64 even = odd ? other : mine, next = odd ? mine : other;
#pragma unroll
			for (int i = 0; i < parts; i += 2) {
				i64 one[half], two[half];
#pragma unroll
				for (int k = 0; k < half; k++) {
					const i64 first = out.z[i * half + k], second = out.z[(i + 1) * half + k];
					const i64 given = scan_from_beside(odd ? first : second);
					one[k] = odd ? given : first;
					two[k] = odd ? second : given;
				}
				if (even >= 0)
					scan_store(static_cast<Z *>(to.z) + even + (i + odd) * half, one);
				if (next >= 0)
					scan_store(static_cast<Z *>(to.z) + next + (i + odd) * half, two);
			}
		}
	}
}
