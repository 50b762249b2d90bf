/*
 * key_diff.h: what key_diff.c (lines of a key's text) and template_diff.c (template-ids) share.
 * Nobody else includes it.
 */
#ifndef KILN_DAEMON_COMPILE_KEY_DIFF_H
#define KILN_DAEMON_COMPILE_KEY_DIFF_H

#include "backend.h"

/* A part of a text. */
struct span {
	const char *at;
	size_t bytes;
};
#define SPAN(s) (int)(s).bytes, (s).at

bool span_is(struct span a, struct span b);
void difference_add(struct compile_differences *out, const char *what, int weight,
					const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Adds the differences of the template-ids, argument by argument, by the names that their
 * parameters have in the files. */
void template_differences(struct span asked, struct span other, const struct compile_file *files,
						  int file_count, struct compile_differences *out);

#endif
