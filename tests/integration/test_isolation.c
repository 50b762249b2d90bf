/*
 * test_isolation: what one client has of another: nothing.  Its ids answer as ids do that never
 * were, its memory comes back as zeros, and its names, handles and addresses are in nobody's
 * answers and not in the log.
 */
#include "peer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEVER 987654321
#define OWNED 8

static const char source[] = "__global__ void k(int *x) { *x = 7; }\n";

/* ---- Ids ---- */

/* A client, and the numbers of what it has. */
struct owner {
	struct peer peer;
	uint64_t ids[OWNED];
	int count;
	uint64_t buffer, other, call, raw;
};

static uint64_t keep(struct owner *owner, uint64_t id)
{
	assert_true(id > 0 && owner->count < OWNED);
	return owner->ids[owner->count++] = id;
}

static uint64_t make_buffer(struct owner *owner)
{
	struct wire_out out;
	peer_begin(&owner->peer, &out, "alloc");
	wire_put_uint(&out, "bytes", 64);
	peer_expect(&owner->peer, &out, -1, KILN_OK, "");
	return keep(owner, owner->peer.made);
}

static uint64_t make_call(struct owner *owner)
{
	static const int64_t shape[] = {4, 4}, perm[] = {1, 0};
	struct wire_out out;
	peer_begin(&owner->peer, &out, "prepare");
	wire_put_str(&out, "op", "permute");
	wire_list_begin(&out, "tensors");
	for (int i = 0; i < 2; i++) {
		wire_map_begin(&out, NULL);
		wire_put_int(&out, "d", KILN_F32);
		wire_put_ints(&out, "s", shape, 2);
		wire_map_end(&out);
	}
	wire_list_end(&out);
	wire_map_begin(&out, "attrs");
	wire_put_ints(&out, "perm", perm, 2);
	wire_map_end(&out);
	peer_expect(&owner->peer, &out, -1, KILN_OK, "");
	return keep(owner, owner->peer.made);
}

static uint64_t make_raw(struct owner *owner)
{
	struct wire_out out;
	peer_begin(&owner->peer, &out, "raw.prepare");
	wire_map_begin(&out, "raw");
	wire_put_str(&out, "entry", "k");
	wire_put_uint(&out, "bytes", sizeof(source) - 1);
	wire_map_end(&out);
	peer_expect(&owner->peer, &out, owner->peer.texts, KILN_OK, "");
	return keep(owner, owner->peer.made);
}

static void put_operands(struct wire_out *out, uint64_t x, uint64_t y)
{
	wire_list_begin(out, "operands");
	wire_put_ints(out, NULL, (const int64_t[]){(int64_t)x, 0}, 2);
	wire_put_ints(out, NULL, (const int64_t[]){(int64_t)y, 0}, 2);
	wire_list_end(out);
}

static void begin_graph(struct owner *owner, struct wire_out *out, uint64_t call, uint64_t x)
{
	peer_begin(&owner->peer, out, "graph");
	wire_list_begin(out, "works");
	wire_map_begin(out, NULL);
	wire_put_uint(out, "call", call);
	put_operands(out, x, owner->other);
	wire_map_end(out);
	wire_list_end(out);
}

static void begin_raw(struct owner *owner, struct wire_out *out, uint64_t call, uint64_t buffer)
{
	peer_begin(&owner->peer, out, "raw.submit");
	wire_put_uint(out, "call", call);
	wire_put_ints(out, "grid", (const int64_t[]){1, 1, 1}, 3);
	wire_put_ints(out, "block", (const int64_t[]){1, 1, 1}, 3);
	wire_list_begin(out, "args");
	wire_put_ints(out, NULL, (const int64_t[]){(int64_t)buffer, 0, 4, KILN_WRITE}, 4);
	wire_list_end(out);
}

static void owner_open(struct owner *owner, const struct kilnd *daemon)
{
	struct wire_out out;
	*owner = (struct owner){.count = 0};
	peer_open(&owner->peer, daemon, source);
	owner->buffer = make_buffer(owner);
	owner->other = make_buffer(owner);
	owner->call = make_call(owner);
	owner->raw = make_raw(owner);
	begin_graph(owner, &out, owner->call, owner->buffer);
	peer_expect(&owner->peer, &out, -1, KILN_OK, "");
	keep(owner, owner->peer.made);
}

enum {
	FREE,
	WRITE,
	READ,
	SUBMIT,
	SUBMIT_OPERAND,
	SUBMIT_AFTER,
	RELEASE,
	OBJECT,
	CANCEL,
	GRAPH,
	GRAPH_OPERAND,
	RAW,
	RAW_ARGUMENT,
	WAYS
};

