/*
 * test_upgrade: the daemon's program is replaced, removed or upgraded while it runs and clients
 * stay.  The other release is a copy of $KILND in which its version, the linker's hash and a word
 * of a kernel's source are changed.
 */
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUILD_BYTES 20
#define OTHER_VERSION "0.1.9"
_Static_assert(sizeof(OTHER_VERSION) == sizeof(KILN_VERSION_STRING), "it is written over it");

/* ---- Two releases ---- */

struct program {
	char path[96];  /* where the daemon is started from */
	char other[96]; /* the other release */
	char build[48]; /* of the first, in hexadecimal */
};

static char *read_whole(const char *path, size_t *size)
{
	struct stat status;
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &status), 0);
	*size = (size_t)status.st_size;
	char *bytes = malloc(*size);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, *size, file), *size);
	fclose(file);
	return bytes;
}

static void write_whole(const char *path, const char *bytes, size_t size)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0755), 0);
}

/* How often it was there. */
static int replace(char *bytes, size_t size, const void *what, const void *by, size_t length)
{
	int count = 0;
	for (char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), what, length)); count++)
		memcpy(at, by, length);
	return count;
}

static void make_other(const struct program *program)
{
	static const char word[] = "the 16-byte element", other_word[] = "the 16-BYTE element";
	unsigned char build[BUILD_BYTES], other_build[BUILD_BYTES];
	size_t size;
	char *bytes = read_whole(getenv("KILND"), &size);
	for (int i = 0; i < BUILD_BYTES; i++) {
		unsigned value;
		assert_int_equal(sscanf(program->build + 2 * i, "%2x", &value), 1);
		build[i] = (unsigned char)value;
		other_build[i] = (unsigned char)~value;
	}
	assert_true(replace(bytes, size, build, other_build, BUILD_BYTES) > 0);
	assert_true(
		replace(bytes, size, KILN_VERSION_STRING, OTHER_VERSION, strlen(KILN_VERSION_STRING)) > 0);
	assert_true(replace(bytes, size, word, other_word, strlen(word)) > 0);
	write_whole(program->other, bytes, size);
	free(bytes);
}

static void copy_text(kiln_client *client, const char *path, char *text, size_t size)
{
	kiln_reply *reply;
	assert_ok(kiln_request(client, "info", NULL, 0, &reply));
	snprintf(text, size, "%s", kiln_reply_str(reply, path));
	kiln_reply_free(reply);
}

static void assert_text(kiln_client *client, const char *path, const char *wanted)
{
	char text[256];
	copy_text(client, path, text, sizeof(text));
	assert_string_equal(text, wanted);
}

/* Starts the first release from a path of the test's own. */
static kiln_client *start(struct kilnd *daemon, struct program *program, const char *const *options)
{
	const char *kilnd = getenv("KILND");
	size_t size;
	snprintf(program->path, sizeof(program->path), "%s/kilnd", daemon->dir);
	snprintf(program->other, sizeof(program->other), "%s/kilnd.other", daemon->dir);
	if (link(kilnd, program->path) != 0) {
		char *bytes = read_whole(kilnd, &size);
		write_whole(program->path, bytes, size);
		free(bytes);
	}
	char *before = strdup(kilnd);
	setenv("KILND", program->path, 1);
	kilnd_start(daemon, options);
	setenv("KILND", before, 1);
	free(before);
	kiln_client *client = client_open(daemon);
	copy_text(client, "server.build", program->build, sizeof(program->build));
	assert_int_equal(strlen(program->build), 2 * BUILD_BYTES);
	make_other(program);
	return client;
}

static void end(struct program *program)
{
	unlink(program->path);
	unlink(program->other);
}

/* Returns what `kiln status` says of the daemon; free() it. */
static char *status_of(const struct kilnd *daemon)
{
	char command[400];
	size_t size;
	snprintf(command, sizeof(command), "\"$KILN\" --socket %s status >%s/status", daemon->socket,
			 daemon->dir);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "%s/status", daemon->dir);
	char *bytes = read_whole(command, &size);
	bytes[size - 1] = 0;
	unlink(command);
	return bytes;
}

static void assert_shows(const struct kilnd *daemon, const char *word, bool wanted)
{
	char *text = status_of(daemon);
	if ((strstr(text, word) != NULL) != wanted)
		fail_msg("kiln status %s \"%s\": %s", wanted ? "lacks" : "has", word, text);
	free(text);
}

/* ---- Children of a program that is no longer there ---- */

static void assert_same_program(const struct kilnd *daemon, int64_t pid)
{
	char path[64];
	struct stat broker, child;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)daemon->pid);
	assert_int_equal(stat(path, &broker), 0);
	snprintf(path, sizeof(path), "/proc/%lld/exe", (long long)pid);
	assert_int_equal(stat(path, &child), 0);
	assert_int_equal(broker.st_ino, child.st_ino);
	assert_int_equal(broker.st_dev, child.st_dev);
}

