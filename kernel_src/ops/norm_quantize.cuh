/*
 * norm_quantize.cuh: layer_norm and rms_norm along the last dimension, divided by a scale and
 * stored in 8 bits: v = (s - mean) * rstd * gamma + beta over each row of s = x + residual, y = v /
 * scale.  The scale is given, or the row's own, or each group of GROUP columns has its own.
 *
 *   norm_quantize           a group of threads holds each row in registers
 *   norm_quantize_slots     does so with a part of the row in shared memory
 *   norm_quantize_stream    a block reads each row again whenever it needs it
 *
 * v is never rounded before it is divided.
 */
#pragma once
#include "common/index.cuh"
#include "common/norm_rows.cuh"
#include "common/quantize_row.cuh"
#include "common/row.cuh"
#include "common/row_stream.cuh"

struct NormQuantizeSum {
	float sum, squares;

	static DEVICE NormQuantizeSum none()
	{
		return {0, 0};
	}
	DEVICE void merge(const NormQuantizeSum &other)
	{
		sum += other.sum;
		squares += other.squares;
	}
};

/* One row of the outputs, and what it is made with. */
template <typename T, typename OUT>
struct NormQuantizeRow {
	QuantizeRow<OUT> to;
	T *sum; /* or null */
	float eps;
};

/* These make v of s. */
struct NormQuantizeFactors {
	float pivot;
	NormRow<float> answer;

	DEVICE float of(float s, float gamma, float beta) const
	{
		return fmaf(fmaf(s - pivot, answer.rstd, answer.shift), gamma, beta);
	}
};

/*
 * source.each(body) calls body(n, s) for every vector of the row, n a Number; affine(n, gamma,
 * beta) brings in those of a vector; group.reduce<SLOT>(value) merges the values of the row's
 * threads.  All threads come.  Writes sum.
 */
template <typename Number, class ROW, typename T, typename OUT, class SOURCE, class GROUP>
DEVICE NormQuantizeFactors norm_quantize_factors(const ROW &row, const NormQuantizeRow<T, OUT> &out,
												 bool rms, i64 columns, const SOURCE &source,
												 const GROUP &group)
{
	constexpr int V = ROW::length;
	const float share = 1.0f / static_cast<float>(columns);
	NormQuantizeSum mine = NormQuantizeSum::none();
	float pivot = 0;

	if (!rms) {
		source.each([&](Number n, float(&s)[V]) {
#pragma unroll
			for (int j = 0; j < V; j++)
				mine.sum += row.live(n, j) ? s[j] : 0.0f;
		});
		pivot = norm_product(group.template reduce<0>(mine).sum, share);
		mine = NormQuantizeSum::none();
	}
	source.each([&](Number n, float(&s)[V]) {
		if (out.sum && out.to.here)
			row_store(row, n, out.sum, s);
#pragma unroll
		for (int j = 0; j < V; j++) {
			const float off = row.live(n, j) ? s[j] - pivot : 0.0f;
			mine.sum += off;
			mine.squares = fmaf(off, off, mine.squares);
		}
	});
	mine = group.template reduce<1>(mine);
	return {pivot, rms ? norm_row_rms_of(share, mine.squares, out.eps)
					   : norm_row_of(share, pivot, mine.sum, mine.squares, pivot, out.eps)};
}

/* v of each vector of a row. */
template <typename Number, int V, class SOURCE, class AFFINE>
struct NormQuantizeEach {
	const NormQuantizeFactors &factors;
	const SOURCE &source;
	const AFFINE &affine;

	template <typename Body>
	DEVICE void each(const Body &body) const
	{
		source.each([&](Number n, float(&s)[V]) {
			float gamma[V], beta[V];
			affine(n, gamma, beta);
#pragma unroll
			for (int j = 0; j < V; j++)
				s[j] = factors.of(s[j], gamma[j], beta[j]);
			body(n, s);
		});
	}
};

