/*
 * values.h: the values that people write on the command line.  name is how messages call the value:
 * "--shape", "BYTES".  An error names the value and the rule.
 */
#ifndef KILN_CLI_VALUES_H
#define KILN_CLI_VALUES_H

#include "cli.h"

#include <limits.h>

/* "2x3x4", "2,3,4", "" and "scalar" (rank 0). */
int cli_dims(const char *name, const char *text, int64_t *values, int *count);
/* "1,0": each of 0..count-1 once. */
/* Axes, from the end if below 0: "0,-1". */
int cli_axes(const char *name, const char *text, int64_t *values, int *count);
int cli_perm(const char *name, const char *text, int64_t *values, int *count);
int cli_dtype(const char *name, const char *text, kiln_dtype *dtype);
/* "4096", "64K", "1.5G", "2MiB". */
int cli_bytes(const char *name, const char *text, uint64_t *bytes);
int cli_integer(const char *name, const char *text, int64_t least, int64_t most, int64_t *value);
int cli_real(const char *name, const char *text, double *value);
/* "90s", "15m", "12h", "30d", "2w". */
int cli_age(const char *name, const char *text, int64_t *seconds);
/* "30", "30s", "500ms". */
int cli_time(const char *name, const char *text, int *milliseconds);
/* Makes a path absolute for the daemon, which has another working directory.  Links stay. */
int cli_path(const char *name, const char *path, char absolute[PATH_MAX]);
/* "f32:2.5": the number in the first bytes of value, as its type has it (scalar.c). */
int cli_scalar(const char *name, const char *text, kiln_dtype *dtype, uint8_t value[8]);

#endif
