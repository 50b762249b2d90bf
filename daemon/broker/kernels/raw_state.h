/* raw_state: what raw.c and raw_texts.c share of a user's source. */
#ifndef KILN_DAEMON_RAW_STATE_H
#define KILN_DAEMON_RAW_STATE_H

#include "daemon/base/util.h"
#include "daemon/broker/requests/session.h"
#include "raw.h"

#define ERROR(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

struct raw_source {
	int fd;     /* the client's memfd with the texts; -1: none */
	int sealed; /* a copy of long texts that nobody can change; -1: none */
	uint64_t bytes;
	uint64_t kept; /* what it takes besides its texts, about: names, values, hashes, the key */
	struct raw_budget *budget; /* of its session; NULL: it was refused */
	char *texts;               /* source and headers, one after another; NULL: in sealed, or gone */
	bool gone;
	int first; /* index of the source among the job's files; its headers follow */
	int own;   /* how many they are */
	char (*hashes)[UTIL_HASH_HEX];
	struct compile_macro macros[COMPILE_MAX_MACROS];
	const char *options[COMPILE_MAX_USER_OPTIONS];
	int standard; /* how many of the job's files, at the end, come with kilnd */
	int string_count;
	char *strings[]; /* room for the names of all headers, macros, options and of the source */
};

/* ---- raw_texts.c ---- */

/* Takes the memfd that came with the session's message, which has to have so many bytes, and counts
 * them, with source->kept, for the session. */
int raw_take_texts(struct session *session, uint64_t bytes, struct raw_source *source,
				   char error[KERNEL_ERROR_MAX]);
/* The rest may run on any thread. */
int raw_read_texts(struct raw_source *source, char error[KERNEL_ERROR_MAX]);
int raw_hash_texts(struct kernel_ref *ref, char error[KERNEL_ERROR_MAX]);
/* Moves long texts to where compilers take them from. */
int raw_put_aside(struct kernel_ref *ref, char error[KERNEL_ERROR_MAX]);

#endif
