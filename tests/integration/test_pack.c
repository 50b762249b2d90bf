/*
 * test_pack: kernels that one daemon has compiled are served by another, from a file that somebody
 * trusted has sealed; and by no other way.
 */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KERNELS 3

static char pack[128], other[128];

static kiln_reply *ask(kiln_client *client, const char *request, const kiln_attr *args, int count)
{
	kiln_reply *reply;
	if (kiln_request(client, request, args, count, &reply))
		fail_msg("%s: %s", request, kiln_errmsg());
	return reply;
}

static int64_t ask_int(kiln_client *client, const char *request, const kiln_attr *args, int count,
					   const char *member)
{
	kiln_reply *reply = ask(client, request, args, count);
	int64_t value = kiln_reply_int(reply, member);
	kiln_reply_free(reply);
	return value;
}

static void refused(kiln_client *client, const char *request, const char *path, int status,
					const char *part)
{
	kiln_attr arg = string_attr("path", path);
	kiln_reply *reply;
	assert_int_equal(kiln_request(client, request, &arg, 1, &reply), status);
	assert_sentence(part);
}

/* Three kernels, a compile that failed, a key, and a pack of it all. */
static kiln_client *make_pack(struct kilnd *daemon)
{
	kiln_attr name = string_attr("name", "builder"), path;
	struct permute failing = transpose(50, 90);
	char origin[16], why[400];
	kiln_client *client;

	snprintf(pack, sizeof(pack), "%s/kernels.pack", daemon->dir);
	snprintf(other, sizeof(other), "--cache-dir=%s/other", daemon->dir);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	for (int i = 0; i < KERNELS; i++) {
		struct permute problem = transpose(20 + i, 90);
		assert_permutes(client, &problem, "compiled");
	}
	debug_int(client, "fail-compile", "count", 1);
	assert_int_equal(permute_check(client, &failing, 1, origin, why), KILN_ECOMPILE);
	await_info(client, "cache.rows", KERNELS);
	refused(client, "cache.export", pack, KILN_ENOENT, "kiln key new");
	kiln_reply_free(ask(client, "key.new", &name, 1));
	path = string_attr("path", pack);
	assert_int_equal(ask_int(client, "cache.export", &path, 1, "rows"), KERNELS);
	return client;
}

static void restart_with_other_cache(struct kilnd *daemon, kiln_client **client)
{
	kiln_close(*client);
	kilnd_stop(daemon);
	kilnd_start(daemon, OPTIONS(other));
	*client = client_open(daemon);
}

