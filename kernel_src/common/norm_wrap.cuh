/*
 * norm_wrap.cuh: rows that begin anywhere between two aligned vectors, as many of a matrix with an
 * odd number of columns do, and gamma and beta for them.
 *
 * The aligned vectors that cover such a row are often one more than the row would fill.  So the
 * row is wrapped: what the last one of them has of the row goes into the free beginning of the
 * first one.  Then there is no more to hold and to compute than for a row that begins with a
 * vector.  Vector 0, which thread 0 has, is loaded from both ends of the row and stored element by
 * element.
 *
 * gamma and beta begin elsewhere between vectors, and elsewhere for each row.  A block brings them
 * into shared memory once: plane r has those of columns r, r + V, r + 2 V and so on.  Element j of
 * the vectors of a row then comes from one plane, for all threads, and from words that lie side by
 * side.  Or each thread cuts them out of the aligned vectors around them.
 */
#pragma once
#include "common/norm_rows.cuh"

/* V elements to a vector, NV vectors a thread at most, SIZE threads.  Answers as Row does. */
template <typename T, i64 COLUMNS, int V, int NV, int SIZE>
struct NormWrap {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	static constexpr int length = V, bytes = V * static_cast<int>(sizeof(T)), words = bytes / 4;
	static constexpr int held = NV, size = SIZE;
	static constexpr i64 columns = COLUMNS;
	static constexpr bool skewed = true;
	static constexpr int vectors = (static_cast<int>(COLUMNS) + V - 1) / V;
	static constexpr int dead = vectors * V - static_cast<int>(COLUMNS); /* elements of vectors */
	static constexpr bool full = vectors == NV * SIZE && dead == 0;
	/* Vectors but the first and last of each thread are whole then. */
	static_assert(vectors <= NV * SIZE && vectors > (NV - 1) * SIZE,
				  "threads hold it, and no less");

	int skew;  /* elements that the row begins behind a vector's beginning */
	int first; /* the column of element 0 of this thread's vector 0, or below 0 */

	DEVICE NormWrap(const void *start, int thread)
		: skew(
			  static_cast<int>(static_cast<u32>(reinterpret_cast<u64>(start)) % bytes / sizeof(T))),
		  first(thread * V - skew)
	{
	}

	DEVICE int column(int n) const
	{
		return first + n * (SIZE * V);
	}
	/* Are vectors number n of all threads whole parts of the row that lie in one piece? */
	static DEVICE bool sure(int n)
	{
		return n > 0 && (n + 1) * (SIZE * V) <= static_cast<int>(COLUMNS);
	}
	DEVICE bool has(int n) const
	{
		return (n + 1) * SIZE <= vectors || first + n * (SIZE * V) < vectors * V - skew;
	}
	/* Does it have elements of the row's end? */
	DEVICE bool wrapped(int n) const
	{
		return n == 0 && first < 0;
	}
	/* Does it lie in one piece? */
	DEVICE bool inside(int n) const
	{
		return sure(n) || (column(n) >= 0 && column(n) + V <= static_cast<int>(COLUMNS));
	}
	/* Are all its elements the row's? */
	DEVICE bool whole(int n) const
	{
		return dead == 0 ? has(n) : inside(n);
	}
	DEVICE bool live(int n, int j) const
	{
		const int here = column(n) + j;
		if (dead == 0 || sure(n))
			return true;
		/* Vector 0 has a gap between the wrapped elements and the beginning of the row. */
		return (n > 0 || static_cast<u32>(here + dead) >= static_cast<u32>(dead)) &&
			   ((n + 1) * (SIZE * V) <= static_cast<int>(COLUMNS) ||
				here < static_cast<int>(COLUMNS));
	}
};

template <typename T, i64 COLUMNS, int V, int NV, int SIZE>
DEVICE void norm_store_edge(const NormWrap<T, COLUMNS, V, NV, SIZE> &row, int n, T *to,
							const u32 *words)
{
	T *const end = to + row.vectors * V;
#pragma unroll
	for (int j = 0; j < V; j++) {
		if (!row.live(n, j))
			continue;
		if (n == 0 && row.first + j < 0)
			norm_store_element(end + j, words, j);
		else
			norm_store_element(to + j, words, j);
	}
}