/* With one scale for the row. */
template <typename Number, class ROW, typename OUT, class SOURCE, class AFFINE, class GROUP>
DEVICE void norm_quantize_write(const ROW &row, const QuantizeRow<OUT> &to,
								const NormQuantizeFactors &factors, const SOURCE &source,
								const AFFINE &affine, const GROUP &group)
{
	const NormQuantizeEach<Number, ROW::length, SOURCE, AFFINE> each = {factors, source, affine};

	quantize_row<Number>(row, to, each,
						 [&](const QuantizeMost &most) { return group.template reduce<2>(most); });
}

/* s of a vector of x and, of two, residual. */
template <int STREAMS, int V>
DEVICE void norm_quantize_add(const float (&values)[STREAMS][V], float (&s)[V])
{
#pragma unroll
	for (int j = 0; j < V; j++)
		s[j] = STREAMS == 2 ? values[0][j] + values[STREAMS - 1][j] : values[0][j];
}

/* gamma and beta of known types.  BYTES: of them that move at once; 0: rows are skewed. */
template <int BYTES, class ROW, class GAMMA, class BETA>
struct NormQuantizeAffine {
	const ROW &row;
	const GAMMA *gamma;
	const BETA *beta;

	template <typename Number, int V>
	DEVICE void operator()(Number n, float (&to_gamma)[V], float (&to_beta)[V]) const
	{
		const auto column = row.column(n);
		if constexpr (BYTES > 0) {
			norm_load<BYTES>(gamma, column, to_gamma, 1.0f);
			norm_load<BYTES>(beta, column, to_beta, 0.0f);
		} else {
#pragma unroll
			for (int j = 0; j < V; j++) {
				to_gamma[j] = norm_load_one(gamma, row.live(n, j) ? column + j : 0, 1.0f);
				to_beta[j] = norm_load_one(beta, row.live(n, j) ? column + j : 0, 0.0f);
			}
		}
	}
};

/* The numbers of a row that threads hold. */
template <class HELD>
struct NormQuantizeNumbers {
	typedef typename HELD::Row Row;
	const Row &row;
	HELD &held;

	DEVICE void get(int n, float (&out)[Row::length]) const
	{
		held.get(n, out);
	}
	template <typename Body>
	DEVICE void each(const Body &body) const
	{
#pragma unroll
		for (int n = 0; n < Row::held; n++) {
			float v[Row::length];
			get(n, v);
			if (row.has(n))
				body(n, v);
		}
	}
};

/* The pivot of a full row is the mean of the first vectors of its threads alone: the mean of a part
 * p of the elements is no more than sqrt((1 - p) / p) deviations off. */
template <class SHAPE, class WITH, class PLACE>
struct NormQuantizeHeld : NormHeld<SHAPE, WITH, PLACE, 1, SHAPE::row::held * SHAPE::row::length> {
	typedef NormHeld<SHAPE, WITH, PLACE, 1, SHAPE::row::held * SHAPE::row::length> Base;
	typedef typename SHAPE::row Row;

	DEVICE float total(const Row &row)
	{
		if constexpr (!Row::full)
			return Base::total(row);
		float sum = 0;
#pragma unroll
		for (int j = 0; j < Row::length; j++)
			sum += this->s[j];
		return sum * Row::held;
	}
};

/* A row that threads hold in registers. */
template <class SHAPE, class WITH, class PLACE, i64 GROUP, typename T, typename OUT>
DEVICE void norm_quantize_held(const typename SHAPE::row &row, const T *const (&from)[WITH::inputs],
							   const NormQuantizeRow<T, OUT> &out, const NormOperands<WITH, T> &at)
{
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef NormQuantizeHeld<SHAPE, WITH, PLACE> Held;
	constexpr int V = Row::length;
	Held held[1];
	const NormQuantizeNumbers<Held> source = {row, held[0]};

	held[0].template fetch<0>(row, from[0]);
	if constexpr (WITH::residual)
		held[0].template fetch<1>(row, from[1]);
	held[0].widen();
	if (out.sum && out.to.here)
		source.each([&](int n, float(&s)[V]) { norm_store(row, n, out.sum + row.first, s); });
	norm_measure<SHAPE, WITH>(held, row, out.eps);
#pragma unroll
	for (int n = 0; n < Row::held; n++) {
		float gamma[V], beta[V];
		if (!row.has(n))
			continue;
		norm_affine(at, row, n, gamma, beta);
#pragma unroll
		for (int j = 0; j < V; j++)
			held[0].s[n * V + j] =
				norm_apply<WITH>(held[0].answer, held[0].s[n * V + j], gamma[j], beta[j]);
	}
	if constexpr (GROUP > 0)
		quantize_row_groups<GROUP>(row, out.to, source);
	else
		quantize_row<int>(row, out.to, source,
						  [](const QuantizeMost &most) { return Group::template reduce<2>(most); });
}

