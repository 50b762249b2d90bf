/*
 * test_fairness: many requests of some against the few of others: whose is next.
 *
 * The one compiler is kept by a compile that hangs until all have asked.  Then it is killed, and
 * the next so many compiles fail at once; those after them do not.  So how a compile ends says
 * whether it was among the first so many.
 */
#include "peer.h"
#include "storm.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANY 100
#define NOBODY 65534

/* Asks for a kernel of its own for each number of rows, and does not wait: the request's id. */
static uint64_t ask(struct peer *peer, int64_t rows)
{
	struct wire_out out;

	raw_problem(&out, "compile", ++peer->id, rows, 33);
	wire_put_str(&out, "target", "cpu");
	peer_send(peer, &out, -1);
	return peer->id;
}

/* The status of the answer to a request; answers to others that come before it are nothing. */
static int answer_to(struct peer *peer, uint64_t wanted)
{
	uint64_t id;
	int status;

	do
		status = peer_take(peer, &id);
	while (id != wanted);
	return status;
}

/* A daemon with one worker, which is idle; the first compile hangs. */
static kiln_client *open_one(struct kilnd *daemon)
{
	kilnd_for_guests(daemon, 0, 0, 0);
	kilnd_start(daemon, OPTIONS("--workers", "1", "--allow-uid", "65534"));
	kiln_client *observer = client_open(daemon);
	await_info(observer, "workers.idle", 1);
	debug_int(observer, "hang-compile", "count", 1);
	return observer;
}

/* The session asks for one kernel that a worker has, and count - 1 that wait. */
static void ask_many(kiln_client *observer, struct peer *peer, int count, int64_t rows)
{
	int64_t queued = info_int(observer, "workers.queued");

	ask(peer, rows);
	await_info(observer, "workers.busy", 1);
	for (int i = 1; i < count; i++)
		ask(peer, rows + i);
	await_info(observer, "workers.queued", queued + count - 1);
}

/* The first compiles from now on fail, that one included which hangs now. */
static void let_go(kiln_client *observer, int failing)
{
	debug_int(observer, "fail-compile", "count", failing);
	debug_str(observer, "kill", "role", "compiler");
}

