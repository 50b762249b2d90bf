/*
 * sink.h: standard output and error, cleaned of bytes that steer a terminal.
 */
#ifndef KILN_CLI_SINK_H
#define KILN_CLI_SINK_H

#include <stdbool.h>
#include <stdio.h>

/* Cleans all that is printed from now on; false: no memory. */
bool sink_begin(void);
/* Writes the rest of standard output; false: it cannot be written. */
bool sink_end(void);
/* Writes all bytes to a descriptor, as they are; false, and errno, where it cannot be written. */
bool write_all(int fd, const void *bytes, size_t size);
/* Standard output as it is, for an object's bytes. */
FILE *sink_bytes(void);
/* Ways of showing what is printed next on standard output, where that is a terminal that knows
 * colours and NO_COLOR is not set; elsewhere this does nothing. */
enum sink_style { SINK_PLAIN, SINK_BOLD, SINK_GREEN, SINK_YELLOW, SINK_RED };
void sink_style(enum sink_style style);
/* The columns of standard output's terminal; 0: it is none. */
int sink_columns(void);
/* Standard error as it is, for lines of progress. */
FILE *sink_terminal(void);

#endif
