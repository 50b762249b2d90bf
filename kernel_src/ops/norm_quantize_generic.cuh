/*
 * norm_quantize_generic.cuh: layer_norm and rms_norm of rows, divided by a scale and stored in 8
 * bits (norm_quantize.cuh), for sizes, strides and types of outputs, gamma and beta that are known
 * when the kernel is launched.
 *
 * V: elements that move at once, 16 bytes of them or one (row_ring.cuh).  Vectors read gamma and
 * beta of their own type or f32, and make a scale for groups of whole vectors alone.
 */
#pragma once
#include "common/norm.cuh"
#include "common/quantize_row.cuh"
#include "common/row_ring.cuh"
#include "common/space.cuh"

#define NORM_QUANTIZE_ANY_THREADS 128 /* of a block, at most: five find the registers */

enum { NORM_QUANTIZE_I8, NORM_QUANTIZE_E4M3, NORM_QUANTIZE_E5M2 };

/* The arguments of a launch that all rows share. */
struct NormQuantizeAny {
	const void *gamma, *beta;
	u32 gamma_type, beta_type;
	u32 out; /* the type of y */
	i64 columns;

	template <typename T, int V>
	DEVICE void along(const void *start, u32 type, i64 column, float absent, float (&out)[V]) const
	{
		const auto take = [&](int j, auto value) { out[j] = static_cast<float>(value); };
#pragma unroll
		for (int j = 0; j < V; j++)
			out[j] = absent;
		if (!start)
			return;
		if constexpr (V == 1)
			row_any_read<void, 1>(type, start, 1, column, columns, take);
		else if (type == ROW_ANY_F32)
			row_any_read<f32, V>(type, start, 1, column, columns, take);
		else
			row_any_read<T, V>(type, start, 1, column, columns, take);
	}

	template <int V>
	DEVICE void pack(const float (&v)[V], u32 (&words)[vec_words<V>]) const
	{
		if (out == NORM_QUANTIZE_I8)
			element_pack<i8>(v, words);
		else if (out == NORM_QUANTIZE_E4M3)
			element_pack<sat<f8e4m3>>(v, words);
		else
			element_pack<sat<f8e5m2>>(v, words);
	}
};

/* A row, and what its threads know of it. */
template <class ROW, int STREAMS>
struct NormQuantizeRowAny {
	typedef typename ROW::Element T;
	static constexpr int V = ROW::length, count = ROW::count;

	const NormQuantizeAny &any;
	const ROW row;
	RowSteps<ROW, STREAMS> words;
	float pivot;
	NormRow<float> answer;

	/* s of vector u of the step. */
	DEVICE void take(int u, float (&s)[V]) const
	{
		float values[STREAMS][V];
#pragma unroll
		for (int i = 0; i < STREAMS; i++) {
			u32 raw[ROW::words];
			words.take(u, i, raw);
			element_unpack<T>(raw, values[i]);
		}
#pragma unroll
		for (int j = 0; j < V; j++)
			s[j] = STREAMS == 2 ? values[0][j] + values[STREAMS - 1][j] : values[0][j];
	}

	/* Returns the moments of a step; rms: distances are those from 0. */
	DEVICE NormPart<float> moments(i64 step, bool rms, T *sum) const
	{
		float s[count][V], all = 0, elements = 0;
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			if (!row.has(n))
				continue;
			take(u, s[u]);
			if (sum)
				row_store(row, n, sum, s[u]);
#pragma unroll
			for (int j = 0; j < V; j++) {
				all += row.live(n, j) ? s[u][j] : 0.0f;
				elements += row.live(n, j) ? 1.0f : 0.0f;
			}
		}
		NormPart<float> part = {
			elements, rms || elements == 0 ? 0.0f : norm_product(all, norm_inverse(elements)), 0,
			0};
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			if (!row.has(n))
				continue;
#pragma unroll
			for (int j = 0; j < V; j++) {
				const float off = row.live(n, j) ? s[u][j] - part.pivot : 0.0f;
				part.sum += rms ? 0.0f : off; /* may be infinite */
				part.squares = fmaf(off, off, part.squares);
			}
		}
		return part;
	}

	/* s of columns from `column` on become v. */
	DEVICE void finish(i64 column, float (&v)[V]) const
	{
		float gamma[V], beta[V];
		any.along<T>(any.gamma, any.gamma_type, column, 1.0f, gamma);
		any.along<T>(any.beta, any.beta_type, column, 0.0f, beta);
#pragma unroll
		for (int j = 0; j < V; j++)
			v[j] = fmaf(fmaf(v[j] - pivot, answer.rstd, answer.shift), gamma[j], beta[j]);
	}

	/* Stores v of these columns, where they are in the row. */
	DEVICE void store(i64 column, u8 *y, const float (&v)[V]) const
	{
		u32 packed[vec_words<V>];
		any.pack(v, packed);
		if (V == 1 || (column >= 0 && column + V <= any.columns)) {
			vec_store<V>(y + column, packed);
			return;
		}
#pragma unroll
		for (int j = 0; j < V; j++) {
			const u32 byte = packed[j / 4] >> j % 4 * 8;
			if (static_cast<u64>(column + j) < static_cast<u64>(any.columns))
				vec_store<1>(y + column + j, &byte);
		}
	}
};

