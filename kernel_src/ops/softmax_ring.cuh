/*
 * softmax_ring.cuh: softmax and its logarithm over a dimension that is not the last, of matrices
 * that lie in memory as one piece each: COLUMNS x INNER, softmax over the columns.  Blocks that
 * stay, or clusters of such blocks, take one matrix after another (sm_90 and later).
 *
 *   softmax_ring           a block has a whole matrix
 *   softmax_ring_cluster   each block of a cluster has some columns of it: a piece
 *
 * Pieces come into a ring of SLOTS places in shared memory, by whole vectors wherever they begin.
 * Threads put results where elements were.  A warp of its own has pieces come and go.
 *
 * The vectors of a piece have the same rows again after a period of some columns.  A thread has a
 * vector of each GROUPS-th period, and a sum for each of its V elements.  Sums of a row meet in the
 * order of its columns, wherever the matrix begins.
 *
 * No wait takes an older phase of a barrier for its own, though it names a phase by its parity.
 * `full` ends a phase when a piece is in its slot: the slot is one team's, whose threads wait for
 * each phase, and the next piece comes only when all of them have arrived at `done`.  `done` ends a
 * phase when they have: the carrier waits for each one, and they arrive again only at the piece
 * that it then brings.  `put` of a turn ends a phase when words of all blocks are there: a block
 * sends those of the turn after the next one when it has those of the next from all others, and
 * these send them when all their threads are past the phase.
 */
#pragma once
#include "common/bulk.cuh"
#include "common/softmax_panel.cuh"

/* THREADS: of a team.  BLOCKS: of a multiprocessor. */
template <typename T, int COLUMNS, int INNER, int THREADS, int TEAMS, int CLUSTER, int SLOTS,
		  int BLOCKS>
struct RingShape {
	typedef T Element;
	static constexpr int columns = COLUMNS, inner = INNER, cluster = CLUSTER, slots = SLOTS;
	static constexpr int threads = THREADS, teams = TEAMS, blocks = BLOCKS;
	static constexpr int all_threads = THREADS * TEAMS + 32;
	static constexpr int length = 16 / static_cast<int>(sizeof(T));
	static constexpr int divisor(int a, int b)
	{
		return b ? divisor(b, a % b) : a;
	}
	static constexpr int lanes = INNER / divisor(INNER, length); /* vectors of a period */
	static constexpr int wide = lanes * length;                  /* its elements */
	static constexpr int groups = THREADS / lanes;
	/* Parts of a row's sum: of the columns of a period, by groups. */
	static constexpr int parts = wide / INNER * groups;
	static constexpr int most = (COLUMNS + CLUSTER - 1) / CLUSTER; /* columns of a piece */
	/* Elements with room for a beginning between two vectors. */
	static constexpr int room = (most * INNER + 2 * length - 2) / length * length;
	static constexpr int crew_of(int crew)
	{
		return crew < 32 && crew * 2 * INNER <= THREADS ? crew_of(crew * 2) : crew;
	}
	static constexpr int crew = crew_of(1); /* threads that add up a row */
	static_assert(lanes <= THREADS, "a period has threads");
	/* A team that waits for a slot that another one has filled in between could take an older
	 * round for its own. */
	static_assert(SLOTS % TEAMS == 0, "a slot is always the same team's");
	static_assert((CLUSTER - 1) * most < COLUMNS, "each block has a column");

	static DEVICE int rank()
	{
		return CLUSTER == 1 ? 0 : static_cast<int>(blockIdx.x % CLUSTER);
	}
};

/* Shared memory behind the ring. */
template <class SHAPE>
struct RingMemory {
	float part[SHAPE::groups][SHAPE::wide];
	float total[2][SHAPE::cluster][SHAPE::inner]; /* what each block has, in turns */
	float whole[SHAPE::inner];
	u64 put[2];
	u32 far[2]; /* is a sum out of range? */
};
template <class SHAPE>
struct RingBlock {
	RingMemory<SHAPE> team[SHAPE::teams];
	u64 full[SHAPE::slots], done[SHAPE::slots];
};

/* A block's piece of a matrix. */
template <class SHAPE>
struct RingPiece {
	i64 start; /* its first vector, among the elements of all matrices */
	int beyond, end;

	DEVICE explicit RingPiece(i64 matrix)
	{
		constexpr int V = SHAPE::length;
		const int first = SHAPE::rank() * SHAPE::most, left = SHAPE::columns - first;
		const i64 begin =
			(matrix * SHAPE::columns + static_cast<i64>(first)) * static_cast<i64>(SHAPE::inner);
		beyond = static_cast<int>(begin % V);
		start = begin - beyond;
		end = beyond + (left < SHAPE::most ? left : SHAPE::most) * SHAPE::inner;
	}
	DEVICE int vectors() const
	{
		return (end + SHAPE::length - 1) / SHAPE::length;
	}
	DEVICE bool has(int element) const
	{
		return element >= beyond && element < end;
	}
};

