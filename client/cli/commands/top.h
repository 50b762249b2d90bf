/*
 * top.h: between the two files of `kiln top`: top.c, which owns the terminal, and
 * top_frame.c, which makes text of what the daemon says.
 */
#ifndef KILN_CLI_TOP_H
#define KILN_CLI_TOP_H

#include "client/cli/cli.h"

#include <stdio.h>

/* What the daemon said, and when. */
struct top_sample {
	kiln_reply *reply;
	double at_us;
};

/* The text of one frame: rates are those between the two samples.  As many bytes as fit; lines end
 * with '\n' and have only printing characters. */
void top_frame(const struct top_sample *before, const struct top_sample *now, FILE *out);
/* The same as a JSON object, on standard output. */
void top_json(const struct top_sample *before, const struct top_sample *now);

#endif
