/*
 * test_lane_stress: very many launches through the lane, by several clients at once, in every way
 * of submitting and waiting that there is: each ticket ends once and as it must, and the numbers
 * that the launches leave show that each ran once and in its turn.
 *
 * A client reckons in a few numbers, in place: x = 3 x + 1 or x = x + 5, and does the same by
 * itself: one launch that is lost, run twice or out of its turn leaves another number.  In place,
 * because the memory is lent twice, which Kiln cannot know.  Some launches are canceled, and some
 * follow those: they must not have run.
 *
 * Four threads of the device process launch for them.  $KILN_STRESS_LAUNCHES says how many;
 * 10000000 is the full measure.
 */
#include "harness.h"

#include "client/wire/frame.h"
#include "client/wire/lane_memory.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ELEMENTS 8
#define BYTES (ELEMENTS * 8u)
#define PROCESSES 4
#define THREADS 4   /* of a process, each with a client of its own */
#define LAUNCHERS 4 /* threads of the device process that launch */
#define DEPTH LANE_ENTRIES
#define MOST_FOLLOWERS 8
#define WARMING 2    /* launches that go by message: the first of each call */
#define LOOK_EACH 64 /* rounds, until the numbers are read */

enum way { IN_ORDER, FROM_BEHIND, POLLED, BY_EVENTS };

struct launch {
	kiln_ticket ticket;
	int which;   /* of the calls */
	int follows; /* the launch of this round that must have gone well; -1: none */
	int status;  /* that it ended in */
	bool canceled;
};

/* One client, of a thread of its own. */
struct counter {
	const struct kilnd *daemon;
	kiln_client *client;
	kiln_call *calls[2];
	kiln_buffer *from, *to; /* the same memory */
	uint64_t random;
	int64_t wanted;    /* launches */
	int64_t good, bad; /* tickets that ended in OK, in ECANCELED */
	uint64_t number;   /* that the launches so far leave */
	bool events;       /* waits by poll(2) and kiln_dispatch() alone */
	struct launch launches[DEPTH];
	char why[500];
};

/* A process tells the sums of its clients. */
struct tally {
	int64_t good, bad;
	char why[500];
};

static bool wrong(struct counter *counter, const char *what)
{
	snprintf(counter->why, sizeof(counter->why), "after %lld launches: %s: %s",
			 (long long)counter->good, what, kiln_errmsg());
	return false;
}

static uint32_t draw(struct counter *counter, uint32_t below)
{
	counter->random = counter->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(counter->random >> 33) % below;
}

/* ---- A client's calls and buffers ---- */

static bool prepare(struct counter *counter, const char *statement, kiln_call **call)
{
	const kiln_attr attrs[] = {string_attr("statement", statement), string_attr("names", "x,y")};
	kiln_tensor tensors[2];
	memset(tensors, 0, sizeof(tensors));
	for (int i = 0; i < 2; i++) {
		tensors[i].dtype = KILN_U64;
		tensors[i].rank = 1;
		tensors[i].contiguous = 1;
		tensors[i].shape[0] = ELEMENTS;
	}
	return kiln_prepare(counter->client, "map", tensors, 2, attrs, 2, call) == KILN_OK;
}

static bool lend_twice(struct counter *counter)
{
	int memory = frame_memfd("kiln-stress", BYTES);
	bool lent = memory >= 0 &&
				!kiln_lend_fd(counter->client, memory, 0, BYTES, "from", &counter->from) &&
				!kiln_lend_fd(counter->client, memory, 0, BYTES, "to", &counter->to);
	if (memory >= 0)
		close(memory);
	return lent;
}

static bool submit(struct counter *counter, int place, int which, int follows)
{
	const kiln_operand operands[] = {{counter->from, 0}, {counter->to, 0}};
	struct launch *launch = &counter->launches[place];
	kiln_ticket after = follows < 0 ? 0 : counter->launches[follows].ticket;
	*launch = (struct launch){.which = which, .follows = follows};
	return kiln_submit(counter->calls[which], operands, 2, after, &launch->ticket) == KILN_OK ||
		   wrong(counter, "submitting");
}

static bool counter_open(struct counter *counter)
{
	const uint64_t zero[ELEMENTS] = {0};
	int status;
	counter->client = client_try(counter->daemon, CALL_TIMEOUT_MS, &status);
	if (!counter->client || !prepare(counter, "y[i] = x[i] * 3 + 1", &counter->calls[0]) ||
		!prepare(counter, "y[i] = x[i] + 5", &counter->calls[1]) || !lend_twice(counter))
		return wrong(counter, "opening");
	/* From then on the device process knows calls and buffers. */
	for (int i = 0; i < WARMING; i++)
		if (!submit(counter, i, i, -1) ||
			kiln_wait(counter->client, counter->launches[i].ticket, CALL_TIMEOUT_MS))
			return wrong(counter, "warming");
	if (kiln_write(counter->to, 0, zero, BYTES))
		return wrong(counter, "writing");
	counter->good = WARMING;
	return !counter->events || kiln_fd(counter->client) >= 0;
}

