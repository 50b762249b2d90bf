/*
 * launch_many.c: several programs at once, each waiting for each of its launches: with contexts of
 * their own, the same under NVIDIA MPS, and as clients of Kiln: how many launches there are in all,
 * how they are shared, and what clients cost that do nothing.
 */
#include "launch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_ROUNDS 5
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

enum { OWN, MPS, KILN, CREWS };
static const char *const crew_names[CREWS] = {"own contexts", "under MPS", "Kiln"};

struct contest {
	struct crew crews[CREWS];
	double rates[CREWS][MOST_ROUNDS];
	double rate[CREWS]; /* the median; 0: not there */
};

static void take_turns(struct bench *bench, struct contest *contest, int rounds)
{
	char why[LAUNCH_WHY] = "";
	for (int round = 0; round < rounds; round++)
		for (int i = 0; i < CREWS; i++) {
			struct crew *crew = &contest->crews[i];
			if (!crew->count)
				continue;
			contest->rates[i][round] = crew_round(crew, bench->options.quick ? 0.3 : 0.7, why);
			if (contest->rates[i][round] < 0) {
				runner_fail(crew_names[i], "%s", why);
				crew_end(crew);
			}
		}
	for (int i = 0; i < CREWS; i++)
		if (contest->crews[i].count) {
			contest->rate[i] = runner_percentile(contest->rates[i], rounds, 0.5);
			runner_pass();
		}
}

static void show_contest(struct bench *bench, const struct contest *contest, int processes)
{
	char name[64];
	for (int i = 0; i < CREWS; i++) {
		struct figure figure = {.name = name, .value = contest->rate[i], .unit = "launches/s"};
		if (contest->rate[i] <= 0)
			continue;
		snprintf(name, sizeof name, "%d process%s, %s", processes, processes > 1 ? "es" : "",
				 crew_names[i]);
		if (i != OWN && contest->rate[OWN] > 0) {
			figure.ratio = figure.value / contest->rate[OWN];
			figure.of = "own contexts";
		}
		if (i == KILN && processes == 8 && figure.of) {
			figure.aim = AIM_AT_LEAST;
			figure.target = 25;
		}
		table_row(bench, &figure);
		if (i == KILN && contest->rate[MPS] > 0) {
			snprintf(name, sizeof name, "%d process%s, Kiln beside MPS", processes,
					 processes > 1 ? "es" : "");
			figure.ratio = figure.value / contest->rate[MPS];
			figure.of = "under MPS";
			figure.aim = processes == 8 ? AIM_AT_LEAST : AIM_NONE;
			figure.target = 4;
			table_row(bench, &figure);
		}
	}
}

/* MPS that does not work here is no failure of anything else. */
static void start_crew(struct bench *bench, struct contest *contest, struct mps *mps, int which,
					   int processes)
{
	char why[LAUNCH_WHY] = "";
	if ((which != KILN && bench->ordinal < 0) || (which == MPS && !mps->running) ||
		ready(bench, &contest->crews[which], which == KILN ? "kiln" : "own", processes,
			  which == MPS ? mps->environment : NULL, why))
		return;
	if (which == MPS) {
		table_left_out(crew_names[MPS], why);
		mps_end(mps);
	} else {
		runner_fail(crew_names[which], "%d at once: %s", processes, why);
	}
}

static void contest_of(struct bench *bench, struct mps *mps, int processes)
{
	struct contest contest = {0};
	for (int i = 0; i < CREWS; i++)
		start_crew(bench, &contest, mps, i, processes);
	take_turns(bench, &contest, bench->options.quick ? 1 : 3);
	show_contest(bench, &contest, processes);
	for (int i = 0; i < CREWS; i++)
		crew_end(&contest.crews[i]);
}

void launch_many(struct bench *bench)
{
	struct mps mps = {0};
	char why[LAUNCH_WHY] = "it needs a GPU";
	table_section("processes at once, each waits for its launch");
	if (bench->ordinal < 0)
		table_left_out(crew_names[OWN], why);
	if (bench->ordinal < 0 || !mps_start(&mps, why))
		table_left_out(crew_names[MPS], why);
	for (int processes = 1; processes <= 8; processes *= 2)
		if (!bench->options.quick || processes == 1 || processes == 8)
			contest_of(bench, &mps, processes);
	mps_end(&mps);
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
	snprintf(name, sizeof name, "%d clients, in all", clients);
	table_row(bench, &(struct figure){name, runner_percentile(rates, rounds, 0.5), "launches/s", 0,
									  NULL, AIM_NONE, 0});
	snprintf(name, sizeof name, "%d clients, fastest", clients);
	double share = runner_percentile(shares, rounds, 0.5);
	table_row(bench, &(struct figure){name, share, "times", share, "the slowest",
									  clients == 64 ? AIM_AT_MOST : AIM_NONE, 1.5});
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
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	DIR *tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		unsigned long long nanoseconds = 0;
		snprintf(path, sizeof path, "/proc/%d/task/%.20s/schedstat", (int)pid, entry->d_name);
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
			snprintf(path, sizeof path, "executors[%d].pid", i);
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
