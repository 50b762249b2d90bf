/*
 * index_add.cuh: few[o, p, i] = base[o, p, i] + alpha * the sum of many[o, k, i] over all k with
 * idx[k] = p, one after another by rising k: the same bits whatever the launch.  Without a base the
 * sums begin at 0.  With an index for each element, idx has a list for each slice o.
 *
 * A block owns `rows` places of the indexed dimension, for some slices and for a part of their
 * columns.  Each warp looks at a part of the list of indices, and notes those that name a place of
 * the block.  A note is an entry; each warp has room for `room` of them.  One warp chains the
 * entries of each place, and then each thread sums up vectors of its own.  Where a warp has no room
 * for its entries, the block takes fewer places at a time; for a single place, threads read the
 * list.
 */
#pragma once
#include "common/index_add.cuh"
#include "common/indices.cuh"
#include "common/indices_find.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define INDEX_ADD_THREADS 512 /* at most; blocks of fewer are more at once */

/* A launch is told this.  Axes are steps, in elements, from one place to the next. */
struct IndexAddSizes {
	i64 slices, count, end; /* slices; indices of a list; places */
	i64 many_axis, base_axis, few_axis, idx_step;
	i64 columns, padding;  /* no index that is padding adds anything */
	u32 vectors, parts;    /* of a part of the columns; parts */
	u32 rows, room, group; /* places, entries of a warp, slices of a block */
	bool lists;            /* each slice has indices of its own */
};

/*
 * T: the type of elements, V of which move at once.  ITEMS: sums that a thread has under way.
 */
template <typename T, int V, class Indices, class At, class Find, int ITEMS = 2>
struct IndexAdd {
	typedef typename summand<T>::Compute Compute;
	typedef typename Indices::Index Index;
	typedef typename Find::Place Place;
	static constexpr int es = static_cast<int>(sizeof(T)), words = vec_words<es * V>;
	static constexpr u16 none = 0xffff; /* the end of a chain */
	/* Indices that a lane asks for at once; sums under way, and their entries whose elements are
	 * loaded at once. */
	static constexpr int held = 8, items = ITEMS, ahead = 2;
	static_assert(items == 1 || items == 2, "add_chains() ends with the first and the last");

	u8 *shared;
	const u8 *many, *base;
	u8 *few;
	Indices idx;
	IndexAddSizes size;
	Compute alpha;
	At at;
	Find find;

	static DEVICE u32 warps()
	{
		return blockDim.x / 32;
	}
	DEVICE u32 *keys() const
	{
		return reinterpret_cast<u32 *>(shared);
	}
	DEVICE u32 *found() const
	{
		return keys() + warps() * size.room;
	}
	DEVICE u16 *places() const
	{
		return reinterpret_cast<u16 *>(found() + warps());
	}
	DEVICE u16 *next() const
	{
		return places() + warps() * size.room;
	}
	DEVICE u16 *heads() const
	{
		return next() + warps() * size.room;
	}

	/*
	 * Notes the indices of a list that name the `n` places from `first` on: each warp those of its
	 * part, by rising k.  Returns how many name nothing.
	 */
	DEVICE u32 note(i64 list, Place first, u32 n) const
	{
		const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
		const u32 unit = warps() * 32, count = static_cast<u32>(size.count);
		const u32 part = (count / unit + (count % unit != 0)) * 32;
		const i64 begin = static_cast<i64>(warp) * part, rest = size.count - begin;
		const u32 mine = rest < 0 ? 0 : rest < part ? static_cast<u32>(rest) : part;
		u32 noted = 0, strays = 0;

#pragma unroll 1
		for (u32 k = lane; k - lane < mine; k += 32 * held) {
			Index index[held];
			u32 mask = 0;
#pragma unroll
			for (int i = 0; i < held; i++)
				index[i] = k + i * 32 < mine ? idx[list + (begin + k + i * 32) * size.idx_step] : 0;
#pragma unroll
			for (int i = 0; i < held; i++) {
				const bool there = k + i * 32 < mine;
				mask |= (placed(index[i], first, there, strays) < n && there ? 1u : 0u) << i;
			}
			if (__ballot_sync(0xffffffffu, mask != 0))
				noted = add_entries(list, first, warp, noted, begin + k, mask);
		}
		if (lane == 0)
			found()[warp] = noted;
		return strays;
	}

