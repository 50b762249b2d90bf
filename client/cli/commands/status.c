/* status.c: 'kiln status': the answer to `info`, for people. */
#include "client/cli/daemon.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS 80
#define VALUES 15 /* the column in which values begin */

/* Prints a piece on this line, or begins the next line with it. */
static void print_piece(int *column, const char *piece)
{
	int length = (int)strlen(piece);

	if (*column > VALUES && *column + length > COLUMNS) {
		printf("\n%*s", VALUES, "");
		*column = VALUES;
	} else if (*column > VALUES) {
		putchar(' ');
		(*column)++;
	}
	fputs(piece, stdout);
	*column += length;
}

/* Prints "name value, name value ..." for the members that the daemon has. */
static void print_section(const kiln_reply *reply, const char *name, const char *section,
						  const char *const *members)
{
	char piece[96] = "";
	int column = VALUES;

	printf("%-14s ", name);
	for (; *members; members++) {
		if (!member_has(reply, "%s.%s", section, *members))
			continue;
		if (piece[0]) {
			strncat(piece, ",", sizeof(piece) - strlen(piece) - 1);
			print_piece(&column, piece);
		}
		snprintf(piece, sizeof(piece), "%s %" PRId64, *members,
				 member_int(reply, "%s.%s", section, *members));
	}
	print_piece(&column, piece);
	putchar('\n');
}

static void print_executors(const kiln_reply *reply)
{
	int rows = kiln_reply_count(reply, "executors");

	for (int i = 0; i < rows; i++) {
		const char *device = member_str(reply, "executors[%d].device", i);
		if (member_int(reply, "executors[%d].pid", i) <= 0) {
			const char *reason = member_str(reply, "executors[%d].reason", i);
			print_pair(i ? "" : "executors", "%s: not running, restarts %" PRId64 "%s%s", device,
					   member_int(reply, "executors[%d].restarts", i), reason[0] ? ": " : "",
					   reason);
			continue;
		}
		print_pair(i ? "" : "executors",
				   "%s: pid %" PRId64 ", %s, kernels %" PRId64 ", inflight %" PRId64
				   ", restarts %" PRId64,
				   device, member_int(reply, "executors[%d].pid", i),
				   member_str(reply, "executors[%d].state", i),
				   member_int(reply, "executors[%d].modules", i),
				   member_int(reply, "executors[%d].inflight", i),
				   member_int(reply, "executors[%d].restarts", i));
	}
	if (!rows)
		print_pair("executors", "none running");
	for (int i = 0, shown = 0; i < rows; i++) {
		int64_t launchers = member_int(reply, "executors[%d].launchers", i);
		if (launchers > 0)
			print_pair(shown++ ? "" : "launchers", "%s: %" PRId64,
					   member_str(reply, "executors[%d].device", i), launchers);
	}
}

/* "13.0, for sm_75 sm_80 ..." */
static void print_targets(int length, const char *version, const char *targets)
{
	char piece[64];
	int column = VALUES;

	printf("%-14s ", "nvrtc");
	snprintf(piece, sizeof(piece), "%.*s, for", length, version);
	print_piece(&column, piece);
	for (targets += strspn(targets, " "); *targets; targets += strspn(targets, " ")) {
		size_t word = strcspn(targets, " ");
		snprintf(piece, sizeof(piece), "%.*s", (int)word, targets);
		print_piece(&column, piece);
		targets += word;
	}
	putchar('\n');
}

/* Prints the compilers, or why there are none.  The first word of an identity names the maker; a
 * hash stands before or after the name that people use. */
static void print_compilers(const kiln_reply *reply)
{
	const char *nvrtc = kiln_reply_str(reply, "workers.nvrtc");
	const char *host = kiln_reply_str(reply, "workers.host");
	const char *targets = kiln_reply_str(reply, "workers.nvrtc_targets");

	if (targets[0] && !strncmp(nvrtc, "nvrtc ", 6))
		print_targets((int)strcspn(nvrtc + 6, " "), nvrtc + 6, targets);
	else
		print_pair("nvrtc", "%s", nvrtc[0] ? nvrtc : "not known yet");
	if (!strncmp(host, "host ", 5))
		host += 5 + strcspn(host + 5, " ");
	print_pair("c++", "%s", host[0] ? host + (host[0] == ' ') : "not known yet");
}

