/*
 * norm_stream.cuh: layer_norm and rms_norm (norm.cuh) of rows that are read twice: by a block,
 * first for mean and deviation, then from the end to the beginning, so that what was read last is
 * still near.
 *
 *   norm_stream   a block goes over each row in steps
 *
 * A step's elements have a pivot of their own, as have those of a warp elsewhere.
 */
#pragma once
#include "common/norm_operands.cuh"
#include "common/row_stream.cuh"

template <class ROW, class WITH, class PLACE>
struct NormStream {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	typedef typename PLACE::Offset Offset;
	static constexpr i64 columns = ROW::columns;
	static constexpr int V = ROW::length, inputs = WITH::inputs;

	const NormOperands<WITH, T> &at;
	const i64 number;
	const T *start[inputs];
	const ROW row;
	RowStep<ROW, inputs> words;

	DEVICE NormStream(const NormOperands<WITH, T> &at, i64 number)
		: at(at), number(number), row(at.x + PLACE::template row<0>(static_cast<Offset>(number)))
	{
		start[0] = at.x + PLACE::template row<0>(static_cast<Offset>(number));
		if constexpr (WITH::residual)
			start[inputs - 1] = at.residual + PLACE::template row<1>(static_cast<Offset>(number));
	}

	/* Elements go in less their pivot. */
	DEVICE NormRow<Compute> measure(Compute &pivot)
	{
		pivot = 0;
		if constexpr (WITH::rms) {
			NormSums<Compute, 1> all = {};
#pragma unroll 1
			for (Column step = 0; step < ROW::steps(); step++)
				all.row[0] += squares(step);
			all = ROW::group::template reduce<0>(all);
			return norm_row_rms<columns>(all.row[0], at.eps);
		} else {
			NormPart<Compute> mine = {};
#pragma unroll 1
			for (Column step = 0; step < ROW::steps(); step++)
				mine.merge(moments(step));
			mine = ROW::group::template reduce<0>(mine);
			pivot = mine.pivot;
			return norm_row<columns>(pivot, mine.sum, mine.squares, pivot, at.eps);
		}
	}

	DEVICE void store(const NormRow<Compute> &answer, Compute pivot)
	{
		const Offset begin = static_cast<Offset>(number) * static_cast<Offset>(columns);
#pragma unroll 1
		for (Column step = ROW::steps(); step-- > 0;) {
			fetch(step);
			each(step, [&](Column n, const Compute(&s)[V]) {
				Compute gamma[V], beta[V], out[V];
				norm_affine(at, row, n, gamma, beta);
#pragma unroll
				for (int j = 0; j < V; j++)
					out[j] = norm_apply<WITH>(answer, s[j] - pivot, gamma[j], beta[j]);
				row_store(row, n, at.y + begin, out);
				if constexpr (WITH::sum)
					row_store(row, n, at.sum + begin, s);
			});
		}
		if (threadIdx.x == 0)
			norm_store_statistics(at, number, answer);
	}

  private:
	DEVICE void fetch(Column step)
	{
		constexpr int bytes = ROW::bytes;
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const Column n = step * ROW::count + u;
			if (!row.has(n))
				continue;
			vec_load<bytes>(start[0] + offset<0>(row.column(n)), words.word[u][0]);
			if constexpr (WITH::residual)
				vec_load<bytes>(start[inputs - 1] + offset<1>(row.column(n)),
								words.word[u][inputs - 1]);
		}
	}

	template <int INPUT>
	static DEVICE i64 offset(Column column)
	{
		if constexpr (V > 1)
			return column;
		else
			return static_cast<i64>(PLACE::template column<INPUT>(static_cast<Offset>(column)));
	}

	/* Calls body(n, s) for each vector of a step that was fetched. */
	template <typename Body>
	DEVICE void each(Column step, Body body) const
	{
		words.each(row, step, [&](Column n, int, const Compute(&value)[inputs][V]) {
			Compute s[V];
#pragma unroll
			for (int j = 0; j < V; j++)
				s[j] = value[0][j] + (WITH::residual ? value[inputs - 1][j] : Compute(0));
			body(n, s);
		});
	}

	DEVICE Compute squares(Column step)
	{
		Compute sum = 0;
		fetch(step);
		each(step, [&](Column n, const Compute(&s)[V]) {
#pragma unroll
			for (int j = 0; j < V; j++)
				if (row.live(n, j))
					sum = fma(s[j], s[j], sum);
		});
		return sum;
	}

	DEVICE NormPart<Compute> moments(Column step)
	{
		Compute sum = 0;
		int count = 0;
		fetch(step);
		each(step, [&](Column n, const Compute(&s)[V]) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				sum += row.live(n, j) ? s[j] : Compute(0);
				count += row.live(n, j);
			}
		});
		const Compute elements = static_cast<Compute>(ROW::full ? ROW::count * V : count);
		NormPart<Compute> part = {
			elements, norm_product(sum, elements > 0 ? norm_inverse(elements) : Compute(0)), 0, 0};
		each(step, [&](Column n, const Compute(&s)[V]) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Compute off = row.live(n, j) ? s[j] - part.pivot : Compute(0);
				part.sum += off;
				part.squares = fma(off, off, part.squares);
			}
		});
		return part;
	}
};

template <class ROW, class WITH, class PLACE, bool LOOP, typename T = typename ROW::Element,
		  typename Compute = typename ROW::Compute>
__global__ __launch_bounds__(ROW::threads) void norm_stream(
	const T *__restrict__ x, const typename WITH::Gamma *__restrict__ gamma,
	const typename WITH::Beta *__restrict__ beta, const T *__restrict__ residual, T *__restrict__ y,
	Compute *__restrict__ mean, Compute *__restrict__ rstd, T *__restrict__ sum, Compute eps,
	i64 rows)
{
	const NormOperands<WITH, T> at = {x, gamma, beta, residual, y, mean, rstd, sum, eps, rows};

	row_each<ROW, LOOP, i64>(rows, [&](i64 number, bool) {
		NormStream<ROW, WITH, PLACE> stream(at, number);
		Compute pivot;
		const NormRow<Compute> answer = stream.measure(pivot);
		stream.store(answer, pivot);
	});
}
