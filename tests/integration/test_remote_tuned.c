/*
 * test_remote_tuned: a winner of tuning that one host found is used by another of the same model,
 * from its next plan but one on; nobody waits for it; and nothing is taken that was not sealed by a
 * trusted key for this very class, that is older, or that the planner does not know.
 */
#include "remote_scene.h"
#include "tuned_scene.h"

#include <daemon/cache/pack_winners.h>
#include <daemon/seal/seal.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WINNER "kiln:1:winner:"

/* Batches of transposes. */
static struct tuned_class class_of_width(kiln_client *client, int64_t width)
{
	const struct permute problem = {
		.dtype = KILN_F32, .rank = 3, .shape = {2, 90, width}, .perm = {0, 2, 1}};
	const struct tuned_class class = tuned_class_of(client, &problem);
	assert_true(class.count >= 2);
	return class;
}

static void tuned(kiln_client *client, const char *request, const struct tuned_class *class,
				  const char *choice, int64_t when)
{
	kiln_attr args[TUNED_ARGS];
	kiln_reply *reply;
	tuned_row(class, choice, when, args);
	if (kiln_request(client, request, args, TUNED_ARGS, &reply))
		fail_msg("%s: %s", request, kiln_errmsg());
	kiln_reply_free(reply);
}

static void put(kiln_client *client, const struct tuned_class *class, const char *choice,
				int64_t when)
{
	int64_t written = info_int(client, "counters.remote_written");
	tuned(client, "tuned.put", class, choice, when);
	await_info(client, "counters.remote_written", written + 1);
}

/* A plan of the class is made with this choice. */
static void assert_planned(kiln_client *client, const struct tuned_class *class, const char *choice)
{
	kiln_reply *reply = tuned_explain(client, &class->problem, NULL);
	assert_string_equal(kiln_reply_str(reply, "plan.choice"), choice);
	kiln_reply_free(reply);
}

/* Has the daemon look again, and waits for the counter of what becomes of the look; it plans as
 * before meanwhile. */
static void look(kiln_client *client, const struct tuned_class *class, const char *counter)
{
	int64_t asks = info_int(client, "counters.winner_asks"), before = info_int(client, counter);
	debug_int(client, "remote-look", "ms", 1);
	pause_ms(2);
	kiln_reply_free(tuned_explain(client, &class->problem, NULL));
	debug_int(client, "remote-look", "ms", 0);
	await_info(client, counter, before + 1);
	assert_int_equal(info_int(client, "counters.winner_asks"), asks + 1);
}

/* ---- From host to host ---- */

static void test_shared(void **state)
{
	struct remote_scene *scene = *state;

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	struct tuned_class class = class_of_width(a, 70), other = class_of_width(a, 50);
	const char *own = class.choices[0], *better = class.choices[1];
	await_info(a, "counters.winner_misses", 2);
	put(a, &class, better, 1795219200);
	assert_planned(a, &class, better);
	char *key = redis_key(scene, WINNER);
	assert_in_range(redis_int(scene, "TTL %s", key), 2592000 - 60, 2592000);
	free(redis_ask(scene, "EXPIRE %s 100", key));

	assert_planned(b, &class, own);
	await_info(b, "counters.winner_hits", 1);
	assert_planned(b, &class, better);
	/* Each use keeps it there. */
	assert_true(redis_int(scene, "TTL %s", key) > 100);
	assert_planned(b, &other, other.choices[0]);
	await_info(b, "counters.winner_misses", 1);
	assert_permutes(b, &class.problem, "compiled");
	assert_counters_add_up(b);
	kilnd_await_log(scene->b.daemon, "253.2 us against 270.0: ");

	/* It is b's own from then on, but not b's to give out. */
	redis_kill(scene);
	kiln_close(b);
	assert_true(kilnd_end(scene->b.daemon));
	host_spawn(&scene->b, scene->url, NULL);
	b = client_open(scene->b.daemon);
	assert_planned(b, &class, better);
	assert_int_equal(info_int(b, "counters.remote_writes"), 0);
	assert_permutes(b, &class.problem, "hit");
	free(key);
	kiln_close(b);
	kiln_close(a);
}

