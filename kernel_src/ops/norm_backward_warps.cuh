/*
 * norm_backward_warps.cuh: dx, dgamma and dbeta of the backward of layer_norm and rms_norm, of rows
 * without gaps between them, of which a warp holds one or several, or a few warps one.
 *
 *   norm_backward_warps   each warp takes pieces of some rows one after the other; each thread
 *                         keeps the sums of its columns, and in the end all warps add them up
 *
 * A warp, or a team of warps that share each row, has its pieces come into a ring of STAGES places
 * of its own, so teams never wait for one another.  A place is free when the piece's last rows are
 * in registers.
 */
#pragma once
#include "common/bulk.cuh"
#include "common/norm_backward_columns.cuh"

/* How far two rows that begin so many bytes apart are in the banks of shared memory, in bytes. */
constexpr int warps_apart(int bytes)
{
	return bytes % 128 < 64 ? bytes % 128 : 128 - bytes % 128;
}

/* Do rows of so many bytes, of which lanes take so many side by side, come in each other's way more
 * than every so many of them? */
constexpr bool warps_spread(int row, int every, int side)
{
	return warps_apart(row) < side && warps_apart(row) < warps_apart(row * every);
}

/* V elements move at once; a row has LANES lanes with NV such vectors each: a part of a warp, or
 * whole warps.  A piece is ROWS rows. */
template <typename T, i64 COLUMNS, int V, int NV, int LANES, int WARPS, int ROWS, int STAGES>
struct BackwardWarpsShape {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	static constexpr int columns = static_cast<int>(COLUMNS), length = V, held = NV;
	static constexpr int each = static_cast<int>(sizeof(T)), bytes = V * each;
	static constexpr int words = vec_words<bytes>;
	static constexpr int lanes = LANES, side = LANES < 32 ? 32 / LANES : 1, threads = 32 * WARPS;
	/* Threads that have pieces come together. */
	static constexpr int team = LANES < 32 ? 32 : LANES, teams = threads / team;
	static constexpr int rows = ROWS, turns = (ROWS + side - 1) / side, stages = STAGES;
	static constexpr int row_bytes = columns * each, piece_bytes = ROWS * row_bytes;
	/* Bytes of a place, with those beside a piece that begins between two vectors. */
	static constexpr int place = (piece_bytes + (bytes == 16 ? 0 : 15) + 15) / 16 * 16;
	static constexpr bool full = NV * LANES * V == columns;
	/* Narrow vectors of dx take the place of x, which goes to memory as a whole. */
	static constexpr bool staged = bytes < 8;
	/* Rows side by side in a piece begin in the same banks: a warp takes others at once. */
	static constexpr int beside = LANES * bytes;
	static constexpr bool spread =
		staged && side != 1 && turns * side == ROWS && warps_spread(row_bytes, turns, beside);
	/* A thread has room for what it has computed of a row. */
	static constexpr bool keeps = NV * V <= 16;
	static_assert(COLUMNS % V == 0 && NV * LANES * V >= COLUMNS, "lanes have all columns");
	static_assert(ROWS <= 32 && (32 % LANES == 0 || LANES % 32 == 0), "lanes look for rows");
	static_assert(threads % team == 0 && (team == 32 || teams < 16), "a barrier for each team");
};

template <class SHAPE, class WITH, typename Offset>
struct NormBackwardWarps {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef NormBackwardOperands<WITH, T> Operands;
	typedef NormBackwardSums<WITH, Compute> Sums;
	typedef NormBackwardColumns<WITH, Compute, SHAPE::held, SHAPE::length> Columns;
	static constexpr int V = SHAPE::length, NV = SHAPE::held, stages = SHAPE::stages;
	static constexpr bool fused = sizeof(T) < sizeof(Compute);
	typedef NormBackwardRow<WITH, Compute> Row;
	typedef NormBackwardScale<WITH, Compute, fused> Scale;

