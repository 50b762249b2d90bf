/*
 * seal: keys as files, who is trusted, and what a seal refuses: other bytes, other purposes, other
 * keys, other lengths, times that are over; every bit of a seal and of what it seals counts.
 */
#include "daemon/seal/seal.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

#define NOW 1700000000

static char base[64], keys[96], trusted[96], error[KERNEL_ERROR_MAX];

static int set_up(void **state)
{
	(void)state;
	util_log_level = UTIL_ERROR;
	snprintf(base, sizeof(base), "/tmp/kiln-test-seal-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	snprintf(keys, sizeof(keys), "%s/config/keys", base);
	snprintf(trusted, sizeof(trusted), "%s/config/trusted", base);
	return 0;
}

static int tear_down(void **state)
{
	char command[96];
	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", base);
	return system(command);
}

static const char *file_of(const char *directory, const char *name)
{
	static char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static struct seal_secret new_secret(const char *name)
{
	struct seal_key key;
	struct seal_secret secret;
	assert_int_equal(seal_new(keys, name, &key, error), KILN_OK);
	assert_int_equal(seal_open(keys, name, &secret, error), KILN_OK);
	assert_memory_equal(&secret.key, &key, sizeof(key));
	return secret;
}

static void assert_says(int status, int wanted, const char *part)
{
	assert_int_equal(status, wanted);
	if (!strstr(error, part))
		fail_msg("\"%s\" does not say \"%s\"", error, part);
	assert_null(strchr(error, '\n'));
}

/* ---- Keys ---- */

static void a_pair_is_two_files(void **state)
{
	struct seal_secret secret = new_secret("build-host");
	struct seal_key key, again;
	char line[SEAL_LINE_MAX];
	struct stat st;
	(void)state;
	assert_int_equal(stat(file_of(keys, "build-host.key"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(strlen(secret.key.id), 16);
	char *text = util_read_file(file_of(keys, "build-host.pub"), 4096, NULL);
	assert_non_null(text);
	assert_int_equal(seal_read_line(text, &key, error), KILN_OK);
	free(text);
	assert_memory_equal(&key, &secret.key, sizeof(key));
	seal_line(&key, line);
	assert_int_equal(seal_read_line(line, &again, error), KILN_OK);
	assert_memory_equal(&again, &key, sizeof(key));
	assert_says(seal_new(keys, "build-host", &key, error), KILN_EBUSY, "already");
	seal_forget(&secret);
	for (size_t i = 0; i < sizeof(secret); i++)
		assert_int_equal(((unsigned char *)&secret)[i], 0);
}

static void names_are_names(void **state)
{
	static const char *const bad[] = {
		"",    ".x",       "-x",
		"a/b", "../x",     "a b",
		"a\t", "\xc3\xa9", "a234567890123456789012345678901234567890123456789"};
	struct seal_secret secret;
	struct seal_key key;
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_says(seal_new(keys, bad[i], &key, error), KILN_EINVAL, "no name of a key");
		assert_says(seal_open(keys, bad[i], &secret, error), KILN_EINVAL, "no name of a key");
	}
}

static void public_lines_are_read_strictly(void **state)
{
	char line[SEAL_LINE_MAX + 8];
	struct seal_secret secret = new_secret("line");
	struct seal_key key;
	(void)state;
	seal_line(&secret.key, line);
	size_t size = strlen(line);
	/* every beginning of it but the whole, or with a shorter name */
	for (size_t i = 0; i <= size - strlen("line"); i++) {
		char part[SEAL_LINE_MAX];
		snprintf(part, sizeof(part), "%.*s", (int)i, line);
		assert_int_equal(seal_read_line(part, &key, error), KILN_EINVAL);
	}
	snprintf(line + size, 8, "\nx");
	assert_says(seal_read_line(line, &key, error), KILN_EINVAL, "no public key");
	snprintf(line + size, 8, "\n");
	assert_int_equal(seal_read_line(line, &key, error), KILN_OK);
	snprintf(line + size, 8, "/x");
	assert_says(seal_read_line(line, &key, error), KILN_EINVAL, "no name of a key");
	line[18] = 'g';
	assert_says(seal_read_line(line, &key, error), KILN_EINVAL, "no public key");
}

static void secrets_of_others_are_refused(void **state)
{
	struct seal_secret secret = new_secret("open");
	const char *path = file_of(keys, "open.key");
	(void)state;
	assert_int_equal(chmod(path, 0640), 0);
	assert_says(seal_open(keys, "open", &secret, error), KILN_EPERM, "has mode 640");
	assert_int_equal(chmod(path, 0600), 0);
	write_text(path, "kiln-secret-key 1 0123\n");
	assert_says(seal_open(keys, "open", &secret, error), KILN_EINVAL, "holds no secret key");
	assert_says(seal_open(keys, "none", &secret, error), KILN_ENOENT, "kiln key new none");
}

static void one_secret_needs_no_name(void **state)
{
	struct seal_secret secret;
	(void)state;
	assert_says(seal_open(keys, NULL, &secret, error), KILN_ENOENT, "kiln key new NAME");
	new_secret("first");
	assert_int_equal(chmod(file_of(keys, "first.key"), 0644), 0);
	assert_says(seal_open(keys, NULL, &secret, error), KILN_EPERM, "has mode 644");
	assert_int_equal(chmod(file_of(keys, "first.key"), 0600), 0);
	assert_int_equal(seal_open(keys, NULL, &secret, error), KILN_OK);
	assert_string_equal(secret.key.name, "first");
	new_secret("second");
	assert_says(seal_open(keys, NULL, &secret, error), KILN_EINVAL, "(first, second, ...)");
}

/* ---- Trust ---- */

static void count(const struct seal_key *key, void *arg)
{
	(void)key;
	++*(int *)arg;
}

static void trust_comes_and_goes(void **state)
{
	struct seal_secret a = new_secret("a"), b = new_secret("b");
	struct seal_ring *ring;
	struct seal_key gone;
	int seen = 0;
	(void)state;
	assert_int_equal(seal_ring_open(trusted, &ring, error), KILN_OK); /* no directory */
	assert_int_equal(seal_ring_count(ring), 0);
	seal_ring_free(ring);
	assert_int_equal(seal_trust(trusted, &a.key, error), KILN_OK);
	assert_int_equal(seal_trust(trusted, &a.key, error), KILN_OK);
	snprintf(b.key.name, sizeof(b.key.name), "a");
	assert_says(seal_trust(trusted, &b.key, error), KILN_EBUSY, "kiln key distrust a");
	snprintf(b.key.name, sizeof(b.key.name), "b");
	assert_int_equal(seal_trust(trusted, &b.key, error), KILN_OK);
	write_text(file_of(trusted, "broken.pub"), "no key\n");
	write_text(file_of(trusted, "notes.txt"), "no key\n");
	assert_int_equal(seal_each(trusted, false, count, &seen, error), KILN_OK);
	assert_int_equal(seen, 2);
	assert_int_equal(seal_distrust(trusted, "a", &gone, error), KILN_OK);
	assert_string_equal(gone.id, a.key.id);
	assert_says(seal_distrust(trusted, "a", &gone, error), KILN_ENOENT, "\"a\"");
	/* By whichever name: it is trusted by none of them any more. */
	snprintf(b.key.name, sizeof(b.key.name), "again");
	assert_int_equal(seal_trust(trusted, &b.key, error), KILN_OK);
	assert_int_equal(seal_distrust(trusted, "b", &gone, error), KILN_OK);
	assert_string_equal(gone.name, "b");
	assert_says(seal_distrust(trusted, b.key.id, &gone, error), KILN_ENOENT, b.key.id);
	seen = 0;
	assert_int_equal(seal_each(trusted, false, count, &seen, error), KILN_OK);
	assert_int_equal(seen, 0);
}

static void what_others_can_write_is_not_trusted(void **state)
{
	struct seal_secret a = new_secret("a");
	struct seal_ring *ring;
	(void)state;
	assert_int_equal(seal_trust(trusted, &a.key, error), KILN_OK);
	assert_int_equal(chmod(file_of(trusted, "a.pub"), 0666), 0);
	assert_int_equal(seal_ring_open(trusted, &ring, error), KILN_OK);
	assert_int_equal(seal_ring_count(ring), 0); /* that one is passed over */
	seal_ring_free(ring);
	assert_int_equal(chmod(trusted, 0777), 0);
	assert_says(seal_ring_open(trusted, &ring, error), KILN_EPERM, "has mode 777");
	assert_says(seal_trust(trusted, &a.key, error), KILN_EPERM, "chmod go-w");
}

/* ---- Seals ---- */

static struct seal_ring *ring_of(const struct seal_secret *secret)
{
	struct seal_ring *ring;
	assert_int_equal(seal_trust(trusted, &secret->key, error), KILN_OK);
	assert_int_equal(seal_ring_open(trusted, &ring, error), KILN_OK);
	return ring;
}

/* A user who can rename a directory on the way can put other keys in its place. */
static void what_keys_lie_in_counts(void **state)
{
	struct seal_secret a = new_secret("a"), again;
	struct seal_ring *ring;
	struct seal_key key;
	(void)state;
	assert_int_equal(seal_trust(trusted, &a.key, error), KILN_OK);
	assert_int_equal(chmod(base, 0770), 0);
	assert_says(seal_ring_open(trusted, &ring, error), KILN_EPERM, "with mode 770: others could");
	assert_says(seal_trust(trusted, &a.key, error), KILN_EPERM, "with mode 770");
	assert_says(seal_open(keys, "a", &again, error), KILN_EPERM, "with mode 770");
	assert_says(seal_open(keys, NULL, &again, error), KILN_EPERM, "with mode 770");
	assert_says(seal_new(keys, "b", &key, error), KILN_EPERM, "with mode 770");
	assert_int_equal(chmod(base, 01777), 0);
	assert_int_equal(seal_ring_open(trusted, &ring, error), KILN_OK);
	seal_ring_free(ring);
	assert_int_equal(seal_open(keys, "a", &again, error), KILN_OK);
	if (geteuid() != 0)
		return;
	assert_int_equal(chown(base, 1234, (gid_t)-1), 0);
	assert_says(seal_ring_open(trusted, &ring, error), KILN_EPERM, "belongs to uid 1234");
	assert_int_equal(chown(base, 0, (gid_t)-1), 0);
}

/* Its core file would have the key in it. */
static void who_reads_a_secret_leaves_no_core(void **state)
{
	struct seal_secret a;
	struct seal_ring *ring;
	(void)state;
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
	assert_int_equal(seal_ring_open(trusted, &ring, error), KILN_OK);
	seal_ring_free(ring);
	assert_int_equal(prctl(PR_GET_DUMPABLE), 1);
	a = new_secret("a");
	assert_int_equal(prctl(PR_GET_DUMPABLE), 0);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
	assert_int_equal(seal_open(keys, "a", &a, error), KILN_OK);
	assert_int_equal(prctl(PR_GET_DUMPABLE), 0);
}

static void a_record_says_who_sealed_it(void **state)
{
	struct seal_secret a = new_secret("a");
	struct seal_ring *ring = ring_of(&a);
	struct seal_signer who;
	size_t size, bytes;
	void *record;
	(void)state;
	for (size_t length = 0; length < 3; length++) {
		assert_true(seal_record(&a, "row 1", "xyz", length, NOW, NOW + 60, &record, &size));
		assert_int_equal(size, length + SEAL_BYTES);
		assert_int_equal(
			seal_record_open(ring, "row 1", "it", record, size, NOW + 60, &bytes, &who, error),
			KILN_OK);
		assert_int_equal(bytes, length);
		assert_memory_equal(record, "xyz", length);
		assert_string_equal(who.name, "a");
		assert_string_equal(who.id, a.key.id);
		assert_int_equal(who.when, NOW);
		assert_int_equal(who.until, NOW + 60);
		free(record);
	}
	seal_ring_free(ring);
}

static void every_bit_counts(void **state)
{
	static const char text[] = "forty-two bytes, of which none may change.";
	struct seal_secret a = new_secret("a");
	struct seal_ring *ring = ring_of(&a);
	struct seal_signer who;
	size_t size, bytes;
	void *record;
	(void)state;
	assert_true(seal_record(&a, "row 1", text, sizeof(text), NOW, 0, &record, &size));
	for (size_t bit = 0; bit < 8 * size; bit++) {
		((unsigned char *)record)[bit / 8] ^= (unsigned char)(1u << bit % 8);
		error[0] = 0;
		assert_int_equal(
			seal_record_open(ring, "row 1", "it", record, size, NOW, &bytes, &who, error),
			KILN_EPERM);
		assert_true(error[0]);
		assert_int_equal(bytes, 0);
		((unsigned char *)record)[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	for (size_t part = 0; part < size; part++)
		assert_int_equal(
			seal_record_open(ring, "row 1", "it", record, part, NOW, &bytes, &who, error),
			KILN_EPERM);
	assert_int_equal(seal_record_open(ring, "row 1", "it", record, size, NOW, &bytes, &who, error),
					 KILN_OK);
	free(record);
	seal_ring_free(ring);
}

static void refusals_name_the_reason(void **state)
{
	struct seal_secret a = new_secret("a"), b = new_secret("b");
	struct seal_ring *ring = ring_of(&a);
	struct seal_signer who;
	size_t size, bytes;
	void *record;
	(void)state;
#define OPEN(purpose, from, when) \
	seal_record_open(ring, purpose, "the pack k.pack", record, from, when, &bytes, &who, error)
	assert_true(seal_record(&a, "pack 1", "abc", 3, NOW, NOW + 60, &record, &size));
	assert_says(OPEN("row 1", size, NOW), KILN_EPERM, "the pack k.pack was altered after key a (");
	assert_says(OPEN("pack 1", size, NOW + 61), KILN_EPERM, "expired on 2023-11-14");
	((char *)record)[0] = 'x';
	assert_says(OPEN("pack 1", size, NOW), KILN_EPERM, "was altered after key a (");
	assert_says(OPEN("pack 1", 3, NOW), KILN_EPERM, "is not sealed");
	memset((char *)record + 3, 0, SEAL_BYTES);
	assert_says(OPEN("pack 1", size, NOW), KILN_EPERM, "is not sealed");
	free(record);
	assert_true(seal_record(&b, "pack 1", "abc", 3, NOW, 0, &record, &size));
	assert_says(OPEN("pack 1", size, NOW), KILN_EPERM, "which is not trusted here");
	assert_non_null(strstr(error, b.key.id));
	/* The id of a trusted key with another's signature. */
	char *id = (char *)record + 3 + 16;
	unsigned char own[8];
	for (int i = 0; i < 8; i++) {
		char digits[3] = {a.key.id[2 * i], a.key.id[2 * i + 1], 0};
		own[i] = (unsigned char)strtoul(digits, NULL, 16);
	}
	memcpy(id, own, 8);
	assert_says(OPEN("pack 1", size, NOW), KILN_EPERM, "was altered after key a (");
#undef OPEN
	free(record);
	seal_ring_free(ring);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_pair_is_two_files),
		TEST(names_are_names),
		TEST(public_lines_are_read_strictly),
		TEST(secrets_of_others_are_refused),
		TEST(one_secret_needs_no_name),
		TEST(trust_comes_and_goes),
		TEST(what_others_can_write_is_not_trusted),
		TEST(what_keys_lie_in_counts),
		TEST(who_reads_a_secret_leaves_no_core),
		TEST(a_record_says_who_sealed_it),
		TEST(every_bit_counts),
		TEST(refusals_name_the_reason),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
