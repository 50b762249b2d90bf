/*
 * reply_guard.h: what a Redis may say, for link.c alone.  hiredis ends the process when an
 * answer comes that nothing was asked for, and keeps as many bytes as are sent; a Redis that is
 * trusted with nothing must have neither.
 */
#ifndef KILN_DAEMON_REMOTE_GUARD_H
#define KILN_DAEMON_REMOTE_GUARD_H

#include <stdbool.h>

struct redisAsyncContext;

/* Whether an answer is waited for on this connection. */
typedef bool (*remote_expects)(const struct redisAsyncContext *context);

/* Once hiredis is attached to its loop.  From now on an answer that nobody waits for, a list, and
 * more bytes than an answer has end the connection, with an errstr that says so. */
void remote_guard(struct redisAsyncContext *context, remote_expects expects);

#endif