static void counter_close(struct counter *counter)
{
	kiln_call_free(counter->calls[0]);
	kiln_call_free(counter->calls[1]);
	kiln_free(counter->from);
	kiln_free(counter->to);
	kiln_close(counter->client);
}

/* ---- Submitting ---- */

/* Cancels one of those that were submitted last, and submits some that follow it: it may have run
 * before it could be canceled, and then they run. */
static bool cancel_one(struct counter *counter, int *count)
{
	int place = *count - 1 - (int)draw(counter, *count < 4 ? (uint32_t)*count : 4);
	int followers = 1 + (int)draw(counter, MOST_FOLLOWERS);
	if (draw(counter, 2)) /* one that is there already, too */
		if (!submit(counter, (*count)++, (int)draw(counter, 2), place))
			return false;
	if (kiln_cancel(counter->client, counter->launches[place].ticket))
		return wrong(counter, "canceling");
	counter->launches[place].canceled = true;
	while (followers-- > 0)
		if (!submit(counter, (*count)++, (int)draw(counter, 2), place))
			return false;
	return true;
}

/* ---- Waiting ---- */

static bool take(struct counter *counter, int place, int timeout_ms)
{
	struct launch *launch = &counter->launches[place];
	launch->status = kiln_wait(counter->client, launch->ticket, timeout_ms);
	if (launch->status != KILN_OK && launch->status != KILN_ECANCELED)
		return wrong(counter, "a ticket did not end as it must");
	return kiln_wait(counter->client, launch->ticket, 0) == KILN_ENOENT ||
		   wrong(counter, "a ticket ended twice");
}

/* Looks again and again, without waiting. */
static bool take_polled(struct counter *counter, int place)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	int status;
	while ((status = kiln_dispatch(counter->client)) == 0 && now_ms() < end)
		sched_yield();
	return status > 0 ? take(counter, place, CALL_TIMEOUT_MS) : wrong(counter, "nothing ended");
}

/* Until as many have ended as were submitted. */
static bool await_events(struct counter *counter, int count)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	int ended, fd = kiln_fd(counter->client);
	while ((ended = kiln_dispatch(counter->client)) >= 0 && ended < count) {
		struct pollfd watch = {.fd = fd, .events = (short)kiln_events(counter->client)};
		if (poll(&watch, 1, CALL_TIMEOUT_MS) <= 0 || now_ms() > end)
			return wrong(counter, "nothing came for an event loop");
	}
	return ended == count || wrong(counter, "more tickets ended than were submitted");
}

static bool take_all(struct counter *counter, int count, enum way way)
{
	if (way == BY_EVENTS && !await_events(counter, count))
		return false;
	for (int i = 0; i < count; i++) {
		int place = way == FROM_BEHIND ? count - 1 - i : i;
		if (way == POLLED ? !take_polled(counter, place)
						  : !take(counter, place, way == BY_EVENTS ? 0 : CALL_TIMEOUT_MS))
			return false;
	}
	return true;
}

/* ---- Reckoning ---- */

/* Checks that the launches of a round did what their ends say. */
static bool reckon(struct counter *counter, int count)
{
	for (int i = 0; i < count; i++) {
		const struct launch *launch = &counter->launches[i];
		bool ran = launch->status == KILN_OK;
		bool may_run = launch->follows < 0 || !counter->launches[launch->follows].status;
		if (ran ? !may_run : may_run && !launch->canceled) {
			snprintf(counter->why, sizeof(counter->why),
					 "launch %d of a round of %d ended in %s; the one that it follows, %d, in %s",
					 i, count, kiln_status_name(launch->status), launch->follows,
					 kiln_status_name(
						 launch->follows < 0 ? 0 : counter->launches[launch->follows].status));
			return false;
		}
		counter->good += ran;
		counter->bad += !ran;
		if (ran)
			counter->number = launch->which ? counter->number + 5 : counter->number * 3 + 1;
	}
	return true;
}

static bool look(struct counter *counter)
{
	uint64_t numbers[ELEMENTS];
	if (kiln_read(counter->to, 0, numbers, BYTES))
		return wrong(counter, "reading");
	for (int i = 0; i < ELEMENTS; i++)
		if (numbers[i] != counter->number) {
			snprintf(counter->why, sizeof(counter->why),
					 "after %lld launches number %d is %llx and must be %llx",
					 (long long)counter->good, i, (unsigned long long)numbers[i],
					 (unsigned long long)counter->number);
			return false;
		}
	return true;
}