static void test_newer_counts(void **state)
{
	struct remote_scene *scene = *state;

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	struct tuned_class class = class_of_width(a, 70);
	const char *own = class.choices[0], *better = class.choices[1];

	/* A miss is remembered, and so is an answer. */
	assert_planned(b, &class, own);
	await_info(b, "counters.winner_misses", 1);
	put(a, &class, better, 2000);
	for (int i = 0; i < 3; i++)
		assert_planned(b, &class, own);
	assert_int_equal(info_int(b, "counters.winner_asks"), 1);
	/* b's own is newer, as old, older. */
	put(b, &class, own, 3000);
	put(a, &class, better, 2000);
	look(b, &class, "counters.winner_misses");
	put(a, &class, better, 3000);
	look(b, &class, "counters.winner_misses");
	assert_planned(b, &class, own);
	put(a, &class, better, 3001);
	look(b, &class, "counters.winner_hits");
	assert_planned(b, &class, better);
	look(b, &class, "counters.winner_misses");

	/* A host that forgets one class takes it from all who have not got it; to forget all is its own
	 * matter. */
	int64_t written = info_int(a, "counters.remote_written");
	kiln_reply *reply;
	assert_ok(kiln_request(a, "tuned.rm", NULL, 0, &reply));
	kiln_reply_free(reply);
	assert_planned(a, &class, own);
	assert_int_equal(redis_int(scene, "DBSIZE"), 1);
	look(a, &class, "counters.winner_hits");
	tuned(a, "tuned.rm", &class, better, 0);
	await_info(a, "counters.remote_written", written + 1);
	assert_int_equal(redis_int(scene, "DBSIZE"), 0);
	look(a, &class, "counters.winner_misses");
	assert_planned(a, &class, own);
	assert_planned(b, &class, better);
	assert_counters_add_up(a);
	kiln_close(b);
	kiln_close(a);
}

/* A host without a key gives nothing out; one that compiles nothing takes nothing. */
static void test_who_may(void **state)
{
	struct remote_scene *scene = *state;
	char path[160];

	snprintf(path, sizeof(path), "%s/%s.key", scene->b.keys, scene->b.name);
	assert_int_equal(unlink(path), 0);
	host_start(&scene->a, scene->url, OPTIONS("--on-miss", "error"));
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	struct tuned_class class = class_of_width(a, 70), other = class_of_width(a, 50);
	put(a, &class, class.choices[1], 2000);
	tuned(b, "tuned.put", &other, other.choices[1], 2000);
	assert_int_equal(info_int(b, "counters.remote_writes"), 0);
	assert_planned(b, &class, class.choices[0]);
	await_info(b, "counters.winner_hits", 1);
	assert_planned(b, &class, class.choices[1]);
	assert_int_equal(info_int(a, "counters.winner_asks"), 0);
	assert_int_equal(redis_int(scene, "DBSIZE"), 1);
	kiln_close(b);
	kiln_close(a);
}

/* A plan does not wait for a Redis that has stopped, and asks again when another is there. */
static void test_nobody_waits(void **state)
{
	struct remote_scene *scene = *state;

	host_start(&scene->a, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon);
	struct tuned_class other = class_of_width(a, 50);
	await_info(a, "counters.winner_misses", 1);
	process_stop(scene->redis);
	assert_int_equal(waitpid(scene->redis, NULL, WUNTRACED), scene->redis);
	struct tuned_class class = class_of_width(a, 70);
	assert_int_equal(info_int(a, "busy.winner_looking"), 1);
	assert_planned(a, &class, class.choices[0]);
	assert_int_equal(info_int(a, "counters.winner_asks"), 2);
	/* A Redis that answers none of them is away; the host writes when it is back. */
	await_info(a, "counters.winner_failures", 1);
	tuned(a, "tuned.put", &other, other.choices[1], 2000);
	assert_counters_add_up(a);
	redis_kill(scene);
	redis_start(scene);
	await_info(a, "counters.remote_written", 1);
	free(redis_key(scene, WINNER));
	assert_planned(a, &class, class.choices[0]);
	await_info(a, "counters.winner_misses", 2);
	kiln_close(a);
}

/* ---- What is not taken ---- */

