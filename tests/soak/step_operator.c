/*
 * step_operator.c: one random problem of one operator, launched in one of all the ways, judged by
 * the references of the list of cases.
 */
#include "place.h"

#include <stdlib.h>
#include <string.h>

#define POPULAR 96     /* problems that all clients have again and again */
#define RARE (1 << 20) /* and those that hardly anybody has had */
#define MOST_LAUNCHES 6

struct work {
	struct me *me;
	struct cases_case c;
	struct place places[CASES_MAX_OPERANDS];
	kiln_tensor tensors[CASES_MAX_OPERANDS];
	kiln_operand operands[CASES_MAX_OPERANDS];
	kiln_attr attrs[CASES_MAX_ATTRS];
	kiln_call *call;
	bool untouched; /* nothing was run */
	bool copied;    /* no kernel was needed */
};

/* ---- Launching ---- */

/* Returns whether the call ended as the problem must. */
static bool ended(struct work *w, int status, const char *what)
{
	bool strays = (w->c.flags & CASES_STRAYS) && !w->me->soak->options.copies;

	me_count(w->me, SOAK_COUNT_launches, 1);
	if (strays)
		return me_ends(w->me, status, KILN_EINDEX, what);
	return me_ok(w->me, status, what);
}

static int wait_for(struct work *w, kiln_ticket ticket)
{
	int status = kiln_wait(w->me->client, ticket, SOAK_CALL_MS);
	if (status == KILN_EAGAIN)
		me_fail(w->me, "a call has not ended after %d ms", SOAK_CALL_MS);
	return status;
}

static bool prepare(struct work *w)
{
	int status = kiln_prepare(w->me->client, w->c.op->name, w->tensors, w->c.operand_count,
							  w->attrs, w->c.attr_count, &w->call);
	if (!me_ok(w->me, status, "preparing"))
		return false;
	w->copied = strcmp(kiln_call_origin(w->call), "copy") == 0;
	return true;
}

static bool submit(struct work *w, kiln_call *call, unsigned stream, kiln_ticket after,
				   kiln_ticket *ticket)
{
	const kiln_submit_options options = {.size = sizeof(options), .stream = stream, .after = after};
	bool graph = call != w->call;
	return me_ok(w->me,
				 kiln_submit_with(call, graph ? NULL : w->operands, graph ? 0 : w->c.operand_count,
								  &options, ticket),
				 "submitting");
}

static bool run(struct work *w)
{
	bool well = true;
	for (int64_t n = 1 + me_pick(w->me, MOST_LAUNCHES); n > 0 && well; n--)
		well = ended(w,
					 kiln_run(w->me->client, w->c.op->name, w->tensors, w->c.operand_count,
							  w->attrs, w->c.attr_count),
					 "kiln_run");
	return well;
}

static bool submit_and_wait(struct work *w)
{
	unsigned stream = (unsigned)me_pick(w->me, KILN_STREAMS);
	kiln_ticket ticket;
	bool well = prepare(w);
	for (int64_t n = 1 + me_pick(w->me, MOST_LAUNCHES); n > 0 && well; n--)
		well = submit(w, w->call, stream, 0, &ticket) && ended(w, wait_for(w, ticket), "a launch");
	return well;
}

/* Waits for tickets in another order than that of their submission; all of them, whatever comes. */
static bool wait_for_all(struct work *w, const kiln_ticket *tickets, int64_t count)
{
	int64_t first = count ? me_pick(w->me, count) : 0;
	bool well = true;
	for (int64_t i = 0; i < count; i++) {
		int status = wait_for(w, tickets[(first + count - i) % count]);
		well = well && ended(w, status, "a launch");
	}
	return well;
}

static bool queue(struct work *w)
{
	unsigned stream = (unsigned)me_pick(w->me, KILN_STREAMS);
	kiln_ticket tickets[MOST_LAUNCHES];
	int64_t count = 0, wanted = 1 + me_pick(w->me, MOST_LAUNCHES);
	bool well = prepare(w);
	while (well && count < wanted)
		well = submit(w, w->call, stream, 0, &tickets[count]) && ++count;
	return wait_for_all(w, tickets, count) && well;
}

