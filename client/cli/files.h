/*
 * files.h: operands that come from and go to NumPy's files, for every command with --in NAME=FILE,
 * --out NAME=FILE and --dtype NAME=TYPE.  The caller, who looks a file up by its operand's name,
 * decides whether the file fits.
 *
 * Functions that return int print a sentence and return CLI_USAGE or CLI_FAILED if something is
 * wrong.
 */
#ifndef KILN_CLI_FILES_H
#define KILN_CLI_FILES_H

#include "cli.h"
#include "npy.h"

struct file {
	char name[32]; /* the operand's */
	const char *path;
	struct npy array; /* --in: the contents; data is malloc'd, and may be taken (set it to NULL) */
};

struct files {
	struct file in[KILN_MAX_OPERANDS], out[KILN_MAX_OPERANDS];
	int in_count, out_count; /* in the order of the command line */
};

/* Reads all that --in names, and notes what --out names. */
int files_read(const struct cli *cli, struct files *files);
/* Reads --dtype NAME=TYPE, each for a file of --in. */
int files_read_dtypes(const struct cli *cli, struct files *files);
void files_free(struct files *files);

/* The file of an operand, or NULL; files may be NULL. */
struct file *files_in(struct files *files, const char *operand);
struct file *files_out(struct files *files, const char *operand);

/* The file's array as a tensor: row-major, at the beginning of a buffer. */
kiln_tensor files_tensor(const struct file *file);
/* Check that an option says what the file does.  A file cannot say that its u16 are bf16, or its u8
 * floats: there the option wins. */
int files_check_shape(const struct file *file, const char *option, const char *text);
int files_check_dtype(struct file *file, const char *option, const char *text);

/* Read or write one array of any path. */
int files_load(const struct cli *cli, const char *path, struct npy *array);
int files_store(const struct cli *cli, const char *path, const struct npy *array);
/* Writes a contiguous operand; data: where its buffer begins. */
int files_write(const struct cli *cli, const struct file *file, const kiln_tensor *tensor,
				void *data);

#endif
