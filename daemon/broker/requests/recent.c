/* recent.c: see recent.h.  The memory is made by the first request. */
#include "recent.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"

const char *const recent_part_names[] = {"plan", "look",  "remote", "compile",
										 "load", "queue", "device"};

/* Copies a text, or as much of it as there is room for.  Each call is noted: printing would take
 * the loop longer than all else here. */
static void put_part(char *to, size_t size, const char *text)
{
	const size_t used = strnlen(text, size - 1);
	memcpy(to, text, used);
	to[used] = 0;
}

/* Keeps the part of a manifest's line that follows the operator's name.  A map's statement stays
 * out: it is its program's own. */
void recent_put_problem(struct recent_call *call, const char *manifest)
{
	const char *rest = manifest ? strchr(manifest, ' ') : NULL;
	if (!rest || !strcmp(call->op, "map"))
		return;
	rest++;
	const size_t size = strlen(rest);
	if (size < RECENT_PROBLEM - 4)
		memcpy(call->problem, rest, size + 1);
	else
		snprintf(call->problem, sizeof(call->problem), "%.*s...",
				 PLAIN_CUT(rest, RECENT_PROBLEM - 4));
}

/* Divides the time up to now. */
static void put_times(struct recent_call *call, uint64_t began_us, const struct recent_parts *parts)
{
	uint64_t now = util_now_us(), known = 0;
	memcpy(call->us, parts->us, sizeof(call->us));
	for (int i = RECENT_PLAN + 1; i < RECENT_PARTS; i++)
		known += parts->us[i];
	const uint64_t took = now - began_us;
	call->us[RECENT_QUEUE] += took > known ? took - known : 0;
	for (int i = 0; i < RECENT_PARTS; i++)
		call->total_us += call->us[i];
}

static void find_fastest(struct recent *recent)
{
	recent->fastest = 0;
	for (int i = 1; i < recent->slow_count; i++)
		if (recent->slow[i].total_us < recent->slow[recent->fastest].total_us)
			recent->fastest = i;
}

static void keep_slow(struct recent *recent, const struct recent_call *call)
{
	if (recent->slow_count < RECENT_SLOW)
		recent->slow[recent->slow_count++] = *call;
	else if (call->total_us > recent->slow[recent->fastest].total_us)
		recent->slow[recent->fastest] = *call;
	else
		return;
	find_fastest(recent);
}

struct recent *recent_open(struct broker *broker)
{
	if (!broker->recent)
		broker->recent = calloc(1, sizeof(*broker->recent));
	return broker->recent;
}

void recent_keep(struct broker *broker, struct recent_call *call)
{
	struct recent *recent = recent_open(broker);
	if (!recent)
		return;
	call->number = ++recent->count;
	recent->calls[(call->number - 1) % RECENT_CALLS] = *call;
	keep_slow(recent, call);
}

void recent_add(struct session *session, const struct recent_about *about,
				const struct recent_parts *parts)
{
	struct broker *broker = session->broker;
	struct recent_call call = {.ended_s = (double)util_wall_s() + util_wall_part() / 65536.0,
							   .session = session->id,
							   .uid = session->uid,
							   .pid = session->pid,
							   .asked = about->asked,
							   .origin = parts->origin ? parts->origin : "",
							   .status = about->status};
	put_part(call.program, sizeof(call.program), broker->accounts.rows[session->account].name);
	put_part(call.op, sizeof(call.op), about->op);
	put_part(call.choice, sizeof(call.choice), about->choice);
	recent_put_problem(&call, about->manifest);
	put_times(&call, about->began_us, parts);
	recent_keep(broker, &call);
}

static int by_time(const void *a, const void *b)
{
	const struct recent_call *const *x = a, *const *y = b;
	if ((*x)->total_us != (*y)->total_us)
		return (*x)->total_us < (*y)->total_us ? 1 : -1;
	return (*x)->number < (*y)->number ? -1 : 1;
}

int recent_slowest(const struct broker *broker, const struct recent_call *rows[RECENT_SLOW])
{
	const struct recent *recent = broker->recent;
	int count = recent ? recent->slow_count : 0;
	for (int i = 0; i < count; i++)
		rows[i] = &recent->slow[i];
	if (count)
		qsort(rows, (size_t)count, sizeof(*rows), by_time);
	return count;
}

void recent_forget_slow(struct broker *broker)
{
	if (broker->recent)
		broker->recent->slow_count = 0;
}
