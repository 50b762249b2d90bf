/*
 * top.h: the two halves of 'kiln top': top.c owns the terminal, top_frame.c makes text of the
 * daemon's answers.
 */
#ifndef KILN_CLI_TOP_H
#define KILN_CLI_TOP_H

#include "client/cli/cli.h"

#include <stdio.h>

/* One answer of the daemon, and when it came. */
struct top_sample {
	kiln_reply *reply;
	double at_us;
};

/* Writes the text of one frame, as many bytes as fit.  Rates are those between the two samples.
 * Lines end with a newline and have only printing characters. */
void top_frame(const struct top_sample *before, const struct top_sample *now, FILE *out);
/* Prints the same as a JSON object. */
void top_json(const struct top_sample *before, const struct top_sample *now);

#endif
