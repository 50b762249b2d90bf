/*
 * row_any.cuh: rows of any length, in steps, by as many threads as the launch says: row.cuh and
 * row_stream.cuh with sizes that are known when the kernel is launched.
 *
 * Vectors are cut and numbered as in row.cuh: with V above 1 they are aligned, and rows begin
 * anywhere between two of them; with V of 1 columns may lie apart.  A step takes COUNT vectors of
 * each thread; what the last step of a first pass brought in is still there for the second.
 */
#pragma once
#include "common/element.cuh"
#include "common/group.cuh"
#include "common/row.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define ROW_ANY_THREADS 512 /* of a block, at most */

/*
 * Threads that share a row: a power of two below 32, or whole warps.  Rows lie side by side in a
 * block, 2^shift threads each; shift 31: the block has one row.
 */
struct GroupAny {
	u32 shift;

	DEVICE u32 size() const
	{
		return shift == 31 ? blockDim.x : 1u << shift;
	}
	DEVICE u32 row() const
	{
		return threadIdx.x >> shift;
	}
	DEVICE u32 rows() const
	{
		return shift == 31 ? 1 : blockDim.x >> shift;
	}
	DEVICE u32 thread() const
	{
		return threadIdx.x - (row() << shift);
	}

	/* All threads of the row get what all its values make together.  All of the block come. */
	template <class Value, typename... With>
	DEVICE Value reduce(Value mine, With... with) const
	{
		switch (size()) {
		case 1:
			return mine;
		case 2:
			return group_butterfly<2>(mine, with...);
		case 4:
			return group_butterfly<4>(mine, with...);
		case 8:
			return group_butterfly<8>(mine, with...);
		case 16:
			return group_butterfly<16>(mine, with...);
		default:
			mine = group_butterfly<32>(mine, with...);
		}
		return size() == 32 ? mine : reduce_warps(mine, with...);
	}

  private:
	template <class Value, typename... With>
	DEVICE Value reduce_warps(Value mine, With... with) const
	{
		constexpr u32 most = ROW_ANY_THREADS / 32;
		__shared__ Value partial[most];
		const u32 warps = size() / 32, lane = threadIdx.x % most;

		if (threadIdx.x % 32 == 0)
			partial[threadIdx.x / 32] = mine;
		__syncthreads();
		mine = lane < warps ? partial[row() * warps + lane] : Value::none();
		__syncthreads(); /* the next reduction uses the memory again */
		return group_butterfly<most>(mine, with...);
	}
};

template <typename T, int V, int COUNT>
struct RowAny {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	typedef i64 Column;
	static constexpr int length = V, count = COUNT;
	static constexpr int bytes = V * static_cast<int>(sizeof(T));
	static constexpr int words = vec_words<bytes>;
	static constexpr bool skewed = V > 1;

	i64 columns;
	i64 begin; /* the column that the first thread's vector 0 begins with, at most 0 */
	i64 first; /* ... and this thread's */
	i64 apart; /* from a thread's vector to its next */

	DEVICE RowAny(const void *start, i64 columns, const GroupAny &group)
		: columns(columns), begin(0), apart(static_cast<i64>(group.size()) * V)
	{
		if constexpr (skewed)
			begin -= vec_beyond<bytes>(start) / static_cast<int>(sizeof(T));
		first = begin + static_cast<i64>(group.thread()) * V;
	}

	/* The column that a step begins with; it is the same for all threads of the row. */
	DEVICE i64 step(i64 number) const
	{
		return begin + number * (apart * COUNT);
	}
	DEVICE i64 column(i64 n) const
	{
		return first + n * apart;
	}
	DEVICE bool has(i64 n) const
	{
		return column(n) < columns;
	}
	DEVICE bool live(i64 n, int j) const
	{
		return !skewed || static_cast<u64>(column(n) + j) < static_cast<u64>(columns);
	}
	DEVICE bool inside(i64 n) const
	{
		return !skewed || (column(n) >= 0 && column(n) + V <= columns);
	}
};

