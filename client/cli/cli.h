/*
 * kiln_cli: what the files of the kiln command share.  The command is a user of libkiln like any
 * other: it includes the public header, and must not know how messages look.
 */
#ifndef KILN_CLIENT_KILN_CLI_H
#define KILN_CLIENT_KILN_CLI_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

#define CLI_MAX_OPTIONS 40
#define CLI_MAX_GIVEN 256 /* options that may come more than once */
#define CLI_MAX_POSITIONAL 4

enum cli_often {
	CLI_ONCE,
	CLI_MANY,  /* as often as one likes */
	CLI_NAMED, /* once, and as often as one likes with NAME=VALUE */
};

struct cli_option {
	const char *name;  /* without the dashes; NULL ends a list */
	const char *value; /* what follows, for help; NULL: a flag; in brackets: may be left out */
	const char *help;
	enum cli_often often;
};

/* One of an option that may come more than once. */
struct cli_given {
	const char *option, *value;
};

enum {
	CLI_STARTS = 1,                /* may start a daemon */
	CLI_ON_DEVICE = 2 | CLI_STARTS /* ... and works on a device of it */
};

struct cli;
struct cli_command {
	const char *name; /* "cache ls" has two words; NULL ends the table */
	int (*handler)(struct cli *cli);
	const char *usage; /* positional arguments */
	const char *help;  /* one line */
	const struct cli_option *options;
	int least, most; /* positional arguments */
	int flags;       /* CLI_STARTS, CLI_ON_DEVICE */
};

struct cli {
	const struct cli_command *command;
	const char *group; /* "cache" when its second word was left out, and command is a guess */
	const char *positional[CLI_MAX_POSITIONAL];
	int positional_count;
	const char *values[CLI_MAX_OPTIONS]; /* beside command->options; "" for a flag that is given */
	struct cli_given given[CLI_MAX_GIVEN]; /* the others, in the order of the command line */
	int given_count;
	const char *socket, *device;
	int timeout_ms; /* 0: the library's */
	bool json, help, version;
	unsigned connect_flags;  /* KILN_CONNECT_* besides */
	int autostart;           /* -1: not said */
	struct cli_check *check; /* the daemon that --check started; NULL: none */
};

extern const struct cli_command cli_commands[];
const struct cli_command *cli_find(const char *first, const char *second);

/* ---- Arguments (args.c).  Those that return int print a sentence and return CLI_USAGE. ----
 */

extern const struct cli_option cli_global_options[];
int cli_parse(int argc, char **argv, struct cli *cli);
/* The option's value; "" for a flag or a left-out value; NULL when it was not given. */
const char *cli_value(const struct cli *cli, const char *option);
/* The next value of an option that may come more than once, from *at on, which begins with 0 and
 * is moved on; NULL at the end. */
const char *cli_next(const struct cli *cli, const char *option, int *at);
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* name is how the value is called in messages: "--shape", "BYTES". */
/* "2x3x4", "2,3,4", "" and "scalar" (rank 0) */
int cli_dims(const char *name, const char *text, int64_t *values, int *count);
/* "1,0": each of 0..count-1 once */
int cli_perm(const char *name, const char *text, int64_t *values, int *count);
int cli_dtype(const char *name, const char *text, kiln_dtype *dtype);
/* "4096", "64K", "1.5G", "2MiB" */
int cli_bytes(const char *name, const char *text, uint64_t *bytes);
int cli_integer(const char *name, const char *text, int64_t least, int64_t most, int64_t *value);
int cli_real(const char *name, const char *text, double *value);
/* "90s", "15m", "12h", "30d", "2w", in seconds */
int cli_age(const char *name, const char *text, int64_t *seconds);
/* "30", "30s", "500ms", in milliseconds */
int cli_time(const char *name, const char *text, int *milliseconds);

/* "f32:2.5": the number as its type has it, in the first bytes (scalar.c) */
int cli_scalar(const char *name, const char *text, kiln_dtype *dtype, uint8_t value[8]);

/* ---- Talking to the daemon (main.c).  They print what failed and return CLI_FAILED. ---- */

int cli_connect(struct cli *cli, kiln_client **client);
/* The device that it asks for. */
const char *cli_device(const struct cli *cli);
int cli_request(struct cli *cli, const char *request, const kiln_attr *args, int count,
				kiln_reply **reply);
/* Prints "kiln: what: sentence of the library" and the compiler's log, if there is one, on stderr;
 * with --json the same as an object on standard output. */
