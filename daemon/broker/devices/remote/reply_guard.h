/*
 * reply_guard: filters the answers that reach hiredis, for remote_link.c and remote_poll.c alone.
 * hiredis ends the process at an answer that nothing asked for, and keeps all bytes that come.  A
 * Redis that is not trusted must have the power of neither.
 */
#ifndef KILN_DAEMON_REMOTE_GUARD_H
#define KILN_DAEMON_REMOTE_GUARD_H

#include <stdbool.h>

struct redisAsyncContext;

/* Returns whether the connection waits for an answer. */
typedef bool (*remote_expects)(const struct redisAsyncContext *context);

/* From now on an answer that nothing waits for, or a list, ends the connection, with an errstr that
 * says so. */
void remote_guard(struct redisAsyncContext *context, remote_expects expects);
/* Has the connection end, with such an errstr, where the bytes left of earlier reads, which begin
 * one answer, are more than an answer has. */
void remote_guard_size(struct redisAsyncContext *context);

#endif
