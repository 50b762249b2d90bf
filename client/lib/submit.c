/*
 * submit.c: submits prepared calls, one or several together, on a stream of the client's or in
 * order with one of the program's, through the lane or by message.
 */
#include "submit.h"
#include "buffer.h"
#include "call.h"
#include "client.h"
#include "cuda_order.h"
#include "error.h"
#include "lane.h"
#include "link.h"
#include "ticket.h"

#include <stdio.h>

/* ---- What is asked for ---- */

int call_check_operands(const kiln_call *call, const kiln_operand *operands, int count)
{
	if (call->raw) {
		return error_set(KILN_EINVAL, "the call is a kernel of the program's own: it is submitted "
									  "with kiln_submit_raw()");
	}
	if (call->tensor_count == 0 && count != 0) {
		return error_set(KILN_EINVAL,
						 "the call is a graph, whose calls have their operands: it is submitted "
						 "with none, and not %d",
						 count);
	}
	if (count != call->tensor_count || (count > 0 && !operands)) {
		return error_set(KILN_EINVAL,
						 "the call was prepared for %d tensors and is submitted with %d operands",
						 call->tensor_count, count);
	}
	for (int i = 0; i < count; i++) {
		const kiln_buffer *buffer = operands[i].buffer;
		bool left_out = call->left_out >> i & 1;
		if (left_out != (!buffer)) {
			return error_set(KILN_EINVAL, "operand %d %s", i,
							 left_out ? "has a buffer, and the call was prepared without it: pass "
										"NULL, or prepare a call with it"
									  : "has no buffer");
		}
		if (buffer && buffer->client != call->client)
			return error_set(KILN_EINVAL, "operand %d lies in a buffer of another client", i);
	}
	return KILN_OK;
}

int call_check_work(const kiln_client *client, const kiln_work *works, int i)
{
	if (works[i].call && works[i].call->client == client)
		return KILN_OK;
	return error_set(KILN_EINVAL, "works[%d].call is %s", i,
					 works[i].call ? "one of another client" : "NULL");
}

int call_blame(int status, int i)
{
	char text[ERROR_MAX];
	snprintf(text, sizeof(text), "%s", kiln_errmsg());
	return error_set(status, "works[%d]: %s", i, text);
}

void call_put_operands(struct wire_out *out, const kiln_operand *operands, int count)
{
	wire_list_begin(out, "operands");
	for (int i = 0; i < count; i++) {
		const kiln_buffer *buffer = operands[i].buffer;
		wire_list_begin(out, NULL);
		wire_put_uint(out, NULL, !buffer ? 0 : buffer->id);
		wire_put_uint(out, NULL, !buffer ? 0 : operands[i].offset);
		wire_list_end(out);
	}
	wire_list_end(out);
}

/* ---- What is followed ---- */

bool call_follows_failure(const kiln_client *client, kiln_ticket after)
{
	const struct ticket *ticket = after != 0 ? ticket_find(&client->tickets, after) : NULL;
	/* A batch that has failed may not be DONE yet. */
	return ticket_failed(&client->tickets, after) || (ticket && ticket->status != KILN_OK);
}

int call_check_after(const kiln_client *client, kiln_ticket after)
{
	return after <= client->next_id
			   ? KILN_OK
			   : error_set(KILN_ENOENT,
						   "after is %llu, which no call of this client had for a ticket",
						   (unsigned long long)after);
}

/* Adds "after".  The daemon knows nothing of the lane.  It knows a batch by its calls, whose ids
 * follow the batch's own, and whose last one follows all others. */
static void put_after(const kiln_client *client, struct wire_out *out, kiln_ticket after)
{
	const struct ticket *ticket = ticket_find(&client->tickets, after);
	if (after == 0 || (ticket && ticket->lane))
		return;
	wire_put_uint(out, "after", ticket ? after + (uint64_t)ticket->parts : after);
}

int call_canceled(kiln_client *client, kiln_ticket after, kiln_ticket *out)
{
	char text[96];
	kiln_ticket id = ++client->next_id;
	if (ticket_add(&client->tickets, id) != KILN_OK)
		return error_set(KILN_ENOMEM, "no memory for a ticket");
	snprintf(text, sizeof(text), "ticket %llu, which this call follows, did not succeed",
			 (unsigned long long)after);
	ticket_finish(&client->tickets, ticket_find(&client->tickets, id), KILN_ECANCELED, text, NULL);
	*out = id;
	return KILN_OK;
}

/* ---- By message ---- */

int call_post(kiln_client *client, struct request *request, kiln_ticket after, kiln_ticket *out)
{
	put_after(client, &request->out, after);
	if (ticket_add(&client->tickets, request->id) != KILN_OK) {
		wire_out_free(&request->out);
		return error_set(KILN_ENOMEM, "no memory for a ticket");
	}
	int status = link_post(client, request, LINK_QUEUE_MAX);
	if (status != KILN_OK) {
		ticket_remove(&client->tickets, ticket_find(&client->tickets, request->id));
		return status;
	}
	*out = request->id;
	return KILN_OK;
}