/* The ways in which a request may name something.  id: what it names. */
static void begin_naming(struct owner *owner, struct wire_out *out, int way, uint64_t id)
{
	static const char *const types[] = {"free",   "write",   "read",   "submit", "submit",
										"submit", "release", "object", "cancel"};
	if (way <= CANCEL)
		peer_begin(&owner->peer, out, types[way]);
	switch (way) {
	case FREE:
	case WRITE:
	case READ:
		wire_put_uint(out, "buf", id);
		wire_put_uint(out, "offset", 0);
		wire_put_uint(out, "bytes", 16);
		break;
	case SUBMIT:
		wire_put_uint(out, "call", id);
		put_operands(out, owner->buffer, owner->other);
		break;
	case SUBMIT_OPERAND:
		wire_put_uint(out, "call", owner->call);
		put_operands(out, id, owner->other);
		break;
	case SUBMIT_AFTER:
		wire_put_uint(out, "call", owner->call);
		wire_put_uint(out, "after", id);
		put_operands(out, owner->buffer, owner->other);
		break;
	case RELEASE:
	case OBJECT:
		wire_put_uint(out, "call", id);
		break;
	case CANCEL:
		wire_put_uint(out, "ticket", id);
		break;
	case GRAPH:
		begin_graph(owner, out, id, owner->buffer);
		break;
	case GRAPH_OPERAND:
		begin_graph(owner, out, owner->call, id);
		break;
	case RAW:
		begin_raw(owner, out, id, owner->buffer);
		break;
	default:
		begin_raw(owner, out, owner->raw, id);
	}
}

/* The status and the sentence, the number in it left out. */
static void answer_to(struct owner *owner, int way, uint64_t id, char answer[600])
{
	struct wire_out out;
	char number[24], *at;
	int fd = way == WRITE || way == READ ? frame_memfd("bytes", 16) : -1;
	begin_naming(owner, &out, way, id);
	int status = peer_ask(&owner->peer, &out, fd);
	if (fd >= 0)
		close(fd);
	snprintf(answer, 600, "%s %s", kiln_status_name(status), owner->peer.sentence);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)id);
	while ((at = strstr(answer, number)))
		memmove(at, at + strlen(number), strlen(at + strlen(number)) + 1);
}

static void test_ids_of_others(void **state)
{
	struct kilnd *daemon = *state;
	struct owner one, two;
	struct wire_out out;

	kilnd_start(daemon, NULL);
	owner_open(&one, daemon);
	owner_open(&two, daemon);
	for (int way = 0; way < WAYS; way++) {
		char never[600], answer[600];
		answer_to(&two, way, NEVER, never);
		/* Following what ended long ago, or never was, is no error. */
		if ((strncmp(never, "KILN_OK", 7) == 0) != (way == SUBMIT_AFTER || way == CANCEL))
			fail_msg("way %d: %s", way, never);
		for (int i = 0; i < one.count; i++) {
			answer_to(&two, way, one.ids[i], answer);
			if (strcmp(answer, never) != 0)
				fail_msg("way %d, id %d: \"%s\", and for none: \"%s\"", way, i, answer, never);
		}
	}
	/* All that was its own is there still. */
	peer_begin(&one.peer, &out, "submit");
	wire_put_uint(&out, "call", one.call);
	put_operands(&out, one.buffer, one.other);
	peer_expect(&one.peer, &out, -1, KILN_OK, "");
	begin_raw(&one, &out, one.raw, one.buffer);
	peer_expect(&one.peer, &out, -1, KILN_OK, "");
	for (int i = 0; i < one.count; i++) {
		bool buffer = one.ids[i] == one.buffer || one.ids[i] == one.other;
		peer_begin(&one.peer, &out, buffer ? "free" : "release");
		wire_put_uint(&out, buffer ? "buf" : "call", one.ids[i]);
		peer_expect(&one.peer, &out, -1, KILN_OK, "");
	}
	peer_close(&one.peer);
	peer_close(&two.peer);
	kilnd_stop(daemon);
}

/* ---- Memory ---- */

static void assert_zero(kiln_client *client, unsigned flags, size_t bytes)
{
	unsigned char *got = malloc(bytes);
	kiln_buffer *buffer;
	assert_non_null(got);
	memset(got, 0x55, bytes);
	assert_ok(kiln_alloc(client, bytes, flags, NULL, &buffer));
	assert_ok(kiln_read(buffer, 0, got, bytes));
	for (size_t i = 0; i < bytes; i++)
		if (got[i])
			fail_msg("byte %zu of %zu is %#x", i, bytes, got[i]);
	kiln_free(buffer);
	free(got);
}

