/*
 * monitor.c: 'kiln monitor', requests for kernels and calls as they come, and 'kiln
 * slow', the slowest of them and where their time went.  The daemon keeps both; 'monitor' asks
 * again and again for what is new, and says how many it was too slow for.
 */
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "client/cli/timing.h"
#include "client/cli/values.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const parts[] = {"plan", "look", "remote", "compile", "load", "queue", "device"};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

struct monitor {
	const char *op, *session; /* NULL: of all */
	int slower_ms;
	int64_t seconds, most; /* most: rows that are shown; 0: no end */
	int64_t came, shown, lost;
	double began_us;
};

/* ---- One call ---- */

static const char *or_dash(const char *text)
{
	return text[0] ? text : "-";
}

static const char *status_of(const kiln_reply *reply, int i)
{
	int64_t status = member_int(reply, "rows[%d].status", i);

	return status ? kiln_status_name((int)status)
				  : or_dash(member_str(reply, "rows[%d].origin", i));
}

static void print_json_call(const kiln_reply *reply, int i)
{
	static const char *const texts[] = {"program", "asked", "op", "problem", "choice", "origin"};

	json_int("number", member_int(reply, "rows[%d].number", i));
	json_real("ended", member_real(reply, "rows[%d].ended", i));
	json_int("session", member_int(reply, "rows[%d].session", i));
	json_int("uid", member_int(reply, "rows[%d].uid", i));
	json_int("pid", member_int(reply, "rows[%d].pid", i));
	for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
		json_string(texts[k], member_str(reply, "rows[%d].%s", i, texts[k]));
	json_int("status", member_int(reply, "rows[%d].status", i));
	json_int("total_us", member_int(reply, "rows[%d].total_us", i));
	for (int k = 0; k < PARTS; k++) {
		char name[32];
		snprintf(name, sizeof(name), "%s_us", parts[k]);
		json_int(name, member_int(reply, "rows[%d].parts.%s", i, parts[k]));
	}
}

/* "12:34:56.789 trainer uid 1000 submit softmax x=f16:64x1000 [generic] loaded 31.2 us" */
static void print_call(const kiln_reply *reply, int i)
{
	double ended = member_real(reply, "rows[%d].ended", i);
	const char *program = member_str(reply, "rows[%d].program", i);
	const char *problem = member_str(reply, "rows[%d].problem", i);
	char when[FIGURE_MAX], took[FIGURE_MAX], number[32];

	figure_date((int64_t)ended, "%H:%M:%S", when);
	snprintf(number, sizeof(number), "session %" PRId64, member_int(reply, "rows[%d].session", i));
	printf("%s.%03d %s uid %" PRId64 " %s %s%s%s [%s] %s %s\n", when,
		   (int)((ended - (double)(int64_t)ended) * 1e3), program[0] ? program : number,
		   member_int(reply, "rows[%d].uid", i), member_str(reply, "rows[%d].asked", i),
		   member_str(reply, "rows[%d].op", i), problem[0] ? " " : "", problem,
		   or_dash(member_str(reply, "rows[%d].choice", i)), status_of(reply, i),
		   figure_micros((double)member_int(reply, "rows[%d].total_us", i), took));
}

/* ---- Following them ---- */

static bool is_wanted(const struct monitor *monitor, const kiln_reply *reply, int i)
{
	char number[32];

	snprintf(number, sizeof(number), "%" PRId64, member_int(reply, "rows[%d].session", i));
	return (!monitor->op || !strcmp(monitor->op, member_str(reply, "rows[%d].op", i))) &&
		   (!monitor->session || !strcmp(monitor->session, number) ||
			!strcmp(monitor->session, member_str(reply, "rows[%d].program", i))) &&
		   member_int(reply, "rows[%d].total_us", i) >= monitor->slower_ms * 1000ll;
}

static bool is_over(const struct monitor *monitor)
{
	double took = time_us() - monitor->began_us;

	return interrupt_seen() || ferror(stdout) ||
		   (monitor->most && monitor->shown >= monitor->most) ||
		   (monitor->seconds && took >= (double)monitor->seconds * 1e6);
}

static void show_rows(const struct cli *cli, struct monitor *monitor, const kiln_reply *reply)
{
	int rows = (int)kiln_reply_count(reply, "rows");

	monitor->lost += kiln_reply_int(reply, "lost");
	for (int i = 0; i < rows; i++) {
		if (monitor->most && monitor->shown >= monitor->most)
			break;
		monitor->came++;
		if (!is_wanted(monitor, reply, i))
			continue;
		monitor->shown++;
		if (cli->json) {
			json_begin();
			print_json_call(reply, i);
			json_end();
		} else {
			print_call(reply, i);
		}
	}
	fflush(stdout);
}

