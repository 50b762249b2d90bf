/*
 * test_remote_away: the second tier is in the way of nobody: the Redis is killed, stopped, cuts
 * connections, wants a password, has no memory; a daemon compiles as if there were none, and goes
 * back to it when it is there again.
 */
#include "remote_scene.h"
#include "waits_seen.h"

#include <daemon/base/deadlines.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* "connected", "away"; and what the reason contains. */
static void await_state(kiln_client *client, const char *state, const char *reason)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	for (;;) {
		kiln_reply *reply = NULL;
		assert_ok(kiln_request(client, "info", NULL, 0, &reply));
		bool there = !strcmp(kiln_reply_str(reply, "remote.state"), state) &&
					 strstr(kiln_reply_str(reply, "remote.reason"), reason);
		if (!there && now_ms() > end)
			fail_msg("not %s (%s): %s, %s", state, reason, kiln_reply_str(reply, "remote.state"),
					 kiln_reply_str(reply, "remote.reason"));
		kiln_reply_free(reply);
		if (there)
			return;
		pause_ms(2);
	}
}

/* Why it went away at first.  The state has another reason once it was tried again. */
static void await_away(const struct kilnd *daemon, const char *url, const char *reason)
{
	char words[256];
	snprintf(words, sizeof(words), "%s%s is away, kernels are compiled here: %s", url,
			 strncmp(url, "unix:", 5) ? "/0" : "?db=0", reason);
	kilnd_await_log(daemon, words);
}

static void test_killed_and_back(void **state)
{
	struct remote_scene *scene = *state;
	struct permute first = transpose(24, 53), second = transpose(25, 53);

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	assert_permutes(a, &first, "compiled");
	await_info(a, "counters.remote_written", 1);
	char *before = kilnd_log(scene->a.daemon); /* a slow start may have said that it is away */
	const size_t said = strlen(before);
	free(before);
	redis_kill(scene);
	await_away(scene->a.daemon, scene->url, "the connection ended");
	await_away(scene->b.daemon, scene->url, "the connection ended");
	assert_permutes(a, &second, "compiled");
	assert_int_equal(info_int(a, "counters.remote_asks"), 1);
	assert_int_equal(info_int(a, "counters.remote_skipped"), 1);
	await_info(a, "remote.queued", 1);
	assert_counters_add_up(a);
	await_state(a, "away", "it cannot be reached");

	/* Kernels compiled meanwhile are written. */
	redis_start(scene);
	await_state(a, "connected", "");
	await_state(b, "connected", "");
	await_info(a, "counters.remote_written", 2);
	assert_permutes(b, &second, "remote");
	assert_permutes(b, &first, "compiled");
	/* It is said once that it is away, and once that it is back. */
	kilnd_await_log(scene->a.daemon, " is back\n");
	char *log = kilnd_log(scene->a.daemon);
	char *away = strstr(log + said, " is away, kernels are compiled here: ");
	assert_non_null(away);
	assert_null(strstr(away + 1, " is away, "));
	assert_non_null(strstr(away, " is back\n"));
	free(log);
	kiln_close(b);
	kiln_close(a);
}

/* An entry that was written in time is no reason to leave later, when its deadline passes. */
static void test_written_in_time(void **state)
{
	struct remote_scene *scene = *state;
	struct permute problem = transpose(27, 53);
	host_start(&scene->a, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon);
	assert_permutes(a, &problem, "compiled");
	await_info(a, "counters.remote_written", 1);
	for (int64_t end = now_ms() + DEADLINE_REMOTE_WRITE_US / 1000 + 100; now_ms() < end;) {
		await_state(a, "connected", "");
		pause_ms(100);
	}
	char *log = kilnd_log(scene->a.daemon);
	assert_null(strstr(log, " is away, "));
	free(log);
	kiln_close(a);
}

/* A compile that fails at once: all that is left of the time is what was waited for. */
static int64_t miss(kiln_client *client, int64_t size)
{
	struct permute problem = transpose(size, 53);
	char why[400];
	int64_t began = now_ms();
	debug_int(client, "fail-compile", "count", 1);
	assert_int_equal(permute_check(client, &problem, 1, NULL, why), KILN_ECOMPILE);
	return now_ms() - began;
}

/* Bytes that the Redis had not read when it was killed reset the connection.  The daemon notices
 * that before an ask is late, and then that nobody listens, over a Unix socket and over TCP. */
