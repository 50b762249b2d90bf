/*
 * trace.c: see trace.h.  The numbers are those of perfetto/protos/perfetto/trace:
 * trace_packet.proto, and of track_event/ track_event.proto, track_descriptor.proto and
 * debug_annotation.proto.
 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEQUENCE 1
#define PIECE 1024

enum {
	TRACE_PACKET = 1,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10,
	PACKET_EVENT = 11,
	PACKET_TRACK = 60,
	TRACK_UUID = 1,
	TRACK_NAME = 2,
	TRACK_PARENT = 5,
	EVENT_ANNOTATION = 4,
	EVENT_TYPE = 9,
	EVENT_TRACK = 11,
	EVENT_NAME = 23,
	EVENT_FLOW = 47,
	ANNOTATION_TEXT = 6,
	ANNOTATION_NAME = 10,
};
enum { SLICE_BEGIN = 1, SLICE_END = 2 };

/* A message that is being written; a text that does not fit is cut. */
struct message {
	size_t size;
	char bytes[PIECE];
};

static void put_varint(struct message *message, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		message->bytes[message->size++] = (char)(value | 0x80);
	message->bytes[message->size++] = (char)value;
}

static void put_number(struct message *message, unsigned field, uint64_t value)
{
	put_varint(message, field << 3);
	put_varint(message, value);
}

static void put_fixed(struct message *message, unsigned field, uint64_t value)
{
	put_varint(message, field << 3 | 1);
	memcpy(message->bytes + message->size, &value, sizeof(value));
	message->size += sizeof(value);
}

static void put_bytes(struct message *message, unsigned field, const char *bytes, size_t size)
{
	put_varint(message, field << 3 | 2);
	put_varint(message, size);
	memcpy(message->bytes + message->size, bytes, size);
	message->size += size;
}

#define TEXT_MOST 240

static void put_text(struct message *message, unsigned field, const char *text)
{
	put_bytes(message, field, text, (size_t)plain_cut(text, TEXT_MOST));
}

/* Adds a packet; false: it does not fit any more. */
static bool trace_packet(struct trace *trace, uint64_t ns, unsigned field,
						 const struct message *inner)
{
	struct message packet = {0}, head = {0};
	if (ns)
		put_number(&packet, PACKET_TIMESTAMP, ns);
	put_number(&packet, PACKET_SEQUENCE, SEQUENCE);
	put_bytes(&packet, field, inner->bytes, inner->size);
	put_varint(&head, TRACE_PACKET << 3 | 2);
	put_varint(&head, packet.size);
	if (trace->text.size + head.size + packet.size > trace->most)
		return false;
	util_text_bytes(&trace->text, head.bytes, head.size);
	util_text_bytes(&trace->text, packet.bytes, packet.size);
	return !trace->text.failed;
}

uint64_t trace_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct trace *trace_new(size_t most, uint64_t only)
{
	struct trace *trace = calloc(1, sizeof(*trace));
	if (!trace)
		return NULL;
	trace->began_ns = trace_now_ns();
	trace->most = most;
	trace->only = only;
	return trace;
}

void trace_free(struct trace *trace)
{
	if (!trace)
		return;
	util_text_free(&trace->text);
	map_free(&trace->tracks);
	map_free(&trace->keys);
	free(trace);
}

uint64_t trace_track(struct trace *trace, uint64_t parent, uint64_t id, const char *name)
{
	uint64_t uuid = (parent ^ id * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu | 1;
	struct message track = {0};
	if (map_get_id(&trace->tracks, uuid) || map_put_id(&trace->tracks, uuid, trace) < 0)
		return uuid;
	put_number(&track, TRACK_UUID, uuid);
	put_text(&track, TRACK_NAME, name);
	if (parent)
		put_number(&track, TRACK_PARENT, parent);
	trace_packet(trace, 0, PACKET_TRACK, &track);
	return uuid;
}

uint64_t trace_flow(const char *key)
{
	char first[17];
	snprintf(first, sizeof(first), "%.16s", key);
	return strtoull(first, NULL, 16);
}

void trace_ask(struct trace *trace, uint64_t session, const char *key)
{
	if (trace && trace->only && trace->only == session)
		map_put_id(&trace->keys, trace_flow(key), trace);
}

bool trace_shows_key(const struct trace *trace, const char *key)
{
	return trace && (!trace->only || map_get_id(&trace->keys, trace_flow(key)));
}

/* Spans that begin together are told apart by some nanoseconds. */
void trace_add(struct trace *trace, uint64_t track, const struct trace_span *span)
{
	struct message begin = {0}, end = {0}, about = {0};
	uint64_t begin_ns = span->begin_ns > trace->began_ns ? span->begin_ns : trace->began_ns;
	uint64_t end_ns =
		span->end_ns > begin_ns + TRACE_SHORTEST_NS ? span->end_ns : begin_ns + TRACE_SHORTEST_NS;
	put_number(&begin, EVENT_TYPE, SLICE_BEGIN);
	put_number(&begin, EVENT_TRACK, track);
	put_text(&begin, EVENT_NAME, span->name);
	if (span->flow)
		put_fixed(&begin, EVENT_FLOW, span->flow);
	if (span->about) {
		put_text(&about, ANNOTATION_NAME, "about");
		put_text(&about, ANNOTATION_TEXT, span->about);
		put_bytes(&begin, EVENT_ANNOTATION, about.bytes, about.size);
	}
	put_number(&end, EVENT_TYPE, SLICE_END);
	put_number(&end, EVENT_TRACK, track);
	/* A begin is never without its end. */
	bool fits = trace->text.size + begin.size + end.size + 64 <= trace->most &&
				trace_packet(trace, begin_ns + span->depth, PACKET_EVENT, &begin) &&
				trace_packet(trace, end_ns - span->depth, PACKET_EVENT, &end);
	trace->spans += fits;
	trace->dropped += !fits;
}
