/* call.c: holds and frees prepared calls, and keeps the tables of what a session owns. */
#include "call_state.h"
#include "lane.h"

#include <stdlib.h>

#include "daemon/base/list.h"
#include "daemon/base/util.h"
#include "daemon/broker/kernels/tier.h"

int device_check(const struct session *session, uint64_t kind, const char *what, const char *remedy,
				 char error[KERNEL_ERROR_MAX])
{
	const struct device_entry *device = session->device;
	if (!device || device->kind == kind)
		return KILN_OK;
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EDEVICE,
					 "%s was for %s as it was, %s; it is %s, %s now: %s", what, device->info.name,
					 device->was, device->info.model, device->info.limits.target, remedy);
}

int call_check_device(const struct session *session, const struct call *call, const char *what,
					  const char *remedy, char error[KERNEL_ERROR_MAX])
{
	return device_check(session, call->device, what, remedy, error);
}

enum call_kind call_kind(const struct call *call)
{
	if (call->graph)
		return CALL_GRAPH;
	return call->variants[0]->raw ? CALL_RAW : CALL_PLANNED;
}

struct kernel_ref *call_raw(const struct call *call)
{
	return kernel_hold(call->variants[0]);
}

uint64_t call_id(const struct call *call)
{
	return call->id;
}

const struct kernel_problem *call_problem(const struct call *call)
{
	return &call->problem;
}

int call_given(const struct call *call)
{
	return call->given;
}

struct call *call_new(struct session *session, uint64_t id, const struct kernel_problem *problem,
					  int given, uint64_t device, struct kernel_ref *ref)
{
	struct call *call = malloc(sizeof(*call));
	if (!call)
		return NULL;
	memset(call, 0, offsetof(struct call, problem));
	call->id = id ? id : broker_id(session->broker);
	call->holders = 1;
	kernel_problem_copy(&call->problem, problem);
	call->given = given;
	call->device = device;
	call->variants[call->variant_count++] = kernel_hold(ref);
	if (!call_keep(session, call)) {
		call_drop(call);
		return NULL;
	}
	tier_attach(session, call->id, ref);
	return call;
}

struct call *call_hold(struct call *call)
{
	call->holders++;
	return call;
}

void call_drop(struct call *call)
{
	if (!call || --call->holders > 0)
		return;
	for (int i = 0; i < call->variant_count; i++)
		kernel_drop(call->variants[i]);
	graph_free(call->graph);
	free(call);
}

/* ---- The session's table ---- */

struct call *call_find(const struct session *session, uint64_t id)
{
	return map_get_id(&session->owned->calls, id);
}

struct call *call_next(const struct session *session, size_t *cursor)
{
	return map_next(&session->owned->calls, cursor);
}

bool call_keep(struct session *session, struct call *call)
{
	const bool kept = map_put_id(&session->owned->calls, call->id, call) == 0;
	lane_grant(session);
	return kept;
}

void call_leave_queue(struct session *session, struct call *call)
{
	if (call->waits)
		QUEUE_REMOVE(session->owned->unplanned, session->owned->last_unplanned, call);
	call->waits = false;
}

void call_forget(struct session *session, uint64_t id)
{
	struct call *call = map_remove_id(&session->owned->calls, id);
	if (call)
		call_leave_queue(session, call);
	call_drop(call);
	lane_grant(session);
}

/* ---- What a session owns ---- */

bool owned_open(struct session *session)
{
	session->owned = calloc(1, sizeof(*session->owned));
	return session->owned != NULL;
}

struct owned_counts owned_count(const struct session *session)
{
	const struct owned *owned = session->owned;
	return (struct owned_counts){.buffers = owned->buffers.count,
								 .calls = owned->calls.count,
								 .held_bytes = owned->held_bytes,
								 .graph_launches = owned->graph_launches};
}

void owned_free(struct session *session)
{
	struct owned *owned = session->owned;
	size_t cursor = 0;
	struct buffer *buffer;
	struct call *call;
	if (!owned)
		return;
	while ((buffer = map_next(&owned->buffers, &cursor))) {
		buffer_release(buffer);
		buffer_delete(buffer);
	}
	cursor = 0;
	while ((call = map_next(&owned->calls, &cursor))) {
		graph_orphan(call);
		call_drop(call);
	}
	map_free(&owned->buffers);
	map_free(&owned->calls);
	free(owned);
	session->owned = NULL;
}
