/*
 * local_tier.c: swaps the generic kernel of a way for the exact one.  The client posts a question
 * after 2, 4, 8, ... launches, and no launch waits for the answer.  A load waits for what the GPU
 * runs, so a launch that finds its stream idle loads the exact kernel.  Where a GPU is never idle,
 * the host is ahead of it, and may wait for it once.  The file knows nothing of CUDA.
 */
#include "call.h"
#include "client.h"
#include "link.h"
#include "local_launch.h"

#include <assert.h>
#include <stdlib.h>

/* Launches on a busy stream before a better kernel is loaded all the same. */
#define LOCAL_PATIENCE 1000

static void local_tier_assert_valid(const struct local_tier *tier)
{
	(void)tier;
	assert((tier->state == LOCAL_TIER_FOUND || tier->state == LOCAL_TIER_REPLACED) ==
		   (tier->better != NULL));
	assert(!tier->better || tier->better->tier.state == LOCAL_TIER_LAST);
	assert(tier->state != LOCAL_TIER_GENERIC || tier->most > 0);
}

static void leave_found(struct local_way *way)
{
	struct local_way **link = &way->tier.call->client->local_found;
	while (*link && *link != way)
		link = &(*link)->tier.next_found;
	if (*link)
		*link = way->tier.next_found;
}

/* ---- Asking ---- */

/* The daemon has nothing better yet. */
static void wait_longer(struct local_tier *tier, uint64_t again)
{
	tier->most = again;
	tier->next = tier->next < again ? tier->next : again;
	tier->state = again > 0 ? LOCAL_TIER_GENERIC : LOCAL_TIER_LAST;
}

/* The operands of a launch were checked against the way's template. */
static bool demands_the_same(const struct local_way *way, const struct local_way *better)
{
	bool same = way->is.operand_count == better->is.operand_count;
	for (int i = 0; i < way->is.operand_count && same; i++) {
		const struct local_operand *a = &way->is.operands[i], *b = &better->is.operands[i];
		same = a->bytes == b->bytes && a->alignment == b->alignment && a->written == b->written;
	}
	return same;
}

static void local_tier_take(struct question *question, int64_t status, struct answer *answer)
{
	struct local_way *way = question->asker;
	struct local_tier *tier = &way->tier;
	struct kiln_client *client = tier->call->client;
	struct local_way *better = NULL;
	tier->state = LOCAL_TIER_LAST;
	if (status == KILN_ELIMIT || status == KILN_ENOMEM) /* so many requests are under way */
		wait_longer(tier, tier->most);
	else if (status == KILN_OK && !wire_get(&answer->in.root, "template"))
		wait_longer(tier, wire_get_uint(&answer->in.root, "again", 0));
	else if (status == KILN_OK)
		better = local_read(tier->call, tier->alignments, answer);
	if (better)
		better = local_keep(tier->call->local, better);
	if (better && better != way && better->tier.state == LOCAL_TIER_LAST &&
		demands_the_same(way, better)) {
		tier->state = LOCAL_TIER_FOUND;
		tier->better = better;
		tier->next_found = client->local_found;
		client->local_found = way;
	}
	local_tier_assert_valid(tier);
}

static void ask(struct local_way *way)
{
	struct local_tier *tier = &way->tier;
	tier->question.asker = way;
	tier->question.take = local_tier_take;
	if (local_ask_again(way) == KILN_OK) {
		tier->state = LOCAL_TIER_ASKING;
		tier->launches = 0;
	} else if (tier->call->client->link == LINK_DEAD) {
		tier->state = LOCAL_TIER_LAST;
	}
	tier->next = tier->next < tier->most / 2 ? tier->next * 2 : tier->most;
	local_tier_assert_valid(tier);
}

/* ---- Launching ---- */

/* Loads what was found for the way, unless that is to wait. */
static void take_over(struct local_way *way, const struct local_context *current, void *stream)
{
	struct local_tier *tier = &way->tier;
	bool busy_too = tier->launches >= LOCAL_PATIENCE;
	int status = local_load_later(tier->better, current, stream, busy_too);
	if (status == KILN_EAGAIN)
		return;
	leave_found(way);
	tier->state = status == KILN_OK ? LOCAL_TIER_REPLACED : LOCAL_TIER_LAST;
	if (status != KILN_OK)
		tier->better = NULL;
	local_tier_assert_valid(tier);
}

void local_tier_tend(struct kiln_client *client, const struct local_context *current, void *stream)
{
	if (client->questions)
		(void)link_drain(client);
	struct local_way *way = client->local_found;
	while (way) {
		struct local_way *next = way->tier.next_found;
		const struct local_context *of = &way->tier.of;
		bool here = of->context == current->context && of->id == current->id;
		/* A call that takes turns in two contexts was always in the other one before. */
		if (here || way->tier.launches >= LOCAL_PATIENCE)
			take_over(way, current, stream);
		way = next;
	}
}

struct local_way *local_tier_choose(struct local_way *way, const struct local_context *current)
{
	struct local_tier *tier = &way->tier;
	if (tier->state == LOCAL_TIER_REPLACED)
		return tier->better;
	tier->of = *current;
	tier->launches++;
	if (tier->state == LOCAL_TIER_GENERIC && tier->launches >= tier->next)
		ask(way);
	return way;
}

/* ---- The end ---- */

void local_forget(struct kiln_call *call, bool forked)
{
	struct local_ways *ways = call->local;
	while (ways && ways->all) {
		struct local_way *way = ways->all;
		ways->all = way->next;
		link_withdraw(call->client, &way->tier.question);
		leave_found(way);
		local_unload(way, forked);
		local_way_free(way);
	}
	free(ways);
	call->local = NULL;
}
