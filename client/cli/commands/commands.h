/*
 * commands.h: the rows of all commands, for the table in main.c.  The file of a command defines its
 * row and its options; nothing else knows them.
 */
#ifndef KILN_CLI_COMMANDS_H
#define KILN_CLI_COMMANDS_H

#include "client/cli/cli.h"

extern const struct cli_command command_status, command_trace, command_monitor, command_slow,
	command_devices, command_ops, command_top, command_metrics, command_explain,
	command_explain_map, command_explain_raw, command_run, command_run_raw, command_run_map,
	command_compile, command_compile_map, command_compile_raw, command_tune, command_cache_ls,
	command_cache_show, command_cache_retry, command_cache_get, command_cache_table,
	command_cache_verify, command_cache_pin, command_cache_unpin, command_cache_trim,
	command_cache_clear, command_cache_export, command_cache_import, command_cache_backup,
	command_cache_restore, command_record, command_warm, command_key_ls, command_key_new,
	command_key_show, command_key_trust, command_key_distrust, command_faults_ls,
	command_faults_show, command_bugreport, command_debug_waits, command_debug, command_stop,
	command_help, command_completion, command_doctor;

/* --help: explains the command that the line names, or all. */
int help_command(struct cli *cli);
/* `kiln` alone: the groups of commands, and examples. */
int help_groups(const struct cli *cli);
/* Prints the words that may come next on a line, a tab and what they mean.  The last of words is
 * what has been typed of it. */
int completion_words(const struct cli_group *groups, int count, char **words);

#endif