static void fill(kiln_client *client, unsigned flags, size_t bytes, kiln_buffer **out)
{
	unsigned char *secret = malloc(bytes);
	assert_non_null(secret);
	memset(secret, 0xa5, bytes);
	assert_ok(kiln_alloc(client, bytes, flags, NULL, out));
	assert_ok(kiln_write(*out, 0, secret, bytes));
	free(secret);
}

static void test_memory_of_others(void **state)
{
	static const size_t sizes[] = {1, 16, 4095, 4096, 100000, 1 << 20};
	static const unsigned kinds[] = {0, KILN_BUFFER_SHARED};
	struct kilnd *daemon = *state;
	kiln_buffer *buffer;

	kilnd_start(daemon, NULL);
	kiln_client *one = client_open(daemon), *two = client_open(daemon), *leaves;
	for (size_t k = 0; k < 2; k++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			fill(one, kinds[k], sizes[i], &buffer);
			kiln_free(buffer);
			assert_zero(two, kinds[k], sizes[i]);
			/* And of one that left without a word. */
			leaves = client_open(daemon);
			fill(leaves, kinds[k], sizes[i], &buffer);
			kiln_close(leaves);
			await_info(one, "server.sessions", 2);
			assert_zero(two, kinds[k], sizes[i]);
			kiln_free(buffer);
		}
	kiln_close(one);
	kiln_close(two);
	kilnd_stop(daemon);
}

/* ---- Users ---- */

#define NOBODY 65534
#define GUESTS 4321

/* 0: let in, and served as it should be. */
static int visit(const struct kilnd *daemon, void *group)
{
	struct permute problem = transpose(3, 9);
	kiln_raw raw = {.size = sizeof(raw), .name = "k.cu", .source = source, .entry = "k"};
	kiln_call *call;
	char why[400];
	int status;
	if (!become_user(NOBODY, *(gid_t *)group, NULL, 0))
		return 9;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);
	if (!client)
		return status == KILN_EPERM && strstr(kiln_errmsg(), "may not be used by this user") ? 3
																							 : 4;
	bool served = permute_check(client, &problem, 1, NULL, why) == KILN_OK;
	/* Native code would have the rights of the daemon's user. */
	bool refused = kiln_prepare_raw(client, &raw, &call) == KILN_EPERM &&
				   strstr(kiln_errmsg(), "on device cpu a kernel is native code: only uid 0");
	kiln_close(client);
	return !served ? 5 : !refused ? 6 : 0;
}

static void test_users(void **state)
{
	struct kilnd *daemon = *state;
	gid_t guests = GUESTS, strangers = GUESTS + 1;
	struct permute problem = transpose(3, 9);

	skip_unless_root();
	kilnd_for_guests(daemon, 0, 0, 0);
	kilnd_start(daemon, OPTIONS("--allow-gid", "4321"));
	kiln_client *client = client_open(daemon);
	assert_permutes(client, &problem, NULL);
	pid_t pid = process_start(daemon, visit, &strangers);
	assert_int_equal(process_wait(pid, CALL_TIMEOUT_MS), EXITED(3));
	pid = process_start(daemon, visit, &guests);
	assert_int_equal(process_wait(pid, 2 * CALL_TIMEOUT_MS), EXITED(0));
	/* Each user's kernels, the shipped ones too, have a process of their own. */
	assert_int_equal(info_int(client, "executors[0].uid"), 0);
	assert_int_equal(info_int(client, "executors[1].uid"), NOBODY);
	assert_true(info_int(client, "executors[0].pid") != info_int(client, "executors[1].pid"));
	/* The process ends when none of them has been here for a while, and is there for the next. */
	debug_int(client, "idle-executor", "ms", 100);
	for (int i = 0; i < 2; i++) {
		pid = process_start(daemon, visit, &guests);
		assert_int_equal(process_wait(pid, 2 * CALL_TIMEOUT_MS), EXITED(0));
		await_info(client, "executors[1].pid", 0);
	}
	assert_int_equal(info_int(client, "counters.executor_faults"), 0);
	assert_permutes(client, &problem, NULL);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Names, handles, addresses ---- */

#define NAME "name-of-a-buffer-of-one"
#define HANDLE "handle-that-is-nobodys-business-and-has-sixty-four-bytes-or-so--"

static void assert_silent_about(const char *text, const char *secret, const char *whose)
{
	if (strstr(text, secret))
		fail_msg("%s has \"%s\" in it:\n%s", whose, secret, text);
}

/* 0x and so many digits that it can only be an address. */
static void assert_no_address(const char *text, const char *whose)
{
	for (const char *at = strstr(text, "0x"); at; at = strstr(at + 2, "0x")) {
		int digits = 0;
		while (isxdigit((unsigned char)at[2 + digits]))
			digits++;
		if (digits >= 6)
			fail_msg("%s has the address %.24s in it:\n%s", whose, at, text);
	}
}

static void look_at_all(kiln_client *client)
{
	static const char *const requests[] = {"info",     "devices",      "ops",
										   "cache.ls", "cache.failed", "tuned.ls"};
	kiln_attr all = string_attr("section", "all");
	kiln_reply *reply;
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		assert_ok(kiln_request(client, requests[i], &all, i == 0, &reply));
		const char *text = kiln_reply_json(reply);
		assert_silent_about(text, NAME, requests[i]);
		assert_silent_about(text, HANDLE, requests[i]);
		assert_no_address(text, requests[i]);
		kiln_reply_free(reply);
	}
}

