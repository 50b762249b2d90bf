/*
 * plain.h: shows texts of others (programs, compilers, a Redis, names of files) to people.
 * Both sides include it: the daemon for replies, log and reports, libkiln for messages and JSON,
 * the kiln command for everything that it prints.
 *
 * The rule: the shown text is UTF-8.  Characters that steer a terminal or that nobody sees, and
 * bytes that are no UTF-8, appear as \x1b, \u202e or \U000e0041.  A TEXT of lines keeps newlines,
 * carriage returns before them, and tabs; in a LINE they become blanks.  A cut never falls inside a
 * character.
 */
#ifndef KILN_CLIENT_PLAIN_H
#define KILN_CLIENT_PLAIN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plain_rule { PLAIN_LINE, PLAIN_TEXT };

#define PLAIN_NO_CHARACTER UINT32_MAX  /* a byte that is no UTF-8 */
#define PLAIN_CUT_OFF (UINT32_MAX - 1) /* the beginning of a character, and then the end */
#define PLAIN_SHOWN 12                 /* bytes that one character may become, and a zero */

/* Reads the character at text[0 .. left), left at least 1; returns how many bytes it has. */
size_t plain_next(const char *text, size_t left, uint32_t *code);
/* True: a terminal obeys this character, or shows nothing for it. */
bool plain_hides(uint32_t code);
/* Reads one character and writes how it is shown; returns the bytes read. */
size_t plain_show(const char *text, size_t left, enum plain_rule rule, char shown[PLAIN_SHOWN]);
/* True: the rule changes nothing in the text. */
bool plain_is(const char *text, size_t size, enum plain_rule rule);

/* Applies the rule to the zero-terminated text in place, which has room for size bytes; cuts what
 * does not fit, and a character whose end was cut off before.  Returns the new length. */
size_t plain_clean(char *text, size_t size, enum plain_rule rule);
/* Applies the rule to a copy, which the caller frees; NULL: out of memory. */
char *plain_copy(const char *text, size_t size, enum plain_rule rule);

/* Returns how many bytes the longest beginning of text has that fits in `most` bytes and cuts no
 * character. */
int plain_cut(const char *text, size_t most);
/* vsnprintf(), which is quick for %s, %.*s, %c, %d, %u, %lld and %llu. */
int plain_vprint(char *text, size_t size, const char *format, va_list arguments)
	__attribute__((format(printf, 3, 0)));
/* The two arguments of "%.*s". */
#define PLAIN_CUT(text, most) plain_cut(text, most), text

#endif
