/*
 * cache_verify.c: 'kiln cache verify': has every row read and checked, and with --recompile a
 * sample compiled again and compared bit for bit.  The daemon works in pieces, so an interrupt
 * stops the work.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/data.h"
#include "client/cli/failure.h"
#include "client/cli/grow.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/member.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A bad row. */
struct finding {
	char key[65], result[16], why[512];
};

struct verifying {
	struct cli *cli;
	kiln_client *client;
	bool recompile;
	double percent;
	uint64_t seed;
	int64_t checked, bad, recompiled, skipped, differ;
	struct finding *findings;
	size_t count, capacity;
	char (*keys)[65];
	size_t key_count, key_capacity;
	bool no_memory;
};

static void cache_verify_find(struct verifying *verifying, const char *key, const char *result,
							  const char *why)
{
	struct finding *finding =
		grow(&verifying->findings, verifying->count, &verifying->capacity, sizeof(*finding));

	if (!finding) {
		verifying->no_memory = true;
		return;
	}
	snprintf(finding->key, sizeof(finding->key), "%s", key);
	snprintf(finding->result, sizeof(finding->result), "%s", result);
	snprintf(finding->why, sizeof(finding->why), "%s", why);
	verifying->count++;
}

/* ---- Report ---- */

static void cache_verify_print_json(const struct verifying *verifying)
{
	json_begin();
	json_int("checked", verifying->checked);
	json_int("bad", verifying->bad);
	if (verifying->recompile) {
		json_int("recompiled", verifying->recompiled);
		json_int("differ", verifying->differ);
		json_int("skipped", verifying->skipped);
	}
	json_list_begin("rows");
	for (size_t i = 0; i < verifying->count; i++) {
		json_item_begin();
		json_string("key", verifying->findings[i].key);
		json_string("result", verifying->findings[i].result);
		json_string("why", verifying->findings[i].why);
		json_item_end();
	}
	json_list_end();
	json_end();
}

static void print_report(const struct verifying *verifying)
{
	printf("checked %" PRId64 ", bad %" PRId64 "\n", verifying->checked, verifying->bad);
	if (verifying->recompile)
		printf("recompiled %" PRId64 ", differ %" PRId64 ", skipped %" PRId64 "\n",
			   verifying->recompiled, verifying->differ, verifying->skipped);
	for (size_t i = 0; i < verifying->count; i++)
		printf("%.*s  %s: %s\n", CLI_SHORT_KEY, verifying->findings[i].key,
			   verifying->findings[i].result, verifying->findings[i].why);
}

/* After an interrupt, says what was found by then, and ends the process as by the signal. */
static void stop_if_interrupted(const struct verifying *verifying)
{
	if (!interrupt_seen())
		return;
	progress_end(verifying->cli);
	if (verifying->cli->json)
		cache_verify_print_json(verifying);
	else
		print_report(verifying);
	interrupt_end("cache verify");
}

/* ---- Reading ---- */

static int read_all(struct verifying *verifying)
{
	kiln_attr next = cli_attr_string("next", "");
	char key[80] = "";
	bool more = true;

	while (more) {
		kiln_reply *reply;
		int status;

		next.s = key;
		status = kiln_request(verifying->client, "cache.verify", &next, 1, &reply);
		if (status)
			return cli_failed(verifying->cli, status, "cache verify");
		verifying->checked += kiln_reply_int(reply, "checked");
		verifying->bad += kiln_reply_int(reply, "bad");
		for (int i = 0; i < kiln_reply_count(reply, "rows"); i++)
			cache_verify_find(verifying, member_str(reply, "rows[%d].key", i), "bad",
							  member_str(reply, "rows[%d].why", i));
		more = kiln_reply_int(reply, "more");
		stop_if_interrupted(verifying);
		snprintf(key, sizeof(key), "%s", kiln_reply_str(reply, "next"));
		progress_print(verifying->cli, "checked %" PRId64 " of %" PRId64, verifying->checked,
					   kiln_reply_int(reply, "total") + verifying->bad);
		kiln_reply_free(reply);
	}
	return CLI_OK;
}

/* ---- Recompiling ---- */

static void take_key(const kiln_reply *reply, int row, void *arg)
{
	struct verifying *verifying = arg;
	char *key = grow(&verifying->keys, verifying->key_count, &verifying->key_capacity,
					 sizeof(*verifying->keys));

	if (!key) {
		verifying->no_memory = true;
		return;
	}
	snprintf(key, sizeof(*verifying->keys), "%s", member_str(reply, "rows[%d].key", row));
	verifying->key_count++;
}

