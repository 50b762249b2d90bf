/*
 * test_many: four client processes at once, 200 mixed permutes each, with a cold cache: every
 * result is right, every kernel is compiled once, and the counters add up.
 */
#include "workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct keys {
	char (*hex)[65];
	int count;
};

static void add_key(struct keys *keys, const char *hex)
{
	for (int i = 0; i < keys->count; i++)
		if (!strcmp(keys->hex[i], hex))
			return;
	snprintf(keys->hex[keys->count++], 65, "%s", hex);
}

/* The distinct keys of the whole workload, from the planner alone; launches: problems with one. */
static struct keys distinct_keys(kiln_client *client, int *launches)
{
	struct keys keys = {calloc(WORKLOAD_CLIENTS * WORKLOAD_CALLS, 65), 0};

	assert_non_null(keys.hex);
	*launches = 0;
	for (int c = 0; c < WORKLOAD_CLIENTS; c++)
		for (int i = 0; i < WORKLOAD_CALLS; i++) {
			struct permute problem;
			kiln_tensor tensors[2];
			kiln_attr perm;
			kiln_reply *reply;
			workload_problem(c, i, &problem);
			tensors[0] = permute_input(&problem, NULL);
			tensors[1] = permute_output(&problem, NULL);
			perm = perm_attr(&problem);
			if (kiln_explain(client, "permute", tensors, 2, &perm, 1, NULL, &reply))
				fail_msg("explain: %s", kiln_errmsg());
			if (kiln_reply_str(reply, "key")[0]) {
				add_key(&keys, kiln_reply_str(reply, "key"));
				++*launches;
			}
			kiln_reply_free(reply);
		}
	return keys;
}

static void test_four_clients(void **state)
{
	struct kilnd *daemon = *state;
	struct workload *workload = workload_new();
	struct workload_end sum = {0};
	pid_t pids[WORKLOAD_CLIENTS];
	struct keys keys;
	kiln_client *client;
	int launches, before;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	keys = distinct_keys(client, &launches);
	assert_true(keys.count >= 20);
	assert_true(launches > 4 * keys.count); /* kernels are worth sharing */
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	before = count_fds(daemon->pid);
	workload_start(daemon, workload, pids);
	workload_join(workload, pids, -1);
	for (int i = 0; i < WORKLOAD_CLIENTS; i++) {
		assert_int_equal(atomic_load(&workload->ends[i].done), WORKLOAD_CALLS);
		sum.hits += workload->ends[i].hits;
		sum.shared += workload->ends[i].shared;
		sum.compiled += workload->ends[i].compiled;
		sum.copies += workload->ends[i].copies;
	}
	assert_int_equal(info_int(client, "counters.compiles"), keys.count);
	assert_int_equal(info_int(client, "cache.rows"), keys.count);
	assert_int_equal(info_int(client, "counters.requests"), launches);
	assert_int_equal(info_int(client, "counters.failures"), 0);
	assert_counters_add_up(client);
	/* The daemon counted what the clients were told. */
	assert_int_equal(sum.compiled, keys.count);
	assert_int_equal(sum.hits, info_int(client, "counters.hits"));
	assert_int_equal(sum.shared, info_int(client, "counters.shared"));
	assert_int_equal(sum.copies, WORKLOAD_CLIENTS * WORKLOAD_CALLS - launches);
	assert_cache_verifies(client, keys.count);
	assert_fds_at_most(daemon->pid, before);
	await_info(client, "server.sessions", 1);
	kiln_close(client);
	free(keys.hex);
	workload_free(workload);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {HARNESS_TEST(test_four_clients)};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
