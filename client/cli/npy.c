/*
 * npy.c: reads and writes the header of a .npy file.  The header is a Python dictionary; only the
 * form that array files have is read: three keys in any order, no other expression.
 */
#include "npy.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PREFIX 10 /* bytes of magic, version, and the header's length in format 1.0 */
#define ALIGNMENT 64

static const struct {
	kiln_dtype dtype;
	char kind;
	int size;
} types[] = {
	{KILN_F16, 'f', 2}, {KILN_F32, 'f', 4},   {KILN_F64, 'f', 8}, {KILN_I8, 'i', 1},
	{KILN_I16, 'i', 2}, {KILN_I32, 'i', 4},   {KILN_I64, 'i', 8}, {KILN_U8, 'u', 1},
	{KILN_U16, 'u', 2}, {KILN_U32, 'u', 4},   {KILN_U64, 'u', 8}, {KILN_BOOL, 'b', 1},
	{KILN_C64, 'c', 8}, {KILN_C128, 'c', 16},
};
#define TYPES (sizeof(types) / sizeof(types[0]))

/* The type's place in the table; bf16 has that of u16, floats of 8 bits have that of u8. */
static size_t type_of(kiln_dtype dtype)
{
	size_t i = 0;

	if (dtype == KILN_BF16)
		dtype = KILN_U16;
	if (dtype == KILN_F8E4M3 || dtype == KILN_F8E5M2)
		dtype = KILN_U8;
	while (i + 1 < TYPES && types[i].dtype != dtype)
		i++;
	return i;
}

__attribute__((format(printf, 2, 3))) static bool refuse(char *why, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(why, NPY_WHY_MAX, format, list);
	va_end(list);
	return false;
}

/* ---- The dictionary ---- */

struct reader {
	const char *begin, *at, *end;
	char *why;
};

#define WORD_MAX 48

struct header {
	char descr[WORD_MAX];
	bool structure; /* descr is a list */
	bool fortran;
	int rank;
	int64_t shape[KILN_MAX_RANK];
};

static bool expected(const struct reader *reader, const char *what)
{
	return refuse(reader->why, "its header is wrong at byte %td: expected %s",
				  reader->at - reader->begin, what);
}

static void skip_space(struct reader *reader)
{
	while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n'))
		reader->at++;
}

static bool npy_take(struct reader *reader, char c)
{
	skip_space(reader);
	if (reader->at == reader->end || *reader->at != c)
		return false;
	reader->at++;
	return true;
}

/* 'word' or "word" */
static bool read_word(struct reader *reader, char word[WORD_MAX], const char *what)
{
	char quote = npy_take(reader, '\'') ? '\'' : npy_take(reader, '"') ? '"' : 0;
	size_t length = 0;

	if (!quote)
		return expected(reader, what);
	while (reader->at < reader->end && *reader->at != quote) {
		char c = *reader->at;
		if (c < ' ' || c > '~' || c == '\\' || length + 1 == WORD_MAX)
			return expected(reader, what);
		word[length++] = c;
		reader->at++;
	}
	word[length] = 0;
	return npy_take(reader, quote) || expected(reader, "the end of the string");
}

static bool read_literal(struct reader *reader, const char *word)
{
	size_t length = strlen(word);

	skip_space(reader);
	if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
		return false;
	reader->at += length;
	return true;
}

static bool read_size(struct reader *reader, int64_t *size)
{
	const char *first;

	skip_space(reader);
	first = reader->at;
	*size = 0;
	for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++)
		if (__builtin_mul_overflow(*size, 10, size) ||
			__builtin_add_overflow(*size, *reader->at - '0', size))
			return refuse(reader->why, "its shape has a size over 2^63 - 1");
	if (reader->at == first || (*first == '0' && reader->at != first + 1))
		return expected(reader, "a size of the shape");
	return true;
}

/* Reads (), (2,), (2, 3) or (2, 3,). */
static bool read_shape(struct reader *reader, struct header *header)
{
	bool comma = true;

	if (!npy_take(reader, '('))
		return expected(reader, "the shape, as (2, 3)");
	for (header->rank = 0; !npy_take(reader, ')'); header->rank++) {
		if (!comma)
			return expected(reader, "',' or ')' in the shape");
		if (header->rank == KILN_MAX_RANK)
			return refuse(reader->why, "it has more than %d axes", KILN_MAX_RANK);
		if (!read_size(reader, &header->shape[header->rank]))
			return false;
		comma = npy_take(reader, ',');
	}
	/* (2) is a number, not a tuple. */
	return header->rank != 1 || comma || expected(reader, "a comma after the only size");
}

