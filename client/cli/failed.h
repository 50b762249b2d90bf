/*
 * failed.h: what `kiln cache` shows of compiles that failed.
 */
#ifndef KILN_CLIENT_KILN_FAILED_H
#define KILN_CLIENT_KILN_FAILED_H

#include "cli.h"

/* `kiln cache ls --failed` */
int failed_list(struct cli *cli, int64_t limit);
/* The lines that `kiln cache show` has for a failure only. */
void failed_print(const kiln_reply *reply);

#endif
