/*
 * files.h: operands that come from NumPy's files and go to them, for every command that has
 * the options --in NAME=FILE, --out NAME=FILE and --dtype NAME=TYPE.  What an operand may be is not
 * known here: whoever looks a file up by the operand's name says whether it fits.
 *
 * What returns int prints a sentence and returns CLI_USAGE or CLI_FAILED if something is wrong.
 */
#ifndef KILN_CLI_FILES_H
#define KILN_CLI_FILES_H

#include "cli.h"
#include "npy.h"

struct file {
	char name[32]; /* of the operand */
	const char *path;
	struct npy array; /* --in: what it holds; data is malloc'd, and may be taken (set it to NULL) */
};

struct files {
	struct file in[KILN_MAX_OPERANDS], out[KILN_MAX_OPERANDS];
	int in_count, out_count; /* in the order of the command line */
};

/* Reads all that --in names, and notes what --out names. */
int files_read(const struct cli *cli, struct files *files);
/* What --dtype NAME=TYPE says, each of a file of --in. */
int files_read_dtypes(const struct cli *cli, struct files *files);
void files_free(struct files *files);

/* The file of an operand, or NULL; files may be NULL. */
struct file *files_in(struct files *files, const char *operand);
struct file *files_out(struct files *files, const char *operand);

/* The file's array as a tensor: row-major, from the beginning of a buffer. */
kiln_tensor files_tensor(const struct file *file);
/* An option that gives a shape or an element type must say what the file does.  The one thing that
 * a file cannot say is that its u16 are bf16: then the option wins. */
int files_check_shape(const struct file *file, const char *option, const char *text);
int files_check_dtype(struct file *file, const char *option, const char *text);

/* One array from or to a file, whatever it is called on the command line. */
int files_load(const struct cli *cli, const char *path, struct npy *array);
int files_store(const struct cli *cli, const char *path, const struct npy *array);
/* Writes an operand that is contiguous; data is where its buffer begins. */
int files_write(const struct cli *cli, const struct file *file, const kiln_tensor *tensor,
				void *data);

#endif
