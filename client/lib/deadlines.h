/*
 * deadlines.h: how long libkiln waits where the program has not said; docs/deadlines.md has the
 * table.  A program says so by kiln_connect_options.timeout_ms and kiln_wait(), the command by
 * --timeout.
 */
#ifndef KILN_CLIENT_DEADLINES_H
#define KILN_CLIENT_DEADLINES_H

#define DEADLINE_CALL_MS 30000 /* connecting, and every request */
#define DEADLINE_AUTOSTART_MS \
	1000 /* the daemon that was started has ended; another one may answer yet */
#define PAUSE_CONNECT_FIRST_MS 2 /* between the first two tries to connect; then twice that, ... */
#define PAUSE_CONNECT_LAST_MS 20
#define PAUSE_ORDER_SPIN_US 12     /* for the end of a call that follows an idle CUDA stream */
#define PAUSE_AUTOSTART_IDLE "600" /* seconds; --idle-exit of a daemon that libkiln started */

#endif
