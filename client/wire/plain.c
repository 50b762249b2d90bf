/*
 * plain.c: shows texts of others to people.  It knows neither who wrote a text nor who reads it.
 */
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the length of the character that this byte begins; 0: it begins none. */
static size_t length_of(unsigned char lead)
{
	if (lead < 0x80)
		return 1;
	if (lead < 0xc2 || lead > 0xf4)
		return 0;
	return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* False: the second byte makes an overlong form, a surrogate, or a character beyond U+10FFFF. */
static bool may_follow(unsigned char lead, unsigned char second)
{
	unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
	return second >= least && second <= most;
}

size_t plain_next(const char *text, size_t left, uint32_t *code)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t length = length_of(p[0]);
	size_t i = 1;
	*code = PLAIN_NO_CHARACTER;
	if (length <= 1) {
		*code = length == 1 ? p[0] : PLAIN_NO_CHARACTER;
		return 1;
	}
	uint32_t value = p[0] & (0xffu >> (length + 1));
	for (; i < length && i < left; i++) {
		if (i == 1 ? !may_follow(p[0], p[1]) : (p[i] & 0xc0) != 0x80)
			return 1;
		value = value << 6 | (p[i] & 0x3fu);
	}
	*code = i == length ? value : PLAIN_CUT_OFF;
	return i;
}

bool plain_hides(uint32_t code)
{
	static const struct {
		uint32_t first, last;
	} hidden[] = {
		{0x00, 0x1f},       /* C0 */
		{0x7f, 0x9f},       /* DEL, C1: U+009B begins a control sequence */
		{0x61c, 0x61c},     /* bidi: a mark */
		{0x180e, 0x180e},   /* no width */
		{0x200b, 0x200f},   /* no width; bidi: marks */
		{0x2028, 0x202e},   /* ends of lines and paragraphs; bidi: embeddings, overrides */
		{0x2060, 0x206f},   /* no width; bidi: isolates */
		{0xfeff, 0xfeff},   /* no width */
		{0xfff9, 0xfffb},   /* interlinear */
		{0xe0000, 0xe007f}, /* tags */
	};
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (code >= hidden[i].first && code <= hidden[i].last)
			return true;
	return false;
}

/* True: a text of lines keeps this character, an end of line or a tab. */
static bool is_layout(const char *text, size_t left)
{
	return text[0] == '\n' || text[0] == '\t' || (text[0] == '\r' && left > 1 && text[1] == '\n');
}

size_t plain_show(const char *text, size_t left, enum plain_rule rule, char shown[PLAIN_SHOWN])
{
	uint32_t code;
	size_t bytes = plain_next(text, left, &code);
	if (code == PLAIN_NO_CHARACTER || code == PLAIN_CUT_OFF) {
		snprintf(shown, PLAIN_SHOWN, "\\x%02x", (unsigned char)text[0]);
		return 1;
	}
	if (rule == PLAIN_LINE && (code == '\n' || code == '\t' || code == '\r')) {
		snprintf(shown, PLAIN_SHOWN, " ");
	} else if (plain_hides(code) && !is_layout(text, left)) {
		snprintf(shown, PLAIN_SHOWN,
				 code < 0x80      ? "\\x%02x"
				 : code < 0x10000 ? "\\u%04x"
								  : "\\U%08x",
				 (unsigned)code);
	} else {
		memcpy(shown, text, bytes);
		shown[bytes] = 0;
	}
	return bytes;
}

bool plain_is(const char *text, size_t size, enum plain_rule rule)
{
	for (size_t i = 0; i < size;) {
		unsigned char byte = (unsigned char)text[i];
		uint32_t code = byte;
		if (byte >= 0x20 && byte < 0x7f) {
			i++;
			continue;
		}
		if (rule == PLAIN_TEXT && is_layout(text + i, size - i)) {
			i++;
			continue;
		}
		i += plain_next(text + i, size - i, &code);
		if (code >= PLAIN_CUT_OFF || plain_hides(code))
			return false;
	}
	return true;
}

/* Returns how many bytes text[0 .. size) becomes, at most `most`; *used: how many of its bytes fit.
 */
static size_t measure(const char *text, size_t size, size_t most, enum plain_rule rule,
					  size_t *used)
{
	size_t out = 0;
	*used = 0;
	while (*used < size) {
		char shown[PLAIN_SHOWN];
		size_t bytes = plain_show(text + *used, size - *used, rule, shown);
		size_t length = strlen(shown);
		if (length > most - out)
			break;
		out += length;
		*used += bytes;
	}
	return out;
}

/* Writes the shown form; out may begin before text in the same room, as no character becomes
 * shorter. */
static void write_shown(char *out, const char *text, size_t size, enum plain_rule rule)
{
	while (size > 0) {
		char shown[PLAIN_SHOWN];
		size_t bytes = plain_show(text, size, rule, shown);
		size_t length = strlen(shown);
		memcpy(out, shown, length);
		out += length;
		text += bytes;
		size -= bytes;
	}
}

size_t plain_clean(char *text, size_t size, enum plain_rule rule)
{
	size_t length = size > 0 ? strnlen(text, size - 1) : 0;
	if (size == 0)
		return 0;
	text[length] = 0;
	if (plain_is(text, length, rule))
		return length;
	size_t used;
	length = (size_t)plain_cut(text, length);
	size_t out = measure(text, length, size - 1, rule, &used);
	char *moved = text + size - 1 - used;
	memmove(moved, text, used);
	write_shown(text, moved, used, rule);
	text[out] = 0;
	return out;
}

char *plain_copy(const char *text, size_t size, enum plain_rule rule)
{
	size_t used;
	size_t out = measure(text, size, SIZE_MAX - 1, rule, &used);
	char *copy = malloc(out + 1);
	if (copy) {
		write_shown(copy, text, used, rule);
		copy[out] = 0;
	}
	return copy;
}

int plain_cut(const char *text, size_t most)
{
	size_t size = strnlen(text, most);
	size_t at = size;
	/* A character has at most four bytes, so its first byte is among the last four. */
	for (int i = 0; i < 4 && at > 0; i++) {
		at--;
		if (((unsigned char)text[at] & 0xc0) != 0x80) {
			uint32_t code;
			plain_next(text + at, size - at, &code);
			return (int)(code == PLAIN_CUT_OFF ? at : size);
		}
	}
	return (int)size;
}