	/*
	 * The number of the place that an index names, counted from `first`.  Where it names nothing,
	 * or a place before, the number is larger than that of any place there is.  Has no branches,
	 * of which the compiler would make copies of all around.
	 */
	DEVICE Place placed(Index index, Place first, bool counted, u32 &strays) const
	{
		const bool nothing = static_cast<i64>(index) == size.padding;
		const Place named = find.place_of(static_cast<i64>(index));

		strays += counted & !nothing & (named == indices_none<Place>);
		return (nothing ? indices_none<Place> : named) - first;
	}

	/* Adds the entries that the lanes of a warp found, in the order of indices; returns how many
	 * there are then, with those for which there is no room. */
	DEVICE u32 add_entries(i64 list, Place first, u32 warp, u32 noted, i64 k, u32 mask) const
	{
		const u32 below = (1u << threadIdx.x % 32) - 1;
		u32 unseen = 0;

#pragma unroll 1
		for (int i = 0; i < held; i++, k += 32) {
			const bool mine = mask >> i & 1;
			const u32 vote = __ballot_sync(0xffffffffu, mine);
			const u32 to = noted + static_cast<u32>(__popc(vote & below));
			if (mine && to < size.room) {
				keys()[warp * size.room + to] = static_cast<u32>(k);
				places()[warp * size.room + to] = static_cast<u16>(placed(
					static_cast<Index>(idx[list + k * size.idx_step]), first, false, unseen));
			}
			noted += static_cast<u32>(__popc(vote));
		}
		return noted;
	}

	/* Chains all entries by their `n` places.  One warp goes over them from the end, 32 at a time.
	 * Among these, an entry is followed by that of the next lane with the same place, and the last
	 * of them by the place's first entry so far. */
	DEVICE void chain(u32 n) const
	{
		const int lane = static_cast<int>(threadIdx.x);

#pragma unroll 1
		for (u32 i = threadIdx.x; i < n; i += blockDim.x)
			heads()[i] = none;
		__syncthreads();
#pragma unroll 1
		for (int warp = static_cast<int>(warps()) - 1; warp >= 0 && lane < 32; warp--) {
			const int count = static_cast<int>(found()[warp]);
			const int begin = warp * static_cast<int>(size.room);
#pragma unroll 1
			for (int i = (count - 1) / 32 * 32 + lane; i >= lane; i -= 32) {
				const bool here = i < count;
				const u32 key = here ? places()[begin + i] : 0xffffffffu;
				const u32 equal = __match_any_sync(0xffffffffu, key);
				const u32 above = equal >> lane >> 1;
				u16 *const head = heads() + (here ? key : 0);
				const int then = above ? begin + i + __ffs(static_cast<int>(above)) : *head;
				__syncwarp();
				if (here)
					next()[begin + i] = static_cast<u16>(then);
				if (here && (equal & ((1u << lane) - 1u)) == 0)
					*head = static_cast<u16>(begin + i);
				__syncwarp();
			}
		}
		__syncthreads();
	}

	/* ---- Sums ---- */

	DEVICE void begin(const IndexSlice &slice, i64 place, i64 column, Compute (&sum)[V]) const
	{
		u32 in[words];

#pragma unroll
		for (int v = 0; v < V; v++)
			sum[v] = 0;
		if (!base)
			return;
		vec_load<es * V>(base + (slice[1] + place * size.base_axis + column) * es, in);
		summand<T>::unpack(in, sum);
	}

	DEVICE void store(const IndexSlice &slice, i64 place, i64 column, const Compute (&sum)[V]) const
	{
		u32 out[words];

		summand<T>::pack(sum, out);
		vec_store<es * V>(few + (slice[3] + place * size.few_axis + column) * es, out);
	}

