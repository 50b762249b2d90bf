/*
 * main.c: the kiln command: the table of its commands, and one run of one of them.
 *
 * Exit statuses: 0 fine, 1 what was asked for failed, 2 the command line is wrong.
 */
#include "check_daemon.h"
#include "commands/commands.h"
#include "daemon.h"
#include "failure.h"
#include "json.h"
#include "sink.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In the order of `kiln help`. */
#define COMMANDS(...) ((const struct cli_command *const[]){__VA_ARGS__, NULL})
static const struct cli_group cli_groups[] = {
	{"The daemon", COMMANDS(&command_status, &command_top, &command_metrics, &command_devices,
							&command_ops, &command_stop)},
	{"Operators", COMMANDS(&command_run, &command_explain, &command_compile, &command_tune)},
	{"Statements", COMMANDS(&command_run_map, &command_explain_map, &command_compile_map)},
	{"Kernels of your own", COMMANDS(&command_run_raw, &command_explain_raw, &command_compile_raw)},
	{"The cache", COMMANDS(&command_cache_ls, &command_cache_show, &command_cache_get,
						   &command_cache_table, &command_cache_retry, &command_cache_verify,
						   &command_cache_trim, &command_cache_clear, &command_cache_pin,
						   &command_cache_unpin, &command_cache_backup, &command_cache_restore)},
	{"Kernels for other hosts",
	 COMMANDS(&command_cache_export, &command_cache_import, &command_record, &command_warm,
			  &command_key_ls, &command_key_new, &command_key_show, &command_key_trust,
			  &command_key_distrust)},
	{"When something is wrong", COMMANDS(&command_doctor, &command_faults_ls, &command_faults_show,
										 &command_bugreport, &command_debug_waits, &command_monitor,
										 &command_slow, &command_trace, &command_debug)},
	{"Help", COMMANDS(&command_help, &command_completion)},
	{0},
};

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
		return help_command(cli);
	if (!cli->command)
		return help_groups(cli);
	if (daemon_settle(cli) || check_settle(cli))
		return CLI_USAGE;
	return cli->command->handler(cli);
}

/* Fills standard descriptors that are closed, so that no socket or file takes their place.  Each is
 * opened the wrong way round, so that using it is an error. */
static void open_missing(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
	struct cli cli;
	int status;

	open_missing();
	if (!sink_begin()) {
		fputs("kiln: no memory\n", stderr);
		return CLI_FAILED;
	}
	if (argc > 1 && !strcmp(argv[1], "__complete")) {
		status = completion_words(cli_groups, argc - 2, argv + 2);
	} else {
		status = cli_parse(cli_groups, argc, argv, &cli);
		if (!status)
			status = dispatch(&cli);
		check_close(&cli);
	}
	if (!sink_end()) {
		fputs("kiln: standard output cannot be written\n", stderr);
		return status ? status : CLI_FAILED;
	}
	return status;
}