/* From stream to stream, each after the one before. */
static bool over_streams(struct work *w)
{
	kiln_ticket tickets[MOST_LAUNCHES];
	int64_t count = 0, wanted = 1 + me_pick(w->me, MOST_LAUNCHES);
	bool well = prepare(w);
	while (well && count < wanted)
		well = submit(w, w->call, (unsigned)me_pick(w->me, KILN_STREAMS),
					  count ? tickets[count - 1] : 0, &tickets[count]) &&
			   ++count;
	return wait_for_all(w, tickets, count) && well;
}

static bool batch(struct work *w)
{
	const kiln_submit_options options = {.size = sizeof(options),
										 .stream = (unsigned)me_pick(w->me, KILN_STREAMS)};
	int count = 1 + (int)me_pick(w->me, MOST_LAUNCHES);
	kiln_work works[MOST_LAUNCHES];
	kiln_ticket ticket;
	if (!prepare(w))
		return false;
	for (int i = 0; i < count; i++)
		works[i] = (kiln_work){w->call, w->operands, w->c.operand_count};
	return me_ok(w->me, kiln_submit_many(works, count, &options, &ticket), "submitting a batch") &&
		   ended(w, wait_for(w, ticket), "a batch");
}

static bool graph(struct work *w)
{
	unsigned stream = (unsigned)me_pick(w->me, KILN_STREAMS);
	int count = 1 + (int)me_pick(w->me, MOST_LAUNCHES);
	kiln_work works[MOST_LAUNCHES];
	kiln_call *made = NULL;
	kiln_ticket ticket;
	bool well = prepare(w);
	for (int i = 0; i < count; i++)
		works[i] = (kiln_work){w->call, w->operands, w->c.operand_count};
	int status = well ? kiln_prepare_graph(w->me->client, works, count, &made) : KILN_OK;
	if (status == KILN_ENOTSUP && strstr(kiln_errmsg(), "counts indices"))
		return submit(w, w->call, stream, 0, &ticket) && ended(w, wait_for(w, ticket), "a launch");
	well = well && me_ok(w->me, status, "making a graph");
	for (int64_t n = 1 + me_pick(w->me, 3); n > 0 && well; n--)
		well = submit(w, made, stream, 0, &ticket) && ended(w, wait_for(w, ticket), "a graph");
	kiln_call_free(made);
	return well;
}

/* Some are run and some are not; where none was, nothing may be written. */
static bool cancel(struct work *w)
{
	unsigned stream = (unsigned)me_pick(w->me, KILN_STREAMS);
	kiln_ticket tickets[MOST_LAUNCHES];
	bool canceled[MOST_LAUNCHES] = {false}, well = prepare(w);
	int64_t count = 0, wanted = 1 + me_pick(w->me, MOST_LAUNCHES), ran = 0;
	while (well && count < wanted)
		well = submit(w, w->call, stream, 0, &tickets[count]) && ++count;
	for (int64_t i = 0; i < count && well; i++) {
		canceled[i] = me_chance(w->me, 2);
		if (canceled[i])
			well = me_ok(w->me, kiln_cancel(w->me->client, tickets[i]), "canceling");
	}
	for (int64_t i = 0; i < count; i++) {
		int status = wait_for(w, tickets[i]);
		bool off = canceled[i] && status == KILN_ECANCELED;
		me_count(w->me, SOAK_COUNT_canceled, off);
		ran += status == KILN_OK;
		well = off || (ended(w, status, "a launch among canceled ones") && well);
	}
	w->untouched = ran == 0;
	return well;
}