/* APART: rows of x and of the residual begin elsewhere between vectors than those of y. */
template <typename T, i64 COLUMNS, int V, int NV, int SIZE, int ROWS, bool APART>
struct NormWrapShape {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	typedef Group<SIZE, ROWS, 1> group;
	typedef NormWrap<T, COLUMNS, V, NV, SIZE> row;
	static constexpr int threads = group::threads, rows = ROWS, cluster = 1, slots = 0;
	static constexpr bool apart = APART;
};

/* A wrapped row as its threads hold it. */
template <class SHAPE, class WITH, class PLACE>
struct NormWrapHeld : NormHeld<SHAPE, WITH, PLACE, 1, 64> {
	typedef NormHeld<SHAPE, WITH, PLACE, 1, 64> Base;
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	static constexpr int V = Row::length;
	static_assert(Base::wide, "wrapping puts numbers together");

	u32 end[WITH::inputs][Row::words]; /* thread 0: the vector with the row's end */

	template <int INPUT>
	DEVICE void fetch(const Row &row, const T *start)
	{
		constexpr int last = Row::vectors * V;
		if constexpr (SHAPE::apart) {
#pragma unroll
			for (int n = 0; n < Row::held; n++)
				if (row.has(n))
					between<INPUT>(start, row.first, n * (Row::size * V), Row::sure(n), n);
			if (row.wrapped(0) && row.skew > Row::dead)
				vec_load_between<sizeof(T), Row::bytes, Row::columns>(start, last - row.skew, 0,
																	  false, end[INPUT]);
		} else {
			Base::template fetch<INPUT>(row, start);
			if (row.wrapped(0) && row.skew > Row::dead)
				vec_load<Row::bytes>(start + (last - row.skew), end[INPUT]);
		}
	}

	DEVICE void widen(const Row &row)
	{
		Base::widen();
		if (row.wrapped(0)) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				Compute last = element_at<T, Compute>(end[0], j);
				if constexpr (WITH::residual)
					last += element_at<T, Compute>(end[1], j);
				if (j < row.skew)
					this->s[j] = last;
			}
		}
		bury(row);
	}

	DEVICE Compute total(const Row &) const
	{
		Compute sum = 0;
#pragma unroll
		for (int e = 0; e < Base::elements; e++)
			sum += this->s[e];
		return sum;
	}

	DEVICE void deviate(const Row &row, Compute &sum, Compute &squares)
	{
#pragma unroll
		for (int e = 0; e < Base::elements; e++)
			this->s[e] -= this->pivot;
		bury(row);
#pragma unroll
		for (int e = 0; e < Base::elements; e++) {
			sum += this->s[e];
			squares = fma(this->s[e], this->s[e], squares);
		}
	}

	DEVICE Compute square(const Row &) const
	{
		Compute squares = 0;
#pragma unroll
		for (int e = 0; e < Base::elements; e++)
			squares = fma(this->s[e], this->s[e], squares);
		return squares;
	}

  private:
	/* Begins to bring in vector n. */
	template <int INPUT>
	DEVICE void between(const T *start, int first, int ahead, bool sure, int n)
	{
		u32 some[Row::words];
		vec_load_between<sizeof(T), Row::bytes, Row::columns>(start, first, ahead, sure, some);
#pragma unroll
		for (int w = 0; w < Row::words; w++)
			this->word[INPUT][n * Row::words + w] = some[w];
	}

	/* Makes elements outside of the row 0.  Few threads have any of them. */
	DEVICE void bury(const Row &row)
	{
		bury<0>(row);
		if constexpr (Row::held > 1)
			bury<Row::held - 1>(row);
	}
	template <int N>
	DEVICE void bury(const Row &row)
	{
		if (row.whole(N))
			return;
#pragma unroll
		for (int j = 0; j < V; j++)
			this->s[N * V + j] = row.has(N) && row.live(N, j) ? this->s[N * V + j] : Compute(0);
	}
};

