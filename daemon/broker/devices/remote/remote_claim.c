/*
 * remote_claim.c: the keys that this daemon compiles for all hosts.  A claim lasts a second, and
 * the daemon renews it while it compiles, so that no host waits for one that is gone.  A claim that
 * was not renewed in time may be another host's by now, and is left alone.
 */
#include "remote_state.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"

struct remote_claim {
	char key[KERNEL_KEY_HEX];
	uint64_t until_us; /* it is ours until then at least */
	uint64_t asked_us; /* when the last renewal was sent */
	struct remote_claim *next;
};

struct renewal {
	struct remote *remote;
	char key[KERNEL_KEY_HEX];
	uint64_t asked_us;
};

uint32_t remote_claim_ms(const struct remote *remote)
{
	uint32_t wanted = remote->broker->test.remote_claim_ms;
	return wanted ? wanted : DEADLINE_REMOTE_CLAIM_MS;
}

/* Leaves a tenth for the difference of two hosts' clocks while a claim lasts. */
static uint64_t sure_us(const struct remote *remote)
{
	return (uint64_t)remote_claim_ms(remote) * 900;
}

static struct remote_claim **remote_claim_find(struct remote *remote, const char *key)
{
	struct remote_claim **link = &remote->claims;
	while (*link && strcmp((*link)->key, key) != 0)
		link = &(*link)->next;
	return link;
}

void remote_claim_hold(struct remote *remote, const char *key, uint64_t since_us)
{
	/* Without memory the claim expires, and another host may compile the key as well. */
	struct remote_claim *claim = calloc(1, sizeof(*claim));
	if (!claim)
		return;
	*claim = (struct remote_claim){
		.until_us = since_us + sure_us(remote), .asked_us = since_us, .next = remote->claims};
	memcpy(claim->key, key, sizeof(claim->key));
	remote->claims = claim;
	remote_arm(remote);
}

void remote_claim_forget(struct remote *remote, const char *key)
{
	struct remote_claim **link = remote_claim_find(remote, key), *claim = *link;
	if (!claim)
		return;
	*link = claim->next;
	free(claim);
}

void remote_claim_forget_all(struct remote *remote)
{
	while (remote->claims)
		remote_claim_forget(remote, remote->claims->key);
}

void remote_claim_release(struct remote *remote, const char *key)
{
	struct remote_claim *claim = *remote_claim_find(remote, key);
	struct remote_command command = {0};
	char name[REMOTE_NAME_MAX];
	if (claim && util_now_us() < claim->until_us && remote_usable(remote)) {
		remote_claim_name(key, name);
		remote_word(&command, "DEL");
		remote_word(&command, name);
		(void)remote_link_send(remote->asks, &command, NULL, NULL);
	}
	remote_claim_forget(remote, key);
}

static void on_renewed(void *arg, const struct remote_reply *reply)
{
	struct renewal *renewal = arg;
	struct remote_claim *claim = *remote_claim_find(renewal->remote, renewal->key);
	if (claim && reply->kind == REMOTE_NUMBER && reply->number == 1)
		claim->until_us = renewal->asked_us + sure_us(renewal->remote);
	else if (claim && reply->kind == REMOTE_NUMBER)
		remote_claim_forget(renewal->remote, renewal->key);
	free(renewal);
}

static void renew(struct remote *remote, struct remote_claim *claim, uint64_t now)
{
	struct renewal *renewal = malloc(sizeof(*renewal));
	struct remote_command command = {0};
	char name[REMOTE_NAME_MAX], lasts[16];
	claim->asked_us = now;
	if (!renewal)
		return;
	*renewal = (struct renewal){.remote = remote, .asked_us = now};
	memcpy(renewal->key, claim->key, sizeof(renewal->key));
	remote_claim_name(claim->key, name);
	snprintf(lasts, sizeof(lasts), "%u", remote_claim_ms(remote));
	remote_word(&command, "PEXPIRE");
	remote_word(&command, name);
	remote_word(&command, lasts);
	if (!remote_link_send(remote->asks, &command, on_renewed, renewal))
		free(renewal);
}

static uint64_t due(const struct remote *remote, const struct remote_claim *claim)
{
	return claim->asked_us + (uint64_t)remote_claim_ms(remote) * 1000 / 3;
}

void remote_claim_tick(struct remote *remote, uint64_t now)
{
	struct remote_claim *claim = remote->claims;
	while (claim) {
		struct remote_claim *next = claim->next;
		if (due(remote, claim) <= now && claim->until_us <= now)
			remote_claim_forget(remote, claim->key);
		else if (due(remote, claim) <= now)
			renew(remote, claim, now);
		claim = next;
	}
}

uint64_t remote_claim_due(const struct remote *remote)
{
	uint64_t first = REMOTE_NEVER;
	for (const struct remote_claim *claim = remote->claims; claim; claim = claim->next)
		if (due(remote, claim) < first)
			first = due(remote, claim);
	return first;
}
