/*
 * Packs: rows go to a file and come back the same; whatever was cut, changed or made up is refused
 * whole; and what fails in the middle leaves nothing behind.
 */
#include "cache_rows.h"

#include "daemon/cache/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOW 1700000000

static struct seal_secret secret;
static struct seal_ring *ring;
static struct pack_figures figures;

/* The key is the hash of the text, as the daemon has it. */
static void make_true_row(int number, size_t bytes, const char *compiler, struct cache_row *row)
{
	struct util_hash hash;
	unsigned char digest[32];
	char text[128];
	make_row(number, bytes, row);
	snprintf(text, sizeof(text), "kiln-key 1\ntarget cpu\ntoolchain %s\nnumber %d\n", compiler,
			 number);
	free(row->key_text);
	row->key_text = strdup(text);
	util_hash_begin(&hash);
	util_hash_add(&hash, text, strlen(text));
	util_hash_end(&hash, digest);
	util_hex(digest, 32, row->key);
}

static void put_true(struct cache *cache, int number, size_t bytes, const char *compiler)
{
	struct cache_row row;
	make_true_row(number, bytes, compiler, &row);
	assert_int_equal(cache_put(cache, &row, error), KILN_OK);
	cache_row_free(&row);
}

static bool has_true(struct cache *cache, int number, size_t bytes)
{
	struct cache_row row, found;
	make_true_row(number, bytes, "nvrtc 13.0", &row);
	bool has = cache_get(cache, row.key, &found, error) == KILN_OK;
	if (has) {
		assert_int_equal(found.object_bytes, row.object_bytes);
		assert_memory_equal(found.object, row.object, row.object_bytes);
		assert_string_equal(found.key_text, row.key_text);
		cache_row_free(&found);
	}
	cache_row_free(&row);
	return has;
}

/* Another cache, beside the first. */
static struct cache *open_other(uint64_t cap)
{
	struct cache_options options = {.directory = in_directory("other"), .cap_bytes = cap};
	struct cache *cache = NULL;
	if (cache_open(&options, &cache, error) != KILN_OK)
		fail_msg("cache_open: %s", error);
	return cache;
}

static int set_up(void **state)
{
	struct seal_key key;
	char keys[128];
	if (make_directory(state) != 0)
		return -1;
	util_log_level = UTIL_ERROR;
	snprintf(keys, sizeof(keys), "%s/keys", directory);
	return seal_new(keys, "k", &key, error) == KILN_OK &&
				   seal_open(keys, "k", &secret, error) == KILN_OK &&
				   seal_ring_open(keys, &ring, error) == KILN_OK
			   ? 0
			   : -1;
}

static int tear_down(void **state)
{
	seal_ring_free(ring);
	return remove_directory(state);
}

static const char *pack_path(void)
{
	static char path[128];
	snprintf(path, sizeof(path), "%s/k.pack", directory);
	return path;
}

static int write_pack(struct cache *cache, const struct cache_trim *filter, int64_t until)
{
	struct pack_writer *writer;
	bool more = true;
	int status = pack_write_open(pack_path(), false, filter, &writer, error);
	if (status != KILN_OK)
		return status;
	while (status == KILN_OK && more)
		status = pack_write(writer, cache, &more, error);
	if (status == KILN_OK)
		status = pack_write_end(writer, &secret, NOW, until, &figures, error);
	pack_write_close(writer);
	return status;
}

static void limit_files(rlim_t bytes)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* As the daemon does: what fails is undone.  Then there is room again, as the reader gives its
 * reserve up, which a limit of files knows nothing of. */
static int read_pack(struct cache *cache)
{
	struct pack_reader *reader;
	bool more = true;
	int status = pack_read_open(pack_path(), ring, &reader, error);
	if (status != KILN_OK)
		return status;
	while (status == KILN_OK && more)
		status = pack_read(reader, cache, NOW + 1, &more, error);
	limit_files(RLIM_INFINITY);
	while (status != KILN_OK && pack_undo(reader, cache))
		continue;
	figures = *pack_figures(reader);
	pack_read_close(reader);
	return status;
}

