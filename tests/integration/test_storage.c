/*
 * test_storage: a daemon whose disk is full, read-only, broken or slow, whose cache or socket is
 * taken away, and several daemons in one place: launches go on, the trouble is named, it ends by
 * itself, and nobody waits for ever.  The cache alone, call by call: test_cache_faults.
 */
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON_MS 300 /* the store's deadline in these tests, where 2 s is usual */

static void store_fault(kiln_client *client, const char *kind, int64_t ms)
{
	const kiln_attr args[] = {string_attr("what", "store-fault"), string_attr("kind", kind),
							  int_attr("ms", ms)};
	kiln_reply *reply = NULL;
	assert_ok(kiln_request(client, "debug", args, 3, &reply));
	kiln_reply_free(reply);
}

/* The daemon looks after its cache and its socket, as it does every few seconds. */
static void look(kiln_client *client)
{
	const kiln_attr what = string_attr("what", "look");
	kiln_reply *reply = NULL;
	assert_ok(kiln_request(client, "debug", &what, 1, &reply));
	kiln_reply_free(reply);
}

/* info's cache.trouble has these words; "": there is none. */
static bool trouble_is(kiln_client *client, const char *words)
{
	kiln_reply *reply = NULL;
	assert_ok(kiln_request(client, "info", NULL, 0, &reply));
	const char *trouble = kiln_reply_str(reply, "cache.trouble");
	bool is = words[0] ? strstr(trouble, words) != NULL : !trouble[0];
	kiln_reply_free(reply);
	return is;
}

static void await_trouble(kiln_client *client, const char *words)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (!trouble_is(client, words)) {
		if (now_ms() > end)
			fail_msg("cache.trouble does not become \"%s\"", words);
		pause_ms(5);
	}
}

static void await_log(const struct kilnd *daemon, const char *words)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	for (bool found = false; !found;) {
		char *log = kilnd_log(daemon);
		found = strstr(log, words) != NULL;
		if (!found && now_ms() > end)
			fail_msg("the log does not say \"%s\": %s", words, log);
		free(log);
		pause_ms(5);
	}
}

static void set_deadline(kiln_client *client)
{
	debug_int(client, "store-deadline", "ms", SOON_MS);
}

/* The device process loads all kernels again, and has to ask for them. */
static void forget_loaded(kiln_client *client)
{
	int64_t restarts = info_int(client, "executors[0].restarts");
	debug_str(client, "kill", "role", "executor");
	await_info(client, "executors[0].restarts", restarts + 1);
}

/* ---- A disk that refuses ---- */

static void test_refused(void **state)
{
	static const char *const kinds[][2] = {{"full", "make room on its disk"},
										   {"readonly", "make its file system writable"},
										   {"failing", "see to its disk"}};
	struct kilnd *daemon = *state;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	for (int i = 0; i < 3; i++) {
		struct permute problem = transpose(20 + i, 90 + i);
		store_fault(client, kinds[i][0], 0);
		assert_permutes(client, &problem, "compiled");
		await_info(client, "cache.unsaved", 1);
		assert_true(trouble_is(client, kinds[i][1]) && trouble_is(client, daemon->cache));
		/* From memory, without a compile. */
		forget_loaded(client);
		assert_permutes(client, &problem, "hit");
		assert_int_equal(info_int(client, "counters.compiles"), i + 1);
		store_fault(client, "none", 0);
		look(client);
		await_trouble(client, "");
		await_info(client, "cache.unsaved", 0);
	}
	kiln_close(client);
	kilnd_stop(daemon);

	/* The next daemon has them all, also when it starts on such a disk. */
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	for (int i = 0; i < 3; i++) {
		struct permute problem = transpose(20 + i, 90 + i);
		assert_permutes(client, &problem, "hit");
	}
	assert_cache_verifies(client, 3);
	assert_int_equal(info_int(client, "cache.set_aside"), 0);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- A database that another program has locked ---- */

/* As SQLite locks its files, from this process: an exclusive lock. */
static int lock_database(const struct kilnd *daemon)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0x40000000, .l_len = 512};
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/kiln.db", daemon->cache);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_SETLK, &lock), 0);
	return fd;
}