/*
 * Shared memory holds for one column: gamma and beta, or the one that there is.  Two halves share a
 * word unless WIDE; others lie there as numbers to compute with.
 */
template <class G, class B, typename Compute, bool WIDE>
struct NormPair {
	static constexpr bool gamma = norm_given<G>, beta = norm_given<B>;
	static constexpr bool halves = !WIDE && norm_bytes<G> == 2 && norm_bytes<B> == 2;
	static constexpr int numbers = (gamma ? 1 : 0) + (beta ? 1 : 0);
	static constexpr int words =
		halves || numbers == 0 ? 1 : numbers * static_cast<int>(sizeof(Compute)) / 4;

	static DEVICE void load(const u32 *from, Compute &g, Compute &b)
	{
		u32 some[words];
		vec_load<words * 4>(from, some);
		if constexpr (halves) {
			g = element_at<G, Compute>(some, 0);
			b = element_at<B, Compute>(some, 1);
		} else {
			g = element_at<Compute, Compute>(some, 0);
			b = element_at<Compute, Compute>(some, numbers - 1);
		}
	}
	/* Packs them as numbers. */
	static DEVICE void pack(Compute g, Compute b, u32 (&some)[words])
	{
		const Compute value[2] = {gamma ? g : b, b};
		u32 both[2 * sizeof(Compute) / 4];
		element_pack<Compute>(value, both);
#pragma unroll
		for (int w = 0; w < words; w++)
			some[w] = both[w];
	}
	/* Reads those of `column` alone. */
	template <class OPERANDS>
	static DEVICE void fetch(const OPERANDS &at, int column, u32 (&some)[words])
	{
		if constexpr (halves) {
			u32 high;
			vec_load<2>(at.gamma + column, some);
			vec_load<2>(at.beta + column, &high);
			some[0] |= high << 16;
		} else {
			pack(norm_load_one(at.gamma, column, Compute(1)),
				 norm_load_one(at.beta, column, Compute(0)), some);
		}
	}
};

/*
 * gamma and beta in shared memory, as planes.  Element j of vector v of a row is t = j - skew
 * behind the beginning of columns v * V.  Few bytes lie there twice: plane t + V - 1 has at place
 * v what belongs to it, so that its address is a constant behind that of element 0.  Many lie
 * there once: plane t % V, at place v, or v + 1 if t is not below 0.  Either way they are wrapped
 * as the row is.
 */
template <class WITH, class ROW, bool WIDE>
struct NormPlanes {
	typedef typename ROW::Compute Compute;
	typedef NormPair<typename WITH::Gamma, typename WITH::Beta, Compute, WIDE> Pair;
	static constexpr int V = ROW::length, vectors = ROW::vectors, words = Pair::words;
	static constexpr bool empty = Pair::numbers == 0;
	/* The planner knows this as well (daemon/plan/ops/norm/norm_wrap.c). */
	static constexpr bool twice = (2 * V - 1) * vectors * words * 4 <= 16384;
	static constexpr int pitch = (twice ? vectors : vectors + 1) * words; /* of planes, in words */

	const u32 *const place; /* of this thread */
	const int skew;

	DEVICE NormPlanes(const void *shared, const ROW &row, int thread)
		: place(static_cast<const u32 *>(shared) + thread * words +
				(twice ? (V - 1 - row.skew) * pitch : 0)),
		  skew(row.skew)
	{
	}