static void test_killed_with_unread_bytes(void **state)
{
	struct remote_scene *scene = *state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct remote_asking asking = {transpose(26 + tcp, 53), "compiled"};
		char url[64];
		snprintf(url, sizeof(url), "redis://127.0.0.1:%d", tcp ? redis_listen(scene) : 0);
		host_start(&scene->a, tcp ? url : scene->url, OPTIONS("--remote-deadline", "1000"));
		kiln_client *a = client_open(scene->a.daemon);
		/* The first kernel needs a compiler besides, which takes its time to start. */
		miss(a, 28 + tcp);
		const int64_t failures = info_int(a, "counters.remote_failures");
		const int64_t asks = info_int(a, "counters.remote_asks");
		process_stop(scene->redis);
		pid_t first = host_ask(&scene->a, &asking);
		await_info(a, "counters.remote_asks", asks + 1);
		redis_kill(scene);
		await_away(scene->a.daemon, tcp ? url : scene->url, "the connection ended");
		assert_int_equal(process_wait(first, CALL_TIMEOUT_MS), EXITED(0));
		assert_int_equal(info_int(a, "counters.remote_failures"), failures + 1);
		await_state(a, "away", "it cannot be reached");
		kiln_close(a);
		assert_true(kilnd_end(scene->a.daemon));
		redis_start(scene);
	}
}

static void test_hangs(void **state)
{
	enum { MISSES = 8 };
	struct remote_scene *scene = *state;
	struct permute after = transpose(60, 53);
	int64_t slowest = 0, fastest = INT64_MAX, answered;
	int size = 30;

	host_start(&scene->a, scene->url, OPTIONS("--remote-deadline", "20"));
	kiln_client *a = client_open(scene->a.daemon);
	await_state(a, "connected", "");
	/* One that is answered in time: a machine with other work may take longer. */
	do {
		answered = info_int(a, "counters.remote_misses");
		miss(a, size++);
	} while (info_int(a, "counters.remote_misses") == answered && size < 50);
	await_state(a, "connected", "");
	const int64_t failures = info_int(a, "counters.remote_failures");
	const int64_t skipped = info_int(a, "counters.remote_skipped");
	const int64_t misses = info_int(a, "remote.miss.count");
	process_stop(scene->redis);
	for (int i = 0; i < MISSES; i++) {
		int64_t took = miss(a, size++);
		slowest = took > slowest ? took : slowest;
		fastest = i < 3 && took < fastest ? took : fastest;
	}
	/* Three pay the deadline, perhaps an ask for a winner of tuning among them, then nobody. */
	const int64_t paid = info_int(a, "counters.remote_failures") - failures;
	assert_in_range(paid, 1, 3);
	assert_int_equal(info_int(a, "counters.remote_skipped"), skipped + MISSES - paid);
	assert_int_equal(info_int(a, "remote.miss.count"), misses + paid);
	assert_in_range(info_int(a, "remote.miss.max"), 20000, INT64_MAX);
	assert_in_range(fastest, 20, 1000);
	await_away(scene->a.daemon, scene->url, "it does not answer");
	printf("deadline 20 ms, stopped: a miss waited up to %.1f ms, took up to %lld ms\n",
		   (double)info_int(a, "remote.miss.max") / 1000, (long long)slowest);
	/* A connection is made, and nobody answers. */
	struct wait_seen connection = await_wait(a, "connect");
	assert_int_equal(connection.session, 0);
	await_state(a, "away", "it does not answer");
	assert_counters_add_up(a);
	kill(scene->redis, SIGCONT);
	await_state(a, "connected", "");
	assert_permutes(a, &after, "compiled");
	await_info(a, "counters.remote_written", 1);
	kiln_close(a);
}

