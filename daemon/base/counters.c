/* counters.c: the equations, and the tallies of operators and of sessions that have ended. */
#include "counters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `kiln status --json` shows this list, and tests assert it. */
const struct identity counters_identities[] = {
	{"asked", "asked = requests + left + waiting"},
	{"requests",
	 "requests = memory_hits + disk_hits + remote_hits + shared + compiles + failures + "
	 "remembered + frozen + generic"},
	{"hits", "hits = memory_hits + disk_hits + remote_hits"},
	{"lookups", "lookups = lookup_hits + lookup_failures + lookup_remote + jobs + lookups_left + "
				"lookups_frozen + looking_up"},
	{"remote_asks",
	 "remote_asks = lookup_remote + remote_refused + remote_misses + remote_failures + "
	 "remote_left + remote_asking"},
	{"remote_writes", "remote_writes = remote_written + remote_write_failures + remote_dropped + "
					  "remote_queued"},
	{"winner_asks", "winner_asks = winner_hits + winner_misses + winner_refused + "
					"winner_failures + winner_looking"},
	{"jobs", "jobs = jobs_done + jobs_failed + canceled + compiling"},
	{"calls", "submitted + lane_taken = launches + launch_failures + message_lost + lane_lost + "
			  "launching + lane_launching"},
	{"messages", "submitted = message_launches + message_failures + message_lost + launching"},
	{"lanes", "lane_taken = lane_launches + lane_failures + lane_lost + lane_launching"},
	{"launches", "launches = lane_launches + message_launches"},
	{"launch_failures", "launch_failures = lane_failures + message_failures"},
	{"transfers", "transfers = writes + reads + transfers_failed + transfers_lost + transferring"},
	{"device_requests", "device_requests = device_answers + device_lost + device_pending"},
	{"faults", "faults = fault_reports + fault_repeats + fault_failures + fault_dropped + "
			   "fault_writing"},
	{"sessions", "sessions = sessions_ended + connected"},
	{"session_requests", "requests = session_requests"},
	{"session_launches", "launches = session_launches"},
	{"operator_requests", "requests = operator_requests"},
	{"operator_launches", "message_launches = operator_launches"},
	{0},
};

static bool value_of(const char *name, size_t length, const struct counters *counters,
					 const struct gauges *gauges, uint64_t *value)
{
#define IS_COUNTER(row, text)                                        \
	if (sizeof #row - 1 == length && !strncmp(#row, name, length)) { \
		*value = counters->row;                                      \
		return true;                                                 \
	}
#define IS_GAUGE(row, busy, text)                                    \
	if (sizeof #row - 1 == length && !strncmp(#row, name, length)) { \
		*value = gauges->row;                                        \
		return true;                                                 \
	}
	BROKER_COUNTERS(IS_COUNTER)
	BROKER_GAUGES(IS_GAUGE)
#undef IS_COUNTER
#undef IS_GAUGE
	return false;
}

bool counters_sides(const char *text, const struct counters *counters, const struct gauges *gauges,
					uint64_t *left, uint64_t *right)
{
	uint64_t *side = left, value;
	*left = *right = 0;
	for (;;) {
		size_t length = strcspn(text, " ");
		if (!value_of(text, length, counters, gauges, &value))
			return false;
		*side += value;
		text += length;
		if (!*text)
			return side == right;
		if (!strncmp(text, " = ", 3) && side == left)
			side = right;
		else if (strncmp(text, " + ", 3) != 0)
			return false;
		text += 3;
	}
}

static void tally_add(struct tally *sum, const struct tally *other)
{
#define ADD_COUNTER(name) sum->name += other->name;
#define ADD_TIME(name) histogram_add(&sum->name, &other->name);
	TALLY_COUNTERS(ADD_COUNTER)
	TALLY_TIMES(ADD_TIME)
#undef ADD_COUNTER
#undef ADD_TIME
}

struct tally *operator_tally(struct operator_tallies *tallies, const char *op)
{
	for (int i = 0; i < tallies->count; i++)
		if (!strcmp(tallies->rows[i]->op, op))
			return &tallies->rows[i]->tally;
	struct operator_tally *row =
		tallies->count < TALLY_OPERATORS_MOST ? calloc(1, sizeof(*row)) : NULL;
	if (!row)
		return &tallies->others;
	strncpy(row->op, op, sizeof(row->op) - 1);
	tallies->rows[tallies->count++] = row;
	return &row->tally;
}

void operator_tallies_free(struct operator_tallies *tallies)
{
	while (tallies->count)
		free(tallies->rows[--tallies->count]);
}

uint32_t account_number(struct accounts *accounts, uint32_t uid, const char *name)
{
	uint32_t i = 1;
	accounts->count = accounts->count ? accounts->count : 1;
	while (i < accounts->count &&
		   (accounts->rows[i].uid != uid || strcmp(accounts->rows[i].name, name) != 0))
		i++;
	if (i == ACCOUNTS_MOST)
		return 0;
	if (i == accounts->count) {
		accounts->rows[i].uid = uid;
		snprintf(accounts->rows[i].name, ACCOUNT_NAME_MAX, "%s", name);
		accounts->count++;
	}
	return i;
}

void ended_sessions_add(struct ended_sessions *ended, const struct ended_session *session)
{
	const struct tally *tally = &session->tally;
	if (!tally->requests && !tally->launches && !tally->launch_failures)
		return;
	struct ended_session *row = &ended->rows[ended->next++ % TALLY_SESSIONS_MOST];
	if (row->id)
		tally_add(&ended->older, &row->tally);
	*row = *session;
}