	const Operands &at;
	u64 *const full; /* of this team's places */
	u8 *const ring;
	const int lane, column, group; /* in the team; the first column; the row beside others */
	Columns all = {};
	Compute gamma[NV][V];
	u32 x[NV][SHAPE::words], dy[NV][SHAPE::words];

	DEVICE NormBackwardWarps(const Operands &at, u64 *barriers, u8 *shared)
		: at(at), full(barriers + threadIdx.x / SHAPE::team * stages),
		  ring(shared + static_cast<u32>(threadIdx.x / SHAPE::team * (stages * 2)) * SHAPE::place),
		  lane(static_cast<int>(threadIdx.x % SHAPE::team)), column(lane % SHAPE::lanes * V),
		  group(lane / SHAPE::lanes)
	{
	}

	DEVICE bool has(int n) const
	{
		return SHAPE::full || (n + 1) * SHAPE::lanes * V <= SHAPE::columns ||
			   column + n * SHAPE::lanes * V < SHAPE::columns;
	}
	DEVICE int here(int n) const
	{
		return column + n * SHAPE::lanes * V;
	}

	static DEVICE int beyond(const T *piece)
	{
		return SHAPE::bytes == 16 ? 0 : vec_beyond<16>(piece);
	}
	DEVICE u8 *place(int stage, int input) const
	{
		return ring + (stage * 2 + input) * SHAPE::place;
	}
	static DEVICE Offset start(Offset piece)
	{
		return piece * static_cast<Offset>(SHAPE::rows * SHAPE::columns);
	}
	DEVICE int rows_of(Offset piece) const
	{
		const Offset left = static_cast<Offset>(at.rows) - piece * SHAPE::rows;
		return left < SHAPE::rows ? static_cast<int>(left) : SHAPE::rows;
	}

	/* By one lane: has a piece come. */
	DEVICE void bring(Offset piece, int stage) const
	{
		const T *const from[2] = {at.x + start(piece), at.dy + start(piece)};
		const int size = rows_of(piece) * SHAPE::row_bytes;
		u32 bytes[2];

#pragma unroll
		for (int i = 0; i < 2; i++)
			bytes[i] = static_cast<u32>(beyond(from[i]) + size + 15) / 16 * 16;
		bulk_expect(&full[stage], bytes[0] + bytes[1]);
#pragma unroll
		for (int i = 0; i < 2; i++)
			bulk_fetch(place(stage, i), reinterpret_cast<const u8 *>(from[i]) - beyond(from[i]),
					   bytes[i], &full[stage]);
	}

	/* The numbers of this lane's row of a piece. */
	DEVICE Row look(Offset piece, Offset pieces) const
	{
		/* Where there is one row, each lane asks for itself. */
		const int mine = SHAPE::rows > 1 ? lane : 0;
		const Offset number = piece * SHAPE::rows + static_cast<Offset>(mine);
		if (piece >= pieces || mine >= rows_of(piece))
			return {};
		return Row::load(at, number);
	}

	DEVICE void take(const T *from_x, const T *from_dy, int stage, int row, bool there)
	{
		const u8 *const xs = place(stage, 0) + beyond(from_x) + row * SHAPE::row_bytes;
		const u8 *const dys = place(stage, 1) + beyond(from_dy) + row * SHAPE::row_bytes;

#pragma unroll
		for (int n = 0; n < NV; n++) {
#pragma unroll
			for (int w = 0; w < SHAPE::words; w++)
				x[n][w] = dy[n][w] = 0;
			if (!there || !has(n))
				continue;
			vec_load<SHAPE::bytes>(xs + here(n) * SHAPE::each, x[n]);
			vec_load<SHAPE::bytes>(dys + here(n) * SHAPE::each, dy[n]);
		}
	}

	/* Vector n of the row: xhat, dy and g. */
	DEVICE void open(const Scale &row, int n, Compute (&xhat)[V], Compute (&come)[V],
					 Compute (&g)[V]) const
	{
		element_unpack<T>(x[n], xhat);
		element_unpack<T>(dy[n], come);
#pragma unroll
		for (int j = 0; j < V; j++) {
			xhat[j] = row.normal(xhat[j]);
			g[j] = come[j] * gamma[n][j];
		}
	}

