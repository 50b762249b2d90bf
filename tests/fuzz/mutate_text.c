/*
 * mutate_text.c: for targets that read texts: besides what libFuzzer does to bytes, words are put
 * in, taken out, doubled, moved and made odd, where a word is a run of letters and digits or one
 * other character.
 */
#include "chance.h"
#include "words.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

static bool in_word(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* A word of the text: where it begins, and its bytes. */
static size_t find_word(uint64_t *state, const uint8_t *data, size_t size, size_t *length)
{
	size_t from = size ? chance_pick(state, size) : 0, to;
	while (from > 0 && in_word(data[from]) && in_word(data[from - 1]))
		from--;
	to = from;
	while (to < size && in_word(data[to]))
		to++;
	*length = to > from ? to - from : size > from;
	return from;
}

/* In the place of the bytes from at on; the new size, or the old one if there is no room. */
static size_t put(uint8_t *data, size_t size, size_t max, size_t at, size_t bytes, const void *text,
				  size_t length)
{
	if (size - bytes + length > max)
		return size;
	memmove(data + at + length, data + at + bytes, size - at - bytes);
	memcpy(data + at, text, length);
	return size - bytes + length;
}

static const char *a_word(uint64_t *state)
{
	static const char *const odd[] = {"0",
									  "-1",
									  "1",
									  "7",
									  "255",
									  "256",
									  "65536",
									  "2147483648",
									  "4294967296",
									  "9223372036854775807",
									  "9223372036854775808",
									  "18446744073709551615",
									  "18446744073709551616",
									  "1e999",
									  "0x10",
									  "nan",
									  "inf",
									  "-0",
									  "1.5",
									  "%s%n",
									  "\n",
									  " ",
									  "\t",
									  "\x80\xff",
									  "'",
									  "\"",
									  "\\"};
	return chance_pick(state, 4) ? fuzz_word(state)
								 : odd[chance_pick(state, sizeof(odd) / sizeof(*odd))];
}

static size_t change(uint64_t *state, uint8_t *data, size_t size, size_t max)
{
	uint8_t held[256];
	size_t length, at = find_word(state, data, size, &length), other;
	const char *word = a_word(state);
	switch (chance_pick(state, 6)) {
	case 0:
		return put(data, size, max, at, 0, word, strlen(word));
	case 1:
		return put(data, size, max, at, length, word, strlen(word));
	case 2:
		return put(data, size, max, at, length, "", 0);
	case 3: /* a longer piece, which need not end where a word does, comes elsewhere again */
		if (chance_pick(state, 2))
			length += chance_pick(state, 64);
		length = length < size - at ? length : size - at;
		length = length < sizeof(held) ? length : sizeof(held);
		memcpy(held, data + at, length);
		other = size ? chance_pick(state, size) : 0;
		return put(data, size, max, other, 0, held, length);
	default:
		return LLVMFuzzerMutate(data, size, max);
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	uint64_t state = seed;
	for (size_t left = 1 + chance_pick(&state, 4); left > 0; left--)
		size = change(&state, data, size, max);
	return size;
}
