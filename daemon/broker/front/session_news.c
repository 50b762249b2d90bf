/* session_news.c: tells sessions that their device process changes. */
#include "session_news.h"

#include "daemon/base/util.h"
#include "daemon/broker/calls/buffer.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/calls/work.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/broker/requests/session.h"
#include "daemon/broker/requests/request.h"
#include "peer.h"
#include "session_life.h"

bool news_device_used(const struct broker *broker, const struct device_handle *executor)
{
	const struct session *session = broker->sessions;
	while (session && session->executor != executor)
		session = session->next;
	return session != NULL;
}

void news_device_lost(struct broker *broker, struct device_handle *executor, const char *why)
{
	for (struct session *session = broker->sessions; session; session = session->next)
		if (session->executor == executor)
			lane_check(session, why);
}

bool news_device_lanes(const struct broker *broker, const struct device_handle *executor,
					   bool *under_way)
{
	bool any = false;
	*under_way = false;
	for (const struct session *session = broker->sessions; session; session = session->next) {
		if (session->executor != executor || !session->lane)
			continue;
		any = true;
		*under_way = *under_way || lane_works(session);
	}
	return any;
}

void news_lane_broke(struct broker *broker, const struct device_handle *executor, uint64_t stream,
					 const char *why)
{
	struct session *session = session_find(broker, stream);
	if (session && session->executor == executor) {
		char sentence[KERNEL_ERROR_MAX + 96];
		util_fail(sentence, KERNEL_ERROR_MAX, 0, "session %llu (pid %d): %s; it was ended",
				  (unsigned long long)session->id, session->pid, why);
		const struct fault fault = {.kind = FAULT_LANE,
									.sentence = sentence,
									.handle = executor,
									.uid = session->uid,
									.session = session->id};
		fault_report(broker, &fault, sentence, sizeof(sentence));
		util_log(UTIL_WARN, "%s", sentence);
		broker->counters.protocol_errors++;
		session_end(session);
	}
}

void news_printed(struct broker *broker, const struct device_handle *executor, const void *text,
				  size_t bytes, uint64_t cut)
{
	struct session *session = broker->sessions;
	while (session && session->own != executor)
		session = session->next;
	if (!session)
		return;
	/* A client that does not read loses what its kernels print before it loses its session. */
	struct wire_out out;
	bool fits = peer_queued(session->peer) + bytes <= broker->options.max_queued / 2;
	wire_begin(&out, "event", 0);
	wire_put_str(&out, "what", "printed");
	wire_put_bin(&out, "text", text, fits ? bytes : 0);
	wire_put_uint(&out, "cut", fits ? cut : cut + bytes);
	reply_send(session, &out, NULL, 0);
}

void news_device_changed(struct broker *broker, struct device_handle *executor)
{
	struct session *session = broker->sessions;
	while (session) {
		struct session *next = session->next;
		if (session->executor == executor || session->own == executor) {
			buffers_remake(session);
			work_pump(session);
		}
		session = next;
	}
	tier_resume(broker, executor);
	tier_warm(broker, executor);
}
