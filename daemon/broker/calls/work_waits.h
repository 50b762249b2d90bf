/* work_waits: says what the works of a session wait for. */
#ifndef KILN_DAEMON_WORK_WAITS_H
#define KILN_DAEMON_WORK_WAITS_H

#include "daemon/broker/devices/wait_note.h"
#include "daemon/broker/requests/session.h"

struct work_wait {
	uint64_t ticket, since_us;
	const char *asked;     /* the request that it is: "submit" */
	const void *owner;     /* a note of this owner says more; NULL: there is none */
	struct wait_note note; /* holds where there is no such note */
};
typedef void (*work_visit)(void *arg, const struct work_wait *wait);
void works_wait(const struct session *session, work_visit visit, void *arg);

#endif
