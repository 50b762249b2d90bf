/*
 * remote_name.h: a host's name becomes an address, on a thread of its own.  A name server that is
 * gone keeps who asks for half a minute; libuv's threads would keep the daemon as long at its end.
 */
#ifndef KILN_DAEMON_REMOTE_NAME_H
#define KILN_DAEMON_REMOTE_NAME_H

#include <uv.h>

struct remote_name;

/* address: in numbers; "": there is none, and why says why. */
typedef void (*remote_named)(void *arg, const char *address, const char *why);

/* named is called exactly once, from the loop and never from inside, unless remote_name_leave came
 * first.  NULL without memory or a thread, or where many are looked for that are not found. */
struct remote_name *remote_name_look(uv_loop_t *loop, const char *host, remote_named named,
									 void *arg);
/* Nothing waits for the thread, which ends by itself.  NULL is fine. */
void remote_name_leave(struct remote_name *name);

#endif
