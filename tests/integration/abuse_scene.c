/* abuse_scene.c: see abuse_scene.h. */
#include "abuse_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* On a machine that does other things besides; some ms on a quiet one. */
#define P99_MOST_MS 4000

/* ---- What a daemon holds ---- */

/* Freed memory stays in a sanitizer's quarantine. */
static int64_t growth_kib(void)
{
	return getenv("KILN_SANITIZE") ? 256 << 10 : 12 << 10;
}

struct abuse_held abuse_settle(struct kilnd *daemon, kiln_client *client)
{
	struct permute problem = transpose(21, 34);

	assert_permutes(client, &problem, NULL);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	return (struct abuse_held){count_fds(daemon->pid), resident_kib(daemon->pid)};
}

void abuse_assert_over(struct kilnd *daemon, kiln_client *client, struct abuse_held before)
{
	struct permute problem = transpose(21, 34);
	int64_t kib;

	await_info(client, "server.sessions", 1);
	assert_permutes(client, &problem, "hit");
	assert_counters_add_up(client);
	assert_fds_at_most(daemon->pid, before.fds);
	kib = resident_kib(daemon->pid);
	if (kib > before.kib + growth_kib())
		fail_msg("the daemon has %lld KiB, %lld before", (long long)kib, (long long)before.kib);
}

void abuse_assert_logged(const struct kilnd *daemon, const char *words)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	bool found = false;

	while (!found && now_ms() < end) {
		char *log = kilnd_log(daemon);
		found = log && strstr(log, words);
		free(log);
		if (!found)
			pause_ms(10);
	}
	if (!found)
		fail_msg("the daemon did not log: %s", words);
}

/* ---- A client that works meanwhile ---- */

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

void abuse_work(kiln_client *client, struct abuse_times *times)
{
	struct timespec began, ended;

	clock_gettime(CLOCK_MONOTONIC, &began);
	assert_true(info_int(client, "server.sessions") > 0);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	if (times->count < ABUSE_ANSWERS)
		times->ms[times->count++] = (double)(ended.tv_sec - began.tv_sec) * 1e3 +
									(double)(ended.tv_nsec - began.tv_nsec) / 1e6;
}

void abuse_assert_served(const char *during, struct abuse_times *times, int ahead)
{
	double median, p99;

	assert_true(times->count > 20);
	qsort(times->ms, (size_t)times->count, sizeof(times->ms[0]), by_size);
	median = times->ms[times->count / 2];
	p99 = times->ms[times->count * 99 / 100];
	fprintf(stderr, "%s: %d answers, median %.2f ms, p99 %.2f ms, slowest %.2f ms\n", during,
			times->count, median, p99, times->ms[times->count - 1]);
	assert_true(p99 < P99_MOST_MS + ahead * median);
}

/* ---- Frames ---- */

bool raw_send(int sock, const void *bytes, size_t size, const int *fds, int count)
{
	static union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * ABUSE_FDS)];
	} control;
	struct iovec part = {(void *)(uintptr_t)bytes, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	size_t room = sizeof(int) * (size_t)count;

	if (count) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(room);
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(room);
		memcpy(CMSG_DATA(head), fds, room);
	}
	return sendmsg(sock, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

void raw_expect_refused(int sock, int status, const char *words)
{
	char sentence[400];

	assert_int_equal(raw_said(sock, CALL_TIMEOUT_MS, sentence, sizeof(sentence)), status);
	if (!strstr(sentence, words))
		fail_msg("expected \"%s\", the daemon said \"%s\"", words, sentence);
	assert_int_equal(raw_said(sock, CALL_TIMEOUT_MS, sentence, sizeof(sentence)), KILN_ECONN);
	close(sock);
}
