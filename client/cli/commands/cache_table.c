/*
 * cache_table.c: 'kiln cache table': registers, spills, shared memory and sizes.  Kernels of one
 * instantiation stand together, the first in full, the others with what differs, so that targets
 * and compilers can be compared.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/grow.h"
#include "client/cli/json.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTERS, SPILLS, SHARED, LOCAL, BYTES, MICROS, FIGURES };

static const struct {
	const char *member, *sort;
} figures[FIGURES] = {
	{"registers", "registers"}, {"spills", "spills"}, {"shared", "shared"},
	{"local", "local"},         {"bytes", "bytes"},   {"compile_micros", "time"},
};

struct entry {
	char key[65], op[24], target[16], compiler[96];
	char *instantiation;
	int64_t figures[FIGURES]; /* -1: not known */
	int64_t rank;             /* largest value of its instantiation, which the table is sorted by */
	size_t group, in_group;
};

struct listing {
	struct cli *cli;
	struct entry *entries;
	size_t count, capacity;
	bool no_memory;
};

/* ---- Gathering ---- */

static bool is_wanted(const struct listing *listing, const struct entry *entry)
{
	const char *op = cli_value(listing->cli, "op"), *target = cli_value(listing->cli, "target");
	const char *compiler = cli_value(listing->cli, "compiler");

	return (!op || !strcmp(op, entry->op)) && (!target || !strcmp(target, entry->target)) &&
		   (!compiler || strstr(entry->compiler, compiler));
}

static void cache_table_take(const kiln_reply *reply, int row, void *arg)
{
	struct listing *listing = arg;
	struct entry *entry =
		grow(&listing->entries, listing->count, &listing->capacity, sizeof(*entry));

	if (!entry) {
		listing->no_memory = true;
		return;
	}
	*entry = (struct entry){.rank = -1};
	snprintf(entry->key, sizeof(entry->key), "%s", member_str(reply, "rows[%d].key", row));
	snprintf(entry->op, sizeof(entry->op), "%s", member_str(reply, "rows[%d].op", row));
	snprintf(entry->target, sizeof(entry->target), "%s", member_str(reply, "rows[%d].target", row));
	snprintf(entry->compiler, sizeof(entry->compiler), "%s",
			 member_str(reply, "rows[%d].compiler", row));
	for (int i = 0; i < FIGURES; i++)
		entry->figures[i] = member_int(reply, "rows[%d].%s", row, figures[i].member);
	if (!is_wanted(listing, entry))
		return;
	entry->instantiation = strdup(member_str(reply, "rows[%d].instantiation", row));
	listing->no_memory |= !entry->instantiation;
	listing->count += entry->instantiation != NULL;
}

/* ---- Order ---- */

static int by_kernel(const struct entry *a, const struct entry *b)
{
	int order = strcmp(a->op, b->op);
	return order ? order : strcmp(a->instantiation, b->instantiation);
}

static int cache_table_compare(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	int order = (a->rank < b->rank) - (a->rank > b->rank);

	order = order ? order : by_kernel(a, b);
	/* "sm_90" comes before "sm_100". */
	order = order ? order : (int)strlen(a->target) - (int)strlen(b->target);
	order = order ? order : strcmp(a->target, b->target);
	order = order ? order : strcmp(a->compiler, b->compiler);
	return order ? order : strcmp(a->key, b->key);
}

/* Numbers the groups of kernels that stand together in this order. */
static void number_groups(struct listing *listing)
{
	size_t first = 0;

	for (size_t i = 0; i < listing->count; i++) {
		struct entry *entry = &listing->entries[i];
		if (i && by_kernel(&listing->entries[first], entry) != 0)
			first = i;
		entry->group = first;
		listing->entries[first].in_group = i - first + 1;
	}
}

/* Sorts by name first, so that each instantiation's largest figures can be found. */
static void sort(struct listing *listing, int by)
{
	if (listing->count)
		qsort(listing->entries, listing->count, sizeof(*listing->entries), cache_table_compare);
	number_groups(listing);
	if (by < 0 || !listing->count)
		return;
	for (size_t i = 0; i < listing->count; i++) {
		struct entry *first = &listing->entries[listing->entries[i].group];
		if (listing->entries[i].figures[by] > first->rank)
			first->rank = listing->entries[i].figures[by];
	}
	for (size_t i = 0; i < listing->count; i++)
		listing->entries[i].rank = listing->entries[listing->entries[i].group].rank;
	qsort(listing->entries, listing->count, sizeof(*listing->entries), cache_table_compare);
	number_groups(listing);
}

/* ---- Printing ---- */

/* "nvrtc 13.0 5f2a1c": the compiler, and the beginning of its hash. */
static void short_compiler(const char *id, char out[96])
{
	const char *at = id;
	size_t used = 0;

	while (*at) {
		size_t word = strcspn(at, " "), digits = strspn(at, "0123456789abcdef");
		bool hash = digits == word && word >= 32;
		used += (size_t)snprintf(out + used, 96 - used, "%s%.*s", used ? " " : "",
								 hash ? 6 : (int)word, at);
		if (hash || used >= 95)
			return;
		at += word;
		at += strspn(at, " ");
	}
	if (!used)
		snprintf(out, 96, "unknown");
}