static struct cache *filled(int count, size_t bytes)
{
	struct cache *cache = open_cache(0, 0);
	for (int i = 0; i < count; i++)
		put_true(cache, i, bytes, "nvrtc 13.0");
	return cache;
}

static const struct cache_trim everything = {.bytes = 0};

static void rows_come_back_the_same(void **state)
{
	struct cache *cache = filled(150, 1000), *other = open_other(0);
	(void)state;
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	assert_int_equal(figures.rows, 150);
	assert_int_equal(read_pack(other), KILN_OK);
	assert_int_equal(figures.taken, 150);
	assert_int_equal(figures.present, 0);
	assert_int_equal(stats_of(other).rows, 150);
	for (int i = 0; i < 150; i++)
		assert_true(has_true(other, i, 1000));
	assert_int_equal(read_pack(other), KILN_OK);
	assert_int_equal(figures.taken, 0);
	assert_int_equal(figures.present, 150);
	assert_int_equal(verify_all(other, NULL, NULL).bad, 0);
	cache_close(other);
	/* The same rows, the same file but for the seal's time, which is the same here. */
	size_t first_size, second_size;
	char *first = util_read_file(pack_path(), 1 << 20, &first_size);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	char *second = util_read_file(pack_path(), 1 << 20, &second_size);
	assert_int_equal(first_size, second_size);
	assert_memory_equal(first, second, first_size);
	free(first);
	free(second);
	cache_close(cache);
}

static struct cache_tuned winner_of(const char *op, const char *target, int64_t when)
{
	struct cache_tuned row = {.model = "NVIDIA H200",
							  .signature = "kernel<4>",
							  .choice = "tile 64x32",
							  .micros = 1.5,
							  .own_micros = 2,
							  .candidates = 3,
							  .when = when,
							  .version = "0.1.0"};
	snprintf(row.op, sizeof(row.op), "%s", op);
	snprintf(row.target, sizeof(row.target), "%s", target);
	return row;
}

static void count_row(const struct cache_tuned *row, void *arg)
{
	(void)row;
	(*(int *)arg)++;
}

static int winners_in(struct cache *cache)
{
	int count = 0;
	assert_int_equal(cache_tuned_list(cache, count_row, &count, error), KILN_OK);
	return count;
}

/* Returns the version of the file: older releases read only packs without winners. */
static int version_of_pack(void)
{
	size_t size;
	char *bytes = util_read_file(pack_path(), 1 << 20, &size);
	int version = bytes[8];
	free(bytes);
	return version;
}

static void winners_come_along(void **state)
{
	struct cache *cache = filled(2, 100), *other = open_other(0);
	struct cache_tuned gpu = winner_of("permute", "sm_90", 100),
					   cpu = winner_of("permute", "cpu", 100);
	const struct cache_trim target = {.target = "cpu"};
	(void)state;
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	assert_int_equal(figures.winners, 0);
	assert_int_equal(version_of_pack(), 1);
	assert_int_equal(cache_tuned_put(cache, &gpu, error), KILN_OK);
	assert_int_equal(write_pack(cache, &target, 0), KILN_OK);
	assert_int_equal(version_of_pack(), 1);
	assert_int_equal(cache_tuned_put(cache, &cpu, error), KILN_OK);
	assert_int_equal(write_pack(cache, &target, 0), KILN_OK);
	assert_int_equal(figures.winners, 1);
	assert_int_equal(version_of_pack(), 2);
	assert_int_equal(read_pack(other), KILN_OK);
	assert_int_equal(figures.taken, 2);
	assert_int_equal(figures.winners, 1);
	assert_int_equal(winners_in(other), 1);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	assert_int_equal(figures.winners, 2);
	assert_int_equal(read_pack(other), KILN_OK);
	assert_int_equal(figures.present, 2);
	assert_int_equal(winners_in(other), 2);
	/* Winners alone are no pack. */
	assert_int_equal(trim_to(cache, 0).removed, 2);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_ENOENT);
	cache_close(other);
	cache_close(cache);
}

