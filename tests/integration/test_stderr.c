/*
 * test_stderr: a daemon whose standard error nobody reads: clients are answered, children may say
 * what they like and end, and so may the daemon.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS "the device process begins"

/* The log is a pipe from now on; this end. */
static int open_pipe(const struct kilnd *daemon)
{
	assert_int_equal(mkfifo(daemon->log, 0600), 0);
	int fd = open(daemon->log, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void fill(int fd)
{
	char bytes[4096];
	memset(bytes, '.', sizeof(bytes));
	for (size_t size = sizeof(bytes); size > 0; size = size > 1 ? size / 2 : 0)
		while (write(fd, bytes, size) > 0)
			continue;
	assert_int_equal(errno, EAGAIN);
}

/* Reads on until the words are among all that was read. */
static void await_words(int fd, const char *words)
{
	static char text[1 << 20];
	static size_t used;
	while (!memmem(text, used, words, strlen(words))) {
		ssize_t got = read(fd, text + used, sizeof(text) - used);
		assert_true(got > 0 || errno == EAGAIN);
		used += got > 0 ? (size_t)got : 0;
		assert_true(used < sizeof(text));
	}
}

/* Says something where a device process would. */
static void put_wrapper(const struct kilnd *daemon, char path[96])
{
	snprintf(path, 96, "%s/wrapper", daemon->dir);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs("#!/bin/sh\necho " WORDS "\nexec \"$@\"\n", file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0755), 0);
}

static void nobody_reads(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(17, 23);
	char wrapper[96];

	put_wrapper(daemon, wrapper);
	int fd = open_pipe(daemon);
	fill(fd);
	kilnd_start(daemon, OPTIONS("--executor-wrapper", wrapper));
	unlink(daemon->log);
	kiln_client *client = client_open(daemon);
	debug_int(client, "restart-pause", "ms", 1);
	assert_permutes(client, &problem, "compiled");
	for (int i = 1; i <= 3; i++) {
		debug_str(client, "kill", "role", "executor");
		await_info(client, "counters.executor_faults", i);
		assert_permutes(client, &problem, "hit");
	}
	/* Nothing was too much for what may wait. */
	await_words(fd, WORDS);
	await_words(fd, "was killed by signal 9");
	kiln_close(client);
	fill(fd);
	kilnd_stop(daemon);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(nobody_reads),
	};

	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
