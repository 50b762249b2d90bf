/*
 * remote_poll: has the loop watch a connection of hiredis, for remote_link.c alone.  It stands for
 * hiredis's own adapter, which in version 0.14 leaves a socket with an error unread and unwatched:
 * a Redis that was killed with unread bytes would seem to be there.
 */
#ifndef KILN_DAEMON_REMOTE_POLL_H
#define KILN_DAEMON_REMOTE_POLL_H

#include <stdbool.h>
#include <uv.h>

struct redisAsyncContext;

/* False, and nothing is watched, without memory. */
bool remote_poll_attach(struct redisAsyncContext *context, uv_loop_t *loop);

#endif