static void large_rows_go_in_pieces(void **state)
{
	struct cache *cache = filled(3, 3 << 20), *other = open_other(0);
	(void)state;
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	assert_int_equal(figures.rows, 3);
	assert_int_equal(read_pack(other), KILN_OK);
	for (int i = 0; i < 3; i++)
		assert_true(has_true(other, i, 3 << 20));
	cache_close(other);
	cache_close(cache);
}

static void filters_choose(void **state)
{
	struct cache *cache = open_cache(0, 0);
	const struct cache_trim op = {.op = "softmax"}, compiler = {.compiler = "nvrtc 12"},
							target = {.target = "cpu"}, age = {.used_before = 1000};
	(void)state;
	put_true(cache, 1, 10, "nvrtc 12.8");
	put_true(cache, 2, 10, "nvrtc 13.0");
	assert_int_equal(write_pack(cache, &compiler, 0), KILN_OK);
	assert_int_equal(figures.rows, 1);
	assert_int_equal(write_pack(cache, &target, 0), KILN_OK);
	assert_int_equal(figures.rows, 2);
	assert_int_equal(write_pack(cache, &op, 0), KILN_ENOENT);
	assert_string_equal(error, "there is no kernel to export: the cache has none of this kind");
	assert_int_equal(write_pack(cache, &age, 0), KILN_ENOENT);
	/* An unfinished pack leaves no file, and the one before is as it was. */
	struct cache *other = open_other(0);
	assert_int_equal(read_pack(other), KILN_OK);
	assert_int_equal(figures.taken, 2);
	cache_close(other);
	char command[160];
	snprintf(command, sizeof(command), "test -z \"$(ls %s | grep part)\"", directory);
	assert_int_equal(system(command), 0);
	cache_close(cache);
}

/* Refused, and nothing of it is kept. */
static void refused(struct cache *cache, int status)
{
	error[0] = 0;
	assert_int_equal(read_pack(cache), status);
	assert_true(error[0]);
	assert_null(strchr(error, '\n'));
	assert_int_equal(stats_of(cache).rows, 0);
}

