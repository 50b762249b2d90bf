/*
 * permute.c: what is on the list of permutes and why, and the answer by counting through y's
 * index, and by nothing cleverer: bit for bit.
 */
#include "common/reference.h"

#include <string.h>

/* One dtype for each element size. */
static const kiln_dtype by_size[] = {KILN_I8, KILN_F16, KILN_F32, KILN_F64, KILN_C128};
#define SIZES 5

struct problem {
	int rank;
	int64_t shape[KILN_MAX_RANK];
	int64_t perm[KILN_MAX_RANK];
};

static int64_t units(const struct cases_case *c)
{
	return cases_elements(&c->operand[1]);
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *x = &r->c->operand[0], *y = &r->c->operand[1];
	int64_t index[KILN_MAX_RANK] = {0}, rest = first;
	uint32_t element = cases_element(x);

	for (int k = y->rank - 1; k >= 0 && last > first; k--) {
		index[k] = rest % y->shape[k];
		rest /= y->shape[k];
	}
	for (int64_t i = first; i < last; i++) {
		int64_t from = 0;
		for (int k = 0; k < y->rank; k++)
			from += index[k] * x->stride[r->c->ints[k]];
		reference_bytes(r, 1, i, (const char *)r->memory[0] + from * element);
		for (int k = y->rank - 1; k >= 0; k--) {
			if (++index[k] < y->shape[k])
				break;
			index[k] = 0;
		}
	}
}

static const struct cases_op permute = {"permute", units, reference};

static void name(struct cases_case *c)
{
	c->name[0] = 0;
	cases_name(c, "permute");
	cases_name_operand(c, 0);
	for (int k = 0; k < c->operand[0].rank; k++)
		cases_name(c, "%s%d", k ? "," : " (", (int)c->ints[k]);
	cases_name(c, "%s", c->operand[0].rank ? ")" : "");
	if (c->operand[1].offset)
		cases_name(c, " to %u", c->operand[1].offset);
}

/* x contiguous and both at the beginning of their memory. */
static void set(struct cases_case *c, kiln_dtype dtype, const struct problem *problem)
{
	struct cases_operand *x = &c->operand[0], *y = &c->operand[1];

	c->operand_count = 2;
	x->dtype = y->dtype = dtype;
	x->rank = y->rank = problem->rank;
	y->output = true;
	c->attr_count = 1;
	c->attr[0].name = "perm";
	c->attr[0].kind = KILN_ATTR_INTS;
	c->attr[0].count = problem->rank;
	for (int k = 0; k < problem->rank; k++) {
		x->shape[k] = problem->shape[k];
		y->shape[k] = problem->shape[problem->perm[k]];
		c->ints[k] = problem->perm[k];
	}
	cases_contiguous(x);
	cases_contiguous(y);
	name(c);
}

static struct cases_case *add(kiln_dtype dtype, const struct problem *problem, unsigned flags)
{
	struct cases_case *c = cases_add(&permute, flags);

	set(c, dtype, problem);
	return c;
}

/* All orders of n things, in lexicographic order: order number `which`. */
static void nth_permutation(int n, int which, int64_t *perm)
{
	int64_t left[KILN_MAX_RANK];
	int radix = 1;

	for (int k = 0; k < n; k++)
		left[k] = k;
	for (int k = 2; k < n; k++)
		radix *= k;
	for (int k = 0; k < n; k++) {
		int take = which / radix;
		perm[k] = left[take];
		memmove(&left[take], &left[take + 1], (size_t)(n - k - 1 - take) * sizeof(left[0]));
		which %= radix;
		if (n - k - 1 > 0)
			radix /= n - k - 1;
	}
}

