/* client.c: a client process: step after step, each with chances of its own. */
#include "client.h"

#include "gpu/driver.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE_GRACE_MS 12000 /* one that stands still is found so much later, at the most */
#define DAEMON_AWAY_MS 60000  /* the longest that a daemon takes to be replaced */
#define WORKER_GRACE_MS 120000
#define BACKGROUND_MS 15000 /* of a client whose compiles come after those of others: it may not */

/* ---- Chance ---- */

int64_t me_pick(struct me *me, int64_t count)
{
	return soak_pick(&me->state, count);
}

bool me_chance(struct me *me, int one_in)
{
	return soak_chance(&me->state, one_in);
}

/* ---- What is told ---- */

void me_count(struct me *me, enum soak_count what, int64_t more)
{
	atomic_fetch_add(&me->seat->counts[what], more);
}

void me_doing(struct me *me, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(me->seat->doing, sizeof(me->seat->doing), format, arguments);
	va_end(arguments);
}

void me_beat(struct me *me)
{
	atomic_store(&me->seat->beat_ms, soak_now_ms());
}

void me_fail(struct me *me, const char *format, ...)
{
	char text[600];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	soak_fail(me->soak, "client %d, step %lld (%s): %s", me->number, (long long)me->step,
			  me->seat->doing, text);
}

/* Is this what a call may end in after the deaths that there were? */
static bool is_excused(const struct me *me, int status, int64_t since_ms)
{
	const struct soak *soak = me->soak;

	switch (status) {
	case KILN_ECONN:
		return soak_deaths_since(soak, SOAK_ROLE(SOAK_DAEMON), me->connected_ms - 1000) > 0;
	case KILN_EDEVICE:
	case KILN_ELOST:
	case KILN_ECANCELED: /* what comes after one that failed */
		return soak_deaths_since(soak, SOAK_DEVICES, since_ms - DEVICE_GRACE_MS) > 0;
	case KILN_ECOMPILE: /* tried twice, and killed twice */
		return strstr(kiln_errmsg(), "twice") &&
			   soak_deaths_since(soak, SOAK_ROLE(SOAK_WORKER), me->step_ms - WORKER_GRACE_MS) > 1;
	case KILN_EIO: /* the first one, three times in a row, or any, eight times */
		return strstr(kiln_errmsg(), "no compiler worker could be started") &&
			   soak_deaths_since(soak, SOAK_ROLE(SOAK_WORKER), me->step_ms - WORKER_GRACE_MS) > 2;
	case KILN_EFROZEN:
		return me->frozen;
	case KILN_ETIMEDOUT:
		return me->background;
	default:
		return false;
	}
}

bool me_ok_since(struct me *me, int status, const char *what, int64_t since_ms)
{
	me_beat(me);
	me_count(me, SOAK_COUNT_calls, 1);
	if (status == KILN_OK)
		return true;
	me->gone = me->gone || status == KILN_ECONN;
	if (is_excused(me, status, since_ms)) {
		me_count(me, SOAK_COUNT_excused, 1);
		atomic_fetch_add(&me->seat->excused[-status], 1);
	} else {
		me_fail(me, "%s ended in %s, which no death explains: %s", what, kiln_status_name(status),
				kiln_errmsg());
	}
	return false;
}

bool me_ok(struct me *me, int status, const char *what)
{
	return me_ok_since(me, status, what, me->step_ms);
}

bool me_ends(struct me *me, int status, int wanted, const char *what)
{
	me_beat(me);
	if (status == wanted)
		return true;
	if (status == KILN_OK)
		me_fail(me, "%s ended well, and not in %s", what, kiln_status_name(wanted));
	else
		me_ok(me, status, what);
	return false;
}

void me_free(struct me *me, kiln_buffer *buffer)
{
	int status = kiln_free(buffer);
	if (!me->gone)
		me_ok(me, status, "freeing a buffer");
}

/* ---- Connections ---- */

