/*
 * data.c: what the operands of the cases hold, where their elements lie, and numbers of every
 * dtype as doubles and back.  Needs no library for the narrow floats: it checks those that do.
 */
#include "family.h"

#include <math.h>
#include <string.h>

/* ---- Sizes and places ---- */

uint32_t cases_element(const struct cases_operand *operand)
{
	switch (operand->dtype) {
#define SIZE(NAME, name, value, bytes) \
	case KILN_##NAME:                  \
		return bytes;
		KILN_DTYPE_LIST(SIZE)
#undef SIZE
	default:
		return 0;
	}
}

int64_t cases_elements(const struct cases_operand *operand)
{
	int64_t count = operand->dtype != KILN_DTYPE_NONE;

	for (int k = 0; k < operand->rank; k++)
		count *= operand->shape[k];
	return count;
}

uint64_t cases_bytes(const struct cases_operand *operand)
{
	int64_t last = 0;

	if (cases_elements(operand) == 0)
		return 0;
	for (int k = 0; k < operand->rank; k++)
		last += (operand->shape[k] - 1) * operand->stride[k];
	return (uint64_t)(last + 1) * cases_element(operand);
}

void cases_contiguous(struct cases_operand *operand)
{
	int64_t stride = 1;

	operand->contiguous = true;
	for (int k = operand->rank - 1; k >= 0; k--) {
		operand->stride[k] = stride;
		stride *= operand->shape[k] ? operand->shape[k] : 1;
	}
}

int64_t cases_offset(const struct cases_operand *operand, int64_t i)
{
	int64_t at = 0;

	for (int k = operand->rank - 1; k >= 0; k--) {
		at += i % operand->shape[k] * operand->stride[k];
		i /= operand->shape[k];
	}
	return at;
}

void cases_tensors(const struct cases_case *c, kiln_tensor tensors[CASES_MAX_OPERANDS])
{
	memset(tensors, 0, CASES_MAX_OPERANDS * sizeof(tensors[0]));
	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *o = &c->operand[i];
		if (o->dtype == KILN_DTYPE_NONE)
			continue;
		tensors[i].dtype = o->dtype;
		tensors[i].rank = o->rank;
		tensors[i].contiguous = o->contiguous;
		tensors[i].offset = o->offset;
		memcpy(tensors[i].shape, o->shape, sizeof(o->shape));
		memcpy(tensors[i].stride, o->stride, sizeof(o->stride));
	}
}

void cases_attrs(const struct cases_case *c, kiln_attr attrs[CASES_MAX_ATTRS])
{
	memcpy(attrs, c->attr, sizeof(c->attr));
	for (int i = 0; i < c->attr_count; i++)
		if (attrs[i].kind == KILN_ATTR_INTS)
			attrs[i].ints = c->ints;
}

/* ---- Numbers ---- */

/* The first bits that are no number: an infinity, or of f8e4m3, which has none, NaN. */
static uint32_t end_of(int exponent_bits, int fraction_bits)
{
	return exponent_bits == 4 ? 0x7f : (uint32_t)((1 << exponent_bits) - 1) << fraction_bits;
}

/* A double as a float of so many bits, to nearest, ties to even. */
static uint32_t narrow(double value, int exponent_bits, int fraction_bits)
{
	uint64_t bits, fraction, kept, rest, half;
	int bias = (1 << (exponent_bits - 1)) - 1, shift = 52 - fraction_bits, exponent;
	uint32_t sign, infinity = end_of(exponent_bits, fraction_bits);

	memcpy(&bits, &value, sizeof(bits));
	sign = (uint32_t)(bits >> 63) << (exponent_bits + fraction_bits);
	if (isnan(value))
		return sign | ((1u << (exponent_bits + fraction_bits)) - 1);
	if (isinf(value))
		return sign | infinity;
	exponent = (int)(bits >> 52 & 2047) - 1023 + bias;
	fraction = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
	if (exponent < 1) { /* subnormal: the point stays, the number moves */
		shift += 1 - exponent;
		exponent = 1;
	}
	if (shift > 54) /* less than half of the least */
		return sign;
	kept = fraction >> shift;
	rest = fraction & ((UINT64_C(1) << shift) - 1);
	half = UINT64_C(1) << (shift - 1);
	kept += rest > half || (rest == half && (kept & 1));
	/* The leading one of kept counts one up in the exponent; so does a carry. */
	kept += (uint64_t)(exponent - 1) << fraction_bits;
	return sign | (kept < infinity ? (uint32_t)kept : infinity);
}