/* Prints the sandbox of processes that compile and run users' sources. */
static void print_sandbox(const kiln_reply *reply)
{
	const char *compilers = kiln_reply_str(reply, "workers.sandbox");
	const char *lacks = kiln_reply_str(reply, "sandbox.lacks");
	int rows = kiln_reply_count(reply, "executors");

	if (!kiln_reply_has(reply, "sandbox.mode"))
		return;
	print_pair("sandbox", "%s: compilers %s", kiln_reply_str(reply, "sandbox.mode"),
			   compilers[0] ? compilers : "not known yet");
	for (int i = 0; i < rows; i++) {
		const char *held = member_str(reply, "executors[%d].sandbox", i);
		if (held[0])
			print_pair("", "%s (pid %" PRId64 ") %s", member_str(reply, "executors[%d].device", i),
					   member_int(reply, "executors[%d].pid", i), held);
	}
	if (lacks[0])
		print_pair("", "lacks %s", lacks);
}

static void print_limits(const kiln_reply *reply)
{
	static const char *const headers[] = {"LIMIT", ">VALUE", "OPTION"};
	int rows = kiln_reply_count(reply, "limits");
	struct table table;

	putchar('\n');
	table_begin(&table, headers, 3);
	for (int i = 0; i < rows; i++) {
		int64_t value = member_int(reply, "limits[%d].value", i);
		bool bytes = !strcmp(member_str(reply, "limits[%d].unit", i), "bytes");
		char figure[FIGURE_MAX];
		table_cell(&table, "%s", member_str(reply, "limits[%d].name", i));
		if (!value)
			table_cell(&table, "none");
		else
			table_cell(&table, "%s",
					   bytes ? figure_bytes((uint64_t)value, figure)
							 : figure_known(value, "", figure));
		table_cell(&table, "%s", member_str(reply, "limits[%d].option", i));
	}
	table_end(&table);
}

/* Prints contradictions among the daemon's figures, each a defect of the daemon. */
static void print_broken(const kiln_reply *reply)
{
	int rows = kiln_reply_count(reply, "identities");

	for (int i = 0; i < rows; i++)
		if (!member_int(reply, "identities[%d].holds", i))
			print_pair("contradiction", "%s: %" PRId64 " and %" PRId64,
					   member_str(reply, "identities[%d].text", i),
					   member_int(reply, "identities[%d].left", i),
					   member_int(reply, "identities[%d].right", i));
}

/* Prints the generic kernels, and which axes vary in the shapes of connected programs. */
static void print_tiers(const kiln_reply *reply)
{
	int sessions = kiln_reply_count(reply, "sessions");
	int64_t generics = kiln_reply_int(reply, "tiers.generics");

	if (generics)
		print_pair("generic", "%" PRId64 " of %" PRId64 " kernels resident%s",
				   kiln_reply_int(reply, "tiers.resident"), generics,
				   kiln_reply_int(reply, "tiers.warming") ? ", the others on their way" : "");
	for (int i = 0; i < sessions; i++) {
		int rows = member_count(reply, "sessions[%d].shapes", i);
		for (int k = 0; k < rows; k++) {
			const char *varies = member_str(reply, "sessions[%d].shapes[%d].text", i, k);
			print_pair("shapes",
					   "pid %" PRId64 ", %s: %" PRId64 " shapes, %" PRId64 " exact kernels%s%s%s",
					   member_int(reply, "sessions[%d].pid", i),
					   member_str(reply, "sessions[%d].shapes[%d].op", i, k),
					   member_int(reply, "sessions[%d].shapes[%d].shapes", i, k),
					   member_int(reply, "sessions[%d].shapes[%d].variants", i, k),
					   member_int(reply, "sessions[%d].shapes[%d].widened", i, k) ? ", widened"
																				  : "",
					   varies[0] ? "; " : "", varies);
		}
	}
}