void me_connect(struct me *me)
{
	kiln_connect_options options = {
		.size = sizeof(options), .socket = me->soak->socket, .device = me->soak->options.device};
	/* Not the step's own chances: it is the same step on a connection that was there. */
	uint64_t state = ~me->state;
	int64_t began = soak_now_ms();
	int status;

	me_doing(me, "connecting");
	me->background = soak_chance(&state, 10);
	options.flags = me->background ? KILN_CONNECT_BACKGROUND : 0;
	options.timeout_ms = me->background ? BACKGROUND_MS : SOAK_CALL_MS;
	me->frozen = soak_chance(&state, 40);
	options.on_miss = me->frozen ? soak_chance(&state, 2) ? "error" : "fallback" : NULL;
	while ((status = kiln_connect(&options, &me->client)) == KILN_ECONN &&
		   soak_deaths_since(me->soak, SOAK_ROLE(SOAK_DAEMON), began - DAEMON_AWAY_MS) > 0 &&
		   soak_now_ms() < began + DAEMON_AWAY_MS && !atomic_load(&me->soak->stop)) {
		me_beat(me);
		soak_pause_ms(10);
	}
	me_beat(me);
	me->connected_ms = soak_now_ms();
	me->gone = status != KILN_OK;
	me_count(me, SOAK_COUNT_connects, 1);
	if (status != KILN_OK) {
		me->client = NULL;
		soak_pause_ms(100);
		if (!atomic_load(&me->soak->stop))
			me_fail(me, "no connection: %s: %s", kiln_status_name(status), kiln_errmsg());
	}
}

/* Handles are valid for freeing, before the end of the connection and after it. */
void me_disconnect(struct me *me)
{
	bool first = me_chance(me, 2);
	me_doing(me, "disconnecting");
	me_beat(me);
	if (first)
		kiln_close(me->client);
	me->gone = true;
	for (int i = 0; i < KEPT; i++) {
		kiln_free(me->kept[i].buffer);
		free(me->kept[i].model);
		me->kept[i] = (struct kept){0};
	}
	for (int i = 0; i < KEPT_CALLS; i++) {
		kiln_call_free(me->calls[i]);
		me->calls[i] = NULL;
	}
	if (!first)
		kiln_close(me->client);
	me->client = NULL;
	me_beat(me);
}

/* ---- Steps ---- */

struct kind {
	const char *name;
	void (*step)(struct me *me);
	int share;
};

/* Goes without a word, with whatever there is. */
static void step_vanish(struct me *me)
{
	step_abandoned(me);
	me_count(me, SOAK_COUNT_vanished, 1);
	_exit(EXIT_VANISHED);
}

static void step_leave(struct me *me)
{
	step_abandoned(me);
	me->gone = true;
}

static void step_reconnect(struct me *me)
{
	me->gone = true;
}

static const struct kind kinds[] = {
	{"operator", step_operator, 110}, {"kept memory", step_kept, 40}, {"own kernel", step_own, 14},
	{"look", step_look, 14},          {"upkeep", step_upkeep, 6},     {"command", step_command, 4},
	{"reconnect", step_reconnect, 6}, {"leave", step_leave, 4},       {"vanish", step_vanish, 2},
};
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

static void make_step(struct me *me)
{
	uint64_t seed = me->soak->options.seed, number = (uint64_t)me->number + 1;
	uint64_t step = (uint64_t)me->step + 1;
	int all = 0, k = 0;

	me->state = cases_word(&seed) ^ cases_word(&number) * 3 ^ cases_word(&step) * 5;
	me->step_ms = soak_now_ms();
	if (!me->client)
		me_connect(me);
	for (int i = 0; i < KINDS; i++)
		all += kinds[i].share;
	for (int64_t at = me_pick(me, all); at >= kinds[k].share; k++)
		at -= kinds[k].share;
	me_doing(me, "%s", kinds[k].name);
	if (me->client)
		kinds[k].step(me);
	me_count(me, SOAK_COUNT_steps, 1);
	if (me->gone)
		me_disconnect(me);
}

static bool goes_on(const struct me *me)
{
	const struct soak_options *options = &me->soak->options;
	int64_t step = atomic_load(&me->seat->step);

	if (atomic_load(&me->soak->stop) || atomic_load(&me->soak->failures) >= SOAK_FAILURES_MOST)
		return false;
	if (options->repeat)
		return step < options->repeat_step + options->repeat_count;
	return options->steps == 0 || step < options->steps;
}

_Noreturn void soak_client(struct soak *soak, int number)
{
	static struct me me;
	char why[200];

	me = (struct me){.soak = soak,
					 .seat = &soak->seats[number],
					 .number = number,
					 .on_cpu = strcmp(soak->options.device, "cpu") == 0,
					 .runner = {.program = "soak", .threads = 1}};
	signal(SIGPIPE, SIG_DFL);
	/* Some have no fast lane, and some have CUDA themselves. */
	if (number % 5 == 4)
		setenv("KILN_LANE", "off", 1);
	me_beat(&me);
	me.lends_cuda = !me.on_cpu && number % 3 == 1;
	if (me.lends_cuda && !gpu_open(0, why)) {
		me_fail(&me, "%s", why);
		_exit(1);
	}
	for (; goes_on(&me); atomic_fetch_add(&me.seat->step, 1)) {
		me.step = atomic_load(&me.seat->step);
		make_step(&me);
	}
	me_disconnect(&me);
	exit(0);
}