	/* The team meets. */
	static DEVICE void meet()
	{
#if KILN_CPU
		__syncthreads();
#else
		asm volatile("bar.sync %0, %1;" ::"r"(1 + static_cast<int>(threadIdx.x) / SHAPE::team),
					 "n"(SHAPE::team)
					 : "memory");
#endif
	}
	/* The sums over a row of all its lanes.  free: what is to be done when all have read it. */
	template <typename Free>
	static DEVICE Sums gather(Sums mine, int turn, Free free)
	{
		mine = group_butterfly<(SHAPE::lanes < 32 ? SHAPE::lanes : 32)>(mine);
		if constexpr (SHAPE::lanes > 32) {
			constexpr int warps = SHAPE::team / 32, width = group_width<warps>;
			__shared__ Sums partial[2][SHAPE::threads / 32];
			const int lane = static_cast<int>(threadIdx.x) % width;
			Sums *const team = partial[turn] + threadIdx.x / SHAPE::team * warps;
			if (threadIdx.x % 32 == 0)
				team[threadIdx.x % SHAPE::team / 32] = mine;
			meet();
			free();
			mine = group_butterfly<width>(lane < warps ? team[lane] : Sums::none());
		}
		return mine;
	}

	/* The row in registers; dx: where it goes, or null if there is none. */
	template <typename Free>
	DEVICE void work(const Scale &row, T *dx, int turn, Free free)
	{
		Compute xhat[NV][V], g[NV][V];
		Sums mine = {};

#pragma unroll
		for (int n = 0; n < NV; n++) {
			Compute come[V];
			Sums some = {};
			if (!has(n))
				continue; /* what is not there times infinity is no number */
			open(row, n, xhat[n], come, g[n]);
#pragma unroll
			for (int j = 0; j < V; j++) {
				all.add(n, j, xhat[n][j], come[j]);
				some.add(g[n][j], xhat[n][j]);
			}
			mine.merge(some);
		}
		mine = gather(mine, turn, free).template means<SHAPE::columns>();
		if constexpr (!SHAPE::keeps)
			norm_hide(x, dy);
		if (!dx)
			return;
		const NormBackwardSlope<WITH, Compute> slope(mine, row.rstd);
#pragma unroll
		for (int n = 0; n < NV; n++) {
			Compute come[V], out[V];
			u32 words[SHAPE::words];
			if (!has(n))
				continue;
			if constexpr (!SHAPE::keeps)
				open(row, n, xhat[n], come, g[n]);
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = slope.dx(g[n][j], xhat[n][j]);
			element_pack<T>(out, words);
			vec_store<SHAPE::bytes>(dx + here(n), words);
		}
	}

	/* Where dx of a row goes. */
	DEVICE T *row_to(Offset piece, int stage, int row) const
	{
		if constexpr (SHAPE::staged)
			return reinterpret_cast<T *>(place(stage, 0) + beyond(at.x + start(piece))) +
				   row * SHAPE::columns;
		else
			return at.dx + start(piece) + row * SHAPE::columns;
	}

	/* The place of the piece before this one, in `stage`, gets what comes next: dx has left it. */
	DEVICE void refill(Offset piece, int stage, Offset pieces, Offset step) const
	{
		const Offset next = piece + static_cast<Offset>(stages - 1) * step;

		if (lane != 0 || piece < step || next >= pieces)
			return;
		bulk_left();
		bring(next, stage > 0 ? stage - 1 : stages - 1);
	}