static bool read_value(struct reader *reader, int key, struct header *header)
{
	if (key == 2)
		return read_shape(reader, header);
	if (key == 1) {
		header->fortran = read_literal(reader, "True");
		return header->fortran || read_literal(reader, "False") ||
			   expected(reader, "True or False");
	}
	/* Refuses a list without reading it: arrays of structures are not supported. */
	header->structure = npy_take(reader, '[');
	return !header->structure && read_word(reader, header->descr, "the element type as a string");
}

static bool read_dictionary(struct reader *reader, struct header *header)
{
	static const char *const keys[] = {"descr", "fortran_order", "shape"};
	unsigned seen = 0;
	bool comma = true;

	if (!npy_take(reader, '{'))
		return expected(reader, "'{'");
	while (!npy_take(reader, '}')) {
		char word[WORD_MAX];
		int key = 0;
		if (!comma)
			return expected(reader, "',' or '}'");
		if (!read_word(reader, word, "a key as a string"))
			return false;
		while (key < 3 && strcmp(keys[key], word) != 0)
			key++;
		if (key == 3)
			return refuse(reader->why,
						  "its header has the key '%s'; descr, fortran_order and "
						  "shape are all there may be",
						  word);
		if (seen & 1u << key)
			return refuse(reader->why, "its header has the key '%s' twice", word);
		seen |= 1u << key;
		if (!npy_take(reader, ':'))
			return expected(reader, "':'");
		if (!read_value(reader, key, header))
			return false;
		comma = npy_take(reader, ',');
	}
	skip_space(reader);
	if (reader->at != reader->end)
		return expected(reader, "nothing but space after '}'");
	return seen == 7 ||
		   refuse(reader->why, "its header lacks one of descr, fortran_order and shape");
}

/* ---- Element types ---- */

static bool refuse_type(const char *descr, char *why)
{
	char kind = descr[0] ? descr[1] : 0;

	if (kind == 'O')
		return refuse(why, "it holds Python objects (descr '%s'), which are no numbers", descr);
	if (kind == 'V' && !strcmp(descr + 2, "2"))
		return refuse(why,
					  "its elements are two bytes without a type (descr '%s', as NumPy stores "
					  "bf16); save x.view(numpy.uint16), and say --dtype NAME=bf16",
					  descr);
	if ((kind == 'V' || kind == 'f') && !strcmp(descr + 2, "1"))
		return refuse(why,
					  "its elements are one byte without a type (descr '%s', as NumPy stores "
					  "floats of 8 bits); save x.view(numpy.uint8), and say --dtype NAME=f8e4m3 or "
					  "f8e5m2",
					  descr);
	if (kind == 'V')
		return refuse(why, "it holds structures (descr '%s'); save each field as an array", descr);
	for (size_t i = 0; descr[0] == '>' && i < TYPES; i++)
		if (types[i].kind == kind)
			return refuse(why,
						  "it is big-endian (descr '%s'); save "
						  "x.astype(x.dtype.newbyteorder('<'))",
						  descr);
	return refuse(
		why,
		"its element type is '%s'; there are f2 f4 f8, i1 to i8, u1 to u8, b1, c8 and c16, "
		"little-endian",
		descr);
}

static bool read_type(const char *descr, char *why, size_t *type)
{
	char form[8];

	for (size_t i = 0; i < TYPES; i++) {
		snprintf(form, sizeof(form), "%c%d", types[i].kind, types[i].size);
		if (descr[0] && strchr("<|=", descr[0]) && !strcmp(descr + 1, form)) {
			*type = i;
			return true;
		}
	}
	return refuse_type(descr, why);
}

/* A size of 0 does not hide others that are too large. */
static bool count_bytes(const struct header *header, int size, uint64_t *bytes)
{
	int64_t product = size;
	bool empty = false;

	for (int k = 0; k < header->rank; k++) {
		empty = empty || header->shape[k] == 0;
		if (header->shape[k] && __builtin_mul_overflow(product, header->shape[k], &product))
			return false;
	}
	*bytes = empty ? 0 : (uint64_t)product;
	return true;
}

/* ---- The file ---- */

