/* database_list.c: lists rows, trims them and counts pins, without their blobs. */
#include "daemon/base/deadlines.h"
#include "database.h"

#include <stdlib.h>
#include <string.h>

/* One piece of trimming has so few rows and bytes that others wait for a millisecond or two. */
#define TRIM_ROWS 16
#define TRIM_BYTES ((uint64_t)512 << 10)
#define TRIM_LOOK 1024  /* rows of a piece of a dry run */
#define SHRINK_PAGES 16 /* moved between two looks at the clock */

/* Without a name the first order holds, as for `kiln cache ls`. */
static int list_statement(const char *sort)
{
	static const struct {
		const char *name;
		enum cache_db_statement statement;
	} sorts[] = {
		{"used", DB_BY_USED},       {"hits", DB_BY_HITS}, {"bytes", DB_BY_BYTES},
		{"created", DB_BY_CREATED}, {"key", DB_BY_KEY},
	};
	for (size_t i = 0; i < sizeof(sorts) / sizeof(sorts[0]); i++)
		if (!sort || strcmp(sort, sorts[i].name) == 0)
			return sorts[i].statement;
	return -1;
}

/* Reads the columns that each statement which lists rows begins with. */
static void read_told(sqlite3_stmt *statement, struct cache_row *row,
					  char instantiation[KERNEL_INSTANTIATION_MAX])
{
	cache_db_column_text(statement, 0, row->key, sizeof(row->key));
	cache_db_column_text(statement, 1, row->op, sizeof(row->op));
	cache_db_column_text(statement, 2, row->target, sizeof(row->target));
	cache_db_column_text(statement, 3, instantiation, KERNEL_INSTANTIATION_MAX);
	row->instantiation = instantiation;
	row->object_bytes = (size_t)sqlite3_column_int64(statement, 4);
	row->size = (uint64_t)sqlite3_column_int64(statement, 5);
	row->used = cache_db_column_count(statement, 6);
}

int cache_db_list(struct cache_db *db, const char *sort, const char *after, int64_t limit,
				  cache_visit visit, void *arg, char error[KERNEL_ERROR_MAX])
{
	int which = list_statement(sort);
	if (which < 0) {
		return util_fail(
			error, KERNEL_ERROR_MAX, KILN_EINVAL,
			"kernels cannot be sorted by \"%.40s\": by used, hits, bytes, created or key", sort);
	}
	sqlite3_stmt *statement = cache_db_statement(db, (enum cache_db_statement)which);
	sqlite3_bind_int64(statement, 1, limit > 0 ? limit : -1);
	if (which == DB_BY_KEY)
		cache_db_bind_text(statement, 2, after);
	int status;
	while ((status = cache_db_step(db, statement, "listing", error)) == KILN_OK) {
		struct cache_row row = {{0}};
		char instantiation[KERNEL_INSTANTIATION_MAX];
		read_told(statement, &row, instantiation);
		row.registers = sqlite3_column_int64(statement, 7);
		row.shared_bytes = sqlite3_column_int64(statement, 8);
		row.spill_bytes = sqlite3_column_int64(statement, 9);
		row.local_bytes = sqlite3_column_int64(statement, 10);
		row.compile_micros = sqlite3_column_int64(statement, 11);
		row.created = cache_db_column_count(statement, 12);
		row.hits = cache_db_column_count(statement, 13);
		cache_db_column_text(statement, 14, row.compiler, sizeof(row.compiler));
		row.pinned = sqlite3_column_int(statement, 15);
		visit(&row, arg);
	}
	return status == KILN_ENOENT ? KILN_OK : status;
}

/* ---- Trimming ---- */

/* The rows chosen for a piece. */
struct piece {
	char keys[TRIM_ROWS][KERNEL_KEY_HEX]; /* not of a dry run */
	int count;
	uint64_t size;
};

static void bind_filter(sqlite3_stmt *statement, int index, const char *text)
{
	if (text && *text)
		cache_db_bind_text(statement, index, text);
}

