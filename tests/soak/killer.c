/*
 * killer.c: kills and freezes processes, chosen by chance from the seed.
 *
 * For half of the time the daemon and the device process that all share are frozen, but not killed:
 * they live long enough that growth would be seen.
 */
#include "soak.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FROZEN_MOST 8
#define FOUND_MOST 64

struct killer {
	uint64_t state;
	int64_t next_ms;
	int64_t kills[SOAK_ROLES], freezes[SOAK_ROLES], stops[SOAK_ROLES];
	struct {
		pid_t pid;
		enum soak_role role;
		int client;
		int64_t until_ms;
	} frozen[FROZEN_MOST];
	int frozen_count;
};

struct killer *killer_new(struct conductor *conductor)
{
	struct killer *killer = calloc(1, sizeof(*killer));
	const struct soak_options *options = &conductor->soak->options;

	if (killer) {
		killer->state = options->seed * 7919 + 17;
		killer->next_ms = conductor->began_ms + options->kill_every_ms;
	}
	return killer;
}

/* ---- Whom ---- */

struct found {
	pid_t pid;
	enum soak_role role;
	int client;    /* of role CLIENT */
	bool starting; /* of a worker, a device process */
};

static int find_clients(const struct conductor *conductor, struct found found[FOUND_MOST])
{
	int count = 0;
	for (int i = 0; i < conductor->soak->options.clients; i++)
		if (conductor->pids[i])
			found[count++] = (struct found){conductor->pids[i], SOAK_CLIENT, i, false};
	return count;
}

static int find_executors(struct conductor *conductor, enum soak_role role,
						  struct found found[FOUND_MOST])
{
	kiln_reply *reply = soak_info(conductor);
	int rows = reply ? kiln_reply_count(reply, "executors") : 0, count = 0;
	char path[48];

	for (int i = 0; i < rows && count < FOUND_MOST; i++) {
		snprintf(path, sizeof(path), "executors[%d].session", i);
		bool own = kiln_reply_int(reply, path) != 0;
		snprintf(path, sizeof(path), "executors[%d].state", i);
		bool starting = strcmp(kiln_reply_str(reply, path), "ready") != 0;
		snprintf(path, sizeof(path), "executors[%d].pid", i);
		pid_t pid = (pid_t)kiln_reply_int(reply, path);
		if (pid > 0 && own == (role == SOAK_OWN))
			found[count++] = (struct found){pid, role, 0, starting};
	}
	kiln_reply_free(reply);
	return count;
}

static int find_workers(struct conductor *conductor, struct found found[FOUND_MOST])
{
	const kiln_attr what = {.name = "what", .kind = KILN_ATTR_STRING, .s = "children"};
	kiln_reply *reply = NULL;
	int count = 0;
	char path[32];

	if (!conductor->client || kiln_request(conductor->client, "debug", &what, 1, &reply) != KILN_OK)
		return 0;
	for (int i = 0; i < kiln_reply_count(reply, "rows") && count < FOUND_MOST; i++) {
		snprintf(path, sizeof(path), "rows[%d].role", i);
		bool compiler = strcmp(kiln_reply_str(reply, path), "compiler") == 0;
		snprintf(path, sizeof(path), "rows[%d].state", i);
		bool starting = strcmp(kiln_reply_str(reply, path), "starting") == 0;
		snprintf(path, sizeof(path), "rows[%d].pid", i);
		pid_t pid = (pid_t)kiln_reply_int(reply, path);
		if (compiler && pid > 0)
			found[count++] = (struct found){pid, SOAK_WORKER, 0, starting};
	}
	kiln_reply_free(reply);
	return count;
}

static bool find(struct conductor *conductor, enum soak_role role, struct found *out)
{
	struct found found[FOUND_MOST];
	int count = 0;

	if (role == SOAK_DAEMON)
		found[count++] = (struct found){conductor->daemon.pid, role, 0, false};
	else if (role == SOAK_CLIENT)
		count = find_clients(conductor, found);
	else if (role == SOAK_WORKER)
		count = find_workers(conductor, found);
	else
		count = find_executors(conductor, role, found);
	if (count == 0)
		return false;
	*out = found[soak_pick(&conductor->killer->state, count)];
	for (int i = 0; i < conductor->killer->frozen_count; i++)
		if (conductor->killer->frozen[i].pid == out->pid)
			return false;
	return true;
}

/* ---- What is done to it ---- */

static void note_death(struct soak *soak, enum soak_role role)
{
	int place = atomic_load(&soak->deaths);
	struct soak_death *death = &soak->death[place % SOAK_DEATHS];

	atomic_store(&death->role, role);
	atomic_store(&death->at_ms, soak_now_ms());
	atomic_store(&soak->deaths, place + 1);
}