/* One warp has pieces come and go. */
template <class SHAPE>
struct RingCarrier {
	typedef typename SHAPE::Element T;
	static constexpr int V = SHAPE::length, slots = SHAPE::slots;
	const T *const x;
	T *const y, *const ring;
	RingBlock<SHAPE> &block;

	DEVICE void bring(int slot, i64 matrix) const
	{
		const RingPiece<SHAPE> piece(matrix);
		const u32 bytes = static_cast<u32>(piece.vectors() * 16);
		if (threadIdx.x % 32 == 0) {
			bulk_expect(&block.full[slot], bytes);
			bulk_fetch(ring + slot * SHAPE::room, x + piece.start, bytes, &block.full[slot]);
		}
	}
	/* Elements of vectors that other pieces have a part of go one by one. */
	DEVICE void send(int slot, i64 matrix) const
	{
		const RingPiece<SHAPE> piece(matrix);
		const T *const from = ring + slot * SHAPE::room;
		T *const to = y + piece.start;
		const int first = piece.beyond ? V : 0, last = piece.end / V * V;
		const int lane = static_cast<int>(threadIdx.x % 32);
		const int mine = lane < V ? lane : last + lane - V;
		if (lane == 0)
			bulk_store(to + first, from + first,
					   static_cast<u32>((last - first) * static_cast<int>(sizeof(T))));
		if (lane < 2 * V && piece.has(mine) && (mine < first || mine >= last))
			to[mine] = from[mine];
		bulk_left();
		__syncwarp();
	}
	DEVICE void carry(i64 first, i64 step, i64 matrices) const
	{
		u32 parity = 0;
		int slot = 0;
		for (int s = 0; s < slots; s++)
			if (first + s * step < matrices)
				bring(s, first + s * step);
#pragma unroll 1
		for (i64 matrix = first; matrix < matrices; matrix += step) {
			bulk_wait(&block.done[slot], parity);
			send(slot, matrix);
			if (matrix + slots * step < matrices)
				bring(slot, matrix + slots * step);
			parity ^= slot + 1 == slots;
			slot = slot + 1 == slots ? 0 : slot + 1;
		}
	}
};

/* A thread that works on pieces. */
template <class SHAPE, bool LOG>
struct RingWorker {
	typedef typename SHAPE::Element T;
	static constexpr int V = SHAPE::length, inner = SHAPE::inner, groups = SHAPE::groups;
	static constexpr bool halves = sizeof(T) == 2;
	typedef SoftmaxScale<float> Scale;

	RingBlock<SHAPE> &block;
	RingMemory<SHAPE> &memory;
	const Scale &scale;
	const int thread, lane, group;
	int turn, flag; /* of total and put; of far */
	u32 parity;     /* of put */
	T *place;
	RingPiece<SHAPE> piece;

	DEVICE RingWorker(RingBlock<SHAPE> &block, const Scale &scale)
		: block(block), memory(block.team[team()]), scale(scale),
		  thread(static_cast<int>(threadIdx.x) % SHAPE::threads), lane(thread % SHAPE::lanes),
		  group(thread / SHAPE::lanes), turn(0), flag(0), parity(0), place(nullptr), piece(0)
	{
	}
	static DEVICE int team()
	{
		return static_cast<int>(threadIdx.x) / SHAPE::threads;
	}

	/* The team meets. */
	static DEVICE void sync()
	{
#if KILN_CPU
		__syncthreads();
#else
		asm volatile("bar.sync %0, %1;" ::"r"(1 + team()), "n"(SHAPE::threads) : "memory");
#endif
	}
	/* Calls body(raw, first) for each vector of this thread: its words, and its first element. */
	template <bool PUT, typename Body>
	DEVICE void each(Body body) const
	{
		const int vectors = group < groups ? piece.vectors() : 0;
#pragma unroll(halves ? 2 : 4)
		for (int at = group * SHAPE::lanes + lane; at < vectors; at += groups * SHAPE::lanes) {
			u32 raw[4];
			vec_load<16>(place + at * V, raw);
			body(raw, at * V);
			if constexpr (PUT)
				vec_store<16>(place + at * V, raw);
		}
	}
	/* The row of element v of the thread's vectors. */
	DEVICE int row(int v) const
	{
		return (lane * V + v + SHAPE::wide - piece.beyond) % inner;
	}