static void run_wild(kiln_client *client)
{
	static const char *const wild[] = {"*(volatile int *)0x7f1234567890 = *x",
									   "*x = *(volatile int *)0x7f1234567890", "x[16] = 1"};
	kiln_buffer *buffer;
	assert_ok(kiln_alloc(client, 64, 0, "own", &buffer));
	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		char text[200];
		kiln_raw raw = {.size = sizeof(raw), .name = "wild.cu", .source = text, .entry = "k"};
		kiln_raw_arg arg = {.buffer = buffer};
		kiln_launch how = {.size = sizeof(how), .args = &arg, .arg_count = 1};
		kiln_ticket ticket;
		kiln_call *call;
		snprintf(text, sizeof(text), "__global__ void k(int *x) { %s; }\n", wild[i]);
		assert_ok(kiln_prepare_raw(client, &raw, &call));
		assert_ok(kiln_submit_raw(call, &how, 0, &ticket));
		assert_int_equal(kiln_wait(client, ticket, CALL_TIMEOUT_MS), KILN_EDEVICE);
		assert_no_address(kiln_errmsg(), "the sentence of a fault");
		kiln_call_free(call);
	}
	kiln_free(buffer);
}

/* Lends what cannot be lent here, with a handle that must not be seen again. */
static void lend_in_vain(struct peer *peer)
{
	struct wire_out out;
	peer_begin(peer, &out, "lend");
	wire_put_str(&out, "kind", "ipc");
	wire_put_uint(&out, "bytes", 16);
	wire_put_uint(&out, "span", 16);
	wire_put_str(&out, "name", NAME);
	wire_put_bin(&out, "handle", HANDLE, 64);
	assert_true(peer_ask(peer, &out, -1) < 0);
	assert_silent_about(peer->sentence, HANDLE, "the answer to lend");
}

static void test_nothing_is_shown(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(6, 7);
	kiln_buffer *named, *shared;
	struct peer peer;

	kilnd_start(daemon, OPTIONS("--log-level", "debug"));
	kiln_client *one = client_open(daemon), *two = client_open(daemon);
	assert_ok(kiln_alloc(one, 4096, 0, NAME, &named));
	assert_ok(kiln_alloc(one, 4096, KILN_BUFFER_SHARED, NAME, &shared));
	assert_permutes(one, &problem, NULL);
	peer_open(&peer, daemon, source);
	lend_in_vain(&peer);
	run_wild(two);
	int64_t faults = info_int(two, "counters.executor_faults");
	debug_str(two, "kill", "role", "executor");
	await_info_at_least(two, "counters.executor_faults", faults + 1);
	assert_permutes(two, &problem, NULL);
	look_at_all(two);
	char *log = kilnd_log(daemon);
	assert_true(strlen(log) > 100);
	assert_silent_about(log, NAME, "the log");
	assert_silent_about(log, HANDLE, "the log");
	assert_no_address(log, "the log");
	free(log);
	peer_close(&peer);
	kiln_free(named);
	kiln_free(shared);
	kiln_close(one);
	kiln_close(two);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_ids_of_others),
		HARNESS_TEST(test_memory_of_others),
		HARNESS_TEST(test_users),
		HARNESS_TEST(test_nothing_is_shown),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
