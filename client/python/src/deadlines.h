/*
 * deadlines.h: how long the Python package waits by itself; docs/deadlines.md has the table.
 */
#ifndef KILN_PYTHON_DEADLINES_H
#define KILN_PYTHON_DEADLINES_H

#define DEADLINE_COPIED_MS 30000 /* a call on copies, where kiln.connect() has no timeout */
#define PAUSE_SIGNALS_MS 20      /* between two looks for Ctrl-C; and two tries to connect */

#endif
