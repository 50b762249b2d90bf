/*
 * kiln_main: the kiln command: the table of its commands, help, and the connection all of them use.
 * What a command prints is in the file of its subject; what a daemon does is not known here.
 *
 * Exit statuses: 0 fine, 1 what was asked for failed, 2 the command line is wrong.
 */
#include "kiln_cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct cli_option run_options[] = {
	CLI_PROBLEM_OPTIONS,
	{"seed", "N", "seed of the random data (1)"},
	{"time", "[N]", "time N warm calls (100)"},
	{0},
};
static const struct cli_option explain_options[] = {
	CLI_PROBLEM_OPTIONS,
	{"target", "NAME", "plan for this target: cpu, sm_90 (the device's)"},
	{0},
};
static const struct cli_option compile_options[] = {
	CLI_PROBLEM_OPTIONS,
	{"target", "NAME", "compile for this target: cpu, sm_75 .. sm_120 (the device's)"},
	{0},
};
static const struct cli_option status_options[] = {
	{"limits", NULL, "print the daemon's limits, too"},
	{0},
};
static const struct cli_option ls_options[] = {
	{"sort", "ORDER", "used, hits, bytes or created, largest first (used)"},
	{"limit", "N", "at most N rows (50)"},
	{0},
};
static const struct cli_option show_options[] = {
	{"source", NULL, "print the source as it was compiled"},
	{"log", NULL, "print what the compiler said"},
	{"key", NULL, "print the text that the key is the hash of"},
	{0},
};
static const struct cli_option get_options[] = {
	{"output", "FILE", "write to FILE instead of standard output"},
	{0},
};