/* The scales of groups and rows, and where they and y go. */
struct NormQuantizeScales {
	const float *given;
	float *scales; /* of the row, or null */
	i64 apart;     /* from a group's to the next one's */
	QuantizeLimits limits;
	u32 lanes; /* of a group of whole vectors, as a power of two */
	bool groups;
};

/* Stores a row in steps.  here: it is to be written. */
template <class ROW, int STREAMS, typename T = typename ROW::Element>
DEVICE void norm_quantize_write(NormQuantizeRowAny<ROW, STREAMS> &at, const GroupAny &threads,
								const NormQuantizeScales &to, const T *const (&from)[STREAMS],
								const i64 (&apart)[STREAMS], i64 steps, u8 *y, bool here)
{
	constexpr int V = ROW::length;
	const GroupAny team = {to.lanes};
	const bool own = !to.given && !to.groups;
	QuantizeMost most = QuantizeMost::none();
	float found = to.given ? *to.given : 0;

	/* From the end to the beginning; where the row's scale is found by that, back again. */
#pragma unroll 1
	for (int turn = own ? 0 : 1; turn < 2; turn++) {
		const bool again = own && turn == 1;
		if (again) {
			found = to.limits.scale(threads.reduce(most));
			at.words.begin(at.row, from);
		}
		if (turn == 1 && here && !to.groups && to.scales && threads.thread() == 0)
			*to.scales = found;
#pragma unroll 1
		for (i64 i = 0; i < steps; i++) {
			const i64 step = again ? i : steps - 1 - i;
			if (again)
				at.words.next(at.row, from, apart, step);
			else if (i > 0)
				at.words.back(at.row, from, apart, step);
#pragma unroll
			for (int u = 0; u < ROW::count; u++) {
				const i64 n = step * ROW::count + u;
				float v[V] = {}, scale = found;
				if (at.row.has(n)) {
					at.take(u, v);
					at.finish(at.row.column(n), v);
				}
				if (turn == 0) {
#pragma unroll
					for (int j = 0; j < V; j++)
						most.take(at.row.has(n) && at.row.live(n, j) ? v[j] : 0.0f);
					continue;
				}
				if (V > 1 && to.groups) { /* rows are whole vectors */
					QuantizeMost mine = QuantizeMost::none();
#pragma unroll
					for (int j = 0; j < V; j++)
						mine.take(v[j]);
					scale = to.limits.scale(team.reduce(mine));
					if (here && to.scales && at.row.has(n) && threads.thread() % team.size() == 0)
						to.scales[(at.row.column(n) / V >> to.lanes) * to.apart] = scale;
				}
				if (!here || !at.row.has(n))
					continue;
				QuantizeNear(scale).divide(v);
				at.store(at.row.column(n), y, v);
			}
		}
	}
}

/* Does so by elements for groups of any number: up to a warp of the row's threads goes over each
 * twice. */
