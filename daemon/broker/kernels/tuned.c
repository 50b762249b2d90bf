/* tuned.c: keeps the table of winners, and plans with it. */
#include "tuned.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/plan/plan.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

/* ---- The table ---- */

/* The map's key is a hash of model, target and signature, which are too long for a key. */
static void row_key(const struct cache_tuned *row, unsigned char key[32])
{
	struct util_hash hash;
	util_hash_begin(&hash);
	util_hash_add(&hash, row->model, strlen(row->model) + 1);
	util_hash_add(&hash, row->target, strlen(row->target) + 1);
	util_hash_add(&hash, row->signature, strlen(row->signature) + 1);
	util_hash_end(&hash, key);
}

const struct cache_tuned *tuned_find(const struct broker *broker, const struct cache_tuned *row)
{
	unsigned char key[32];
	if (!broker->tuned.count)
		return NULL;
	row_key(row, key);
	return map_get(&broker->tuned, key, sizeof(key));
}

bool tuned_has_room(const struct broker *broker, const struct cache_tuned *row)
{
	return broker->tuned.count < CACHE_TUNED_MOST || tuned_find(broker, row);
}

int tuned_put(struct broker *broker, const struct cache_tuned *row)
{
	unsigned char key[32];
	struct cache_tuned *old, *copy;
	row_key(row, key);
	old = map_get(&broker->tuned, key, sizeof(key));
	if (!old && broker->tuned.count >= CACHE_TUNED_MOST)
		return KILN_ELIMIT;
	copy = malloc(sizeof(*copy));
	if (!copy || map_put(&broker->tuned, key, sizeof(key), copy) < 0) {
		free(copy);
		return KILN_ENOMEM;
	}
	*copy = *row;
	free(old);
	return KILN_OK;
}

int tuned_take(struct broker *broker, const struct cache_tuned *row)
{
	const struct cache_tuned *here = tuned_find(broker, row);
	return here && here->when >= row->when ? KILN_OK : tuned_put(broker, row);
}

int64_t tuned_remove(struct broker *broker, const struct cache_tuned *row)
{
	unsigned char key[32];
	struct cache_tuned *old;
	int64_t count = 0;
	if (row) {
		row_key(row, key);
		old = map_remove(&broker->tuned, key, sizeof(key));
		free(old);
		return old ? 1 : 0;
	}
	for (; (old = map_take(&broker->tuned)); count++)
		free(old);
	return count;
}

static int in_order(const void *a, const void *b)
{
	const struct cache_tuned *left = *(const struct cache_tuned *const *)a;
	const struct cache_tuned *right = *(const struct cache_tuned *const *)b;
	int order = strcmp(left->op, right->op);
	if (!order)
		order = strcmp(left->model, right->model);
	if (!order)
		order = strcmp(left->target, right->target);
	return order ? order : strcmp(left->signature, right->signature);
}

const struct cache_tuned **tuned_list(const struct broker *broker, size_t *count)
{
	const struct cache_tuned **list, *row;
	size_t cursor = 0;
	*count = 0;
	list = broker->tuned.count ? calloc(broker->tuned.count, sizeof(*list)) : NULL;
	while (list && (row = map_next(&broker->tuned, &cursor)))
		list[(*count)++] = row;
	if (list)
		qsort(list, *count, sizeof(*list), in_order);
	return list;
}

static void take_row(const struct cache_tuned *row, void *arg)
{
	tuned_put(arg, row);
}

void tuned_open(struct broker *broker, struct cache *cache)
{
	char error[KERNEL_ERROR_MAX];
	broker->tuned_unread = cache_tuned_list(cache, take_row, broker, error) != KILN_OK;
	if (broker->tuned_unread)
		util_log(UTIL_WARN, "the winners of tuning are not known yet: %s", error);
}

/* The store's thread fills it; the loop then takes its rows. */
struct reading {
	struct cache_tuned *rows;
	size_t count;
	int status;
};

static void keep_row(const struct cache_tuned *row, void *arg)
{
	struct reading *reading = arg;
	struct cache_tuned *rows =
		realloc(reading->rows, (reading->count + 1) * sizeof(*reading->rows));
	if (!rows) {
		reading->status = KILN_ENOMEM;
		return;
	}
	reading->rows = rows;
	rows[reading->count++] = *row;
}