/* A call that counts indices out of range can be launched in some ways only. */
static bool launch(struct work *w)
{
	static bool (*const ways[])(struct work *) = {run,   submit_and_wait, queue, over_streams,
												  batch, graph,           cancel};
	static const char *const names[] = {"kiln_run", "submit and wait", "queued",  "over streams",
										"batch",    "graph",           "canceled"};
	bool strays = w->c.flags & CASES_STRAYS;
	int64_t way = me_pick(w->me, strays ? 2 : 7);
	me_doing(w->me, "%s: %.90s", names[way], w->c.name);
	return ways[way](w);
}

/* ---- The step ---- */

static bool open_all(struct work *w)
{
	bool opened = true;
	cases_tensors(&w->c, w->tensors);
	cases_attrs(&w->c, w->attrs);
	for (int i = 0; i < w->c.operand_count && opened; i++) {
		struct place *place = &w->places[i];
		opened = place_open(w->me, place, &w->c.operand[i], i);
		w->operands[i] = (kiln_operand){place->buffer, place->operand ? place->begin : 0};
		w->tensors[i].buffer = place->buffer;
		w->tensors[i].offset = w->operands[i].offset;
	}
	return opened;
}

static void judge(struct work *w)
{
	const void *memory[CASES_MAX_OPERANDS] = {NULL};
	struct cases_verdict verdict = {0};
	struct me *me = w->me;

	for (int i = 0; i < w->c.operand_count; i++) {
		if (!place_check(me, &w->places[i], i, !w->untouched))
			return;
		if (w->places[i].operand)
			memory[i] = w->places[i].back + w->places[i].begin;
	}
	if (w->untouched || (me->soak->options.copies && !w->copied))
		return;
	cases_judge(&w->c, memory, 0, w->c.op->units(&w->c), &verdict);
	if (verdict.wrong)
		me_fail(me, "element %lld of operand %d is %.9g, not %.9g (+- %.3g): %s",
				(long long)verdict.element, verdict.operand, verdict.got, verdict.expected,
				verdict.allowed, w->c.name);
	me_count(me, SOAK_COUNT_operators, 1);
	me_beat(me);
}

/* The call may go first or last or stay, and the buffers in any order. */
static void close_all(struct work *w)
{
	struct me *me = w->me;
	int first = (int)me_pick(me, w->c.operand_count), slot = (int)me_pick(me, KEPT_CALLS);
	bool early = me_chance(me, 2);

	if (me_chance(me, 3) && w->call) {
		kiln_call_free(me->calls[slot]);
		me->calls[slot] = w->call;
		w->call = NULL;
	}
	if (early)
		kiln_call_free(w->call);
	for (int i = 0; i < w->c.operand_count; i++)
		place_close(me, &w->places[(first + i) % w->c.operand_count]);
	if (!early)
		kiln_call_free(w->call);
}

static void choose(struct work *w)
{
	uint64_t seed = w->me->soak->options.seed;
	do {
		int64_t i = me_chance(w->me, 6) ? me_pick(w->me, RARE) : me_pick(w->me, POPULAR);
		cases_random(seed, (uint64_t)i, &w->c);
	} while (w->c.flags & (CASES_SLOW | CASES_BIG | CASES_HUGE));
}

void step_operator(struct me *me)
{
	static struct work work;
	work = (struct work){.me = me};
	choose(&work);
	me_doing(me, "%.110s", work.c.name);
	if (open_all(&work) && launch(&work))
		judge(&work);
	close_all(&work);
}

void step_abandoned(struct me *me)
{
	static struct work work;
	kiln_ticket ticket;
	bool well;
	work = (struct work){.me = me};
	choose(&work);
	me_doing(me, "left in flight: %.90s", work.c.name);
	well = open_all(&work) && prepare(&work);
	for (int64_t n = me_pick(me, 2 * MOST_LAUNCHES); n > 0 && well; n--)
		well = submit(&work, work.call, (unsigned)me_pick(me, KILN_STREAMS), 0, &ticket);
	/* Nobody looks at what they wrote, so they may run side by side.  Memory of CUDA's may not be
	 * freed before kiln_free() has returned on a connection that is there. */
	if (well && !me->lends_cuda && me_chance(me, 2))
		me_disconnect(me);
	close_all(&work);
}