static void test_to_another_host(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client = make_pack(daemon);
	kiln_attr path = string_attr("path", pack);
	kiln_reply *reply;

	restart_with_other_cache(daemon, &client);
	reply = ask(client, "cache.import", &path, 1);
	assert_int_equal(kiln_reply_int(reply, "imported"), KERNELS);
	assert_int_equal(kiln_reply_int(reply, "present"), 0);
	assert_string_equal(kiln_reply_str(reply, "key"), "builder");
	assert_int_equal(kiln_reply_count(reply, "compilers"), 1);
	assert_int_equal(kiln_reply_int(reply, "compilers[0].here"), 1);
	kiln_reply_free(reply);
	for (int i = 0; i < KERNELS; i++) {
		struct permute problem = transpose(20 + i, 90);
		assert_permutes(client, &problem, "hit");
	}
	assert_int_equal(info_int(client, "counters.compiles"), 0);
	assert_int_equal(ask_int(client, "cache.import", &path, 1, "present"), KERNELS);
	assert_cache_verifies(client, KERNELS);
	/* A kernel that failed there is tried here. */
	struct permute failing = transpose(50, 90);
	assert_permutes(client, &failing, "compiled");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* Flips a bit so far from the end. */
static void flip(long from_end)
{
	FILE *file = fopen(pack, "r+");
	int byte;
	assert_non_null(file);
	assert_int_equal(fseek(file, -from_end, SEEK_END), 0);
	byte = fgetc(file);
	assert_int_equal(fseek(file, -from_end, SEEK_END), 0);
	fputc(byte ^ 1, file);
	assert_int_equal(fclose(file), 0);
}

static void test_refusals(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client = make_pack(daemon);
	kiln_attr args[2] = {string_attr("path", pack), string_attr("key", "nobody")},
			  name = string_attr("name", "builder");
	kiln_reply *reply;
	struct stat status;

	refused(client, "cache.export", "/nonexistent/k.pack", KILN_EIO, "/nonexistent/k.pack");
	refused(client, "cache.export", "k.pack", KILN_EINVAL, "absolute path");
	assert_int_equal(kiln_request(client, "cache.export", args, 2, &reply), KILN_ENOENT);
	assert_sentence("kiln key new nobody");
	restart_with_other_cache(daemon, &client);
	refused(client, "cache.import", "/nonexistent/k.pack", KILN_EIO, "No such file");
	refused(client, "cache.import", "/", KILN_EIO, "/ is no file");
	refused(client, "cache.import", daemon->log, KILN_EINVAL, "is no pack");
	flip(1000);
	refused(client, "cache.import", pack, KILN_EPERM, "was altered after key builder");
	flip(1000);
	assert_int_equal(stat(pack, &status), 0);
	assert_int_equal(truncate(pack, status.st_size - 1), 0);
	refused(client, "cache.import", pack, KILN_EPERM, "is not sealed");
	assert_int_equal(info_int(client, "cache.rows"), 0);
	assert_int_equal(truncate(pack, 0), 0);
	refused(client, "cache.import", pack, KILN_EINVAL, "is no pack");
	kiln_reply_free(ask(client, "key.distrust", &name, 1));
	kiln_close(client);
	kilnd_stop(daemon);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_int_equal(ask_int(client, "cache.export", args, 1, "rows"), KERNELS);
	refused(client, "cache.import", pack, KILN_EPERM, "which is not trusted here");
	kiln_close(client);
	kilnd_stop(daemon);
}

static int import_once(const struct kilnd *daemon, void *arg)
{
	kiln_attr path = string_attr("path", pack);
	kiln_client *client = client_try(daemon, 5000, arg);
	kiln_reply *reply;
	return client && !kiln_request(client, "cache.import", &path, 1, &reply) ? 0 : 1;
}

/* When the client that asks is killed, all of the pack is there, or nothing. */
static void test_a_client_goes(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client = make_pack(daemon);
	int status;

	restart_with_other_cache(daemon, &client);
	for (int i = 0; i < 12; i++) {
		pid_t pid = process_start(daemon, import_once, &status);
		pause_ms(i);
		kill(pid, SIGKILL);
		process_wait(pid, 5000);
		await_info(client, "server.sessions", 1);
		/* The store's thread does one after another: this comes after what was left. */
		for (int k = 0; k < 4; k++)
			kiln_reply_free(ask(client, "cache.ls", NULL, 0));
		int64_t removed = cache_clear(client, NULL);
		assert_true(removed == 0 || removed == KERNELS);
	}
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The daemon is killed: rows are there whole or not at all, and the next import takes the rest. */
static void test_the_daemon_goes(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client = make_pack(daemon);
	kiln_attr path = string_attr("path", pack);
	int status;

	restart_with_other_cache(daemon, &client);
	for (int i = 0; i < 5; i++) {
		pid_t pid = process_start(daemon, import_once, &status);
		pause_ms(2 * i);
		kiln_close(client);
		kill(daemon->pid, SIGKILL);
		kilnd_wait(daemon, 5000);
		process_wait(pid, 10000);
		assert_no_children();
		kilnd_start(daemon, OPTIONS(other));
		client = client_open(daemon);
		assert_cache_verifies(client, 0);
		assert_int_equal(ask_int(client, "cache.import", &path, 1, "rows"), KERNELS);
		await_info(client, "cache.rows", KERNELS);
		assert_cache_verifies(client, KERNELS);
		cache_clear(client, NULL);
	}
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_to_another_host),
		HARNESS_TEST(test_refusals),
		HARNESS_TEST(test_a_client_goes),
		HARNESS_TEST(test_the_daemon_goes),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
