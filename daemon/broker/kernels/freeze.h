/*
 * freeze: --on-miss: a session, or the whole daemon, may have nothing compiled while programs wait.
 * An explicit request of the daemon's owner to compile is no miss.
 */
#ifndef KILN_DAEMON_FREEZE_H
#define KILN_DAEMON_FREEZE_H

#include "job.h"

/* Reads "compile", "warn", "fallback", "error", or NULL for compile; false for another word. */
bool freeze_parse(const char *word, enum options_miss *out);
extern const char *const freeze_names[];

/* Says whether these terms forbid a compile. */
bool freeze_refuses(const struct job_terms *terms);
/*
 * Writes the sentence of a refusal: the kernel, the rule, and the command that makes the kernel.
 * Returns the command as the log of the answer where the sentence has no room for it, else NULL;
 * the caller frees it.
 */
char *freeze_sentence(const struct kernel_ref *ref, const struct job_terms *terms,
					  char error[JOB_ERROR_MAX]);
/* Logs a compile for terms with --on-miss warn. */
void freeze_warn(const struct kernel_ref *ref, const struct job_terms *terms);

#endif
