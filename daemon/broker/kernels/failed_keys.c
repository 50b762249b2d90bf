/* failed_keys.c: chooses which failures of compiles the cache remembers, and for how long. */
#include "failed_keys.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

#define LOG_MOST ((size_t)128 << 10)
#define SOURCE_MOST ((size_t)512 << 10)   /* of the unit */
#define KEY_TEXT_MOST ((size_t)128 << 10) /* a user's names and macros may be longer */

struct keeping {
	struct cache_failure failure;
	int status;
	char error[KERNEL_ERROR_MAX];
};

static void keep_work(struct cache *cache, void *arg)
{
	struct keeping *keeping = arg;
	keeping->status = cache_failure_put(cache, &keeping->failure, keeping->error);
}

static void keep_free(struct keeping *keeping)
{
	cache_failure_free(&keeping->failure);
	free(keeping);
}

static void keep_done(struct broker *broker, void *arg)
{
	struct keeping *keeping = arg;
	(void)broker;
	/* The next session that asks for the key has it compiled once more. */
	if (keeping->status != KILN_OK)
		util_log(UTIL_WARN, "the failure of kernel %.12s is not remembered: %s",
				 keeping->failure.row.key, keeping->error);
	keep_free(keeping);
}

/* Returns 0 for ever, -1 for not at all. */
static int64_t seconds_for(const struct broker *broker, const struct compile_result *result)
{
	int64_t a_while = (int64_t)broker->options.retry_after_seconds;
	bool lasting = result->status == KILN_ECOMPILE && !result->maybe_external;
	bool kept = result->status == KILN_ECOMPILE || result->status == KILN_ETIMEDOUT ||
				result->status == KILN_ENOMEM;
	if (lasting)
		return 0;
	return kept && a_while ? a_while : -1;
}

/* Cuts the log and appends until when the failure is kept. */
static bool finish_log(const char *key, int64_t seconds, struct compile_result *result)
{
	struct util_text log = {0};
	const char *old = result->log ? result->log : "";
	size_t bytes = strnlen(old, LOG_MOST);
	char limit[32] = "";
	util_text_bytes(&log, old, bytes);
	if (old[bytes])
		util_text_add(&log, "\n(the log goes on)\n");
	else if (bytes && old[bytes - 1] != '\n')
		util_text_add(&log, "\n");
	if (seconds)
		snprintf(limit, sizeof(limit), " for %lld s", (long long)seconds);
	util_text_add(&log, "kiln: this failure is remembered%s; `kiln cache retry %.12s` forgets it\n",
				  limit, key);
	if (log.failed) {
		util_text_free(&log);
		return false;
	}
	free(result->log);
	result->log = log.text;
	return true;
}

/* The cache keeps hundreds of failures: texts that are too long are left out whole, and the key
 * stands for its text. */
static char *keep_text(const char *text, size_t most)
{
	return util_strdup(text && strlen(text) <= most ? text : "");
}

static void failed_keys_fill(struct keeping *keeping, struct kernel_ref *ref, const char *key,
							 const char *key_text, const struct compile_result *result)
{
	struct cache_failure *failure = &keeping->failure;
	struct cache_row *row = &failure->row;
	const char *source = result->source;
	char *unit = NULL;
	/* A compiler that died has returned no unit.  That of a user may be long to make, and this is
	 * the event loop: the failure is kept without it. */
	if (!source && !ref->raw && unit_make(&ref->job, &unit, keeping->error) == KILN_OK)
		source = unit;
	memcpy(row->key, key, sizeof(row->key));
	memcpy(row->op, ref->plan.op, sizeof(row->op));
	memcpy(row->target, ref->target, sizeof(row->target));
	row->instantiation = util_strdup(ref->plan.instantiation);
	row->key_text = keep_text(key_text, KEY_TEXT_MOST);
	row->source = keep_text(source, SOURCE_MOST);
	row->log = util_strdup(result->log);
	row->plan = util_strdup(kernel_text(ref));
	row->spill_bytes = row->local_bytes = -1;
	row->compile_micros = result->micros;
	row->created = row->used = util_wall_s();
	failure->status = result->status;
	memcpy(failure->error, result->error, sizeof(failure->error));
	free(unit);
}

void failed_keys_keep(struct broker *broker, struct kernel_ref *ref, const char *key,
					  const char *key_text, struct compile_result *result)
{
	int64_t seconds = seconds_for(broker, result);
	struct keeping *keeping = seconds < 0 ? NULL : calloc(1, sizeof(*keeping));
	if (!keeping)
		return;
	if (!finish_log(key, seconds, result)) {
		free(keeping);
		return;
	}
	failed_keys_fill(keeping, ref, key, key_text, result);
	if (seconds)
		keeping->failure.until = keeping->failure.row.created + seconds;
	if (store_is_crowded(broker) || store_run(broker, keep_work, keep_done, keeping) != KILN_OK)
		keep_free(keeping);
}
