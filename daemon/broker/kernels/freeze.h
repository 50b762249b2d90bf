/*
 * freeze: what a miss may cost: sessions, and whole daemons, for which nothing may be compiled
 * while programs wait.  Explicit requests of the daemon's owner to compile are no misses.
 */
#ifndef KILN_DAEMON_FREEZE_H
#define KILN_DAEMON_FREEZE_H

#include "job.h"

/* "compile", "warn", "fallback", "error", or NULL for compile.  False: it is none of them. */
bool freeze_parse(const char *word, enum options_miss *out);
extern const char *const freeze_names[];

/* Whether whoever asks on these terms may not have a kernel compiled. */
bool freeze_refuses(const struct job_terms *terms);
/*
 * The sentence for that: which kernel, which rule, and the command that makes it.  Returns the log
 * that goes with it, malloc'd: the command, where the sentence has no room for it; else NULL.
 */
char *freeze_sentence(const struct kernel_ref *ref, const struct job_terms *terms,
					  char error[JOB_ERROR_MAX]);
/* The line in the daemon's log for a compile that somebody wants to hear of. */
void freeze_warn(const struct kernel_ref *ref, const struct job_terms *terms);

#endif
