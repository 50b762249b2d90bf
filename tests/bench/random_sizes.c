/*
 * random_sizes.c: sizes as models, images and accidents have them.
 */
#include "random_sizes.h"

#include <math.h>
#include <string.h>

static const int64_t vocabularies[] = {
	30522,  32000,  32064,  32128,  49152,  50257,  50280,  50304,  51200,  51865,  64000,
	65024,  65536,  73448,  92416,  100277, 102400, 119547, 128000, 128256, 129280, 131072,
	151643, 151936, 152064, 163840, 200064, 201088, 250002, 250112, 256000};
static const int64_t hidden[] = {
	64,    96,    128,   192,   256,   320,   384,   512,   576,   640,   768,   896,
	960,   1024,  1152,  1280,  1408,  1536,  1600,  1664,  1792,  2048,  2304,  2560,
	2688,  2816,  2880,  3072,  3200,  3584,  3840,  4096,  4544,  4608,  5120,  5376,
	5632,  6144,  6656,  6912,  7168,  7680,  8192,  8960,  9216,  10240, 11008, 12288,
	13824, 14336, 16384, 17920, 18432, 20480, 21504, 24576, 28672, 29568};
static const int64_t heads[] = {32, 40, 48, 64, 72, 80, 88, 96, 112, 120, 128, 160, 192, 256};
static const int64_t sequences[] = {49,   64,   77,   128,  196,  197,  256,  257,  384,
									512,  576,  577,  729,  777,  1000, 1024, 1370, 1500,
									2048, 2304, 3000, 3600, 4096, 4608, 8192};
static const int64_t channels[] = {1,  2,   3,   4,   8,   12,  16,  24,  32,  48,  64,   80,
								   96, 128, 144, 192, 256, 320, 384, 512, 640, 768, 1024, 2048};
static const int64_t images[][2] = {{7, 7},     {14, 14},   {17, 17},   {28, 28},    {35, 35},
									{56, 56},   {64, 64},   {75, 100},  {112, 112},  {147, 147},
									{160, 160}, {224, 224}, {227, 227}, {240, 320},  {299, 299},
									{384, 384}, {480, 640}, {512, 512}, {720, 1280}, {1080, 1920}};

#define PICK(state, list) ((list)[make_below(state, MAKE_COUNT(list))])

int64_t sizes_between(uint64_t *state, int64_t least, int64_t most)
{
	double part = (double)(cases_word(state) >> 11) / 9007199254740992.0;

	return (int64_t)((double)least * exp(part * log((double)most / (double)least)));
}

static int64_t prime_from(int64_t n)
{
	for (;; n++) {
		bool prime = n > 1;
		for (int64_t k = 2; k * k <= n && prime; k++)
			prime = n % k != 0;
		if (prime)
			return n;
	}
}

int64_t sizes_columns(uint64_t *state)
{
	switch (make_below(state, 8)) {
	case 0:
	case 1:
		return PICK(state, vocabularies);
	case 2:
	case 3:
		return PICK(state, hidden);
	case 4:
		return PICK(state, heads);
	case 5:
		return PICK(state, sequences);
	case 6:
		return prime_from(sizes_between(state, 31, 200000));
	default:
		return sizes_between(state, 33, 262144);
	}
}

int64_t sizes_hidden(uint64_t *state)
{
	switch (make_below(state, 8)) {
	case 0:
		return PICK(state, heads);
	case 1:
		return prime_from(sizes_between(state, 31, 20000));
	case 2:
		return sizes_between(state, 33, 32768);
	default:
		return PICK(state, hidden);
	}
}

int64_t sizes_sequence(uint64_t *state)
{
	return make_chance(state, 4) ? sizes_between(state, 33, 8192) : PICK(state, sequences);
}

/* ---- Permutations ---- */

static void set_perm(int64_t perm[KILN_MAX_RANK], int rank, const int64_t *list)
{
	memcpy(perm, list, (size_t)rank * sizeof(*perm));
}