struct forging {
	struct remote_scene *scene;
	const struct tuned_class *class;
	const char *key;
	const unsigned char *winner; /* with its seal */
	size_t size;
	struct seal_secret stranger, friend;
};

static void set_bytes(const struct forging *forging, const void *bytes, size_t size)
{
	free(redis_ask(forging->scene, "SET %s %b", forging->key, bytes, size));
}

static void set_sealed(const struct forging *forging, const struct seal_secret *secret,
					   const char *purpose, const void *bytes, size_t size)
{
	void *record;
	size_t record_size;
	assert_true(seal_record(secret, purpose, bytes, size, (int64_t)time(NULL) - 100, 0, &record,
							&record_size));
	set_bytes(forging, record, record_size);
	free(record);
}

/* The row that the friend would seal, for whoever makes it wrong. */
static struct cache_tuned row_of(const struct forging *forging)
{
	struct cache_tuned row;
	assert_true(pack_winner_decode(forging->winner, forging->size - SEAL_BYTES, &row));
	row.when += 1000;
	return row;
}

static void set_row(const struct forging *forging, const struct cache_tuned *row)
{
	unsigned char bytes[PACK_WINNER_MOST];
	size_t size = pack_winner_encode(row, bytes);
	set_sealed(forging, &forging->friend, "winner 1", bytes, size);
}

static void flip(const struct forging *forging)
{
	unsigned char copy[PACK_WINNER_MOST + SEAL_BYTES];
	memcpy(copy, forging->winner, forging->size);
	copy[forging->size / 3] ^= 4;
	set_bytes(forging, copy, forging->size);
}

static void cut(const struct forging *forging)
{
	set_bytes(forging, forging->winner, forging->size - 1);
}

static void leave_unsealed(const struct forging *forging)
{
	set_bytes(forging, forging->winner, forging->size - SEAL_BYTES);
}

static void seal_as_stranger(const struct forging *forging)
{
	set_sealed(forging, &forging->stranger, "winner 1", forging->winner,
			   forging->size - SEAL_BYTES);
}

static void seal_for_else(const struct forging *forging)
{
	set_sealed(forging, &forging->friend, "row 1", forging->winner, forging->size - SEAL_BYTES);
}

static void seal_nothing(const struct forging *forging)
{
	set_sealed(forging, &forging->friend, "winner 1", "", 0);
}

static void seal_cut(const struct forging *forging)
{
	set_sealed(forging, &forging->friend, "winner 1", forging->winner,
			   forging->size - SEAL_BYTES - 8);
}

static void seal_noise(const struct forging *forging)
{
	unsigned char noise[PACK_WINNER_MOST];
	memset(noise, 'x', sizeof(noise));
	set_sealed(forging, &forging->friend, "winner 1", noise, sizeof(noise));
}

static void make_list(const struct forging *forging)
{
	free(redis_ask(forging->scene, "DEL %s", forging->key));
	free(redis_ask(forging->scene, "LPUSH %s x", forging->key));
}

static void make_huge(const struct forging *forging)
{
	free(redis_ask(forging->scene, "DEL %s", forging->key));
	free(redis_ask(forging->scene, "SETRANGE %s 100000 x", forging->key));
}

static void name_other_model(const struct forging *forging)
{
	struct cache_tuned row = row_of(forging);
	snprintf(row.model, sizeof(row.model), "NVIDIA H200");
	set_row(forging, &row);
}

static void name_other_class(const struct forging *forging)
{
	struct cache_tuned row = row_of(forging);
	snprintf(row.signature, sizeof(row.signature), "permute<2>");
	set_row(forging, &row);
}

static void come_from_tomorrow(const struct forging *forging)
{
	struct cache_tuned row = row_of(forging);
	row.when = (int64_t)time(NULL) + 3 * 86400;
	set_row(forging, &row);
}

static void take_no_time(const struct forging *forging)
{
	struct cache_tuned row = row_of(forging);
	row.micros = -1;
	set_row(forging, &row);
}

static void write_control(const struct forging *forging)
{
	struct cache_tuned row = row_of(forging);
	snprintf(row.choice, sizeof(row.choice), "a\x1b[2Jb");
	set_row(forging, &row);
}

