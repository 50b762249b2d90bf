/* call_about.c: finds the call that a lane names, for a post-mortem whose own note of the call was
 * overwritten. */
#include "call_about.h"

#include "call_state.h"
#include "daemon/broker/kernels/tier.h"

/* The lane is not asked which kernel it has for a variant: the tier's state says it. */
static bool describe_variant(const struct call *call, uint64_t name, struct handle_about *about)
{
	if (call->graph && call->graph->id == name) {
		const struct kernel_ref *first = call->graph->parts[0].variant;
		kernel_describe(about, first, first);
		about->calls = call->graph->count;
		return true;
	}
	for (int i = 0; i < call->variant_count; i++) {
		const struct kernel_ref *asked = call->variants[i];
		const struct tier *tier = asked->tier;
		if (call->bound[i].id != name)
			continue;
		kernel_describe(about, tier && tier->state != TIER_PROMOTED ? tier->generic : asked, asked);
		return true;
	}
	return false;
}

bool call_describe(struct broker *broker, const struct device_handle *executor, uint64_t stream,
				   uint64_t name, struct handle_about *about)
{
	for (struct session *session = broker->sessions; session; session = session->next) {
		struct call *call;
		size_t cursor = 0;
		if (session->stream != stream || session->executor != executor)
			continue;
		about->session = session->id;
		about->pid = session->pid;
		about->account = session->account;
		while ((call = call_next(session, &cursor)))
			if (describe_variant(call, name, about))
				return true;
		return false;
	}
	return false;
}