	/* Takes vector n. */
	DEVICE void load(int n, Compute (&gamma)[V], Compute (&beta)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			const u32 t = static_cast<u32>(j + V - skew); /* 1 .. 2 V - 1 */
			const int away = twice ? j * pitch : static_cast<int>(t % V * pitch + t / V * words);
			if constexpr (!empty)
				Pair::load(place + away + n * (ROW::size * words), gamma[j], beta[j]);
		}
	}

	/* All threads of the block bring all of them in; a barrier follows. */
	template <class OPERANDS>
	static DEVICE void fill(const OPERANDS &at, void *shared, int threads)
	{
#pragma unroll 1
		for (int v = static_cast<int>(threadIdx.x); v < vectors; v += threads) {
			u32 *const first = static_cast<u32 *>(shared), *const here = first + v * words;
			u32 some[V][words];
			fetch(at, v * V, some);
#pragma unroll
			for (int j = 0; j < V; j++) {
				if constexpr (twice) {
					u32 *const next = v + 1 < vectors ? here + words : first;
					vec_store<words * 4>(here + (j + V - 1) * pitch, some[j]);
					if (j > 0)
						vec_store<words * 4>(next + (j - 1) * pitch, some[j]);
				} else {
					vec_store<words * 4>(here + words + j * pitch, some[j]);
					if (v + 1 == vectors)
						vec_store<words * 4>(first + j * pitch, some[j]);
				}
			}
		}
	}

  private:
	/* Reads those of the columns of a vector that begins with column.  Aligned vectors are read
	 * beyond the end: in the same 16 bytes as the last element. */
	template <class OPERANDS>
	static DEVICE void fetch(const OPERANDS &at, int column, u32 (&some)[V][words])
	{
		constexpr int gamma_bytes = V * norm_bytes<typename WITH::Gamma>;
		constexpr int beta_bytes = V * norm_bytes<typename WITH::Beta>;
		if constexpr (Pair::halves && WITH::bytes >= gamma_bytes) {
			u32 gamma[V / 2], beta[V / 2];
			vec_load<2 * V>(at.gamma + column, gamma);
			vec_load<2 * V>(at.beta + column, beta);
#pragma unroll
			for (int j = 0; j < V; j++)
				some[j][0] = __byte_perm(gamma[j / 2], beta[j / 2], j % 2 ? 0x7632 : 0x5410);
		} else if constexpr (!Pair::halves && gamma_bytes <= WITH::bytes &&
							 beta_bytes <= WITH::bytes) {
			Compute gamma[V], beta[V];
			norm_load<WITH::bytes>(at.gamma, column, gamma, Compute(1));
			norm_load<WITH::bytes>(at.beta, column, beta, Compute(0));
#pragma unroll
			for (int j = 0; j < V; j++)
				Pair::pack(gamma[j], beta[j], some[j]);
		} else {
#pragma unroll
			for (int j = 0; j < V; j++)
				if (column + j < static_cast<int>(ROW::columns))
					Pair::fetch(at, column + j, some[j]);
		}
	}
};

/*
 * gamma and beta from where they are, in vectors as wide as x's that are aligned: those of a vector
 * of a row lie in two of them that follow each other, the last and the first being neighbours, too.
 */
template <class WITH, class ROW>
struct NormWindows {
	typedef typename ROW::Compute Compute;
	static constexpr int V = ROW::length, vectors = ROW::vectors, bytes = ROW::bytes;
	static constexpr int size = static_cast<int>(sizeof(typename ROW::Element));

	const int high, beyond; /* the second of the two for vector 0; bytes before, in the first */
	const bool between;     /* are there two? */

	DEVICE NormWindows(const ROW &row, int thread)
		: high(thread), beyond((V - row.skew) % V * size), between(row.skew > 0)
	{
	}

	template <class OPERANDS>
	DEVICE void load(const OPERANDS &at, int n, Compute (&gamma)[V], Compute (&beta)[V]) const
	{
		const int second = high + n * ROW::size;
		const int first = between ? (second > 0 ? second : vectors) - 1 : second;
		take(at.gamma, first, second, gamma, Compute(1));
		take(at.beta, first, second, beta, Compute(0));
	}

  private:
	template <typename G>
	DEVICE void take(const G *from, int first, int second, Compute (&out)[V], Compute absent) const
	{
		if constexpr (norm_given<G>) {
			u32 pair[bytes / 2], words[bytes / 4];
			static_assert(norm_bytes<G> == size, "vectors are as wide");
			vec_load<bytes>(from + first * V, pair);
			vec_load<bytes>(from + second * V, pair + bytes / 4);
			vec_window<size, bytes>(pair, beyond, words);
			element_unpack<G>(words, out);
		} else {
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = absent;
		}
	}
};