static bool count_round(struct counter *counter)
{
	/* Mostly so many that the ring is full, or so few that both sides nearly sleep. */
	uint32_t most = draw(counter, 4) ? DEPTH - MOST_FOLLOWERS - 1 : 4;
	int count = 1 + (int)draw(counter, most);
	enum way way = counter->events ? BY_EVENTS : (enum way)draw(counter, BY_EVENTS);
	for (int i = 0; i < count; i++)
		if (!submit(counter, i, (int)draw(counter, 2), draw(counter, 4) ? -1 : i - 1))
			return false;
	if (draw(counter, 16) == 0 && !cancel_one(counter, &count))
		return false;
	if (draw(counter, 16) == 0) {
		/* Both sides find nothing to do for about as long as they look. */
		struct timespec moment = {0, 1000 * (long)draw(counter, 200)};
		nanosleep(&moment, NULL);
	}
	return take_all(counter, count, way) && reckon(counter, count);
}

static void *count_all(void *arg)
{
	struct counter *counter = arg;
	bool well = counter_open(counter);
	for (int round = 1; well && counter->good + counter->bad < counter->wanted; round++)
		well = count_round(counter) && (round % LOOK_EACH || look(counter));
	if (well)
		look(counter);
	counter_close(counter);
	return NULL;
}

/* ---- Processes ---- */

struct part {
	int64_t wanted; /* of each client */
	int number, result;
	unsigned seconds;
};

static int count_in_threads(const struct kilnd *daemon, void *arg)
{
	const struct part *part = arg;
	struct counter *counters = calloc(THREADS, sizeof(*counters));
	pthread_t threads[THREADS];
	struct tally tally = {.good = 0};
	alarm(part->seconds);
	for (int i = 0; i < THREADS; i++) {
		counters[i].daemon = daemon;
		counters[i].wanted = part->wanted;
		counters[i].random = (uint64_t)(part->number * THREADS + i) * 7919 + 1;
		counters[i].events = i == 1;
		if (pthread_create(&threads[i], NULL, count_all, &counters[i]))
			_exit(2);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		tally.good += counters[i].good;
		tally.bad += counters[i].bad;
		if (counters[i].why[0])
			memcpy(tally.why, counters[i].why, sizeof(tally.why));
	}
	free(counters);
	return write(part->result, &tally, sizeof(tally)) == sizeof(tally) ? 0 : 3;
}

/* 0: what is asked for is no number. */
static int64_t wanted_launches(void)
{
	const char *wish = getenv("KILN_STRESS_LAUNCHES");
	if (!wish)
		return getenv("KILN_SANITIZE") ? 50000 : 250000;
	int64_t launches = strtoll(wish, NULL, 10);
	return launches > 0 ? launches : 0;
}

/* So many a second are launched on the slowest of machines. */
static unsigned most_seconds(int64_t launches)
{
	return PROGRAM_SECONDS - 60 + (unsigned)(launches / 4000);
}

static void nothing_lost_nothing_doubled(void **state)
{
	struct kilnd *daemon = *state;
	const int64_t launches = wanted_launches();
	struct part part = {.wanted = launches / (PROCESSES * THREADS) + 1,
						.seconds = most_seconds(launches)};
	struct tally sum = {.good = 0}, tally;
	pid_t pids[PROCESSES];
	int result[2];
	assert_true(launches > 0);
	assert_int_equal(pipe(result), 0);
	part.result = result[1];
	kilnd_start(daemon, OPTIONS("--launchers", "4"));
	kiln_client *client = client_open(daemon);
	int64_t begin = now_ms();
	for (part.number = 0; part.number < PROCESSES; part.number++)
		pids[part.number] = process_start(daemon, count_in_threads, &part);
	for (int i = 0; i < PROCESSES; i++)
		assert_int_equal(process_wait(pids[i], (int)part.seconds * 1000), EXITED(0));
	double seconds = (double)(now_ms() - begin) / 1000;
	for (int i = 0; i < PROCESSES; i++) {
		assert_int_equal(read(result[0], &tally, sizeof(tally)), sizeof(tally));
		if (tally.why[0])
			fail_msg("%s", tally.why);
		sum.good += tally.good;
		sum.bad += tally.bad;
	}
	assert_int_equal(info_int(client, "executors[0].launchers"), LAUNCHERS);
	int64_t through = info_int(client, "counters.lane_launches");
	int64_t failed = info_int(client, "counters.launch_failures");
	print_message(
		"%d clients, %d launching threads: %lld through the lane in %.1f s, %.0f a second; "
		"%lld were canceled\n",
		PROCESSES * THREADS, LAUNCHERS, (long long)(through + failed), seconds,
		(double)(through + failed) / seconds, (long long)sum.bad);
	assert_int_equal(info_int(client, "counters.launches"), sum.good);
	assert_int_equal(through, sum.good - PROCESSES * THREADS * WARMING);
	/* The library ends by itself those that follow a call known to have failed.  On a busy machine
	 * all may have run before they could be canceled. */
	assert_in_range(failed, sum.bad > 0, sum.bad);
	assert_true(sum.good + sum.bad >= launches);
	for (int i = 0; i < 2; i++)
		close(result[i]);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(nothing_lost_nothing_doubled),
	};
	harness_begin();
	alarm(most_seconds(wanted_launches()) + 30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
