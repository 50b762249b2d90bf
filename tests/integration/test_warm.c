/*
 * test_warm: what was asked for is recorded, and lines of a manifest become kernels before anybody
 * asks for them, also by a compiler that the host has not changed to yet.
 */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LINE "permute x=f32:%dx90 y=f32:90x%d perm=[1,0]"

static kiln_reply *ask(kiln_client *client, const char *request, const kiln_attr *args, int count)
{
	kiln_reply *reply;
	if (kiln_request(client, request, args, count, &reply))
		fail_msg("%s: %s", request, kiln_errmsg());
	return reply;
}

/* The answer's origin, or the status of the refusal as a text. */
static const char *warm(kiln_client *client, const char *line, const char *target,
						const char *compiler)
{
	static char origin[32];
	kiln_attr args[3] = {string_attr("line", line)};
	kiln_reply *reply;
	int count = 1, status;

	if (target)
		args[count++] = string_attr("target", target);
	if (compiler)
		args[count++] = string_attr("compiler", compiler);
	status = kiln_request(client, "warm", args, count, &reply);
	if (status)
		return kiln_status_name(status);
	snprintf(origin, sizeof(origin), "%s", kiln_reply_str(reply, "origin"));
	kiln_reply_free(reply);
	return origin;
}

static const char *line_of(int rows)
{
	static char line[128];
	snprintf(line, sizeof(line), LINE, rows, rows);
	return line;
}

/* A C++ compiler in the test's directory that is another one than g++, and does the same after
 * these commands. */
static const char *wrapper(const struct kilnd *daemon, const char *name, const char *commands)
{
	static char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", daemon->dir, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "#!/bin/sh\n# %s\n%s\nexec g++ \"$@\"\n", name, commands);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0755), 0);
	return path;
}

static void start_with(struct kilnd *daemon, const char *compiler)
{
	static char variable[160];
	const char *const environment[] = {variable, NULL};
	snprintf(variable, sizeof(variable), "KILN_CXX=%s", compiler);
	kilnd_spawn(daemon, OPTIONS("--workers=3"), environment, -1);
	kilnd_await(daemon);
}

