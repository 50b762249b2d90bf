/*
 * error.h: this thread's message, which kiln_errmsg() and kiln_errlog() return.
 */
#ifndef KILN_CLIENT_ERROR_H
#define KILN_CLIENT_ERROR_H

#include <kiln/kiln.h>
#include <stddef.h>

#define ERROR_MAX 640 /* bytes of a message */

/* Sets the message and returns status. */
int error_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, with the daemon's sentence (NULL: the status's general text) and log (NULL: none). */
int error_set_peer(int status, const char *sentence, const char *log);
/* Checks a structure whose first member is its size.  EINVAL with a message if it has bytes beyond
 * `known` that are not zero: the program wants what this library lacks. */
int error_if_newer(const void *given, size_t known, const char *name);

#endif
