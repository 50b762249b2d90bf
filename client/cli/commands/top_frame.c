/*
 * top_frame.c: the frame of 'kiln top', as text and as JSON.  It knows nothing of terminals.
 */
#include "client/cli/json.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "top.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MOST 128 /* the daemon lists fewer at most */
#define COUNT_MAX 32

/* ---- Figures ---- */

static int64_t get(const struct top_sample *sample, const char *path)
{
	return kiln_reply_int(sample->reply, path);
}

static double seconds_between(const struct top_sample *before, const struct top_sample *now)
{
	double seconds = (now->at_us - before->at_us) / 1e6;
	return seconds > 1e-3 ? seconds : 1e-3;
}

/* "0", "0.7", "52", "174323", "12.3 M" */
static const char *figure_count(double value, char text[COUNT_MAX])
{
	if (value >= 1e7)
		snprintf(text, COUNT_MAX, "%.1f M", value / 1e6);
	else if (value >= 9.95 || value == floor(value))
		snprintf(text, COUNT_MAX, "%.0f", value);
	else
		snprintf(text, COUNT_MAX, "%.1f", value);
	return text;
}

static const char *figure_share(double part, double whole, char text[COUNT_MAX])
{
	if (whole <= 0)
		return "-";
	snprintf(text, COUNT_MAX, "%.0f %%", 100 * part / whole);
	return text;
}

/* ---- Calls and kernels ---- */

/* The ways in which a request for a kernel is answered.  The last ones share a column, so that a
 * line fits into 80. */
static const struct {
	const char *header, *counter;
} answers[] = {
	{">MEMORY", "counters.memory_hits"}, {">DISK", "counters.disk_hits"},
	{">REMOTE", "counters.remote_hits"}, {">SHARED", "counters.shared"},
	{">COMPILED", "counters.compiles"},  {">GENERIC", "counters.generic"},
	{">REFUSED", "counters.failures"},   {">REFUSED", "counters.remembered"},
	{">REFUSED", "counters.frozen"},
};
#define ANSWERS ((int)(sizeof(answers) / sizeof(answers[0])))
#define REFUSALS 6 /* the first of them */

/* before NULL: figures since the daemon started. */
static double grown(const struct top_sample *before, const struct top_sample *now, const char *path)
{
	return (double)(get(now, path) - (before ? get(before, path) : 0));
}

static void put_calls(struct table *table, const char *name, const struct top_sample *before,
					  const struct top_sample *now)
{
	double seconds = before ? seconds_between(before, now) : 1;
	double calls = grown(before, now, "counters.launches");
	char text[COUNT_MAX];

	table_cell(table, "%s", name);
	table_cell(table, "%s", figure_count(calls / seconds, text));
	table_cell(table, "%s",
			   figure_share(grown(before, now, "counters.lane_launches"), calls, text));
	table_cell(table, "%s",
			   figure_count(grown(before, now, "counters.launch_failures") / seconds, text));
}

static void put_kernels(struct table *table, const char *name, const struct top_sample *before,
						const struct top_sample *now)
{
	double seconds = before ? seconds_between(before, now) : 1;
	double requests = grown(before, now, "counters.requests"), refused = 0;
	char text[COUNT_MAX];

	table_cell(table, "%s", name);
	table_cell(table, "%s", figure_count(requests / seconds, text));
	for (int i = 0; i < REFUSALS; i++)
		table_cell(table, "%s",
				   figure_share(grown(before, now, answers[i].counter), requests, text));
	for (int i = REFUSALS; i < ANSWERS; i++)
		refused += grown(before, now, answers[i].counter);
	table_cell(table, "%s", figure_share(refused, requests, text));
}

static void print_totals(const struct top_sample *before, const struct top_sample *now, FILE *out)
{
	static const char *const calls[] = {"", ">CALLS", ">BY LANE", ">FAILED"};
	const char *headers[3 + REFUSALS] = {"", ">KERNELS"};
	struct table table;

	table_begin(&table, calls, 4);
	put_calls(&table, "per second", before, now);
	put_calls(&table, "in all", NULL, now);
	table_print(&table, out);
	fputc('\n', out);
	for (int i = 0; i <= REFUSALS; i++)
		headers[2 + i] = answers[i].header;
	table_begin(&table, headers, 3 + REFUSALS);
	put_kernels(&table, "per second", before, now);
	put_kernels(&table, "in all", NULL, now);
	table_print(&table, out);
}