static double widen(uint32_t bits, int exponent_bits, int fraction_bits)
{
	int bias = (1 << (exponent_bits - 1)) - 1, most = (1 << exponent_bits) - 1;
	int exponent = (int)(bits >> fraction_bits) & most;
	uint32_t fraction = bits & ((1u << fraction_bits) - 1);
	uint32_t size = bits & ~(1u << (exponent_bits + fraction_bits));
	double value;

	if (size >= end_of(exponent_bits, fraction_bits)) {
		value = fraction ? NAN : INFINITY;
	} else if (exponent == 0) {
		value = ldexp(fraction, 1 - bias - fraction_bits);
	} else { /* the same digits under a double's exponent: judges read most numbers by here */
		uint64_t wide = (uint64_t)(exponent - bias + 1023) << 52;
		wide |= (uint64_t)fraction << (52 - fraction_bits);
		memcpy(&value, &wide, sizeof(value));
	}
	return bits >> (exponent_bits + fraction_bits) & 1 ? -value : value;
}

bool cases_is_float(kiln_dtype dtype)
{
	return dtype == KILN_F8E4M3 || dtype == KILN_F8E5M2 || dtype == KILN_F16 ||
		   dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;
}

double cases_get(kiln_dtype dtype, const void *memory, int64_t i)
{
#define GET(type, value)                                                      \
	do {                                                                      \
		type x;                                                               \
		memcpy(&x, (const char *)memory + i * (int64_t)sizeof(x), sizeof(x)); \
		return value;                                                         \
	} while (0)
	switch (dtype) {
	case KILN_F8E4M3:
		GET(uint8_t, widen(x, 4, 3));
	case KILN_F8E5M2:
		GET(uint8_t, widen(x, 5, 2));
	case KILN_F16:
		GET(uint16_t, widen(x, 5, 10));
	case KILN_BF16:
		GET(uint16_t, widen(x, 8, 7));
	case KILN_F32:
		GET(float, (double)x);
	case KILN_F64:
		GET(double, x);
	case KILN_I8:
		GET(int8_t, x);
	case KILN_U8:
		GET(uint8_t, x);
	case KILN_BOOL:
		GET(uint8_t, x != 0);
	case KILN_I16:
		GET(int16_t, x);
	case KILN_U16:
		GET(uint16_t, x);
	case KILN_I32:
		GET(int32_t, x);
	case KILN_U32:
		GET(uint32_t, x);
	case KILN_I64:
		GET(int64_t, (double)x);
	case KILN_U64:
		GET(uint64_t, (double)x);
	default:
		return NAN;
	}
#undef GET
}

void cases_put(kiln_dtype dtype, void *memory, int64_t i, double value)
{
#define PUT(type, number)                                               \
	do {                                                                \
		type x = (type)(number);                                        \
		memcpy((char *)memory + i * (int64_t)sizeof(x), &x, sizeof(x)); \
		return;                                                         \
	} while (0)
	switch (dtype) {
	case KILN_F8E4M3:
		PUT(uint8_t, narrow(value, 4, 3));
	case KILN_F8E5M2:
		PUT(uint8_t, narrow(value, 5, 2));
	case KILN_F16:
		PUT(uint16_t, narrow(value, 5, 10));
	case KILN_BF16:
		PUT(uint16_t, narrow(value, 8, 7));
	case KILN_F32:
		PUT(float, value);
	case KILN_F64:
		PUT(double, value);
	case KILN_I8:
		PUT(int8_t, value);
	case KILN_U8:
	case KILN_BOOL:
		PUT(uint8_t, value);
	case KILN_I16:
		PUT(int16_t, value);
	case KILN_U16:
		PUT(uint16_t, value);
	case KILN_I32:
		PUT(int32_t, value);
	case KILN_U32:
		PUT(uint32_t, value);
	case KILN_I64:
		PUT(int64_t, value);
	case KILN_U64:
		PUT(uint64_t, value);
	default:
		return;
	}
#undef PUT
}

/* ---- Data ---- */

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t cases_word(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15u;
	return mix(*state);
}

/* Word number i of the stream of a seed. */
static uint64_t word_at(uint64_t seed, int64_t i)
{
	return mix(mix(seed) + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u);
}