/* Chooses the rows of a piece, visits them, and takes them out of left. */
static int choose_piece(struct cache_db *db, const struct cache_trim *what,
						struct cache_db_totals *left, struct cache_trimmed *progress,
						struct piece *piece, cache_visit removed, void *arg,
						char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, DB_VICTIMS);
	int status = KILN_OK;
	sqlite3_bind_int64(statement, 1, progress->after);
	bind_filter(statement, 2, what->op);
	bind_filter(statement, 3, what->target);
	bind_filter(statement, 4, what->compiler);
	sqlite3_bind_int64(statement, 5, what->used_before);
	progress->more = false;
	while (left->bytes > what->bytes || left->rows > what->rows) {
		progress->more = what->dry_run ? piece->count == TRIM_LOOK
									   : piece->count == TRIM_ROWS || piece->size >= TRIM_BYTES;
		if (progress->more)
			break;
		status = cache_db_step(db, statement, "trimming", error);
		if (status != KILN_OK)
			break;
		struct cache_row row = {{0}};
		char instantiation[KERNEL_INSTANTIATION_MAX];
		read_told(statement, &row, instantiation);
		progress->after = sqlite3_column_int64(statement, 7);
		row.hits = cache_db_column_count(statement, 8);
		if (!what->dry_run)
			memcpy(piece->keys[piece->count], row.key, sizeof(row.key));
		piece->count++;
		piece->size += row.size;
		cache_db_count_gone(left, (int64_t)row.object_bytes, (int64_t)row.size);
		removed(&row, arg);
	}
	sqlite3_reset(statement);
	return status == KILN_ENOENT ? KILN_OK : status;
}

int cache_db_trim(struct cache_db *db, const struct cache_trim *what,
				  struct cache_db_totals *totals, struct cache_trimmed *progress,
				  cache_visit removed, void *arg, char error[KERNEL_ERROR_MAX])
{
	static const char name[] = "trimming";
	struct cache_db_totals left = *totals;
	struct piece piece = {.count = 0};
	int status = choose_piece(db, what, &left, progress, &piece, removed, arg, error);
	if (status == KILN_OK && !what->dry_run && piece.count) {
		status = cache_db_begin(db, name, error);
		for (int i = 0; i < piece.count && status == KILN_OK; i++)
			status = cache_db_forget(db, piece.keys[i], name, error);
		status = cache_db_end(db, status, name, error);
	}
	if (status == KILN_OK) {
		progress->removed += piece.count;
		progress->freed += piece.size;
		*totals = what->dry_run ? *totals : left;
	}
	return status;
}

int cache_db_shrink(struct cache_db *db, bool *more, char error[KERNEL_ERROR_MAX])
{
	static const char what[] = "shrinking";
	char part[64];
	int64_t before, left;
	uint64_t began = util_now_us();
	snprintf(part, sizeof(part), "PRAGMA incremental_vacuum(%d)", SHRINK_PAGES);
	do {
		if (cache_db_ask(db, "PRAGMA freelist_count", &before) != SQLITE_OK ||
			sqlite3_exec(db->handle, part, NULL, NULL, NULL) != SQLITE_OK ||
			cache_db_ask(db, "PRAGMA freelist_count", &left) != SQLITE_OK)
			return cache_db_fail(db, what, error);
		*more = left > 0 && left < before;
	} while (*more && util_now_us() - began < PAUSE_UPKEEP_US);
	/* The checkpoint writes the log to the file, which then gets its new length. */
	if (!*more &&
		sqlite3_exec(db->handle, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) != SQLITE_OK)
		return cache_db_fail(db, what, error);
	return KILN_OK;
}

/* ---- Pins ---- */

int cache_db_set_pin(struct cache_db *db, const char *key, bool pinned,
					 char error[KERNEL_ERROR_MAX])
{
	sqlite3_stmt *statement = cache_db_statement(db, pinned ? DB_PIN : DB_UNPIN);
	cache_db_bind_text(statement, 1, key);
	return cache_db_run(db, statement, "pinning in", error);
}

int cache_db_pinned(struct cache_db *db, uint64_t *rows, uint64_t *bytes,
					char error[KERNEL_ERROR_MAX])
{
	return cache_db_count(db, DB_PINNED, "counting pins in", rows, bytes, error);
}
