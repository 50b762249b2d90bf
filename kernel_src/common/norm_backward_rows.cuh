/*
 * norm_backward_rows.cuh: dx of one row (norm_backward.cuh): of a row that threads hold, and of one
 * that a block reads twice.
 */
#pragma once
#include "common/norm_backward.cuh"
#include "common/row.cuh"
#include "common/row_stream.cuh"

template <class SHAPE, class WITH, class PLACE>
struct NormBackwardHeld {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename PLACE::Offset Offset;
	typedef typename SHAPE::template words<2> Words;
	typedef NormBackwardOperands<WITH, T> Operands;
	static constexpr i64 columns = Row::columns;
	static constexpr int V = Row::length;

	/* Columns that lie apart, or are not aligned to more than an element. */
	static DEVICE void fetch_elements(const Row &row, Words &words, const T *const (&start)[2])
	{
#pragma unroll
		for (int n = 0; n < Row::held; n++) {
			if (!row.has(n))
				continue;
			const Offset column = static_cast<Offset>(row.column(n));
			vec_load<Row::bytes>(start[0] + PLACE::template column<0>(column), words.word[n][0]);
			vec_load<Row::bytes>(start[1] + PLACE::template column<1>(column), words.word[n][1]);
		}
	}

	/* here: the row is there, else it is one to read for nothing.  All threads of a block come. */
	static DEVICE void take(const Operands &at, i64 number, bool here, void *slots)
	{
		const Offset index = static_cast<Offset>(number);
		const T *const start[2] = {at.x + PLACE::template row<0>(index),
								   at.dy + PLACE::template row<1>(index)};
		const Row row(start[0], Group::thread(), Group::slice());
		Words words(slots);

		if constexpr (V > 1)
			words.fetch(row, start);
		else
			fetch_elements(row, words, start);
		const auto found = NormBackwardRow<WITH, Compute>::load(at, number);
		words.arrive();

		NormBackwardSums<WITH, Compute> all = {};
		words.each(row, [&](int n, const Compute(&value)[2][V]) {
			Compute gamma[V];
			norm_backward_gamma<WITH>(at.gamma, row, n, gamma);
#pragma unroll
			for (int j = 0; j < V; j++)
				if (row.live(n, j))
					all.add(value[1][j] * gamma[j], found.normal(value[0][j]));
		});
		all = Group::template reduce<0>(all).template means<columns>();
		if (!here)
			return;
		T *const dx = at.dx + index * static_cast<Offset>(columns);
		words.each(row, [&](int n, const Compute(&value)[2][V]) {
			Compute gamma[V], out[V];
			norm_backward_gamma<WITH>(at.gamma, row, n, gamma);
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = all.dx(value[1][j] * gamma[j], found.normal(value[0][j]), found.rstd);
			row_store(row, n, dx, out);
		});
	}
};

template <class ROW, class WITH, class PLACE>
struct NormBackwardStream {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	typedef typename PLACE::Offset Offset;
	typedef RowStep<ROW, 2> Words;
	typedef NormBackwardOperands<WITH, T> Operands;
	static constexpr i64 columns = ROW::columns;
	static constexpr int V = ROW::length;

	template <int INPUT>
	static DEVICE i64 offset(Column column)
	{
		if constexpr (V > 1)
			return column;
		else
			return static_cast<i64>(PLACE::template column<INPUT>(static_cast<Offset>(column)));
	}

	static DEVICE void fetch(const ROW &row, Words &words, Column step, const T *const (&start)[2])
	{
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const Column n = step * ROW::count + u;
			if (!row.has(n))
				continue;
			vec_load<ROW::bytes>(start[0] + offset<0>(row.column(n)), words.word[u][0]);
			vec_load<ROW::bytes>(start[1] + offset<1>(row.column(n)), words.word[u][1]);
		}
	}

	/* All threads of a block come.  From the end the second time: what was read last is near. */
	static DEVICE void take(const Operands &at, i64 number, bool here, void *)
	{
		const Offset index = static_cast<Offset>(number);
		const T *const start[2] = {at.x + PLACE::template row<0>(index),
								   at.dy + PLACE::template row<1>(index)};
		const ROW row(start[0]);
		const auto found = NormBackwardRow<WITH, Compute>::load(at, number);
		NormBackwardSums<WITH, Compute> all = {};
		Words words;

#pragma unroll 1
		for (Column step = 0; step < ROW::steps(); step++) {
			NormBackwardSums<WITH, Compute> some = {};
			fetch(row, words, step, start);
			words.each(row, step, [&](Column n, int, const Compute(&value)[2][V]) {
				Compute gamma[V];
				norm_backward_gamma<WITH>(at.gamma, row, n, gamma);
#pragma unroll
				for (int j = 0; j < V; j++)
					if (row.live(n, j))
						some.add(value[1][j] * gamma[j], found.normal(value[0][j]));
			});
			all.merge(some);
		}
		all = ROW::group::template reduce<0>(all).template means<columns>();
		T *const dx = at.dx + index * static_cast<Offset>(columns);
#pragma unroll 1
		for (Column step = here ? ROW::steps() : 0; step-- > 0;) {
			fetch(row, words, step, start);
			words.each(row, step, [&](Column n, int, const Compute(&value)[2][V]) {
				Compute gamma[V], out[V];
				norm_backward_gamma<WITH>(at.gamma, row, n, gamma);
#pragma unroll
				for (int j = 0; j < V; j++)
					out[j] = all.dx(value[1][j] * gamma[j], found.normal(value[0][j]), found.rstd);
				row_store(row, n, dx, out);
			});
		}
	}
};
