/*
 * cache.h: what the files of 'kiln cache' share.
 */
#ifndef KILN_CLI_CACHE_H
#define KILN_CLI_CACHE_H

#include "client/cli/cli.h"

/* ---- cache_rows.c ---- */

/* Prints the rows of a reply as a table.  With a client maps are named by their statements and raw
 * kernels by their files, for which the daemon is asked; with NULL as the compiler names them. */
void cache_rows_print(const kiln_reply *reply, bool headers, kiln_client *client);
/* Prints how many rows --limit left out, if any. */
void cache_rows_rest(const kiln_reply *reply);
/* Options that choose kernels; with --older-than they become arguments of a request, 4 at most. */
#define CACHE_FILTER_OPTIONS                                                               \
	{"op", "OP", "only those of this operator"},                                           \
		{"target", "NAME", "only those for this target: cpu, sm_90"},                      \
	{                                                                                      \
		"compiler", "TEXT", "only those whose compiler has this in its name: 'nvrtc 12.8'" \
	}
int cache_filters(const struct cli *cli, kiln_attr *args, int *count);
/* Calls visit for every row of the daemon's cache, in the order of their keys, with a page of rows
 * and the row's number in it.  Prints what failed. */
typedef void (*cache_row_visit)(const kiln_reply *reply, int row, void *arg);
int cache_rows_each(struct cli *cli, kiln_client *client, cache_row_visit visit, void *arg);

/* ---- cache_failed.c ---- */

/* `kiln cache ls --failed` */
int failed_list(struct cli *cli, int64_t limit);
/* Prints the lines that `kiln cache show` has for a failed compile only. */
void failed_print(const kiln_reply *reply);

#endif