static void put_bytes(const void *bytes, size_t size)
{
	FILE *file = fopen(pack_path(), "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

static void every_byte_counts(void **state)
{
	struct cache *cache = filled(2, 20), *other = open_other(0);
	size_t size;
	(void)state;
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	cache_close(cache);
	char *pack = util_read_file(pack_path(), 1 << 20, &size);
	int fd = open(pack_path(), O_RDWR | O_CLOEXEC);
	for (size_t i = 0; i < size; i++) {
		char changed = (char)(pack[i] ^ 1 << i % 8);
		assert_int_equal(pwrite(fd, &changed, 1, (off_t)i), 1);
		refused(other, i < 8 ? KILN_EINVAL : i < 16 ? KILN_EVERSION : KILN_EPERM);
		assert_int_equal(pwrite(fd, &pack[i], 1, (off_t)i), 1);
	}
	for (size_t i = size; i-- > 0;) {
		assert_int_equal(ftruncate(fd, (off_t)i), 0);
		refused(other, i < 184 ? KILN_EINVAL : KILN_EPERM);
	}
	close(fd);
	put_bytes(pack, size);
	assert_int_equal(read_pack(other), KILN_OK);
	assert_int_equal(stats_of(other).rows, 2);
	free(pack);
	cache_close(other);
}

static void strangers_and_old_ones_are_refused(void **state)
{
	struct cache *cache = filled(2, 20), *other = open_other(0);
	char strangers[128];
	struct seal_key key;
	(void)state;
	assert_int_equal(write_pack(cache, &everything, NOW), KILN_OK);
	refused(other, KILN_EPERM);
	assert_non_null(strstr(error, "the pack k.pack, sealed by key k ("));
	assert_non_null(strstr(error, "expired on"));
	snprintf(strangers, sizeof(strangers), "%s/strangers", directory);
	assert_int_equal(seal_new(strangers, "s", &key, error), KILN_OK);
	assert_int_equal(seal_open(strangers, "s", &secret, error), KILN_OK);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	refused(other, KILN_EPERM);
	assert_non_null(strstr(error, "which is not trusted here"));
	assert_int_equal(unlink(pack_path()), 0);
	refused(other, KILN_EIO);
	put_bytes("no pack", 7);
	refused(other, KILN_EINVAL);
	cache_close(other);
	cache_close(cache);
}

/* Sealed well by a key that is trusted, and wrong all the same. */
static void what_is_sealed_may_be_wrong(void **state)
{
	struct cache *cache = open_cache(0, 0), *other = open_other(0);
	(void)state;
	put_true(cache, 1, 10, "nvrtc 13.0");
	put_true(cache, 2, 10, "nvrtc 13.0");
	assert_int_equal(put(cache, 7, 10), KILN_OK); /* its key is not the hash of its text */
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	refused(other, KILN_EPROTO);
	assert_non_null(strstr(error, "whose key is not the hash of its text"));

	assert_int_equal(trim_to(cache, 0).removed, 3);
	put_true(cache, 1, 10, "nvrtc 13.0");
	struct cache_tuned row = winner_of("permute", "cpu", 1), backwards = row;
	snprintf(row.signature, sizeof(row.signature), "kernel<1>"); /* comes first, and is right */
	backwards.micros = -1;
	assert_int_equal(cache_tuned_put(cache, &row, error), KILN_OK);
	assert_int_equal(cache_tuned_put(cache, &backwards, error), KILN_OK);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	refused(other, KILN_EPROTO);
	assert_non_null(strstr(error, "has a damaged winner of tuning"));
	assert_int_equal(winners_in(other), 0);
	cache_close(cache);
	cache_close(other);
}

static void too_many_are_refused_before(void **state)
{
	struct cache *cache = filled(40, 4000), *other = open_other(64 << 10);
	(void)state;
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	refused(other, KILN_ELIMIT);
	assert_non_null(strstr(error, "raise --cache-bytes"));
	assert_int_equal(figures.taken, 0);
	cache_close(other);
	cache_close(cache);
}

static void what_changes_meanwhile_is_undone(void **state)
{
	struct cache *cache = filled(150, 1000), *other = open_other(0);
	struct pack_reader *reader;
	bool more = true;
	size_t size;
	(void)state;
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	cache_close(cache);
	put_true(other, 3, 1000, "nvrtc 13.0"); /* there before, and afterwards */
	assert_int_equal(pack_read_open(pack_path(), ring, &reader, error), KILN_OK);
	while (pack_figures(reader)->taken == 0) {
		assert_int_equal(pack_read(reader, other, NOW, &more, error), KILN_OK);
		assert_true(more);
	}
	assert_true(stats_of(other).rows > 50);
	assert_string_equal(pack_signer(reader)->name, "k");
	char *pack = util_read_file(pack_path(), 1 << 20, &size);
	pack[size - 300] ^= 1; /* in the last row */
	put_bytes(pack, size);
	free(pack);
	int status = KILN_OK;
	while (status == KILN_OK)
		status = pack_read(reader, other, NOW, &more, error);
	assert_int_equal(status, KILN_EPERM);
	assert_string_equal(error, "the pack k.pack was changed while it was read");
	while (pack_undo(reader, other))
		continue;
	assert_int_equal(pack_figures(reader)->undone, pack_figures(reader)->taken);
	pack_read_close(reader);
	assert_int_equal(stats_of(other).rows, 1);
	assert_true(has_true(other, 3, 1000));
	cache_close(other);
}

/* A pack does not take the place of what is no file. */
static void only_files_are_replaced(void **state)
{
	struct cache *cache = filled(1, 20);
	(void)state;
	assert_int_equal(mkfifo(pack_path(), 0600), 0);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_EINVAL);
	assert_non_null(strstr(error, "is there already and is no file"));
	assert_int_equal(unlink(pack_path()), 0);
	assert_int_equal(symlink("elsewhere", pack_path()), 0);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_EINVAL);
	assert_int_equal(unlink(pack_path()), 0);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	cache_close(cache);
}

