/*
 * plain_print.c: vsnprintf() for the formats that names of kernels, keys and sentences are made of.
 * A plan prints some hundred small pieces, and the C library's way into one of them takes longer
 * than all that the piece needs.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "plain.h"

/* A text of size bytes, of which `used` would be written if it had the room. */
struct printed {
	char *text;
	size_t size, used;
	va_list arguments;
};

static inline void put_char(struct printed *out, char c)
{
	if (out->used < out->size)
		out->text[out->used] = c;
	out->used++;
}

/* The text, or so many bytes of it. */
static void put_text(struct printed *out, const char *text, size_t most)
{
	size_t length = most == SIZE_MAX ? strlen(text) : strnlen(text, most);
	size_t room = out->used < out->size ? out->size - out->used : 0;
	char *to = room ? out->text + out->used : out->text;
	/* Most pieces are a few bytes. */
	for (size_t i = 0; i < length && i < room; i++)
		to[i] = text[i];
	out->used += length;
}

static void put_number(struct printed *out, unsigned long long value, bool negative)
{
	char digits[24];
	size_t at = sizeof(digits);
	do
		digits[--at] = (char)('0' + value % 10);
	while (value /= 10);
	if (negative)
		digits[--at] = '-';
	put_text(out, digits + at, sizeof(digits) - at);
}

static void put_signed(struct printed *out, long long value)
{
	put_number(out, value < 0 ? -(unsigned long long)value : (unsigned long long)value, value < 0);
}

/* Prints one conversion, whose '%' is behind; returns where the format goes on.  NULL: vsnprintf()
 * has to print it. */
static const char *put_one(struct printed *out, const char *at)
{
	int most;
	switch (*at) {
	case 's':
		put_text(out, va_arg(out->arguments, const char *), SIZE_MAX);
		return at + 1;
	case 'u':
		put_number(out, va_arg(out->arguments, unsigned), false);
		return at + 1;
	case 'd':
		put_signed(out, va_arg(out->arguments, int));
		return at + 1;
	case 'c':
		put_char(out, (char)va_arg(out->arguments, int));
		return at + 1;
	case '%':
		put_char(out, '%');
		return at + 1;
	case 'l':
		if (at[1] != 'l' || (at[2] != 'd' && at[2] != 'u'))
			return NULL;
		if (at[2] == 'd')
			put_signed(out, va_arg(out->arguments, long long));
		else
			put_number(out, va_arg(out->arguments, unsigned long long), false);
		return at + 3;
	case '.':
		if (at[1] != '*' || at[2] != 's')
			return NULL;
		most = va_arg(out->arguments, int);
		put_text(out, va_arg(out->arguments, const char *), most < 0 ? SIZE_MAX : (size_t)most);
		return at + 3;
	default:
		return NULL;
	}
}

int plain_vprint(char *text, size_t size, const char *format, va_list arguments)
{
	struct printed out = {.text = text, .size = size};
	const char *at = format;
	va_copy(out.arguments, arguments);
	while (at && *at) {
		size_t plain = 0;
		while (at[plain] && at[plain] != '%')
			plain++;
		put_text(&out, at, plain);
		at += plain;
		if (*at)
			at = put_one(&out, at + 1);
	}
	va_end(out.arguments);
	if (!at)
		return vsnprintf(text, size, format, arguments);
	if (size)
		text[out.used < size ? out.used : size - 1] = 0;
	return (int)out.used;
}
