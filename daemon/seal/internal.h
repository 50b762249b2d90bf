/*
 * internal.h: declarations that the files of this room share.  seal.c makes and checks seals,
 * keys.c knows the file of a key, ring.c directories of them.  No other file includes this.
 */
#ifndef KILN_DAEMON_SEAL_INTERNAL_H
#define KILN_DAEMON_SEAL_INTERNAL_H

#include "daemon/base/util.h"
#include "seal.h"

#include <limits.h>

/* Writes a sentence into the caller's error; the value is the status. */
#define FAIL(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

#define SEAL_ID_BYTES 8
#define SEAL_MOST_KEYS 1024 /* in a directory */

struct seal_ring {
	struct seal_key *keys;
	int count, capacity;
	char passed[KERNEL_ERROR_MAX]; /* why the last file was passed over; "": none was */
};

void seal_id_bytes(const unsigned char public[32], unsigned char id[SEAL_ID_BYTES]);

/* ---- keys.c.  A function that returns a failure has put a sentence into error. ---- */

bool seal_is_name(const char *name);
/* Writes the path of a key's file.  ending: ".key", ".pub". */
int seal_path_of(const char *directory, const char *name, const char *ending, char path[PATH_MAX],
				 char error[KERNEL_ERROR_MAX]);
/* Checks a directory of keys, and each directory above it: a user who can rename one of them can
 * put another in its place. */
int seal_check_place(const char *directory, char error[KERNEL_ERROR_MAX]);
int seal_make_directory(const char *directory, char error[KERNEL_ERROR_MAX]);
/* Writes a new file with this line, as a whole or not at all; KILN_EBUSY: there is one. */
int seal_write_file(const char *path, const char *line, unsigned mode,
					char error[KERNEL_ERROR_MAX]);
int seal_read_secret(const char *path, const char *name, struct seal_secret *out,
					 char error[KERNEL_ERROR_MAX]);
int seal_read_public(const char *path, const char *name, struct seal_key *out,
					 char error[KERNEL_ERROR_MAX]);

#endif
