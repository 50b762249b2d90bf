/*
 * counters.h: the counters of the broker, the equations that must hold between them, and the
 * tallies of sessions and operators.  Knows nothing of the loop, of sessions and of messages.  All
 * of it is the loop thread's.
 *
 * A new counter needs a row of BROKER_COUNTERS, a place that counts, and a part in an equation
 * (counters.c); a way to answer the request for a kernel needs a row of TALLY_COUNTERS, too.
 */
#ifndef KILN_DAEMON_COUNTERS_H
#define KILN_DAEMON_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>

#include "histogram.h"

/* These only ever rise. */
#define BROKER_COUNTERS(X)                                               \
	X(asked, "kernels asked for")                                        \
	X(left, "of these, those whose client did not wait for the answer")  \
	X(requests, "kernels asked for and answered")                        \
	X(hits, "answered from the cache")                                   \
	X(memory_hits, "of these, those that were in memory")                \
	X(disk_hits, "of these, those that were read from the disk")         \
	X(remote_hits, "of these, those that came from the second tier")     \
	X(shared, "answered by a compile that another had asked for")        \
	X(compiles, "answered by a compile of their own")                    \
	X(failures, "answered with an error")                                \
	X(remembered, "answered with a failure that is remembered")          \
	X(frozen, "refused, for they may have nothing compiled (on-miss)")   \
	X(generic, "answered by a generic kernel at once")                   \
	X(copies, "plans that needed no kernel")                             \
	X(lookups, "keys looked for in the cache, once for all who ask")     \
	X(lookup_hits, "of these, those that were there")                    \
	X(lookup_failures, "of these, those whose failure is remembered")    \
	X(lookup_remote, "of these, those found in the second tier")         \
	X(remote_waits, "of these, those that another host compiled then")   \
	X(lookups_left, "of these, those missed with nobody waiting")        \
	X(lookups_late, "lookups that the disk kept for too long: misses")   \
	X(lookups_frozen, "of these, those missed and not to be compiled")   \
	X(jobs, "compiles begun")                                            \
	X(jobs_done, "compiles that gave a kernel")                          \
	X(jobs_failed, "compiles that gave none")                            \
	X(remote_asks, "keys asked of the second tier")                      \
	X(remote_misses, "of these, those not there: compiled here")         \
	X(remote_overdue, "of these, those another host took too long for")  \
	X(remote_refused, "entries of it that were refused: compiled here")  \
	X(remote_failures, "asks not answered in time: compiled here")       \
	X(remote_left, "asks whose answer nobody waited for")                \
	X(remote_skipped, "keys it was not asked for, being away")           \
	X(remote_writes, "kernels and winners to be written there")          \
	X(remote_written, "of these, those that are there")                  \
	X(remote_write_failures, "of these, those that it did not take")     \
	X(remote_dropped, "of these, those that were too large or too many") \
	X(winner_asks, "winners of tuning looked for in the second tier")    \
	X(winner_hits, "of these, those that were there, and newer")         \
	X(winner_misses, "of these, those that were not")                    \
	X(winner_refused, "of these, those that were refused")               \
	X(winner_failures, "looks for these that were not answered")         \
	X(canceled, "compiles stopped because nobody waited any more")       \
	X(specialized, "exact kernels compiled while generic ones ran")      \
	X(specialize_failed, "of these compiles, those that gave none")      \
	X(promoted, "calls whose exact kernel took over")                    \
	X(no_gain, "calls that an exact kernel would not make faster")       \
	X(widened, "operators of a session past --max-variants")             \
	X(reloads, "kernels brought back to a new device process")           \
	X(submitted, "calls that came by message")                           \
	X(lane_taken, "calls that came without a message")                   \
	X(launches, "calls that ran")                                        \
	X(message_launches, "of these, those that came by message")          \
	X(lane_launches, "of these, those that came without a message")      \
	X(launch_failures, "calls that ended in an error")                   \
	X(message_failures, "of these, those that came by message")          \
	X(lane_failures, "of these, those that came without a message")      \
	X(message_lost, "calls by message whose session ended before them")  \
	X(lane_lost, "calls without a message whose lane ended before them") \
	X(objects, "calls given out, to be launched by their programs")      \
	X(quiet_idle, "loads and closes while the GPU was idle")             \
	X(quiet_held, "loads and closes that launches were held for")        \
	X(holds, "times that launches were held")                            \
	X(worst_hold_us, "longest of these")                                 \
	X(transfers, "copies asked for")                                     \
	X(writes, "copies to the device")                                    \
	X(reads, "copies from the device")                                   \
	X(transfers_failed, "copies that ended in an error")                 \
	X(transfers_lost, "copies whose session ended before them")          \
	X(device_requests, "requests to device processes")                   \
	X(device_answers, "of these, those that were answered")              \
	X(device_lost, "of these, those that ended with the process")        \
	X(sessions, "connections accepted")                                  \
	X(sessions_ended, "of these, those that have ended")                 \
	X(refused, "connections refused, before hello or in answer to it")   \
	X(protocol_errors, "connections ended for breaking the protocol")    \
	X(executor_faults, "device processes lost")                          \
	X(worker_faults, "compiler workers lost")                            \
	X(faults, "faults that leave a report")                              \
	X(fault_reports, "reports that were written")                        \
	X(fault_repeats, "faults that a report was there of, and counted")   \
	X(fault_failures, "reports that could not be written")               \
	X(fault_dropped, "faults of which there were too many for reports")