	/* By all lanes of a team, also without a piece: dx of one goes from its place to memory. */
	DEVICE void send(Offset piece, int stage, int rows) const
	{
		constexpr int unit = 16 / SHAPE::each;
		T *const to = at.dx + start(piece);
		const int past = beyond(at.x + start(piece)), count = rows * SHAPE::columns;
		const u8 *const from = place(stage, 0) + past;
		const int first = past ? unit - past / SHAPE::each : 0;
		const int whole = past == beyond(to) && count > first ? (count - first) / unit * unit : 0;

		bulk_written();
		if constexpr (SHAPE::team == 32)
			__syncwarp();
		else
			meet();
		if (lane == 0 && whole > 0)
			bulk_store(to + first, from + first * SHAPE::each,
					   static_cast<u32>(whole * SHAPE::each));
#pragma unroll 1
		for (int i = lane; i < count - whole; i += SHAPE::team) {
			/* The elements before and behind whole vectors go one by one. */
			const int element = i < first ? i : i + whole;
			vec_copy<SHAPE::each>(from + element * SHAPE::each, to + element);
		}
	}

	/* By one lane: has pieces number `from` to `to` - 1 of this team come, of which `piece` is the
	 * first. */
	DEVICE void bring_some(Offset piece, Offset pieces, Offset step, int from, int to) const
	{
#pragma unroll 1
		for (int s = from; s < to; s++)
			if (piece + static_cast<Offset>(s) * step < pieces)
				bring(piece + static_cast<Offset>(s) * step, s);
	}

	/*
	 * Has the first pieces come, of which this team's first is `piece`.  Where these are small, the
	 * first of all teams comes before the second of any, and all teams begin together.
	 */
	DEVICE void prepare(Offset piece, Offset pieces, Offset step)
	{
		constexpr int at_once = SHAPE::staged ? 1 : stages;

		if (lane == 0) {
#pragma unroll
			for (int s = 0; s < stages; s++)
				bulk_barrier(&full[s], 1);
			bulk_barriers_made();
			bring_some(piece, pieces, step, 0, at_once);
		}
#pragma unroll
		for (int n = 0; n < NV; n++) {
#pragma unroll
			for (int j = 0; j < V; j++)
				gamma[n][j] = Compute(1);
			if (has(n))
				norm_load<WITH::bytes>(at.gamma, here(n), gamma[n], Compute(1));
		}
		if constexpr (SHAPE::team == 32 && at_once == stages)
			__syncwarp();
		else
			__syncthreads(); /* barriers are made */
		if (at_once < stages && lane == 0)
			bring_some(piece, pieces, step, at_once, stages);
	}

	DEVICE void go()
	{
		const Offset step = static_cast<Offset>(gridDim.x) * SHAPE::teams;
		const Offset pieces = static_cast<Offset>((at.rows + SHAPE::rows - 1) / SHAPE::rows);
		const Offset ahead = threadIdx.x / SHAPE::team * gridDim.x;
		Offset first = blockIdx.x; /* the piece of team 0 */
		int stage = 0, round = 0;
		u32 parity = 0;

		Row next = look(first + ahead, pieces);
		prepare(first + ahead, pieces, step);
		/* Teams go as many rounds as the first. */
#pragma unroll 1
		for (; first < pieces; first += step) {
			const Offset piece = first + ahead, later = piece + static_cast<Offset>(stages) * step;
			const Row found = next;
			const bool here = piece < pieces;
			const int rows = here ? rows_of(piece) : 0;
			const T *const from_x = at.x + start(piece), *const from_dy = at.dy + start(piece);
			next = look(piece + step, pieces);
			if (here)
				bulk_wait(&full[stage], parity);
#pragma unroll 1
			for (int turn = 0; turn < SHAPE::turns; turn++) {
				const int row =
					SHAPE::spread ? group * SHAPE::turns + turn : turn * SHAPE::side + group;
				const bool there = row < rows;
				Row mine = there ? found : Row{};
				if constexpr (SHAPE::rows > 1) {
					mine.rstd = __shfl_sync(0xffffffffu, found.rstd, row);
					mine.mean = WITH::rms ? Compute(0) : __shfl_sync(0xffffffffu, found.mean, row);
				}
				take(from_x, from_dy, stage, row, there);
				/* The team has read this piece, and sent the one before. */
				const auto free = [&] {
					if (!SHAPE::staged && lane == 0 && later < pieces)
						bring(later, stage);
					if (SHAPE::staged && turn == 0)
						refill(piece, stage, pieces, step);
				};
				if (SHAPE::team == 32 && turn == (SHAPE::staged ? 0 : SHAPE::turns - 1)) {
					__syncwarp();
					free();
				}
				work(Scale(mine), there ? row_to(piece, stage, row) : nullptr, round & 1, free);
			}
			if (SHAPE::staged)
				send(piece, stage, rows);
			stage = stage + 1 < stages ? stage + 1 : 0;
			parity ^= stage == 0;
			round++;
		}
		if (SHAPE::staged && lane == 0)
			bulk_left();
	}

