/*
 * kiln_table: prints for people (aligned tables and pairs, figures with units) and writes the few
 * JSON objects that are the command's own.  Knows nothing of the daemon.
 */
#include "cli.h"
#include "client/wire/plain.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MAX_COLUMNS 12

void table_begin(struct table *table, const char *const *headers, int columns)
{
	*table = (struct table){.headers = headers, .columns = columns};
}

/* A row is one line, and is aligned by what is printed of it.  Takes over text. */
static char *one_line(char *text)
{
	size_t size = text ? strlen(text) : 0;
	char *copy;

	if (!text || plain_is(text, size, PLAIN_LINE))
		return text;
	copy = plain_copy(text, size, PLAIN_LINE);
	free(text);
	return copy;
}

void table_cell(struct table *table, const char *format, ...)
{
	char *text = NULL;
	va_list list;

	if (table->count == table->capacity) {
		size_t capacity = table->capacity ? 2 * table->capacity : 64;
		char **cells = realloc(table->cells, capacity * sizeof(*cells));
		if (!cells)
			return;
		table->cells = cells;
		table->capacity = capacity;
	}
	va_start(list, format);
	if (vasprintf(&text, format, list) < 0)
		text = NULL;
	va_end(list);
	table->cells[table->count++] = one_line(text);
}

static void print_row(const struct table *table, const char *const *cells, const size_t *widths,
					  FILE *out)
{
	for (int i = 0; i < table->columns; i++) {
		const char *cell = cells[i] ? cells[i] : "";
		bool right = table->headers && table->headers[i][0] == '>';
		bool last = i == table->columns - 1;
		fprintf(out, "%*s%s", right ? (int)widths[i] : -(last ? 0 : (int)widths[i]), cell,
				last ? "\n" : "  ");
	}
}

void table_end(struct table *table)
{
	table_print(table, stdout);
}

void table_print(struct table *table, FILE *out)
{
	size_t widths[TABLE_MAX_COLUMNS] = {0}, columns = (size_t)table->columns;
	const char *titles[TABLE_MAX_COLUMNS] = {0};

	for (size_t i = 0; table->headers && i < columns; i++) {
		titles[i] = table->headers[i] + (table->headers[i][0] == '>');
		widths[i] = strlen(titles[i]);
	}
	for (size_t i = 0; i < table->count; i++) {
		size_t width = table->cells[i] ? strlen(table->cells[i]) : 0;
		if (width > widths[i % columns])
			widths[i % columns] = width;
	}
	if (table->headers)
		print_row(table, titles, widths, out);
	for (size_t i = 0; i + columns <= table->count; i += columns)
		print_row(table, (const char *const *)&table->cells[i], widths, out);
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i]);
	free(table->cells);
	*table = (struct table){0};
}

void print_pair(const char *name, const char *format, ...)
{
	char *text = NULL;
	va_list list;

	va_start(list, format);
	if (vasprintf(&text, format, list) < 0)
		text = NULL;
	va_end(list);
	text = one_line(text);
	printf("%-14s %s\n", name, text ? text : "");
	free(text);
}

/* ---- Figures ---- */

const char *figure_bytes(uint64_t bytes, char text[FIGURE_MAX])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	int unit = 0;

	if (bytes < 1024) {
		snprintf(text, FIGURE_MAX, "%" PRIu64 " B", bytes);
		return text;
	}
	while (value >= 1024 && unit < 5) {
		value /= 1024;
		unit++;
	}
	snprintf(text, FIGURE_MAX, "%.1f %s", value, units[unit]);
	return text;
}

const char *figure_micros(double micros, char text[FIGURE_MAX])
{
	if (micros < 1000)
		snprintf(text, FIGURE_MAX, "%.1f us", micros);
	else if (micros < 1e6)
		snprintf(text, FIGURE_MAX, "%.2f ms", micros / 1e3);
	else
		snprintf(text, FIGURE_MAX, "%.2f s", micros / 1e6);
	return text;
}

const char *figure_ago(int64_t seconds, char text[FIGURE_MAX])
{
	if (seconds < 0)
		seconds = 0;
	if (seconds < 120)
		snprintf(text, FIGURE_MAX, "%" PRId64 " s", seconds);
	else if (seconds < 7200)
		snprintf(text, FIGURE_MAX, "%" PRId64 " min", seconds / 60);
	else if (seconds < 172800)
		snprintf(text, FIGURE_MAX, "%" PRId64 " h", seconds / 3600);
	else
		snprintf(text, FIGURE_MAX, "%" PRId64 " d", seconds / 86400);
	return text;
}

const char *figure_known(int64_t value, const char *unit, char text[FIGURE_MAX])
{
	if (value < 0)
		snprintf(text, FIGURE_MAX, "unknown");
	else
		snprintf(text, FIGURE_MAX, "%" PRId64 "%s%s", value, unit[0] ? " " : "", unit);
	return text;
}

const char *figure_dims(const int64_t *values, int count, char *text, size_t size)
{
	size_t used = 0;

	snprintf(text, size, "scalar");
	for (int i = 0; i < count && used < size; i++) {
		int n = snprintf(text + used, size - used, "%s%" PRId64, i ? "x" : "", values[i]);
		used += n > 0 ? (size_t)n : 0;
	}
	return text;
}

/* ---- JSON ---- */

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
