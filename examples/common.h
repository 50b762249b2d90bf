/*
 * common.h: what the examples that time something share: numbers to work on, arrays there and back,
 * and the time of a call beside the time of a copy.  Any failure ends the program with one
 * sentence and status 1.
 */
#ifndef KILN_EXAMPLES_COMMON_H
#define KILN_EXAMPLES_COMMON_H

#include <kiln/kiln.h>
#include <kiln/ops.h>

#include <stddef.h>
#include <stdint.h>

/* A call that is ready to run: an operator with its operands, or a kernel of one's own. */
struct step {
	kiln_call *call;
	kiln_operand operands[KILN_MAX_OPERANDS];
	int count;
	const kiln_launch *launch; /* NULL: an operator */
};

/* Microseconds: on the device, by its own clock, and until the program has the answer. */
struct took {
	double device, wall;
};

/* Connects; starts a daemon if none answers.  The one argument a program may have is --small, for
 * machines without a GPU. */
kiln_client *begin(int argc, char **argv, int *small);

/* Ends the program if this is not KILN_OK. */
void must(int status);

/* Ends the program if got is further than this from want, or is no number. */
void expect(double got, double want, double tolerance, const char *what, int64_t at);

/* Number i of a random sequence, the same every time: uniform in -1 .. 1. */
double random_at(uint64_t i);

/* Host memory with zeros in it, for free(). */
void *host(size_t bytes);

/* Memory held by the daemon; with these bytes in it, or zeros where source is NULL. */
kiln_buffer *device(kiln_client *client, const char *name, const void *source, size_t bytes);

/* All that a buffer holds, for free(). */
void *fetch(kiln_buffer *buffer);

/* Fills a buffer with NaN, whatever its type: what is found there later has been written since. */
void spoil(kiln_buffer *buffer);

/* Plans and compiles, for these tensors in these buffers. */
struct step prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int count,
					const kiln_attr *attrs, int attr_count);

/* Compiles a kernel of one's own; launch must live as long as the step. */
struct step prepare_raw(kiln_client *client, const char *source, const char *entry,
						const kiln_launch *launch);

/* Runs the steps in order, once. */
struct took run(kiln_client *client, const struct step *steps, int count);

/* The mean of many runs, after one that is not counted. */
struct took measure(kiln_client *client, const struct step *steps, int count);

/* The same, of a copy that reads and writes this many bytes together: permute with the identity. */
struct took measure_copy(kiln_client *client, size_t moved);

/* A table: its head, and a row: a time, that of the copy, and how many copies the first is. */
void print_head(const kiln_client *client, const char *what);
void print_row(const char *name, struct took took, struct took copy);

#endif