	/*
	 * All threads come; shared has room for a number of each column of each sum of each team.
	 * Calls body(which, column, sum).
	 */
	template <typename Body>
	DEVICE void merge(Compute *shared, Body body)
	{
		constexpr u32 values = WITH::sums * SHAPE::columns;
		Compute *const mine = shared + threadIdx.x / SHAPE::team * values;

		__syncthreads();
#pragma unroll
		for (int s = 0; s < WITH::sums; s++) {
#pragma unroll
			for (int n = 0; n < NV; n++) {
#pragma unroll
				for (int j = 0; j < V; j++) {
					Compute sum = all.sum[s][n][j];
#pragma unroll
					for (int lanes = SHAPE::lanes; lanes < 32; lanes *= 2)
						sum += group_from(sum, lanes);
					if (group == 0 && has(n))
						mine[s * SHAPE::columns + here(n) + j] = sum;
				}
			}
		}
		__syncthreads();
#pragma unroll 1
		for (u32 i = threadIdx.x; i < values; i += SHAPE::threads) {
			Compute sum = 0;
#pragma unroll
			for (u32 team = 0; team < SHAPE::teams; team++)
				sum += shared[team * values + i];
			const u32 which = WITH::sums > 1 && i >= SHAPE::columns;
			body(which, i - which * SHAPE::columns, sum);
		}
	}
};

/* Each block leaves one set of sums in scratch memory, behind the counters. */
template <class SHAPE, class WITH, typename Offset, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads, 1) void norm_backward_warps(
	const T *__restrict__ x, const T *__restrict__ dy,
	const typename WITH::Gamma *__restrict__ gamma, const Compute *__restrict__ mean,
	const Compute *__restrict__ rstd, T *__restrict__ dx,
	typename WITH::Dgamma *__restrict__ dgamma, typename WITH::Dbeta *__restrict__ dbeta,
	u8 *scratch, i64 rows)
{
	constexpr u32 columns = static_cast<u32>(SHAPE::columns), sums = WITH::sums;
	constexpr u32 width = columns_width(columns), pitch = columns_pitch(columns);
	__shared__ u64 barriers[SHAPE::teams * SHAPE::stages];
	DYN_SHARED(b128, shared);
	const NormBackwardOperands<WITH, T> at = {x, dy, gamma, mean, rstd, dx, dgamma, dbeta, rows};
	u32 *const counters = reinterpret_cast<u32 *>(scratch);
	Compute *const partial = reinterpret_cast<Compute *>(scratch + 256);
	Compute *const parts = reinterpret_cast<Compute *>(shared);
	NormBackwardWarps<SHAPE, WITH, Offset> warps(at, barriers, reinterpret_cast<u8 *>(shared));

	columns_begin(counters + 2);
	warps.go();
	const u32 begun = columns_begun(counters);
	warps.merge(
		parts, [&](u32 which, u32 i,
				   Compute sum) { partial[(blockIdx.x * sums + which) * pitch + i] = sum; });
	columns_share(counters, begun, gridDim.x, (columns + width - 1) / width, [&](u32 strip) {
		const u32 begin = strip * width;
		columns_total<SHAPE::threads, width, sums>(partial + begin, pitch, columns - begin,
												   gridDim.x, [&](u32 which, u32 i, Compute value) {
													   norm_backward_store(at, which, begin + i,
																		   value);
												   });
	});
}