/* Prints the compilers' memory, and what a compile of Kiln's own templates takes. */
static void print_memory(const kiln_reply *reply)
{
	char have[FIGURE_MAX], nvrtc[FIGURE_MAX], host[FIGURE_MAX];
	int64_t held = kiln_reply_int(reply, "workers.held");

	print_pair("compilers have", "%s; a compile takes %s (nvrtc), %s (c++)",
			   figure_bytes((uint64_t)kiln_reply_int(reply, "workers.resident_bytes"), have),
			   figure_bytes((uint64_t)kiln_reply_int(reply, "workers.job_bytes.nvrtc"), nvrtc),
			   figure_bytes((uint64_t)kiln_reply_int(reply, "workers.job_bytes.host"), host));
	if (held)
		print_pair("", "%" PRId64 " compile%s for memory", held, held == 1 ? " waits" : "s wait");
}

/* Prints the second tier, if there is one. */
static void print_remote(const kiln_reply *reply)
{
	const char *state = kiln_reply_str(reply, "remote.state");
	char since[FIGURE_MAX], p50[FIGURE_MAX], p99[FIGURE_MAX];

	if (!kiln_reply_has(reply, "remote.url")) {
		print_pair("remote", "off");
		return;
	}
	print_pair("remote", "%s, %s for %s, breaker %s", kiln_reply_str(reply, "remote.url"), state,
			   figure_ago(kiln_reply_int(reply, "remote.state_ms") / 1000, since),
			   kiln_reply_str(reply, "remote.breaker"));
	if (kiln_reply_str(reply, "remote.reason")[0])
		print_pair("", "%s", kiln_reply_str(reply, "remote.reason"));
	print_pair("",
			   "hits %" PRId64 ", misses %" PRId64 ", refused %" PRId64 ", failures %" PRId64
			   ", skipped %" PRId64 ", written %" PRId64 ", queued %" PRId64,
			   kiln_reply_int(reply, "counters.lookup_remote"),
			   kiln_reply_int(reply, "counters.remote_misses"),
			   kiln_reply_int(reply, "counters.remote_refused"),
			   kiln_reply_int(reply, "counters.remote_failures"),
			   kiln_reply_int(reply, "counters.remote_skipped"),
			   kiln_reply_int(reply, "counters.remote_written"),
			   kiln_reply_int(reply, "remote.queued"));
	if (kiln_reply_int(reply, "counters.winner_asks"))
		print_pair("", "winners of tuning: %" PRId64 " of %" PRId64 " taken, %" PRId64 " refused",
				   kiln_reply_int(reply, "counters.winner_hits"),
				   kiln_reply_int(reply, "counters.winner_asks"),
				   kiln_reply_int(reply, "counters.winner_refused"));
	if (kiln_reply_int(reply, "remote.ask.count"))
		print_pair("", "asks took %s / %s",
				   figure_micros((double)kiln_reply_int(reply, "remote.ask.p50"), p50),
				   figure_micros((double)kiln_reply_int(reply, "remote.ask.p99"), p99));
}

/* Prints how command and daemon differ, and whether the daemon's program file is still the one that
 * it runs. */
static void print_versions(const kiln_reply *reply)
{
	const char *daemon = kiln_reply_str(reply, "server.version");
	const char *program = kiln_reply_str(reply, "server.program");

	if (strcmp(daemon, KILN_VERSION_STRING) || strcmp(kiln_version(), KILN_VERSION_STRING))
		print_pair("versions", "kilnd %s, kiln %s, libkiln %s; protocol %" PRId64, daemon,
				   KILN_VERSION_STRING, kiln_version(), kiln_reply_int(reply, "server.proto"));
	if (program[0] && strcmp(program, "current") != 0)
		print_pair("program",
				   "%s was %s while kilnd ran: it goes on as build %.12s until it is "
				   "stopped and started again",
				   kiln_reply_str(reply, "server.path"), program,
				   kiln_reply_str(reply, "server.build"));
}

