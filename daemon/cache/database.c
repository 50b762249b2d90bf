/* database.c: opens the database, and has its statements and transactions.  Knows nothing of blobs'
 * content. */
#include "database.h"
#include "daemon/base/deadlines.h"
#include "disk_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first columns of each statement that lists rows. */
#define TOLD "key, op, target, instantiation, bytes, size, used"
#define LIST                                                                             \
	"SELECT " TOLD ", registers, shared, spill, local, micros, created, hits, compiler," \
	" key IN (SELECT key FROM pins) FROM kernels "

static const char *const texts[DB_STATEMENTS] = {
	[DB_TOTALS] = "SELECT count(*), total(bytes), total(size), max(turn),"
				  " (SELECT total(length(blob)) FROM quarantine), (SELECT count(*) FROM pins)"
				  " FROM kernels",
	[DB_GET] = "SELECT k.key, k.op, k.target, k.compiler, k.bytes, k.size, k.used, k.hits,"
			   " k.key IN (SELECT key FROM pins), o.blob FROM kernels k"
			   " LEFT JOIN objects o ON o.id = k.id WHERE k.key = ?1",
	[DB_SIZE] = "SELECT bytes, size FROM kernels WHERE key = ?1",
	[DB_PUT] = "INSERT INTO kernels(key, op, target, instantiation, compiler, bytes, registers,"
			   " shared, spill, local, micros, created, used, hits, turn, size)"
			   " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
	[DB_PUT_OBJECT] = "INSERT INTO objects(id, blob) VALUES(?1, ?2)",
	[DB_FORGET_OBJECT] = "DELETE FROM objects WHERE id = (SELECT id FROM kernels WHERE key = ?1)",
	[DB_FORGET] = "DELETE FROM kernels WHERE key = ?1",
	[DB_SET_ASIDE] = "INSERT INTO quarantine(key, reason, time, blob) SELECT k.key, ?2, ?3,"
					 " o.blob FROM kernels k LEFT JOIN objects o ON o.id = k.id"
					 " WHERE k.key = ?1",
	[DB_SET_ASIDE_BOUND] =
		"DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?1",
	[DB_QUARANTINED] = "SELECT count(*), total(length(blob)) FROM quarantine",
	[DB_RELEASE] = "DELETE FROM quarantine",
	[DB_USE] = "UPDATE kernels SET hits = min(hits, 1 << 62) + ?2, used = ?3, turn = ?4"
			   " WHERE key = ?1",
	/* Digits sort before 'g'. */
	[DB_FIND] = "SELECT key FROM kernels WHERE key >= ?1 AND key < ?1 || 'g' LIMIT 2",
	[DB_NEXT] = "SELECT key FROM kernels WHERE key > ?1 ORDER BY key LIMIT 1",
	[DB_VICTIMS] = "SELECT " TOLD ", turn, hits FROM kernels"
				   " WHERE turn > ?1 AND (?2 IS NULL OR op = ?2) AND (?3 IS NULL OR target = ?3)"
				   " AND (?4 IS NULL OR instr(compiler, ?4) > 0) AND (?5 = 0 OR used < ?5)"
				   " AND key NOT IN (SELECT key FROM pins) ORDER BY turn",
	[DB_OBJECT_ID] = "SELECT o.id, length(o.blob) FROM kernels k JOIN objects o ON o.id = k.id"
					 " WHERE k.key = ?1",
	[DB_BY_USED] = LIST "ORDER BY turn DESC LIMIT ?1",
	[DB_BY_HITS] = LIST "ORDER BY hits DESC, turn DESC LIMIT ?1",
	[DB_BY_BYTES] = LIST "ORDER BY bytes DESC, turn DESC LIMIT ?1",
	[DB_BY_CREATED] = LIST "ORDER BY created DESC, turn DESC LIMIT ?1",
	[DB_BY_KEY] = LIST "WHERE key > ?2 ORDER BY key LIMIT ?1",
	[DB_FIND_PIN] = "SELECT key FROM pins WHERE key >= ?1 AND key < ?1 || 'g' LIMIT 2",
	[DB_PIN] = "INSERT OR IGNORE INTO pins(key) VALUES(?1)",
	[DB_UNPIN] = "DELETE FROM pins WHERE key = ?1",
	[DB_PINNED] = "SELECT count(*), total(size) FROM kernels WHERE key IN (SELECT key FROM pins)",
	[DB_TUNED_LIST] = "SELECT op, model, target, signature, choice, version, micros, own_micros,"
					  " candidates, time FROM tuned ORDER BY op, model, target, signature",
	[DB_TUNED_PUT] = "INSERT OR REPLACE INTO tuned(op, model, target, signature, choice, version,"
					 " micros, own_micros, candidates, time)"
					 " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
	[DB_TUNED_NEWER] = "INSERT OR REPLACE INTO tuned(op, model, target, signature, choice, version,"
					   " micros, own_micros, candidates, time)"
					   " SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 WHERE NOT EXISTS("
					   "SELECT 1 FROM tuned WHERE model = ?2 AND target = ?3 AND signature = ?4"
					   " AND time >= ?10)",
	[DB_TUNED_REMOVE] = "DELETE FROM tuned WHERE model = ?1 AND target = ?2 AND signature = ?3",
	[DB_TUNED_CLEAR] = "DELETE FROM tuned",
	[DB_FAILED_GET] = "SELECT blob, used, hits FROM failures WHERE key = ?1",
	[DB_FAILED_PUT] = "INSERT OR REPLACE INTO failures(key, op, target, instantiation, error,"
					  " status, until, created, used, hits, blob)"
					  " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
	[DB_FAILED_BOUND] = "DELETE FROM failures WHERE id IN (SELECT id FROM failures"
						" ORDER BY used DESC, id DESC LIMIT -1 OFFSET ?1)",
	[DB_FAILED_USE] = "UPDATE failures SET hits = min(hits, 1 << 62) + 1, used = ?2 WHERE key = ?1",
	[DB_FAILED_FIND] = "SELECT key FROM failures WHERE key >= ?1 AND key < ?1 || 'g' LIMIT 2",
	[DB_FAILED_LIST] = "SELECT key, op, target, instantiation, error, status, until, created, used,"
					   " hits FROM failures ORDER BY used DESC, id DESC LIMIT ?1",
	[DB_FAILED_COUNT] = "SELECT count(*), total(length(blob)) FROM failures",
	[DB_FAILED_REMOVE] = "DELETE FROM failures WHERE key = ?1",
	[DB_FAILED_CLEAR] = "DELETE FROM failures",
	[DB_FAILED_EXPIRE] = "DELETE FROM failures WHERE until <> 0",
};