static void add_permutations(void)
{
	static const int orders[] = {1, 1, 2, 6, 24};
	static const int64_t odd[] = {5, 3, 7, 9}, middle[] = {9, 20, 33, 18};

	for (int rank = 2; rank <= 4; rank++) {
		for (int i = 0; i < orders[rank]; i++) {
			struct problem p = {.rank = rank};
			nth_permutation(rank, i, p.perm);
			memcpy(p.shape, odd, sizeof(odd));
			for (int s = 0; s < SIZES; s++)
				add(by_size[s], &p, 0);
			memcpy(p.shape, middle, sizeof(middle));
			add(by_size[i % SIZES], &p, 0);
		}
	}
}

static void add_ranks(void)
{
	static const struct problem problems[] = {
		{0, {0}, {0}},
		{1, {1}, {0}},
		{1, {1000}, {0}},
		{5, {3, 4, 5, 6, 7}, {4, 3, 2, 1, 0}},
		{5, {2, 16, 3, 24, 8}, {0, 3, 1, 4, 2}},
		{6, {2, 3, 4, 5, 6, 7}, {5, 0, 4, 1, 3, 2}},
		{6, {4, 2, 8, 2, 8, 16}, {0, 2, 4, 1, 3, 5}},
		{7, {2, 3, 2, 3, 2, 3, 5}, {6, 4, 2, 0, 1, 3, 5}},
		{8, {2, 2, 2, 2, 3, 3, 3, 3}, {4, 5, 6, 7, 0, 1, 2, 3}},
		{8, {2, 3, 2, 3, 2, 3, 2, 3}, {7, 6, 5, 4, 3, 2, 1, 0}},
		{8, {2, 3, 1, 3, 2, 4, 2, 8}, {0, 2, 1, 4, 3, 6, 5, 7}},
		/* nothing, and next to nothing */
		{1, {0}, {0}},
		{2, {0, 5}, {1, 0}},
		{3, {4, 0, 0}, {2, 0, 1}},
		{2, {1, 7}, {1, 0}},
		{3, {7, 1, 9}, {2, 1, 0}},
		{4, {1, 6, 1, 5}, {3, 2, 1, 0}},
		{4, {17, 5, 40, 4}, {1, 0, 3, 2}},
		{8, {1, 1, 1, 1, 1, 1, 1, 1}, {7, 6, 5, 4, 3, 2, 1, 0}},
	};

	for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
		add(by_size[i % SIZES], &problems[i], 0);
		add(by_size[(i + 2) % SIZES], &problems[i], 0);
	}
}

/* Rows in the order of x, rows that begin anywhere, and boxes whose runs go on in others. */
static void add_orders(void)
{
	/* Rows that are neighbours in x and far apart in y, more or fewer of them than take turns, in
	 * runs of y that begin at lines and between them. */
	add(KILN_F16, &(struct problem){5, {2, 150, 3, 19, 40}, {2, 0, 3, 1, 4}}, 0);
	add(KILN_F32, &(struct problem){3, {700, 23, 24}, {1, 0, 2}}, 0);
	add(KILN_U8, &(struct problem){4, {3, 190, 33, 48}, {0, 2, 1, 3}}, 0);
	add(KILN_F64, &(struct problem){4, {5, 64, 3, 32}, {0, 2, 1, 3}}, 0);
	/* Rows that stay and begin anywhere, longer and shorter, of whole vectors or not. */
	add(KILN_F16, &(struct problem){4, {5, 7, 9, 183}, {1, 0, 2, 3}}, 0);
	add(KILN_F16, &(struct problem){3, {5, 7, 1031}, {1, 0, 2}}, 0);
	add(KILN_U8, &(struct problem){3, {11, 13, 143}, {1, 0, 2}}, 0);
	add(KILN_F32, &(struct problem){3, {11, 13, 127}, {1, 0, 2}}, 0);
	/* Rows of three vectors of halves; so many rows in a run that three blocks are resident. */
	add(KILN_F16, &(struct problem){4, {3, 48, 57, 24}, {0, 3, 1, 2}}, 0);
	add(KILN_F16, &(struct problem){3, {3, 289, 200}, {0, 2, 1}}, 0);
	add(KILN_F32, &(struct problem){3, {3, 107, 420}, {0, 2, 1}}, 0);
	/* Boxes whose runs of y are short, go on in the box of another item, or are few rows. */
	add(KILN_F16, &(struct problem){5, {3, 7, 30, 29, 29}, {0, 4, 2, 1, 3}}, 0);
	add(KILN_F16, &(struct problem){6, {19, 5, 3, 61, 7, 7}, {3, 2, 1, 4, 0, 5}}, 0);
	add(KILN_F16, &(struct problem){5, {30, 38, 11, 7, 42}, {2, 3, 1, 4, 0}}, 0);
	add(KILN_F16, &(struct problem){3, {5, 18, 2880}, {0, 2, 1}}, 0);
	add(KILN_F16, &(struct problem){4, {7, 24, 17, 17}, {0, 2, 3, 1}}, 0);
	add(KILN_U8, &(struct problem){6, {9, 11, 17, 29, 27, 13}, {4, 1, 3, 2, 5, 0}}, 0);
}

