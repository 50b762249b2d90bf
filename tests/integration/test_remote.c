/*
 * test_remote: two daemons with caches of their own share a Redis: what one compiled the other
 * takes from there, one compiles what both want, and nothing is taken that was not sealed by a
 * trusted key for this very kernel.  test_remote_away.c takes the Redis away.
 */
#include "remote_scene.h"

#include <daemon/seal/seal.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ENTRY "kiln:1:entry:"
#define CLAIM "kiln:1:claim:"

/* ---- Reading through ---- */

static void test_read_through(void **state)
{
	struct remote_scene *scene = *state;
	struct permute problem = transpose(24, 52);

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	assert_permutes(a, &problem, "compiled");
	await_info(a, "counters.remote_written", 1);
	assert_int_equal(info_int(a, "remote.write.count"), 1);
	assert_permutes(b, &problem, "remote");
	assert_int_equal(info_int(b, "counters.remote_hits"), 1);
	assert_int_equal(info_int(b, "counters.hits"), 1);
	assert_int_equal(info_int(b, "counters.compiles"), 0);
	assert_int_equal(info_int(b, "counters.jobs"), 0);
	assert_int_equal(info_int(b, "counters.remote_writes"), 0);
	assert_true(info_int(b, "remote.ask.count") > 0);
	assert_counters_add_up(b);

	char *key = redis_key(scene, ENTRY);
	int64_t seconds = redis_int(scene, "TTL %s", key);
	assert_in_range(seconds, 2592000 - 60, 2592000);
	/* The claim is gone with the compile. */
	assert_int_equal(redis_int(scene, "EXISTS " CLAIM "%s", key + strlen(ENTRY)), 0);
	free(key);

	/* From then on it is b's own. */
	redis_kill(scene);
	assert_permutes(b, &problem, "hit");
	kiln_close(b);
	assert_true(kilnd_end(scene->b.daemon));
	host_spawn(&scene->b, scene->url, NULL);
	b = client_open(scene->b.daemon);
	assert_permutes(b, &problem, "hit");
	assert_int_equal(info_int(b, "counters.disk_hits"), 1);
	kiln_close(b);
	kiln_close(a);
}

/* Over TCP, by a name; and whoever has no key takes, and writes and claims nothing. */
static void test_reader(void **state)
{
	struct remote_scene *scene = *state;
	struct permute problem = transpose(25, 52), other = transpose(26, 52);
	char url[64], path[160];

	snprintf(path, sizeof(path), "%s/%s.key", scene->b.keys, scene->b.name);
	assert_int_equal(unlink(path), 0);
	host_start(&scene->a, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon);
	assert_permutes(a, &problem, "compiled");
	await_info(a, "counters.remote_written", 1);
	snprintf(url, sizeof(url), "redis://localhost:%d", redis_listen(scene));
	host_start(&scene->b, url, NULL);
	kiln_client *b = client_open(scene->b.daemon);
	assert_permutes(b, &problem, "remote");
	assert_permutes(b, &other, "compiled");
	assert_int_equal(info_int(b, "counters.remote_misses"), 1);
	assert_int_equal(info_int(b, "counters.remote_writes"), 0);
	assert_int_equal(redis_int(scene, "DBSIZE"), 1);
	kiln_close(b);
	kiln_close(a);
}

/* A client that may not compile takes others' kernels, and waits for no compile of theirs. */
static void test_frozen(void **state)
{
	struct remote_scene *scene = *state;
	struct permute problem = transpose(38, 52);
	struct remote_asking asking = {transpose(39, 52), "compiled"};
	char why[400];

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, OPTIONS("--on-miss", "error"));
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	assert_int_equal(permute_check(b, &problem, 1, NULL, why), KILN_EFROZEN);
	assert_int_equal(redis_int(scene, "DBSIZE"), 0);
	assert_permutes(a, &problem, "compiled");
	await_info(a, "counters.remote_written", 1);
	assert_permutes(b, &problem, "remote");
	debug_int(a, "delay-compile", "ms", 60000);
	pid_t first = host_ask(&scene->a, &asking);
	await_info(a, "busy.compiling", 1);
	assert_int_equal(redis_int(scene, "DBSIZE"), 2);
	assert_int_equal(permute_check(b, &asking.problem, 1, NULL, why), KILN_EFROZEN);
	assert_int_equal(info_int(b, "counters.lookups_frozen"), 2);
	assert_int_equal(info_int(b, "counters.remote_misses"), 2);
	kill(first, SIGKILL);
	process_wait(first, CALL_TIMEOUT_MS);
	kiln_close(b);
	kiln_close(a);
}

