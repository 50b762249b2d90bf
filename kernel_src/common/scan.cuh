/*
 * scan.cuh: scans along rows: what an operator makes of each element and all before it.  An
 * operator is a struct of
 *
 *   A, B, C               the types of its inputs, ScanNone where there is none; A's elements count
 *   Y, Z                  the types of its outputs, Z as well ScanNone
 *   Value                 what is known of elements that follow one another; none() knows of none,
 *                         and merge(next) adds what is known of those behind
 *   ahead                 B is read one element further on, and is 1 behind the last, where each
 *                         element belongs to its own result
 *   value(held, v, index, exclusive)      of element v of a vector, number `index` of its row
 *   clear(held, v)        makes of element v one that changes nothing but none()
 *   result(out, held, v, before, upto, exclusive)   element v of the outputs, by what is known of
 *                         the elements before it, and of those up to it
 *
 *   rows      a row's elements lie side by side in y: threads scan a row, HELD vectors each
 *   columns   rows lie side by side: LANES vectors of rows, of which SPLIT threads share each
 *
 * A thread goes over its elements twice: first for what they make together, and when it knows what
 * is before them, for the results.  In between it keeps them as they were read.
 *
 * The order of merging depends on the shape of a block, the length of a row and, where SKEW is set,
 * how far beyond an aligned address it begins.
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
		vec_store<each>(reinterpret_cast<u8 *>(to) + i * each, words + i * vec_words<each>);
}

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

/* The values of the lanes up to this one, among WIDTH lanes. */
template <int WIDTH, class Value>
DEVICE Value scan_lanes(Value mine, int lane)
{
#pragma unroll
	for (int far = 1; far < WIDTH; far *= 2) {
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

/* ---- Rows ---- */

/* Reads a vector of a row that begins at scan position `position`: the elements before position 0,
 * in the first vector alone, lie beyond the row's end, or before its beginning, and are cleared. */
template <class S, bool SKEW, bool REVERSE, int V, typename Number>
DEVICE void scan_read_row(ScanHeld<S, V> &held, const ScanOperands &from, const ScanPlace &row,
						  const ScanSteps &steps, Number columns, Number position, bool first,
						  bool exclusive)
{
	typedef typename S::B B;
	const Number at = REVERSE ? columns - V - position : position;

	scan_read(held, from, row, steps, static_cast<i64>(at));
	if constexpr (S::ahead) {
		if (!exclusive) {
			/* Moves on by one element; that of the next vector comes alone. */
			u32 next[scan_words<B, 1>] = {};
			const Number behind = position + V;
			const i64 place = static_cast<i64>(REVERSE ? columns - 1 - behind : behind);
			if (behind < columns)
				scan_load<B, 1>(
					static_cast<const B *>(from.in[1]) + row.in[1] + place * steps.in[1], next);
#pragma unroll
			for (int i = 0; i < V; i++) {
				const int v = REVERSE ? V - 1 - i : i, other = REVERSE ? v - 1 : v + 1;
				if (position + i + 1 == columns)
					scan_set<B>(held.b, v, typename S::Result(1));
				else
					scan_set_bits<B>(held.b, v,
									 i + 1 < V
										 ? vec_element<sizeof(B)>(held.b, i + 1 < V ? other : v)
										 : vec_element<sizeof(B)>(next, 0));
			}
		}
	}
	if constexpr (SKEW) {
		if (first && position < 0) {
#pragma unroll
			for (int i = 0; i < V - 1; i++)
				if (position + i < 0)
					S::clear(held, REVERSE ? V - 1 - i : i);
		}
	}
}

/* The number of an element; -1: it is before the scan's first. */
template <bool SKEW, bool REVERSE, typename Number>
DEVICE i64 scan_index(Number columns, Number position)
{
	return SKEW && position < 0 ? -1 : REVERSE ? columns - 1 - position : position;
}

/* Writes the elements of a vector that are inside the row; the vectors of all lanes, as above. */
template <class S, bool SKEW, bool REVERSE, int V, typename Number>
DEVICE void scan_write_row(const ScanOut<S, V> &out, const ScanOperands &to, i64 begin,
						   Number columns, Number position, bool first, bool here)
{
	const i64 at = begin + static_cast<i64>(REVERSE ? columns - V - position : position);
	const bool whole = !SKEW || (!(first && position < 0) && position + V <= columns);

	if constexpr (scan_has<typename S::Z>)
		scan_write(out, to, at, here && whole);
	else if (here && whole)
		scan_store(static_cast<typename S::Y *>(to.y) + at, out.y);
	if (whole || !here)
		return;
#pragma unroll
	for (int v = 0; v < V; v++) {
		const Number place = position + (REVERSE ? V - 1 - v : v);
		if ((first && place < 0) || place >= columns)
			continue;
		const typename S::Result y[1] = {out.y[v]};
		scan_store(static_cast<typename S::Y *>(to.y) + at + v, y);
		if constexpr (scan_has<typename S::Z>) {
			const i64 z[1] = {out.z[v]};
			if (to.z)
				scan_store(static_cast<typename S::Z *>(to.z) + at + v, z);
		}
	}
}

/*
 * A block has `side` rows, of `size` threads each: one row if BLOCK is set, and otherwise a row for
 * each part of WIDTH threads.  at(number, place) says where a row begins.  SKEW: rows begin
 * between two vectors, equally far beyond one in all operands.  EARLY: the next step is read before
 * this one is computed.
 */
template <class S, int V, int HELD, int WIDTH, bool BLOCK, bool SKEW, bool REVERSE, bool EARLY,
		  typename Number, typename At>
DEVICE void scan_rows_of(const ScanOperands &operands, i64 rows, Number columns,
						 const ScanSteps &steps, int size, int side, bool exclusive, At at)
{
	typedef typename S::Value Value;
	static_assert(!BLOCK || WIDTH == 32, "whole warps share a row");
	__shared__ Value shared[2][32]; /* in turn, so that one barrier a step will do */
	const int thread = static_cast<int>(threadIdx.x) % size, lane = thread % WIDTH;
	const int warp = thread / WIDTH, warps = size / WIDTH;
	int turn = 0;

	for (i64 first = static_cast<i64>(blockIdx.x) * side; first < rows;
		 first += static_cast<i64>(gridDim.x) * side) {
		const i64 number = first + static_cast<i64>(threadIdx.x) / size;
		const bool here = number < rows;
		ScanPlace row;
		Value carry = S::none();
		int lead = 0;

		at(here ? number : 0, row);
		if constexpr (SKEW) {
			constexpr int bytes = static_cast<int>(sizeof(typename S::Y));
			const typename S::Y *const y = static_cast<typename S::Y *>(operands.y) + row.out;
			lead = vec_beyond<V * bytes>(REVERSE ? y + columns : y) / bytes;
			lead = REVERSE ? (V - lead) % V : lead;
		}
		const Number stride = static_cast<Number>(HELD * V) * size;
		const auto read = [&](Number step, ScanHeld<S, V>(&into)[HELD]) {
#pragma unroll
			for (int h = 0; h < HELD; h++) {
				const Number position = step + (warp * HELD * WIDTH + lane) * V + h * WIDTH * V;
				if (here && position < columns)
					scan_read_row<S, SKEW, REVERSE>(into[h], operands, row, steps, columns,
													position, h == 0, exclusive);
				else
					scan_clear(into[h]);
			}
		};
		ScanHeld<S, V> next[EARLY ? HELD : 1];
		if constexpr (EARLY)
			read(static_cast<Number>(-lead), next);
#pragma unroll 1
		for (Number step = -lead; step < columns; step += stride) {
			ScanHeld<S, V> held[HELD];
			Value upto[HELD];
			const Number begin = step + (warp * HELD * WIDTH + lane) * V;
			if constexpr (EARLY) {
#pragma unroll
				for (int h = 0; h < HELD; h++)
					held[h] = next[h];
				if (step + stride < columns)
					read(step + stride, next);
			} else {
				read(step, held);
			}
#pragma unroll
			for (int h = 0; h < HELD; h++) {
#pragma unroll
				for (int i = 0; i < V; i++) {
					const int v = REVERSE ? V - 1 - i : i;
					const i64 index = scan_index<SKEW, REVERSE>(
						columns, static_cast<Number>(begin + h * WIDTH * V + i));
					const Value value = S::value(held[h], v, index, exclusive);
					if (i == 0)
						upto[h] = value;
					else
						upto[h].merge(value);
				}
				upto[h] = scan_lanes<WIDTH>(upto[h], lane);
			}
			Value before = carry;
			if constexpr (BLOCK) {
				Value all = upto[0];
#pragma unroll
				for (int h = 1; h < HELD; h++)
					all.merge(upto[h]);
				if (lane == 31)
					shared[turn][warp] = all;
				__syncthreads();
				all = scan_lanes<32>(shared[turn][lane < warps ? lane : warps - 1], lane);
				turn ^= 1;
				const Value warps_before = scan_from<32>(all, warp > 0 ? warp - 1 : 0);
				if (warp > 0)
					before.merge(warps_before);
				carry.merge(scan_from<32>(all, warps - 1));
			}
#pragma unroll
			for (int h = 0; h < HELD; h++) {
				const Number position = begin + h * WIDTH * V;
				const Value lanes_before = scan_from_before<WIDTH>(upto[h], 1);
				const Value lanes_all = scan_from<WIDTH>(upto[h], WIDTH - 1);
				ScanOut<S, V> out;
				Value last = before;
				if (lane > 0)
					last.merge(lanes_before);
#pragma unroll
				for (int i = 0; i < V; i++) {
					const int v = REVERSE ? V - 1 - i : i;
					Value next = last;
					next.merge(S::value(
						held[h], v,
						scan_index<SKEW, REVERSE>(columns, static_cast<Number>(position + i)),
						exclusive));
					S::result(out, held[h], v, last, next, exclusive);
					last = next;
				}
				scan_write_row<S, SKEW, REVERSE>(out, operands, row.out, columns, position, h == 0,
												 here && position < columns);
				before.merge(lanes_all);
			}
			if constexpr (!BLOCK)
				carry = before;
		}
	}
}

/* ---- Columns ---- */

/*
 * A thread has V rows that lie side by side, and HELD columns of them at a time; SPLIT: `split` at
 * most, and whole warps.  The parts of a step that are in one warp meet there, then warps do.
 */
template <class S, int V, int HELD, int LANES, int SPLIT, bool REVERSE, bool EARLY, typename Number,
		  typename At>
DEVICE void scan_columns_of(const ScanOperands &operands, i64 rows, Number columns,
							const ScanSteps &steps, int split, bool exclusive, At at)
{
	typedef typename S::Value Value;
	typedef typename S::B B;
	/* Parts of a warp, and warps, or parts that are wider, at most. */
	constexpr int inside = LANES < 32 ? 32 / LANES : 1, teams = (SPLIT + inside - 1) / inside;
	/* In turn, so that one barrier a step will do. */
	alignas(16) __shared__ Value shared[2][teams][LANES][V];
	const int lane = static_cast<int>(threadIdx.x) % LANES;
	const int part = static_cast<int>(threadIdx.x) / LANES;
	const int team = part / inside, place = part % inside, count = (split + inside - 1) / inside;
	const Number stride = static_cast<Number>(split) * HELD;
	int turn = 0;

	for (i64 first = static_cast<i64>(blockIdx.x) * (LANES * V); first < rows;
		 first += static_cast<i64>(gridDim.x) * (LANES * V)) {
		const i64 number = first + lane * V;
		const bool here = number < rows;
		Value carry[V];
		ScanPlace row;

#pragma unroll
		for (int v = 0; v < V; v++)
			carry[v] = S::none();
		at(here ? number : 0, row);
		const auto read = [&](Number begin, ScanHeld<S, V>(&into)[HELD]) {
#pragma unroll
			for (int i = 0; i < HELD; i++) {
				const Number column = REVERSE ? columns - 1 - begin - i : begin + i;
				if (here && begin + i < columns) {
					ScanPlace from = row;
					const bool moves = S::ahead && !exclusive, last = begin + i + 1 == columns;
					if (moves && !last)
						from.in[1] += REVERSE ? -steps.in[1] : steps.in[1];
					scan_read(into[i], operands, from, steps, static_cast<i64>(column));
					if constexpr (S::ahead) {
						if (moves && last)
#pragma unroll
							for (int v = 0; v < V; v++)
								scan_set<B>(into[i].b, v, typename S::Result(1));
					}
				} else {
					scan_clear(into[i]);
				}
			}
		};
		ScanHeld<S, V> next[EARLY ? HELD : 1];
		if constexpr (EARLY)
			read(static_cast<Number>(part * HELD), next);
#pragma unroll 1
		for (Number step = 0; step < columns; step += stride) {
			const Number begin = step + part * HELD;
			ScanHeld<S, V> held[HELD];
			Value before[V];
			if constexpr (EARLY) {
#pragma unroll
				for (int i = 0; i < HELD; i++)
					held[i] = next[i];
				if (step + stride < columns)
					read(begin + stride, next);
			} else {
				read(begin, held);
			}
#pragma unroll
			for (int v = 0; v < V; v++)
				before[v] = carry[v];
			if constexpr (SPLIT > 1) {
#pragma unroll
				for (int v = 0; v < V; v++) {
					Value all =
						S::value(held[0], v, REVERSE ? columns - 1 - begin : begin, exclusive);
#pragma unroll
					for (int i = 1; i < HELD; i++)
						all.merge(S::value(
							held[i], v, REVERSE ? columns - 1 - begin - i : begin + i, exclusive));
#pragma unroll
					for (int far = 1; far < inside; far *= 2) {
						Value upto = scan_from_before<32>(all, far * LANES);
						upto.merge(all);
						if (place >= far)
							all = upto;
					}
					if (place == inside - 1)
						shared[turn][team][lane][v] = all;
					/* Of the parts before this one, in its warp. */
					if constexpr (inside > 1)
						before[v] = scan_from_before<32>(all, LANES);
				}
				__syncthreads();
				Value warps[V];
#pragma unroll 2
				for (int other = 0; other < count; other++) {
#pragma unroll
					for (int v = 0; v < V; v++) {
						if (other == team)
							warps[v] = carry[v];
						carry[v].merge(shared[turn][other][lane][v]);
					}
				}
#pragma unroll
				for (int v = 0; v < V; v++) {
					if (inside > 1 && place > 0)
						warps[v].merge(before[v]);
					before[v] = warps[v];
				}
				turn ^= 1;
			}
			/* Where a thread has its rows alone, `before` goes on to the next step. */
#pragma unroll
			for (int i = 0; i < HELD; i++) {
				const Number column = REVERSE ? columns - 1 - begin - i : begin + i;
				ScanOut<S, V> out;
#pragma unroll
				for (int v = 0; v < V; v++) {
					Value upto = before[v];
					upto.merge(S::value(held[i], v, column, exclusive));
					S::result(out, held[i], v, before[v], upto, exclusive);
					before[v] = upto;
				}
				scan_write(out, operands, row.out + static_cast<i64>(column) * steps.out,
						   here && begin + i < columns);
			}
			if constexpr (SPLIT == 1) {
#pragma unroll
				for (int v = 0; v < V; v++)
					carry[v] = before[v];
			}
		}
	}
}

/* ---- Kernels: DIMS, Y and those of IN number the rows, as in index.cuh ---- */

/* The type of numbers of columns. */
template <i64 COLUMNS>
using ScanNumber = typename index_choose<(COLUMNS > 0x3fffffff), i64, int>::type;

/* An input: the step from column to column, and its strides. */
template <i64 STEP, class STRIDES>
struct ScanIn {
	static constexpr i64 step = STEP;
	typedef STRIDES strides;
};

template <class DIMS, class Y, typename Index, class... IN>
struct ScanPlaces {
	DEVICE void operator()(i64 number, ScanPlace &place) const
	{
		const Index i = static_cast<Index>(number);
		const i64 in[] = {index_offset<i64>(i, DIMS{}, typename IN::strides{})...};
		place = {{0, 0, 0}, index_offset<i64>(i, DIMS{}, Y{})};
#pragma unroll
		for (int k = 0; k < static_cast<int>(sizeof...(IN)); k++)
			place.in[k] = in[k];
	}
};

template <class S, int V, int HELD, int SIZE, int ROWS, bool SKEW, bool EARLY, bool REVERSE,
		  bool EXCLUSIVE, i64 COLUMNS, class DIMS, class Y, typename Index, class... IN>
__global__ LAUNCH_BOUNDS(SIZE *ROWS) void scan_rows(const void *a, const void *b, const void *c,
													void *y, void *z, i64 rows)
{
	static_assert(SIZE <= 32 || (ROWS == 1 && SIZE % 32 == 0), "whole warps share a row");
	scan_rows_of<S, V, HELD, (SIZE < 32 ? SIZE : 32), (SIZE > 32), SKEW, REVERSE, EARLY>(
		{{a, b, c}, y, z}, rows, static_cast<ScanNumber<COLUMNS>>(COLUMNS), {{IN::step...}, 1},
		SIZE, ROWS, EXCLUSIVE, ScanPlaces<DIMS, Y, Index, IN...>{});
}

template <class S, int V, int HELD, int LANES, int SPLIT, bool EARLY, bool REVERSE, bool EXCLUSIVE,
		  i64 COLUMNS, i64 Y_STEP, class DIMS, class Y, typename Index, class... IN>
__global__ LAUNCH_BOUNDS(LANES *SPLIT) void scan_columns(const void *a, const void *b,
														 const void *c, void *y, void *z, i64 rows)
{
	scan_columns_of<S, V, HELD, LANES, SPLIT, REVERSE, EARLY>(
		{{a, b, c}, y, z}, rows, static_cast<ScanNumber<COLUMNS>>(COLUMNS), {{IN::step...}, Y_STEP},
		SPLIT, EXCLUSIVE, ScanPlaces<DIMS, Y, Index, IN...>{});
}

struct ScanSpace {
	Space<4, u64> space;
	DEVICE void operator()(i64 number, ScanPlace &place) const
	{
		i64 offset[4];
		space.at(static_cast<u64>(number), offset);
		place = {{offset[0], offset[1], offset[2]}, offset[3]};
	}
};

#define SCAN_SPACE                                                                                \
	SPACE_SIZES(u64), SPACE_STRIDES(as), SPACE_STRIDES(bs), SPACE_STRIDES(cs), SPACE_STRIDES(ys), \
		i64 a_step, i64 b_step, i64 c_step, i64 y_step, u32 exclusive
#define SCAN_SPACE_MADE                                                                 \
	{                                                                                   \
		{                                                                               \
			SPACE_SIZES_MADE(u64),                                                      \
			{                                                                           \
				SPACE_STRIDES_MADE(as), SPACE_STRIDES_MADE(bs), SPACE_STRIDES_MADE(cs), \
					SPACE_STRIDES_MADE(ys)                                              \
			}                                                                           \
		}                                                                               \
	}

/* Sizes and strides are arguments.  THREADS: of a block, at most.  BLOCK: all of them share a row;
 * if not, each warp has one. */
template <class S, int V, int HELD, int THREADS, bool BLOCK, bool REVERSE>
__global__ __launch_bounds__(THREADS, 1) void scan_rows_generic(const void *a, const void *b,
																const void *c, void *y, void *z,
																i64 rows, i64 columns, SCAN_SPACE)
{
	const ScanSpace at = SCAN_SPACE_MADE;
	const int threads = static_cast<int>(blockDim.x);
	scan_rows_of<S, V, HELD, 32, BLOCK, (V > 1), REVERSE, false>(
		{{a, b, c}, y, z}, rows, columns, {{a_step, b_step, c_step}, y_step}, BLOCK ? threads : 32,
		BLOCK ? 1 : threads / 32, exclusive, at);
}

template <class S, int V, int HELD, int LANES, int SPLIT, bool REVERSE>
__global__ LAUNCH_BOUNDS(LANES *SPLIT) void scan_columns_generic(const void *a, const void *b,
																 const void *c, void *y, void *z,
																 i64 rows, i64 columns, SCAN_SPACE)
{
	const ScanSpace at = SCAN_SPACE_MADE;
	scan_columns_of<S, V, HELD, LANES, SPLIT, REVERSE, false>(
		{{a, b, c}, y, z}, rows, columns, {{a_step, b_step, c_step}, y_step},
		static_cast<int>(blockDim.x) / LANES, exclusive, at);
}
