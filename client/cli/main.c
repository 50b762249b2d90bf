/*
 * kiln_main: the kiln command: the table of its commands, and the connection all of them use.
 * What a command prints is in the file of its subject; what a daemon does is not known here.
 *
 * Exit statuses: 0 fine, 1 what was asked for failed, 2 the command line is wrong.
 */
#include "problem.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN_OPTIONS                                                                           \
	{"in", "NAME=FILE", "the operand comes from a .npy file; shape and type, too", CLI_MANY}, \
		{"out", "NAME=FILE", "the operand that is written goes to a .npy file", CLI_MANY},    \
		{"seed", "N", "seed of the random data (1)"},                                         \
		{"time", "[N]", "time N warm calls (100, or what 10 s allow)"}, CLI_CHECK_OPTIONS
static const struct cli_option run_options[] = {
	CLI_PROBLEM_OPTIONS,
	RUN_OPTIONS,
	{0},
};
#define RAW_OPTIONS                                                                            \
	{"entry", "NAME", "a __global__ function, or a template-id: 'scale<float, 4>'"},           \
		{"include", "FILE", "a header, found without its directory; NAME=FILE: as NAME",       \
		 CLI_MANY},                                                                            \
		{"macro", "NAME[=VALUE]", "as -D of compilers", CLI_MANY},                             \
	{                                                                                          \
		"option", "OPTION", "for the compiler: --option=-std=c++20, --option=--use_fast_math", \
			CLI_MANY                                                                           \
	}
static const struct cli_option raw_options[] = {
	RAW_OPTIONS,
	{"grid", "X[,Y[,Z]]", "blocks; also 16x16"},
	{"block", "X[,Y[,Z]]", "threads of a block"},
	{"shared", "BYTES", "dynamic shared memory of a block (0)"},
	{"in", "FILE", "argument: memory that the kernel reads, from a .npy file", CLI_MANY},
	{"inout", "FILE=FILE", "argument: the same, and where it goes afterwards", CLI_MANY},
	{"out", "FILE:TYPE:SHAPE", "argument: zeros that it writes, and where they go", CLI_MANY},
	{"random", "TYPE:SHAPE", "argument: memory with random values: f32:1024x1024", CLI_MANY},
	{"scalar", "TYPE:VALUE", "argument: a number by value: f32:2.5, i64:1000", CLI_MANY},
	{"seed", "N", "seed of the random values (1)"},
	{"time", "[N]", "time N more calls (100, or what 10 s allow), and a copy of as many bytes"},
	CLI_CHECK_OPTIONS,
	{0},
};
#define WHY_OPTION                                                                  \
	{                                                                               \
		"why", NULL, "of a miss: the nearest kernel in the cache, and what differs" \
	}
static const struct cli_option raw_explain_options[] = {
	RAW_OPTIONS,
	{"target", "NAME", "for this target: cpu, sm_75 .. sm_120 (the device's)"},
	WHY_OPTION,
	{0},
};
static const struct cli_option raw_compile_options[] = {
	RAW_OPTIONS,
	{"target", "NAME", "compile for this target: cpu, sm_75 .. sm_120 (the device's)"},
	{0},
};
#define MAP_OPTIONS                                                                                \
	{"set", "NAME=NUMBER", "a scalar of the statement, by value", CLI_MANY},                       \
		{"shape", "NAME=2x3x4", "shape of an operand (the output's follows)", CLI_MANY},           \
		{"dtype", "NAME=TYPE", "its element type (f32; i32 in subscripts; output's: the first's)", \
		 CLI_MANY},                                                                                \
		{"bounds", "WORD", "subscripts out of range: check, clamp or zero (check)"},               \
		{"checked", NULL, "check every access and name the first bad one"},                        \
	{                                                                                              \
		"choice", "NAME", "the candidate to take: one that explain lists, or generic"              \
	}
