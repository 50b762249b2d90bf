/*
 * cli.h: the command line: the rows that describe commands and their options, and one command line
 * as args.c has read it.
 *
 * Every function of the command line that returns int returns CLI_OK, or prints one sentence on
 * standard error and returns the exit status.
 */
#ifndef KILN_CLI_CLI_H
#define KILN_CLI_CLI_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

#define CLI_MAX_OPTIONS 80
#define CLI_FOLDER "include-dir" /* the option that -I stands for, as compilers have it */
#define CLI_MAX_GIVEN 256        /* options that may come more than once */
#define CLI_MAX_POSITIONAL 4

enum cli_often {
	CLI_ONCE,
	CLI_MANY,  /* any number of times */
	CLI_NAMED, /* once, and any number of times as NAME=VALUE */
};

struct cli_option {
	const char *name;  /* without the dashes; NULL ends a list */
	const char *value; /* the value's name in help; NULL: a flag; "[N]": the value is optional */
	const char *help;
	enum cli_often often;
};

/* One occurrence of an option that may come more than once. */
struct cli_given {
	const char *option, *value;
};

enum {
	CLI_STARTS = 1,                /* may start a daemon */
	CLI_ON_DEVICE = 2 | CLI_STARTS /* and works on a device of the daemon */
};

/* A line that can be typed as it is, and what it gives. */
struct cli_example {
	const char *line, *what; /* NULL ends a list */
};

struct cli;
struct cli_command {
	const char *name; /* "cache ls" has two words */
	int (*handler)(struct cli *cli);
	const char *usage; /* positional arguments */
	const char *help;  /* one line */
	struct {
		int least, most;
	} positional;
	const struct cli_option *options; /* NULL: none */
	int flags;                        /* CLI_STARTS, CLI_ON_DEVICE */
	/* Puts options that come from elsewhere before its own; NULL: there are none. */
	const struct cli_option *(*merge)(const struct cli_option *own);
	const struct cli_example *examples;
};

/* Commands that stand together in `kiln help`. */
struct cli_group {
	const char *title;                         /* NULL ends a list */
	const struct cli_command *const *commands; /* NULL ends them */
};

struct cli {
	const struct cli_group *groups; /* of all commands */
	const struct cli_command *command;
	const char *group; /* "cache" if the line has no second word; command is then its "ls" */
	const char *positional[CLI_MAX_POSITIONAL];
	int positional_count;
	const char *values[CLI_MAX_OPTIONS];   /* one for each of cli_options(); "": a flag is set */
	struct cli_given given[CLI_MAX_GIVEN]; /* the others, in the order of the command line */
	int given_count;
	const char *socket, *device;
	int timeout_ms; /* 0: the library's default */
	bool json, help, version;
	unsigned connect_flags;         /* KILN_CONNECT_*, but for autostart */
	int autostart;                  /* -1: neither --autostart nor --no-autostart is given */
	struct checking_daemon *checks; /* the daemon that --check started; NULL: none */
};

extern const struct cli_option cli_global_options[];

/* Reads the command line into *cli, which points into argv and commands afterwards. */
int cli_parse(const struct cli_group *groups, int argc, char **argv, struct cli *cli);
/* All options of a command, ended by one without a name; NULL: it has none. */
const struct cli_option *cli_options(const struct cli_command *command);
/* Says that the line names no command, and which one it may mean; returns CLI_USAGE. */
int cli_no_command(const struct cli *cli, const char *first, const char *second);
/* The second word of a command whose first is this one; NULL: it has none, or another first. */
const char *cli_second_word(const struct cli_command *command, const char *first);
/* The command of one word (second NULL) or two; NULL: there is none. */
const struct cli_command *cli_find(const struct cli *cli, const char *first, const char *second);
/* The option's value; "" for a flag or a left-out value; NULL: the option is not given. */
const char *cli_value(const struct cli *cli, const char *option);
/* The next value of an option that may come more than once; NULL at the end.  *at begins with 0. */
const char *cli_next(const struct cli *cli, const char *option, int *at);

#endif
