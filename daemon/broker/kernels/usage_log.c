/* usage_log.c: a sorted list of lines.  Knows nothing of what stands in them. */
#include "usage_log.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"

struct record_row {
	char *line, *note;
	char targets[RECORD_TARGETS]; /* "cpu sm_90" */
	uint64_t times;
};

/* Where the line is, or would be; *found tells which. */
static int find(const struct record *record, const char *line, bool *found)
{
	int low = 0, high = record->count;
	*found = false;
	while (low < high) {
		int middle = low + (high - low) / 2;
		int order = strcmp(record->rows[middle]->line, line);
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

static void free_row(struct record_row *row)
{
	if (!row)
		return;
	free(row->line);
	free(row->note);
	free(row);
}

static bool grow(struct record *record)
{
	int capacity = record->capacity ? 2 * record->capacity : 64;
	if (record->count < record->capacity)
		return true;
	struct record_row **rows =
		realloc(record->rows, (size_t)capacity * sizeof(struct record_row *));
	if (!rows)
		return false;
	record->rows = rows;
	record->capacity = capacity;
	return true;
}

static struct record_row *insert(struct record *record, int at, const char *line, const char *note)
{
	size_t bytes = strlen(line) + (note ? strlen(note) : 0) + sizeof(struct record_row);
	struct record_row *row = NULL;
	if (record->count < RECORD_MOST && record->bytes + bytes <= RECORD_BYTES && grow(record))
		row = calloc(1, sizeof(*row));
	if (row && (!(row->line = strdup(line)) || (note && !(row->note = strdup(note))))) {
		free_row(row);
		row = NULL;
	}
	if (!row)
		return NULL;
	memmove(&record->rows[at + 1], &record->rows[at],
			(size_t)(record->count - at) * sizeof(*record->rows));
	record->rows[at] = row;
	record->count++;
	record->bytes += bytes;
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

void record_note(struct record *record, const char *line, const char *target, const char *note)
{
	bool found;
	int at = find(record, line, &found);
	struct record_row *row = found ? record->rows[at] : insert(record, at, line, note);
	if (!row) {
		record->left_out++;
		return;
	}
	row->times++;
	size_t used = strlen(row->targets);
	if (!has_word(row->targets, target) && used + 1 + strlen(target) < sizeof(row->targets))
		snprintf(row->targets + used, sizeof(row->targets) - used, "%s%s", used ? " " : "", target);
}

void record_free(struct record *record)
{
	for (int i = 0; i < record->count; i++)
		free_row(record->rows[i]);
	free(record->rows);
	*record = (struct record){0};
}

char *record_page(const struct record *record, const char *after, const char **last)
{
	struct util_text text = {0};
	bool found;
	int at = find(record, after, &found);
	*last = NULL;
	util_text_add(&text, "%s", "");
	for (at += found; at < record->count && text.size < RECORD_PAGE_BYTES; at++) {
		const struct record_row *row = record->rows[at];
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