	/* A member of a crew takes its parts of a row; returns what merge makes of those of all
	 * members. */
	template <typename Merge>
	DEVICE float add_up(int row, int member, Merge merge) const
	{
		float sum = 0;
#pragma unroll 4
		for (int i = member; i < SHAPE::parts; i += SHAPE::crew) {
			/* A column that begins in one period and goes on in the next is one group further. */
			const int from = i / groups * inner + row + piece.beyond, next = from >= SHAPE::wide;
			const int by = i % groups + next < groups ? i % groups + next : 0;
			const float part = memory.part[by][next ? from - SHAPE::wide : from];
			sum = i == member ? part : merge(sum, part);
		}
#pragma unroll
		for (int far = 1; far < SHAPE::crew; far *= 2) {
			const float other = group_from(sum, far);
			const bool has = member < SHAPE::parts, his = (member ^ far) < SHAPE::parts;
			sum = !has ? other : his ? merge(sum, other) : sum;
		}
		return sum;
	}
	/* One thread for each row calls end(row, value), with what merge makes of the values of all
	 * threads and blocks.  All threads of the team see what that writes. */
	template <typename Merge, typename End>
	DEVICE void meet(const float (&mine)[V], Merge merge, End end)
	{
		constexpr int threads = SHAPE::threads, crew = SHAPE::crew, cluster = SHAPE::cluster;

#pragma unroll
		for (int v = 0; v < V && group < groups; v++)
			memory.part[group][lane * V + v] = mine[v];
		if (cluster > 1 && thread == 0)
			bulk_expect(&memory.put[turn], 4u * cluster * inner);
		sync();
#pragma unroll 1
		for (int base = 0; base < inner * crew; base += threads) {
			const int to = (base + thread) / crew, member = (base + thread) % crew;
			const float sum = add_up(to < inner ? to : 0, member, merge);
			if (to >= inner || member > 0)
				continue;
			if constexpr (cluster == 1) {
				end(to, sum);
			} else {
#pragma unroll
				for (int rank = 0; rank < cluster; rank++)
					bulk_put(&memory.total[turn][SHAPE::rank()][to], sum, &memory.put[turn],
							 static_cast<u32>(rank));
			}
		}
		if constexpr (cluster > 1) {
			bulk_wait_put(&memory.put[turn], parity);
#pragma unroll 1
			for (int to = thread; to < inner; to += threads) {
				float sum = memory.total[turn][0][to];
#pragma unroll
				for (int rank = 1; rank < cluster; rank++)
					sum = merge(sum, memory.total[turn][rank][to]);
				end(to, sum);
			}
			parity ^= static_cast<u32>(turn);
			turn ^= 1;
		}
		sync();
	}
	/* Takes halves: adds up powers of the elements themselves; false if a sum is out of range. */
	DEVICE bool work()
	{
		constexpr float least = LOG ? 0x1p-32f : 0x1p-64f, most = LOG ? 0x1p32f : 0x1p120f;
		const float factor = scale.before * scale.exponent, linear = scale.before * scale.after;
		float sum[V] = {}, rest[V];

		each<false>([&](const u32(&raw)[4], int first) {
			if (first < piece.beyond || first + V > piece.end) {
#pragma unroll
				for (int v = 0; v < V; v++)
					if (piece.has(first + v))
						sum[v] += softmax_exp2_flush(element_at<T, float>(raw, v) * factor);
				return;
			}
#pragma unroll
			for (int v = 0; v < V; v++)
				sum[v] += softmax_exp2_flush(element_at<T, float>(raw, v) * factor);
		});
		meet(
			sum, [](float a, float b) { return a + b; },
			[&](int to, float all) {
				if (!(all > least && all < most))
					memory.far[flag] = 1;
				memory.whole[to] = LOG ? -softmax_log(all) : -softmax_log2_near(all);
			});
		const bool out = memory.far[flag] != 0;
		flag ^= 1;
		if (thread == 0)
			memory.far[flag] = 0;
		if (out)
			return false;
#pragma unroll
		for (int v = 0; v < V; v++)
			rest[v] = memory.whole[row(v)];
		each<true>([&](u32(&raw)[4], int) {
			float value[V];
			element_unpack<T>(raw, value);
#pragma unroll
			for (int v = 0; v < V; v++)
				value[v] = LOG ? fma(value[v], linear, rest[v])
							   : softmax_exp2_flush(fma(value[v], factor, rest[v]));
			element_pack<T>(value, raw);
		});
		return true;
	}
	/* Takes any elements: the largest of a row is taken off first. */
	DEVICE void work_far()
	{
		float top[V], sum[V] = {}, rest[V];

#pragma unroll
		for (int v = 0; v < V; v++)
			top[v] = SoftmaxNumber<float>::lowest();
		each<false>([&](const u32(&raw)[4], int first) {
			const bool whole = first >= piece.beyond && first + V <= piece.end;
#pragma unroll
			for (int v = 0; v < V; v++)
				if (whole || piece.has(first + v))
					top[v] = fmax(top[v], element_at<T, float>(raw, v) * scale.before);
		});
		meet(
			top, [](float a, float b) { return fmax(a, b); },
			[&](int to, float all) { memory.whole[to] = all; });
#pragma unroll
		for (int v = 0; v < V; v++)
			top[v] = memory.whole[row(v)];
		each<false>([&](const u32(&raw)[4], int first) {
			const bool whole = first >= piece.beyond && first + V <= piece.end;
#pragma unroll
			for (int v = 0; v < V; v++)
				if (whole || piece.has(first + v))
					sum[v] += softmax_exp2_flush(
						(element_at<T, float>(raw, v) * scale.before - top[v]) * scale.exponent);
		});
		meet(
			sum, [](float a, float b) { return a + b; },
			[&](int to, float all) { memory.whole[to] = softmax_rest<T, LOG>(all); });
#pragma unroll
		for (int v = 0; v < V; v++)
			rest[v] = memory.whole[row(v)];
		each<true>([&](u32(&raw)[4], int) {
			float value[V];
			element_unpack<T>(raw, value);
#pragma unroll
			for (int v = 0; v < V; v++)
				value[v] = softmax_result<T, LOG>(value[v] * scale.before - top[v], rest[v], scale);
			element_pack<T>(value, raw);
		});
	}