static void put_submit(struct request *request, const kiln_work *work,
					   const struct submission *what)
{
	kiln_client *client = work->call->client;
	link_begin(client, request, "submit");
	wire_put_uint(&request->out, "call", work->call->id);
	call_put_operands(&request->out, work->operands, work->operand_count);
	if (what->stream != 0)
		wire_put_uint(&request->out, "stream", what->stream);
	if (what->again)
		lane_ask(work->call, request, work->operands, work->operand_count);
	lane_put_tail(client, &request->out);
	if (what->follows != 0)
		wire_put_uint(&request->out, "follows", what->follows);
}

/* Posts one call of a batch; each follows the one before it. */
static int post_part(kiln_client *client, const struct submission *what, kiln_ticket batch, int i)
{
	struct request request;
	struct submission how = *what;
	how.follows = i == 0 ? what->follows : 0;
	put_submit(&request, &what->works[i], &how);
	put_after(client, &request.out, i == 0 ? what->after : request.id - 1);
	if (ticket_add_part(&client->tickets, request.id, batch, i) != KILN_OK) {
		wire_out_free(&request.out);
		return error_set(KILN_ENOMEM, "no memory for a ticket");
	}
	int status = link_post(client, &request, i == 0 ? LINK_QUEUE_MAX : SIZE_MAX);
	struct ticket *part = ticket_find(&client->tickets, request.id);
	if (status != KILN_OK && part)
		ticket_remove(&client->tickets, part);
	return status;
}

/* Calls that could not be posted end at once. */
static int post_parts(kiln_client *client, const struct submission *what, kiln_ticket batch)
{
	int posted = 0, status = KILN_OK;
	while (posted < what->count && status == KILN_OK) {
		status = post_part(client, what, batch, posted);
		posted += status == KILN_OK;
	}
	for (int i = posted; posted > 0 && i < what->count; i++) {
		ticket_finish_part(&client->tickets, ticket_find(&client->tickets, batch), i, status,
						   kiln_errmsg(), 0);
	}
	return posted > 0 ? KILN_OK : status;
}

static int submit_parts(kiln_client *client, const struct submission *what, kiln_ticket *out)
{
	kiln_ticket batch = ++client->next_id;
	if (ticket_add_batch(&client->tickets, batch, what->count) != KILN_OK)
		return error_set(KILN_ENOMEM, "no memory for a ticket");
	int status = post_parts(client, what, batch);
	if (status == KILN_OK) {
		*out = batch;
		return KILN_OK;
	}
	ticket_remove(&client->tickets, ticket_find(&client->tickets, batch));
	return status;
}

static int submit_message(kiln_client *client, const struct submission *what, kiln_ticket *out)
{
	struct request request;
	int status = lane_settle(client, what->follows, false, client_deadline(client));
	if (status != KILN_OK)
		return status;
	if (call_follows_failure(client, what->after))
		return call_canceled(client, what->after, out);
	if (what->count > 1)
		return submit_parts(client, what, out);
	put_submit(&request, &what->works[0], what);
	return call_post(client, &request, what->after, out);
}

/* Waits in place of the program's CUDA stream. */
static int wait_on_host(kiln_client *client, kiln_ticket ticket)
{
	int status = call_await(client, ticket, client_deadline(client));
	if (status != KILN_ETIMEDOUT)
		return KILN_OK; /* the ticket has the result */
	return call_overdue(client, ticket_find(&client->tickets, ticket));
}

/* Submits by message, and waits on the host where the stream cannot. */
static int submit_on_host(kiln_client *client, const struct submission *what, kiln_ticket *out)
{
	int status = order_host(what->cuda_stream);
	if (status == KILN_OK)
		status = submit_message(client, what, out);
	return status == KILN_OK ? wait_on_host(client, *out) : status;
}

/* ---- Either way ---- */

/* The lane does not take the calls.  One that the daemon has to be told of comes alone. */
static int submit_elsewhere(kiln_client *client, const struct submission *what, kiln_ticket *out)
{
	struct kiln_call *call = what->works[0].call;
	lane_tell(call);
	int status = lane_await_told(call, client_deadline(client));
	if (status == KILN_ETIMEDOUT)
		return error_set(status, "kilnd at %s did not take the call before the deadline",
						 client->path);
	if (status != KILN_OK)
		return link_dead(client);
	if (call->refused)
		return CALL_REFUSED;
	return what->cuda ? submit_on_host(client, what, out) : submit_message(client, what, out);
}