	/* Adds what is chained from some entries on: for each place in the order of indices. */
	DEVICE void add_chains(const u8 *const (&from)[items], u32 (&entry)[items],
						   Compute (&sum)[items][V]) const
	{
#pragma unroll 1
		while (entry[0] != none || entry[items - 1] != none) {
			u32 more[items][ahead][words];
			int count[items] = {};
#pragma unroll
			for (int j = 0; j < items; j++) {
#pragma unroll
				for (int a = 0; a < ahead; a++) {
					if (entry[j] == none)
						continue;
					vec_load<es * V>(from[j] +
										 static_cast<i64>(keys()[entry[j]]) * size.many_axis * es,
									 more[j][a]);
					entry[j] = next()[entry[j]];
					count[j] = a + 1;
				}
			}
#pragma unroll
			for (int j = 0; j < items; j++) {
#pragma unroll
				for (int a = 0; a < ahead; a++)
					if (a < count[j])
						summand_add<T>(more[j][a], alpha, sum[j]);
			}
		}
	}

	/* Adds for a place what any index of the list names, without looking at entries. */
	DEVICE void add_list(const u8 *from, i64 list, Place place, Compute (&sum)[V]) const
	{
		u32 unseen = 0;

#pragma unroll 1
		for (i64 i = 0; i < size.count; i++) {
			u32 more[words];
			if (placed(static_cast<Index>(idx[list + i * size.idx_step]), place, false, unseen))
				continue;
			vec_load<es * V>(from + i * size.many_axis * es, more);
			summand_add<T>(more, alpha, sum);
		}
	}

	/* The sums of `n` places from `first` on, which are chained or, if `alone`, one. */
	DEVICE void sums(i64 slice, u32 group, i64 list, Place first, u32 n, u32 part, bool alone) const
	{
		const u32 all = group * n * size.vectors, others = alone ? 0 : all;
		/* Where sums take the place of what they begin with, those of nothing stay. */
		const u32 stays = base == few && !alone ? none : none + 1;

#pragma unroll 1
		for (u32 i = threadIdx.x; i < all; i += (alone ? 1 : items) * blockDim.x) {
			const u8 *from[items] = {};
			IndexSlice offset[items];
			i64 column[items];
			u32 place[items], entry[items];
			Compute sum[items][V];
#pragma unroll
			for (int j = 0; j < items; j++) {
				const u32 here = i + j * blockDim.x, q = here / size.vectors, o = q / n;
				place[j] = q - o * n;
				column[j] = (static_cast<i64>(part) * size.vectors + (here - q * size.vectors)) * V;
				entry[j] = none;
				if (here >= (j ? others : all) || column[j] >= size.columns)
					continue;
				entry[j] = heads()[place[j]];
				if (entry[j] == stays)
					continue;
				at(slice + o, offset[j]);
				begin(offset[j], first + place[j], column[j], sum[j]);
				from[j] = many + (offset[j][0] + column[j]) * es;
			}
			if (!alone)
				add_chains(from, entry, sum);
			else if (from[0])
				add_list(from[0], list, first, sum[0]);
#pragma unroll
			for (int j = 0; j < items; j++)
				if (from[j])
					store(offset[j], first + place[j], column[j], sum[j]);
		}
	}

	/* Is there a warp that has no room for all of its entries? */
	DEVICE bool is_full() const
	{
		bool full = false;

#pragma unroll 1
		for (u32 warp = 0; warp < warps(); warp++)
			full = full || found()[warp] > size.room;
		return full;
	}

	/* All places of a block from `first` on, for `group` slices and one part of the columns. */
	DEVICE u32 block(i64 slice, u32 group, Place first, u32 part) const
	{
		const Place left = static_cast<Place>(size.end) - first;
		const u32 all = left < size.rows ? static_cast<u32>(left) : size.rows;
		u32 strays = 0, n = all, done = 0;
		IndexSlice offset;

		at(slice, offset);
#pragma unroll 1
		while (done < all) {
			__syncthreads(); /* the entries before are not used any more */
			const u32 seen = note(offset[2], first + done, n);
			if (done == 0 && n == all) /* it is the first look at the list */
				strays = seen;
			__syncthreads();
			const bool full = is_full();
			if (full && n > 1) {
				n = (n + 1) / 2;
				continue;
			}
			if (!full)
				chain(n);
			sums(slice, group, offset[2], first + done, n, part, full);
			done += n;
			n = all - done < n ? all - done : n;
		}
		return first == 0 && part == 0 && (size.lists || slice == 0) ? strays : 0;
	}

