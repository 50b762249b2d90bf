/*
 * deadlines.h: how long libkiln waits where its caller has not said; docs/deadlines.md has the
 * table.  What its caller says is the timeout of kiln_connect_options, of kiln_wait, and --timeout.
 */
#ifndef KILN_CLIENT_DEADLINES_H
#define KILN_CLIENT_DEADLINES_H

#define DEADLINE_CALL_MS 30000     /* of connecting and of every request */
#define DEADLINE_AUTOSTART_MS 1000 /* a daemon that was started has ended: another may answer yet */
#define PAUSE_CONNECT_FIRST_MS 2   /* between two tries to connect: so, twice that, ... */
#define PAUSE_CONNECT_LAST_MS 20
#define PAUSE_AUTOSTART_IDLE "600" /* seconds: --idle-exit of a daemon that a program started */

#endif