static void test_record(void **state)
{
	struct kilnd *daemon = *state;
	struct permute first = transpose(20, 90), second = transpose(21, 90);
	kiln_client *client;
	kiln_reply *reply;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &second, NULL);
	assert_permutes(client, &first, NULL);
	assert_permutes(client, &first, NULL);
	/* A warmed kernel does not count as asked for by a program. */
	assert_string_equal(warm(client, line_of(22), NULL, NULL), "compiled");
	reply = ask(client, "record", NULL, 0);
	assert_string_equal(kiln_reply_str(reply, "text"),
						"permute x=f32:20x90 y=f32:90x20 perm=[1,0]  # asked 2 times for cpu\n"
						"permute x=f32:21x90 y=f32:90x21 perm=[1,0]  # asked 1 time for cpu\n");
	assert_int_equal(kiln_reply_int(reply, "problems"), 2);
	assert_int_equal(kiln_reply_int(reply, "left_out"), 0);
	kiln_reply_free(reply);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_warm(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_string_equal(warm(client, line_of(20), NULL, NULL), "compiled");
	assert_string_equal(warm(client, line_of(20), "cpu", NULL), "hit");
	assert_permutes(client, &problem, "hit");
	assert_string_equal(warm(client, "permute x=f32:20x90 perm=[0,1] # copied", NULL, NULL),
						"copy");
	assert_string_equal(warm(client, "permute x=f32:20x90 perm=[0,9]", NULL, NULL), "KILN_EINVAL");
	assert_sentence("perm");
	assert_string_equal(warm(client, "permute x=f32:20y90", NULL, NULL), "KILN_EINVAL");
	assert_sentence("column 17: ");
	assert_string_equal(warm(client, line_of(20), "sm_1", NULL), "KILN_EINVAL");
	assert_sentence("sm_1");
	debug_int(client, "fail-compile", "count", 1);
	assert_string_equal(warm(client, line_of(23), NULL, NULL), "KILN_ECOMPILE");
	assert_int_equal(info_int(client, "counters.failures"), 1);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The only kernel that there is. */
static void only_key(kiln_client *client, char line[96])
{
	kiln_reply *reply = ask(client, "cache.ls", NULL, 0);
	assert_int_equal(kiln_reply_count(reply, "rows"), 1);
	snprintf(line, 96, "kernel %s # and a word", kiln_reply_str(reply, "rows[0].key"));
	kiln_reply_free(reply);
}

/* A kernel from the cache, by another compiler; then the host changes to it, and back. */
static void change_of_compiler(struct kilnd *daemon, bool by_key)
{
	struct permute problem = transpose(20, 90);
	char a[128], b[128], line[96];
	kiln_client *client;

	snprintf(a, sizeof(a), "%s", wrapper(daemon, "a++", ":"));
	snprintf(b, sizeof(b), "%s", wrapper(daemon, "b++", ":"));
	start_with(daemon, a);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	await_info(client, "cache.rows", 1);
	only_key(client, line);
	if (!by_key)
		snprintf(line, sizeof(line), LINE, 20, 20);
	assert_string_equal(warm(client, line, NULL, b), "compiled");
	assert_string_equal(warm(client, line, NULL, b), "hit");
	assert_int_equal(info_int(client, "counters.compiles"), 1);
	await_info(client, "cache.rows", 2);
	kiln_close(client);
	kilnd_stop(daemon);
	for (int i = 0; i < 2; i++) {
		start_with(daemon, i ? a : b);
		client = client_open(daemon);
		assert_permutes(client, &problem, "hit");
		assert_int_equal(info_int(client, "counters.compiles"), 0);
		assert_int_equal(info_int(client, "cache.rows"), 2);
		assert_cache_verifies(client, 2);
		kiln_close(client);
		kilnd_stop(daemon);
	}
}

static void test_next_compiler(void **state)
{
	change_of_compiler(*state, false);
}

static void test_next_compiler_by_key(void **state)
{
	change_of_compiler(*state, true);
}

/* Where a compiler worker has its libnvrtc from; false: it has none. */
static bool find_nvrtc(kiln_client *client, char path[512])
{
	kiln_attr what = string_attr("what", "children");
	kiln_reply *reply = ask(client, "debug", &what, 1);
	char name[64], line[1024];
	bool found = false;

	for (int i = 0; i < kiln_reply_count(reply, "rows") && !found; i++) {
		snprintf(name, sizeof(name), "rows[%d].pid", i);
		snprintf(line, sizeof(line), "/proc/%d/maps", (int)kiln_reply_int(reply, name));
		FILE *maps = fopen(line, "r");
		while (maps && !found && fgets(line, sizeof(line), maps))
			found = strstr(line, "/libnvrtc.so") && sscanf(strchr(line, '/'), "%511s", path) == 1;
		if (maps)
			fclose(maps);
	}
	kiln_reply_free(reply);
	return found;
}

/* The same libnvrtc in the test's directory, and its builtins with one byte more: another one. */
static void make_nvrtc(const struct kilnd *daemon, const char *path, char directory[128])
{
	char command[2048];
	const char *slash = strrchr(path, '/');

	snprintf(directory, 128, "%s/nvrtc", daemon->dir);
	snprintf(command, sizeof(command),
			 "set -e; mkdir %s; ln %s %s/ 2>/dev/null || cp %s %s/; "
			 "for b in %.*s/libnvrtc-builtins.so.*; do cp -L $b %s/; printf x >>%s/${b##*/}; done",
			 directory, path, directory, path, directory, (int)(slash - path), path, directory,
			 directory);
	assert_int_equal(system(command), 0);
}

/* GPUs' kernels, without a GPU: before the toolkit is changed, and back again. */
static void test_next_toolkit(void **state)
{
	struct kilnd *daemon = *state;
	static char directory[128], variable[640];
	const char *const environment[] = {variable, NULL};
	char path[512];
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_string_equal(warm(client, line_of(20), "sm_90", NULL), "compiled");
	if (!find_nvrtc(client, path)) {
		kiln_close(client);
		skip();
	}
	make_nvrtc(daemon, path, directory);
	assert_string_equal(warm(client, line_of(20), "sm_90", path), "hit"); /* it is the same one */
	kiln_close(client);
	client = client_open(daemon);
	assert_string_equal(warm(client, line_of(20), "sm_90", directory), "compiled");
	kiln_close(client);
	kilnd_stop(daemon);
	for (int i = 0; i < 2; i++) {
		snprintf(variable, sizeof(variable), "KILN_NVRTC=%s", i ? path : directory);
		kilnd_spawn(daemon, NULL, environment, -1);
		kilnd_await(daemon);
		client = client_open(daemon);
		assert_string_equal(warm(client, line_of(20), "sm_90", NULL), "hit");
		assert_int_equal(info_int(client, "counters.compiles"), 0);
		kiln_close(client);
		kilnd_stop(daemon);
	}
}

/* A client that may have nothing compiled may still have a kernel warmed.  A problem is recorded
 * even if a generic kernel runs in its place. */
static void test_other_ways(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	char origin[16], why[400];
	kiln_client *client;
	kiln_reply *reply;

	kilnd_start(daemon, OPTIONS("--on-miss=error"));
	client = client_open(daemon);
	assert_true(permute_check(client, &problem, 1, origin, why) < 0);
	assert_string_equal(warm(client, line_of(20), NULL, NULL), "compiled");
	assert_permutes(client, &problem, "hit");
	kiln_close(client);
	kilnd_stop(daemon);
	kilnd_start(daemon, OPTIONS("--specialize=never"));
	client = client_open(daemon);
	problem = transpose(21, 90);
	assert_permutes(client, &problem, NULL);
	reply = ask(client, "record", NULL, 0);
	assert_string_equal(kiln_reply_str(reply, "text"),
						"permute x=f32:21x90 y=f32:90x21 perm=[1,0]  # asked 1 time for cpu\n");
	kiln_reply_free(reply);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_kernels(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	kiln_client *client;
	char line[96];

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	await_info(client, "cache.rows", 1);
	only_key(client, line);
	assert_string_equal(warm(client, line, NULL, NULL), "hit");
	assert_string_equal(warm(client, line, "sm_90", NULL), "skipped");
	assert_string_equal(warm(client, "kernel 00000000", NULL, NULL), "KILN_ENOENT");
	assert_string_equal(warm(client, "kernel 12", NULL, NULL), "KILN_EINVAL");
	assert_sentence("column 8: expected a key");
	assert_string_equal(warm(client, "kernel 12345678 x=1", NULL, NULL), "KILN_EINVAL");
	assert_string_equal(warm(client, "kernels", NULL, NULL), "KILN_EINVAL");
	assert_sentence("there is no operator");
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_bad_compilers(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	kiln_client *client, *other;
	const char *b;

	kilnd_start(daemon, OPTIONS("--workers=1"));
	client = client_open(daemon);
	assert_string_equal(warm(client, line_of(20), NULL, "g++"), "KILN_EINVAL");
	assert_sentence("absolute path");
	assert_string_equal(warm(client, line_of(20), NULL, "/nonexistent/g++"), "KILN_EINVAL");
	assert_string_equal(warm(client, line_of(20), NULL, "/bin/true"), "KILN_ENOTSUP");
	assert_sentence("/bin/true cannot be used as a compiler");
	assert_string_equal(warm(client, line_of(20), "sm_90", "/bin/true"), "KILN_EINVAL");
	assert_sentence("does not compile for sm_90");
	assert_string_equal(warm(client, line_of(20), NULL, daemon->dir), "KILN_EINVAL");
	assert_sentence("does not compile for cpu");
	assert_string_equal(warm(client, line_of(20), "sm_90", daemon->dir), "KILN_ENOTSUP");
	assert_sentence("no libnvrtc");
	b = wrapper(daemon, "b++", "case \"$*\" in *unit.so*) exit 3;; esac");
	assert_string_equal(warm(client, line_of(20), NULL, b), "KILN_ENOTSUP");
	other = client_open(daemon);
	assert_string_equal(warm(other, line_of(20), NULL, "/bin/true"), "KILN_ELIMIT");
	assert_sentence("--workers");
	kiln_close(client);
	kiln_close(other);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A client that goes ends the second compiler, whatever that is doing. */
static void test_a_client_goes(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;
	char path[128];
	int status;

	kilnd_start(daemon, NULL);
	snprintf(path, sizeof(path), "%s", wrapper(daemon, "slow++", "sleep 100"));
	client = client_try(daemon, 300, &status);
	assert_non_null(client);
	assert_string_equal(warm(client, line_of(20), NULL, path), "KILN_ETIMEDOUT");
	kiln_close(client);
	client = client_open(daemon);
	assert_string_equal(warm(client, line_of(20), NULL, NULL), "compiled");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The compiler is replaced under a running daemon: whoever was to compile by it then is told to ask
 * again, once, for no worker of before is left. */
static void test_compiler_replaced(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;

	start_with(daemon, wrapper(daemon, "a++", "# first"));
	client = client_open(daemon);
	int64_t workers = 3;
	await_info(client, "workers.idle", workers);
	assert_string_equal(warm(client, line_of(20), NULL, NULL), "compiled");
	wrapper(daemon, "a++", "# second");
	assert_string_equal(warm(client, line_of(21), NULL, NULL), "KILN_EIO");
	assert_sentence("ask again");
	await_info_at_least(client, "workers.started", 2 * workers);
	await_info(client, "workers.idle", workers);
	for (int rows = 21; rows < 21 + workers; rows++)
		assert_string_equal(warm(client, line_of(rows), NULL, NULL), "compiled");
	/* By another compiler than the first. */
	assert_string_equal(warm(client, line_of(20), NULL, NULL), "compiled");
	kiln_close(client);
	kilnd_stop(daemon);
}

static void send_warm(struct peer *peer, int rows, const char *compiler)
{
	struct wire_out out;
	peer_begin(peer, &out, "warm");
	wire_put_str(&out, "line", line_of(rows));
	wire_put_str(&out, "compiler", compiler);
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(
		frame_send_wait(peer->sock, out.buffer.data, out.buffer.size, NULL, 0, CALL_TIMEOUT_MS),
		KILN_OK);
	wire_out_free(&out);
}

static int next_status(struct peer *peer, uint64_t first)
{
	struct frame frame = {0};
	struct wire_in in;
	int status;

	assert_int_equal(frame_recv_wait(peer->sock, &frame, 1 << 20, CALL_TIMEOUT_MS), KILN_OK);
	assert_int_equal(wire_parse(&in, frame.data, frame.size), KILN_OK);
	status = (int)wire_get_int(&in.root, "st", KILN_EPROTO);
	/* Only the first of them has the compiler. */
	assert_int_equal(status, wire_id(&in) == first ? KILN_OK : KILN_EBUSY);
	wire_in_free(&in);
	frame_free(&frame);
	return status;
}

/* A client that does not wait for answers may not name another compiler meanwhile. */
static void test_compilers_by_turns(void **state)
{
	struct kilnd *daemon = *state;
	struct peer peer;
	char a[128], b[128];
	int well = 0;

	kilnd_start(daemon, NULL);
	snprintf(a, sizeof(a), "%s", wrapper(daemon, "a++", ""));
	snprintf(b, sizeof(b), "%s", wrapper(daemon, "b++", ""));
	peer_open(&peer, daemon, "");
	uint64_t first = peer.id + 1;
	for (int i = 0; i < 4; i++)
		send_warm(&peer, 20 + i, i % 2 ? b : a);
	for (int i = 0; i < 4; i++)
		well += next_status(&peer, first) == KILN_OK;
	assert_int_equal(well, 1);
	peer_close(&peer);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_record),
		HARNESS_TEST(test_warm),
		HARNESS_TEST(test_next_compiler),
		HARNESS_TEST(test_next_compiler_by_key),
		HARNESS_TEST(test_next_toolkit),
		HARNESS_TEST(test_other_ways),
		HARNESS_TEST(test_kernels),
		HARNESS_TEST(test_bad_compilers),
		HARNESS_TEST(test_a_client_goes),
		HARNESS_TEST(test_compilers_by_turns),
		HARNESS_TEST(test_compiler_replaced),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
