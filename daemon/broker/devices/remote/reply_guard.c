/*
 * reply_guard.c: stands between hiredis's parser and the objects that it makes of answers.  The
 * guard makes no object of an unexpected answer, and hiredis ends a connection without an object.
 */
#include "reply_guard.h"

#include <hiredis/async.h>
#include <stdio.h>

#include "remote_link.h"

/* usual: hiredis's own functions, which all connections share. */
static redisReplyObjectFunctions usual, guarded;
static remote_expects expected_by;

static bool expected(const redisReadTask *task)
{
	return expected_by(task->privdata);
}

static void *make_string(const redisReadTask *task, char *bytes, size_t size)
{
	return expected(task) ? usual.createString(task, bytes, size) : NULL;
}

static void *make_integer(const redisReadTask *task, long long value)
{
	return expected(task) ? usual.createInteger(task, value) : NULL;
}

static void *make_nil(const redisReadTask *task)
{
	return expected(task) ? usual.createNil(task) : NULL;
}

/* No command of ours has an answer of these kinds. */
#if HIREDIS_MAJOR < 1
static void *make_list(const redisReadTask *task, int count)
#else
static void *make_list(const redisReadTask *task, size_t count)
#endif
{
	(void)task;
	(void)count;
	return NULL;
}

#if HIREDIS_MAJOR >= 1
static void *make_double(const redisReadTask *task, double value, char *text, size_t size)
{
	(void)task;
	(void)value;
	(void)text;
	(void)size;
	return NULL;
}

static void *make_bool(const redisReadTask *task, int value)
{
	(void)task;
	(void)value;
	return NULL;
}
#endif

void remote_guard_size(redisAsyncContext *context)
{
	redisReader *reader = context->c.reader;
	if (reader->len - reader->pos > REMOTE_REPLY_MOST && !reader->err) {
		reader->err = REDIS_ERR_PROTOCOL;
		snprintf(reader->errstr, sizeof(reader->errstr), "an answer of more than %zu MiB",
				 REMOTE_REPLY_MOST >> 20);
	}
}

void remote_guard(redisAsyncContext *context, remote_expects expects)
{
	redisReader *reader = context->c.reader;
	usual = *reader->fn;
	guarded = usual;
	guarded.createString = make_string;
	guarded.createArray = make_list;
	guarded.createInteger = make_integer;
	guarded.createNil = make_nil;
#if HIREDIS_MAJOR >= 1
	guarded.createDouble = make_double;
	guarded.createBool = make_bool;
#endif
	reader->fn = &guarded;
	reader->privdata = context;
	expected_by = expects;
}