static const struct cli_option map_options[] = {
	MAP_OPTIONS,
	RUN_OPTIONS,
	{0},
};
static const struct cli_option map_explain_options[] = {
	MAP_OPTIONS,
	CLI_OPERAND_OPTION,
	{"target", "NAME", "for this target: cpu, sm_75 .. sm_120 (the device's)"},
	WHY_OPTION,
	{0},
};
static const struct cli_option map_compile_options[] = {
	MAP_OPTIONS,
	CLI_OPERAND_OPTION,
	{"target", "NAME", "for this target: cpu, sm_75 .. sm_120 (the device's)"},
	{0},
};
static const struct cli_option explain_options[] = {
	CLI_PROBLEM_OPTIONS,
	CLI_OPERAND_OPTION,
	{"target", "NAME", "plan for this target: cpu, sm_90 (the device's)"},
	WHY_OPTION,
	{0},
};
static const struct cli_option compile_options[] = {
	CLI_PROBLEM_OPTIONS,
	CLI_OPERAND_OPTION,
	{"target", "NAME", "compile for this target: cpu, sm_75 .. sm_120 (the device's)"},
	{0},
};
static const struct cli_option tune_options[] = {
	CLI_PROBLEM_OPTIONS,
	{"seconds", "N", "time for so long, after compiling (5)"},
	{"dry-run", NULL, "print, and keep nothing"},
	{"forget", NULL, "remove the winner that is kept; without OP: all of them"},
	{"list", NULL, "the winners that are kept"},
	{"export", "FILE", "write them to FILE, a JSON object a line; -: standard output"},
	{"import", "FILE", "keep those that FILE has; -: standard input"},
	{0},
};
static const struct cli_option status_options[] = {
	{"limits", NULL, "print the daemon's limits, too"},
	{0},
};
static const struct cli_option top_options[] = {
	{"interval", "TIME", "between two frames: 500ms, 5s (1s)"},
	{"once", NULL, "print one frame, of one interval, and exit"},
	{0},
};
static const struct cli_option ls_options[] = {
	{"sort", "ORDER", "used, hits, bytes or created, largest first (used)"},
	{"limit", "N", "at most N rows (50)"},
	{"failed", NULL, "the compiles that failed instead, which are remembered"},
	{0},
};
static const struct cli_option retry_options[] = {
	{"all", NULL, "forget all failures"},
	{0},
};
static const struct cli_option show_options[] = {
	{"source", NULL, "print the source as it was compiled"},
	{"log", NULL, "print what the compiler said"},
	{"key", NULL, "print the text that the key is the hash of"},
	{0},
};
static const struct cli_option faults_show_options[] = {
	{"with-source", NULL, "and the texts of the kernels that were in flight"},
	{0},
};
static const struct cli_option bugreport_options[] = {
	{"output", "DIR", "the directory, which is made (kiln-bugreport-KEY, or -DATE)"},
	{0},
};
static const struct cli_option get_options[] = {
	{"output", "FILE", "write to FILE instead of standard output"},
	{0},
};

static const struct cli_option verify_options[] = {
	{"recompile", "PART", "compile a sample again, as 5% of the kernels, and compare the bits"},
	{"seed", "N", "choose the sample by this number (each time another)"},
	{0},
};
static const struct cli_option trim_options[] = {
	{"rows", "N", "so many kernels may stay"},
	{"older-than", "TIME", "only those not used for so long: 90s, 15m, 12h, 30d, 2w"},
	{"op", "OP", "only those of this operator"},
	{"target", "NAME", "only those for this target: cpu, sm_90"},
	{"compiler", "TEXT", "only those whose compiler has this in its name: 'nvrtc 12.8'"},
	{"dry-run", NULL, "list what would go, and remove nothing"},
	{0},
};
static const struct cli_option table_options[] = {
	{"sort", "ORDER", "name, or registers, spills, shared, local, bytes or time, largest first"},
	{"compare", NULL, "only kernels that there are for several targets or by several compilers"},
	{"op", "OP", "only those of this operator"},
	{"target", "NAME", "only those for this target: cpu, sm_90"},
	{"compiler", "TEXT", "only those whose compiler has this in its name: 'nvrtc 12.8'"},
	{"limit", "N", "at most N instantiations"},
	{0},
};

static const struct cli_option export_options[] = {
	{"op", "OP", "only those of this operator"},
	{"target", "NAME", "only those for this target: cpu, sm_90"},
	{"compiler", "TEXT", "only those whose compiler has this in its name: 'nvrtc 12.8'"},
	{"older-than", "TIME", "only those not used for so long: 90s, 15m, 12h, 30d, 2w"},
	{"key", "NAME", "sealed by this key (kilnd's --sign-key, or the only one)"},
	{"days", "N", "not to be imported after so many days (for ever)"},
	{0},
};
static const struct cli_option record_options[] = {
	{"output", "FILE", "write to FILE, as a whole, instead of standard output"},
	{"follow", "SECONDS", "write FILE again every so often, until interrupted"},
	{"generic", NULL, "the shipped generic kernels instead"},
	{0},
};
static const struct cli_option warm_options[] = {
	{"target", "LIST", "for these targets: sm_80,sm_90,cpu (the device's)"},
	{"generic", NULL, "the shipped generic kernels, instead of a manifest"},
	{"compiler", "PATH",
	 "by this libnvrtc, its directory, or C++ compiler, which the host will use"},
	{"limit", "N", "without a manifest: the N kernels of the cache used most (1000)"},
	{0},
};
static const struct cli_option key_trust_options[] = {
	{"name", "NAME", "what it is called here (what its owner calls it)"},
	{0},
};

