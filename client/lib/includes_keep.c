/*
 * includes_keep.c: the memory of a search, which goes with it, and how a search fails.
 */
#include "error.h"
#include "includes_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kept {
	struct kept *next;
	_Alignas(16) unsigned char data[];
};

void *includes_keep(struct includes *found, size_t bytes)
{
	struct kept *kept = calloc(1, sizeof(*kept) + bytes);
	if (!kept) {
		includes_fail(found, KILN_ENOMEM, "no memory for the headers of a source");
		return NULL;
	}
	kept->next = found->kept;
	found->kept = kept;
	return kept->data;
}

const char *includes_copy(struct includes *found, const char *text, size_t bytes)
{
	char *copy = includes_keep(found, bytes + 1);
	if (copy)
		memcpy(copy, text, bytes);
	return copy;
}

int includes_fail(struct includes *found, int status, const char *format, ...)
{
	char text[ERROR_MAX];
	va_list args;
	if (found->status != KILN_OK)
		return found->status;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return found->status = error_set(status, "%s", text);
}

void includes_let_go(struct includes *found)
{
	while (found->kept) {
		struct kept *next = found->kept->next;
		free(found->kept);
		found->kept = next;
	}
}
