/*
 * load_cache.c: a cache as large as is wanted, without compiling for an hour: the keys and texts
 * are those that the daemon makes for these problems, so that it finds the rows; their objects are
 * one that it compiled, with random bytes behind it, which nobody reads but whoever sums them.
 */
#include "load.h"

#include "daemon/cache/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct names {
	char *key, *text, *instantiation;
};

static void names_free(struct names *names, int count)
{
	for (int i = 0; names && i < count; i++) {
		free(names[i].key);
		free(names[i].text);
		free(names[i].instantiation);
	}
	free(names);
}

static bool take_names(kiln_client *client, struct names *names, int count)
{
	kiln_reply *reply = NULL;
	kiln_tensor tensors[2];
	for (int i = 0; i < count; i++) {
		load_problem(i, NULL, tensors);
		if (kiln_explain(client, "softmax", tensors, 2, NULL, 0, NULL, &reply)) {
			runner_fail("explain", "%s", kiln_errmsg());
			return false;
		}
		names[i].key = strdup(kiln_reply_str(reply, "key"));
		names[i].text = strdup(kiln_reply_str(reply, "key_text"));
		names[i].instantiation = strdup(kiln_reply_str(reply, "plan.instantiation"));
		kiln_reply_free(reply);
		if (!names[i].key || strlen(names[i].key) != 64) {
			runner_fail("explain", "kernel %d has no key: is there a compiler?", i);
			return false;
		}
	}
	return true;
}

/* Asks a daemon for the names, and compiles number 0. */
static struct names *ask(struct own_daemon *daemon, const struct runner_options *options, int count,
						 const char *name)
{
	const char *const arguments[] = {"--device", options->device, "--specialize", "eager", NULL};
	struct names *names = calloc((size_t)count, sizeof(*names));
	kiln_reply *reply = NULL;
	kiln_tensor tensors[2];
	if (!names || !own_daemon_start(daemon, name, arguments)) {
		free(names);
		return NULL;
	}
	kiln_client *client = runner_connect(options);
	bool good = client && take_names(client, names, count);
	load_problem(0, NULL, tensors);
	if (good && kiln_compile(client, "softmax", tensors, 2, NULL, 0, NULL, &reply)) {
		runner_fail("compile", "%s", kiln_errmsg());
		good = false;
	}
	kiln_reply_free(reply);
	kiln_close(client);
	own_daemon_stop(daemon);
	if (good)
		return names;
	names_free(names, count);
	return NULL;
}

static void fill(unsigned char *bytes, size_t count, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
	for (size_t i = 0; i < count; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		bytes[i] = (unsigned char)(x >> 32);
	}
}

/* Row 0 is there already. */
static int put_rows(struct cache *cache, const struct names *names, const struct load_scale *scale,
					char error[KERNEL_ERROR_MAX])
{
	struct cache_row first, row;
	int status = cache_get(cache, names[0].key, &first, error);
	if (status != KILN_OK)
		return status;
	size_t texts = strlen(first.key_text) + strlen(first.source) + strlen(first.log);
	size_t share = (size_t)(scale->cache_bytes / (uint64_t)scale->kernels);
	size_t bytes = share > texts + first.object_bytes ? share - texts : first.object_bytes;
	unsigned char *object = calloc(1, bytes);
	if (object)
		memcpy(object, first.object, first.object_bytes);
	for (int i = 1; object && status == KILN_OK && i < scale->kernels; i++) {
		row = first;
		fill(object + first.object_bytes, bytes - first.object_bytes, (uint64_t)i);
		memcpy(row.key, names[i].key, sizeof(row.key));
		row.key_text = names[i].text;
		row.instantiation = names[i].instantiation;
		row.object = object;
		row.object_bytes = bytes;
		row.created = row.used = (int64_t)time(NULL) - scale->kernels + i;
		status = cache_put(cache, &row, error);
	}
	free(object);
	cache_row_free(&first);
	return object ? status : KILN_ENOMEM;
}

bool load_cache_make(struct own_daemon *daemon, const struct runner_options *options,
					 const struct load_scale *scale, const char *name)
{
	char directory[160], error[KERNEL_ERROR_MAX] = "";
	struct cache_options place = {.directory = directory};
	struct cache *cache = NULL;
	struct names *names = ask(daemon, options, scale->kernels, name);
	if (!names)
		return false;
	snprintf(directory, sizeof(directory), "%s/%s", daemon->directory, name);
	int status = cache_open(&place, &cache, error);
	if (status == KILN_OK) {
		status = put_rows(cache, names, scale, error);
		cache_close(cache);
	}
	if (status != KILN_OK)
		runner_fail("the cache", "%s: %s", kiln_status_name(status), error);
	names_free(names, scale->kernels);
	return status == KILN_OK;
}
