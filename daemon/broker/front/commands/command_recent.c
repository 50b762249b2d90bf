/*
 * command_recent.c: recent and slow show the operator what was asked for, and where its time went.
 * Both answer at once; whoever reads too slowly is told how much it missed.  Calls through lanes
 * are read by the requests of those who follow: while nobody does, nothing reads them.
 */
#include <string.h>

#include "command.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "daemon/broker/devices/events.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/requests/recent.h"

#define RECENT_SHOWN 256                /* rows of an answer */
#define RECENT_LANES (RECENT_CALLS / 2) /* calls of a device process at a time */
#define RECENT_DESCRIBE_US 2000         /* then calls are shown without their names */

/* ---- Calls through lanes ---- */

struct lane_read {
	struct broker *broker;
	double wall_s;
	uint64_t now_us;
};

/* Puts what the call was, unless it is forgotten. */
static void put_about(const struct lane_read *read, struct device_handle *handle,
					  const struct handle_past *past, struct recent_call *call)
{
	struct handle_about room = {0};
	const struct handle_about *about = handle_noted(handle, HANDLE_LANE, past->name);
	if (!about && util_now_us() - read->now_us < RECENT_DESCRIBE_US &&
		read->broker->events->describe_call(read->broker, handle, past->stream, past->name, &room))
		about = &room;
	if (!about)
		return;
	call->session = about->session;
	call->pid = about->pid;
	/* Its session may have ended. */
	snprintf(call->program, sizeof(call->program), "%s",
			 read->broker->accounts.rows[about->account].name);
	if (about->calls) {
		snprintf(call->op, sizeof(call->op), "graph");
		return;
	}
	snprintf(call->op, sizeof(call->op), "%s", about->op);
	snprintf(call->choice, sizeof(call->choice), "%s", about->choice);
	call->origin = strcmp(about->choice, "generic") ? "loaded" : "generic";
	recent_put_problem(call, about->line);
}

/* A message's call was noted when it was answered. */
static void on_ended(void *arg, struct device_handle *handle, const struct handle_past *past)
{
	const struct lane_read *read = arg;
	struct recent_call call = {.uid = handle_uid(handle), .asked = "lane", .origin = ""};
	if (!past->stream)
		return;
	put_about(read, handle, past, &call);
	call.ended_s = read->wall_s - (double)(past->age_us - past->took_us) / 1e6;
	call.status = past->status;
	call.us[RECENT_DEVICE] = call.total_us = past->took_us;
	recent_keep(read->broker, &call);
}

/* Notes the calls of lanes that have ended since the last time.  Those that were missed have
 * numbers, too. */
static void read_lanes(struct broker *broker, bool first)
{
	struct recent *recent = recent_open(broker);
	struct lane_read read = {broker, (double)util_wall_s() + util_wall_part() / 65536.0,
							 util_now_us()};
	if (!recent || (recent->lanes_us && read.now_us - recent->lanes_us < PAUSE_LANES_MS * 1000))
		return;
	if (first && read.now_us - recent->lanes_us > PAUSE_LANES_LEFT_MS * 1000)
		handles_read_no_more(broker, HANDLE_RECENT);
	recent->lanes_us = read.now_us;
	recent->count += handles_read(broker, HANDLE_RECENT, RECENT_LANES, on_ended, &read);
}

/* ---- Requests ---- */

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
	read_lanes(session->broker, !wire_get(&message->root, "seen"));
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
	for (int rows = 0; rows < RECENT_SHOWN && seen < count; seen++) {
		const struct recent_call *call = &recent->calls[seen % RECENT_CALLS];
		const bool there = call->number == seen + 1;
		if (there)
			put_call(&out, call);
		rows += there;
		lost += !there;
	}
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
