/*
 * output: reads a child's standard output and error, passes whole lines on to the daemon's standard
 * error, and keeps the end for the report of the child's death.  A child that writes more than the
 * daemon's standard error takes has to wait; once that has taken nothing for DEADLINE_OUTPUT_US,
 * the child's lines are dropped.  The daemon never waits.  Everything here runs on the loop's
 * thread.
 */
#ifndef KILN_DAEMON_OUTPUT_H
#define KILN_DAEMON_OUTPUT_H

#include <stddef.h>
#include <uv.h>

#define OUTPUT_TAIL 4096

struct output;

/* Makes a pipe.  *end is the child's end: the caller closes it once the child has it.  NULL with
 * errno. */
struct output *output_open(uv_loop_t *loop, int *end);
/* Passes on the last lines of a child that has ended, or drops them where there is no room. */
void output_drain(struct output *output);
/* Reads no more; the output frees itself on the loop.  NULL is fine. */
void output_close(struct output *output);
/* Copies the end of the output, with a zero byte; "" of NULL. */
void output_tail(const struct output *output, char tail[OUTPUT_TAIL]);
/* Writes "JOURNAL_STREAM=...", which tells the child that its lines go to the journal; "": they do
 * not. */
void output_variable(const struct output *output, char variable[64]);

#endif