static void name_unknown_choice(const struct forging *forging)
{
	struct cache_tuned row = row_of(forging);
	snprintf(row.choice, sizeof(row.choice), "a name of tomorrow");
	set_row(forging, &row);
}

static const struct {
	void (*forge)(const struct forging *);
	const char *sentence; /* in the log */
} forgeries[] = {
	{flip, "was altered after key host-a"},
	{cut, "is not sealed"},
	{leave_unsealed, "is not sealed"},
	{seal_as_stranger, "which is not trusted here"},
	{seal_for_else, "was altered after key host-a"},
	{seal_nothing, "it is damaged"},
	{seal_cut, "it is damaged"},
	{seal_noise, "it is damaged"},
	{make_list, "a value of another type"},
	{make_huge, "larger than winners are"},
	{name_other_model, "it is another class's"},
	{name_other_class, "it is another class's"},
	{come_from_tomorrow, "it was tuned in the future"},
	{take_no_time, "it is damaged"},
	{write_control, "it is damaged"},
	{name_unknown_choice, "a name of tomorrow of kiln "},
};
#define FORGERIES (sizeof(forgeries) / sizeof(forgeries[0]))

/* The log, when a thread of the daemon has written so many lines about winners that are not used,
 * or after two seconds; last: where it says so last. */
static char *log_with(const struct kilnd *daemon, size_t wanted, size_t *lines, char **last)
{
	for (int turn = 0;; turn++) {
		char *log = kilnd_log(daemon);
		*lines = 0;
		*last = log;
		for (char *at = log; (at = strstr(at, "not used")); at++, (*lines)++)
			*last = at;
		if (*lines >= wanted || turn == 200)
			return log;
		free(log);
		pause_ms(10);
	}
}

/* One line for each, which has the sentence, and the planner's own choice goes on. */
static void forge(const struct forging *forging, kiln_client *b, size_t i)
{
	forgeries[i].forge(forging);
	look(b, forging->class, "counters.winner_refused");
	assert_planned(b, forging->class, forging->class->choices[0]);
	size_t lines;
	char *last, *log = log_with(forging->scene->b.daemon, i + 1, &lines, &last);
	assert_int_equal(lines, i + 1);
	while (last > log && last[-1] != '\n')
		last--;
	if (!strstr(last, forgeries[i].sentence))
		fail_msg("no \"%s\" in: %s", forgeries[i].sentence, last);
	free(log);
}

static void test_forgeries(void **state)
{
	struct remote_scene *scene = *state;
	struct forging forging = {.scene = scene};
	char error[KERNEL_ERROR_MAX], elsewhere[160];
	struct seal_key key;

	host_start(&scene->a, scene->url, NULL);
	host_start(&scene->b, scene->url, NULL);
	kiln_client *a = client_open(scene->a.daemon), *b = client_open(scene->b.daemon);
	struct tuned_class class = class_of_width(a, 70);
	put(a, &class, class.choices[1], 2000);
	char *name = redis_key(scene, WINNER);
	unsigned char *winner = redis_bytes(scene, name, &forging.size);
	forging.class = &class;
	forging.key = name;
	forging.winner = winner;
	snprintf(elsewhere, sizeof(elsewhere), "%s/stranger", scene->a.daemon->dir);
	assert_int_equal(seal_new(elsewhere, "stranger", &key, error), KILN_OK);
	assert_int_equal(seal_open(elsewhere, NULL, &forging.stranger, error), KILN_OK);
	assert_int_equal(seal_open(scene->a.keys, NULL, &forging.friend, error), KILN_OK);
	for (size_t i = 0; i < FORGERIES; i++)
		forge(&forging, b, i);
	/* The good one is taken all the same. */
	set_bytes(&forging, winner, forging.size);
	look(b, &class, "counters.winner_hits");
	assert_planned(b, &class, class.choices[1]);
	assert_counters_add_up(b);
	free(winner);
	free(name);
	kiln_close(b);
	kiln_close(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		REMOTE_TEST(test_shared),       REMOTE_TEST(test_newer_counts), REMOTE_TEST(test_who_may),
		REMOTE_TEST(test_nobody_waits), REMOTE_TEST(test_forgeries),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, remote_need_redis, NULL);
}
