/*
 * reply_guard: filters the answers that reach hiredis, for remote_link.c alone.  hiredis ends the
 * process at an answer that nothing asked for, and keeps all bytes that come.  A Redis that is not
 * trusted must have the power of neither.
 */
#ifndef KILN_DAEMON_REMOTE_GUARD_H
#define KILN_DAEMON_REMOTE_GUARD_H

#include <stdbool.h>

struct redisAsyncContext;

/* Returns whether the connection waits for an answer. */
typedef bool (*remote_expects)(const struct redisAsyncContext *context);

/* Guards a connection that is attached to its loop.  From now on an answer that nothing waits for,
 * a list, or more bytes than an answer has end the connection, with an errstr that says so. */
void remote_guard(struct redisAsyncContext *context, remote_expects expects);

#endif