/* Before a generic kernel is used, and behind one, it is looked whether another host has the exact
 * one; nothing is compiled for that. */
static void test_lazy(void **state)
{
	struct remote_scene *scene = *state;
	struct permute first = transpose(40, 52), second = transpose(41, 52), third = transpose(42, 52);

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, OPTIONS("--specialize", "lazy"));
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	assert_permutes(a, &first, "compiled");
	assert_permutes(a, &third, "compiled");
	await_info(a, "counters.remote_written", 2);
	assert_permutes(b, &first, "remote");
	assert_int_equal(info_int(b, "counters.jobs"), 0);
	/* Nobody has this one: the generic kernel is compiled, for all. */
	assert_permutes(b, &second, "compiled");
	await_info(b, "counters.remote_written", 1);
	assert_permutes(b, &third, "generic");
	await_info(b, "counters.lookup_remote", 2);
	assert_int_equal(info_int(b, "counters.jobs"), 1);
	assert_counters_add_up(b);
	kiln_close(b);
	kiln_close(a);
}

/* ---- One compile for all ---- */

#define CLAIM_MS 1000

/* The second host takes what the first compiles for longer than a claim lasts: it was renewed.
 * False: a machine that stops for a moment let a claim end, an ask be late, or the second be. */
static bool compiles_once(const struct remote_scene *scene, kiln_client *a, kiln_client *b,
						  int number)
{
	struct remote_asking compiled = {transpose(27, 52 + number), "compiled"}, any = compiled;
	const int64_t jobs_of_a = info_int(a, "counters.jobs"),
				  jobs_of_b = info_int(b, "counters.jobs");
	const int64_t waits = info_int(b, "counters.remote_waits");

	any.origin = NULL;
	pid_t first = host_ask(&scene->a, &compiled);
	await_info(a, "counters.jobs", jobs_of_a + 1);
	const int64_t began = now_ms();
	pid_t second = host_ask(&scene->b, &any);
	pause_ms(CLAIM_MS);
	assert_counters_add_up(b);
	assert_int_equal(process_wait(second, CALL_TIMEOUT_MS), EXITED(0));
	const int64_t took = now_ms() - began;
	assert_int_equal(process_wait(first, CALL_TIMEOUT_MS), EXITED(0));
	assert_int_equal(info_int(a, "counters.jobs"), jobs_of_a + 1);
	return info_int(b, "counters.jobs") == jobs_of_b && took > 2 * CLAIM_MS &&
		   info_int(b, "counters.remote_waits") == waits + 1;
}

static void test_one_compile(void **state)
{
	struct remote_scene *scene = *state;
	bool once = false;

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	debug_int(a, "delay-compile", "ms", 4 * CLAIM_MS);
	for (int i = 0; i < 5 && !once; i++)
		once = compiles_once(scene, a, b, i);
	assert_true(once);
	kiln_close(b);
	kiln_close(a);
}

/* Looks that a slow Redis let down, each of which may have led to one more compile. */
static int64_t let_down(kiln_client *client)
{
	return info_int(client, "counters.remote_failures") +
		   info_int(client, "counters.remote_skipped") +
		   info_int(client, "counters.remote_overdue");
}

/* Both at the same moment, several kernels: each is compiled once.  A claim outlasts the test, so
 * that a slow machine does not end it. */
static void test_at_once(void **state)
{
	enum { KERNELS = 4 };
	struct remote_scene *scene = *state;
	struct remote_asking asking[KERNELS];
	pid_t pids[2][KERNELS];

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	debug_int(a, "remote-claim", "ms", 10 * CALL_TIMEOUT_MS);
	debug_int(b, "remote-claim", "ms", 10 * CALL_TIMEOUT_MS);
	for (int i = 0; i < KERNELS; i++) {
		/* Nobody knows which host compiles: the process's word on it does not count. */
		asking[i] = (struct remote_asking){transpose(28 + i, 52), NULL};
		pids[0][i] = host_ask(&scene->a, &asking[i]);
		pids[1][i] = host_ask(&scene->b, &asking[i]);
	}
	for (int i = 0; i < KERNELS; i++) {
		assert_int_equal(process_wait(pids[0][i], 3 * CALL_TIMEOUT_MS), EXITED(0));
		assert_int_equal(process_wait(pids[1][i], 3 * CALL_TIMEOUT_MS), EXITED(0));
	}
	int64_t compiled = info_int(a, "counters.jobs") + info_int(b, "counters.jobs");
	assert_in_range(compiled, KERNELS, KERNELS + let_down(a) + let_down(b));
	assert_int_equal(info_int(a, "counters.remote_hits") + info_int(b, "counters.remote_hits"),
					 2 * KERNELS - compiled);
	kiln_close(b);
	kiln_close(a);
}

