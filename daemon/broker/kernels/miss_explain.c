/*
 * miss_explain.c: finds the rows nearest to a key.  The columns of all rows choose a few
 * candidates, whose key texts are then compared.
 */
#include "miss_explain.h"

#include <client/wire/wire.h>
#include <stdlib.h>
#include <string.h>

#include "failed_keys.h"
#include "daemon/base/util.h"

#define ROWS_MOST 20000 /* of the cache, the last used */
#define CANDIDATES 16   /* whose key texts are compared */

struct candidate {
	char key[KERNEL_KEY_HEX];
	bool failed;
	int distance;
};

struct search {
	const struct kernel_ref *ref;
	struct candidate candidates[CANDIDATES]; /* the nearest first */
	int count;
};

/* ---- Candidates, by columns ---- */

/* Counts the template arguments that differ; another template is far. */
static int rough_distance(const char *a, const char *b)
{
	size_t name = strcspn(a, "<");
	int distance = 0;
	if (name != strcspn(b, "<") || memcmp(a, b, name) != 0)
		return 1000;
	while (*a || *b) {
		size_t left = strcspn(a, ","), right = strcspn(b, ",");
		distance += left != right || memcmp(a, b, left) != 0;
		a += left + (a[left] == ',');
		b += right + (b[right] == ',');
	}
	return distance;
}

static void consider(struct search *search, const struct cache_row *row, bool failed)
{
	const struct kernel_ref *ref = search->ref;
	if (strcmp(row->op, ref->plan.op) != 0 || !strcmp(row->key, ref->key))
		return;
	int distance = rough_distance(ref->plan.instantiation, row->instantiation) +
				   (strcmp(row->target, ref->target) ? 2 : 0);
	int at = search->count;
	while (at > 0 && search->candidates[at - 1].distance > distance)
		at--;
	if (at == CANDIDATES)
		return;
	int kept = search->count < CANDIDATES ? search->count : CANDIDATES - 1;
	memmove(search->candidates + at + 1, search->candidates + at,
			(size_t)(kept - at) * sizeof(*search->candidates));
	struct candidate *candidate = &search->candidates[at];
	memcpy(candidate->key, row->key, sizeof(candidate->key));
	candidate->failed = failed;
	candidate->distance = distance;
	search->count = kept + 1;
}

static void visit_row(const struct cache_row *row, void *arg)
{
	consider(arg, row, false);
}

static void visit_failure(const struct cache_failure *failure, void *arg)
{
	consider(arg, &failure->row, true);
}

/* ---- Differences, by key texts ---- */

struct operand_line {
	const char *name, *alignment;
	size_t name_bytes;
};

/* Reads the next "x  43200 bytes read, aligned to 8" of a planner's text; false at its end. */
static bool next_operand(const char **text, struct operand_line *line)
{
	static const char words[] = ", aligned to ";
	while (**text) {
		const char *at = *text, *end = at + strcspn(at, "\n");
		const char *found = memmem(at, (size_t)(end - at), words, sizeof(words) - 1);
		*text = *end ? end + 1 : end;
		if (found) {
			*line = (struct operand_line){at, found + sizeof(words) - 1, strcspn(at, " ")};
			return true;
		}
	}
	return false;
}

static void insert(struct compile_differences *out, int at, const struct compile_difference *item)
{
	int kept = out->count;
	if (kept == COMPILE_DIFFERENCES) {
		kept--;
		out->left_out++;
	}
	memmove(out->items + at + 1, out->items + at, (size_t)(kept - at) * sizeof(*out->items));
	out->items[at] = *item;
	out->count = kept + 1;
}

/* Compares the alignments that the planner's texts of two kernels demand; the keys show these only
 * as numbers of a template.  Puts them before the other differences. */
static void miss_explain_alignments(const char *asked, const char *other,
									struct compile_differences *out)
{
	struct operand_line now, then;
	int count = 0;
	while (next_operand(&asked, &now)) {
		const char *rest = other;
		while (next_operand(&rest, &then)) {
			long is = strtol(now.alignment, NULL, 10), was = strtol(then.alignment, NULL, 10);
			struct compile_difference item = {.what = "alignment"};
			if (now.name_bytes != then.name_bytes || memcmp(now.name, then.name, now.name_bytes))
				continue;
			if (is != was && count < COMPILE_DIFFERENCES) {
				snprintf(item.text, sizeof(item.text), "alignment of %.*s %ld instead of %ld",
						 (int)now.name_bytes, now.name, is, was);
				insert(out, count++, &item);
			}
			break;
		}
	}
}