/* Around every multiple that a kernel may be built of. */
static void add_widths(void)
{
	static const int64_t widths[] = {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129};
	const int count = sizeof(widths) / sizeof(widths[0]);

	for (int i = 0; i < count; i++) {
		for (int s = 0; s < SIZES; s++) {
			struct problem flat = {2, {widths[i], widths[(i * 5 + 3 * s) % count]}, {1, 0}};
			add(by_size[s], &flat, 0);
		}
		struct problem stay = {3, {6, widths[(i * 7 + 1) % count], widths[i]}, {1, 0, 2}};
		struct problem batch = {3, {3, widths[i], widths[(i * 7 + 5) % count]}, {0, 2, 1}};
		add(by_size[i % SIZES], &stay, 0);
		add(by_size[(i + 3) % SIZES], &batch, 0);
	}
	for (int s = 0; s < SIZES; s++) {
		struct problem large = {2, {512, 384}, {1, 0}};
		struct problem ragged = {3, {2, 260, 296}, {0, 2, 1}};
		add(by_size[s], &large, 0);
		add(by_size[s], &ragged, 0);
	}
	add(KILN_U8, &(struct problem){2, {2048, 2304}, {1, 0}}, 0);
	add(KILN_U8, &(struct problem){2, {2064, 2100}, {1, 0}}, 0);
	/* Columns of y that begin between two sectors, in rows of x that are aligned and that are not;
	 * fewer rows than a tile of them has. */
	for (int s = 1; s < SIZES; s++) {
		static const int64_t sizes[][2] = {{1032, 208}, {1036, 203}, {600, 67}, {90, 1000}};
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			add(by_size[s], &(struct problem){2, {sizes[i][0], sizes[i][1]}, {1, 0}}, 0);
	}
	/* Runs that stay together, in vectors of 1 to 8 bytes of which a thread has several. */
	add(KILN_U8, &(struct problem){4, {5, 33, 7, 24}, {1, 0, 2, 3}}, 0);
	add(KILN_F16, &(struct problem){4, {5, 33, 7, 22}, {2, 0, 1, 3}}, 0);
	add(KILN_F64, &(struct problem){4, {5, 33, 7, 11}, {2, 1, 0, 3}}, 0);
	add(KILN_U8, &(struct problem){4, {5, 33, 7, 26}, {1, 0, 2, 3}}, 0);
	/* Boxes whose elements would meet in a bank. */
	add(KILN_F16, &(struct problem){4, {2, 300, 5, 8}, {0, 3, 2, 1}}, 0);
	add(KILN_U8, &(struct problem){6, {3, 14, 6, 20, 10, 14}, {0, 4, 2, 3, 5, 1}}, 0);
	/* Bytes of short dimensions that are many together; columns of bytes that are one tile high. */
	add(KILN_U8, &(struct problem){4, {29, 40, 400, 3}, {3, 2, 1, 0}}, 0);
	add(KILN_U8, &(struct problem){3, {3, 144, 1040}, {0, 2, 1}}, 0);
	/* Halves in aligned columns that are one tile high, in rows that begin anywhere. */
	add(KILN_F16, &(struct problem){3, {3, 96, 1041}, {0, 2, 1}}, 0);
	add(KILN_F16, &(struct problem){3, {3, 32, 1041}, {0, 2, 1}}, 0);
	/* Runs of y of whole columns of wide elements. */
	add(KILN_F64, &(struct problem){2, {45, 1037}, {1, 0}}, 0);
	add(KILN_F64, &(struct problem){3, {3, 143, 301}, {0, 2, 1}}, 0);
	/* Strips of so many rows that tiles are walked through in bands; the last is narrow. */
	add(KILN_F16, &(struct problem){2, {90001, 161}, {1, 0}}, 0);
	add(KILN_F32, &(struct problem){2, {54001, 130}, {1, 0}}, 0);
}

