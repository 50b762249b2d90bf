/*
 * mask_any.cuh: the masks of masked softmax (mask.cuh), for kernels that are told at launch which
 * one they have.
 */
#pragma once
#include "common/row_any.cuh"
#include "common/softmax.cuh"

/* A launch describes its mask. */
struct MaskAnyGiven {
	const void *mask; /* flags, lengths or numbers to add; 0: there is none */
	i64 step;         /* from column to column */
	i64 diagonal;     /* of a causal one */
	u32 kind, keep, empty, type;
};
enum mask_any_kind { MASK_ANY_FLAGS, MASK_ANY_LENGTHS, MASK_ANY_CAUSAL, MASK_ANY_ADDED };
enum mask_any_empty { MASK_ANY_ZERO, MASK_ANY_NAN, MASK_ANY_UNIFORM };

/* COLUMN: the type of a column's number. */
template <typename T, typename COLUMN = i64>
struct MaskAnyRow : SoftmaxAll<typename element<T>::compute> {
	typedef typename element<T>::compute Compute;
	static constexpr bool partial = true, counts = true, again = false;
	COLUMN columns, end;
	i64 step;
	u32 policy;

	/* place: of the row in the mask; of a causal one the query. */
	DEVICE MaskAnyRow(const MaskAnyGiven &given, i64 place, i64 columns)
		: columns(static_cast<COLUMN>(columns)), step(given.step), policy(given.empty)
	{
		i64 last = columns;
		if (given.kind == MASK_ANY_LENGTHS)
			last = static_cast<const i32 *>(given.mask)[place];
		else if (given.kind == MASK_ANY_CAUSAL)
			last = place + given.diagonal + 1;
		end = static_cast<COLUMN>(last < 0 ? 0 : last < columns ? last : columns);
	}
	DEVICE COLUMN limit() const
	{
		return end;
	}
	DEVICE Compute empty() const
	{
		if (policy == MASK_ANY_NAN)
			return static_cast<Compute>(__uint_as_float(0x7fc00000u));
		return policy == MASK_ANY_UNIFORM ? Compute(1) / static_cast<Compute>(columns) : Compute(0);
	}
};

/* Any mask but one that is added: a byte for each element, or the first columns of the row. */
template <typename T, typename COLUMN = i64>
struct MaskAnyFlags : MaskAnyRow<T, COLUMN> {
	template <int V>
	struct Held {
		u32 word[V < 4 ? 1 : V / 4];
	};
	const u8 *flags;
	bool keep;

	DEVICE MaskAnyFlags(const MaskAnyGiven &given, i64 place, i64 columns)
		: MaskAnyRow<T, COLUMN>(given, place, columns), flags(nullptr), keep(given.keep != 0)
	{
		if (given.kind == MASK_ANY_FLAGS)
			flags = static_cast<const u8 *>(given.mask) + place;
	}
	template <template <int> class HELD, int V>
	DEVICE void fetch(HELD<V> &held, COLUMN column, int ahead = 0, bool = false) const
	{
		column += ahead;
#pragma unroll
		for (int w = 0; w < (V < 4 ? 1 : V / 4); w++)
			held.word[w] = flags ? 0u : 0x01010101u * keep;
		if (!flags)
			return;
		if constexpr (V > 1) {
			if (this->step == 1 && column >= 0 && column + V <= this->columns &&
				vec_beyond<V>(flags + column) == 0) {
				vec_load<V>(flags + column, held.word);
				return;
			}
		}
#pragma unroll
		for (int j = 0; j < V; j++)
			if (static_cast<u64>(column + j) < static_cast<u64>(this->columns))
				held.word[j / 4] |= static_cast<u32>(flags[(column + j) * this->step]) << j % 4 * 8;
	}
	template <class HELD>
	DEVICE bool live(const HELD &held, COLUMN column, int j) const
	{
		const bool flag = (held.word[j / 4] & 0xffu << j % 4 * 8) != 0;
		return (flag == keep) & (column + j < this->end);
	}
};

/* One that is added: what is before is all of scale, and the sum is rounded once.  -inf leaves the
 * element out.  M: its type; void: any, for a V of 1. */
template <typename T, typename M>
struct MaskAnyAdded : MaskAnyRow<T> {
	typedef typename element<T>::compute Compute;
	template <int V>
	struct Held {
		Compute added[V];
		u32 live;
	};
	const void *start; /* of the row */
	u32 type;

	DEVICE MaskAnyAdded(const MaskAnyGiven &given, i64 place, i64 columns)
		: MaskAnyRow<T>(given, place, columns), type(given.type)
	{
		const u32 log = type == ROW_ANY_F64 ? 3 : type == ROW_ANY_F32 ? 2 : 1; /* of bytes */
		start = static_cast<const u8 *>(given.mask) + (place << log);
	}
	template <template <int> class HELD, int V>
	DEVICE void fetch(HELD<V> &held, i64 column) const
	{
		const auto take = [&](int j, auto value) {
			const bool live = value != SoftmaxNumber<decltype(value)>::least();
			held.added[j] = static_cast<Compute>(value);
			held.live |= (live ? 1u : 0u) << j;
		};
		held.live = 0;
#pragma unroll
		for (int j = 0; j < V; j++)
			held.added[j] = 0;
		row_any_read<M, V>(type, start, this->step, column, this->columns, take);
	}
	template <class HELD>
	DEVICE bool live(const HELD &held, i64, int j) const
	{
		return (held.live >> j & 1) != 0;
	}
	template <class HELD>
	DEVICE Compute term(const HELD &held, int j, Compute x, Compute before) const
	{
		return fma(x, before, held.added[j]);
	}
};