/*
 * Calls body(number, here) for the row that this thread has a part in: its number, or 0 for a row
 * beyond the end, which is to be gone through all the same, but not written.  All threads of a
 * block come together, until there are no more rows.
 */
template <typename Body>
DEVICE void row_any_each(const GroupAny &group, i64 rows, Body body)
{
	i64 first = static_cast<i64>(blockIdx.x) * group.rows();

	do {
		const i64 number = first + group.row();
		body(number < rows ? number : 0, number < rows);
		first += static_cast<i64>(gridDim.x) * group.rows();
	} while (first < rows);
}

/* ---- Operands along a row, of a type that is known when the kernel is launched ---- */

enum row_any_type { ROW_ANY_NONE, ROW_ANY_F16, ROW_ANY_BF16, ROW_ANY_F32, ROW_ANY_F64 };

template <typename M>
constexpr bool row_any_typed = true;
template <>
constexpr bool row_any_typed<void> = false;

/*
 * Reads 16 bytes of elements of ES bytes, at any address.  The tensor lies at [begin, end).  An
 * aligned vector that holds nothing of the tensor is not read, and bytes that are not its own have
 * any value.
 */
template <int ES>
DEVICE void row_any_piece(const u8 *from, const u8 *begin, const u8 *end, u32 (&words)[4])
{
	const int beyond = vec_beyond<16>(from);
	const u8 *const low = from - beyond;
	u32 pair[8] = {};

	if (low + 16 > begin && low < end)
		vec_load<16>(low, pair);
	if (beyond == 0) {
#pragma unroll
		for (int w = 0; w < 4; w++)
			words[w] = pair[w];
		return;
	}
	if (low + 32 > begin && low + 16 < end)
		vec_load<16>(low + 16, pair + 4);
	vec_window<ES, 16>(pair, beyond, words);
}

/* Elements first .. first + V - 1, `step` apart; those outside 0 .. columns - 1 are not read, and
 * say nothing.  body(j, value) takes each as its own type widens it. */
template <typename M, int V, typename Body>
DEVICE void row_any_take(const M *start, i64 step, i64 first, i64 columns, Body body)
{
	constexpr int size = static_cast<int>(sizeof(M)), each = 16 / size;
	typedef typename element<M>::compute Own;

	if constexpr (V > 1) {
		if (step == 1) {
			const u8 *const begin = reinterpret_cast<const u8 *>(start);
#pragma unroll
			for (int i = 0; i < V; i += each) {
				u32 words[4];
				row_any_piece<size>(begin + (first + i) * size, begin, begin + columns * size,
									words);
#pragma unroll
				for (int j = 0; j < each; j++)
					body(i + j, element_at<M, Own>(words, j));
			}
			return;
		}
	}
#pragma unroll
	for (int j = 0; j < V; j++)
		if (static_cast<u64>(first + j) < static_cast<u64>(columns))
			body(j, element_load<Own>(start + (first + j) * step));
}

/* Does so for type M; or, if that is void, for any type, and one element. */
template <typename M, int V, typename Body>
DEVICE void row_any_read(u32 type, const void *start, i64 step, i64 first, i64 columns, Body body)
{
	if constexpr (row_any_typed<M>) {
		row_any_take<M, V>(static_cast<const M *>(start), step, first, columns, body);
	} else {
		static_assert(V == 1, "one element");
		if (type == ROW_ANY_F16)
			row_any_take<f16, V>(static_cast<const f16 *>(start), step, first, columns, body);
		else if (type == ROW_ANY_BF16)
			row_any_take<bf16, V>(static_cast<const bf16 *>(start), step, first, columns, body);
		else if (type == ROW_ANY_F32)
			row_any_take<f32, V>(static_cast<const f32 *>(start), step, first, columns, body);
		else
			row_any_take<f64, V>(static_cast<const f64 *>(start), step, first, columns, body);
	}
}