static void print_figure(struct table *table, const struct entry *entry, const struct entry *first,
						 int which)
{
	int64_t value = entry->figures[which], base = first->figures[which];

	if (value < 0)
		table_cell(table, "-");
	else if (entry == first || base < 0 || value == base || which == MICROS)
		table_cell(table, "%" PRId64, value);
	else
		table_cell(table, "%" PRId64 " (%+" PRId64 ")", value, value - base);
}

static void print_table(const struct listing *listing, size_t end)
{
	static const char *const headers[] = {">REGS",  ">SPILLS", ">SHARED", ">LOCAL",
										  ">BYTES", ">US",     "TARGET",  "COMPILER",
										  "KEY",    "OP",      "KERNEL"};
	struct table table;

	table_begin(&table, headers, 11);
	for (size_t i = 0; i < end; i++) {
		const struct entry *entry = &listing->entries[i], *first = &listing->entries[entry->group];
		char compiler[96];

		if (cli_value(listing->cli, "compare") && first->in_group < 2)
			continue;
		for (int k = 0; k < FIGURES; k++)
			print_figure(&table, entry, first, k);
		short_compiler(entry->compiler, compiler);
		table_cell(&table, "%s", entry->target);
		table_cell(&table, "%s", compiler);
		table_cell(&table, "%.*s", CLI_SHORT_KEY, entry->key);
		table_cell(&table, "%s", entry == first ? entry->op : "");
		table_cell(&table, "%s", entry == first ? entry->instantiation : "");
	}
	table_end(&table);
}

static void cache_table_print_json(const struct listing *listing, size_t end)
{
	json_begin();
	json_list_begin("rows");
	for (size_t i = 0; i < end; i++) {
		const struct entry *entry = &listing->entries[i], *first = &listing->entries[entry->group];

		if (cli_value(listing->cli, "compare") && first->in_group < 2)
			continue;
		json_item_begin();
		json_string("op", entry->op);
		json_string("instantiation", entry->instantiation);
		json_string("target", entry->target);
		json_string("compiler", entry->compiler);
		json_string("key", entry->key);
		json_string("compared_with", entry == first ? "" : first->key);
		for (int k = 0; k < FIGURES; k++)
			json_int(figures[k].member, entry->figures[k]);
		json_item_end();
	}
	json_list_end();
	json_end();
}

/* How many entries the first `limit` instantiations have. */
static size_t limit_groups(const struct listing *listing, int64_t limit)
{
	size_t at = 0;
	bool compared = cli_value(listing->cli, "compare");

	while (at < listing->count && limit > 0) {
		size_t in_group = listing->entries[at].in_group;
		limit -= !compared || in_group > 1;
		at += in_group;
	}
	return at;
}

static int read_sort(const struct cli *cli, int *by)
{
	const char *sort = cli_value(cli, "sort");

	*by = -1;
	if (!sort || !strcmp(sort, "name"))
		return CLI_OK;
	for (int i = 0; i < FIGURES; i++)
		if (!strcmp(sort, figures[i].sort))
			*by = i;
	return *by >= 0 ? CLI_OK
					: cli_usage("--sort '%s': expected name, registers, spills, shared, local, "
								"bytes or time",
								sort);
}

static int cli_cache_table(struct cli *cli)
{
	struct listing listing = {.cli = cli};
	const char *limit = cli_value(cli, "limit");
	int64_t most = INT64_MAX;
	kiln_client *client;
	int by, status;

	if (read_sort(cli, &by) || (limit && cli_integer("--limit", limit, 1, INT64_MAX, &most)))
		return CLI_USAGE;
	if (cli_connect(cli, &client))
		return CLI_FAILED;
	status = cache_rows_each(cli, client, cache_table_take, &listing);
	kiln_close(client);
	if (!status && listing.no_memory)
		status = cli_failed_here(cli, KILN_ENOMEM, "cache table: out of memory");
	if (!status) {
		sort(&listing, by);
		size_t end = limit_groups(&listing, most);
		if (cli->json)
			cache_table_print_json(&listing, end);
		else
			print_table(&listing, end);
	}
	for (size_t i = 0; i < listing.count; i++)
		free(listing.entries[i].instantiation);
	free(listing.entries);
	return status;
}

/* ---- The command ---- */

static const struct cli_option table_options[] = {
	{"sort", "ORDER", "name, or registers, spills, shared, local, bytes or time, largest first"},
	{"compare", NULL, "only kernels that there are for several targets or by several compilers"},
	CACHE_FILTER_OPTIONS,
	{"limit", "N", "at most N instantiations"},
	{0},
};

static const struct cli_example cache_table_examples[] = {
	{"kiln cache table --op softmax --sort registers", "the largest first"}, {0}};

const struct cli_command command_cache_table = {"cache table",
												cli_cache_table,
												"",
												"their registers, spills, shared memory and sizes",
												{0, 0},
												table_options,
												.examples = cache_table_examples};