const struct cli_command cli_commands[] = {
	{"status", cli_status, "", "what the daemon is and has done", status_options, 0, 0, 0},
	{"devices", cli_devices, "", "the devices, and why one is missing", NULL, 0, 0, 0},
	{"ops", cli_ops, "", "the operators", NULL, 0, 0, 0},
	{"top", cli_top, "", "watch it live: calls, sessions, compiles under way; q ends", top_options,
	 0, 0, 0},
	{"explain", cli_explain, "OP", "what the planner chooses, without compiling", explain_options,
	 1, 1, CLI_ON_DEVICE},
	{"explain map", cli_explain, "STATEMENT", "what the planner makes of a statement",
	 map_explain_options, 1, 1, CLI_ON_DEVICE},
	{"explain raw", cli_explain_raw, "FILE.cu", "whether the cache has a kernel of your own",
	 raw_explain_options, 1, 1, CLI_ON_DEVICE},
	{"run", cli_run, "OP", "run on random data or files, and verify against plain loops",
	 run_options, 1, 1, CLI_ON_DEVICE},
	{"run raw", cli_run_raw, "FILE.cu", "run a kernel of your own; -: standard input", raw_options,
	 1, 1, CLI_ON_DEVICE},
	{"run map", cli_run_map, "STATEMENT", "run 'y[i] = x[i] * s' on random data or files, verified",
	 map_options, 1, 1, CLI_ON_DEVICE},
	{"compile", cli_compile, "OP", "compile into the cache, without a device", compile_options, 1,
	 1, CLI_ON_DEVICE},
	{"compile map", cli_compile, "STATEMENT", "compile a statement into the cache",
	 map_compile_options, 1, 1, CLI_ON_DEVICE},
	{"compile raw", cli_compile_raw, "FILE.cu", "compile a kernel of your own into the cache",
	 raw_compile_options, 1, 1, CLI_ON_DEVICE},
	{"tune", cli_tune, "[OP]", "time the planner's candidates on the device, and keep the best",
	 tune_options, 0, 1, CLI_ON_DEVICE},
	{"cache ls", cli_cache_ls, "", "the compiled kernels", ls_options, 0, 0, 0},
	{"cache show", cli_cache_show, "KEY", "one of them; a unique beginning of the key will do",
	 show_options, 1, 1, 0},
	{"cache retry", cli_cache_retry, "[KEY]", "forget a failure, so that it is compiled again",
	 retry_options, 0, 1, 0},
	{"cache get", cli_cache_get, "KEY", "its object (cubin), byte for byte", get_options, 1, 1, 0},
	{"cache table", cli_cache_table, "", "their registers, spills, shared memory and sizes",
	 table_options, 0, 0, 0},
	{"cache verify", cli_cache_verify, "", "read and check every row", verify_options, 0, 0, 0},
	{"cache pin", cli_cache_pin, "KEY", "never trim this one", NULL, 1, 1, 0},
	{"cache unpin", cli_cache_unpin, "KEY", "trim it like any other", NULL, 1, 1, 0},
	{"cache trim", cli_cache_trim, "[BYTES]", "remove the least recently used down to BYTES",
	 trim_options, 0, 1, 0},
	{"cache clear", cli_cache_clear, "", "remove all that are not pinned", NULL, 0, 0, 0},
	{"cache export", cli_cache_export, "FILE", "write kernels to a sealed file, for other hosts",
	 export_options, 1, 1, 0},
	{"cache import", cli_cache_import, "FILE", "take in what a trusted key has sealed", NULL, 1, 1,
	 CLI_STARTS},
	{"record", cli_record, "", "what the daemon was asked for, as a manifest for 'kiln warm'",
	 record_options, 0, 0, 0},
	{"warm", cli_warm, "[MANIFEST]", "compile what a manifest lists into the cache", warm_options,
	 0, 1, CLI_ON_DEVICE},
	{"key ls", cli_key_ls, "", "the keys that seal packs here, and those that are trusted", NULL, 0,
	 0, CLI_STARTS},
	{"key new", cli_key_new, "NAME", "make a key that seals", NULL, 1, 1, CLI_STARTS},
	{"key show", cli_key_show, "NAME", "its public half, for other hosts", NULL, 1, 1, CLI_STARTS},
	{"key trust", cli_key_trust, "FILE", "believe what this public key seals", key_trust_options, 1,
	 1, CLI_STARTS},
	{"key distrust", cli_key_distrust, "NAME", "believe it no more", NULL, 1, 1, CLI_STARTS},
	{"faults ls", cli_faults_ls, "", "reports of device processes and compilers that ended", NULL,
	 0, 0, 0},
	{"faults show", cli_faults_show, "[REPORT]", "one of them; without REPORT the newest",
	 faults_show_options, 0, 1, 0},
	{"bugreport", cli_bugreport, "[KEY]", "the daemon, or a compile, in a directory to be sent",
	 bugreport_options, 0, 1, 0},
	{"debug waits", cli_debug_waits, "", "who waits now, for what, of whom and since when", NULL, 0,
	 0, 0},
	{"debug", cli_debug, "WHAT [VALUE [VALUE]]", "what tests ask of kilnd --test-requests", NULL, 1,
	 3, 0},
	{"stop", cli_stop, "", "stop the daemon, and wait until it is gone", NULL, 0, 0, 0},
	{"help", cli_help, "[COMMAND]", "this list, one command, or 'requests'", NULL, 0, 2, 0},
	{0},
};

