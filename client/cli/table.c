/*
 * table.c: prints aligned tables and pairs.
 */
#include "table.h"
#include "grow.h"
#include "sink.h"
#include "client/wire/plain.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MAX_COLUMNS 12

void table_begin(struct table *table, const char *const *headers, int columns)
{
	*table = (struct table){.headers = headers, .columns = columns};
}

/* Makes one plain line, so that columns are aligned by what is printed.  The caller frees it; NULL
 * without memory. */
static char *one_line(const char *format, va_list list)
{
	char *text, *line;

	if (vasprintf(&text, format, list) < 0)
		return NULL;
	line = plain_copy(text, strlen(text), PLAIN_LINE);
	free(text);
	return line;
}

void table_cell(struct table *table, const char *format, ...)
{
	char **cell = grow(&table->cells, table->count, &table->capacity, sizeof(*cell));
	va_list list;

	if (!cell)
		return;
	va_start(list, format);
	*cell = one_line(format, list);
	va_end(list);
	table->count++;
}

/* Prints a row in so many columns, 0: as many as it has; returns whether its end was cut. */
static bool print_row(const struct table *table, const char *const *cells, const size_t *widths,
					  int columns, FILE *out)
{
	int column = 0;

	for (int i = 0; i < table->columns; i++) {
		const char *cell = cells[i] ? cells[i] : "";
		bool right = table->headers && table->headers[i][0] == '>';
		bool last = i == table->columns - 1;
		int left = columns - column, length = (int)strlen(cell);
		if (last && columns && length > left && left > 3) {
			fprintf(out, "%.*s...\n", (int)plain_cut(cell, (size_t)left - 3), cell);
			return true;
		}
		column += fprintf(out, "%*s%s", right ? (int)widths[i] : -(last ? 0 : (int)widths[i]), cell,
						  last ? "\n" : "  ");
	}
	return false;
}

void table_end(struct table *table)
{
	table_print(table, stdout);
}

void table_print(struct table *table, FILE *out)
{
	size_t widths[TABLE_MAX_COLUMNS] = {0}, columns = (size_t)table->columns;
	const char *titles[TABLE_MAX_COLUMNS] = {0};
	int room = out == stdout ? sink_columns() : 0, cut = 0;

	for (size_t i = 0; table->headers && i < columns; i++) {
		titles[i] = table->headers[i] + (table->headers[i][0] == '>');
		widths[i] = strlen(titles[i]);
	}
	for (size_t i = 0; i < table->count; i++) {
		size_t width = table->cells[i] ? strlen(table->cells[i]) : 0;
		if (width > widths[i % columns])
			widths[i % columns] = width;
	}
	if (table->headers) {
		if (out == stdout)
			sink_style(SINK_BOLD);
		print_row(table, titles, widths, room, out);
		if (out == stdout)
			sink_style(SINK_PLAIN);
	}
	for (size_t i = 0; i + columns <= table->count; i += columns)
		cut += print_row(table, (const char *const *)&table->cells[i], widths, room, out);
	if (cut)
		fprintf(out, "... at the end of %d row%s: cut to %d columns; a pipe or a file has all\n",
				cut, cut == 1 ? "" : "s", room);
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i]);
	free(table->cells);
	*table = (struct table){0};
}

void print_text(const char *text)
{
	size_t length = strlen(text);

	printf("%s%s", text, length && text[length - 1] != '\n' ? "\n" : "");
}

void print_pair(const char *name, const char *format, ...)
{
	char *text;
	va_list list;

	va_start(list, format);
	text = one_line(format, list);
	va_end(list);
	printf("%-14s %s\n", name, text ? text : "");
	free(text);
}