/* Another kernel for the same key. */
static void put_false(struct cache *cache, int number, size_t bytes)
{
	struct cache_row row;
	make_true_row(number, bytes, "nvrtc 13.0", &row);
	((unsigned char *)row.object)[0] ^= 1;
	assert_int_equal(cache_put(cache, &row, error), KILN_OK);
	cache_row_free(&row);
}

/* A pack that is another one once its seal was looked at: none of its rows is taken, not even for
 * as long as it is read. */
static void what_the_seal_is_not_for_is_never_taken(void **state)
{
	struct cache *cache = filled(150, 1000), *other = open_other(0);
	struct pack_reader *reader;
	bool more = true;
	size_t size;
	(void)state;
	for (int i = 0; i < 150; i++)
		put_false(cache, i, 1000);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	char *pack = util_read_file(pack_path(), 1 << 20, &size);
	for (int i = 0; i < 150; i++)
		put_true(cache, i, 1000, "nvrtc 13.0");
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	cache_close(cache);
	assert_int_equal(pack_read_open(pack_path(), ring, &reader, error), KILN_OK);
	while (!pack_signer(reader)->name[0])
		assert_int_equal(pack_read(reader, other, NOW, &more, error), KILN_OK);
	assert_int_equal(pack_figures(reader)->taken, 0);
	put_bytes(pack, size);
	free(pack);
	int status = KILN_OK;
	while (status == KILN_OK && more)
		status = pack_read(reader, other, NOW, &more, error);
	assert_int_equal(status, KILN_EPERM);
	uint64_t same = 0;
	for (int i = 0; i < 150; i++)
		same += has_true(other, i, 1000); /* which fails at another object */
	assert_int_equal(same, stats_of(other).rows);
	while (pack_undo(reader, other))
		continue;
	pack_read_close(reader);
	assert_int_equal(stats_of(other).rows, 0);
	cache_close(other);
}

static void a_full_disk_leaves_nothing(void **state)
{
	struct cache *cache = filled(200, 60000), *other = open_other(0);
	struct stat status;
	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	limit_files(100000);
	refused(other, KILN_EIO);
	assert_non_null(strstr(error, "there is no room for the pack k.pack on the disk"));
	assert_int_equal(figures.taken, 0);
	limit_files(4300000);
	refused(other, KILN_EIO);
	assert_true(figures.taken > 10);
	assert_int_equal(figures.undone, figures.taken);
	assert_int_equal(unlink(pack_path()), 0);
	limit_files(4300000);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_EIO);
	assert_non_null(strstr(error, "k.pack cannot be written: File too large"));
	assert_int_equal(stat(pack_path(), &status), -1);
	limit_files(RLIM_INFINITY);
	assert_int_equal(write_pack(cache, &everything, 0), KILN_OK);
	assert_int_equal(read_pack(other), KILN_OK);
	assert_int_equal(stats_of(other).rows, 200);
	cache_close(other);
	cache_close(cache);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(rows_come_back_the_same),
		TEST(winners_come_along),
		TEST(large_rows_go_in_pieces),
		TEST(filters_choose),
		TEST(every_byte_counts),
		TEST(strangers_and_old_ones_are_refused),
		TEST(what_is_sealed_may_be_wrong),
		TEST(too_many_are_refused_before),
		TEST(what_changes_meanwhile_is_undone),
		TEST(what_the_seal_is_not_for_is_never_taken),
		TEST(only_files_are_replaced),
		TEST(a_full_disk_leaves_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
