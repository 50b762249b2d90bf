/*
 * failed_keys: compiles that failed are answers, too: kept under their keys as kernels are, and given
 * to whoever asks again, until the key is another one (source, options, compiler) or somebody
 * forgets it (cache.retry).
 */
#ifndef KILN_DAEMON_FAILED_KEYS_H
#define KILN_DAEMON_FAILED_KEYS_H

#include "job.h"

/*
 * Keeps the failure, if it is of a kind that is kept, for the next who asks; the note of it goes to
 * the end of the log, so that all read the same.  What the source says or what kills a compiler is
 * kept for ever; what time and memory were too short for, as long as --retry-after says.
 */
void failed_keys_keep(struct broker *broker, struct kernel_ref *ref, const char *key,
					  const char *key_text, struct compile_result *result);

#endif
