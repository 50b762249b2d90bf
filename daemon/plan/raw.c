/*
 * raw.c: the plan of a user's kernel, which is hardly one: nothing is known but its names.
 */
#include "client/wire/plain.h"
#include "internal.h"

#include <string.h>

int plan_raw(const char *source, const char *entry, struct kernel_plan *out,
			 char error[KERNEL_ERROR_MAX])
{
	memset(out, 0, sizeof(*out));
	if (strlen(source) >= sizeof(out->source))
		return plan_refuse(error, KILN_EINVAL,
						   "the name of a source has at most %zu bytes: \"%.*s\"",
						   sizeof(out->source) - 1, PLAIN_CUT(source, 80));
	if (entry[0] == 0 || strlen(entry) >= sizeof(out->instantiation))
		return plan_refuse(error, KILN_EINVAL,
						   "the entry of a kernel has 1 to %zu bytes, and this one %zu",
						   sizeof(out->instantiation) - 1, strlen(entry));
	out->kind = KERNEL_LAUNCH;
	memcpy(out->op, "raw", sizeof("raw"));
	memcpy(out->variant, "raw", sizeof("raw"));
	memcpy(out->source, source, strlen(source) + 1);
	memcpy(out->instantiation, entry, strlen(entry) + 1);
	memcpy(out->note, "as it was sent", sizeof("as it was sent"));
	return KILN_OK;
}