static int count_winners(kiln_client *client)
{
	kiln_reply *reply = NULL;
	assert_ok(kiln_request(client, "tuned.ls", NULL, 0, &reply));
	int count = kiln_reply_count(reply, "rows");
	kiln_reply_free(reply);
	return count;
}

static void put_winner(kiln_client *client)
{
	const kiln_attr args[] = {
		string_attr("op", "permute"),  string_attr("model", "a model"),
		string_attr("target", "cpu"),  string_attr("signature", "permute_tile<u32>"),
		string_attr("choice", "copy"), int_attr("micros", 1),
		int_attr("own_micros", 2)};
	kiln_reply *reply = NULL;
	assert_ok(kiln_request(client, "tuned.put", args, 7, &reply));
	kiln_reply_free(reply);
}

static void test_locked(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	kiln_client *client;
	int lock;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	put_winner(client);
	kiln_close(client);
	kilnd_stop(daemon);

	lock = lock_database(daemon);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_true(trouble_is(client, "end the other program that has it open"));
	assert_permutes(client, &problem, "compiled");
	await_info(client, "cache.unsaved", 1);
	assert_int_equal(count_winners(client), 0);
	close(lock);
	look(client);
	await_trouble(client, "");
	await_info(client, "cache.rows", 1);
	await_info(client, "cache.unsaved", 0);
	for (int64_t end = now_ms() + CALL_TIMEOUT_MS; count_winners(client) != 1 && now_ms() < end;)
		pause_ms(5);
	assert_int_equal(count_winners(client), 1);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- A slow disk ---- */

static kiln_reply *ask_ls(kiln_client *client, int *status)
{
	kiln_reply *reply = NULL;
	*status = kiln_request(client, "cache.ls", NULL, 0, &reply);
	return reply;
}

static void test_slow(void **state)
{
	struct kilnd *daemon = *state;
	struct permute first = transpose(20, 90), second = transpose(21, 91);
	kiln_client *client, *other;
	int64_t began;
	int status;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	other = client_open(daemon);
	assert_permutes(client, &first, "compiled");
	await_info(client, "cache.rows", 1);
	debug_str(client, "expire", NULL, NULL);
	set_deadline(client);
	store_fault(client, "slow", 30000);
	/* Its row is being written, for ever; the others go on. */
	assert_permutes(client, &second, "compiled");
	await_trouble(client, "has not answered for");
	assert_true(trouble_is(client, daemon->cache));
	await_log(daemon, "the disk of the cache");
	began = now_ms();
	for (int i = 0; i < 20; i++)
		assert_int_equal(info_int(other, "server.pid"), daemon->pid);
	assert_in_range(now_ms() - began, 0, 15000);
	/* A client that asks the cache itself is told. */
	began = now_ms();
	kiln_reply_free(ask_ls(other, &status));
	assert_int_equal(status, KILN_ETIMEDOUT);
	assert_sentence("the disk of the cache");
	assert_sentence("see to it");
	assert_in_range(now_ms() - began, 0, 15000);
	/* A kernel that only the disk has is compiled again. */
	forget_loaded(client);
	assert_permutes(client, &first, "compiled");
	assert_true(info_int(client, "counters.lookups_late") >= 1);
	/* And when it answers, all is as before. */
	store_fault(client, "none", 0);
	debug_int(client, "store-deadline", "ms", CALL_TIMEOUT_MS);
	await_trouble(client, "");
	await_info(client, "cache.rows", 2);
	assert_cache_verifies(client, 2);
	kiln_reply_free(ask_ls(other, &status));
	assert_int_equal(status, KILN_OK);
	kiln_close(other);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A daemon that ends does not wait for it either. */
static void test_slow_end(void **state)
{
	struct kilnd *daemon = *state;
	struct permute first = transpose(20, 90), second = transpose(21, 91);
	kiln_client *client;
	int64_t began;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &first, "compiled");
	await_info(client, "cache.rows", 1);
	set_deadline(client);
	store_fault(client, "slow", 30000);
	assert_permutes(client, &second, "compiled");
	await_trouble(client, "has not answered for");
	kiln_close(client);
	began = now_ms();
	kill(daemon->pid, SIGTERM);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	assert_in_range(now_ms() - began, 0, 20000);
	await_log(daemon, "does not answer; it is left as it is");
	assert_no_children();

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &first, "hit");
	assert_cache_verifies(client, 1);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- What is taken away ---- */

static void remove_tree(const char *path)
{
	char command[160];
	snprintf(command, sizeof(command), "rm -rf %s", path);
	assert_int_equal(system(command), 0);
}

static void test_taken_away(void **state)
{
	struct kilnd *daemon = *state;
	struct permute first = transpose(20, 90), second = transpose(21, 91);
	char runtime[80], lock[128];
	struct stat status;
	kiln_client *client, *other;

	snprintf(runtime, sizeof(runtime), "%s/run", daemon->dir);
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/kiln.sock", runtime);
	snprintf(lock, sizeof(lock), "%s.lock", daemon->socket);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &first, "compiled");
	await_info(client, "cache.rows", 1);

	/* The cache: what memory has is written anew, and calls do not notice. */
	remove_tree(daemon->cache);
	assert_permutes(client, &second, "compiled");
	look(client);
	await_info(client, "cache.rows", 2);
	assert_cache_verifies(client, 2);

	/* The socket, its lock, and their directory: new clients find the daemon again. */
	assert_int_equal(unlink(daemon->socket), 0);
	look(client);
	other = client_open(daemon);
	assert_permutes(other, &first, "hit");
	assert_int_equal(unlink(lock), 0);
	look(client);
	assert_int_equal(stat(lock, &status), 0);
	remove_tree(runtime);
	look(client);
	assert_int_equal(stat(runtime, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0700);
	assert_int_equal(stat(daemon->socket, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	kiln_close(other);
	other = client_open(daemon);
	assert_permutes(other, &second, "hit");
	kiln_close(other);
	kiln_close(client);
	kilnd_stop(daemon);

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &second, "hit");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Several daemons ---- */

#define RACERS 8

/* Starts them at once; the one that serves is daemon, and of the others each says why not. */
static void race(struct kilnd *daemon)
{
	struct kilnd racers[RACERS];
	kiln_client *client;

	for (int i = 0; i < RACERS; i++) {
		racers[i] = *daemon;
		snprintf(racers[i].log, sizeof(racers[i].log), "%s/log%d", daemon->dir, i);
		unlink(racers[i].log);
		kilnd_spawn(&racers[i], NULL, NULL, -1);
	}
	kilnd_await(&racers[0]);
	client = client_open(&racers[0]);
	daemon->pid = (pid_t)info_int(client, "server.pid");
	kiln_close(client);
	for (int i = 0; i < RACERS; i++) {
		if (racers[i].pid == daemon->pid)
			continue;
		assert_int_equal(kilnd_wait(&racers[i], STOP_TIMEOUT_MS), EXITED(1));
		char *log = kilnd_log(&racers[i]);
		if (!strstr(log, daemon->socket))
			fail_msg("it does not say why it ended: %s", log);
		free(log);
	}
}

static void test_race(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	kiln_client *client;

	race(daemon);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	await_info(client, "cache.rows", 1);
	kiln_close(client);
	/* A dead one leaves its socket and its locks. */
	kill(daemon->pid, SIGKILL);
	kilnd_wait(daemon, 2000);
	assert_no_children();
	assert_int_equal(access(daemon->socket, F_OK), 0);
	race(daemon);
	client = client_open(daemon);
	assert_permutes(client, &problem, "hit");
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_refused),  HARNESS_TEST(test_locked),     HARNESS_TEST(test_slow),
		HARNESS_TEST(test_slow_end), HARNESS_TEST(test_taken_away), HARNESS_TEST(test_race),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
