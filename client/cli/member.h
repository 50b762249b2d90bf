/*
 * member.h: members of a daemon's reply by a path that printf() makes:
 * member_int(reply, "rows[%d].hits", i).  A text belongs to the reply.
 */
#ifndef KILN_CLI_MEMBER_H
#define KILN_CLI_MEMBER_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stdint.h>

#define MEMBER_FORMAT __attribute__((format(printf, 2, 3)))
MEMBER_FORMAT const char *member_str(const kiln_reply *reply, const char *path, ...);
MEMBER_FORMAT int64_t member_int(const kiln_reply *reply, const char *path, ...);
MEMBER_FORMAT double member_real(const kiln_reply *reply, const char *path, ...);
MEMBER_FORMAT int member_count(const kiln_reply *reply, const char *path, ...);
MEMBER_FORMAT bool member_has(const kiln_reply *reply, const char *path, ...);

#endif
