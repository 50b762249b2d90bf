/*
 * usage_log: what the daemon was asked for since it started: distinct problems as lines of a manifest
 * (plan/manifest.h), with how often and for which targets.  No data, no names of programs; bounded.
 */
#ifndef KILN_DAEMON_USAGE_LOG_H
#define KILN_DAEMON_USAGE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USAGE_LOG_MOST 8192                     /* problems */
#define USAGE_LOG_BYTES ((size_t)4 << 20)       /* of their lines */
#define USAGE_LOG_TARGETS 64                    /* bytes of the list of a problem's targets */
#define USAGE_LOG_PAGE_BYTES ((size_t)64 << 10) /* of text in a page */

struct usage_log_row;

/* Zeroed: empty.  Rows are in the order of their lines. */
struct usage_log {
	struct usage_log_row **rows;
	int count, capacity;
	size_t bytes;
	uint64_t left_out; /* asked for and not kept: there was no room for another problem */
};

/* A problem was asked for, for a target.  note: what people may want to know beside the line, or
 * NULL.  Both are copied.  Without memory it is left out. */
void usage_log_note(struct usage_log *log, const char *line, const char *target, const char *note);
void usage_log_free(struct usage_log *log);

/*
 * The rows behind the line `after` ("" for the first) as text, a line each, with a comment on what
 * is known of it; as many as fit into USAGE_LOG_PAGE_BYTES, and at least one.  The text is malloc'd,
 * NULL without memory; *last is the line of the last of them, NULL where there are none, and points
 * into the record.
 */
char *usage_log_page(const struct usage_log *log, const char *after, const char **last);

#endif