static void test_holder_killed(void **state)
{
	struct remote_scene *scene = *state;
	struct remote_asking asking = {transpose(33, 52), "compiled"};
	struct remote_asking lost = asking;

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	debug_int(a, "delay-compile", "ms", 60000);
	pid_t first = host_ask(&scene->a, &lost);
	await_info(a, "busy.compiling", 1);
	pid_t second = host_ask(&scene->b, &asking);
	await_info(b, "busy.remote_asking", 1);
	kill(scene->a.daemon->pid, SIGKILL);
	int64_t killed = now_ms();
	kilnd_wait(scene->a.daemon, STOP_TIMEOUT_MS);
	await_info(b, "counters.jobs", 1);
	/* A claim lasts a second; a host with one is waited for for ten. */
	assert_in_range(now_ms() - killed, 0, 8000);
	assert_int_equal(process_wait(second, CALL_TIMEOUT_MS), EXITED(0));
	process_wait(first, CALL_TIMEOUT_MS);
	await_info(b, "counters.remote_written", 1);
	assert_int_equal(info_int(b, "counters.remote_misses"), 1);
	kiln_close(b);
	kiln_close(a);
}

/* How many keys the Redis has dropped because their time was over. */
static int64_t expired_keys(const struct remote_scene *scene)
{
	static const char name[] = "expired_keys:";
	char *figures = redis_ask(scene, "INFO stats");
	const char *at = strstr(figures, name);
	assert_non_null(at);
	int64_t count = strtoll(at + strlen(name), NULL, 10);
	free(figures);
	return count;
}

/* A compile fails on a, and b then has its own.  False: a's claim has ended by itself. */
static bool gives_claim_back(const struct remote_scene *scene, kiln_client *a, kiln_client *b,
							 int number)
{
	const struct permute problem = transpose(35 + number, 52);
	const int64_t expired = expired_keys(scene), end = now_ms() + CALL_TIMEOUT_MS;
	char why[400];

	debug_int(a, "fail-compile", "count", 1);
	assert_int_equal(permute_check(a, &problem, 1, NULL, why), KILN_ECOMPILE);
	/* No claim, and of entries one, and those of b. */
	while (redis_int(scene, "DBSIZE") != 1 + number && now_ms() < end)
		pause_ms(2);
	assert_int_equal(redis_int(scene, "DBSIZE"), 1 + number);
	const bool by_itself = expired_keys(scene) != expired;
	const int64_t written = info_int(b, "counters.remote_written");
	assert_permutes(b, &problem, "compiled");
	await_info(b, "counters.remote_written", written + 1);
	return !by_itself;
}

/* A daemon that waits for another host does not wait for ever.  One that needs no kernel any more,
 * or got none, gives the claim back at once. */
static void test_patience(void **state)
{
	struct remote_scene *scene = *state;
	struct remote_asking asking = {transpose(34, 52), "compiled"};
	bool given_back = false;

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	debug_int(a, "delay-compile", "ms", 60000);
	debug_int(b, "remote-patience", "ms", 200);
	pid_t first = host_ask(&scene->a, &asking);
	await_info(a, "busy.compiling", 1);
	pid_t second = host_ask(&scene->b, &asking);
	await_info(b, "counters.remote_overdue", 1);
	assert_int_equal(process_wait(second, CALL_TIMEOUT_MS), EXITED(0));
	await_info(b, "counters.remote_written", 1);
	kill(first, SIGKILL);
	process_wait(first, CALL_TIMEOUT_MS);
	await_info(a, "counters.canceled", 1);

	debug_int(a, "delay-compile", "ms", 0);
	debug_int(b, "remote-patience", "ms", 60000);
	/* On a machine that stops for a second a claim may end by itself. */
	for (int i = 0; i < 5 && !given_back; i++)
		given_back = gives_claim_back(scene, a, b, i);
	assert_true(given_back);
	kiln_close(b);
	kiln_close(a);
}