/* Few elements next to each other, on either side: images and the like. */
static void add_interleaved(void)
{
	static const int64_t few[] = {2, 3, 4, 5, 7, 8, 12, 16, 17, 24};

	for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); i++) {
		for (int s = 0; s < 3; s++) {
			kiln_dtype dtype = by_size[(i + (size_t)s) % SIZES];
			struct problem to_last = {4, {2, few[i], 24, 40}, {0, 2, 3, 1}};
			struct problem from_last = {4, {2, 24, 40, few[i]}, {0, 3, 1, 2}};
			add(dtype, &to_last, 0);
			add(dtype, &from_last, 0);
		}
	}
	/* Planes of rows that are shorter than a warp's vectors, two and four of them, are braided. */
	for (int s = 0; s < SIZES; s++) {
		static const int64_t rows[] = {8, 12, 20, 22, 36, 48};
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			struct problem two = {6, {3, 5, 2, 2, 9, rows[i]}, {0, 1, 4, 2, 5, 3}};
			struct problem four = {6, {3, 5, 4, 4, 9, rows[i]}, {0, 1, 4, 2, 5, 3}};
			add(by_size[s], &two, 0);
			add(by_size[s], &four, 0);
		}
	}
	for (int s = 0; s < SIZES; s++) {
		struct problem odd_to = {3, {3, 3, 541}, {0, 2, 1}};
		struct problem odd_from = {3, {3, 541, 3}, {0, 2, 1}};
		struct problem outer = {4, {3, 2, 70, 4}, {1, 3, 0, 2}};
		add(by_size[s], &odd_to, 0);
		add(by_size[s], &odd_from, 0);
		add(by_size[s], &outer, 0);
	}
}

static void add_strided(kiln_dtype dtype, const struct problem *problem, const int64_t *stride)
{
	struct cases_case *c = add(dtype, problem, 0);

	c->operand[0].contiguous = false;
	memcpy(c->operand[0].stride, stride, (size_t)problem->rank * sizeof(stride[0]));
	name(c);
}

