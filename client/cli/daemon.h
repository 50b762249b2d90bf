/*
 * daemon.h: the connection to the daemon.  Functions that return int print what failed and return
 * CLI_FAILED.
 */
#ifndef KILN_CLI_DAEMON_H
#define KILN_CLI_DAEMON_H

#include "cli.h"

/* Refuses --autostart for a command that never starts a daemon, and reads $KILN_AUTOSTART for the
 * others. */
int daemon_settle(struct cli *cli);
/* Connects; the client is the caller's to close. */
int cli_connect(struct cli *cli, kiln_client **client);
/* The device that the command asks for. */
const char *cli_device(const struct cli *cli);
/* Connects, sends one request and closes; the reply is the caller's to free. */
int cli_request(struct cli *cli, const char *request, const kiln_attr *args, int count,
				kiln_reply **reply);
/* Prints the reply, with --json as the daemon's JSON and else by `print`; frees it and returns
 * CLI_OK. */
typedef void print_reply(struct cli *cli, const kiln_reply *reply);
int cli_show(struct cli *cli, kiln_reply *reply, print_reply *print);
/* cli_request() and cli_show(). */
int cli_answer(struct cli *cli, const char *request, const kiln_attr *args, int count,
			   print_reply *print);

kiln_attr cli_attr_int(const char *name, int64_t value);
kiln_attr cli_attr_string(const char *name, const char *value);

#endif