const struct cli_command *cli_find(const char *first, const char *second)
{
	char name[64];

	snprintf(name, sizeof(name), second ? "%s %s" : "%s", first, second);
	for (const struct cli_command *command = cli_commands; command->name; command++)
		if (!strcmp(command->name, name))
			return command;
	return NULL;
}

/* ---- The daemon ---- */

/* Whoever reads standard output as JSON finds the failure there, too. */
static void print_failure(int status, const char *message, const char *log)
{
	json_begin();
	json_string("error", kiln_status_name(status));
	json_string("message", message);
	if (log[0])
		json_string("log", log);
	json_end();
}

/* The log without the line that was said already. */
static void print_log(const char *log, const char *sentence)
{
	size_t said = strlen(sentence);
	bool left_out = false;

	while (*log) {
		size_t length = strcspn(log, "\n");
		if (!left_out && length == said && !memcmp(log, sentence, said))
			left_out = true;
		else
			fprintf(stderr, "%.*s\n", (int)length, log);
		log += length + (log[length] == '\n');
	}
}

int cli_failed(const struct cli *cli, int status, const char *format, ...)
{
	const char *log = kiln_errlog(), *message = kiln_errmsg(), *last;
	char what[1024];
	size_t length;
	va_list list;

	va_start(list, format);
	vsnprintf(what, sizeof(what), format, list);
	va_end(list);
	/* The planner's sentences begin with the operator's name, and so it would be there twice. */
	last = strrchr(what, ' ') ? strrchr(what, ' ') + 1 : what;
	length = strlen(last);
	if (length && !strncmp(message, last, length) && !strncmp(message + length, ": ", 2))
		message += length + 2;
	fprintf(stderr, "kiln: %s: %s\n", what, message);
	print_log(log, kiln_errmsg());
	if (cli->json)
		print_failure(status, kiln_errmsg(), log);
	return CLI_FAILED;
}

int cli_failed_here(const struct cli *cli, int status, const char *format, ...)
{
	char sentence[1024];
	va_list list;

	va_start(list, format);
	vsnprintf(sentence, sizeof(sentence), format, list);
	va_end(list);
	fprintf(stderr, "kiln: %s\n", sentence);
	if (cli->json)
		print_failure(status, sentence, "");
	return CLI_FAILED;
}

int cli_failed_wait(const struct cli *cli, int status, int timeout_ms, const char *what)
{
	if (status != KILN_EAGAIN)
		return cli_failed(cli, status, "%s", what);
	return cli_failed_here(cli, KILN_ETIMEDOUT,
						   "%s: the call has not ended after %d ms (--timeout)", what, timeout_ms);
}