static void kill_one(struct conductor *conductor, const struct found *found)
{
	struct soak *soak = conductor->soak;

	note_death(soak, found->role);
	if (found->role == SOAK_CLIENT)
		atomic_store(&soak->seats[found->client].killed, true);
	kill(found->pid, SIGKILL);
	conductor->killer->kills[found->role]++;
	if (found->role != SOAK_DAEMON)
		return;
	waitpid(found->pid, NULL, 0);
	soak_disconnect(conductor);
	soak_pause_ms((int)soak_pick(&conductor->killer->state, 400));
	if (!soak_daemon_start(conductor))
		atomic_store(&soak->stop, 1);
}

/* It is never woken: the daemon finds it, and that is its death. */
static void stop_for_good(struct conductor *conductor, const struct found *found)
{
	note_death(conductor->soak, found->role);
	kill(found->pid, SIGSTOP);
	conductor->killer->stops[found->role]++;
}

static void freeze(struct conductor *conductor, const struct found *found)
{
	struct killer *killer = conductor->killer;
	int64_t until = soak_now_ms() + 50 + soak_pick(&killer->state, SOAK_FREEZE_MS);

	if (killer->frozen_count == FROZEN_MOST)
		return;
	killer->frozen[killer->frozen_count].pid = found->pid;
	killer->frozen[killer->frozen_count].role = found->role;
	killer->frozen[killer->frozen_count].client = found->client;
	killer->frozen[killer->frozen_count++].until_ms = until;
	conductor->daemon_frozen = conductor->daemon_frozen || found->role == SOAK_DAEMON;
	kill(found->pid, SIGSTOP);
	killer->freezes[found->role]++;
}

static void wake(struct conductor *conductor, int64_t now)
{
	struct killer *killer = conductor->killer;

	for (int i = 0; i < killer->frozen_count; i++) {
		if (killer->frozen[i].until_ms > now)
			continue;
		kill(killer->frozen[i].pid, SIGCONT);
		if (killer->frozen[i].role == SOAK_DAEMON)
			conductor->daemon_frozen = false;
		killer->frozen[i--] = killer->frozen[--killer->frozen_count];
	}
}

void killer_rest(struct conductor *conductor)
{
	if (conductor->killer)
		wake(conductor, INT64_MAX);
}

/* ---- When ---- */

static enum soak_role choose_role(struct conductor *conductor)
{
	static const int shares[SOAK_ROLES] = {[SOAK_DAEMON] = 2,
										   [SOAK_EXECUTOR] = 6,
										   [SOAK_OWN] = 5,
										   [SOAK_WORKER] = 7,
										   [SOAK_CLIENT] = 10};
	int64_t at = soak_pick(&conductor->killer->state, 30);
	int role = 0;

	while (at >= shares[role])
		at -= shares[role++];
	return (enum soak_role)role;
}

static bool is_spared(enum soak_role role, double part)
{
	return part < SOAK_MEASURED_END && ((role == SOAK_DAEMON && part > SOAK_DAEMON_SPARED) ||
										(role == SOAK_EXECUTOR && part > SOAK_DEVICE_SPARED));
}

void killer_tick(struct conductor *conductor)
{
	struct killer *killer = conductor->killer;
	const struct soak_options *options = &conductor->soak->options;
	int64_t now = soak_now_ms();
	double part = (double)(now - conductor->began_ms) / 1000.0 / options->seconds;
	struct found found;

	wake(conductor, now);
	/* Others are found by asking the daemon. */
	if (!options->kill_every_ms || now < killer->next_ms || conductor->daemon_frozen)
		return;
	killer->next_ms = now + 1 + soak_pick(&killer->state, 2 * options->kill_every_ms);
	enum soak_role role = choose_role(conductor);
	bool freezes = soak_chance(&killer->state, 3);
	bool for_good = soak_chance(&killer->state, 6) && role != SOAK_DAEMON && role != SOAK_CLIENT;
	if ((!freezes || for_good) && is_spared(role, part))
		return;
	if (!find(conductor, role, &found))
		return;
	/* One that starts has a deadline of its own, as long as a client's whole patience. */
	if (for_good && !found.starting)
		stop_for_good(conductor, &found);
	else if (freezes)
		freeze(conductor, &found);
	else
		kill_one(conductor, &found);
}

void killer_report(const struct conductor *conductor, FILE *json)
{
	const struct killer *killer = conductor->killer;

	printf("killed and frozen\n");
	for (int i = 0; i < SOAK_ROLES; i++)
		printf("  %-34s %8lld killed %8lld frozen %8lld stopped for good\n", soak_roles[i],
			   (long long)killer->kills[i], (long long)killer->freezes[i],
			   (long long)killer->stops[i]);
	for (int i = 0; i < SOAK_ROLES && json; i++)
		fprintf(json, "  \"%s\": {\"killed\": %lld, \"frozen\": %lld, \"stopped\": %lld},\n",
				soak_roles[i], (long long)killer->kills[i], (long long)killer->freezes[i],
				(long long)killer->stops[i]);
}
