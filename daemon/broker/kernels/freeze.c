/* freeze.c: the words of --on-miss, and the sentences of refused requests. */
#include "freeze.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"
#include "daemon/broker/requests/session.h"
#include "daemon/base/util.h"

const char *const freeze_names[] = {"compile", "warn", "fallback", "error"};

bool freeze_parse(const char *word, enum options_miss *out)
{
	for (int i = 0; i <= OPTIONS_MISS_ERROR; i++)
		if (!strcmp(word ? word : freeze_names[0], freeze_names[i])) {
			*out = (enum options_miss)i;
			return true;
		}
	return false;
}

bool freeze_refuses(const struct job_terms *terms)
{
	return terms->on_miss >= OPTIONS_MISS_FALLBACK;
}

static const char *name(const struct kernel_ref *ref, char label[160])
{
	return ref->raw ? raw_label(&ref->plan, label) : ref->plan.op;
}

/* The command that makes the kernel; the caller frees it.  It names the asker's device, for the
 * plan may depend on the device's limits and tuned winners; without a device it names the
 * target. */
static char *command(const struct kernel_ref *ref, const struct job_terms *terms)
{
	const struct device_info *device = terms->device;
	bool own = device && !strcmp(device->limits.target, ref->target);
	struct util_text text = {0};
	util_text_add(&text, "%s --%s %s", ref->line ? ref->line : "kiln compile",
				  own ? "device" : "target", own ? device->name : ref->target);
	return text.text;
}

char *freeze_sentence(const struct kernel_ref *ref, const struct job_terms *terms,
					  char error[JOB_ERROR_MAX])
{
	char label[160];
	int used = snprintf(error, JOB_ERROR_MAX,
						"%s for %s is not in the cache (key %.12s), and with on-miss %s no call "
						"has anything compiled; ",
						name(ref, label), ref->target, ref->key, freeze_names[terms->on_miss]);
	size_t room = JOB_ERROR_MAX - (size_t)used;
	char *line = command(ref, terms);
	/* libkiln has the same limit. */
	if (snprintf(error + used, room, "this makes it: %s", line ? line : "") < (int)room) {
		free(line);
		return NULL;
	}
	snprintf(error + used, room, "the log has the command that makes it");
	return line;
}

void freeze_warn(const struct kernel_ref *ref, const struct job_terms *terms)
{
	const struct session *session = terms->asker;
	char label[160], who[64] = "a call that was made ready before";
	char *line = command(ref, terms);
	if (session)
		snprintf(who, sizeof(who), "session %llu (pid %d)", (unsigned long long)session->id,
				 session->pid);
	util_log(UTIL_WARN, "%s has %s for %s compiled (key %.12s): %s", who, name(ref, label),
			 ref->target, ref->key, line ? line : "");
	free(line);
}
