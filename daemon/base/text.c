/* text.c: writes sentences into fixed buffers, texts that grow, and sizes as people write them. */
#include "util.h"

#include <ctype.h>
#include <kiln/kiln.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Appends a text, which is cut before a character where it does not fit. */
static size_t append(char *text, size_t size, size_t used, const char *format, va_list arguments)
{
	if (used >= size)
		return used;
	size_t room = size - used;
	int wanted = plain_vprint(text + used, room, format, arguments);
	if (wanted < 0) {
		text[used] = 0;
		return used;
	}
	if ((size_t)wanted < room)
		return used + (size_t)wanted;
	used += (size_t)plain_cut(text + used, room - 1);
	text[used] = 0;
	return used;
}

int util_fail(char *text, size_t size, int status, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	append(text, size, 0, format, arguments);
	va_end(arguments);
	plain_clean(text, size, PLAIN_LINE);
	return status;
}

const char *util_status_name(int status)
{
	switch (status) {
#define STATUS_NAME(name, value, text) \
	case value:                        \
		return "KILN_" #name;
		KILN_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
	default:
		return "KILN_OK";
	}
}

size_t util_append(char *text, size_t size, size_t used, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	used = append(text, size, used, format, arguments);
	va_end(arguments);
	return used;
}

/* Makes room for size more bytes and the zero byte. */
static bool reserve(struct util_text *text, size_t size)
{
	if (text->failed || size > SIZE_MAX / 2 - text->size - 1) {
		text->failed = true;
		return false;
	}
	size_t needed = text->size + size + 1;
	if (needed <= text->capacity)
		return true;
	size_t capacity = text->capacity ? text->capacity : 256;
	while (capacity < needed)
		capacity *= 2;
	char *grown = realloc(text->text, capacity);
	if (!grown) {
		text->failed = true;
		return false;
	}
	text->text = grown;
	text->capacity = capacity;
	return true;
}

void util_text_bytes(struct util_text *text, const void *bytes, size_t size)
{
	if (!reserve(text, size))
		return;
	if (size)
		memcpy(text->text + text->size, bytes, size);
	text->size += size;
	text->text[text->size] = 0;
}

void util_text_add(struct util_text *text, const char *format, ...)
{
	va_list arguments, again;
	va_start(arguments, format);
	va_copy(again, arguments);
	/* Most pieces have their room already. */
	size_t room = text->failed ? 0 : text->capacity - text->size;
	int size = plain_vprint(room ? text->text + text->size : NULL, room, format, arguments);
	if (size < 0) {
		text->failed = true;
	} else if ((size_t)size < room) {
		text->size += (size_t)size;
	} else if (reserve(text, (size_t)size)) {
		plain_vprint(text->text + text->size, (size_t)size + 1, format, again);
		text->size += (size_t)size;
	} else if (room) {
		text->text[text->size] = 0;
	}
	va_end(again);
	va_end(arguments);
}

void util_text_free(struct util_text *text)
{
	free(text->text);
	*text = (struct util_text){0};
}

/* Returns the power of 1024 that a unit stands for; -1: it is no unit. */
static int unit_power(const char *unit)
{
	static const char letters[] = "kmgt";
	if (!*unit || !strcasecmp(unit, "b"))
		return 0;
	const char *letter = strchr(letters, tolower((unsigned char)*unit));
	if (!letter)
		return -1;
	if (!unit[1] || !strcasecmp(unit + 1, "b") || !strcasecmp(unit + 1, "ib"))
		return (int)(letter - letters) + 1;
	return -1;
}

bool util_parse_bytes(const char *text, uint64_t *bytes)
{
	uint64_t value = 0;
	if (!isdigit((unsigned char)*text))
		return false;
	for (; isdigit((unsigned char)*text); text++)
		if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return false;
	while (*text == ' ')
		text++;
	int power = unit_power(text);
	if (power < 0 || __builtin_mul_overflow(value, (uint64_t)1 << (10 * power), &value))
		return false;
	*bytes = value;
	return true;
}

const char *util_bytes(uint64_t bytes, char text[16])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	if (bytes < 1024) {
		snprintf(text, 16, "%u B", (unsigned)bytes);
		return text;
	}
	double value = (double)bytes / 1024;
	int unit = 0;
	/* 1023.95 and more would print as 1024.0 */
	while (value >= 1023.95 && unit < 5) {
		value /= 1024;
		unit++;
	}
	snprintf(text, 16, "%.1f %s", value, units[unit]);
	return text;
}