/* Returns the remedy for a failure of the disk, or for another program that uses the file; NULL:
 * the error is another. */
static const char *remedy_of(int code, int system)
{
	bool full = system == ENOSPC || system == EDQUOT || system == EFBIG;
	switch (code) {
	case SQLITE_FULL:
		return "make room on its disk";
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return "make it writable";
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return "end the other program that has it open";
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		return full                   ? "make room on its disk"
			   : system == EROFS      ? "make its file system writable"
			   : system == EACCES     ? "make it writable"
			   : code == SQLITE_IOERR ? "see to its disk"
									  : "see to its directory";
	default:
		return NULL;
	}
}

/* Returns the errno of a failed statement.  Where SQLite has not kept it, the process's is used,
 * which was zero when the statement began. */
static int system_error(struct cache_db *db)
{
	static const int likely[] = {ENOSPC, EDQUOT, EFBIG, EROFS, EIO, EACCES, EMFILE, ENFILE};
	int kept = sqlite3_system_errno(db->handle), last = errno;
	for (size_t i = 0; !kept && i < sizeof(likely) / sizeof(likely[0]); i++)
		kept = last == likely[i] ? last : 0;
	return kept;
}

int cache_db_refuse(struct cache_db *db, const char *what, char error[KERNEL_ERROR_MAX])
{
	bool is_other = (sqlite3_errcode(db->handle) & 0xff) == SQLITE_ERROR && !system_error(db);
	int status = cache_db_fail(db, what, error);
	return is_other ? KILN_EPROTO : status;
}

int cache_db_fail(struct cache_db *db, const char *what, char error[KERNEL_ERROR_MAX])
{
	int code = sqlite3_errcode(db->handle) & 0xff;
	int system = system_error(db);
	bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
	/* SQLite may take an unread page for damage. */
	if (damaged && system == EIO) {
		damaged = false;
		code = SQLITE_IOERR;
	}
	bool file = code == SQLITE_IOERR || code == SQLITE_FULL || code == SQLITE_CANTOPEN;
	int status = damaged ? KILN_EPROTO : code == SQLITE_NOMEM ? KILN_ENOMEM : KILN_EIO;
	const char *remedy = remedy_of(code, system);
	db->disk_failed = db->disk_failed || remedy;
	return FAIL(status, "%s %.150s failed: %s%s%s%s%s%s", what, db->path,
				sqlite3_errmsg(db->handle), file && system ? " (" : "",
				file && system ? strerror(system) : "", file && system ? ")" : "",
				remedy ? ": " : "", remedy ? remedy : "");
}

bool cache_db_disk_failed(struct cache_db *db)
{
	bool failed = db->disk_failed;
	db->disk_failed = false;
	return failed;
}

sqlite3_stmt *cache_db_statement(struct cache_db *db, enum cache_db_statement which)
{
	sqlite3_stmt *statement = db->statements[which];
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
	errno = 0;
	return statement;
}

