/*
 * trace: spans of time on tracks, as Perfetto's TrackEvent messages.  Knows nothing of who has the
 * tracks.  The loop's thread owns a trace; while there is none nobody makes spans.
 */
#ifndef KILN_DAEMON_TRACE_H
#define KILN_DAEMON_TRACE_H

#include "map.h"
#include "util.h"

struct trace {
	uint64_t only; /* the number of the session that it shows; 0: all of them */
	uint64_t began_ns;
	size_t most;           /* bytes; what does not fit is dropped */
	struct util_text text; /* packets of the message Trace */
	struct map tracks;     /* those that are described, by uuid */
	struct map keys;       /* flows of what that session asked for */
	uint64_t spans, dropped;
	uint64_t missed; /* calls of device processes that were overwritten before they were read */
};

/* Tracks that are one of a kind; sessions and processes have numbers of their own. */
enum { TRACK_LOOP = -1, TRACK_LOOKUPS = -2, TRACK_COMPILERS = -3 };

uint64_t trace_now_ns(void);
/* An empty trace, which the caller ends by trace_free(); NULL without memory. */
struct trace *trace_new(size_t most, uint64_t only);
void trace_free(struct trace *trace); /* NULL does nothing */

/* Says whether there is a trace, and it shows what is done for this session (0: for none). */
static inline bool trace_shows(const struct trace *trace, uint64_t session)
{
	return trace && (!trace->only || trace->only == session);
}
/* Notes that a session asks for this key.  Work for the key, maybe for others, too, is shown from
 * now on. */
void trace_ask(struct trace *trace, uint64_t session, const char *key);
bool trace_shows_key(const struct trace *trace, const char *key);

/* Returns the uuid of track `id` below the parent (0: none), and describes it the first time. */
uint64_t trace_track(struct trace *trace, uint64_t parent, uint64_t id, const char *name);

#define TRACE_SHORTEST_NS 10 /* a span is shown at least so long */

struct trace_span {
	const char *name;
	uint64_t begin_ns, end_ns; /* of the monotonic clock */
	unsigned depth;            /* spans around it on its track, which may begin with it */
	uint64_t flow;             /* spans of the same number are joined by an arrow; 0: none */
	const char *about;         /* shown beside it; NULL: nothing */
};
/* Returns the flow of all that is done for a key, which is in hexadecimal digits. */
uint64_t trace_flow(const char *key);
/* Adds a span.  A span that began before the trace begins with it. */
void trace_add(struct trace *trace, uint64_t track, const struct trace_span *span);

#endif
