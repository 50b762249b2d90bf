/*
 * command_recent.c: recent and slow show the operator what was asked for, and where its time went.
 * Both answer at once; whoever reads too slowly is told how much it missed.
 */
#include "command.h"
#include "daemon/broker/requests/recent.h"

#define RECENT_SHOWN 256 /* rows of an answer */

static void put_call(struct wire_out *out, const struct recent_call *call)
{
	wire_map_begin(out, NULL);
	wire_put_uint(out, "number", call->number);
	wire_put_real(out, "ended", call->ended_s);
	wire_put_uint(out, "session", call->session);
	wire_put_uint(out, "uid", call->uid);
	wire_put_int(out, "pid", call->pid);
	wire_put_str(out, "program", call->program);
	wire_put_str(out, "asked", call->asked);
	wire_put_str(out, "op", call->op);
	wire_put_str(out, "problem", call->problem);
	wire_put_str(out, "choice", call->choice);
	wire_put_str(out, "origin", call->origin);
	wire_put_int(out, "status", call->status);
	wire_put_uint(out, "total_us", call->total_us);
	wire_map_begin(out, "parts");
	for (int i = 0; i < RECENT_PARTS; i++)
		wire_put_uint(out, recent_part_names[i], call->us[i]);
	wire_map_end(out);
	wire_map_end(out);
}

void serve_recent(struct session *session, struct wire_in *message)
{
	const struct recent *recent = session->broker->recent;
	const uint64_t count = recent ? recent->count : 0;
	uint64_t seen = wire_get_uint(&message->root, "seen", count), lost = 0;
	struct wire_out out;
	if (seen > count)
		seen = count;
	if (count - seen > RECENT_CALLS) {
		lost = count - RECENT_CALLS - seen;
		seen += lost;
	}
	reply_begin(&out, wire_id(message));
	wire_list_begin(&out, "rows");
	for (int i = 0; i < RECENT_SHOWN && seen < count; i++)
		put_call(&out, &recent->calls[seen++ % RECENT_CALLS]);
	wire_list_end(&out);
	wire_put_uint(&out, "seen", seen);
	wire_put_uint(&out, "lost", lost);
	wire_put_uint(&out, "more", count - seen);
	reply_send(session, &out, NULL, 0);
}

void serve_slow(struct session *session, struct wire_in *message)
{
	const struct recent_call *rows[RECENT_SLOW];
	struct wire_out out;
	int count = recent_slowest(session->broker, rows);
	reply_begin(&out, wire_id(message));
	wire_list_begin(&out, "rows");
	for (int i = 0; i < count; i++)
		put_call(&out, rows[i]);
	wire_list_end(&out);
	reply_send(session, &out, NULL, 0);
	if (wire_get_bool(&message->root, "forget", false) ||
		wire_get_uint(&message->root, "forget", 0))
		recent_forget_slow(session->broker);
}
