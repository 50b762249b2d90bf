/*
 * table.h: tables with aligned columns, lines of "name  value", and figures with units, for people.
 */
#ifndef KILN_CLI_TABLE_H
#define KILN_CLI_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A table is filled cell by cell, row by row; its last column is never padded. */
struct table {
	const char *const *headers; /* NULL: none; a header that starts with '>' aligns to the right */
	int columns;
	char **cells;
	size_t count, capacity;
};
void table_begin(struct table *table, const char *const *headers, int columns);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints and frees; table_end() prints on standard output. */
void table_print(struct table *table, FILE *out);
void table_end(struct table *table);
/* Prints a text, and a newline if it ends without one. */
void print_text(const char *text);
/* "name            value" */
void print_pair(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define CLI_SHORT_KEY 12 /* digits of a key in a list: enough to name it */

/* ---- Figures (figure.c) ---- */

#define FIGURE_MAX 32                                            /* room for any figure below */
const char *figure_bytes(uint64_t bytes, char text[FIGURE_MAX]); /* "64.0 MiB", "512 B" */
const char *figure_micros(double micros, char text[FIGURE_MAX]); /* "12.3 us", "4.56 ms" */
const char *figure_ago(int64_t seconds, char text[FIGURE_MAX]);  /* "5 s", "3 h", "12 d" */
/* "7 regs"; "unknown" for a negative value */
const char *figure_known(int64_t value, const char *unit, char text[FIGURE_MAX]);
/* Writes a moment's date as strftime() does, in UTC; leaves a text without a date as it is. */
void figure_date(int64_t seconds, const char *format, char text[FIGURE_MAX]);
/* "2x3x4"; "scalar" */
const char *figure_dims(const int64_t *values, int count, char *text, size_t size);

#endif
