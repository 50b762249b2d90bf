/*
 * interrupt.h: Ctrl-C of a command that works in pieces: it says how far it got before it ends.
 */
#ifndef KILN_CLI_INTERRUPT_H
#define KILN_CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on the first SIGINT or SIGTERM is noted, and one that comes later ends the process.
 * A signal that comes twice within a quarter of a second counts once. */
void interrupt_watch(void);
bool interrupt_seen(void);
/* Says on standard error that this was interrupted, and ends the process as the signal does. */
void interrupt_end(const char *what);

#endif