static void add_sources(void)
{
	static const struct {
		struct problem problem;
		int64_t stride[KILN_MAX_RANK];
	} sources[] = {
		{{2, {33, 40}, {0, 1}}, {64, 1}},                        /* rows of a wider matrix */
		{{2, {33, 40}, {0, 1}}, {41, 1}},                        /* ... of an odd one */
		{{2, {64, 96}, {0, 1}}, {1, 64}},                        /* column-major */
		{{2, {64, 96}, {1, 0}}, {1, 64}},                        /* ... turned back: a copy */
		{{2, {70, 90}, {1, 0}}, {128, 1}},                       /* a turned slice */
		{{2, {70, 90}, {0, 1}}, {180, 2}},                       /* every other element */
		{{2, {70, 90}, {1, 0}}, {180, 2}},                       /* ... turned */
		{{2, {70, 90}, {1, 0}}, {900, 10}},                      /* ... far apart */
		{{2, {50, 60}, {0, 1}}, {0, 1}},                         /* one row, repeated */
		{{2, {50, 60}, {0, 1}}, {1, 0}},                         /* one column, repeated */
		{{2, {50, 60}, {1, 0}}, {1, 0}},                         /* ... as rows */
		{{2, {50, 60}, {0, 1}}, {0, 0}},                         /* one element */
		{{2, {50, 60}, {0, 1}}, {1, 1}},                         /* windows that overlap */
		{{3, {7, 40, 36}, {0, 2, 1}}, {0, 36, 1}},               /* one matrix, turned many times */
		{{3, {7, 40, 36}, {2, 0, 1}}, {1440, 0, 1}},             /* a repeated middle */
		{{3, {5, 64, 48}, {2, 1, 0}}, {4096, 64, 1}},            /* pitched planes */
		{{4, {2, 3, 16, 32}, {0, 2, 3, 1}}, {2048, 640, 40, 1}}, /* pitched images */
		{{4, {2, 16, 32, 3}, {0, 3, 1, 2}}, {2048, 128, 4, 1}},  /* three of four channels */
		{{3, {4, 50, 3}, {0, 2, 1}}, {0, 3, 1}},
		{{1, {777}, {0}}, {3}},
		{{1, {777}, {0}}, {0}},
		{{1, {1}, {0}}, {99}},
		{{3, {6, 10, 4}, {1, 0, 2}}, {44, 4, 1}},
		{{3, {6, 10, 4}, {1, 0, 2}}, {41, 4, 1}},
		{{3, {40, 60, 26}, {1, 0, 2}}, {2100, 35, 1}},           /* short rows with gaps, many */
		{{4, {9, 24, 7, 10}, {1, 0, 3, 2}}, {3360, 140, 20, 1}}, /* ... turned */
		{{5, {9, 8, 6, 27, 16}, {1, 0, 3, 4, 2}}, {31104, 3888, 648, 24, 1}},
		{{4, {2, 30, 40, 7}, {2, 3, 1, 0}}, {30000, 1000, 21, 1}},
	};

	/* Wide elements with gaps, which a box reads with them. */
	add_strided(KILN_C64, &(struct problem){5, {12, 5, 19, 80, 3}, {4, 3, 2, 0, 1}},
				(const int64_t[]){45600, 9120, 480, 6, 1});
	add_strided(KILN_F64, &(struct problem){2, {20001, 2}, {1, 0}}, (const int64_t[]){6, 1});
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		add_strided(by_size[i % SIZES], &sources[i].problem, sources[i].stride);
		add_strided(by_size[(i + 1) % SIZES], &sources[i].problem, sources[i].stride);
		add_strided(by_size[(i + 2) % SIZES], &sources[i].problem, sources[i].stride);
	}
}

/* Addresses that are not aligned to a vector, or not even to an element. */
static void add_offsets(void)
{
	static const struct problem problems[] = {{2, {64, 128}, {1, 0}},
											  {3, {4, 8, 64}, {1, 0, 2}},
											  {3, {2, 3, 256}, {0, 2, 1}},
											  {1, {333}, {0}}};
	static const struct {
		kiln_dtype dtype;
		uint32_t x, y;
	} offsets[] = {{KILN_U8, 1, 0},   {KILN_F8E5M2, 0, 3}, {KILN_F8E4M3, 8, 8}, {KILN_BF16, 2, 0},
				   {KILN_BF16, 4, 6}, {KILN_BF16, 1, 0},   {KILN_I32, 4, 0},    {KILN_I32, 8, 4},
				   {KILN_I32, 2, 0},  {KILN_I32, 0, 1},    {KILN_I64, 8, 0},    {KILN_I64, 4, 4},
				   {KILN_C128, 8, 0}, {KILN_C128, 0, 4},   {KILN_C128, 1, 1},   {KILN_U16, 15, 15}};

	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		for (size_t k = 0; k < sizeof(problems) / sizeof(problems[0]); k++) {
			struct cases_case *c = add(offsets[i].dtype, &problems[k], 0);
			c->operand[0].offset = offsets[i].x;
			c->operand[1].offset = offsets[i].y;
			name(c);
		}
	}
}

