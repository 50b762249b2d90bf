/*
 * member.c: members of a reply by a path that printf() makes.
 */
#include "member.h"

#include <stdarg.h>
#include <stdio.h>

#define PATH_CHARS 128

#define DEFINE_MEMBER(type, name, read)                       \
	type name(const kiln_reply *reply, const char *path, ...) \
	{                                                         \
		char text[PATH_CHARS];                                \
		va_list list;                                         \
		va_start(list, path);                                 \
		vsnprintf(text, sizeof(text), path, list);            \
		va_end(list);                                         \
		return read(reply, text);                             \
	}

DEFINE_MEMBER(const char *, member_str, kiln_reply_str)
DEFINE_MEMBER(int64_t, member_int, kiln_reply_int)
DEFINE_MEMBER(double, member_real, kiln_reply_real)
DEFINE_MEMBER(int, member_count, kiln_reply_count)
DEFINE_MEMBER(bool, member_has, kiln_reply_has)
