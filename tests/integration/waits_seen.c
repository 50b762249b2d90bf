/* waits_seen.c: see waits_seen.h. */
#include "waits_seen.h"

#include <stdio.h>
#include <string.h>

#define TEXT(member) snprintf(seen->member, sizeof(seen->member), "%s", string(reply, i, #member))

static const char *member_path(char path[48], int row, const char *name)
{
	snprintf(path, 48, "rows[%d].%s", row, name);
	return path;
}

static const char *string(const kiln_reply *reply, int row, const char *name)
{
	char path[48];
	return kiln_reply_str(reply, member_path(path, row, name));
}

static int64_t number(const kiln_reply *reply, int row, const char *name)
{
	char path[48];
	return kiln_reply_int(reply, member_path(path, row, name));
}

static void take(const kiln_reply *reply, int i, struct wait_seen *seen)
{
	char path[48];
	*seen = (struct wait_seen){
		.session = number(reply, i, "session"),
		.uid = number(reply, i, "uid"),
		.pid = number(reply, i, "pid"),
		.of_pid = number(reply, i, "of_pid"),
		.count = number(reply, i, "count"),
		.age_ms = number(reply, i, "age_ms"),
		.left_ms = kiln_reply_has(reply, member_path(path, i, "left_ms"))
					   ? number(reply, i, "left_ms")
					   : -1,
	};
	TEXT(asked);
	TEXT(what);
	TEXT(text);
	TEXT(key);
	TEXT(of);
	TEXT(device);
}

int waits_count(kiln_client *observer, const char *what, struct wait_seen *seen)
{
	kiln_reply *reply;
	int count = 0;
	int64_t age = INT64_MAX;
	assert_ok(kiln_request(observer, "waits", NULL, 0, &reply));
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		struct wait_seen row;
		take(reply, i, &row);
		/* The oldest come first. */
		assert_true(row.age_ms <= age);
		age = row.age_ms;
		if (strcmp(row.what, what) == 0 && count++ == 0)
			*seen = row;
	}
	assert_true(kiln_reply_int(reply, "all") >= kiln_reply_count(reply, "rows"));
	kiln_reply_free(reply);
	return count;
}

static void fail_unseen(kiln_client *observer, const char *what)
{
	kiln_reply *reply;
	assert_ok(kiln_request(observer, "waits", NULL, 0, &reply));
	fail_msg("nobody waits for \"%s\": %s", what, kiln_reply_json(reply));
}

struct wait_seen await_wait(kiln_client *observer, const char *what)
{
	struct wait_seen seen = {0};
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (!waits_count(observer, what, &seen)) {
		if (now_ms() > end)
			fail_unseen(observer, what);
		pause_ms(5);
	}
	return seen;
}

void await_no_wait(kiln_client *observer, const char *what)
{
	struct wait_seen seen = {0};
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (waits_count(observer, what, &seen)) {
		if (now_ms() > end)
			fail_msg("session %lld still waits for \"%s\": %s", (long long)seen.session, what,
					 seen.text);
		pause_ms(5);
	}
}

kiln_client *observer_open(const struct kilnd *daemon)
{
	kiln_connect_options options = {.size = sizeof(options),
									.socket = daemon->socket,
									.device = "none",
									.timeout_ms = CALL_TIMEOUT_MS};
	kiln_client *observer = NULL;
	assert_ok(kiln_connect(&options, &observer));
	return observer;
}
