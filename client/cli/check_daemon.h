/*
 * check_daemon.h: --check: a daemon of the command's own, whose device cpu checks every access to
 * memory.
 */
#ifndef KILN_CLI_CHECK_DAEMON_H
#define KILN_CLI_CHECK_DAEMON_H

#include "cli.h"

#define CLI_CHECK_OPTIONS                                                                    \
	{"check", NULL, "check every access to memory, on device cpu, by a daemon of its own"},  \
	{                                                                                        \
		"order", "ORDER", "with --check: threads run in natural, reversed or shuffled order" \
	}

/* Checks that --check and --order fit the other options, and sets the device and the timeout. */
int check_settle(struct cli *cli);
/* With --check starts the daemon, once, and directs cli_connect() to it. */
int check_open(struct cli *cli);
/* Ends the daemon, if there is one. */
void check_close(struct cli *cli);
/* With --check prints how much the daemon has checked: a line, or members of the JSON object. */
void check_print(const struct cli *cli, kiln_client *client);
void check_print_json(const struct cli *cli, kiln_client *client);

#endif