/* The table that is timed, and the same in small. */
static void add_table(void)
{
	static const struct problem table[] = {
		{2, {8192, 8192}, {1, 0}},
		{4, {32, 1024, 16, 64}, {0, 2, 1, 3}},
		{3, {64, 512, 1024}, {0, 2, 1}},
		{4, {128, 128, 128, 64}, {3, 2, 1, 0}},
		{4, {64, 256, 56, 56}, {0, 2, 3, 1}},
		{4, {64, 3, 512, 512}, {0, 2, 3, 1}},
		{4, {64, 512, 512, 3}, {0, 3, 1, 2}},
		{4, {31, 129, 65, 127}, {2, 0, 3, 1}},
	};
	static const struct problem small[] = {
		{2, {576, 576}, {1, 0}},
		{4, {2, 64, 16, 64}, {0, 2, 1, 3}},
		{3, {2, 128, 256}, {0, 2, 1}},
		{4, {16, 16, 16, 64}, {3, 2, 1, 0}},
		{4, {2, 64, 56, 56}, {0, 2, 3, 1}},
		{4, {2, 3, 64, 64}, {0, 2, 3, 1}},
		{4, {2, 64, 64, 3}, {0, 3, 1, 2}},
		{4, {3, 129, 5, 127}, {2, 0, 3, 1}},
	};
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_I8};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		for (int d = 0; d < 3; d++) {
			add(dtypes[d], &table[i], CASES_BENCH | CASES_BIG);
			add(dtypes[d], &small[i], 0);
		}
	}
	/* Sources that fit the second-level cache, more dimensions, wide elements, strides. */
	add(KILN_F32, &(struct problem){2, {1024, 1024}, {1, 0}}, CASES_BENCH);
	add(KILN_F16, &(struct problem){4, {8, 256, 16, 64}, {0, 2, 1, 3}}, CASES_BENCH);
	add(KILN_U8, &(struct problem){3, {512, 768, 3}, {2, 0, 1}}, CASES_BENCH);
	add(KILN_F32, &(struct problem){5, {16, 24, 32, 40, 48}, {4, 2, 0, 3, 1}},
		CASES_BENCH | CASES_BIG);
	add(KILN_F16, &(struct problem){6, {8, 16, 24, 8, 32, 40}, {0, 3, 5, 1, 4, 2}},
		CASES_BENCH | CASES_BIG);
	add(KILN_F64, &(struct problem){2, {4096, 8192}, {1, 0}}, CASES_BENCH | CASES_BIG);
	add(KILN_C128, &(struct problem){2, {4096, 4096}, {1, 0}}, CASES_BENCH | CASES_BIG);
	struct cases_case *c =
		add(KILN_F32, &(struct problem){2, {4096, 4096}, {1, 0}}, CASES_BENCH | CASES_BIG);
	c->operand[0].contiguous = false;
	c->operand[0].stride[0] = 8192;
	name(c);
	/* Rows of two dimensions that do not merge: runs of y; and tiles for which x goes on. */
	add(KILN_F16, &(struct problem){4, {5, 13, 120, 67}, {2, 3, 1, 0}}, 0);
	add(KILN_F16, &(struct problem){3, {83, 37, 71}, {2, 1, 0}}, 0);
	add(KILN_I8, &(struct problem){3, {83, 37, 71}, {2, 1, 0}}, 0);
}

