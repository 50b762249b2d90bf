/*
 * json.c: writes the JSON objects that are the command's own.
 */
#include "json.h"
#include "client/wire/plain.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool json_first;

static void json_name(const char *name)
{
	printf("%s\"%s\":", json_first ? "" : ",", name);
	json_first = false;
}

void json_begin(void)
{
	putchar('{');
	json_first = true;
}

void json_list_begin(const char *name)
{
	json_name(name);
	putchar('[');
	json_first = true;
}

void json_list_end(void)
{
	putchar(']');
	json_first = false;
}

void json_item_begin(void)
{
	fputs(json_first ? "{" : ",{", stdout);
	json_first = true;
}

void json_item_end(void)
{
	putchar('}');
	json_first = false;
}

void json_string(const char *name, const char *value)
{
	json_name(name);
	putchar('"');
	while (*value) {
		uint32_t code;
		size_t bytes = plain_next(value, strlen(value), &code);
		if (code >= PLAIN_CUT_OFF)
			fputs("\xef\xbf\xbd", stdout); /* the replacement character */
		else if (code == '"' || code == '\\')
			printf("\\%c", (int)code);
		else if (code == '\n')
			fputs("\\n", stdout);
		else if (code < 0x10000 && plain_hides(code))
			printf("\\u%04x", (unsigned)code);
		else
			fwrite(value, 1, bytes, stdout);
		value += code >= PLAIN_CUT_OFF ? 1 : bytes;
	}
	putchar('"');
}

void json_int(const char *name, int64_t value)
{
	json_name(name);
	printf("%" PRId64, value);
}

void json_real(const char *name, double value)
{
	json_name(name);
	printf("%.3f", isfinite(value) ? value : 0.0);
}

void json_number(const char *name, double value)
{
	json_name(name);
	printf("%.15g", isfinite(value) ? value : 0.0);
}

void json_ints(const char *name, const int64_t *values, int count)
{
	json_name(name);
	putchar('[');
	for (int i = 0; i < count; i++)
		printf("%s%" PRId64, i ? "," : "", values[i]);
	putchar(']');
}

void json_end(void)
{
	puts("}");
}