/* Finds the dictionary. */
static bool find_header(const uint8_t *file, size_t have, uint64_t size, struct reader *reader,
						uint64_t *data_at)
{
	int wide = have > 6 && file[6] > 1 ? 4 : 2;
	size_t prefix = 8 + (size_t)wide;

	if (have >= 4 && memcmp(file, "PK\x03\x04", 4) == 0)
		return refuse(reader->why, "it is a .npz archive of arrays; save one with numpy.save");
	if (have < 6 || memcmp(file, "\x93NUMPY", 6) != 0)
		return refuse(reader->why, "it is no .npy file: it does not begin with \\x93NUMPY");
	if (have >= 8 && (file[6] < 1 || file[6] > 3 || file[7] != 0))
		return refuse(reader->why, "it is of format %d.%d; 1.0, 2.0 and 3.0 are read", file[6],
					  file[7]);
	if (have < prefix)
		return refuse(reader->why, "it ends in its header, after %zu bytes", have);
	*data_at = prefix;
	for (int i = 0; i < wide; i++) /* little-endian */
		*data_at += (uint64_t)file[8 + i] << 8 * i;
	if (*data_at > size)
		return refuse(reader->why, "it ends in its header: that has %llu bytes and the file %llu",
					  (unsigned long long)*data_at, (unsigned long long)size);
	if (*data_at > NPY_HEADER_MAX || *data_at > have)
		return refuse(reader->why, "its header has %llu bytes; %d are the most",
					  (unsigned long long)*data_at, NPY_HEADER_MAX);
	reader->begin = (const char *)file;
	reader->at = (const char *)file + prefix;
	reader->end = (const char *)file + *data_at;
	return true;
}

bool npy_parse(const uint8_t *file, size_t have, uint64_t size, struct npy *npy, uint64_t *data_at,
			   bool *fortran, char why[NPY_WHY_MAX])
{
	struct reader reader = {.why = why};
	struct header header = {.rank = 0};
	uint64_t bytes;
	size_t type = 0;

	if (!find_header(file, have, size, &reader, data_at))
		return false;
	if (!read_dictionary(&reader, &header))
		return header.structure ? refuse(why, "it holds structures (descr is a list); save each "
											  "field as an array")
								: false;
	if (!read_type(header.descr, why, &type))
		return false;
	if (!count_bytes(&header, types[type].size, &bytes))
		return refuse(why, "its shape has more bytes than an address can name");
	if (bytes != size - *data_at)
		return refuse(why, "its shape has %llu bytes of elements, and the file %llu, so it is %s",
					  (unsigned long long)bytes, (unsigned long long)(size - *data_at),
					  bytes > size - *data_at ? "cut off" : "too long");
	*npy = (struct npy){.dtype = types[type].dtype, .rank = header.rank, .bytes = bytes};
	memcpy(npy->shape, header.shape, sizeof(npy->shape));
	*fortran = header.fortran;
	return true;
}

void npy_turn(const struct npy *npy, const uint8_t *from, uint8_t *to)
{
	size_t size = (size_t)types[type_of(npy->dtype)].size;
	uint64_t stride[KILN_MAX_RANK] = {0}, at = 0, step = 1;
	int64_t index[KILN_MAX_RANK] = {0};

	for (int k = 0; k < npy->rank; k++) {
		stride[k] = step;
		step *= npy->bytes ? (uint64_t)npy->shape[k] : 1;
	}
	for (uint64_t i = 0; i < npy->bytes; i += size) {
		memcpy(to + i, from + at * size, size);
		for (int k = npy->rank - 1; k >= 0; k--) {
			at += stride[k];
			if (++index[k] < npy->shape[k])
				break;
			at -= stride[k] * (uint64_t)npy->shape[k];
			index[k] = 0;
		}
	}
}

size_t npy_header(const struct npy *npy, uint8_t header[NPY_WRITTEN_MAX])
{
	size_t type = type_of(npy->dtype), used, total;
	char *text = (char *)header;

	used = PREFIX;
	used += (size_t)snprintf(text + used, NPY_WRITTEN_MAX - used,
							 "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
							 types[type].size > 1 ? '<' : '|', types[type].kind, types[type].size);
	for (int k = 0; k < npy->rank; k++)
		used += (size_t)snprintf(text + used, NPY_WRITTEN_MAX - used, "%s%lld", k ? ", " : "",
								 (long long)npy->shape[k]);
	used +=
		(size_t)snprintf(text + used, NPY_WRITTEN_MAX - used, "%s), }", npy->rank == 1 ? "," : "");
	total = (used + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	memset(text + used, ' ', total - used);
	text[total - 1] = '\n';
	memcpy(text, "\x93NUMPY\x01", 7);
	header[7] = 0;
	header[8] = (uint8_t)((total - PREFIX) & 255);
	header[9] = (uint8_t)((total - PREFIX) >> 8);
	return total;
}