/* Counts and sizes at the end of 31 and 32 bits. */
static void add_huge(void)
{
	static const struct problem problems[] = {
		{2, {46341, 46343}, {1, 0}},       /* just over 2^31 elements */
		{2, {42966, 49981}, {1, 0}},       /* 2^31 - 2 */
		{2, {4194304, 511}, {1, 0}},       /* 2^31 - 2^22 */
		{3, {65536, 32769, 3}, {2, 0, 1}}, /* two that would merge beyond 2^31 */
		{3, {3, 65536, 32769}, {1, 2, 0}},
		{2, {3, 2147483659}, {1, 0}},      /* a prime size beyond 2^31 */
		{3, {70000, 16, 2048}, {1, 0, 2}}, /* vectors, far apart */
		{1, {2200000000}, {0}},
		{2, {2, 4294967312}, {1, 0}}, /* a size beyond 2^32 that can be cut */
	};

	for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++)
		add(KILN_U8, &problems[i], CASES_BIG | CASES_HUGE);
	add(KILN_F16, &problems[2], CASES_BIG | CASES_HUGE);
	add(KILN_F32, &(struct problem){2, {32768, 65600}, {1, 0}}, CASES_BIG | CASES_HUGE);
}

static void add_all(void)
{
	add_permutations();
	add_ranks();
	add_widths();
	add_orders();
	add_interleaved();
	add_sources();
	add_offsets();
	add_table();
	add_huge();
}

/* ---- Random ones ---- */

static int64_t below(uint64_t *state, int64_t limit)
{
	return (int64_t)(cases_word(state) % (uint64_t)limit);
}

static void shuffle(uint64_t *state, int64_t *order, int count)
{
	for (int k = 0; k < count; k++)
		order[k] = k;
	for (int k = count - 1; k > 0; k--) {
		int other = (int)below(state, k + 1);
		int64_t t = order[k];
		order[k] = order[other];
		order[other] = t;
	}
}

/* Gaps, another order in memory, and repeats. */
static void random_strides(uint64_t *state, struct cases_operand *x)
{
	int64_t order[KILN_MAX_RANK], stride = 1 + (below(state, 4) == 0);

	shuffle(state, order, x->rank);
	for (int k = x->rank - 1; k >= 0; k--) {
		x->stride[order[k]] = stride;
		stride = stride * x->shape[order[k]] + below(state, 3) * (below(state, 2) * 7);
		if (below(state, 6) == 0)
			x->stride[order[k]] = 0;
	}
	x->contiguous = false;
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	static const kiln_dtype dtypes[] = {KILN_F8E4M3, KILN_F16, KILN_BF16, KILN_F32,  KILN_U32,
										KILN_F64,    KILN_I64, KILN_C64,  KILN_C128, KILN_U8};
	static const int64_t sizes[] = {1,  2,  2,  3,  3,  4,  5,  7,  8,   12, 16,
									24, 31, 32, 33, 48, 64, 65, 96, 128, 130};
	struct problem problem = {0};
	kiln_dtype dtype = dtypes[below(state, 10)];
	int64_t room = 1 << 16;

	problem.rank = 1 + (int)below(state, KILN_MAX_RANK);
	for (int k = 0; k < problem.rank; k++) {
		int64_t size = below(state, 2) ? 1 + below(state, 70)
									   : sizes[below(state, sizeof(sizes) / sizeof(sizes[0]))];
		problem.shape[k] = size <= room ? size : 1;
		room /= problem.shape[k];
	}
	shuffle(state, problem.perm, problem.rank);
	out->op = &permute;
	set(out, dtype, &problem);
	if (below(state, 3) == 0)
		random_strides(state, &out->operand[0]);
	if (below(state, 3) == 0)
		out->operand[0].offset = (uint32_t)below(state, 16);
	if (below(state, 4) == 0)
		out->operand[1].offset = (uint32_t)below(state, 16);
	name(out);
}

const struct cases_op *const permute_ops[] = {&permute, NULL};
const struct cases_family permute_family = {
	.name = "permute", .add = add_all, .random = add_random};