/* Only what runs on a device asks for one: the rest must work where the device does not. */
const char *cli_device(const struct cli *cli)
{
	bool asks = cli->command->flags == CLI_ON_DEVICE && !cli_value(cli, "target");
	return asks ? cli->device : "none";
}

/* Whether KILN_AUTOSTART asks for a daemon where none answers. */
static bool wants_autostart(void)
{
	const char *environment = getenv("KILN_AUTOSTART");

	return environment && !strcmp(environment, "1");
}

#define STARTERS "explain, run, compile, tune, warm, key and cache import do"

/* A daemon that was started only to be asked how it is would say nothing of use. */
static void hint_autostart(const struct cli *cli)
{
	if (cli->command->flags & CLI_STARTS)
		fprintf(stderr,
				"kiln: with --autostart, or KILN_AUTOSTART=1, 'kiln %s' starts one by itself\n",
				cli->command->name);
	else if (wants_autostart())
		fprintf(stderr,
				"kiln: 'kiln %s' never starts a daemon, KILN_AUTOSTART or not; " STARTERS "\n",
				cli->command->name);
}

int cli_connect(struct cli *cli, kiln_client **client)
{
	if (check_open(cli))
		return CLI_FAILED;
	kiln_connect_options options = {
		.size = sizeof(options),
		.socket = cli->socket,
		.device = cli_device(cli),
		.timeout_ms = cli->timeout_ms,
		.flags = cli->connect_flags | (cli->autostart == 1 ? KILN_CONNECT_AUTOSTART : 0),
	};

	int status = kiln_connect(&options, client);

	if (!status)
		return CLI_OK;
	cli_failed(cli, status, "%s", cli->command->name);
	if (status == KILN_ECONN && !(options.flags & KILN_CONNECT_AUTOSTART))
		hint_autostart(cli);
	return CLI_FAILED;
}

int cli_request(struct cli *cli, const char *request, const kiln_attr *args, int count,
				kiln_reply **reply)
{
	kiln_client *client;
	int status;

	if (cli_connect(cli, &client))
		return CLI_FAILED;
	status = kiln_request(client, request, args, count, reply);
	if (status)
		cli_failed(cli, status, "%s", cli->command->name);
	kiln_close(client);
	return status ? CLI_FAILED : CLI_OK;
}

bool cli_json(const struct cli *cli, kiln_reply *reply)
{
	if (cli->json)
		puts(kiln_reply_json(reply));
	return cli->json;
}

kiln_attr cli_attr_int(const char *name, int64_t value)
{
	return (kiln_attr){.name = name, .kind = KILN_ATTR_INT, .i = value};
}

kiln_attr cli_attr_string(const char *name, const char *value)
{
	return (kiln_attr){.name = name, .kind = KILN_ATTR_STRING, .s = value};
}

/* ---- Main ---- */

static int settle_autostart(struct cli *cli)
{
	if (!(cli->command->flags & CLI_STARTS)) {
		if (cli->autostart == 1)
			return cli_usage("--autostart: 'kiln %s' never starts a daemon; " STARTERS,
							 cli->command->name);
	} else if (cli->autostart < 0 && wants_autostart())
		cli->autostart = 1;
	return CLI_OK;
}

static int print_version(const struct cli *cli)
{
	if (cli->json) {
		json_begin();
		json_string("version", KILN_VERSION_STRING);
		json_string("library", kiln_version());
		json_end();
	} else
		printf("kiln %s (libkiln %s)\n", KILN_VERSION_STRING, kiln_version());
	return CLI_OK;
}

static int dispatch(struct cli *cli)
{
	if (cli->version)
		return print_version(cli);
	if (cli->help)
		return cli_help_command(cli);
	if (!cli->command)
		return cli_usage("a command is needed; see 'kiln help'");
	if (settle_autostart(cli) || check_settle(cli))
		return CLI_USAGE;
	return cli->command->handler(cli);
}

/* A socket or file that is opened later would otherwise take the place of a standard descriptor
 * that is closed.  These can only be used the wrong way round, so that using them is an error. */
static void open_missing(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
	struct cli cli = {.autostart = -1};
	int status;

	open_missing();
	if (!sink_begin()) {
		fputs("kiln: no memory\n", stderr);
		return CLI_FAILED;
	}
	status = cli_parse(argc, argv, &cli);
	if (!status)
		status = dispatch(&cli);
	check_close(&cli);
	if (!sink_end()) {
		fputs("kiln: standard output cannot be written\n", stderr);
		return status ? status : CLI_FAILED;
	}
	return status;
}