/* False: the process had ended before its ask was seen. */
static bool sees_ask(kiln_client *client, pid_t asker, struct wait_seen *ask)
{
	siginfo_t info = {0};
	while (!waits_count(client, "remote", ask)) {
		if (waitid(P_PID, (id_t)asker, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
			return false;
		pause_ms(2);
	}
	return true;
}

/* It stops while one waits for another host. */
static void test_hangs_while_waiting(void **state)
{
	struct remote_scene *scene = *state;
	struct remote_asking asking = {transpose(44, 53), "compiled"};

	host_start(&scene->a, scene->url, NULL);
	/* Long enough for the lookup before, on a machine that has other work. */
	host_start(&scene->b, scene->url, OPTIONS("--remote-deadline", "1000"));
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	debug_int(a, "delay-compile", "ms", 60000);
	pid_t first = host_ask(&scene->a, &asking);
	await_info(a, "busy.compiling", 1);
	pid_t second = host_ask(&scene->b, &asking);
	await_info(b, "busy.remote_asking", 1);
	struct wait_seen host = await_wait(b, "host");
	assert_string_equal(host.of, "host");
	assert_in_range(host.left_ms, 1, 60000);
	process_stop(scene->redis);
	await_info(b, "counters.remote_failures", 1);
	assert_int_equal(process_wait(second, CALL_TIMEOUT_MS), EXITED(0));
	await_no_wait(b, "host");
	debug_int(a, "delay-compile", "ms", 0);
	/* An ask ends after a second, in which a busy machine may not let this process look. */
	struct wait_seen ask = {0};
	bool seen = false;
	for (int i = 0; i < 3 && !seen; i++) {
		struct remote_asking other = {transpose(45 + i, 53), "compiled"};
		pid_t third = host_ask(&scene->a, &other);
		seen = sees_ask(a, third, &ask);
		if (seen)
			kill(scene->redis, SIGCONT);
		assert_int_equal(process_wait(third, CALL_TIMEOUT_MS), EXITED(0));
	}
	assert_true(seen);
	assert_in_range(ask.left_ms, 1, 1000);
	await_no_wait(a, "remote");
	kill(first, SIGKILL);
	process_wait(first, CALL_TIMEOUT_MS);
	kiln_close(b);
	kiln_close(a);
}

static void test_cut(void **state)
{
	struct remote_scene *scene = *state;
	struct permute problem = transpose(45, 53);
	char path[112], url[128];

	snprintf(path, sizeof(path), "%s/proxy.sock", scene->b.daemon->dir);
	snprintf(url, sizeof(url), "unix:%s", path);
	/* An entry is larger. */
	pid_t proxy = proxy_start(scene, path, 8192);
	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	assert_permutes(a, &problem, "compiled");
	await_info(a, "counters.remote_written", 1);
	assert_permutes(b, &problem, "compiled");
	assert_int_equal(info_int(b, "counters.remote_failures"), 1);
	assert_int_equal(info_int(b, "counters.lookup_remote"), 0);
	assert_int_equal(info_int(b, "counters.remote_refused"), 0);
	assert_counters_add_up(b);

	/* Cut while nothing is asked. */
	free(redis_ask(scene, "CLIENT KILL TYPE normal SKIPME yes"));
	await_state(a, "connected", "");
	cache_clear(a, NULL);
	await_state(a, "connected", "");
	assert_permutes(a, &problem, "remote");
	kiln_close(b);
	kiln_close(a);
	assert_true(kilnd_end(scene->b.daemon));
	kill(proxy, SIGKILL);
	process_wait(proxy, STOP_TIMEOUT_MS);
}

/* ---- Who may ---- */

static void assert_nowhere(const struct kilnd *daemon, const char *word)
{
	char path[64];
	char *log = kilnd_log(daemon);
	assert_null(strstr(log, word));
	free(log);
	const char *const files[] = {"cmdline", "environ"};
	for (int i = 0; i < 2; i++) {
		char bytes[1 << 14];
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)daemon->pid, files[i]);
		FILE *file = fopen(path, "r");
		assert_non_null(file);
		size_t size = fread(bytes, 1, sizeof(bytes), file);
		fclose(file);
		assert_true(size > 0 || i == 1);
		assert_null(memmem(bytes, size, word, strlen(word)));
	}
}

/* Starts a with this in place of login and database; waits for its state; stops it. */
static void check_login(struct remote_scene *scene, const char *login, const char *database,
						const char *wanted, const char *reason)
{
	char url[192];
	snprintf(url, sizeof(url), "unix://%s%s%s", login, scene->socket, database);
	host_spawn(&scene->a, url, NULL);
	kiln_client *a = client_open(scene->a.daemon);
	await_state(a, wanted, reason);
	assert_nowhere(scene->a.daemon, "word-of-");
	kiln_close(a);
	assert_true(kilnd_end(scene->a.daemon));
}