void cases_fill(void *bytes, uint64_t first, uint64_t count, uint64_t seed)
{
	unsigned char *at = bytes;
	uint64_t state = mix(seed) + first / 8 * 0x9e3779b97f4a7c15u;

	for (; count >= 8; count -= 8, at += 8) {
		uint64_t word = cases_word(&state);
		memcpy(at, &word, 8);
	}
	if (count) {
		uint64_t word = cases_word(&state);
		memcpy(at, &word, count);
	}
}

/* A number of mean 0 and deviation 1, within 3.5: the sum of four even ones. */
static double normal(uint64_t word)
{
	double sum =
		(double)((word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48));

	return (sum - 131070) * (1.7320508075688772 / 65536);
}

/* Above 0, of mean 1. */
static double positive(uint64_t word)
{
	double even = ((double)(word >> 11) + 1) * 0x1p-53;

	return 3 * even * even + 0x1p-60;
}

/* Number `code` of a float of 8 bits, going on beyond the largest. */
static double of_eight_bits(int code, int fraction_bits, int least)
{
	int normal = 1 << fraction_bits;

	return code < normal ? ldexp(code, least)
						 : ldexp(normal + code % normal, least + code / normal - 1);
}

/*
 * Where roundings to 8 bits change: both types' numbers, the middles between them, and what f32 and
 * f64 have next to these, of both signs.  Beyond EDGES any numbers, most of such sizes.
 */
#define EDGES (2 * 128 * 20)
static double edge(uint64_t word, int64_t i)
{
	static const double others[] = {
		(double)NAN, (double)INFINITY, -(double)INFINITY, 1e300, -1e300, 1e-300, 3e38, -1e-40};
	int fraction_bits = i % 2 ? 2 : 3, least = i % 2 ? -16 : -9, code = (int)(i / 2 % 128);
	int way = (int)(i / 256 % 20), nudge = way / 2 % 5;
	double value = of_eight_bits(code, fraction_bits, least), end = nudge % 2 ? 1e9 : -1e9;

	if (i >= EDGES && word % 32 < 8)
		return others[word % 32];
	if (i >= EDGES) {
		value = ldexp(1 + (double)(word >> 12) * 0x1p-52, (int)(word >> 6 & 31) - 18);
		return word & 32 ? -value : value;
	}
	if (way & 1)
		value = (value + of_eight_bits(code + 1, fraction_bits, least)) / 2;
	if (nudge > 2)
		value = nextafter(value, end);
	else if (nudge > 0)
		value = (double)nextafterf((float)value, (float)end);
	return way >= 10 ? -value : value;
}

/* Most within 0 .. most, and the ends and what lies beyond them. */
static double length(uint64_t word, int64_t most)
{
	const double ends[] = {0, (double)most, -1, (double)most + 1, INT32_MIN, INT32_MAX, 1};
	uint64_t which = word % 20;

	return which < 7 ? ends[which] : (double)(int64_t)(word / 20 % (uint64_t)(most + 1));
}

/* Within 0 .. most - 1, or, stray, the first and one in sixteen beyond as far as dtype has numbers
 * there. */
static double index_of(kiln_dtype dtype, uint64_t word, int64_t most, bool stray)
{
	double largest = dtype == KILN_U8 ? 255 : dtype == KILN_U16 ? 65535 : 0x1p31 - 1;
	double lowest = dtype == KILN_U8 || dtype == KILN_U16 ? (double)most
					: dtype == KILN_I64                   ? -0x1p62
														  : -0x1p31;
	const double beyond[] = {
		(double)most, (double)most + 1,          largest,
		lowest,       lowest < 0 ? -1 : largest, lowest < 0 ? -(double)most : largest};
	double value = beyond[word % 6];

	if (!stray || value > largest)
		return most > 0 ? (double)(int64_t)(word / 6 % (uint64_t)most) : 0;
	return value;
}

/* Each of 0 .. most - 1 once, the last one first; if there are fewer elements, some are -1. */
static double slot_of(int64_t i, int64_t count, int64_t most)
{
	const int64_t prime = 2147483647;

	if (most == 0)
		return 0;
	return most > count && i % 8 == 5 ? -1 : (double)((most - 1 + i % most * prime) % most);
}

/* Rising: neighbours' ranges of chance do not overlap. */
static double rising(uint64_t word, int64_t i, int64_t count, int64_t most)
{
	uint64_t whole = (uint64_t)(count > 1 ? count - 1 : 1), top = (uint64_t)most;
	uint64_t chance = i > 0 && i + 1 < count && most > 0 ? word % top : 0;

	return (double)(((uint64_t)i * top + chance) / whole);
}