/* A row of which threads hold the words, some in slots. */
template <class ROW, class WORDS, int STREAMS>
struct NormQuantizeSlots {
	const ROW &row;
	const WORDS &words;

	template <typename Body>
	DEVICE void each(const Body &body) const
	{
		words.each(
			row,
			[&](int n, const float(&values)[STREAMS][ROW::length]) {
				float s[ROW::length];
				norm_quantize_add(values, s);
				body(n, s);
			});
	}
};

/* A row that is read again each time. */
template <class ROW, int STREAMS>
struct NormQuantizeRead {
	typedef typename ROW::Element T;
	typedef typename ROW::Column Column;
	const ROW &row;
	const T *const (&from)[STREAMS];
	const i64 (&step)[STREAMS];
	Column steps;

	template <typename Body>
	DEVICE void each(const Body &body) const
	{
		quantize_read(
			row, steps, from, step,
			[](const float(&values)[STREAMS][ROW::length], float(&s)[ROW::length]) {
				norm_quantize_add(values, s);
			},
			body);
	}
};

/* A row's threads. */
template <class GROUP>
struct NormQuantizeGroup {
	template <int SLOT, class Value>
	DEVICE Value reduce(const Value &mine) const
	{
		return GROUP::template reduce<SLOT>(mine);
	}
};

/* ---- Kernels: STREAMS is 2 where residual is there ---- */

#define NORM_QUANTIZE_OPERANDS(T, GAMMA, BETA, OUT)                                          \
	const T *x, const GAMMA *gamma, const BETA *beta, const T *residual, const float *given, \
		OUT *y, float *scales, T *sum, float eps, float share, float more, float least,      \
		i64 scale_row, i64 scale_step, i64 rows

/* Where the inputs' row begins. */
#define NORM_QUANTIZE_INPUTS(x_at, residual_at, x_step, residual_step)     \
	const T *from[STREAMS];                                                \
	i64 step[STREAMS];                                                     \
	from[0] = x + (x_at);                                                  \
	step[0] = (x_step);                                                    \
	from[STREAMS - 1] = STREAMS == 2 ? residual + (residual_at) : from[0]; \
	step[STREAMS - 1] = STREAMS == 2 ? (residual_step) : step[0];

/* The outputs of a row; lead: this thread writes its scale. */
#define NORM_QUANTIZE_ROW(y_at, lead)                                      \
	NormQuantizeRow<T, OUT>                                                \
	{                                                                      \
		{given,                                                            \
		 y + (y_at),                                                       \
		 scales ? scales + static_cast<i64>(number) * scale_row : nullptr, \
		 scale_step,                                                       \
		 QuantizeLimits{share, more, least},                               \
		 lead,                                                             \
		 here},                                                            \
			sum ? sum + (y_at) : nullptr, eps                              \
	}