static void print_head(const struct top_sample *before, const struct top_sample *now, FILE *out)
{
	int executors = kiln_reply_count(now->reply, "executors");
	char figure[FIGURE_MAX], lent[FIGURE_MAX], scratch[FIGURE_MAX];

	fprintf(out,
			"kilnd %s, pid %" PRId64 ", up %s, sessions %" PRId64 ", in flight %" PRId64
			", over %.1f s\n",
			kiln_reply_str(now->reply, "server.version"), get(now, "server.pid"),
			figure_ago(get(now, "server.uptime_ms") / 1000, figure), get(now, "server.sessions"),
			get(now, "busy.launching") + get(now, "busy.lane_launching"),
			seconds_between(before, now));
	fprintf(out,
			"workers %" PRId64 ": %" PRId64 " busy, %" PRId64 " starting, %" PRId64
			" jobs queued; cache %" PRId64 " kernels, %s\n",
			get(now, "workers.count"), get(now, "workers.busy"), get(now, "workers.starting"),
			get(now, "workers.queued"), get(now, "cache.rows"),
			figure_bytes((uint64_t)get(now, "cache.bytes"), figure));
	for (int i = 0; i < executors; i++)
		fprintf(
			out, "%s: pid %" PRId64 ", kernels %" PRId64 "; held %s, lent %s, scratch %s\n",
			member_str(now->reply, "executors[%d].device", i),
			member_int(now->reply, "executors[%d].pid", i),
			member_int(now->reply, "executors[%d].modules", i),
			figure_bytes((uint64_t)member_int(now->reply, "executors[%d].held_bytes", i), figure),
			figure_bytes((uint64_t)member_int(now->reply, "executors[%d].lent_bytes", i), lent),
			figure_bytes((uint64_t)member_int(now->reply, "executors[%d].scratch_bytes", i),
						 scratch));
}

/* ---- Compiles ---- */

/* A figure of the session with this id; 0: there is no such session. */
static int64_t of_session(const struct top_sample *sample, int64_t id, const char *member)
{
	int rows = kiln_reply_count(sample->reply, "sessions");

	for (int i = 0; i < rows; i++)
		if (member_int(sample->reply, "sessions[%d].id", i) == id)
			return member_int(sample->reply, "sessions[%d].%s", i, member);
	return 0;
}

static void print_flights(const struct top_sample *now, FILE *out)
{
	static const char *const headers[] = {"COMPILE", "STATE",    ">AGE",   ">WAITING",
										  ">OWNER",  ">ITS PID", "TARGET", "KEY"};
	int rows = kiln_reply_count(now->reply, "flights");
	char figure[FIGURE_MAX];
	struct table table;

	if (!rows)
		return;
	fputc('\n', out);
	table_begin(&table, headers, 8);
	for (int i = 0; i < rows; i++) {
		int64_t owner = member_int(now->reply, "flights[%d].owner", i);
		table_cell(&table, "%s", member_str(now->reply, "flights[%d].op", i));
		table_cell(&table, "%s", member_str(now->reply, "flights[%d].state", i));
		table_cell(&table, "%s",
				   figure_micros((double)member_int(now->reply, "flights[%d].age_us", i), figure));
		table_cell(&table, "%" PRId64, member_int(now->reply, "flights[%d].waiters", i));
		table_cell(&table, "%" PRId64, owner);
		table_cell(&table, "%" PRId64, of_session(now, owner, "pid"));
		table_cell(&table, "%s", member_str(now->reply, "flights[%d].target", i));
		table_cell(&table, "%.12s", member_str(now->reply, "flights[%d].key", i));
	}
	table_print(&table, out);
}

/* ---- Sessions and operators ---- */

struct row {
	int index;
	double calls; /* a second, or in all if there is one sample */
};

static int by_calls(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->calls != y->calls)
		return x->calls < y->calls ? 1 : -1;
	return x->index - y->index;
}

static double hits_of(const struct top_sample *now, const char *list, int row)
{
	return (double)(member_int(now->reply, "%s[%d].memory_hits", list, row) +
					member_int(now->reply, "%s[%d].disk_hits", list, row) +
					member_int(now->reply, "%s[%d].remote_hits", list, row));
}

/* The connected sessions, the busiest first. */
static int list_sessions(const struct top_sample *before, const struct top_sample *now,
						 struct row rows[ROWS_MOST])
{
	int listed = kiln_reply_count(now->reply, "sessions"), count = 0;
	double seconds = seconds_between(before, now);

	for (int i = 0; i < listed && count < ROWS_MOST; i++) {
		int64_t id = member_int(now->reply, "sessions[%d].id", i);
		int64_t ran =
			member_int(now->reply, "sessions[%d].launches", i) - of_session(before, id, "launches");
		if (!member_int(now->reply, "sessions[%d].ended", i))
			rows[count++] = (struct row){i, (double)ran / seconds};
	}
	qsort(rows, (size_t)count, sizeof(rows[0]), by_calls);
	return count;
}