struct counters {
#define COUNTER_FIELD(name, text) uint64_t name;
	BROKER_COUNTERS(COUNTER_FIELD)
#undef COUNTER_FIELD
};

/* These rise and fall.  A gauge that is busy is 0 while nothing is under way. */
#define BROKER_GAUGES(X)                                                   \
	X(waiting, true, "kernels asked for and not answered yet")             \
	X(looking_up, true, "keys being looked for")                           \
	X(compiling, true, "compiles under way")                               \
	X(remote_asking, true, "keys asked of the second tier, no answer yet") \
	X(launching, true, "calls by message that have not ended")             \
	X(lane_launching, true, "calls without a message that have not ended") \
	X(transferring, true, "copies that have not ended")                    \
	X(device_pending, true, "requests to device processes, not answered")  \
	X(fault_writing, true, "reports of faults being written")              \
	X(connected, false, "connections")                                     \
	X(winner_looking, true, "winners of tuning looked for, no answer yet") \
	X(remote_queued, false, "kernels and winners to be written there")     \
	X(session_requests, false, "requests, summed over sessions")           \
	X(session_launches, false, "launches, summed over sessions")           \
	X(operator_requests, false, "requests, summed over operators")         \
	X(operator_launches, false, "launches by message, summed over operators")

struct gauges {
#define GAUGE_FIELD(name, busy, text) uint64_t name;
	BROKER_GAUGES(GAUGE_FIELD)
#undef GAUGE_FIELD
};

/* ---- Equations ---- */

/* Two sums of counters and gauges, by name, that are equal at every moment: "a = b + c". */
struct identity {
	const char *name, *text;
};
extern const struct identity counters_identities[]; /* name NULL ends it */

/* Computes both sides; false: the text has an unknown name, or is no equation. */
bool counters_sides(const char *text, const struct counters *counters, const struct gauges *gauges,
					uint64_t *left, uint64_t *right);

/* ---- For each session and operator ---- */

#define TALLY_COUNTERS(X) \
	X(requests)           \
	X(memory_hits)        \
	X(disk_hits)          \
	X(remote_hits)        \
	X(shared)             \
	X(compiles)           \
	X(failures)           \
	X(remembered)         \
	X(frozen)             \
	X(generic)            \
	X(launches)           \
	X(launch_failures)

/* Times in microseconds: hits and compiles take from the request to the kernel; a load is timed in
 * the device process. */
#define TALLY_TIMES(X) \
	X(memory_hit)      \
	X(disk_hit)        \
	X(remote_hit)      \
	X(load)            \
	X(compile)

struct tally {
#define TALLY_FIELD(name) uint64_t name;
	TALLY_COUNTERS(TALLY_FIELD)
#undef TALLY_FIELD
#define TALLY_TIME(name) struct histogram name;
	TALLY_TIMES(TALLY_TIME)
#undef TALLY_TIME
};

/* ---- For each user's programs of one name ---- */

#define ACCOUNTS_MOST 64 /* further ones are counted together, as number 0 */
#define ACCOUNT_NAME_MAX 16

struct account {
	uint32_t uid;
	char name[ACCOUNT_NAME_MAX];
	double device_us; /* that devices worked for it */
};

struct accounts {
	struct account rows[ACCOUNTS_MOST]; /* number 0 is of all that have none of their own */
	uint32_t count;                     /* 0: not even that */
};

/* Returns the number of an account; once given, it is the account's for ever. */
uint32_t account_number(struct accounts *accounts, uint32_t uid, const char *name);

#define TALLY_OPERATORS_MOST 64 /* further ones are counted together */
#define TALLY_SESSIONS_MOST 16  /* of those that have ended; older ones are counted together */

struct operator_tally {
	char op[24];
	struct tally tally;
};

/* Launches are those by message: a lane does not say which calls went through it. */
struct operator_tallies {
	struct operator_tally *rows[TALLY_OPERATORS_MOST];
	int count;
	struct tally others;
};

/* Returns the tally of an operator; tallies own it, and it never moves. */
struct tally *operator_tally(struct operator_tallies *tallies, const char *op);
void operator_tallies_free(struct operator_tallies *tallies);

struct ended_session {
	uint64_t id;
	uint32_t uid;
	int32_t pid;
	struct tally tally;
};

struct ended_sessions {
	struct ended_session rows[TALLY_SESSIONS_MOST]; /* a ring; id 0: none yet */
	unsigned next;
	struct tally older;
};

/* Keeps a copy of the session, unless it asked for nothing. */
void ended_sessions_add(struct ended_sessions *ended, const struct ended_session *session);

#endif