	/* Teams take turns at matrices and slots. */
	DEVICE void run(T *ring, i64 first, i64 step, i64 matrices)
	{
		u32 round = 0;
		int slot = team();
#pragma unroll 1
		for (i64 matrix = first + slot * step; matrix < matrices; matrix += SHAPE::teams * step) {
			piece = RingPiece<SHAPE>(matrix);
			place = ring + slot * SHAPE::room;
			bulk_wait(&block.full[slot], round);
			if constexpr (halves) {
				if (!work())
					work_far();
			} else {
				work_far();
			}
			bulk_written();
			bulk_arrive(&block.done[slot]);
			slot += SHAPE::teams;
			round ^= slot >= SHAPE::slots;
			slot -= slot >= SHAPE::slots ? SHAPE::slots : 0;
		}
	}
};

template <class SHAPE, bool LOG, typename T>
DEVICE void softmax_rings(const T *x, T *y, const SoftmaxScale<float> &scale, i64 matrices)
{
	DYN_SHARED(b128, shared);
	T *const ring = reinterpret_cast<T *>(shared);
	RingBlock<SHAPE> &block =
		*reinterpret_cast<RingBlock<SHAPE> *>(ring + SHAPE::slots * SHAPE::room);
	const i64 first = blockIdx.x / SHAPE::cluster, step = gridDim.x / SHAPE::cluster;

	if (threadIdx.x == 0) {
		for (int s = 0; s < SHAPE::slots; s++) {
			bulk_barrier(&block.full[s], 1);
			bulk_barrier(&block.done[s], SHAPE::threads);
		}
		for (int i = 0; i < 2 * SHAPE::teams; i++) {
			bulk_barrier(&block.team[i / 2].put[i % 2], 1);
			block.team[i / 2].far[i % 2] = 0;
		}
		bulk_barriers_made();
	}
	if constexpr (SHAPE::cluster > 1) {
		cluster_arrive();
		cluster_wait();
	} else {
		__syncthreads();
	}
	if (threadIdx.x >= SHAPE::threads * SHAPE::teams)
		RingCarrier<SHAPE>{x, y, ring, block}.carry(first, step, matrices);
	else
		RingWorker<SHAPE, LOG>(block, scale).run(ring, first, step, matrices);
}

template <class SHAPE, bool LOG, typename T = typename SHAPE::Element>
__global__ __launch_bounds__(SHAPE::all_threads,
							 SHAPE::blocks) void softmax_ring(const T *x, T *y, float before,
															  float exponent, float after,
															  i64 matrices)
{
	softmax_rings<SHAPE, LOG>(x, y, SoftmaxScale<float>{before, exponent, after}, matrices);
}

template <class SHAPE, bool LOG, typename T = typename SHAPE::Element>
__global__ __launch_bounds__(SHAPE::all_threads, SHAPE::blocks)
	CLUSTER_OF(SHAPE::cluster) void softmax_ring_cluster(const T *x, T *y, float before,
														 float exponent, float after, i64 matrices)
{
	softmax_rings<SHAPE, LOG>(x, y, SoftmaxScale<float>{before, exponent, after}, matrices);
}
