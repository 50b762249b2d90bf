/*
 * fault_scene.h: what the tests of children that do wrong share: two clients, a user's kernel, and
 * how a call is to end.
 */
#ifndef KILN_TESTS_FAULT_SCENE_H
#define KILN_TESTS_FAULT_SCENE_H

#include "lane_scene.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HANG_MS 100
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define NOTHING_COMPLETED "nothing completed on cpu for " TEXT(HANG_MS) " ms"

static inline void expect(const char *what, int got, int status, const char *words)
{
	if (got != status || (status && !strstr(kiln_errmsg(), words)))
		fail_msg("%s: %s \"%s\", not %s with \"%s\"", what, kiln_status_name(got),
				 got ? kiln_errmsg() : "", kiln_status_name(status), words);
	/* One sentence. */
	if (status && (strchr(kiln_errmsg(), '\n') || strlen(kiln_errmsg()) < 10))
		fail_msg("%s: \"%s\" is no sentence", what, kiln_errmsg());
}

/* ---- By message, and through a lane ---- */

static inline struct pair open_pair(const struct kilnd *daemon, const char *lane)
{
	struct pair pair;
	setenv("KILN_LANE", lane, 1);
	pair_open(daemon, &pair);
	unsetenv("KILN_LANE");
	return pair;
}

static inline int run(struct pair *pair)
{
	kiln_ticket ticket;
	int status = pair_submit(pair, false, 0, &ticket);
	return status ? status : kiln_wait(pair->client, ticket, CALL_TIMEOUT_MS);
}

/* ---- A kernel of a user's own ---- */

#define WORDS 64

static const char source[] = "__global__ void add(unsigned *x) { x[threadIdx.x] += 1; }\n";

struct user {
	kiln_client *client;
	kiln_call *call;
	kiln_buffer *x;
};

static inline int user_prepare(struct user *user)
{
	kiln_raw raw = {.size = sizeof(raw), .name = "mine.cu", .source = source, .entry = "add"};
	return kiln_prepare_raw(user->client, &raw, &user->call);
}

static inline int user_run(struct user *user)
{
	kiln_raw_arg arg = {.buffer = user->x};
	kiln_launch how = {.size = sizeof(how), .block = {WORDS}, .args = &arg, .arg_count = 1};
	kiln_ticket ticket;
	int status = kiln_submit_raw(user->call, &how, 0, &ticket);
	return status ? status : kiln_wait(user->client, ticket, CALL_TIMEOUT_MS);
}

/* ---- What a process may have ---- */

static inline rlim_t limit(pid_t pid, int what, rlim_t most)
{
	struct rlimit now, next;
	assert_int_equal(prlimit(pid, (__rlimit_resource_t)what, NULL, &now), 0);
	next = (struct rlimit){most, now.rlim_max};
	assert_int_equal(prlimit(pid, (__rlimit_resource_t)what, &next, NULL), 0);
	return now.rlim_cur;
}

#endif