template <class SHAPE, typename OUT, class GAMMA, class BETA, int BYTES, bool RMS, int STREAMS,
		  i64 GROUP, bool LOOP, i64 X_STEP, i64 RESIDUAL_STEP, class DIMS, class X, class RESIDUAL,
		  class Y, typename Index, typename T = typename SHAPE::Element>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void norm_quantize(NORM_QUANTIZE_OPERANDS(T, GAMMA, BETA,
																				   OUT))
{
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef NormWith<GAMMA, BETA, BYTES, (RMS ? NORM_RMS : 0) | (STREAMS == 2 ? NORM_RESIDUAL : 0)>
		With;
	typedef NormPlace<DIMS, X, RESIDUAL, List<>, List<X_STEP>, List<RESIDUAL_STEP>, i64> Place;

	row_each<SHAPE, LOOP, Index>(rows, [&](Index number, bool here) {
		const i64 y_at = index_offset<i64>(number, DIMS{}, Y{});
		const T *from[STREAMS];
		from[0] = x + Place::template row<0>(number);
		if constexpr (STREAMS == 2)
			from[1] = residual + Place::template row<1>(number);
		norm_quantize_held<SHAPE, With, Place, GROUP>(Row(from[0], Group::thread(), Group::slice()),
													  from,
													  NORM_QUANTIZE_ROW(y_at, Group::thread() == 0),
													  NormOperands<With, T>{nullptr, gamma, beta});
	});
}

template <class SHAPE, typename OUT, class GAMMA, class BETA, int BYTES, bool RMS, int STREAMS,
		  bool LOOP, i64 X_STEP, i64 RESIDUAL_STEP, class DIMS, class X, class RESIDUAL, class Y,
		  typename Index, typename T = typename SHAPE::Element>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void norm_quantize_slots(NORM_QUANTIZE_OPERANDS(T, GAMMA,
																						 BETA, OUT))
{
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename SHAPE::template words<STREAMS> Words;
	DYN_SHARED(b128, slots);

	row_each<SHAPE, LOOP, Index>(rows, [&](Index number, bool here) {
		const i64 y_at = index_offset<i64>(number, DIMS{}, Y{});
		NORM_QUANTIZE_INPUTS((index_offset<i64>(number, DIMS{}, X{})),
							 (index_offset<i64>(number, DIMS{}, RESIDUAL{})), X_STEP, RESIDUAL_STEP)
		const Row row(from[0], Group::thread(), Group::slice());
		const auto out = NORM_QUANTIZE_ROW(y_at, Group::thread() == 0);
		const NormQuantizeAffine<BYTES, Row, GAMMA, BETA> affine = {row, gamma, beta};
		const NormQuantizeGroup<Group> group = {};
		Words words(slots);
		words.fetch(row, from, step);
		words.arrive();
		const NormQuantizeSlots<Row, Words, STREAMS> source = {row, words};
		norm_quantize_write<int>(
			row, out.to, norm_quantize_factors<int>(row, out, RMS, Row::columns, source, group),
			source, affine, group);
	});
}

template <class ROW, typename OUT, class GAMMA, class BETA, int BYTES, bool RMS, int STREAMS,
		  bool LOOP, i64 X_STEP, i64 RESIDUAL_STEP, class DIMS, class X, class RESIDUAL, class Y,
		  typename Index, typename T = typename ROW::Element>
__global__ LAUNCH_BOUNDS(ROW::threads) void norm_quantize_stream(NORM_QUANTIZE_OPERANDS(T, GAMMA,
																						BETA, OUT))
{
	row_each<ROW, LOOP, Index>(
		rows,
		[&](Index number, bool here) {
			const i64 y_at = index_offset<i64>(number, DIMS{}, Y{});
			NORM_QUANTIZE_INPUTS((index_offset<i64>(number, DIMS{}, X{})),
								 (index_offset<i64>(number, DIMS{}, RESIDUAL{})), X_STEP,
								 RESIDUAL_STEP)
			const ROW row(from[0]);
			typedef typename ROW::Column Column;
			const auto out = NORM_QUANTIZE_ROW(y_at, threadIdx.x == 0);
			const NormQuantizeRead<ROW, STREAMS> source = {row, from, step, ROW::steps()};
			const NormQuantizeGroup<typename ROW::group> group = {};
			norm_quantize_write<Column>(
				row, out.to,
				norm_quantize_factors<Column>(row, out, RMS, ROW::columns, source, group), source,
				NormQuantizeAffine<BYTES, ROW, GAMMA, BETA>{row, gamma, beta}, group);
		});
}