/* Whole numbers, as pictures have them, and their quarters; most of them with x1 < x2, y1 < y2. */
static double coordinate(uint64_t row_word, int64_t k, bool whole)
{
	uint64_t begin = row_word >> 16 * (uint64_t)(k % 2) & 0xff,
			 size = row_word >> (32 + 12 * (uint64_t)(k % 2)) & 0xff;
	uint64_t end = begin + size / 2 + 1;
	double value = (double)(k < 2 ? begin : end > 255 ? 255 : end);

	if (row_word >> 60 == 7) /* upside down */
		value = 255 - value;
	return whole ? value : value + (double)(row_word >> (8 + 12 * (uint64_t)k) & 3) / 4;
}

/*
 * A number of a row of 100 000 floats whose sample topk takes by runs of 16 every 768: 25 numbers
 * there are so low that fewer than 50 others come before what the sample says.  With `most` NaN
 * beside them, or without but with 35 lower ones that no run has.
 */
static double misleading(int64_t column, int64_t most, double usual)
{
	if (column < 16 || (column >= 768 && column < 777))
		return -100 - (double)(column % 768);
	if (column >= 50000 && column < 50000 + most)
		return NAN;
	if (most == 0 && column >= 20000 && column < 20030)
		return 19800 - (double)column;
	if (most == 0 && column >= 84000 && column < 84005)
		return 83700 - (double)column;
	return usual;
}

/* A number of a row of which two in 31 are spread over powers of two, one is 0 and the others are
 * below. */
static double stepped(int64_t column, double usual)
{
	int64_t place = column % 31;

	if (place == 0 || place == 15)
		return exp2((double)(column % 997) / 25);
	return place == 7 ? 0 : -1 - usual;
}

void cases_fill_memory(const struct cases_operand *operand, void *bytes, int64_t first,
					   int64_t last, uint64_t seed)
{
	enum cases_fill fill = operand->fill;
	kiln_dtype dtype = operand->dtype;
	bool plain = operand->mean == 0 && operand->deviation == 0;
	double mean = operand->mean, deviation = plain ? 1 : operand->deviation;
	double columns = operand->rank ? (double)operand->shape[operand->rank - 1] : 1;

	if (fill == CASES_BITS || fill == CASES_FLAGS ||
		((fill == CASES_NORMAL || fill == CASES_UNUSUAL) && !cases_is_float(dtype))) {
		uint64_t element = cases_element(operand), begin = (uint64_t)first * element;
		cases_fill((char *)bytes + begin, begin, (uint64_t)(last - first) * element, seed);
		return;
	}
	for (int64_t i = first; i < last && fill == CASES_EDGES && cases_element(operand) < 4; i++)
		memcpy((char *)bytes + i * cases_element(operand), &i, cases_element(operand));
	if (fill == CASES_EDGES && cases_element(operand) < 4)
		return;
	for (int64_t i = first; i < last; i++) {
		uint64_t word = word_at(seed, i);
		double value;
		if (fill == CASES_LENGTHS)
			value = length(word, operand->most);
		else if (fill == CASES_INDICES || fill == CASES_STRAY)
			value = index_of(dtype, word, operand->most,
							 fill == CASES_STRAY && (i == 0 || word >> 60 == 0));
		else if (fill == CASES_SLOTS)
			value = slot_of(i, cases_elements(operand), operand->most);
		else if (fill == CASES_OFFSETS)
			value = rising(word, i, cases_elements(operand), operand->most);
		else if (fill == CASES_BOXES || fill == CASES_TARGETS)
			value = 0; /* filled row by row */
		else if (fill == CASES_PROBABLE)
			value = positive(word) / columns;
		else if (fill == CASES_LOGARITHM)
			value = log(positive(word) / columns);
		else if (fill == CASES_EDGES)
			value = edge(word, i);
		else
			value = mean + deviation * normal(word);
		if (fill == CASES_MISLEADING)
			value = misleading(i % (int64_t)columns, operand->most, value * value);
		if (fill == CASES_STEPPED)
			value = stepped(i % (int64_t)columns, value * value);
		cases_put(dtype, bytes, i, value);
	}
}

