/*
 * table.c: prints aligned tables and pairs.
 */
#include "table.h"
#include "client/wire/plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MAX_COLUMNS 12

void table_begin(struct table *table, const char *const *headers, int columns)
{
	*table = (struct table){.headers = headers, .columns = columns};
}

/* Turns text, which is malloc'd, into one plain line, so that columns are aligned by what is
 * printed.  Takes text over. */
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
