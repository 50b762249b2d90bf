/* workload.c: the problems are drawn from THE list of cases with a fixed seed. */
#include "workload.h"

#include "tests/ops/common/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define POOL 32 /* different problems, so that kernels are asked for again and by others */
#define SMALL (256u << 10)

static bool is_wanted(const struct cases_case *c)
{
	return strcmp(c->op->name, "permute") == 0 &&
		   cases_bytes(&c->operand[0]) + cases_bytes(&c->operand[1]) <= SMALL;
}

/* Permutes of the list that take little memory, evenly spread over it. */
static const struct cases_case *pool_at(int wanted)
{
	static const struct cases_case *pool[POOL];
	int count, small = 0, at = 0;
	const struct cases_case *cases = cases_all(&count);

	for (int i = 0; i < count && !pool[0]; i++)
		small += is_wanted(&cases[i]);
	for (int i = 0, filled = 0; small && i < count; i++) {
		if (!is_wanted(&cases[i]))
			continue;
		for (; filled < POOL && (int64_t)filled * small / POOL == at; filled++)
			pool[filled] = &cases[i];
		at++;
	}
	return pool[wanted];
}

void workload_problem(int client, int i, struct permute *problem)
{
	uint64_t state = 20261101u + (uint64_t)client * WORKLOAD_CALLS + (uint64_t)i;
	const struct cases_case *c = pool_at((int)(cases_word(&state) % POOL));

	const struct cases_operand *x = &c->operand[0];

	*problem = (struct permute){.dtype = x->dtype,
								.rank = x->rank,
								.strided = !x->contiguous,
								.offset = x->offset,
								.y_offset = c->operand[1].offset};
	memcpy(problem->shape, x->shape, sizeof(problem->shape));
	memcpy(problem->stride, x->stride, sizeof(problem->stride));
	memcpy(problem->perm, c->ints, sizeof(problem->perm));
}

struct seat {
	struct workload *workload;
	int index;
};

static bool is_allowed(const struct workload *workload, int status)
{
	for (int i = 0; i < 4 && workload->allowed[i]; i++)
		if (workload->allowed[i] == status)
			return true;
	return false;
}

static void note_origin(struct workload_end *end, const char *origin)
{
	end->hits += !strcmp(origin, "hit");
	end->shared += !strcmp(origin, "shared");
	end->compiled += !strcmp(origin, "compiled");
	end->copies += !strcmp(origin, "copy") || !strcmp(origin, "nothing");
}

static int work(const struct kilnd *daemon, void *arg)
{
	const struct seat *seat = arg;
	struct workload *workload = seat->workload;
	struct workload_end *end = &workload->ends[seat->index];
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &end->last_status);

	if (!client) {
		snprintf(end->why, sizeof(end->why), "no connection: %s", kiln_errmsg());
		return 2;
	}
	for (int i = 0; i < WORKLOAD_CALLS; i++) {
		struct permute problem;
		char origin[16] = "", why[400];
		workload_problem(seat->index, i, &problem);
		int status = permute_check(client, &problem, (uint64_t)i + 1, origin, why);
		if (status) {
			end->last_status = status;
			end->latest_failure = now_ms();
			snprintf(end->why, sizeof(end->why), "call %d: %.380s", i, why);
			atomic_fetch_add(&end->failed, 1);
			if (!is_allowed(workload, status))
				return 3;
			if (workload->ends_on_failure)
				break;
		}
		note_origin(end, origin);
		atomic_fetch_add(&end->done, 1);
	}
	kiln_close(client);
	return 0;
}

struct workload *workload_new(void)
{
	struct workload *workload =
		mmap(NULL, sizeof(*workload), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(workload != MAP_FAILED);
	return workload;
}

void workload_free(struct workload *workload)
{
	munmap(workload, sizeof(*workload));
}

void workload_start(const struct kilnd *daemon, struct workload *workload,
					pid_t pids[WORKLOAD_CLIENTS])
{
	struct seat seats[WORKLOAD_CLIENTS];
	for (int i = 0; i < WORKLOAD_CLIENTS; i++) {
		seats[i] = (struct seat){workload, i};
		pids[i] = process_start(daemon, work, &seats[i]);
	}
}

int workload_done(const struct workload *workload)
{
	int done = 0;
	for (int i = 0; i < WORKLOAD_CLIENTS; i++)
		done += atomic_load(&workload->ends[i].done);
	return done;
}

void workload_await(const struct workload *workload, int calls)
{
	int64_t end = now_ms() + 60000;
	while (workload_done(workload) < calls) {
		for (int i = 0; i < WORKLOAD_CLIENTS; i++)
			if (workload->ends[i].why[0] && !workload->allowed[0])
				fail_msg("client %d: %s", i, workload->ends[i].why);
		if (now_ms() > end)
			fail_msg("%d calls are done, and not %d", workload_done(workload), calls);
		pause_ms(1);
	}
}

void workload_await_round(const struct workload *workload)
{
	int64_t end = now_ms() + 60000;
	int before[WORKLOAD_CLIENTS];
	for (int i = 0; i < WORKLOAD_CLIENTS; i++)
		before[i] = atomic_load(&workload->ends[i].done);
	for (int i = 0; i < WORKLOAD_CLIENTS; i++) {
		const struct workload_end *client = &workload->ends[i];
		while (before[i] < WORKLOAD_CALLS && atomic_load(&client->done) == before[i]) {
			if (client->why[0] && !workload->allowed[0])
				fail_msg("client %d: %s", i, client->why);
			if (now_ms() > end)
				fail_msg("call %d of client %d is not done", before[i], i);
			pause_ms(1);
		}
	}
}

void workload_join(const struct workload *workload, const pid_t pids[WORKLOAD_CLIENTS], int except)
{
	for (int i = 0; i < WORKLOAD_CLIENTS; i++) {
		int status = process_wait(pids[i], 100000);
		if (status != 0 && i != except)
			fail_msg("client %d ended with wait status %#x: %s", i, (unsigned)status,
					 workload->ends[i].why);
	}
}
