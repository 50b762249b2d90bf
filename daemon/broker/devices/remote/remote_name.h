/*
 * remote_name: looks up a host's address on a thread of its own.  A name server that is gone blocks
 * its asker for half a minute, and the end of the daemon would wait for libuv's threads.
 */
#ifndef KILN_DAEMON_REMOTE_NAME_H
#define KILN_DAEMON_REMOTE_NAME_H

#include <uv.h>

struct remote_name;

/* address: in numbers; "": not found, for the reason `why`. */
typedef void (*remote_named)(void *arg, const char *address, const char *why);

/* Calls named exactly once, from the loop and never from inside, unless remote_name_leave() comes
 * first.  NULL without memory or a thread, or when a name server already blocks several threads. */
struct remote_name *remote_name_look(uv_loop_t *loop, const char *host, remote_named named,
									 void *arg);
/* Forgets the lookup; its thread ends by itself.  NULL is fine. */
void remote_name_leave(struct remote_name *name);

#endif