static void test_sessions(void **state)
{
	struct kilnd *daemon = *state;
	struct peer many, one;
	kiln_client *observer = open_one(daemon);

	peer_open(&many, daemon, "");
	peer_open(&one, daemon, "");
	ask_many(observer, &many, MANY, 1000);
	uint64_t asked = ask(&one, 2000);
	await_info(observer, "workers.queued", MANY);
	/* The one that hangs, and one of each of the two. */
	let_go(observer, 3);
	assert_int_equal(answer_to(&one, asked), KILN_ECOMPILE);
	peer_close(&many);
	await_info(observer, "workers.queued", 0);
	peer_close(&one);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* A session that ends leaves nothing behind that others wait for. */
static void test_session_ends(void **state)
{
	struct kilnd *daemon = *state;
	struct peer many, one;
	kiln_client *observer = open_one(daemon);

	peer_open(&many, daemon, "");
	peer_open(&one, daemon, "");
	ask_many(observer, &many, MANY, 1000);
	uint64_t asked = ask(&one, 2000);
	await_info(observer, "workers.queued", MANY);
	peer_close(&many);
	assert_int_equal(answer_to(&one, asked), KILN_OK);
	assert_int_equal(info_int(observer, "counters.canceled"), MANY);
	assert_int_equal(info_int(observer, "counters.jobs_done"), 1);
	peer_close(&one);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* A kernel that two sessions wait for comes when the first of them has its turn. */
static void test_shared(void **state)
{
	struct kilnd *daemon = *state;
	struct peer many, one;
	kiln_client *observer = open_one(daemon);

	peer_open(&many, daemon, "");
	peer_open(&one, daemon, "");
	ask_many(observer, &many, MANY, 1000);
	uint64_t last = many.id, asked = ask(&one, 1000 + MANY - 1);
	await_info(observer, "busy.waiting", MANY + 1);
	assert_int_equal(info_int(observer, "workers.queued"), MANY - 1);
	let_go(observer, 3);
	assert_int_equal(answer_to(&one, asked), KILN_ECOMPILE);
	assert_int_equal(answer_to(&many, last), KILN_ECOMPILE);
	/* It waits no longer for the session that has its answer, nor for one that has left. */
	peer_close(&one);
	peer_close(&many);
	await_info(observer, "workers.queued", 0);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* Ten sessions of one user have no more turns than the one of another. */
static void test_users(void **state)
{
	enum { SESSIONS = 10, EACH = 3 };
	struct kilnd *daemon = *state;
	struct peer sessions[SESSIONS], other;
	uint64_t asked[EACH];

	if (getuid() != 0) {
		print_message("only root can become another user\n");
		skip();
	}
	kiln_client *observer = open_one(daemon);
	for (int i = 0; i < SESSIONS; i++)
		peer_open(&sessions[i], daemon, "");
	assert_int_equal(seteuid(NOBODY), 0);
	peer_open(&other, daemon, "");
	assert_int_equal(seteuid(0), 0);
	ask_many(observer, &sessions[0], EACH, 1000);
	for (int i = 1; i < SESSIONS; i++)
		for (int k = 0; k < EACH; k++)
			ask(&sessions[i], 1100 + i * EACH + k);
	await_info(observer, "workers.queued", SESSIONS * EACH - 1);
	for (int k = 0; k < EACH; k++)
		asked[k] = ask(&other, 2000 + k);
	await_info(observer, "workers.queued", SESSIONS * EACH - 1 + EACH);
	/* The one that hangs, then one of each of the two users, again and again. */
	let_go(observer, 1 + 2 * EACH);
	for (int k = 0; k < EACH; k++)
		assert_int_equal(answer_to(&other, asked[k]), KILN_ECOMPILE);
	for (int i = 0; i < SESSIONS; i++)
		peer_close(&sessions[i]);
	peer_close(&other);
	await_info(observer, "workers.queued", 0);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* ---- The cache ---- */

#define STORE_MS 500 /* a call of the cache; of MANY each waits longer than a peer does */

/* A request that only reads the cache. */
static uint64_t list(struct peer *peer, int64_t unused)
{
	struct wire_out out;

	(void)unused;
	peer_begin(peer, &out, "cache.ls");
	peer_send(peer, &out, -1);
	return peer->id;
}

/* A kernel whose texts are refused once they are read. */
static uint64_t bring(struct peer *peer, int64_t unused)
{
	struct wire_out out;
	int zeros = frame_memfd("zeros", 16);

	(void)unused;
	peer_begin(peer, &out, "raw.explain");
	wire_put_str(&out, "target", "cpu");
	wire_map_begin(&out, "raw");
	wire_put_str(&out, "entry", "k");
	wire_put_uint(&out, "bytes", 16);
	wire_map_end(&out);
	peer_send(peer, &out, zeros);
	close(zeros);
	return peer->id;
}

/* One session's requests that need the cache, and one of another's. */
static void store_turns(struct kilnd *daemon, uint64_t (*ask_for)(struct peer *peer, int64_t rows),
						int status)
{
	struct peer many, one;

	kilnd_start(daemon, OPTIONS("--workers", "1"));
	kiln_client *observer = client_open(daemon);
	await_info(observer, "workers.idle", 1);
	debug_int(observer, "fail-compile", "count", 10 * MANY);
	debug_int(observer, "store-deadline", "ms", 10 * MANY * STORE_MS);
	peer_open(&many, daemon, "");
	peer_open(&one, daemon, "");
	debug_int(observer, "delay-store", "ms", STORE_MS);
	for (int i = 0; i < MANY; i++)
		ask_for(&many, 1000 + i);
	assert_int_equal(answer_to(&one, ask_for(&one, 2000)), status);
	debug_int(observer, "delay-store", "ms", 0);
	/* Its requests in the queue come to their end without it. */
	peer_close(&many);
	peer_close(&one);
	kiln_close(observer);
	kilnd_stop(daemon);
}

static void test_lookups(void **state)
{
	store_turns(*state, ask, KILN_ECOMPILE);
}

static void test_lists(void **state)
{
	store_turns(*state, list, KILN_OK);
}

static void test_sources(void **state)
{
	store_turns(*state, bring, KILN_EINVAL);
}

/* A key that two look for is looked for when the first of them has its turn. */
static void test_shared_lookup(void **state)
{
	struct kilnd *daemon = *state;
	struct peer many, one;

	kilnd_start(daemon, OPTIONS("--workers", "1"));
	kiln_client *observer = client_open(daemon);
	await_info(observer, "workers.idle", 1);
	debug_int(observer, "fail-compile", "count", 10 * MANY);
	debug_int(observer, "store-deadline", "ms", 10 * MANY * STORE_MS);
	peer_open(&many, daemon, "");
	peer_open(&one, daemon, "");
	debug_int(observer, "delay-store", "ms", STORE_MS);
	for (int i = 0; i < MANY; i++)
		ask(&many, 1000 + i);
	await_info(observer, "busy.waiting", MANY);
	assert_int_equal(answer_to(&one, ask(&one, 1000 + MANY - 1)), KILN_ECOMPILE);
	assert_int_equal(answer_to(&many, many.id), KILN_ECOMPILE);
	debug_int(observer, "delay-store", "ms", 0);
	peer_close(&many);
	peer_close(&one);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* ---- Device processes ---- */

#define SENT_MOST 64 /* of a session's works are with its device process */

/* A session with a call and what it works on. */
struct launcher {
	struct peer peer;
	uint64_t call, x, y;
};

static void open_launcher(struct launcher *launcher, const struct kilnd *daemon)
{
	struct wire_out out;
	uint64_t buffers[2];

	peer_open(&launcher->peer, daemon, "");
	for (int i = 0; i < 2; i++) {
		peer_begin(&launcher->peer, &out, "alloc");
		wire_put_uint(&out, "bytes", 4 * 33 * 5);
		peer_expect(&launcher->peer, &out, -1, KILN_OK, "");
		buffers[i] = launcher->peer.made;
	}
	launcher->x = buffers[0];
	launcher->y = buffers[1];
	raw_problem(&out, "prepare", ++launcher->peer.id, 5, 33);
	peer_expect(&launcher->peer, &out, -1, KILN_OK, "");
	launcher->call = launcher->peer.made;
}

static uint64_t launch(struct launcher *launcher)
{
	struct wire_out out;

	peer_begin(&launcher->peer, &out, "submit");
	wire_put_uint(&out, "call", launcher->call);
	wire_list_begin(&out, "operands");
	wire_put_ints(&out, NULL, (const int64_t[]){(int64_t)launcher->x, 0}, 2);
	wire_put_ints(&out, NULL, (const int64_t[]){(int64_t)launcher->y, 0}, 2);
	wire_list_end(&out);
	peer_send(&launcher->peer, &out, -1);
	return launcher->peer.id;
}

/* A session's launches wait with the broker, where they are in nobody's way. */
static void test_launches(void **state)
{
	enum { LAUNCHES = 2 * SENT_MOST, LAUNCH_MS = 50 };
	struct kilnd *daemon = *state;
	struct launcher many, one;

	kilnd_start(daemon, NULL);
	kiln_client *observer = client_open(daemon);
	open_launcher(&many, daemon);
	open_launcher(&one, daemon);
	uint64_t last = launch(&many);
	assert_int_equal(answer_to(&many.peer, last), KILN_OK);
	debug_int(observer, "delay-launch", "ms", LAUNCH_MS);
	for (int i = 0; i < LAUNCHES; i++)
		last = launch(&many);
	await_info_at_least(observer, "counters.submitted", 1 + LAUNCHES);
	assert_in_range(info_int(observer, "executors[0].inflight"), 1, SENT_MOST);
	debug_int(observer, "delay-launch", "ms", 0);
	assert_int_equal(answer_to(&one.peer, launch(&one)), KILN_OK);
	assert_int_equal(answer_to(&many.peer, last), KILN_OK);
	peer_close(&many.peer);
	peer_close(&one.peer);
	kiln_close(observer);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_sessions), HARNESS_TEST(test_session_ends),  HARNESS_TEST(test_shared),
		HARNESS_TEST(test_users),    HARNESS_TEST(test_lookups),       HARNESS_TEST(test_lists),
		HARNESS_TEST(test_sources),  HARNESS_TEST(test_shared_lookup), HARNESS_TEST(test_launches),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
