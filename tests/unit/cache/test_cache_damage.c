/*
 * Damage, kind by kind, where test_cache_trouble flips bits at random: each page of the database
 * zeroed, overwritten, exchanged and set back in time, the file cut anywhere, its log cut, damaged
 * or lost, and rows with numbers that nobody wrote.  A row is right or missing, and the cache works
 * on.
 */
#include "cache_disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define PAGE 4096
#define ROWS 60

struct content {
	unsigned char *bytes;
	size_t size;
};

static struct content read_content(const char *name)
{
	struct content content;
	content.bytes = (unsigned char *)util_read_file(in_directory(name), 16 << 20, &content.size);
	assert_non_null(content.bytes);
	return content;
}

static void write_content(const char *name, const void *bytes, size_t size)
{
	FILE *file = fopen(in_directory(name), "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

/* Rows of few and of many pages, and a list of free ones. */
static void fill(struct cache *cache, int from, int to)
{
	struct cache_tuned tuned = {.op = "permute",
								.model = "m",
								.target = "cpu",
								.signature = "s",
								.choice = "c",
								.version = "1",
								.micros = 1,
								.own_micros = 2};
	char key[KERNEL_KEY_HEX], found[KERNEL_KEY_HEX];
	for (int i = from; i <= to; i++)
		assert_int_equal(put(cache, i, i % 5 ? 300 : 30000), KILN_OK);
	key_of(from, key);
	assert_int_equal(cache_pin(cache, key, true, found, error), KILN_OK);
	assert_int_equal(cache_tuned_put(cache, &tuned, error), KILN_OK);
	key_of(to, key);
	assert_int_equal(cache_remove(cache, key, error), KILN_OK);
}

static int missing, found_rows, set_aside;

/* Opens what there is now, and does with it what a daemon does. */
static void use_it(const char *what, size_t at)
{
	struct cache_options options = {.directory = directory, .memory_bytes = 1 << 20};
	struct cache *cache = NULL;
	int status = cache_open(&options, &cache, error);
	/* The number of the schema is a page's content like any other. */
	if (status == KILN_EVERSION)
		return;
	if (status != KILN_OK)
		fail_msg("%s %zu: %s", what, at, error);
	for (int i = 1; i <= ROWS; i++) {
		status = get(cache, i);
		if (status != KILN_OK && status != KILN_ENOENT && status != KILN_EIO)
			fail_msg("%s %zu: row %d: %d %s", what, at, i, status, error);
		missing += status != KILN_OK;
		found_rows += status == KILN_OK;
	}
	/* The next at the latest finds a database that is sound. */
	for (int i = 0; put(cache, 3, 700) != KILN_OK || put(cache, ROWS + 1, 40000) != KILN_OK; i++)
		if (i == 5)
			fail_msg("%s %zu: %s", what, at, error);
	struct cache_trimmed progress = {0};
	struct cache_trim half = {.bytes = UINT64_MAX, .rows = 20};
	for (int i = 0; cache_trim(cache, &half, &progress, NULL, NULL, error) != KILN_OK; i++) {
		if (i == 5)
			fail_msg("%s %zu: trim: %s", what, at, error);
		progress = (struct cache_trimmed){0};
	}
	assert_int_equal(put(cache, 2, 700), KILN_OK);
	cache_drop_memory(cache);
	if (get(cache, 2) != KILN_OK)
		fail_msg("%s %zu: what was stored last is not there: %s", what, at, error);
	set_aside += stats_of(cache).aside > 0;
	cache_close(cache);
}

static void clean(void)
{
	DIR *files = opendir(directory);
	assert_non_null(files);
	for (struct dirent *file; (file = readdir(files));)
		if (file->d_name[0] != '.')
			assert_int_equal(unlinkat(dirfd(files), file->d_name, 0), 0);
	closedir(files);
}

static void try_it(const char *what, size_t at, const void *bytes, size_t size)
{
	write_content("kiln.db", bytes, size);
	use_it(what, at);
	clean();
}

/* ---- Pages ---- */

static struct content make_database(struct content *older)
{
	struct cache *cache = open_cache(0, 0);
	fill(cache, 1, ROWS / 2);
	cache_close(cache);
	*older = read_content("kiln.db");
	cache = open_cache(0, 0);
	fill(cache, ROWS / 2 + 1, ROWS);
	cache_close(cache);
	struct content sound = read_content("kiln.db");
	clean();
	return sound;
}

/* By the first byte of a page; 0: it is no page of a tree. */
static int kind_of(const struct content *content, size_t page)
{
	int first = content->bytes[page * PAGE + (page == 0 ? 100 : 0)];
	return first == 2 || first == 5 || first == 10 || first == 13 ? first : 0;
}

static void each_page(void **state)
{
	(void)state;
	struct content older, sound = make_database(&older);
	size_t pages = sound.size / PAGE;
	unsigned char *damaged = malloc(sound.size);
	int kinds[14] = {0};
	assert_true(pages > 40);
	for (size_t page = 0; page < pages; page++) {
		size_t other = (page * 7 + 3) % pages;
		unsigned char *at = damaged + page * PAGE;
		int kind = kind_of(&sound, page);
		/* Pages with bytes of objects are many and alike: some of them are enough. */
		if (!kind && page > 3 && page % 5)
			continue;
		kinds[kind]++;
		memcpy(damaged, sound.bytes, sound.size);
		memset(at, 0, PAGE);
		try_it("zeroed page", page, damaged, sound.size);
		memset(at, 0x5a, PAGE);
		try_it("overwritten page", page, damaged, sound.size);
		memcpy(at, sound.bytes + other * PAGE, PAGE);
		try_it("exchanged page", page, damaged, sound.size);
		/* Its second half only, where a page has its cells. */
		memcpy(at, sound.bytes + page * PAGE, PAGE);
		memset(at + PAGE / 2, 0xff, PAGE / 2);
		try_it("half a page", page, damaged, sound.size);
		if ((page + 1) * PAGE <= older.size) {
			memcpy(at, older.bytes + page * PAGE, PAGE);
			try_it("older page", page, damaged, sound.size);
		}
	}
	/* Leaves and inner pages of tables and indices, and others. */
	assert_true(kinds[13] && kinds[5] && kinds[10] && kinds[0]);
	assert_true(found_rows > 1000 && missing > 1000 && set_aside > 50);
	free(damaged);
	free(sound.bytes);
	free(older.bytes);
}

static void cut_anywhere(void **state)
{
	(void)state;
	static const size_t places[] = {0, 1, 15, 16, 99, 100, 101, 511, 4095};
	struct content older, sound = make_database(&older);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		try_it("cut at", places[i], sound.bytes, places[i]);
	for (size_t page = 1; page < sound.size / PAGE; page += 3) {
		try_it("cut at", page * PAGE, sound.bytes, page * PAGE);
		try_it("cut at", page * PAGE + 1000, sound.bytes, page * PAGE + 1000);
	}
	free(sound.bytes);
	free(older.bytes);
}

/* ---- The log ---- */

#define FRAME (PAGE + 24)
#define LOG_HEADER 32

/* Leaves what a killed daemon leaves: a file, and a log with the newest rows. */
static void leave_behind(struct content *file, struct content *log)
{
	struct cache *cache = open_cache(0, 0);
	fill(cache, 1, ROWS / 2);
	cache_flush(cache);
	for (int i = ROWS / 2 + 1; i <= ROWS; i++)
		assert_int_equal(put(cache, i, 300), KILN_OK);
	*file = read_content("kiln.db");
	*log = read_content("kiln.db-wal");
	cache_close(cache);
	clean();
}

/* How many of the rows in the log are there, which are the first of them; none is wrong. */
static int count_logged(const char *what, size_t at)
{
	struct cache *cache = open_cache(0, 0);
	int count = 0;
	for (int i = ROWS / 2 + 1; i <= ROWS; i++) {
		int status = get(cache, i);
		if (status != KILN_OK && status != KILN_ENOENT)
			fail_msg("%s %zu: row %d: %s", what, at, i, error);
		if (status == KILN_OK && count != i - ROWS / 2 - 1)
			fail_msg("%s %zu: row %d is there and one before it is not", what, at, i);
		count += status == KILN_OK;
	}
	/* And of those that were in the file none has gone. */
	for (int i = 1; i < ROWS / 2; i++)
		if (get(cache, i) != KILN_OK)
			fail_msg("%s %zu: row %d: %s", what, at, i, error);
	assert_int_equal(verify_all(cache, NULL, NULL).bad, 0);
	assert_int_equal(stats_of(cache).aside, 0);
	cache_close(cache);
	clean();
	return count;
}

static void logs(void **state)
{
	(void)state;
	struct content file, log;
	leave_behind(&file, &log);
	size_t frames = (log.size - LOG_HEADER) / FRAME;
	int before = 0;
	assert_true(frames > ROWS / 2);
	for (size_t frame = 0; frame <= frames; frame++) {
		size_t cut = LOG_HEADER + frame * FRAME;
		write_content("kiln.db", file.bytes, file.size);
		write_content("kiln.db-wal", log.bytes, cut < log.size ? cut + 7 : log.size);
		int count = count_logged("log cut at frame", frame);
		assert_true(count >= before);
		before = count;
		if (frame == frames || frame % 4)
			continue;
		/* The same where a frame is damaged: what comes behind it is not believed. */
		log.bytes[cut + 24 + frame % PAGE] ^= 1;
		write_content("kiln.db", file.bytes, file.size);
		write_content("kiln.db-wal", log.bytes, log.size);
		assert_true(count_logged("log damaged at frame", frame) <= count + 1);
		log.bytes[cut + 24 + frame % PAGE] ^= 1;
	}
	assert_int_equal(before, ROWS / 2);
	/* None, one of another program, and one of another database. */
	write_content("kiln.db", file.bytes, file.size);
	assert_int_equal(count_logged("no log", 0), 0);
	write_content("kiln.db", file.bytes, file.size);
	write_content("kiln.db-wal", file.bytes, file.size);
	assert_int_equal(count_logged("a log that is none", 0), 0);
	write_content("kiln.db-wal", log.bytes, log.size);
	use_it("a log without a file", 0);
	free(file.bytes);
	free(log.bytes);
}

/* ---- Rows that nobody wrote ---- */

static void note(const struct cache_row *row, void *arg)
{
	int *count = arg;
	*count += row->used >= 0 && row->created >= 0 && row->hits >= 0;
}

static void rows_that_nobody_wrote(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"UPDATE kernels SET hits = 9223372036854775807",
		"UPDATE kernels SET hits = -9223372036854775807 - 1, used = hits, created = hits",
		"UPDATE kernels SET used = 9223372036854775807, created = -5",
		"UPDATE kernels SET turn = 9223372036854775807",
		"UPDATE kernels SET turn = -9223372036854775807",
		"UPDATE kernels SET turn = 7",
		"UPDATE kernels SET bytes = -1, size = -1",
		"UPDATE kernels SET bytes = 9223372036854775807, size = 9223372036854775807",
		"UPDATE kernels SET op = '', target = '', instantiation = ''",
		"UPDATE kernels SET op = printf('%.*c', 100000, 'x'), compiler = op, instantiation = op",
		"UPDATE kernels SET key = printf('%.*c', 64, 'g') || id",
		"UPDATE kernels SET registers = -9223372036854775807, shared = registers, micros = shared",
		"DELETE FROM objects",
		"UPDATE objects SET blob = x''",
		"UPDATE objects SET blob = zeroblob(100000)",
		"UPDATE objects SET id = id + 1000",
		"DELETE FROM kernels",
		"UPDATE kernels SET id = -id",
		"INSERT INTO pins SELECT 'pin' || key FROM kernels",
		"INSERT INTO quarantine(key, reason, time, blob) SELECT key, '', -1, NULL FROM kernels",
		("INSERT INTO failures SELECT id, key, op, target, '', '', 5, 9223372036854775807, 0, 0,"
		 " 9223372036854775807, x'00' FROM kernels"),
		"UPDATE tuned SET choice = printf('%.*c', 100000, 'x'), micros = -1, time = -1",
		"DROP TABLE pins",
		"DROP INDEX kernels_by_turn",
		"ALTER TABLE kernels RENAME COLUMN turn TO turns",
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct cache *cache = open_cache(0, 0);
		int count = 0;
		fill(cache, 1, ROWS);
		cache_close(cache);
		run_sql(texts[i]);
		cache = open_cache(0, 0);
		assert_int_equal(cache_list(cache, NULL, "", 0, note, &count, error), KILN_OK);
		assert_int_equal(count, stats_of(cache).rows);
		for (int row = 1; row < 4; row++)
			(void)get(cache, row);
		cache_tend(cache);
		assert_int_equal(stats_of(cache).write_failures, 0);
		cache_close(cache);
		use_it(texts[i], i);
		clean();
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_memory_directory, remove_directory)

int main(void)
{
	util_log_level = getenv("KILN_TEST_LOG") ? UTIL_DEBUG : UTIL_ERROR;
	const struct CMUnitTest tests[] = {
		TEST(each_page),
		TEST(cut_anywhere),
		TEST(logs),
		TEST(rows_that_nobody_wrote),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
