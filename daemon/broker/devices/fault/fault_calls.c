/*
 * fault_calls.c: writes the last calls of a device process.  The process leaves numbers
 * (exec/trail.h), which may be wrong.  The broker knows what each stands for; a number that stands
 * for nothing is shown as such.
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/util.h"
#include "fault.h"

#define CALLS_DONE 24   /* ended calls that are shown */
#define CALLS_FLYING 40 /* calls in flight that are shown */
#define REQUESTS_MOST 16

struct listing {
	struct broker *broker;
	const struct device_handle *handle;
	struct util_text *text;
	int done, flying, left_out;
};

#define KEYS_MOST 8
struct keys {
	struct listing listing;
	bool culprits; /* puts calls that the device failed on; else those in flight */
	char keys[KEYS_MOST][KERNEL_KEY_HEX];
	int count;
};

struct requests {
	struct util_text *text;
	int count;
};

static const char *took(uint64_t micros, char text[32])
{
	if (micros < 10000)
		snprintf(text, 32, "%" PRIu64 " us", micros);
	else if (micros < 10000000)
		snprintf(text, 32, "%.1f ms", (double)micros / 1e3);
	else
		snprintf(text, 32, "%.1f s", (double)micros / 1e6);
	return text;
}

/* ---- One call ---- */

static void put_kernel(struct util_text *text, const struct handle_about *about)
{
	if (about->copied)
		util_text_add(text, ", copy of %" PRIu64 " bytes", about->copied);
	if (about->op[0])
		util_text_add(text, ", %s", about->op);
	if (about->calls)
		util_text_add(text, " first of a graph of %d", about->calls);
	if (about->choice[0])
		util_text_add(text, " (%s)", about->choice);
	if (about->key[0])
		util_text_add(text, ", kernel %.12s", about->key);
	if (about->block[0])
		util_text_add(text,
					  ", grid %" PRId64 "x%" PRId64 "x%" PRId64 ", block %" PRId64 "x%" PRId64
					  "x%" PRId64,
					  about->grid[0], about->grid[1], about->grid[2], about->block[0],
					  about->block[1], about->block[2]);
	if (about->line[0])
		util_text_add(text, "\n    %s", about->line);
}

static void put_state(struct util_text *text, const struct handle_past *past)
{
	char age[32], length[32];
	util_text_add(text, "  #%" PRIu64 "%s", past->number,
				  past->culprit ? ", which the device failed on" : "");
	if (past->in_flight)
		util_text_add(text, ", in flight for %s", took(past->took_us, age));
	else
		util_text_add(text, ", status %d, begun %s ago, took %s", past->status,
					  took(past->age_us, age), took(past->took_us, length));
}

/* Returns what a call was, in room where no note was made of it; NULL: it is forgotten. */
static const struct handle_about *
find_about(const struct listing *listing, const struct handle_past *past, struct handle_about *room)
{
	enum handle_noting which = past->stream ? HANDLE_LANE : HANDLE_MESSAGE;
	const struct handle_about *noted = handle_noted(listing->handle, which, past->name);
	*room = (struct handle_about){0};
	if (noted || !past->stream)
		return noted;
	bool found = listing->broker->events->describe_call(listing->broker, listing->handle,
														past->stream, past->name, room);
	return found ? room : NULL;
}

static void put_past(void *arg, const struct handle_past *past)
{
	struct listing *listing = arg;
	struct handle_about room;
	bool shown = past->culprit || (past->in_flight ? listing->flying++ < CALLS_FLYING
												   : listing->done++ < CALLS_DONE);
	listing->left_out += !shown;
	if (!shown)
		return;
	const struct handle_about *known = find_about(listing, past, &room);
	const struct handle_about *about = known ? known : &room;
	put_state(listing->text, past);
	util_text_add(listing->text, ", by %s", past->stream ? "lane" : "message");
	if (about->session)
		util_text_add(listing->text, " of session %" PRIu64 " (pid %d)", about->session,
					  (int)about->pid);
	if (known)
		put_kernel(listing->text, known);
	else
		util_text_add(listing->text, ", a call that is there no more");
	util_text_add(listing->text, "\n");
}

/* ---- Keys ---- */

static void put_key(struct keys *keys, const char *key)
{
	for (int i = 0; i < keys->count; i++)
		if (!strcmp(keys->keys[i], key))
			return;
	if (!*key || keys->count == KEYS_MOST)
		return;
	memcpy(keys->keys[keys->count++], key, KERNEL_KEY_HEX);
	util_text_add(keys->listing.text, "%-14s %s\n", "kernel", key);
}

static void put_past_key(void *arg, const struct handle_past *past)
{
	struct keys *keys = arg;
	struct handle_about room;
	bool wanted = keys->culprits ? past->culprit : past->in_flight;
	const struct handle_about *about = wanted ? find_about(&keys->listing, past, &room) : NULL;
	if (about)
		put_key(keys, about->key);
}

void fault_write_keys(struct broker *broker, const struct device_handle *handle,
					  struct util_text *text)
{
	struct keys keys = {.listing = {.broker = broker, .handle = handle, .text = text}};
	keys.culprits = true;
	handle_each_past(handle, put_past_key, &keys);
	keys.culprits = false;
	handle_each_past(handle, put_past_key, &keys);
}

/* ---- All of them ---- */

static void put_request(void *arg, const char *type, uint64_t age_us, uint32_t deadline_ms)
{
	struct requests *requests = arg;
	char age[32];
	if (requests->count++ >= REQUESTS_MOST)
		return;
	util_text_add(requests->text, "  %s, for %s", type, took(age_us, age));
	if (deadline_ms)
		util_text_add(requests->text, " of %u ms", deadline_ms);
	util_text_add(requests->text, "\n");
}

void fault_write_calls(struct broker *broker, const struct device_handle *handle,
					   struct util_text *text)
{
	struct listing listing = {.broker = broker, .handle = handle, .text = text};
	struct requests requests = {.text = text};
	util_text_add(text, "\nlast calls of a device process of %s, the newest first\n",
				  handle_device(handle)->info.name);
	handle_each_past(handle, put_past, &listing);
	if (listing.left_out)
		util_text_add(text, "  and %d before, or in flight, that are not shown\n",
					  listing.left_out);
	util_text_add(text, "\nrequests that it had not answered, the oldest first\n");
	handle_each_request(handle, put_request, &requests);
	if (requests.count > REQUESTS_MOST)
		util_text_add(text, "  and %d more\n", requests.count - REQUESTS_MOST);
}