/* Prints the cache, and what is wrong with its disk, with what helps. */
static void print_cache(const kiln_reply *reply)
{
	int64_t aside = kiln_reply_int(reply, "cache.set_aside");
	const char *trouble = kiln_reply_str(reply, "cache.trouble");
	char bytes[FIGURE_MAX];

	print_pair("cache", "%" PRId64 " kernels, %s", kiln_reply_int(reply, "cache.rows"),
			   figure_bytes((uint64_t)kiln_reply_int(reply, "cache.bytes"), bytes));
	if (aside)
		print_pair("", "%" PRId64 " damaged database%s set aside (%s): %s/kiln.db.bad-*", aside,
				   aside == 1 ? "" : "s",
				   figure_bytes((uint64_t)kiln_reply_int(reply, "cache.set_aside_bytes"), bytes),
				   kiln_reply_str(reply, "cache.directory"));
	if (trouble[0])
		print_pair("", "%s", trouble);
	if (kiln_reply_int(reply, "cache.unsaved"))
		print_pair("", "%" PRId64 " kernels are in memory only, and written when that is possible",
				   kiln_reply_int(reply, "cache.unsaved"));
}

/* Prints how many of the requests for a kernel needed no compile. */
static void print_hit_rate(const kiln_reply *reply)
{
	int64_t hits = kiln_reply_int(reply, "counters.hits") +
				   kiln_reply_int(reply, "counters.lookup_remote") +
				   kiln_reply_int(reply, "counters.shared");
	int64_t all = hits + kiln_reply_int(reply, "counters.compiles") +
				  kiln_reply_int(reply, "counters.failures");

	if (all > 0)
		print_pair("hit rate", "%.1f %% of %" PRId64 " request%s for a kernel",
				   100.0 * (double)hits / (double)all, all, all == 1 ? "" : "s");
}

static void print_status(struct cli *cli, const kiln_reply *reply)
{
	static const char *const counters[] = {"requests", "hits",       "shared", "compiles",
										   "failures", "remembered", "frozen", "copies",
										   "canceled", "launches",   NULL};
	static const char *const tiers[] = {"generic",  "specialized", "specialize_failed",
										"promoted", "no_gain",     NULL};
	static const char *const workers[] = {"count",  "idle",     "busy", "started",
										  "killed", "recycled", NULL};
	int64_t idle = kiln_reply_int(reply, "server.idle_exit_s");
	char figure[FIGURE_MAX];

	print_pair("kilnd", "%s, pid %" PRId64 ", up %s", kiln_reply_str(reply, "server.version"),
			   kiln_reply_int(reply, "server.pid"),
			   figure_ago(kiln_reply_int(reply, "server.uptime_ms") / 1000, figure));
	print_versions(reply);
	print_pair("socket", "%s", kiln_reply_str(reply, "server.socket"));
	if (kiln_reply_str(reply, "server.log")[0])
		print_pair("log", "%s, level %s", kiln_reply_str(reply, "server.log"),
				   kiln_reply_str(reply, "server.log_level"));
	if (kiln_reply_str(reply, "server.metrics")[0])
		print_pair("metrics", "at %s", kiln_reply_str(reply, "server.metrics"));
	if (idle)
		print_pair("ends", "after %" PRId64 " s without a session (--idle-exit)", idle);
	print_section(reply, "counters", "counters", counters);
	print_hit_rate(reply);
	if (strcmp(kiln_reply_str(reply, "tiers.specialize"), "eager") != 0) {
		print_section(reply, "tiers", "counters", tiers);
		print_tiers(reply);
	}
	print_broken(reply);
	print_section(reply, "workers", "workers", workers);
	print_memory(reply);
	print_compilers(reply);
	print_executors(reply);
	print_sandbox(reply);
	print_cache(reply);
	print_remote(reply);
	if (cli_value(cli, "limits"))
		print_limits(reply);
}

static int cli_status(struct cli *cli)
{
	const kiln_attr section = cli_attr_string("section", "all");

	return cli_answer(cli, "info", &section, 1, print_status);
}

static const struct cli_option status_options[] = {
	{"limits", NULL, "print the daemon's limits, too"},
	{0},
};

static const struct cli_example status_examples[] = {
	{"kiln status", "what the daemon is, has compiled and has launched"},
	{"kiln --json status", "the same for a program"},
	{0}};

const struct cli_command command_status = {"status",
										   cli_status,
										   "",
										   "what the daemon is and has done",
										   {0, 0},
										   status_options,
										   .examples = status_examples};
