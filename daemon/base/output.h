/*
 * output: what a child says on its standard output and error: passed on to the daemon's standard
 * error by whole lines, and the end of it kept, for the report of what the child died of.  A child
 * that says more than the daemon's standard error takes has to wait, until that takes nothing at
 * all for DEADLINE_OUTPUT_US; from then on what it says is dropped.  The daemon never waits.
 */
#ifndef KILN_DAEMON_OUTPUT_H
#define KILN_DAEMON_OUTPUT_H

#include <stddef.h>
#include <uv.h>

#define OUTPUT_TAIL 4096

struct output;

/* *end is the child's end, to be closed once it has it.  NULL with errno. */
struct output *output_open(uv_loop_t *loop, int *end);
/* The child has ended: what it said last is passed on, or dropped where there is no room. */
void output_drain(struct output *output);
/* No more of it; takes NULL.  It frees itself on the loop. */
void output_close(struct output *output);
/* The end of what it said, with a zero byte; "" of NULL. */
void output_tail(const struct output *output, char tail[OUTPUT_TAIL]);
/* "JOURNAL_STREAM=...": by which the child knows that its lines go to the journal; "": they do
 * not. */
void output_variable(const struct output *output, char variable[64]);

#endif