static int submit(kiln_client *client, struct submission *what, kiln_ticket *out)
{
	int status = call_check_after(client, what->after);
	if (status == KILN_OK && what->cuda)
		status = order_check(what->cuda_stream);
	for (int i = 0; i < what->count && status == KILN_OK; i++) {
		const kiln_work *work = &what->works[i];
		status = call_check_operands(work->call, work->operands, work->operand_count);
		if (status != KILN_OK && what->count > 1)
			status = call_blame(status, i);
	}
	if (status != KILN_OK)
		return status;
	if (call_follows_failure(client, what->after))
		return call_canceled(client, what->after, out);
	const struct ticket *earlier =
		what->after != 0 ? ticket_find(&client->tickets, what->after) : NULL;
	if (earlier && earlier->lane && earlier->state != TICKET_DONE)
		what->follows = earlier->first + (uint64_t)earlier->parts;
	status = lane_submit(client, what, client->next_id + 1);
	if (status == LANE_NOT)
		return submit_elsewhere(client, what, out);
	kiln_ticket id = ++client->next_id;
	lane_tell(what->works[0].call);
	if (status < 0) {
		call_give_up(client, ticket_find(&client->tickets, id));
		return status;
	}
	*out = id;
	return status == LANE_HOST ? wait_on_host(client, id) : KILN_OK;
}

int call_submit(kiln_call *call, const kiln_operand *operands, int count, kiln_ticket after,
				bool again, kiln_ticket *out)
{
	const kiln_work work = {call, operands, count};
	struct submission what = {.works = &work, .count = 1, .after = after, .again = again};
	return submit(call->client, &what, out);
}

/* ---- Public ---- */

int kiln_submit(kiln_call *call, const kiln_operand *operands, int operand_count, kiln_ticket after,
				kiln_ticket *out)
{
	if (!call || !out)
		return error_set(KILN_EINVAL, "%s is NULL", !call ? "call" : "out");
	kiln_client *client = call->client;
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	return client_leave(client, call_submit(call, operands, operand_count, after, true, out));
}

static int submit_read_options(const kiln_submit_options *options, struct submission *what)
{
	if (!options)
		return KILN_OK;
	if (options->size < sizeof(*options)) {
		return error_set(KILN_EINVAL,
						 "options->size is %zu; it must be sizeof(kiln_submit_options), which is "
						 "%zu here",
						 options->size, sizeof(*options));
	}
	int status = error_if_newer(options, sizeof(*options), "kiln_submit_options");
	if (status != KILN_OK)
		return status;
	if (options->stream >= KILN_STREAMS) {
		return error_set(KILN_EINVAL, "stream is %u; the streams of a client are 0 to %d",
						 options->stream, KILN_STREAMS - 1);
	}
	if ((options->flags & ~KILN_SUBMIT_CUDA) != 0) {
		return error_set(KILN_EINVAL, "options->flags is 0x%x; this libkiln %s knows 0x%x",
						 options->flags, KILN_VERSION_STRING, KILN_SUBMIT_CUDA);
	}
	if (options->cuda_stream && (options->flags & KILN_SUBMIT_CUDA) == 0) {
		return error_set(KILN_EINVAL,
						 "options->cuda_stream is %p, and options->flags lacks "
						 "KILN_SUBMIT_CUDA, without which it would mean nothing",
						 options->cuda_stream);
	}
	what->stream = options->stream;
	what->after = options->after;
	what->cuda = (options->flags & KILN_SUBMIT_CUDA) != 0;
	what->cuda_stream = options->cuda_stream;
	return KILN_OK;
}

static int submit_many(kiln_client *client, const kiln_work *works, int count,
					   const kiln_submit_options *options, kiln_ticket *out)
{
	struct submission what = {.works = works, .count = count, .again = true};
	int status = KILN_OK;
	for (int i = 1; i < count && status == KILN_OK; i++)
		status = call_check_work(client, works, i);
	if (status == KILN_OK)
		status = submit_read_options(options, &what);
	return status == KILN_OK ? submit(client, &what, out) : status;
}

int kiln_submit_many(const kiln_work *works, int count, const kiln_submit_options *options,
					 kiln_ticket *out)
{
	if (!works || !out)
		return error_set(KILN_EINVAL, "%s is NULL", !works ? "works" : "out");
	if (count < 1 || count > KILN_MAX_BATCH) {
		return error_set(KILN_EINVAL, "count is %d; a batch has 1 to %d calls", count,
						 KILN_MAX_BATCH);
	}
	if (!works[0].call)
		return error_set(KILN_EINVAL, "works[0].call is NULL");
	kiln_client *client = works[0].call->client;
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	return client_leave(client, submit_many(client, works, count, options, out));
}

int kiln_submit_with(kiln_call *call, const kiln_operand *operands, int operand_count,
					 const kiln_submit_options *options, kiln_ticket *out)
{
	if (!call || !out)
		return error_set(KILN_EINVAL, "%s is NULL", !call ? "call" : "out");
	const kiln_work work = {call, operands, operand_count};
	return kiln_submit_many(&work, 1, options, out);
}
