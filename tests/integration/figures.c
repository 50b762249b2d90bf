/*
 * figures.c: a daemon's figures prove themselves: the equations that it lists
 * (daemon/base/counters.c) hold whenever they are looked at, and when the last client is gone
 * nothing is under way.
 */
#include "harness.h"

#include <stdio.h>
#include <string.h>

/* The first equation that does not hold; false: none. */
static bool find_broken(const kiln_reply *reply, char why[400])
{
	int rows = kiln_reply_count(reply, "identities");
	char path[64], text[64], left[64], right[64];

	for (int i = 0; i < rows; i++) {
		snprintf(path, sizeof(path), "identities[%d].holds", i);
		if (kiln_reply_int(reply, path))
			continue;
		snprintf(text, sizeof(text), "identities[%d].text", i);
		snprintf(left, sizeof(left), "identities[%d].left", i);
		snprintf(right, sizeof(right), "identities[%d].right", i);
		snprintf(why, 400, "%s: %lld and %lld", kiln_reply_str(reply, text),
				 (long long)kiln_reply_int(reply, left), (long long)kiln_reply_int(reply, right));
		return true;
	}
	if (!rows)
		snprintf(why, 400, "the daemon lists no equations");
	return !rows;
}

void assert_counters_add_up(kiln_client *client)
{
	kiln_reply *reply = NULL;
	char why[400];

	if (kiln_request(client, "info", NULL, 0, &reply))
		fail_msg("info: %s", kiln_errmsg());
	if (find_broken(reply, why))
		fail_msg("%s: %s", why, kiln_reply_json(reply));
	kiln_reply_free(reply);
}

/* Looks for work under way although only the one who asks is connected. */
static bool find_busy(const kiln_reply *reply, char why[400])
{
	static const char *const gauges[] = {"waiting",        "looking_up",     "compiling",
										 "launching",      "lane_launching", "transferring",
										 "device_pending", "remote_asking",  NULL};
	char path[64];

	for (int i = 0; gauges[i]; i++) {
		snprintf(path, sizeof(path), "busy.%s", gauges[i]);
		if (!kiln_reply_has(reply, path))
			snprintf(why, 400, "info has no %s", path);
		else if (kiln_reply_int(reply, path))
			snprintf(why, 400, "nobody is connected, and %s is %lld", path,
					 (long long)kiln_reply_int(reply, path));
		else
			continue;
		return true;
	}
	return false;
}

bool figures_settle(const struct kilnd *daemon, char why[400])
{
	/* Without a device, so that one that cannot be had is nothing to wait for. */
	kiln_connect_options options = {.size = sizeof(options),
									.socket = daemon->socket,
									.device = "none",
									.timeout_ms = CALL_TIMEOUT_MS};
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	kiln_client *client = NULL;
	kiln_reply *reply = NULL;
	bool broken = false, busy = true;

	/* It may have been killed, or may take nobody more. */
	if (kiln_connect(&options, &client))
		return true;
	while (busy && !broken && kiln_request(client, "info", NULL, 0, &reply) == KILN_OK) {
		bool alone = kiln_reply_int(reply, "server.sessions") == 1;
		broken = find_broken(reply, why);
		busy = alone && !broken && find_busy(reply, why);
		kiln_reply_free(reply);
		if (busy && now_ms() > end)
			broken = true;
		if (busy)
			pause_ms(2);
	}
	kiln_close(client);
	return !broken;
}