/* Puts a random sample of so many keys first. */
static size_t choose(struct verifying *verifying)
{
	size_t all = verifying->key_count;
	size_t wanted = (size_t)ceil((double)all * verifying->percent / 100);

	for (size_t i = 0; i < wanted; i++) {
		size_t other = i + (size_t)(data_next(&verifying->seed) % (all - i));
		char key[65];
		memcpy(key, verifying->keys[i], sizeof(key));
		memcpy(verifying->keys[i], verifying->keys[other], sizeof(key));
		memcpy(verifying->keys[other], key, sizeof(key));
	}
	return wanted;
}

static void judge(struct verifying *verifying, const kiln_reply *reply)
{
	const char *result = kiln_reply_str(reply, "result");

	if (!strcmp(result, "skipped"))
		verifying->skipped++;
	else
		verifying->recompiled++;
	if (!strcmp(result, "differs") || !strcmp(result, "failed"))
		verifying->differ++;
	if (strcmp(result, "same") != 0)
		cache_verify_find(verifying, kiln_reply_str(reply, "key"), result,
						  kiln_reply_str(reply, "why"));
}

static int recompile_sample(struct verifying *verifying)
{
	size_t sample;

	if (cache_rows_each(verifying->cli, verifying->client, take_key, verifying))
		return CLI_FAILED;
	sample = choose(verifying);
	for (size_t i = 0; i < sample; i++) {
		kiln_attr key = cli_attr_string("key", verifying->keys[i]);
		kiln_reply *reply;
		int status = kiln_request(verifying->client, "cache.recompile", &key, 1, &reply);

		/* The row was trimmed meanwhile. */
		if (status == KILN_ENOENT)
			continue;
		if (status)
			return cli_failed(verifying->cli, status, "cache verify: recompiling %.*s",
							  CLI_SHORT_KEY, verifying->keys[i]);
		judge(verifying, reply);
		kiln_reply_free(reply);
		stop_if_interrupted(verifying);
		progress_print(verifying->cli, "recompiled %" PRId64 " of %" PRId64, (int64_t)i + 1,
					   (int64_t)sample);
	}
	return CLI_OK;
}

static int cache_verify_run(struct verifying *verifying)
{
	int status;

	if (cli_connect(verifying->cli, &verifying->client))
		return CLI_FAILED;
	interrupt_watch();
	status = read_all(verifying);
	if (!status && verifying->recompile)
		status = recompile_sample(verifying);
	kiln_close(verifying->client);
	progress_end(verifying->cli);
	if (!status && verifying->no_memory)
		status = cli_failed_here(verifying->cli, KILN_ENOMEM, "cache verify: out of memory");
	return status;
}

static int cli_cache_verify(struct cli *cli)
{
	const char *part = cli_value(cli, "recompile"), *seed = cli_value(cli, "seed");
	struct verifying verifying = {.cli = cli, .recompile = part != NULL};
	int64_t number = (int64_t)time(NULL) ^ ((int64_t)getpid() << 20);
	char *end;
	int status;

	verifying.percent = part ? strtod(part, &end) : 0;
	if (part && (end == part || (*end && strcmp(end, "%") != 0) || !(verifying.percent > 0) ||
				 verifying.percent > 100))
		return cli_usage("--recompile '%s': expected a part of the kernels, as 5%% or 100%%", part);
	if (seed && cli_integer("--seed", seed, 0, INT64_MAX, &number))
		return CLI_USAGE;
	if (seed && !part)
		return cli_usage("--seed chooses the sample of --recompile, which is not given");
	verifying.seed = (uint64_t)number;
	status = cache_verify_run(&verifying);
	if (!status && cli->json)
		cache_verify_print_json(&verifying);
	else if (!status)
		print_report(&verifying);
	free(verifying.findings);
	free(verifying.keys);
	return status ? status : verifying.bad || verifying.differ ? CLI_FAILED : CLI_OK;
}

/* ---- The command ---- */

static const struct cli_option verify_options[] = {
	{"recompile", "PART", "compile a sample again, as 5% of the kernels, and compare the bits"},
	{"seed", "N", "choose the sample by this number (each time another)"},
	{0},
};

static const struct cli_example cache_verify_examples[] = {
	{"kiln cache verify --recompile 5%", "and compile a sample again"}, {0}};

const struct cli_command command_cache_verify = {"cache verify",
												 cli_cache_verify,
												 "",
												 "read and check every row",
												 {0, 0},
												 verify_options,
												 .examples = cache_verify_examples};