static void print_sessions(const struct top_sample *before, const struct top_sample *now, FILE *out)
{
	static const char *const headers[] = {">SESSION", ">PID",    "DEVICE",   ">CALLS/S", ">CALLS",
										  ">BUSY",    ">FAILED", ">KERNELS", ">HITS",    ">HELD"};
	struct row rows[ROWS_MOST];
	int count = list_sessions(before, now, rows);
	char text[COUNT_MAX], figure[FIGURE_MAX];
	struct table table;

	fputc('\n', out);
	table_begin(&table, headers, 10);
	for (int k = 0; k < count; k++) {
		int i = rows[k].index;
		double requests = (double)member_int(now->reply, "sessions[%d].requests", i);
		double hits = hits_of(now, "sessions", i);
		table_cell(&table, "%" PRId64, member_int(now->reply, "sessions[%d].id", i));
		table_cell(&table, "%" PRId64, member_int(now->reply, "sessions[%d].pid", i));
		table_cell(&table, "%s", member_str(now->reply, "sessions[%d].device", i));
		table_cell(&table, "%s", figure_count(rows[k].calls, text));
		table_cell(&table, "%s",
				   figure_count((double)member_int(now->reply, "sessions[%d].launches", i), text));
		table_cell(&table, "%" PRId64, member_int(now->reply, "sessions[%d].inflight", i));
		table_cell(&table, "%" PRId64, member_int(now->reply, "sessions[%d].launch_failures", i));
		table_cell(&table, "%.0f", requests);
		table_cell(&table, "%s", figure_share(hits, requests, text));
		table_cell(
			&table, "%s",
			figure_bytes((uint64_t)member_int(now->reply, "sessions[%d].held_bytes", i), figure));
	}
	table_print(&table, out);
}

/* Shows by operator the axes that vary in the shapes of each session. */
static void print_shapes(const struct top_sample *now, FILE *out)
{
	static const char *const headers[] = {">SESSION",  "OPERATOR", ">SHAPES", ">EXACT",
										  ">COMPILED", "BUDGET",   "VARIES"};
	const kiln_reply *reply = now->reply;
	char figure[FIGURE_MAX];
	struct table table;

	table_begin(&table, headers, 7);
	for (int i = 0; i < kiln_reply_count(reply, "sessions"); i++) {
		for (int k = 0; k < member_count(reply, "sessions[%d].shapes", i); k++) {
#define SHAPE(read, member) read(reply, "sessions[%d].shapes[%d]." member, i, k)
			table_cell(&table, "%" PRId64, member_int(now->reply, "sessions[%d].id", i));
			table_cell(&table, "%s", SHAPE(member_str, "op"));
			table_cell(&table, "%" PRId64, SHAPE(member_int, "shapes"));
			table_cell(&table, "%" PRId64, SHAPE(member_int, "variants"));
			table_cell(&table, "%s",
					   figure_micros((double)SHAPE(member_int, "compile_us"), figure));
			table_cell(&table, "%s", SHAPE(member_int, "widened") ? "widened" : "within");
			table_cell(&table, "%s", SHAPE(member_str, "text"));
#undef SHAPE
		}
	}
	if (table.count)
		fputc('\n', out);
	if (table.count)
		table_print(&table, out);
}

/* "822us", "5.7ms", "296ms", "1.3s": short, so that three of them and a name fit into a line. */
static const char *figure_short(double micros, char text[COUNT_MAX])
{
	static const char *const units[] = {"us", "ms", "s"};
	int unit = micros < 1e3 ? 0 : micros < 1e6 ? 1 : 2;
	double value = micros / (unit == 0 ? 1 : unit == 1 ? 1e3 : 1e6);

	snprintf(text, COUNT_MAX, value < 9.95 ? "%.1f%s" : "%.0f%s", value, units[unit]);
	return text;
}

static void put_times(struct table *table, const struct top_sample *now, int row, const char *what)
{
	int64_t p50 = member_int(now->reply, "operators[%d].micros.%s.p50", row, what);
	int64_t p99 = member_int(now->reply, "operators[%d].micros.%s.p99", row, what);
	char middle[COUNT_MAX], high[COUNT_MAX];

	if (p99)
		table_cell(table, "%s/%s", figure_short((double)p50, middle),
				   figure_short((double)p99, high));
	else
		table_cell(table, "-");
}