const struct cli_command cli_commands[] = {
	{"status", cli_status, "", "what the daemon is and has done", status_options, 0, 0, 0},
	{"devices", cli_devices, "", "the devices, and why one is missing", NULL, 0, 0, 0},
	{"ops", cli_ops, "", "the operators", NULL, 0, 0, 0},
	{"explain", cli_explain, "OP", "what the planner chooses, without compiling", explain_options,
	 1, 1, CLI_ON_DEVICE},
	{"run", cli_run, "OP", "run on random data, and verify against plain loops", run_options, 1, 1,
	 CLI_ON_DEVICE},
	{"compile", cli_compile, "OP", "compile into the cache, without a device", compile_options, 1,
	 1, CLI_ON_DEVICE},
	{"cache ls", cli_cache_ls, "", "the compiled kernels", ls_options, 0, 0, 0},
	{"cache show", cli_cache_show, "KEY", "one of them; a unique beginning of the key will do",
	 show_options, 1, 1, 0},
	{"cache get", cli_cache_get, "KEY", "its object (cubin), byte for byte", get_options, 1, 1, 0},
	{"cache verify", cli_cache_verify, "", "read and check every row", NULL, 0, 0, 0},
	{"cache trim", cli_cache_trim, "BYTES", "remove the least recently used down to BYTES", NULL, 1,
	 1, 0},
	{"cache clear", cli_cache_clear, "", "remove all of them", NULL, 0, 0, 0},
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

/* ---- Help ---- */

static void print_options(const struct cli_option *options)
{
	for (; options && options->name; options++) {
		char left[48];
		snprintf(left, sizeof(left), "--%s%s%s", options->name, options->value ? " " : "",
				 options->value ? options->value : "");
		printf("  %-24s %s\n", left, options->help);
	}
}

static void print_command(const struct cli_command *command)
{
	printf("usage: kiln %s%s%s%s\n\n%s\n", command->name, command->usage[0] ? " " : "",
		   command->usage, command->options ? " [OPTION]..." : "", command->help);
	if (command->options) {
		puts("\noptions:");
		print_options(command->options);
	}
	puts("\nglobal options: see 'kiln help'");
}

static void print_commands(void)
{
	puts("usage: kiln [GLOBAL OPTION]... COMMAND [ARGUMENT]...\n\ncommands:");
	for (const struct cli_command *command = cli_commands; command->name; command++) {
		char left[48];
		snprintf(left, sizeof(left), "%s %s", command->name, command->usage);
		printf("  %-27s %s\n", left, command->help);
	}
	puts("\nglobal options:");
	print_options(cli_global_options);
	puts("\nexit status: 0 fine, 1 what was asked for failed, 2 the command line is wrong");
}

/* The daemon's own table of requests: only it knows which ones it has. */
static int help_requests(struct cli *cli)
{
	static const char *const headers[] = {"REQUEST", "ARGUMENTS", "REPLY"};
	kiln_attr section = cli_attr_string("section", "requests");
	struct table table;
	kiln_reply *reply;
	int rows;

	if (cli_request(cli, "info", &section, 1, &reply))
		return CLI_FAILED;
	rows = kiln_reply_count(reply, "requests");
	if (!cli_json(cli, reply)) {
		table_begin(&table, headers, 3);
		for (int i = 0; i < rows; i++) {
			static const char *const members[] = {"name", "arguments", "reply"};
			for (int m = 0; m < 3; m++) {
				char path[64];
				snprintf(path, sizeof(path), "requests[%d].%s", i, members[m]);
				table_cell(&table, "%s", kiln_reply_str(reply, path));
			}
		}
		table_end(&table);
	}
	kiln_reply_free(reply);
	return CLI_OK;
}

int cli_help(struct cli *cli)
{
	const char *first = cli->positional[0], *second = cli->positional[1];
	size_t length = first ? strlen(first) : 0;
	bool found = false;

	if (!first) {
		print_commands();
		return CLI_OK;
	}
	if (!strcmp(first, "requests"))
		return help_requests(cli);
	if (cli_find(first, second)) {
		print_command(cli_find(first, second));
		return CLI_OK;
	}
	for (const struct cli_command *command = cli_commands; command->name && !second; command++)
		if (!strncmp(command->name, first, length) && command->name[length] == ' ') {
			if (found)
				putchar('\n');
			print_command(command);
			found = true;
		}
	return found ? CLI_OK
				 : cli_usage("'%s%s%s' is no command; see 'kiln help'", first, second ? " " : "",
							 second ? second : "");
}

/* ---- The daemon ---- */

int cli_failed(const char *format, ...)
{
	va_list list;

	fputs("kiln: ", stderr);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fprintf(stderr, ": %s\n", kiln_errmsg());
	return CLI_FAILED;
}

/* Only what runs on a device asks for one: the rest must work where the device does not. */
static const char *device_for(const struct cli *cli)
{
	bool asks = (cli->command->flags & CLI_ON_DEVICE) && !cli_value(cli, "target");
	return asks ? cli->device : "none";
}

int cli_connect(struct cli *cli, kiln_client **client)
{
	kiln_connect_options options = {
		.size = sizeof(options),
		.socket = cli->socket,
		.device = device_for(cli),
		.timeout_ms = cli->timeout_ms,
		.flags = cli->autostart == 1 ? KILN_CONNECT_AUTOSTART : 0,
	};

	if (kiln_connect(&options, client))
		return cli_failed("%s", cli->command->name);
	return CLI_OK;
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
		cli_failed("%s", cli->command->name);
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
	const char *environment = getenv("KILN_AUTOSTART");

	if (!(cli->command->flags & CLI_ON_DEVICE)) {
		if (cli->autostart == 1)
			return cli_usage("--autostart: 'kiln %s' never starts a daemon; explain, run and "
							 "compile do",
							 cli->command->name);
	} else if (cli->autostart < 0 && environment && !strcmp(environment, "1"))
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
	if (cli->help && cli->command) {
		print_command(cli->command);
		return CLI_OK;
	}
	if (!cli->command && !cli->help)
		return cli_usage("a command is needed; see 'kiln help'");
	if (!cli->command)
		return cli_help(cli);
	return settle_autostart(cli) ? CLI_USAGE : cli->command->handler(cli);
}

int main(int argc, char **argv)
{
	struct cli cli = {.autostart = -1};
	int status = cli_parse(argc, argv, &cli);

	if (!status)
		status = dispatch(&cli);
	if (fflush(stdout) || ferror(stdout)) {
		fputs("kiln: standard output cannot be written\n", stderr);
		return status ? status : CLI_FAILED;
	}
	return status;
}
