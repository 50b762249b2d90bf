/*
 * lane_desk.c: has the device process plan the first call of a shape.  The client lays the problem
 * on the desk of its lane, launches the call through the lane, and tells the daemon of it after
 * that: so nobody sleeps and is woken on the way of the call.
 */
#include "buffer.h"
#include "call.h"
#include "client.h"
#include "error.h"
#include "lane.h"
#include "lane_state.h"
#include "ticket.h"

#include <stdlib.h>
#include <string.h>

/* ---- Asking ---- */

/* Whether the device process knows all that the tensors lie in. */
static bool are_known(const struct lane *lane, const kiln_tensor *tensors, int count)
{
	for (int i = 0; i < count; i++)
		if (tensors[i].dtype != KILN_DTYPE_NONE &&
			(!tensors[i].buffer || tensors[i].buffer->generation != lane->generation))
			return false;
	return true;
}

static bool desk_is_free(const struct lane *lane)
{
	return atomic_load_explicit(&lane->memory->desk.answered, memory_order_acquire) ==
		   lane->desk_asked;
}

/* A launch by message that is under way comes before the call, so the call goes by message, too. */
static bool has_desk(const struct kiln_client *client)
{
	const struct lane *lane = client->lane;
	return lane->state == LANE_OPEN && lane->memory->header.desk != 0 && !lane->desk_shut &&
		   client->tickets.messages == 0 && client->late_count == 0 && desk_is_free(lane) &&
		   lane_has_room(lane, 1);
}

/* Gives back a call that was bound after its client had given it up: nobody tells of it. */
static void release_late(struct kiln_client *client)
{
	struct lane *lane = client->lane;
	struct request request;
	if (!lane->desk_late || !desk_is_free(lane))
		return;
	lane->desk_late = false;
	const uint64_t call = lane->memory->desk.call;
	if (call == 0)
		return;
	link_begin(client, &request, "release");
	wire_put_uint(&request.out, "call", call);
	lane_put_tail(client, &request.out);
	(void)link_post(client, &request, SIZE_MAX);
}

/* Reads the answer as learn() in lane.c does: the other side may write anything there. */
static bool read_answer(struct lane *lane, int count, struct kiln_call *call)
{
	const struct lane_desk *desk = &lane->memory->desk;
	struct call_way *way = &call->ways[0];
	const uint32_t operands = desk->operand_count;
	call->id = desk->call;
	if (call->id == 0 || operands < (uint32_t)count || operands > KILN_MAX_OPERANDS)
		return false;
	way->bound = call->id;
	way->generation = lane->generation;
	way->reports = desk->reports != 0;
	way->operand_count = (int)operands;
	for (int i = 0; i < way->operand_count; i++) {
		const struct lane_extent extent = desk->extents[i];
		way->alignments[i] = extent.alignment > 0 ? extent.alignment : 1;
		way->ranges[i] = (struct byte_range){0, extent.bytes, extent.period, extent.width};
		way->overs[i] = extent.over;
	}
	call->way_count = 1;
	return true;
}

int lane_plan(struct kiln_client *client, const struct request *request, const kiln_tensor *tensors,
			  int count, int64_t deadline, struct kiln_call *call)
{
	struct lane *lane = client->lane;
	release_late(client);
	if (!has_desk(client) || !are_known(lane, tensors, count))
		return LANE_NOT;
	struct lane_desk *desk = &lane->memory->desk;
	size_t size = wire_copy(&request->out, desk->problem, sizeof(desk->problem));
	if (size == 0)
		return LANE_NOT;
	atomic_store_explicit(&desk->bytes, (uint32_t)size, memory_order_relaxed);
	lane_ask_desk(lane->memory, ++lane->desk_asked, lane->next);
	lane_wake_device(lane);
	int status = lane_wait_desk(client, deadline);
	lane->desk_late = status == KILN_ETIMEDOUT;
	if (status == KILN_ETIMEDOUT)
		return error_set(status, "the device process did not plan the call before the deadline");
	return status == KILN_OK && lane->memory && read_answer(lane, count, call) ? KILN_OK : LANE_NOT;
}

/* ---- Telling the daemon ---- */

static void take(struct question *question, int64_t status, struct answer *answer)
{
	struct kiln_call *call = question->asker;
	(void)answer;
	call->told = NULL;
	/* A lane that is gone has no way either. */
	call->refused = status != KILN_OK;
	if (call->refused) {
		call->way_count = 0;
		call->client->lane->desk_shut = true;
	}
	free((struct call_told *)question);
}

bool lane_note_planned(struct kiln_call *call, struct request *request)
{
	struct call_told *told = calloc(1, sizeof(*told));
	if (!told)
		return false;
	wire_put_uint(&request->out, "bound", call->id);
	told->question = (struct question){.id = request->id, .asker = call, .take = take};
	told->request = *request;
	call->told = told;
	return true;
}

void lane_tell(struct kiln_call *call)
{
	struct kiln_client *client = call->client;
	struct call_told *told = call->told;
	if (!told || told->posted)
		return;
	/* A link that turns out to be dead ends the question, and frees it. */
	struct request request = told->request;
	told->posted = true;
	link_expect(client, &told->question);
	(void)link_post(client, &request, SIZE_MAX);
	(void)link_drain(client); /* of answers that nobody waits for */
}

int lane_await_told(struct kiln_call *call, int64_t deadline)
{
	int status = KILN_OK;
	while (call->told && status == KILN_OK)
		status = link_wait(call->client, deadline);
	return status;
}

void lane_forget_told(struct kiln_call *call)
{
	struct call_told *told = call->told;
	if (!told)
		return;
	if (told->posted)
		link_withdraw(call->client, &told->question);
	else
		wire_out_free(&told->request.out);
	free(told);
	call->told = NULL;
}