/* Inserts a row that is among the nearest. */
static void miss_explain_compare(const struct kernel_ref *ref, const struct cache_row *row,
								 bool failed, struct miss_explain *why)
{
	struct miss_explain_near near = {.failed = failed, .used = row->used};
	int at = why->near_count;
	compile_key_differences(ref->key_text, row->key_text, ref->job.files, ref->job.file_count,
							&near.differences);
	while (at > 0 && why->near[at - 1].differences.distance > near.differences.distance)
		at--;
	if (at == MISS_EXPLAIN_NEAR)
		return;
	miss_explain_alignments(ref->explain ? ref->explain : "", row->plan, &near.differences);
	memcpy(near.key, row->key, sizeof(near.key));
	memcpy(near.target, row->target, sizeof(near.target));
	snprintf(near.instantiation, sizeof(near.instantiation), "%s", row->instantiation);
	int kept = why->near_count < MISS_EXPLAIN_NEAR ? why->near_count : MISS_EXPLAIN_NEAR - 1;
	memmove(why->near + at + 1, why->near + at, (size_t)(kept - at) * sizeof(*why->near));
	why->near[at] = near;
	why->near_count = kept + 1;
}

static void compare_candidate(struct cache *cache, const struct search *search, int i,
							  struct miss_explain *why)
{
	const struct candidate *candidate = &search->candidates[i];
	char error[KERNEL_ERROR_MAX];
	if (candidate->failed) {
		struct cache_failure failure;
		if (cache_failure_show(cache, candidate->key, &failure, error) == KILN_OK) {
			miss_explain_compare(search->ref, &failure.row, true, why);
			cache_failure_free(&failure);
		}
	} else {
		struct cache_row row;
		if (cache_show(cache, candidate->key, &row, error) == KILN_OK) {
			miss_explain_compare(search->ref, &row, false, why);
			cache_row_free(&row);
		}
	}
}

static bool find_failure(struct cache *cache, const char *key, struct miss_explain *why)
{
	struct cache_failure failure;
	char error[KERNEL_ERROR_MAX];
	if (cache_failure_show(cache, key, &failure, error) != KILN_OK)
		return false;
	bool over = cache_failure_is_over(&failure);
	why->status = failure.status;
	memcpy(why->error, failure.error, sizeof(why->error));
	cache_failure_free(&failure);
	return !over;
}

void miss_explain_find(struct cache *cache, const struct kernel_ref *ref, struct miss_explain *out)
{
	struct search search = {.ref = ref};
	struct cache_row row;
	char error[KERNEL_ERROR_MAX];
	*out = (struct miss_explain){.cached = cache_show(cache, ref->key, &row, error) == KILN_OK};
	if (out->cached) {
		cache_row_free(&row);
		return;
	}
	out->failed = find_failure(cache, ref->key, out);
	if (out->failed)
		return;
	/* A cache without a database lists no rows. */
	cache_list(cache, NULL, "", ROWS_MOST, visit_row, &search, error);
	cache_failure_list(cache, 0, visit_failure, &search, error);
	for (int i = 0; i < search.count; i++)
		compare_candidate(cache, &search, i, out);
}

/* ---- The answer ---- */

static void put_near(struct wire_out *out, const struct miss_explain_near *near)
{
	wire_map_begin(out, NULL);
	wire_put_str(out, "key", near->key);
	wire_put_str(out, "target", near->target);
	wire_put_str(out, "instantiation", near->instantiation);
	wire_put_bool(out, "failed", near->failed);
	wire_put_int(out, "used", near->used);
	wire_put_int(out, "distance", near->differences.distance);
	wire_put_int(out, "left_out", near->differences.left_out);
	wire_list_begin(out, "differences");
	for (int i = 0; i < near->differences.count; i++) {
		wire_map_begin(out, NULL);
		wire_put_str(out, "what", near->differences.items[i].what);
		wire_put_str(out, "text", near->differences.items[i].text);
		wire_map_end(out);
	}
	wire_list_end(out);
	wire_map_end(out);
}

void miss_explain_put(struct wire_out *out, const struct miss_explain *why)
{
	wire_put_bool(out, "cached", why->cached);
	wire_put_bool(out, "failed", why->failed);
	if (why->failed) {
		wire_put_str(out, "status", util_status_name(why->status));
		wire_put_str(out, "error", why->error);
	}
	wire_list_begin(out, "near");
	for (int i = 0; i < why->near_count; i++)
		put_near(out, &why->near[i]);
	wire_list_end(out);
}
