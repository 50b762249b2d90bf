/*
 * norm_any.cuh: rows of any length (row_any.cuh), for layer_norm, rms_norm and their backward:
 * where elements of two inputs lie, how they come in, and gamma and beta.
 */
#pragma once
#include "common/norm.cuh"
#include "common/row_any.cuh"
#include "common/row_ring.cuh"
#include "common/space.cuh"

/*
 * Two inputs.  Rows begin where `space` says, and columns are `step` apart; or, if their columns
 * are not evenly spaced, `space` numbers all elements, and V is 1.
 */
template <typename T>
struct NormAnyInputs {
	const T *start[2];
	i64 step[2];
	bool pieces;
	Space<2, u64> space;

	/* The beginning of a row; for a tensor in pieces it is of no use. */
	DEVICE void row(i64 number, i64 (&at)[2]) const
	{
		if (pieces)
			at[0] = at[1] = 0;
		else
			space.at(static_cast<u64>(number), at);
	}
};

/* INPUTS of them as a thread holds a step of their rows. */
template <class ROW, int INPUTS>
struct NormAnyStep {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	static constexpr int V = ROW::length, count = ROW::count;

	const ROW row;
	u32 word[count][INPUTS][ROW::words];

	DEVICE explicit NormAnyStep(const ROW &row, b128 * = nullptr, u32 = 0) : row(row)
	{
	}
	DEVICE void begin(const NormAnyInputs<T> &, const i64 (&)[2])
	{
	}
	DEVICE void next(const NormAnyInputs<T> &inputs, i64 number, const i64 (&at)[2], i64 step)
	{
		fetch(inputs, number, at, step);
	}
	DEVICE void back(const NormAnyInputs<T> &inputs, i64 number, const i64 (&at)[2], i64 step)
	{
		fetch(inputs, number, at, step);
	}

	/* A step of row `number`; at: where the rows begin. */
	DEVICE void fetch(const NormAnyInputs<T> &inputs, i64 number, const i64 (&at)[2], i64 step)
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u, column = row.column(n);
			i64 offset[2] = {at[0] + column, at[1] + column};
			if (!row.has(n))
				continue;
			if constexpr (V == 1) {
				if (inputs.pieces) {
					inputs.space.at(static_cast<u64>(number * row.columns + column), offset);
				} else {
#pragma unroll
					for (int i = 0; i < 2; i++)
						offset[i] = at[i] + column * inputs.step[i];
				}
			}
#pragma unroll
			for (int i = 0; i < INPUTS; i++)
				vec_load<ROW::bytes>(inputs.start[i] + offset[i], word[u][i]);
		}
	}

	/* Vector u of the step. */
	DEVICE void values(int u, Compute (&out)[INPUTS][V]) const
	{
#pragma unroll
		for (int i = 0; i < INPUTS; i++)
			element_unpack<T>(word[u][i], out[i]);
	}
};

/* The same by way of shared memory. */
template <class ROW, int INPUTS>
struct NormAnyRing {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;

	const ROW row;
	RowRing<ROW, INPUTS> ring;
	const T *from[INPUTS];

	DEVICE NormAnyRing(const ROW &row, b128 *shared, u32 places) : row(row), ring(shared, places)
	{
	}
	DEVICE void begin(const NormAnyInputs<T> &inputs, const i64 (&at)[2])
	{
#pragma unroll
		for (int i = 0; i < INPUTS; i++)
			from[i] = inputs.start[i] + at[i];
		ring.begin(row, from);
	}
	DEVICE void next(const NormAnyInputs<T> &, i64, const i64 (&)[2], i64 step)
	{
		ring.next(row, from, step);
	}
	DEVICE void back(const NormAnyInputs<T> &, i64, const i64 (&)[2], i64 step)
	{
		ring.back(row, from, step);
	}
	DEVICE void values(int u, Compute (&out)[INPUTS][ROW::length]) const
	{
#pragma unroll
		for (int i = 0; i < INPUTS; i++) {
			u32 words[ROW::words];
			ring.take(u, i, words);
			element_unpack<T>(words, out[i]);
		}
	}
};

template <int V>
struct NormAnyWay {
	template <class ROW, int INPUTS>
	using held = NormAnyRing<ROW, INPUTS>;
};
template <>
struct NormAnyWay<1> {
	template <class ROW, int INPUTS>
	using held = NormAnyStep<ROW, INPUTS>;
};

/* Stores vector n of a row.  In a loop the compiler would keep an address for each of its elements,
 * which takes the registers of other threads. */
template <class ROW, typename T, typename Compute>
DEVICE void norm_any_store(const ROW &row, i64 n, T *start, const Compute (&values)[ROW::length])
{
	T *to = start + row.column(n);
#if !KILN_CPU
	asm volatile("" : "+l"(to));
#endif
	row_store_at(row, n, to, values);
}

/* gamma or beta of a vector, G as in row_any_read; `absent` without it. */
template <typename G, int V, typename Compute>
DEVICE void norm_any_affine(const void *start, u32 type, i64 column, i64 columns, Compute absent,
							Compute (&out)[V])
{
	const auto take = [&](int j, auto value) { out[j] = static_cast<Compute>(value); };
#pragma unroll
	for (int j = 0; j < V; j++)
		out[j] = absent;
	if (!start)
		return;
	row_any_read<G, V>(type, start, 1, column, columns, take);
}

#define NORM_ANY_SPACE(first, second) SPACE_SIZES(u64), SPACE_STRIDES(first), SPACE_STRIDES(second)
#define NORM_ANY_SPACE_MADE(first, second)                        \
	{                                                             \
		SPACE_SIZES_MADE(u64),                                    \
		{                                                         \
			SPACE_STRIDES_MADE(first), SPACE_STRIDES_MADE(second) \
		}                                                         \
	}