static void test_passwords(void **state)
{
	struct remote_scene *scene = *state;
	struct permute problem = transpose(46, 53), other = transpose(50, 53);
	char url[192];

	/* The user has the rights that docs/remote.md lists. */
	free(redis_ask(scene, "ACL SETUSER kiln on >word-of-kiln ~kiln:1:* +getrange +exists +set +del "
						  "+pexpire +ping +select +auth"));
	check_login(scene, "kiln:word-of-kiln@", "", "connected", "");
	snprintf(url, sizeof(url), "unix://kiln:word-of-kiln@%s", scene->socket);
	host_start(&scene->a, url, NULL);
	kiln_client *a = client_open(scene->a.daemon);
	assert_permutes(a, &problem, "compiled");
	await_info(a, "counters.remote_written", 1);
	assert_int_equal(redis_int(scene, "DBSIZE"), 1);
	cache_clear(a, NULL);
	assert_permutes(a, &problem, "remote");
	assert_int_equal(info_int(a, "counters.remote_failures"), 0);
	kiln_close(a);
	assert_true(kilnd_end(scene->a.daemon));
	check_login(scene, "kiln:word-of-others@", "", "away", "refused user and password (WRONGPASS)");
	check_login(scene, "", "?db=999", "away", "it refused database 999");

	/* In a database of its own. */
	free(redis_ask(scene, "FLUSHALL"));
	snprintf(url, sizeof(url), "%s?db=3", scene->url);
	host_start(&scene->a, url, NULL);
	a = client_open(scene->a.daemon);
	assert_permutes(a, &other, "compiled");
	await_info(a, "counters.remote_written", 1);
	assert_int_equal(redis_int(scene, "DBSIZE"), 0);
	free(redis_ask(scene, "SWAPDB 0 3"));
	assert_int_equal(redis_int(scene, "DBSIZE"), 1);
	kiln_close(a);
	assert_true(kilnd_end(scene->a.daemon));

	free(redis_ask(scene, "CONFIG SET requirepass word-of-all"));
	check_login(scene, ":word-of-all@", "", "connected", "");
	check_login(scene, ":word-of-%61ll@", "", "connected", "");
	check_login(scene, ":word-of-none@", "", "away", "refused user and password (WRONGPASS)");
	check_login(scene, "", "", "away", "NOAUTH");
}

/* A daemon that is told to use a key that it cannot have does not start without one. */
static void test_keys(void **state)
{
	struct remote_scene *scene = *state;
	struct remote_host *host = &scene->a;
	char path[160];
	char *log;

	snprintf(path, sizeof(path), "%s/%s.key", host->keys, host->name);
	kilnd_spawn(host->daemon,
				OPTIONS("--remote", scene->url, "--key-dir", host->keys, "--trust-dir",
						host->trusted, "--sign-key", "nobody"),
				NULL, -1);
	assert_int_equal(kilnd_wait(host->daemon, STOP_TIMEOUT_MS), EXITED(1));
	log = kilnd_log(host->daemon);
	assert_non_null(strstr(log, "there is no secret key nobody"));
	free(log);
	assert_int_equal(chmod(path, 0644), 0);
	kilnd_spawn(host->daemon,
				OPTIONS("--remote", scene->url, "--key-dir", host->keys, "--trust-dir",
						host->trusted, "--sign-key", host->name),
				NULL, -1);
	assert_int_equal(kilnd_wait(host->daemon, STOP_TIMEOUT_MS), EXITED(1));
	log = kilnd_log(host->daemon);
	assert_non_null(strstr(log, path));
	free(log);
}

/* Close-on-exec, by what the system says of it. */
static bool stays_here(int pid, const char *number)
{
	char path[64], line[128];
	unsigned flags = 0;
	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.8s", pid, number);
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "flags: %o", &flags) == 1)
			break;
	if (file)
		fclose(file);
	return !file || (flags & 02000000);
}

/* Children run what users wrote: no connection that is logged in gets there. */
static void test_descriptors(void **state)
{
	struct remote_scene *scene = *state;
	int pid, sockets = 0;
	char path[64], link[64] = "";
	struct dirent *entry;

	host_start(&scene->a, scene->url, NULL);
	pid = (int)scene->a.daemon->pid;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	DIR *directory = opendir(path);
	assert_non_null(directory);
	while ((entry = readdir(directory))) {
		if (readlinkat(dirfd(directory), entry->d_name, link, sizeof(link) - 1) < 0 ||
			strncmp(link, "socket:", 7) != 0)
			continue;
		if (!stays_here(pid, entry->d_name))
			fail_msg("socket %s is not closed by exec", entry->d_name);
		sockets++;
	}
	closedir(directory);
	assert_true(sockets > 2);
}

