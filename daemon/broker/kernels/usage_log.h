/*
 * usage_log: the distinct problems that programs asked this daemon for, as lines of a manifest
 * (plan/manifest.h), each with its count and its targets.  It has bounds, and holds no data and no
 * names of programs.
 */
#ifndef KILN_DAEMON_USAGE_LOG_H
#define KILN_DAEMON_USAGE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USAGE_LOG_MOST 8192                     /* problems */
#define USAGE_LOG_BYTES ((size_t)4 << 20)       /* of their lines */
#define USAGE_LOG_TARGETS 64                    /* bytes of the list of a problem's targets */
#define USAGE_LOG_PAGE_BYTES ((size_t)64 << 10) /* of text in a page, at most */

struct usage_log_row;

/* A zeroed log is empty.  Rows are sorted by line. */
struct usage_log {
	struct usage_log_row **rows;
	int count, capacity;
	size_t bytes;
	uint64_t left_out; /* problems without a row, for want of room */
};

/* Counts a request for a problem and a target.  note: a comment on the line for people, or NULL.
 * Both are copied.  Without memory the problem is left out. */
void usage_log_note(struct usage_log *log, const char *line, const char *target, const char *note);
void usage_log_free(struct usage_log *log);

/*
 * Prints the rows behind the line `after` ("": from the first), one a line with its comment, until
 * so many bytes are full; at least one.  The caller frees the text; NULL without memory.
 * *last is the line of the last row printed, in the log's memory; NULL: there are no more rows.
 */
char *usage_log_page(const struct usage_log *log, const char *after, size_t bytes,
					 const char **last);

#endif