/* The daemon's status where it does not answer. */
static int follow(const struct cli *cli, kiln_client *client, struct monitor *monitor)
{
	const struct timespec pause = {0, PAUSE_MONITOR_MS * 1000000L};
	kiln_reply *reply;
	int64_t seen = 0;
	int status = kiln_request(client, "recent", NULL, 0, &reply);

	if (status)
		return status;
	seen = kiln_reply_int(reply, "seen");
	kiln_reply_free(reply);
	while (!is_over(monitor)) {
		const kiln_attr after = cli_attr_int("seen", seen);
		status = kiln_request(client, "recent", &after, 1, &reply);
		if (status)
			return status;
		show_rows(cli, monitor, reply);
		seen = kiln_reply_int(reply, "seen");
		bool more = kiln_reply_int(reply, "more") != 0;
		kiln_reply_free(reply);
		if (!more && !is_over(monitor))
			nanosleep(&pause, NULL);
	}
	return KILN_OK;
}

static void print_summary(const struct cli *cli, const struct monitor *monitor)
{
	double seconds = (time_us() - monitor->began_us) / 1e6;

	if (cli->json) {
		json_begin();
		json_real("seconds", seconds);
		json_int("requests", monitor->came);
		json_int("shown", monitor->shown);
		json_int("lost", monitor->lost);
		json_end();
		return;
	}
	printf("%" PRId64 " requests in %.1f s, %" PRId64 " shown", monitor->came, seconds,
		   monitor->shown);
	if (monitor->lost)
		printf("; %" PRId64 " more came too fast to be read, and are lost", monitor->lost);
	printf("\n");
}

static int cli_monitor(struct cli *cli)
{
	const char *slower = cli_value(cli, "slower-than"), *seconds = cli_value(cli, "seconds");
	const char *count = cli_value(cli, "count");
	struct monitor monitor = {.op = cli_value(cli, "op"), .session = cli_value(cli, "session")};
	kiln_client *client;
	int failed;

	if ((slower && cli_time("--slower-than", slower, &monitor.slower_ms)) ||
		(seconds && cli_integer("--seconds", seconds, 1, 86400, &monitor.seconds)) ||
		(count && cli_integer("--count", count, 1, 1000000000, &monitor.most)))
		return CLI_USAGE;
	interrupt_watch();
	if (cli_connect(cli, &client))
		return CLI_FAILED;
	monitor.began_us = time_us();
	failed = follow(cli, client, &monitor);
	if (!failed || monitor.came)
		print_summary(cli, &monitor);
	if (failed)
		failed = cli_failed(cli, failed, "monitor");
	kiln_close(client);
	return failed;
}

/* ---- The slowest ---- */

static void print_slow(struct cli *cli, const kiln_reply *reply)
{
	static const char *const headers[] = {">TOTAL",   ">PLAN", ">LOOK",  ">REMOTE",
										  ">COMPILE", ">LOAD", ">QUEUE", ">DEVICE",
										  "FROM",     "UID",   "NAME",   "REQUEST"};
	int rows = (int)kiln_reply_count(reply, "rows");
	char figure[FIGURE_MAX];
	struct table table;

	(void)cli;
	table_begin(&table, headers, 5 + PARTS);
	for (int i = 0; i < rows; i++) {
		const char *program = member_str(reply, "rows[%d].program", i);
		double total = (double)member_int(reply, "rows[%d].total_us", i);
		table_cell(&table, "%s", figure_micros(total, figure));
		for (int k = 0; k < PARTS; k++) {
			int64_t micros = member_int(reply, "rows[%d].parts.%s", i, parts[k]);
			table_cell(&table, "%s", micros ? figure_micros((double)micros, figure) : "-");
		}
		table_cell(&table, "%s", status_of(reply, i));
		table_cell(&table, "%" PRId64, member_int(reply, "rows[%d].uid", i));
		table_cell(&table, "%s", or_dash(program));
		table_cell(&table, "%s %s %s", member_str(reply, "rows[%d].asked", i),
				   member_str(reply, "rows[%d].op", i), member_str(reply, "rows[%d].problem", i));
	}
	table_end(&table);
}

static int cli_slow(struct cli *cli)
{
	const kiln_attr forget = cli_attr_int("forget", 1);

	return cli_answer(cli, "slow", &forget, cli_value(cli, "forget") ? 1 : 0, print_slow);
}

/* ---- The commands ---- */

static const struct cli_option monitor_options[] = {
	{"op", "OP", "of this operator alone"},
	{"session", "NAME", "of programs of this name, or of the session of this number"},
	{"slower-than", "TIME", "those that took so long or longer: 500ms, 2s"},
	{"seconds", "N", "ends after so long"},
	{"count", "N", "ends after so many lines"},
	{0},
};

static const struct cli_example monitor_examples[] = {
	{"kiln monitor", "a line for each request, until Ctrl-C"},
	{"kiln monitor --op softmax --slower-than 10ms --seconds 60", "what keeps a program waiting"},
	{0}};

const struct cli_command command_monitor = {"monitor",
											cli_monitor,
											"",
											"requests for kernels, and calls, as they come",
											{0, 0},
											monitor_options,
											.examples = monitor_examples};

static const struct cli_option slow_options[] = {
	{"forget", NULL, "and forget them: the next ones are those from now on"},
	{0},
};

static const struct cli_example slow_examples[] = {
	{"kiln slow", "the 32 slowest, and where their time went"}, {0}};

const struct cli_command command_slow = {
	"slow",
	cli_slow,
	"",
	"the slowest requests and calls, and where their time went",
	{0, 0},
	slow_options,
	.examples = slow_examples};