/* ---- Writing ---- */

static void test_limits(void **state)
{
	struct remote_scene *scene = *state;
	struct permute problem = transpose(47, 53);

	/* No entry is so small. */
	host_start(&scene->a, scene->url, OPTIONS("--test-remote-queue", "4k"));
	kiln_client *a = client_open(scene->a.daemon);
	assert_permutes(a, &problem, "compiled");
	await_info(a, "counters.remote_dropped", 1);
	assert_int_equal(info_int(a, "remote.queued"), 0);
	assert_int_equal(info_int(a, "counters.remote_written"), 0);
	kiln_close(a);
	/* The claim was given up, too. */
	assert_true(kilnd_end(scene->a.daemon));
	assert_int_equal(redis_int(scene, "DBSIZE"), 0);

	free(redis_ask(scene, "CONFIG SET maxmemory 1"));
	host_start(&scene->b, scene->url, NULL);
	kiln_client *b = client_open(scene->b.daemon);
	assert_permutes(b, &problem, "compiled");
	await_info(b, "counters.remote_write_failures", 1);
	/* It was asked in vain, or was late to say so, or had just been late and was not asked. */
	assert_int_equal(info_int(b, "counters.remote_misses") +
						 info_int(b, "counters.remote_failures") +
						 info_int(b, "counters.remote_skipped"),
					 1);
	kilnd_await_log(scene->b.daemon, " does not take kiln:1:entry:");
	kilnd_await_log(scene->b.daemon, "OOM");
	await_state(b, "connected", "");
	kiln_close(b);
}

/* The last kernel is written before the daemon ends; a Redis that hangs does not hold it. */
static void test_end(void **state)
{
	struct remote_scene *scene = *state;
	struct permute problem = transpose(48, 53), other = transpose(49, 53);

	host_start(&scene->a, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon);
	assert_permutes(a, &problem, "compiled");
	kiln_close(a);
	assert_true(kilnd_end(scene->a.daemon));
	assert_int_equal(redis_int(scene, "DBSIZE"), 1);

	host_start(&scene->b, scene->url, OPTIONS("--remote-deadline", "1"));
	kiln_client *b = client_open(scene->b.daemon);
	process_stop(scene->redis);
	assert_permutes(b, &other, "compiled");
	await_info(b, "remote.queued", 1);
	struct wait_seen entries = await_wait(b, "write");
	assert_string_equal(entries.of, "redis");
	kiln_close(b);
	int64_t began = now_ms();
	assert_true(kilnd_end(scene->b.daemon));
	assert_in_range(now_ms() - began, 0, 20000);
	kill(scene->redis, SIGCONT);
}

/* A Redis is trusted with nothing, and so neither with the daemon's life nor with its memory. */
static void check_liar(struct remote_scene *scene, const char *first, const char *more,
					   const char *reason)
{
	char path[96], url[128];
	snprintf(path, sizeof(path), "%.80s.liar", scene->socket);
	snprintf(url, sizeof(url), "unix:%s", path);
	pid_t liar = liar_start(path, first, more);
	host_spawn(&scene->a, url, NULL);
	kiln_client *a = client_open(scene->a.daemon);
	await_state(a, "away", reason);
	kiln_close(a);
	assert_true(kilnd_end(scene->a.daemon));
	kill(liar, SIGKILL);
	waitpid(liar, NULL, 0);
	unlink(path);
}

static void test_liars(void **state)
{
	static char flood[65537];
	memset(flood, 'a', sizeof(flood) - 1);
	check_liar(*state, "+OK\r\n:1\r\n", "", "it answers what was not asked");
	check_liar(*state, "*1\r\n$2\r\nab\r\n", "", "it answers what was not asked");
	check_liar(*state, "$400000000\r\n", flood, "an answer of more than 9 MiB");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		REMOTE_TEST(test_killed_and_back),
		REMOTE_TEST(test_written_in_time),
		REMOTE_TEST(test_killed_with_unread_bytes),
		REMOTE_TEST(test_hangs),
		REMOTE_TEST(test_hangs_while_waiting),
		REMOTE_TEST(test_cut),
		REMOTE_TEST(test_passwords),
		REMOTE_TEST(test_keys),
		REMOTE_TEST(test_descriptors),
		REMOTE_TEST(test_limits),
		REMOTE_TEST(test_end),
		REMOTE_TEST(test_liars),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, remote_need_redis, NULL);
}
