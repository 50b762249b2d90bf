/*
 * failed_keys: compiles that failed are answers, too.  The cache keeps each under its key, and the
 * next session that asks for the key gets it.  A failure is forgotten when `kiln cache retry` says
 * so; another source, option or compiler makes another key.
 */
#ifndef KILN_DAEMON_FAILED_KEYS_H
#define KILN_DAEMON_FAILED_KEYS_H

#include "job.h"

/*
 * Keeps a failure, unless it says nothing about the key.  Appends to the log until when it is kept,
 * so that all waiters read the same.  Errors of the source and crashes of the compiler are kept for
 * ever; a lack of time or of memory is kept retry_after_seconds long.
 */
void failed_keys_keep(struct broker *broker, struct kernel_ref *ref, const char *key,
					  const char *key_text, struct compile_result *result);

#endif