int64_t cases_rows(const struct cases_operand *operand)
{
	int64_t rows = 1;

	if ((operand->fill != CASES_FLAGS && operand->fill != CASES_UNUSUAL &&
		 operand->fill != CASES_BOXES && operand->fill != CASES_TARGETS) ||
		cases_elements(operand) == 0)
		return 0;
	for (int k = 0; k < operand->rank - 1; k++)
		if (operand->stride[k])
			rows *= operand->shape[k];
	return rows;
}

/* The offset in elements of a row, rows that are repetitions not being counted. */
static int64_t row_offset(const struct cases_operand *operand, int64_t row)
{
	int64_t at = 0;

	for (int k = operand->rank - 2; k >= 0; k--) {
		if (operand->stride[k] == 0)
			continue;
		at += row % operand->shape[k] * operand->stride[k];
		row /= operand->shape[k];
	}
	return at;
}

/* Four of seven rows that follow one another are out of the ordinary. */
static void make_unusual(const struct cases_operand *operand, void *first, int64_t columns,
						 int64_t stride, uint64_t kind, uint64_t word)
{
	int64_t place = (int64_t)(word % (uint64_t)columns) * stride;
	int64_t other = (int64_t)(word / 7 % (uint64_t)columns) * stride;

	if (!cases_is_float(operand->dtype))
		return;
	if (kind == 1) {
		cases_put(operand->dtype, first, place, NAN);
	} else if (kind == 2) {
		cases_put(operand->dtype, first, place, INFINITY);
	} else if (kind == 4) {
		cases_put(operand->dtype, first, place, -INFINITY);
		cases_put(operand->dtype, first, other, -INFINITY);
	} else if (kind == 6) {
		for (int64_t i = 0; i < columns; i++)
			cases_put(operand->dtype, first, i * stride, -INFINITY);
	}
}

/* All zero, none, one in eight, all but one, half of them. */
static void make_flags(const struct cases_operand *operand, unsigned char *first, int64_t columns,
					   int64_t stride, uint64_t kind, uint64_t word)
{
	uint64_t place = word % (uint64_t)columns;

	for (int64_t i = 0; i < columns; i++) {
		uint64_t random = mix(word + (uint64_t)i * 0x9e3779b97f4a7c15u);
		bool set = kind == 0   ? false
				   : kind == 1 ? true
				   : kind == 2 ? random % 8 == 0
				   : kind == 3 ? (uint64_t)i != place
							   : random % 2;
		/* Whatever is not zero is set. */
		cases_put(operand->dtype, first, i * stride, set ? (double)(1 + random / 16 % 127) : 0);
	}
}

/* Rows of one number are padding in all targets, or in none; a float of the boxes there says so. */
static void make_box(const struct cases_operand *operand, void *first, int64_t columns,
					 int64_t stride, int64_t row, uint64_t word)
{
	bool padding = word_at(1, row) % 3 == 0, real = cases_is_float(operand->dtype);
	bool target = operand->fill == CASES_TARGETS;

	for (int64_t k = 0; k < columns; k++) {
		double value = coordinate(word, k, target || !real);
		if (padding && (target || operand->most))
			value = target ? 0 : word % 2 ? NAN : INFINITY;
		else if (target && k == 3 && value == 0)
			value = 1;
		cases_put(operand->dtype, first, k * stride, value);
	}
}

void cases_fill_rows(const struct cases_operand *operand, void *bytes, int64_t first, int64_t last,
					 uint64_t seed)
{
	int64_t columns = operand->rank ? operand->shape[operand->rank - 1] : 1;
	int64_t stride = operand->rank ? operand->stride[operand->rank - 1] : 1;

	for (int64_t row = first; row < last; row++) {
		unsigned char *at =
			(unsigned char *)bytes + row_offset(operand, row) * cases_element(operand);
		uint64_t word = word_at(~seed, row), kind = (uint64_t)row + seed % 35;
		if (operand->fill == CASES_FLAGS)
			make_flags(operand, at, columns, stride, kind % 5, word);
		else if (operand->fill == CASES_BOXES || operand->fill == CASES_TARGETS)
			make_box(operand, at, columns, stride, row, word);
		else
			make_unusual(operand, at, columns, stride, kind % 7, word);
	}
}

void cases_fill_operand(const struct cases_operand *operand, void *bytes, uint64_t seed)
{
	int64_t count =
		cases_elements(operand) ? (int64_t)(cases_bytes(operand) / cases_element(operand)) : 0;

	cases_fill_memory(operand, bytes, 0, count, seed);
	cases_fill_rows(operand, bytes, 0, cases_rows(operand), seed);
}
