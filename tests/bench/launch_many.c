/*
 * launch_many.c: several programs at once, each waiting for each of its launches, or for 64 of
 * them at a time: with contexts of their own, the same under NVIDIA MPS, and as clients of Kiln:
 * how many launches there are in all, how they are shared, and what clients cost that do nothing.
 */
#include "launch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_ROUNDS 3
#define READY_SECONDS 30

/* Starts one, and waits until all of it can launch. */
static bool ready(struct bench *bench, struct crew *crew, const char *role, int count,
				  const char *const *environment, char why[LAUNCH_WHY])
{
	struct crew_word words[CREW_MOST];
	if (!crew_start(bench, crew, role, count, environment, why))
		return false;
	if (crew_hear(crew, READY_SECONDS, words, why))
		return true;
	crew_end(crew);
	return false;
}

/* ---- (b) ---- */

/* A process under MPS waits by the driver, or for a word that the GPU writes. */
enum { OWN, MPS, MPS_WORD, KILN, CREWS };
static const char *const crew_names[CREWS] = {"own contexts", "under MPS", "MPS, memory operation",
											  "Kiln"};

struct contest {
	int processes;
	bool queued, takes_long;
	double rate[CREWS]; /* the median; 0: not there */
};

static void name_role(const struct contest *contest, int which, char role[32])
{
	snprintf(role, 32, "%s%s%s%s", which == KILN ? "kiln" : "own",
			 contest->takes_long ? "-long" : "", contest->queued ? "-queued" : "",
			 which == MPS_WORD ? "-word" : "");
}

/* Nobody else has the GPU open meanwhile: contexts that do nothing cost others their share, too. */
static void measure(struct bench *bench, struct contest *contest, int which, struct mps *mps)
{
	int rounds = bench->options.quick ? 1 : MOST_ROUNDS;
	double rates[MOST_ROUNDS];
	char why[LAUNCH_WHY] = "", role[32];
	struct crew crew = {0};
	name_role(contest, which, role);
	if (!ready(bench, &crew, role, contest->processes, mps ? mps->environment : NULL, why)) {
		/* MPS that does not work here is no failure of anything else. */
		if (mps) {
			table_left_out(crew_names[which], why);
			mps_end(mps);
		} else {
			runner_fail(crew_names[which], "%d at once: %s", contest->processes, why);
		}
		return;
	}
	for (int round = 0; round < rounds; round++) {
		rates[round] = crew_round(&crew, bench->options.quick ? 0.3 : 0.7, why);
		if (rates[round] < 0) {
			runner_fail(crew_names[which], "%s", why);
			crew_end(&crew);
			return;
		}
	}
	contest->rate[which] = runner_percentile(rates, rounds, 0.5);
	runner_pass();
	crew_end(&crew);
}

static void show_contest(struct bench *bench, const struct contest *contest)
{
	bool aimed = contest->processes == 8 && !contest->queued;
	bool tiny = !contest->takes_long;
	char name[64], who[32];
	snprintf(who, sizeof(who), "%d process%s%s", contest->processes,
			 contest->processes > 1 ? "es" : "",
			 contest->queued       ? ", 64 queued"
			 : contest->takes_long ? ", long kernels"
								   : "");
	for (int i = 0; i < CREWS; i++) {
		struct figure figure = {.name = name, .value = contest->rate[i], .unit = "launches/s"};
		if (contest->rate[i] <= 0)
			continue;
		snprintf(name, sizeof(name), "%s, %s", who, crew_names[i]);
		if (i != OWN && contest->rate[OWN] > 0) {
			figure.ratio = figure.value / contest->rate[OWN];
			figure.of = "own contexts";
		}
		if (i == KILN && aimed && tiny && figure.of) {
			figure.aim = AIM_AT_LEAST;
			figure.target = 55;
		}
		table_row(bench, &figure);
		for (int k = MPS; i == KILN && k <= MPS_WORD; k++) {
			if (contest->rate[k] <= 0)
				continue;
			snprintf(name, sizeof(name), "%s, Kiln beside MPS", who);
			figure.ratio = figure.value / contest->rate[k];
			figure.of = k == MPS ? "under MPS" : "by operation";
			figure.aim = aimed && k == MPS ? AIM_AT_LEAST : AIM_NONE;
			figure.target = tiny ? 0.55 : 0.95;
			table_row(bench, &figure);
		}
	}
}

void launch_many(struct bench *bench)
{
	struct contest contests[] = {{.processes = 1},
								 {.processes = 8},
								 {.processes = 8, .queued = true},
								 {.processes = 8, .takes_long = true},
								 {.processes = 2},
								 {.processes = 4}};
	enum { CONTESTS = sizeof(contests) / sizeof(contests[0]) };
	static const int order[CONTESTS] = {0, 4, 5, 1, 2, 3};
	int count = bench->options.quick ? 4 : CONTESTS;
	struct mps mps = {0};
	char why[LAUNCH_WHY] = "it needs a GPU";
	table_section("processes at once, each waits for its launch, or for 64");
	for (int i = 0; i < count; i++) {
		if (bench->ordinal >= 0)
			measure(bench, &contests[i], OWN, NULL);
		measure(bench, &contests[i], KILN, NULL);
	}
	if (bench->ordinal < 0)
		table_left_out(crew_names[OWN], why);
	if (bench->ordinal < 0 || !mps_start(&mps, why))
		table_left_out(crew_names[MPS], why);
	for (int which = MPS; which <= MPS_WORD; which++)
		for (int i = 0; i < count && mps.running; i++)
			measure(bench, &contests[i], which, &mps);
	mps_end(&mps);
	for (int i = 0; i < CONTESTS; i++)
		if (order[i] < count)
			show_contest(bench, &contests[order[i]]);
}

