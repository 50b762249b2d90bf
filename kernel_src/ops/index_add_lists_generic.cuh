/*
 * index_add_lists_generic.cuh: sums by indices (index_add.cuh) of which each slice has a list of
 * its own, for sizes and strides that are known when the kernel is launched.
 *
 * A block has 2^lanes slices, and each of its threads one of them.  Shared memory holds for each
 * place the last k that came, for each k the one before, in any order, and the elements.  A thread
 * puts up to four of a place's links in order in registers, or eight.  The few places that have
 * more are left for later: a warp goes over the list for each.
 */
#pragma once
#include "common/indices.cuh"
#include "common/indices_find.cuh"
#include "common/links.cuh"
#include "common/space.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define INDEX_ADD_LISTS_THREADS 512 /* at most */

template <typename T>
struct IndexAddLists {
	typedef typename summand<T>::Compute Compute;
	static constexpr int es = static_cast<int>(sizeof(T)), words = vec_words<es>;
	static constexpr u32 none = 0xffff; /* behind the last link */
	static constexpr u32 few_links = 4, some_links = 8;

	const u8 *many, *base;
	u8 *few;
	IndicesAny idx;
	IndicesFindAny find;
	i64 slices, inner, padding, many_axis, base_axis, idx_step;
	u32 count, end, lanes;
	Compute alpha;
	const Space<3, u64> &space;
	u32 *heads; /* of slice g and place p at p << lanes | g, and so on */
	u8 *elements;
	u16 *links;

	/* Where a slice begins: in many, base and idx, and in few. */
	struct Slice {
		i64 at[3], to;
	};
	DEVICE Slice slice_of(i64 number) const
	{
		const i64 outer =
			inner == 1 ? number
					   : static_cast<i64>(static_cast<u64>(number) / static_cast<u64>(inner));
		Slice slice;
		space.at(static_cast<u64>(number), slice.at);
		slice.to = outer * end * inner + (number - outer * inner);
		return slice;
	}

	/* Brings the elements of a slice, and links them; returns how many indices name nothing. */
	DEVICE u32 link(const Slice &slice, u32 g, u32 first, u32 step) const
	{
		constexpr int once = 4; /* under way */
		u32 strays = 0;

#pragma unroll 1
		for (u32 begin = first; begin < count; begin += once * step) {
			u32 word[once][words];
			i64 index[once];
#pragma unroll
			for (u32 i = 0; i < once; i++) {
				const u32 k = begin + i * step;
				if (k >= count)
					continue;
				index[i] = idx[slice.at[2] + k * idx_step];
				vec_load<es>(many + (slice.at[0] + k * many_axis) * es, word[i]);
			}
#pragma unroll
			for (u32 i = 0; i < once; i++) {
				const u32 k = begin + i * step;
				if (k >= count || index[i] == padding)
					continue;
				const u64 place = find.place_of(index[i]);
				if (place == indices_none<u64>) {
					strays++;
					continue;
				}
				vec_store<es>(elements + (k << lanes | g) * es, word[i]);
				links[k << lanes | g] =
					static_cast<u16>(atomicExch(heads + (static_cast<u32>(place) << lanes | g), k));
			}
		}
		return strays;
	}

	DEVICE void begin(const Slice &slice, u32 place, Compute (&sum)[1]) const
	{
		sum[0] = 0;
		if (base)
			sum[0] = summand<T>::get(base + (slice.at[1] + place * base_axis) * es);
	}
	DEVICE void add(u32 k, u32 g, Compute (&sum)[1]) const
	{
		u32 word[words];
		vec_load<es>(elements + (k << lanes | g) * es, word);
		summand_add<T>(word, alpha, sum);
	}
	DEVICE void store(const Slice &slice, u32 place, const Compute (&sum)[1]) const
	{
		u32 word[words];
		summand<T>::pack(sum, word);
		vec_store<es>(few + (slice.to + place * inner) * es, word);
	}
	DEVICE u32 behind(u32 k, u32 g) const
	{
		return k == none ? none : links[k << lanes | g];
	}

	/* The sum of a place, by up to eight links; false: there are more. */
	DEVICE bool sum_few(const Slice &slice, u32 place, u32 g, u32 head) const
	{
		u32 link[some_links];
		Compute sum[1];

		begin(slice, place, sum);
		link[0] = head;
#pragma unroll
		for (u32 n = 1; n < some_links; n++)
			link[n] = n <= few_links || link[few_links] != none ? behind(link[n - 1], g) : none;
		if (link[few_links] == none)
			links_sort4(link, 0);
		else if (behind(link[some_links - 1], g) == none)
			links_sort(link);
		else
			return false;
#pragma unroll
		for (u32 n = 0; n < some_links; n++) {
			if (link[n] == none)
				break;
			add(link[n], g, sum);
		}
		store(slice, place, sum);
		return true;
	}