static void tuned_read_work(struct cache *cache, void *arg)
{
	struct reading *reading = arg;
	char error[KERNEL_ERROR_MAX];
	int status = cache_tuned_list(cache, keep_row, reading, error);
	if (reading->status == KILN_OK)
		reading->status = status;
}

static void tuned_read_done(struct broker *broker, void *arg)
{
	struct reading *reading = arg;
	/* A row that was put into the table meanwhile is newer. */
	for (size_t i = 0; reading->status == KILN_OK && i < reading->count; i++)
		if (!tuned_find(broker, &reading->rows[i]))
			tuned_put(broker, &reading->rows[i]);
	broker->tuned_unread = reading->status == KILN_EIO;
	free(reading->rows);
	free(reading);
}

bool tuned_is_read(const struct broker *broker)
{
	return !broker->tuned_unread;
}

void tuned_read(struct broker *broker)
{
	struct reading *reading = calloc(1, sizeof(*reading));
	if (reading && store_run(broker, tuned_read_work, tuned_read_done, reading) != KILN_OK)
		free(reading);
}

void tuned_close(struct broker *broker)
{
	tuned_remove(broker, NULL);
	map_free(&broker->tuned);
}

/* ---- Planning ---- */

/* Adds an attribute that names the choice; false without room for it. */
static bool name_choice(struct kernel_problem *problem, const char *choice)
{
	struct kernel_attr *attr = &problem->attrs[problem->attr_count];
	if (problem->attr_count >= KERNEL_MAX_ATTRS)
		return false;
	*attr = (struct kernel_attr){.name = PLAN_CHOICE, .kind = KILN_ATTR_STRING};
	memcpy(attr->s, choice, strlen(choice) + 1);
	problem->attr_count++;
	return true;
}

int tuned_name(struct kernel_problem *problem, const struct kernel_limits *limits,
			   const char *choice, struct kernel_plan *plan, char error[KERNEL_ERROR_MAX])
{
	return name_choice(problem, choice) ? plan_problem(problem, limits, plan, error)
										: util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
													"the call has no attribute left to name it");
}

static void set_text(char *to, size_t size, const char *text)
{
	size_t length = strnlen(text, size - 1);
	memcpy(to, text, length);
	to[length] = 0;
}

void tuned_plan(struct broker *broker, const struct kernel_problem *problem,
				const struct kernel_limits *limits, const char *model, struct kernel_plan *plan,
				struct tuned_note *note)
{
	const struct cache_tuned *row;
	memset(note, 0, sizeof(*note));
	if (plan->kind != KERNEL_LAUNCH || !model[0] || plan_attr(problem, PLAN_CHOICE))
		return;
	set_text(note->row.op, sizeof(note->row.op), plan->op);
	set_text(note->row.model, sizeof(note->row.model), model);
	set_text(note->row.target, sizeof(note->row.target), limits->target);
	set_text(note->row.signature, sizeof(note->row.signature), plan->instantiation);
	tuned_look(broker, problem, limits, &note->row);
	row = tuned_find(broker, &note->row);
	if (!row)
		return;
	struct kernel_problem named = *problem;
	struct kernel_plan better;
	note->row = *row;
	if (tuned_name(&named, limits, row->choice, &better, note->refused) == KILN_OK)
		*plan = better;
}

void tuned_explain(const struct tuned_note *note, char *text, size_t size)
{
	const struct cache_tuned *row = &note->row;
	time_t when = (time_t)row->when;
	char day[32] = "unknown";
	struct tm parts;
	text[0] = 0;
	if (!row->choice[0])
		return;
	if (gmtime_r(&when, &parts))
		strftime(day, sizeof(day), "%Y-%m-%d", &parts);
	int digits = row->micros < 100 ? 1 : 0;
	if (note->refused[0])
		snprintf(text, size, "tuned          %s of %s is not used: %s\n", row->choice, day,
				 note->refused);
	else
		snprintf(text, size, "tuned          %s, %.*f us against %.*f (%s)\n", row->choice, digits,
				 row->micros, digits, row->own_micros, day);
}