int cache_db_step(struct cache_db *db, sqlite3_stmt *statement, const char *what,
				  char error[KERNEL_ERROR_MAX])
{
	int code = sqlite3_step(statement);
	if (code == SQLITE_ROW)
		return KILN_OK;
	int status = code == SQLITE_DONE ? KILN_ENOENT : cache_db_fail(db, what, error);
	sqlite3_reset(statement);
	return status;
}

int cache_db_run(struct cache_db *db, sqlite3_stmt *statement, const char *what,
				 char error[KERNEL_ERROR_MAX])
{
	int status = cache_db_step(db, statement, what, error);
	return status == KILN_ENOENT ? KILN_OK : status;
}

int cache_db_begin(struct cache_db *db, const char *what, char error[KERNEL_ERROR_MAX])
{
	errno = 0;
	if (sqlite3_exec(db->handle, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
		return cache_db_fail(db, what, error);
	return KILN_OK;
}

int cache_db_end(struct cache_db *db, int status, const char *what, char error[KERNEL_ERROR_MAX])
{
	if (status == KILN_OK) {
		if (sqlite3_exec(db->handle, "COMMIT", NULL, NULL, NULL) == SQLITE_OK)
			return KILN_OK;
		status = cache_db_fail(db, what, error);
	}
	/* A full disk may have rolled back already. */
	if (!sqlite3_get_autocommit(db->handle))
		sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
	return status;
}

/* Asks a question; returns the first column of its first row as a number and as a text. */
static int ask_text(struct cache_db *db, const char *question, int64_t *number, char *text,
					size_t size)
{
	sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(db->handle, question, -1, &statement, NULL);
	if (code == SQLITE_OK) {
		code = sqlite3_step(statement);
		if (code == SQLITE_ROW) {
			const char *answer = (const char *)sqlite3_column_text(statement, 0);
			snprintf(text, size, "%s", answer ? answer : "");
			*number = sqlite3_column_int64(statement, 0);
			code = SQLITE_OK;
		}
	}
	/* The reset inside repeats an error, so that cache_db_fail() still sees it. */
	sqlite3_finalize(statement);
	return code;
}

int cache_db_ask(struct cache_db *db, const char *question, int64_t *number)
{
	char text[32];
	*number = 0;
	return ask_text(db, question, number, text, sizeof(text));
}

/* Whether SQLite could not read a page, which tells nothing about the page's content. */
static bool says_unread(const char *answer)
{
	static const char words[] = "error code=";
	const char *code = strstr(answer, words);
	return code && (strtol(code + strlen(words), NULL, 10) & 0xff) == SQLITE_IOERR;
}

/* Looks for damage: KILN_EPROTO. */
static int look_over(struct cache_db *db, enum cache_db_check check, char error[KERNEL_ERROR_MAX])
{
	char answer[128] = "";
	int64_t number;
	errno = 0;
	if (ask_text(db, check == DB_CHECK_ALL ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)",
				 &number, answer, sizeof(answer)) != SQLITE_OK)
		return cache_db_fail(db, "checking", error);
	/* SQLite says of some unreadable pages only that they are missing; errno tells why. */
	if (says_unread(answer) || (strcmp(answer, "ok") != 0 && errno == EIO))
		return FAIL(KILN_EIO, "checking %.150s failed: disk I/O error: see to its disk", db->path);
	if (strcmp(answer, "ok") != 0)
		return FAIL(KILN_EPROTO, "%.100s is damaged: %s", db->path, answer);
	return KILN_OK;
}

static int configure(struct cache_db *db, enum cache_db_check check, char error[KERNEL_ERROR_MAX])
{
	char answer[128] = "";
	int64_t number;
	if (ask_text(db, "PRAGMA journal_mode = WAL", &number, answer, sizeof(answer)) != SQLITE_OK ||
		sqlite3_exec(db->handle,
					 "PRAGMA synchronous = NORMAL; PRAGMA secure_delete = OFF;"
					 "PRAGMA journal_size_limit = 16777216; PRAGMA wal_autocheckpoint = 250;"
					 "PRAGMA temp_store = MEMORY;"
					 "PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF",
					 NULL, NULL, NULL) != SQLITE_OK)
		return cache_db_fail(db, "opening", error);
	if (strcmp(answer, "wal") != 0) {
		return FAIL(KILN_EIO,
					"%.150s cannot have a write-ahead log, only journal mode %s: choose another "
					"--cache-dir",
					db->path, answer);
	}
	if (check != DB_CHECK_NOTHING) {
		int status = look_over(db, check, error);
		if (status != KILN_OK)
			return status;
	}
	for (int i = 0; i < DB_STATEMENTS; i++) {
		int code = sqlite3_prepare_v3(db->handle, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
									  &db->statements[i], NULL);
		if (code != SQLITE_OK)
			return cache_db_refuse(db, "opening", error);
	}
	return KILN_OK;
}

/* Looks at the file of this path; status is all zero where there is none.  False: the system does
 * not say. */
static bool look_at(const char *path, struct stat *status)
{
	if (cache_fault_lstat(path, status) == 0)
		return true;
	*status = (struct stat){.st_size = 0};
	return errno == ENOENT || errno == ENOTDIR;
}

static bool look_at_log(const char *path, struct stat *status)
{
	char name[PATH_MAX + 32];
	snprintf(name, sizeof(name), "%s-wal", path);
	return look_at(name, status);
}

static struct db_file file_of(const struct stat *status)
{
	return (struct db_file){status->st_dev, status->st_ino};
}

/* Whether the file at the path is still the one that is open. */
static bool is_file(struct db_file *open, const struct stat *now)
{
	if (!open->inode)
		*open = file_of(now);
	return open->device == now->st_dev && open->inode == now->st_ino;
}

/* Refuses a path where a directory, a link or a pipe stands.  In the place of the log it removes
 * them, for they have nothing of the cache. */
static int check_files(const char *path, char error[KERNEL_ERROR_MAX])
{
	struct stat status, log;
	char name[PATH_MAX + 32];
	(void)look_at_log(path, &log);
	snprintf(name, sizeof(name), "%s-wal", path);
	if (log.st_mode && !S_ISREG(log.st_mode) && unlink(name) < 0 && rmdir(name) < 0)
		return FAIL(KILN_EPROTO, "%.150s is no file, and cannot be removed", name);
	if (lstat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
		return FAIL(KILN_EPROTO, "%.150s is no file but a %s", path,
					S_ISDIR(status.st_mode)   ? "directory"
					: S_ISLNK(status.st_mode) ? "link"
											  : "special file");
	}
	return KILN_OK;
}

int cache_db_open(const char *path, enum cache_db_check check, struct cache_db **out,
				  char error[KERNEL_ERROR_MAX])
{
	struct cache_db *db = util_alloc(sizeof(*db));
	snprintf(db->path, sizeof(db->path), "%s", path);
	errno = 0;
	int status = check_files(path, error);
	struct stat there;
	/* SQLite would make the file readable for all. */
	int fd = status == KILN_OK
				 ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)
				 : -1;
	if (fd >= 0)
		close(fd);
	if (look_at(path, &there))
		db->file = file_of(&there);
	if (status == KILN_OK &&
		sqlite3_open_v2(path, &db->handle,
						SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX,
						NULL) != SQLITE_OK) {
		status = db->handle ? cache_db_fail(db, "opening", error)
							: FAIL(KILN_ENOMEM, "opening %.150s failed: out of memory", path);
	} else if (status == KILN_OK && sqlite3_db_readonly(db->handle, "main") == 1) {
		status =
			FAIL(KILN_EIO,
				 "%.150s cannot be written: make it writable, or choose another --cache-dir", path);
	}
	if (status == KILN_OK) {
		sqlite3_busy_timeout(db->handle, DEADLINE_DATABASE_MS);
		sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
		/* One process owns the directory: no shared memory is needed beside the log. */
		sqlite3_exec(db->handle, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
		status = cache_db_identify(db, error);
	}
	if (status == KILN_OK)
		status = configure(db, check, error);
	if (status != KILN_OK) {
		cache_db_close(db);
		return status;
	}
	if (look_at_log(path, &there))
		db->log = file_of(&there);
	*out = db;
	return KILN_OK;
}

enum cache_db_lost cache_db_lost(struct cache_db *db)
{
	struct stat file, log;
	/* Files that the system says nothing of count as there. */
	if (look_at(db->path, &file) && (!file.st_ino || !is_file(&db->file, &file)))
		return DB_LOST_FILE;
	return look_at_log(db->path, &log) && !is_file(&db->log, &log) ? DB_LOST_LOG : DB_LOST_NOTHING;
}

int cache_db_probe(struct cache_db *db, char error[KERNEL_ERROR_MAX])
{
	char text[48];
	snprintf(text, sizeof(text), "PRAGMA user_version = %d", DB_SCHEMA);
	int code = sqlite3_exec(db->handle, text, NULL, NULL, NULL);
	int status = code == SQLITE_OK ? KILN_OK : cache_db_fail(db, "writing to", error);
	return (code & 0xff) == SQLITE_READONLY ? KILN_EPERM : status;
}

void cache_db_close(struct cache_db *db)
{
	if (!db)
		return;
	for (int i = 0; i < DB_STATEMENTS; i++)
		sqlite3_finalize(db->statements[i]);
	sqlite3_close(db->handle);
	free(db);
}