/* ---- What is not taken ---- */

struct forging {
	struct remote_scene *scene;
	const char *key; /* of the entry */
	const unsigned char *entry;
	size_t size;
	const unsigned char *other; /* a good entry of another kernel */
	size_t other_size;
	struct seal_secret stranger, friend;
};

static void put_bytes(const struct forging *forging, const void *bytes, size_t size)
{
	free(redis_ask(forging->scene, "SET %s %b", forging->key, bytes, size));
}

static void put_sealed(const struct forging *forging, const struct seal_secret *secret,
					   const char *purpose, int64_t until)
{
	void *record;
	size_t size;
	assert_true(seal_record(secret, purpose, forging->entry, forging->size - SEAL_BYTES,
							(int64_t)time(NULL) - 100, until, &record, &size));
	put_bytes(forging, record, size);
	free(record);
}

/* Each leaves another kind of wrong entry. */
static void flip(const struct forging *forging)
{
	unsigned char *copy = malloc(forging->size);
	assert_non_null(copy);
	memcpy(copy, forging->entry, forging->size);
	copy[forging->size / 2] ^= 4;
	put_bytes(forging, copy, forging->size);
	free(copy);
}

static void cut(const struct forging *forging)
{
	put_bytes(forging, forging->entry, forging->size - 1);
}

static void leave_unsealed(const struct forging *forging)
{
	put_bytes(forging, forging->entry, forging->size - SEAL_BYTES);
}

static void shorten(const struct forging *forging)
{
	put_bytes(forging, "x", 1);
}

static void swap(const struct forging *forging)
{
	put_bytes(forging, forging->other, forging->other_size);
}

static void seal_as_stranger(const struct forging *forging)
{
	put_sealed(forging, &forging->stranger, "row 1", 0);
}

static void seal_expired(const struct forging *forging)
{
	put_sealed(forging, &forging->friend, "row 1", (int64_t)time(NULL) - 10);
}

static void seal_for_else(const struct forging *forging)
{
	put_sealed(forging, &forging->friend, "pack 1", 0);
}

static void make_list(const struct forging *forging)
{
	free(redis_ask(forging->scene, "DEL %s", forging->key));
	free(redis_ask(forging->scene, "LPUSH %s x", forging->key));
}

static void make_huge(const struct forging *forging)
{
	free(redis_ask(forging->scene, "SETRANGE %s 9000000 x", forging->key));
}

static const struct {
	void (*forge)(const struct forging *);
	const char *sentence; /* in the log */
} forgeries[] = {
	{flip, "was altered after key host-a"},
	{cut, "is not sealed"},
	{leave_unsealed, "is not sealed"},
	{shorten, "is not sealed"},
	{swap, "it is another kernel's"},
	{seal_as_stranger, "which is not trusted here"},
	{seal_expired, "expired"},
	{seal_for_else, "was altered after key host-a"},
	{make_list, "a value of another type"},
	{make_huge, "larger than entries are"},
};
#define FORGERIES ((int)(sizeof(forgeries) / sizeof(forgeries[0])))

/* How often the Redis did not answer within its second. */
static int64_t missed(kiln_client *b)
{
	return info_int(b, "counters.remote_failures") + info_int(b, "counters.remote_skipped") +
		   info_int(b, "counters.remote_write_failures");
}

/* Writes that have ended, well or not. */
static int64_t writes_done(kiln_client *b)
{
	return info_int(b, "counters.remote_written") + info_int(b, "counters.remote_dropped") +
		   info_int(b, "counters.remote_write_failures");
}

/* Asks for the kernel, which comes from there, and waits until what was compiled is written.  False
 * if the Redis missed a deadline meanwhile, as on a busy machine: the answer says nothing then. */
static bool asked(kiln_client *b, const struct permute *problem, const char *origin)
{
	int64_t before = missed(b), done = writes_done(b);
	char got[16], why[400];
	cache_clear(b, NULL);
	if (permute_check(b, problem, 7, got, why))
		fail_msg("permute: %s", why);
	while (strcmp(got, "compiled") == 0 && writes_done(b) == done)
		pause_ms(2);
	if (missed(b) != before)
		return false;
	assert_string_equal(got, origin);
	return true;
}

