/*
 * record: what the daemon was asked for since it started: distinct problems as lines of a manifest
 * (plan/manifest.h), with how often and for which targets.  No data, no names of programs; bounded.
 */
#ifndef KILN_DAEMON_RECORD_H
#define KILN_DAEMON_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_MOST 8192                     /* problems */
#define RECORD_BYTES ((size_t)4 << 20)       /* of their lines */
#define RECORD_TARGETS 64                    /* bytes of the list of a problem's targets */
#define RECORD_PAGE_BYTES ((size_t)64 << 10) /* of text in a page */

struct record_row;

/* Zeroed: empty.  Rows are in the order of their lines. */
struct record {
	struct record_row **rows;
	int count, capacity;
	size_t bytes;
	uint64_t left_out; /* asked for and not kept: there was no room for another problem */
};

/* A problem was asked for, for a target.  note: what people may want to know beside the line, or
 * NULL.  Both are copied.  Without memory it is left out. */
void record_note(struct record *record, const char *line, const char *target, const char *note);
void record_free(struct record *record);

/*
 * The rows behind the line `after` ("" for the first) as text, a line each, with a comment on what
 * is known of it; as many as fit into RECORD_PAGE_BYTES, and at least one.  The text is malloc'd,
 * NULL without memory; *last is the line of the last of them, NULL where there are none, and points
 * into the record.
 */
char *record_page(const struct record *record, const char *after, const char **last);

#endif
