/*
 * daemon.c: connects to the daemon, for all commands.
 */
#include "daemon.h"
#include "check_daemon.h"
#include "failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Other commands ask for no device, so that they work where the device does not. */
const char *cli_device(const struct cli *cli)
{
	bool asks = cli->command->flags == CLI_ON_DEVICE && !cli_value(cli, "target");
	return asks ? cli->device : "none";
}

static bool wants_autostart(void)
{
	const char *environment = getenv("KILN_AUTOSTART");

	return environment && !strcmp(environment, "1");
}

#define STARTERS "explain, run, compile, tune, warm, key and cache import do"

/* Other commands start no daemon: one that has just begun has nothing to tell. */
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

int daemon_settle(struct cli *cli)
{
	if (!(cli->command->flags & CLI_STARTS)) {
		if (cli->autostart == 1)
			return cli_usage("--autostart: 'kiln %s' never starts a daemon; " STARTERS,
							 cli->command->name);
	} else if (cli->autostart < 0 && wants_autostart())
		cli->autostart = 1;
	return CLI_OK;
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

int cli_show(struct cli *cli, kiln_reply *reply, print_reply *print)
{
	if (cli->json)
		puts(kiln_reply_json(reply));
	else
		print(cli, reply);
	kiln_reply_free(reply);
	return CLI_OK;
}

int cli_answer(struct cli *cli, const char *request, const kiln_attr *args, int count,
			   print_reply *print)
{
	kiln_reply *reply;

	return cli_request(cli, request, args, count, &reply) ? CLI_FAILED
														  : cli_show(cli, reply, print);
}

kiln_attr cli_attr_int(const char *name, int64_t value)
{
	return (kiln_attr){.name = name, .kind = KILN_ATTR_INT, .i = value};
}

kiln_attr cli_attr_string(const char *name, const char *value)
{
	return (kiln_attr){.name = name, .kind = KILN_ATTR_STRING, .s = value};
}
