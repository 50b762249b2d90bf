/*
 * kiln_cache: what the files of 'kiln cache' share.
 */
#ifndef KILN_CLIENT_KILN_CACHE_H
#define KILN_CLIENT_KILN_CACHE_H

#include "failed.h"

/* Rows of a reply as a table. */
void cli_cache_print(const kiln_reply *reply, bool headers);
/* How many rows more there are than --limit let through, if there are any. */
void cli_cache_print_rest(const kiln_reply *reply);

/* "what DONE of ALL" on a terminal, in place of the last one; and nothing in its place. */
void cache_progress(const struct cli *cli, const char *what, int64_t done, int64_t all);
void cache_end_progress(const struct cli *cli);

/* All rows that the daemon has, page by page, in the order of their keys.  visit gets a reply and
 * the row's number in it.  Prints what failed. */
typedef void (*cache_row_visit)(const kiln_reply *reply, int row, void *arg);
int cache_each(struct cli *cli, kiln_client *client, cache_row_visit visit, void *arg);

#endif