template <class ROW, int STREAMS, typename T = typename ROW::Element>
DEVICE void norm_quantize_groups(const NormQuantizeRowAny<ROW, STREAMS> &at,
								 const GroupAny &threads, const NormQuantizeScales &to,
								 const T *const (&from)[STREAMS], const i64 (&apart)[STREAMS],
								 i64 group, u8 *y, bool here)
{
	const GroupAny team = {threads.shift < 5 ? threads.shift : 5};
	const u32 size = team.size(), lane = threads.thread() % size;
	const i64 teams = threads.size() / size, columns = at.any.columns;

	/* All of a warp come to each reduction. */
#pragma unroll 1
	for (i64 first = 0; first * group < columns; first += teams) {
		const i64 number = first + threads.thread() / size, start = number * group;
		const i64 end = start < columns ? start + group : start;
		QuantizeMost most = QuantizeMost::none();
		float found = 0;
#pragma unroll 1
		for (int turn = 0; turn < 2; turn++) {
#pragma unroll 1
			for (i64 column = start + lane; column < end; column += size) {
				float v[1] = {element_load<float>(from[0] + column * apart[0])};
				if (STREAMS == 2)
					v[0] += element_load<float>(from[STREAMS - 1] + column * apart[STREAMS - 1]);
				at.finish(column, v);
				most.take(v[0]);
				if (turn == 0 || !here)
					continue;
				QuantizeNear(found).divide(v);
				at.store(column, y, v);
			}
			if (turn == 0)
				found = to.limits.scale(team.reduce(most));
		}
		if (here && start < columns && to.scales && lane == 0)
			to.scales[number * to.apart] = found;
	}
}

/* kinds: the type of y, 16 for rms_norm, 256 times the type of gamma and 4096 times that of beta.
 * group: elements of one, 0: there are none; lanes: 2^lanes have a group of whole vectors. */
template <typename T, int V, int STREAMS>
__global__ __launch_bounds__(NORM_QUANTIZE_ANY_THREADS, 5) void norm_quantize_generic(
	const T *x, const void *gamma, const void *beta, const T *residual, const float *given, u8 *y,
	float *scales, T *sum, float eps, float share, float more, float least, i64 scale_row,
	i64 scale_step, i64 rows, u32 kinds, i64 group, u32 lanes, i64 columns, u32 shift, i64 x_step,
	i64 residual_step, u32 places, SPACE_SIZES(u64), SPACE_STRIDES(of_x),
	SPACE_STRIDES(of_residual), SPACE_STRIDES(of_y))
{
	typedef RowAny<T, V, 1> Row;
	DYN_SHARED(b128, shared);
	const Space<3, u64> space = {
		SPACE_SIZES_MADE(u64),
		{SPACE_STRIDES_MADE(of_x), SPACE_STRIDES_MADE(of_residual), SPACE_STRIDES_MADE(of_y)}};
	const GroupAny threads = {shift};
	const NormQuantizeAny any = {gamma, beta, kinds >> 8 & 15, kinds >> 12, kinds & 15, columns};
	const bool rms = (kinds >> 4 & 1) != 0;
	const QuantizeLimits limits = {share, more, least};

	row_any_each(threads, rows, [&](i64 number, bool here) {
		i64 at[3], steps = 0;
		space.at(static_cast<u64>(number), at);
		const T *from[STREAMS];
		i64 apart[STREAMS];
		from[0] = x + at[0];
		apart[0] = x_step;
		if constexpr (STREAMS == 2) {
			from[1] = residual + at[1];
			apart[1] = residual_step;
		}
		NormQuantizeRowAny<Row, STREAMS> row = {
			any, Row(from[0], columns, threads), {shared, places}, 0, {}};
		NormPart<float> part = NormPart<float>::none();
		row.words.begin(row.row, from);
#pragma unroll 1
		do {
			row.words.next(row.row, from, apart, steps);
			const NormPart<float> some =
				row.moments(steps, rms, sum && here ? sum + at[2] : nullptr);
			if (steps == 0)
				part = some;
			else
				part.merge(some);
		} while (row.row.step(++steps) < columns);
		part = threads.reduce(part);
		const float inverse = 1.0f / static_cast<float>(columns);
		row.pivot = part.pivot;
		row.answer =
			rms ? norm_row_rms_of(inverse, part.squares, eps)
				: norm_row_of(inverse, part.pivot, part.sum, part.squares, part.pivot, eps);
		float *const row_scales = scales ? scales + number * scale_row : nullptr;
		const NormQuantizeScales to = {given, row_scales, scale_step, limits, lanes, group > 0};
		if constexpr (V == 1)
			if (group > 0) {
				norm_quantize_groups(row, threads, to, from, apart, group, y + at[2], here);
				return;
			}
		norm_quantize_write(row, threads, to, from, apart, steps, y + at[2], here);
	});
}