	/* Blocks are numbered by parts, then by places, then by slices. */
	DEVICE u32 all() const
	{
		const u64 chunks = (static_cast<Place>(size.end) + size.rows - 1) / size.rows;
		u32 strays = 0;

#pragma unroll 1
		for (u64 item = blockIdx.x;; item += gridDim.x) {
			const u64 chunk = item / size.parts, group = chunk / chunks;
			const i64 slice = static_cast<i64>(group * size.group), left = size.slices - slice;
			if (left <= 0)
				break;
			strays += block(slice, left < size.group ? static_cast<u32>(left) : size.group,
							static_cast<Place>((chunk - group * chunks) * size.rows),
							static_cast<u32>(item - chunk * size.parts));
		}
		return strays;
	}
};

/* ---- Kernels ---- */

template <typename T, typename I, int BOUNDS, int V, u32 VECTORS, bool LISTS, class PLACES,
		  typename Place>
__global__ __launch_bounds__(INDEX_ADD_THREADS,
							 1) void index_add(const void *many, const I *idx, const void *base,
											   void *few, u64 *report, i64 slices, i64 count,
											   i64 end, i64 padding, u32 rows, u32 room, u32 group,
											   typename summand<T>::Compute alpha)
{
	typedef IndicesFind<I, BOUNDS, Place> Find;
	DYN_SHARED(b128, shared);
	constexpr i64 vectors = PLACES::columns / V;
	const IndexAdd<T, V, IndexAddList<I>, PLACES, Find> add{
		reinterpret_cast<u8 *>(shared),
		static_cast<const u8 *>(many),
		static_cast<const u8 *>(base),
		static_cast<u8 *>(few),
		{idx},
		{slices, count, end, PLACES::many_axis, PLACES::base_axis, PLACES::few_axis,
		 PLACES::idx_step, PLACES::columns, padding, VECTORS,
		 static_cast<u32>((vectors + VECTORS - 1) / VECTORS), rows, room, group, LISTS},
		alpha,
		PLACES{end},
		Find{end}};
	const u32 strays = add.all();

	if constexpr (BOUNDS == INDICES_CHECK)
		indices_report(report, strays);
}

/* index: bytes of an index; lists: each slice has indices of its own. */
template <typename T, int V>
__global__ __launch_bounds__(INDEX_ADD_THREADS, 1) void index_add_generic(
	const void *many, const void *idx, const void *base, void *few, u64 *report, i64 slices,
	i64 count, i64 end, i64 padding, u32 rows, u32 room, u32 group, u32 vectors, i64 inner,
	i64 columns, i64 many_axis, i64 base_axis, i64 idx_step, u32 index, u32 bounds, u32 lists,
	typename summand<T>::Compute alpha, SPACE_SIZES(u64), SPACE_STRIDES(of_many),
	SPACE_STRIDES(of_base), SPACE_STRIDES(of_idx))
{
	DYN_SHARED(b128, shared);
	const Space<3, u64> space{
		SPACE_SIZES_MADE(u64),
		{SPACE_STRIDES_MADE(of_many), SPACE_STRIDES_MADE(of_base), SPACE_STRIDES_MADE(of_idx)}};
	const u32 all = static_cast<u32>((columns / V + vectors - 1) / vectors);
	/* Sizes as arguments leave registers for one sum. */
	const IndexAdd<T, V, IndicesAny, IndexAddSpace, IndicesFindAny, 1> add{
		reinterpret_cast<u8 *>(shared),
		static_cast<const u8 *>(many),
		static_cast<const u8 *>(base),
		static_cast<u8 *>(few),
		{idx, index},
		{slices, count, end, many_axis, base_axis, inner * columns, idx_step, columns, padding,
		 vectors, all, rows, room, group, lists != 0},
		alpha,
		IndexAddSpace{space, end, inner, columns},
		IndicesFindAny{end, bounds}};
	const u32 strays = add.all();

	if (bounds == INDICES_CHECK && report)
		indices_report(report, strays);
}