/* ---- (e) ---- */

/* The most that one of them launched, in parts of the least. */
static double unfairness(const struct crew *crew)
{
	int64_t least = crew->launches[0], most = least;
	for (int i = 1; i < crew->count; i++) {
		least = crew->launches[i] < least ? crew->launches[i] : least;
		most = crew->launches[i] > most ? crew->launches[i] : most;
	}
	return least > 0 ? (double)most / (double)least : (double)most;
}

static void fair_among(struct bench *bench, int clients)
{
	struct crew crew;
	char why[LAUNCH_WHY] = "", name[64];
	double rates[MOST_ROUNDS], shares[MOST_ROUNDS];
	int rounds = bench->options.quick ? 1 : MOST_ROUNDS;
	if (!ready(bench, &crew, "kiln", clients, NULL, why)) {
		runner_fail("clients", "%d of them: %s", clients, why);
		return;
	}
	for (int round = 0; round < rounds; round++) {
		rates[round] = crew_round(&crew, 1.0, why);
		if (rates[round] < 0) {
			runner_fail("clients", "%d of them: %s", clients, why);
			crew_end(&crew);
			return;
		}
		shares[round] = unfairness(&crew);
	}
	crew_end(&crew);
	runner_pass();
	snprintf(name, sizeof(name), "%d clients, in all", clients);
	table_row(bench, &(struct figure){name, runner_percentile(rates, rounds, 0.5), "launches/s", 0,
									  NULL, AIM_NONE, 0});
	snprintf(name, sizeof(name), "%d clients, fastest", clients);
	double share = runner_percentile(shares, rounds, 0.5);
	table_row(bench, &(struct figure){name, share, "times", share, "the slowest",
									  clients == 64 ? AIM_AT_MOST : AIM_NONE, 1.3});
}

void launch_fair(struct bench *bench)
{
	table_section("equal clients at once, each waits for its launch");
	for (int clients = 8; clients <= 64; clients *= clients == 8 ? 2 : 4)
		if (!bench->options.quick || clients == 64)
			fair_among(bench, clients);
}

/* ---- Clients that do nothing ---- */

/* Microseconds that the threads of a process have run; negative: it cannot be told. */
static double cpu_time(pid_t pid)
{
	char path[300];
	double sum = 0;
	int threads = 0;
	struct dirent *entry;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		unsigned long long nanoseconds = 0;
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", (int)pid, entry->d_name);
		FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
		if (!file)
			continue;
		if (fscanf(file, "%llu", &nanoseconds) == 1) {
			sum += (double)nanoseconds / 1e3;
			threads++;
		}
		fclose(file);
	}
	if (tasks)
		closedir(tasks);
	return threads ? sum : -1;
}

/* The broker and its device processes. */
static int find_processes(struct bench *bench, pid_t pids[8])
{
	kiln_client *client = runner_connect(&bench->options);
	kiln_reply *reply = NULL;
	char path[40];
	int count = 0;
	pids[count++] = bench->daemon;
	if (client && kiln_request(client, "info", NULL, 0, &reply) == KILN_OK)
		for (int i = 0; i < kiln_reply_count(reply, "executors") && count < 8; i++) {
			snprintf(path, sizeof(path), "executors[%d].pid", i);
			pids[count] = (pid_t)kiln_reply_int(reply, path);
			count += pids[count] > 0;
		}
	kiln_reply_free(reply);
	kiln_close(client);
	return count;
}

static void show_idle(struct bench *bench)
{
	double seconds = bench->options.quick ? 3 : 10, before[8], sum = 0;
	pid_t pids[8];
	int count = find_processes(bench, pids);
	usleep(500000);
	double begin = runner_now_us();
	for (int i = 0; i < count; i++)
		before[i] = cpu_time(pids[i]);
	usleep((useconds_t)(seconds * 1e6));
	double passed = runner_now_us() - begin;
	for (int i = 0; i < count; i++) {
		double after = cpu_time(pids[i]);
		if (before[i] < 0 || after < 0) {
			table_left_out("daemon", "/proc does not tell how long its threads have run");
			return;
		}
		sum += after - before[i];
		if (i == 0)
			table_row(bench, &(struct figure){"8 idle clients: the broker", sum / passed * 100,
											  "% of a core", 0, NULL, AIM_NONE, 0});
	}
	table_row(bench,
			  &(struct figure){"8 idle clients: broker and device processes", sum / passed * 100,
							   "% of a core", 0, NULL, AIM_AT_MOST, 0.1});
	runner_pass();
}

void launch_idle(struct bench *bench)
{
	struct crew crew;
	char why[LAUNCH_WHY] = "";
	table_section("the daemon while nothing is asked for");
	if (!ready(bench, &crew, "kiln", 8, NULL, why)) {
		runner_fail("clients", "%s", why);
		return;
	}
	show_idle(bench);
	crew_end(&crew);
}
