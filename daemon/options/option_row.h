/*
 * option_row.h: a row of the table of options: options_table.c holds the table, options.c reads by
 * it, options_value.c reads and writes one value.  Only the files of this room include it.
 */
#ifndef KILN_DAEMON_OPTION_ROW_H
#define KILN_DAEMON_OPTION_ROW_H

#include "options.h"

/* Writes a sentence into the caller's error; the value is the status. */
#define FAIL(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

enum option_kind {
	OPTION_FLAG,
	OPTION_NUMBER,
	OPTION_BYTES,
	OPTION_PATH,
	OPTION_SOCKET_PATH,
	OPTION_WORD,
	OPTION_DEVICES,
	OPTION_DEVICE,
	OPTION_UIDS,
	OPTION_GIDS,
	OPTION_KEY,
	OPTION_REMOTE,
	OPTION_DESCRIPTOR,
	OPTION_SHOW,
	OPTION_MEMCHECK, /* a flag that may have a word behind "=" */
	OPTION_METRICS,  /* a flag that may have an address behind "=" */
};

struct option_row {
	const char *name;
	const char *environment; /* NULL: arguments only */
	const char *value;       /* name of the value in the help; of a WORD all words, '|' between */
	const char *fallback;    /* default as text, read as any value; NULL: see help */
	enum option_kind kind;
	uint64_t low, high; /* NUMBER, BYTES */
	const char *zero;   /* NUMBER, BYTES: meaning of 0 where it is allowed below low */
	size_t offset;      /* of the field in struct options */
	const char *unit;   /* of a limit; NULL: no limit */
	const char *help;   /* NULL: not shown */
	const char *gone;   /* sentence that refuses an option that is gone; NULL: it is there */
};

extern const struct option_row options_table[];
extern const int options_rows;
/* Finds the row of a name without "--"; NULL: there is none. */
const struct option_row *options_find(const char *name, size_t size);
/* A flag, or an option whose value may stand behind "=". */
bool option_is_flag(const struct option_row *row);
bool option_takes_value(const struct option_row *row);

/* Reads text as the row says into its field of out.  given names the option as the user did:
 * "--fd", "KILN_WORKERS".  KILN_OK, or KILN_EINVAL with a sentence. */
int option_read(const struct option_row *row, const char *given, const char *text,
				struct options *out, char error[KERNEL_ERROR_MAX]);
/* Adds the value of a row as a user might give it, without secrets. */
void option_write(const struct option_row *row, const struct options *options,
				  struct util_text *text);
/* Writes the range of a row of kind NUMBER or BYTES. */
void option_range(const struct option_row *row, char low[24], char high[24]);

#endif
