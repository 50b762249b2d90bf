/* usage_log.c: a sorted list of lines.  Does not read the lines. */
#include "usage_log.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"

struct usage_log_row {
	char *line, *note;
	char targets[USAGE_LOG_TARGETS]; /* "cpu sm_90" */
	uint64_t times;
};

/* Returns the index of the line, or, when it is not found, the index to insert it at. */
static int usage_log_find(const struct usage_log *log, const char *line, bool *found)
{
	int low = 0, high = log->count;
	*found = false;
	while (low < high) {
		int middle = low + (high - low) / 2;
		int order = strcmp(log->rows[middle]->line, line);
		if (order == 0) {
			*found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void free_row(struct usage_log_row *row)
{
	if (!row)
		return;
	free(row->line);
	free(row->note);
	free(row);
}

static bool usage_log_grow(struct usage_log *log)
{
	int capacity = log->capacity ? 2 * log->capacity : 64;
	if (log->count < log->capacity)
		return true;
	struct usage_log_row **rows =
		realloc(log->rows, (size_t)capacity * sizeof(struct usage_log_row *));
	if (!rows)
		return false;
	log->rows = rows;
	log->capacity = capacity;
	return true;
}

static struct usage_log_row *insert(struct usage_log *log, int at, const char *line,
									const char *note)
{
	size_t bytes = strlen(line) + (note ? strlen(note) : 0) + sizeof(struct usage_log_row);
	struct usage_log_row *row = NULL;
	if (log->count < USAGE_LOG_MOST && log->bytes + bytes <= USAGE_LOG_BYTES && usage_log_grow(log))
		row = calloc(1, sizeof(*row));
	if (row && (!(row->line = strdup(line)) || (note && !(row->note = strdup(note))))) {
		free_row(row);
		row = NULL;
	}
	if (!row)
		return NULL;
	memmove(&log->rows[at + 1], &log->rows[at], (size_t)(log->count - at) * sizeof(*log->rows));
	log->rows[at] = row;
	log->count++;
	log->bytes += bytes;
	return row;
}

static bool has_word(const char *list, const char *word)
{
	size_t size = strlen(word);
	for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
		if ((at == list || at[-1] == ' ') && (!at[size] || at[size] == ' '))
			return true;
	return false;
}

void usage_log_note(struct usage_log *log, const char *line, const char *target, const char *note)
{
	bool found;
	int at = usage_log_find(log, line, &found);
	struct usage_log_row *row = found ? log->rows[at] : insert(log, at, line, note);
	if (!row) {
		log->left_out++;
		return;
	}
	row->times++;
	size_t used = strlen(row->targets);
	if (has_word(row->targets, target) || used + 1 + strlen(target) >= sizeof(row->targets))
		return;
	if (used)
		row->targets[used++] = ' ';
	memcpy(row->targets + used, target, strlen(target) + 1);
}

void usage_log_free(struct usage_log *log)
{
	for (int i = 0; i < log->count; i++)
		free_row(log->rows[i]);
	free(log->rows);
	*log = (struct usage_log){0};
}

char *usage_log_page(const struct usage_log *log, const char *after, size_t bytes,
					 const char **last)
{
	struct util_text text = {0};
	bool found;
	int at = usage_log_find(log, after, &found);
	*last = NULL;
	util_text_add(&text, "%s", "");
	for (at += found; at < log->count && text.size < bytes; at++) {
		const struct usage_log_row *row = log->rows[at];
		*last = row->line;
		util_text_add(&text, "%s  # %s%sasked %llu time%s for %s\n", row->line,
					  row->note ? row->note : "", row->note ? ", " : "",
					  (unsigned long long)row->times, row->times == 1 ? "" : "s", row->targets);
	}
	if (!text.failed)
		return text.text;
	util_text_free(&text);
	*last = NULL;
	return NULL;
}