/* NCHW to NHWC and back, and the same of videos. */
static void image(uint64_t *state, int64_t elements, struct make_shape *shape, int64_t *perm)
{
	const int64_t *size = images[make_below(state, MAKE_COUNT(images))];
	int64_t channel = PICK(state, channels), frames = 1 + make_below(state, 16);
	int64_t most = elements / (size[0] * size[1]), batch;

	channel = channel <= most ? channel : most < 3 ? 3 : most;
	batch = elements / (channel * size[0] * size[1]);
	switch (make_below(state, 5)) {
	case 0:
	case 1:
		*shape = (struct make_shape){4, {batch, channel, size[0], size[1]}};
		set_perm(perm, 4, (const int64_t[]){0, 2, 3, 1});
		break;
	case 2:
	case 3:
		*shape = (struct make_shape){4, {batch, size[0], size[1], channel}};
		set_perm(perm, 4, (const int64_t[]){0, 3, 1, 2});
		break;
	default:
		*shape = (struct make_shape){5, {batch / frames, channel, frames, size[0], size[1]}};
		set_perm(perm, 5, (const int64_t[]){0, 2, 3, 4, 1});
	}
	if (shape->size[0] < 1)
		shape->size[0] = 1;
}

/* Heads, windows of an image, pixels from channels. */
static void model(uint64_t *state, int64_t elements, struct make_shape *shape, int64_t *perm)
{
	int64_t sequence = PICK(state, sequences), many = 1 + make_below(state, 64);
	int64_t head = PICK(state, heads), window = make_chance(state, 2) ? 7 : 8;
	int64_t batch = elements / (sequence * many * head) + 1;
	int64_t windows = 4 + make_below(state, 12), wide = PICK(state, channels);

	switch (make_below(state, 6)) {
	case 0:
		*shape = (struct make_shape){4, {batch, sequence, many, head}};
		set_perm(perm, 4, (const int64_t[]){0, 2, 1, 3});
		return;
	case 1:
		*shape = (struct make_shape){4, {batch, many, sequence, head}};
		set_perm(perm, 4, (const int64_t[]){0, 1, 3, 2});
		return;
	case 2:
		*shape = (struct make_shape){4, {batch, sequence, many, head}};
		set_perm(perm, 4, (const int64_t[]){0, 2, 3, 1});
		return;
	case 3:
		*shape = (struct make_shape){5, {(batch + 2) / 3, sequence, 3, many, head}};
		set_perm(perm, 5, (const int64_t[]){2, 0, 3, 1, 4});
		return;
	case 4:
		batch = elements / (windows * windows * window * window * wide) + 1;
		*shape = (struct make_shape){6, {batch, windows, window, windows, window, wide}};
		set_perm(perm, 6, (const int64_t[]){0, 1, 3, 2, 4, 5});
		return;
	default:
		windows *= 8;
		batch = elements / (wide * 4 * windows * windows) + 1;
		*shape = (struct make_shape){6, {batch, wide, 2, 2, windows, windows}};
		set_perm(perm, 6, (const int64_t[]){0, 1, 4, 2, 5, 3});
	}
}

/* Any permutation but that which changes nothing. */
static void shuffle(uint64_t *state, int rank, int64_t *perm)
{
	bool same = true;

	while (same) {
		for (int k = 0; k < rank; k++)
			perm[k] = k;
		for (int k = rank - 1; k > 0; k--) {
			int64_t other = make_below(state, k + 1), held = perm[k];
			perm[k] = perm[other];
			perm[other] = held;
		}
		for (int k = 0; k < rank && same; k++)
			same = perm[k] == k;
	}
}

/* One dimension takes what the others leave. */
static void any(uint64_t *state, int64_t elements, struct make_shape *shape, int64_t *perm)
{
	bool prime = make_chance(state, 3);
	int last = -1;

	shape->rank = 2 + (int)make_below(state, 5);
	last = (int)make_below(state, shape->rank);
	for (int k = 0, left = shape->rank; k < shape->rank; k++) {
		if (k == last)
			continue;
		int64_t most = (int64_t)pow((double)elements, 1.4 / left--), known = PICK(state, hidden);
		int64_t size = sizes_between(state, 2, most < 4 ? 4 : most);
		size = prime ? prime_from(size) : known <= most && make_chance(state, 2) ? known : size;
		shape->size[k] = size;
		elements = elements / size > 2 ? elements / size : 2;
	}
	shape->size[last] = prime ? prime_from(elements) : elements;
	shuffle(state, shape->rank, perm);
}

void sizes_permutation(uint64_t *state, int64_t elements, struct make_shape *shape,
					   int64_t perm[KILN_MAX_RANK])
{
	void (*const ways[])(uint64_t *, int64_t, struct make_shape *, int64_t *) = {image, model, any,
																				 any};

	ways[make_below(state, 4)](state, elements, shape, perm);
}