int cli_failed(const struct cli *cli, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The same for what failed in the command itself: "kiln: sentence". */
int cli_failed_here(const struct cli *cli, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* After kiln_wait() or kiln_wait_time(), where KILN_EAGAIN is the end of --timeout. */
int cli_failed_wait(const struct cli *cli, int status, int timeout_ms, const char *what);
/* With --json prints the reply and returns true. */
bool cli_json(const struct cli *cli, kiln_reply *reply);

kiln_attr cli_attr_int(const char *name, int64_t value);
kiln_attr cli_attr_string(const char *name, const char *value);

/* ---- Checking (check.c) ---- */

#define CLI_CHECK_OPTIONS                                                                    \
	{"check", NULL, "check every access to memory, on device cpu, by a daemon of its own"},  \
	{                                                                                        \
		"order", "ORDER", "with --check: threads run in natural, reversed or shuffled order" \
	}
/* Before a command: whether --check and --order go with the rest, and what follows from them. */
int check_settle(struct cli *cli);
/* With --check starts the daemon that cli_connect then connects to, once. */
int check_open(struct cli *cli);
void check_close(struct cli *cli);
/* With --check the line, or members, that a report of success ends with. */
void check_print(const struct cli *cli, kiln_client *client);
void check_print_json(const struct cli *cli, kiln_client *client);

/* ---- Data (data.c) ---- */

/* The next number of a stream that its seed, the first state, determines. */
uint64_t data_next(uint64_t *state);
/* The element at this address of a real type, or of one that masks have. */
double data_real(kiln_dtype dtype, const void *at);
/* Random values of a type: reals about normal, of others any that are valid. */
void data_random(kiln_dtype dtype, void *data, uint64_t bytes, uint64_t seed);
/* Whether two results may both be right: every bit, or for real types within a loose bound. */
bool data_close(kiln_dtype dtype, const void *a, const void *b, uint64_t bytes);

/* ---- Times (time.c) ---- */

#define TIME_CALLS 100 /* with --time, or as many as TIME_ENOUGH_US are enough for */
#define TIME_ENOUGH_US 10e6

double time_us(void); /* since some moment */
void time_sort(double *times, int64_t count);

/* ---- Standard output and error (sink.c) ---- */

/* From here on nothing that is printed steers the terminal; false: no memory. */
bool sink_begin(void);
/* Writes what is left of standard output; false: it cannot be written. */
bool sink_end(void);
/* For an object's bytes, and for lines of progress: these pass as they are. */
FILE *sink_bytes(void);
FILE *sink_terminal(void);

/* ---- Printing (table.c) ---- */

/* A table is filled cell by cell and printed with aligned columns; the last is never padded. */
struct table {
	const char *const *headers; /* NULL: none; a header that starts with '>' aligns to the right */
	int columns;
	char **cells;
	size_t count, capacity;
};
void table_begin(struct table *table, const char *const *headers, int columns);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints and frees; table_end on standard output. */
void table_print(struct table *table, FILE *out);
void table_end(struct table *table);
/* "name            value" */
void print_pair(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Room for any of the figures below. */
#define FIGURE_MAX 32
const char *figure_bytes(uint64_t bytes, char text[FIGURE_MAX]); /* "64.0 MiB", "512 B" */
const char *figure_micros(double micros, char text[FIGURE_MAX]); /* "12.3 us", "4.56 ms" */
const char *figure_ago(int64_t seconds, char text[FIGURE_MAX]);  /* "5 s", "3 h", "12 d" */
const char *figure_known(int64_t value, const char *unit,
						 char text[FIGURE_MAX]); /* "unknown" < 0 */
/* "2x3x4"; "scalar" */
const char *figure_dims(const int64_t *values, int count, char *text, size_t size);

/* A JSON object of the command's own, one member after the other.  A list's members are objects. */
void json_begin(void);
void json_list_begin(const char *name);
void json_list_end(void);
void json_item_begin(void);
void json_item_end(void);
void json_string(const char *name, const char *value);
void json_int(const char *name, int64_t value);
void json_real(const char *name, double value);   /* with three decimals */
void json_number(const char *name, double value); /* with 15 digits */
void json_ints(const char *name, const int64_t *values, int count);
void json_end(void);

#define CLI_SHORT_KEY 12 /* digits of a key in a list: enough to name it */

/* ---- What explain and compile answer, of operators and of users' kernels ---- */

/* Prints the reply and frees it; CLI_OK. */
int explain_answer(const struct cli *cli, kiln_reply *reply); /* explain.c */
int compile_answer(const struct cli *cli, kiln_reply *reply);
void why_print(const kiln_reply *reply); /* why.c */

/* ---- Handlers ---- */

int cli_help(struct cli *cli);
/* --help: of the command given, or of all. */
int cli_help_command(struct cli *cli);
int cli_status(struct cli *cli);
int cli_top(struct cli *cli);
int cli_devices(struct cli *cli);
int cli_ops(struct cli *cli);
int cli_stop(struct cli *cli);
int cli_run(struct cli *cli);
int cli_run_raw(struct cli *cli);
int cli_run_map(struct cli *cli);
int cli_explain(struct cli *cli);
int cli_compile(struct cli *cli);
int cli_explain_raw(struct cli *cli);
int cli_compile_raw(struct cli *cli);
int cli_cache_ls(struct cli *cli);
int cli_cache_show(struct cli *cli);
int cli_cache_retry(struct cli *cli);
int cli_cache_get(struct cli *cli);
int cli_cache_verify(struct cli *cli);
int cli_cache_trim(struct cli *cli);
int cli_cache_clear(struct cli *cli);
int cli_cache_pin(struct cli *cli);
int cli_cache_unpin(struct cli *cli);
int cli_cache_table(struct cli *cli);
int cli_bugreport(struct cli *cli);
int cli_cache_export(struct cli *cli);
int cli_cache_import(struct cli *cli);
int cli_tune(struct cli *cli);
int cli_record(struct cli *cli);
int cli_warm(struct cli *cli);
int cli_key_ls(struct cli *cli);
int cli_key_new(struct cli *cli);
int cli_key_show(struct cli *cli);
int cli_key_trust(struct cli *cli);
int cli_key_distrust(struct cli *cli);
int cli_faults_ls(struct cli *cli);
int cli_faults_show(struct cli *cli);
int cli_debug(struct cli *cli);
int cli_debug_waits(struct cli *cli);

#endif