/* Replaces all children, and works with the new ones. */
static void assert_children_of_this_build(struct kilnd *daemon, kiln_client *client, int64_t rows)
{
	struct permute problem = transpose(rows, 21);
	int64_t restarts = info_int(client, "executors[0].restarts");
	int64_t faults = info_int(client, "counters.worker_faults");
	int64_t workers = info_int(client, "workers.count");
	debug_str(client, "kill", "role", "executor");
	await_info_at_least(client, "executors[0].restarts", restarts + 1);
	for (int i = 1; i <= workers; i++) {
		debug_str(client, "kill", "role", "compiler");
		await_info_at_least(client, "counters.worker_faults", faults + i);
	}
	assert_permutes(client, &problem, "compiled");
	assert_same_program(daemon, info_int(client, "executors[0].pid"));
	assert_int_equal(info_int(client, "executors[0].restarts"), restarts + 1);
	assert_int_equal(info_int(client, "counters.worker_faults"), faults + workers);
}

static void test_replaced_and_removed(void **state)
{
	struct kilnd *daemon = *state;
	struct program program;
	kiln_client *client = start(daemon, &program, OPTIONS("--workers", "1"));
	char path[112];
	assert_text(client, "server.program", "current");
	assert_shows(daemon, "program", false);

	/* As an installer does it. */
	snprintf(path, sizeof(path), "%s.new", program.path);
	assert_int_equal(link(program.other, path), 0);
	assert_int_equal(rename(path, program.path), 0);
	assert_text(client, "server.program", "replaced");
	assert_text(client, "server.path", program.path);
	assert_text(client, "server.version", KILN_VERSION_STRING);
	assert_shows(daemon, "was replaced while kilnd ran", true);
	assert_children_of_this_build(daemon, client, 31);

	assert_int_equal(unlink(program.path), 0);
	assert_text(client, "server.program", "removed");
	assert_shows(daemon, "was removed while kilnd ran", true);
	assert_children_of_this_build(daemon, client, 32);
	kiln_close(client);
	kilnd_stop(daemon);
	end(&program);
}

/* ---- A child of another build ---- */

static void write_wrapper(const char *path, const struct program *program)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "#!/bin/sh\nshift\n[ -e %s.use ] || exec %s \"$@\"\nexec %s \"$@\"\n",
			program->other, getenv("KILND"), program->other);
	fclose(file);
	chmod(path, 0755);
}

/* However it came about: here, who watches the device process starts another program. */
static void test_strangers(void **state)
{
	struct kilnd *daemon = *state;
	struct program program;
	struct permute problem = transpose(40, 21);
	char wrapper[112], use[112], why[400], build[16];
	snprintf(wrapper, sizeof(wrapper), "%s/wrapper", daemon->dir);
	snprintf(program.other, sizeof(program.other), "%s/kilnd.other", daemon->dir);
	snprintf(use, sizeof(use), "%s.use", program.other);
	write_wrapper(wrapper, &program);
	kiln_client *client = start(daemon, &program, OPTIONS("--executor-wrapper", wrapper));
	fclose(fopen(use, "w"));
	debug_str(client, "kill", "role", "executor");
	/* The first may still be told of the end of the process that was killed. */
	for (int i = 0; i < 2; i++)
		assert_int_equal(permute_check(client, &problem, 1, NULL, why), KILN_EDEVICE);
	snprintf(build, sizeof(build), "%.12s", program.build);
	if (!strstr(why, "of kilnd, and the daemon is build") || !strstr(why, build) ||
		!strstr(why, "restart kilnd"))
		fail_msg("%s", why);
	unlink(wrapper);
	unlink(use);
	kiln_close(client);
	kilnd_stop(daemon);
	end(&program);
}

/* ---- The daemon itself is another ---- */

static void test_restarted_as_another(void **state)
{
	struct kilnd *daemon = *state;
	struct program program;
	struct permute problem = transpose(50, 21);
	kiln_client *client = start(daemon, &program, NULL), *later;
	kiln_buffer *held;
	int64_t rows;
	char bytes[16] = {0};
	assert_permutes(client, &problem, "compiled");
	assert_ok(kiln_alloc(client, sizeof(bytes), 0, "held", &held));
	kilnd_stop(daemon);
	assert_int_equal(rename(program.other, program.path), 0);
	char *before = strdup(getenv("KILND"));
	setenv("KILND", program.path, 1);
	kilnd_start(daemon, NULL);
	setenv("KILND", before, 1);
	free(before);

	/* A buffer of the daemon that is gone is said to be lost, and not taken for one of the new. */
	assert_int_equal(kiln_read(held, 0, bytes, sizeof(bytes)), KILN_ECONN);
	assert_sentence("close this client and connect again");
	kiln_free(held);
	kiln_close(client);
	later = client_open(daemon);
	assert_text(later, "server.version", OTHER_VERSION);
	assert_text(later, "server.program", "current");
	assert_shows(daemon, "kilnd " OTHER_VERSION ", kiln " KILN_VERSION_STRING, true);
	/* The cache is used, but not for kernels whose sources are others now. */
	rows = info_int(later, "cache.rows");
	assert_true(rows > 0);
	assert_permutes(later, &problem, "compiled");
	await_info(later, "cache.rows", 2 * rows);
	assert_permutes(later, &problem, "hit");
	kiln_close(later);
	kilnd_stop(daemon);

	/* And back again, as who finds that the new one is no good. */
	kilnd_start(daemon, NULL);
	later = client_open(daemon);
	assert_shows(daemon, "versions", false);
	assert_permutes(later, &problem, "hit");
	assert_cache_verifies(later, 2 * rows);
	kiln_close(later);
	kilnd_stop(daemon);
	end(&program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_replaced_and_removed),
		HARNESS_TEST(test_strangers),
		HARNESS_TEST(test_restarted_as_another),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