/* Waits until the last line that tells of an entry that was refused has these words. */
static void await_last_line(const struct kilnd *daemon, const char *sentence, const char *kernel)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	for (bool there = false; !there; pause_ms(5)) {
		char *log = kilnd_log(daemon);
		const char *last = log;
		for (const char *at = log; (at = strstr(at, " is compiled here\n")); at++)
			last = at;
		while (last > log && last[-1] != '\n')
			last--;
		there = strstr(last, sentence) && strstr(last, kernel);
		if (!there && now_ms() > end)
			fail_msg("no \"%s\" in: %s", sentence, last);
		free(log);
	}
}

static void forge_all(struct forging *forging, kiln_client *b, const struct permute *problem)
{
	struct remote_scene *scene = forging->scene;
	char kernel[32];
	for (int i = 0; i < FORGERIES; i++) {
		int64_t refused, written;
		do {
			forgeries[i].forge(forging);
			refused = info_int(b, "counters.remote_refused");
			written = info_int(b, "counters.remote_written");
		} while (!asked(b, problem, "compiled"));
		assert_int_equal(info_int(b, "counters.remote_refused"), refused + 1);
		snprintf(kernel, sizeof(kernel), "kernel %.12s", forging->key + strlen(ENTRY));
		await_last_line(scene->b.daemon, forgeries[i].sentence, kernel);
		/* It is mended by whoever noticed. */
		assert_int_equal(info_int(b, "counters.remote_written"), written + 1);
		while (!asked(b, problem, "remote"))
			continue;
	}
}

static void test_forgeries(void **state)
{
	struct remote_scene *scene = *state;
	struct permute problem = transpose(36, 52), other = transpose(37, 52);
	struct forging forging = {.scene = scene};
	char error[KERNEL_ERROR_MAX], elsewhere[160];
	struct seal_key key;

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	assert_permutes(a, &other, "compiled");
	await_info(a, "counters.remote_written", 1);
	char *name = redis_key(scene, ENTRY);
	unsigned char *other_entry = redis_bytes(scene, name, &forging.other_size);
	free(redis_ask(scene, "DEL %s", name));
	free(name);
	assert_permutes(a, &problem, "compiled");
	await_info(a, "counters.remote_written", 2);
	name = redis_key(scene, ENTRY);
	unsigned char *entry = redis_bytes(scene, name, &forging.size);
	forging.key = name;
	forging.entry = entry;
	forging.other = other_entry;
	snprintf(elsewhere, sizeof(elsewhere), "%s/stranger", scene->a.daemon->dir);
	assert_int_equal(seal_new(elsewhere, "stranger", &key, error), KILN_OK);
	assert_int_equal(seal_open(elsewhere, NULL, &forging.stranger, error), KILN_OK);
	assert_int_equal(seal_open(scene->a.keys, NULL, &forging.friend, error), KILN_OK);
	forge_all(&forging, b, &problem);

	/* Trusted and not trusted from one moment to the next. */
	int64_t refused;
	assert_int_equal(seal_trust(scene->b.trusted, &key, error), KILN_OK);
	do
		seal_as_stranger(&forging);
	while (!asked(b, &problem, "remote"));
	assert_int_equal(info_int(b, "remote.trusted"), 3);
	assert_int_equal(seal_distrust(scene->b.trusted, "stranger", &key, error), KILN_OK);
	do {
		seal_as_stranger(&forging);
		refused = info_int(b, "counters.remote_refused");
	} while (!asked(b, &problem, "compiled"));
	assert_int_equal(info_int(b, "counters.remote_refused"), refused + 1);
	assert_counters_add_up(b);
	free(name);
	free(entry);
	free(other_entry);
	kiln_close(b);
	kiln_close(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		REMOTE_TEST(test_read_through),  REMOTE_TEST(test_reader),      REMOTE_TEST(test_frozen),
		REMOTE_TEST(test_lazy),          REMOTE_TEST(test_one_compile), REMOTE_TEST(test_at_once),
		REMOTE_TEST(test_holder_killed), REMOTE_TEST(test_patience),    REMOTE_TEST(test_forgeries),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, remote_need_redis, NULL);
}
