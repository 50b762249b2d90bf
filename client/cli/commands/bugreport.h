/*
 * bugreport.h: a directory of files that a user may send: bugreport.c (of a kernel),
 * bugreport_all.c (of the daemon), bugreport_files.c (the directory and its files).
 */
#ifndef KILN_CLI_BUGREPORT_H
#define KILN_CLI_BUGREPORT_H

#include <limits.h>
#include <stdio.h>

#include "client/cli/cli.h"

#define BUGREPORT_PREFIXES 32 /* directories to cut off */
#define BUGREPORT_FILES 96

struct bugreport {
	const struct cli *cli;
	char directory[PATH_MAX];
	char *prefixes[BUGREPORT_PREFIXES];
	int prefix_count;
	char *files[BUGREPORT_FILES];
	int file_count;
	bool cut; /* something was cut off */
};

/* Makes the directory, --output or else name, and finds the user's home.  CLI_OK, or CLI_FAILED
 * with a sentence. */
int bugreport_begin(struct bugreport *report, const struct cli *cli, const char *name);
/* Prints what was made, or removes it if status is a failure.  Returns status. */
int bugreport_end(struct bugreport *report, int status, const char *key);
/* Adds a directory to cut off. */
void bugreport_hide(struct bugreport *report, const char *text, size_t length);

/* Opens a file; NULL if it cannot be made, which bugreport_close() reports. */
FILE *bugreport_open(struct bugreport *report, const char *name);
int bugreport_close(const struct bugreport *report, FILE *file);
/* Writes the text without the directories to cut off. */
void bugreport_write(struct bugreport *report, const char *text, FILE *file);
int bugreport_put(struct bugreport *report, const char *name, const char *text);

/* 'kiln bugreport' without a KEY (bugreport_all.c). */
int bugreport_all(struct cli *cli);

/* A program in C that compiles a unit by libnvrtc as kilnd does, without headers of CUDA. */
extern const char bugreport_nvrtc[];

#endif