	/* The sum of a place that many name, by a warp. */
	DEVICE void sum_many(const Slice &slice, u32 place, u32 g) const
	{
		const u32 lane = threadIdx.x % 32;
		Compute sum[1];

		begin(slice, place, sum);
#pragma unroll 1
		for (u32 first = 0; first < count; first += 32) {
			const u32 k = first + lane < count ? first + lane : 0;
			const i64 index = idx[slice.at[2] + k * idx_step];
			u32 marks = __ballot_sync(0xffffffffu, first + lane < count && index != padding &&
													   find.place_of(index) == place);
#pragma unroll 1
			for (; marks != 0; marks &= marks - 1)
				add(first + static_cast<u32>(__ffs(static_cast<int>(marks))) - 1, g, sum);
		}
		if (lane == 0)
			store(slice, place, sum);
	}

	/* All places of the slices from `number` on; returns how many indices name nothing. */
	DEVICE u32 block(i64 number) const
	{
		const u32 g = threadIdx.x & ((1u << lanes) - 1);
		const u32 first = threadIdx.x >> lanes, step = blockDim.x >> lanes;
		const bool here = number + g < slices, stays = base == few;
		const Slice slice = slice_of(here ? number + g : number);
		u32 strays = 0;
		bool left = false;

		for (u32 i = threadIdx.x; i < end << lanes; i += blockDim.x)
			heads[i] = none;
		__syncthreads();
		if (here)
			strays = link(slice, g, first, step);
		__syncthreads();
#pragma unroll 1
		for (u32 place = first; place < end && here; place += step) {
			const u32 head = heads[place << lanes | g];
			/* Where sums take the place of what they begin with, those of nothing stay. */
			if (head == none && stays)
				continue;
			if (sum_few(slice, place, g, head))
				heads[place << lanes | g] = none;
			else
				left = true;
		}
		if (!__syncthreads_or(left))
			return strays;
#pragma unroll 1
		for (u32 i = threadIdx.x; i - threadIdx.x % 32 < end << lanes; i += blockDim.x) {
			u32 marks = __ballot_sync(0xffffffffu, i < end << lanes && heads[i] != none);
#pragma unroll 1
			for (; marks != 0; marks &= marks - 1) {
				const u32 at =
					i - threadIdx.x % 32 + static_cast<u32>(__ffs(static_cast<int>(marks))) - 1;
				const u32 other = at & ((1u << lanes) - 1);
				sum_many(slice_of(number + other), at >> lanes, other);
			}
		}
		__syncthreads(); /* the next slices take the memory again */
		return strays;
	}
};

/* index: bytes of an index. */
template <typename T>
__global__
__launch_bounds__(INDEX_ADD_LISTS_THREADS, sizeof(T) == 8 ? 1 : 2) void index_add_lists_generic(
	const void *many, const void *idx, const void *base, void *few, u64 *report, i64 slices,
	i64 count, i64 end, i64 padding, u32 lanes, i64 inner, i64, i64 many_axis, i64 base_axis,
	i64 idx_step, u32 index, u32 bounds, u32, typename summand<T>::Compute alpha, SPACE_SIZES(u64),
	SPACE_STRIDES(of_many), SPACE_STRIDES(of_base), SPACE_STRIDES(of_idx))
{
	DYN_SHARED(b128, shared);
	const Space<3, u64> space{
		SPACE_SIZES_MADE(u64),
		{SPACE_STRIDES_MADE(of_many), SPACE_STRIDES_MADE(of_base), SPACE_STRIDES_MADE(of_idx)}};
	const u32 places = static_cast<u32>(end) << lanes, all = static_cast<u32>(count) << lanes;
	u8 *const elements = reinterpret_cast<u8 *>(shared) + (places * 4 + 15) / 16 * 16;
	const IndexAddLists<T> lists{
		static_cast<const u8 *>(many),
		static_cast<const u8 *>(base),
		static_cast<u8 *>(few),
		{idx, index},
		{end, bounds},
		slices,
		inner,
		padding,
		many_axis,
		base_axis,
		idx_step,
		static_cast<u32>(count),
		static_cast<u32>(end),
		lanes,
		alpha,
		space,
		reinterpret_cast<u32 *>(shared),
		elements,
		reinterpret_cast<u16 *>(elements + (all * static_cast<u32>(sizeof(T)) + 15) / 16 * 16)};
	u32 strays = 0;

	for (i64 number = static_cast<i64>(blockIdx.x) << lanes; number < slices;
		 number += static_cast<i64>(gridDim.x) << lanes)
		strays += lists.block(number);
	if (bounds == INDICES_CHECK && report)
		indices_report(report, strays);
}
