/*
 * bugreport.h: a directory of files that a user may send: between bugreport.c (of a
 * kernel), bugreport_all.c (of the daemon) and what both do (bugreport_files.c).
 */
#ifndef KILN_CLI_BUGREPORT_H
#define KILN_CLI_BUGREPORT_H

#include <limits.h>
#include <stdio.h>

#include "client/cli/cli.h"

#define BUGREPORT_PREFIXES 32 /* directories that are cut off */
#define BUGREPORT_FILES 96

struct bugreport {
	const struct cli *cli;
	char directory[PATH_MAX];
	char *prefixes[BUGREPORT_PREFIXES];
	int prefix_count;
	char *files[BUGREPORT_FILES];
	int file_count;
	bool cut; /* something was */
};

/* Makes the directory, that of --output or else name; and knows the user's home.  CLI_OK, or
 * CLI_FAILED with a sentence. */
int bugreport_begin(struct bugreport *report, const struct cli *cli, const char *name);
/* Says what was made, or where status says that it failed removes it; status. */
int bugreport_end(struct bugreport *report, int status, const char *key);
/* A directory that is nobody's business. */
void bugreport_hide(struct bugreport *report, const char *text, size_t length);

/* One file: NULL where it cannot be made, which bugreport_close() says. */
FILE *bugreport_open(struct bugreport *report, const char *name);
int bugreport_close(const struct bugreport *report, FILE *file);
/* Writes the text without what is to be hidden. */
void bugreport_write(struct bugreport *report, const char *text, FILE *file);
int bugreport_put(struct bugreport *report, const char *name, const char *text);

/* bugreport_all.c: without a KEY. */
int bugreport_all(struct cli *cli);

/* A program in C that compiles a unit as kilnd does, by libnvrtc; needs no header of CUDA. */
extern const char bugreport_nvrtc[];

#endif