static void print_operators(const struct top_sample *now, FILE *out)
{
	static const char *const headers[] = {"OPERATOR",     ">KERNELS",      ">HITS",
										  ">HIT p50/p99", ">LOAD p50/p99", ">COMPILE p50/p99"};
	int listed = kiln_reply_count(now->reply, "operators"), count = 0;
	struct row rows[ROWS_MOST];
	char text[COUNT_MAX];
	struct table table;

	for (; count < listed && count < ROWS_MOST; count++)
		rows[count] =
			(struct row){count, (double)member_int(now->reply, "operators[%d].requests", count)};
	if (!count)
		return;
	qsort(rows, (size_t)count, sizeof(rows[0]), by_calls);
	fputc('\n', out);
	table_begin(&table, headers, 6);
	for (int k = 0; k < count; k++) {
		int i = rows[k].index;
		double hits = hits_of(now, "operators", i);
		table_cell(&table, "%s", member_str(now->reply, "operators[%d].op", i));
		table_cell(&table, "%.0f", rows[k].calls);
		table_cell(&table, "%s", figure_share(hits, rows[k].calls, text));
		put_times(&table, now, i, "memory_hit");
		put_times(&table, now, i, "load");
		put_times(&table, now, i, "compile");
	}
	table_print(&table, out);
}

void top_frame(const struct top_sample *before, const struct top_sample *now, FILE *out)
{
	print_head(before, now, out);
	fputc('\n', out);
	print_totals(before, now, out);
	print_flights(now, out);
	print_sessions(before, now, out);
	print_shapes(now, out);
	print_operators(now, out);
}

/* ---- JSON ---- */

static void json_row(const struct top_sample *now, const char *list, int row,
					 const char *const *members)
{
	for (; *members; members++)
		json_int(*members, member_int(now->reply, "%s[%d].%s", list, row, *members));
}

static void json_flights(const struct top_sample *now)
{
	static const char *const texts[] = {"op", "state", "target", "key", NULL};
	static const char *const figures[] = {"age_us", "waiters", "owner", NULL};
	int rows = kiln_reply_count(now->reply, "flights");

	json_list_begin("compiles");
	for (int i = 0; i < rows; i++) {
		json_item_begin();
		for (int k = 0; texts[k]; k++)
			json_string(texts[k], member_str(now->reply, "flights[%d].%s", i, texts[k]));
		json_row(now, "flights", i, figures);
		json_int("pid", of_session(now, member_int(now->reply, "flights[%d].owner", i), "pid"));
		json_item_end();
	}
	json_list_end();
}

static void json_sessions(const struct top_sample *before, const struct top_sample *now)
{
	static const char *const members[] = {
		"id",       "pid",      "uid",         "launches",   "launch_failures",
		"inflight", "requests", "memory_hits", "disk_hits",  "remote_hits",
		"shared",   "compiles", "failures",    "held_bytes", NULL};
	struct row rows[ROWS_MOST];
	int count = list_sessions(before, now, rows);

	json_list_begin("sessions");
	for (int k = 0; k < count; k++) {
		json_item_begin();
		json_row(now, "sessions", rows[k].index, members);
		json_string("device", member_str(now->reply, "sessions[%d].device", rows[k].index));
		json_real("calls_per_s", rows[k].calls);
		json_item_end();
	}
	json_list_end();
}

static void json_devices(const struct top_sample *now)
{
	static const char *const members[] = {"pid",        "modules",       "inflight", "held_bytes",
										  "lent_bytes", "scratch_bytes", NULL};
	int rows = kiln_reply_count(now->reply, "executors");

	json_list_begin("devices");
	for (int i = 0; i < rows; i++) {
		json_item_begin();
		json_string("device", member_str(now->reply, "executors[%d].device", i));
		json_row(now, "executors", i, members);
		json_item_end();
	}
	json_list_end();
}

void top_json(const struct top_sample *before, const struct top_sample *now)
{
	double seconds = seconds_between(before, now);

	json_begin();
	json_real("seconds", seconds);
	json_int("pid", get(now, "server.pid"));
	json_real("calls_per_s", grown(before, now, "counters.launches") / seconds);
	json_real("lane_calls_per_s", grown(before, now, "counters.lane_launches") / seconds);
	json_real("failed_per_s", grown(before, now, "counters.launch_failures") / seconds);
	json_real("kernels_per_s", grown(before, now, "counters.requests") / seconds);
	for (int i = 0; i < ANSWERS; i++)
		json_int(strchr(answers[i].counter, '.') + 1, get(now, answers[i].counter));
	json_int("requests", get(now, "counters.requests"));
	json_int("launches", get(now, "counters.launches"));
	json_int("in_flight", get(now, "busy.launching") + get(now, "busy.lane_launching"));
	json_flights(now);
	json_sessions(before, now);
	json_devices(now);
	json_end();
}
