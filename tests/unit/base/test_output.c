/*
 * output: what a child says reaches the daemon's standard error line by line, its end is kept, and
 * a standard error that nobody reads holds up the child for a while, and never the loop.
 */
#include "daemon/base/output.h"
#include "daemon/base/util.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

#define MUCH (256 * 1024)

struct scene {
	uv_loop_t loop;
	struct output *output;
	int child;      /* the child's end */
	int said, kept; /* what reaches standard error; the real one */
	size_t total;   /* bytes read from said */
};

static void scene_open(struct scene *scene)
{
	int ends[2];
	assert_int_equal(uv_loop_init(&scene->loop), 0);
	scene->output = output_open(&scene->loop, &scene->child);
	assert_non_null(scene->output);
	assert_int_equal(pipe(ends), 0);
	scene->said = ends[0];
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	scene->kept = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	scene->total = 0;
}

static void scene_close(struct scene *scene)
{
	dup2(scene->kept, STDERR_FILENO);
	close(scene->kept);
	close(scene->said);
	close(scene->child);
	output_close(scene->output);
	uv_run(&scene->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&scene->loop), 0);
}

static void turn(struct scene *scene)
{
	for (int i = 0; i < 8; i++)
		uv_run(&scene->loop, UV_RUN_NOWAIT);
}

static void say(struct scene *scene, const char *text)
{
	assert_int_equal(write(scene->child, text, strlen(text)), strlen(text));
	turn(scene);
}

static void assert_hears(struct scene *scene, const char *text)
{
	char bytes[512];
	ssize_t got = read(scene->said, bytes, sizeof(bytes) - 1);
	bytes[got > 0 ? got : 0] = 0;
	assert_string_equal(bytes, text);
}

static void lines_pass_whole(void **state)
{
	struct scene scene;
	char tail[OUTPUT_TAIL];
	(void)state;
	scene_open(&scene);
	say(&scene, "half");
	assert_hears(&scene, "");
	say(&scene, " a line\nand another\nthe beginning");
	assert_hears(&scene, "half a line\nand another\n");
	output_tail(scene.output, tail);
	assert_string_equal(tail, "half a line\nand another\nthe beginning");
	/* At its end all is passed on. */
	output_drain(scene.output);
	assert_hears(&scene, "the beginning");
	scene_close(&scene);
	output_tail(NULL, tail);
	assert_string_equal(tail, "");
}

/* By the printf of a program's kernel, say: nothing of it steers the operator's terminal, and a
 * line that is longer than what is passed on at once is not cut inside a character. */
static void what_a_child_says_is_text(void **state)
{
	static char line[3 * 2000 + 2], passed[sizeof(line)];
	struct scene scene;
	size_t used = 0;
	(void)state;
	scene_open(&scene);
	say(&scene, "a\x1b[2J\t\xc2\x9b \xff\n");
	assert_hears(&scene, "a\\x1b[2J\t\\u009b \\xff\n");
	for (size_t i = 0; i < 2000; i++)
		memcpy(line + 3 * i, "\xe2\x82\xac", 3);
	line[sizeof(line) - 2] = '\n';
	say(&scene, line);
	for (ssize_t got; (got = read(scene.said, passed + used, sizeof(passed) - used)) > 0;)
		used += (size_t)got;
	assert_int_equal(used, strlen(line));
	assert_memory_equal(passed, line, used);
	scene_close(&scene);
}

/* Bytes that the child could write before it would have to wait, by its count. */
static size_t pour(struct scene *scene, size_t from)
{
	char byte;
	fcntl(scene->child, F_SETFL, O_NONBLOCK);
	for (; from < MUCH; from++) {
		byte = from % 64 == 63 ? '\n' : (char)('a' + from % 26);
		if (write(scene->child, &byte, 1) != 1)
			break;
	}
	return from;
}

static void drink(struct scene *scene)
{
	char bytes[4096];
	ssize_t got;
	while ((got = read(scene->said, bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < got; i++, scene->total++)
			assert_int_equal(bytes[i], scene->total % 64 == 63 ? '\n' : 'a' + scene->total % 26);
}

static void a_full_stderr_holds_up_the_child(void **state)
{
	struct scene scene;
	char tail[OUTPUT_TAIL];
	size_t said = 0;
	(void)state;
	scene_open(&scene);
	/* Both pipes are full, and the loop goes on all the same. */
	for (int i = 0; i < 20; i++) {
		said = pour(&scene, said);
		turn(&scene);
	}
	assert_true(said > 64 * 1024 && said < MUCH);
	size_t stuck = pour(&scene, said);
	turn(&scene);
	assert_int_equal(pour(&scene, stuck), stuck);
	/* When somebody reads again, nothing was lost. */
	uint64_t until = util_now_us() + 20000000;
	while (scene.total < MUCH && util_now_us() < until) {
		drink(&scene);
		uv_run(&scene.loop, UV_RUN_NOWAIT);
		said = pour(&scene, said);
	}
	assert_int_equal(scene.total, MUCH);
	output_tail(scene.output, tail);
	assert_int_equal(strlen(tail), OUTPUT_TAIL - 1);
	assert_int_equal(tail[OUTPUT_TAIL - 2], '\n');
	scene_close(&scene);
}

/* A thread writes, and has come to a write that does not end: what is said now is dropped, and that
 * is said when somebody reads. */
static void a_stderr_that_nobody_reads(void **state)
{
	static char text[512 * 1024];
	static const char words[] = " lines were dropped\n";
	struct scene scene;
	size_t said = 0, used = 0;
	(void)state;
	scene_open(&scene);
	assert_true(util_log_begin(0));
	while (said < MUCH) {
		said = pour(&scene, said);
		turn(&scene);
	}
	for (int i = 0; i < 1000; i++)
		util_log(UTIL_ERROR, "line %d, which nobody reads", i);
	while (!memmem(text, used, words, sizeof(words) - 1)) {
		ssize_t got = read(scene.said, text + used, sizeof(text) - used - 1);
		used += got > 0 ? (size_t)got : 0;
		assert_true(used < sizeof(text) - 1);
	}
	/* Lines are whole, and the last one says what is missing: these lines above all. */
	int count = 0, dropped = 0, lines = 0;
	char *rest = text, *line;
	for (; (line = strsep(&rest, "\n")) && *line; count++)
		if (strstr(line, "were dropped"))
			assert_int_equal(
				sscanf(strstr(line, ": "), ": %d lines were dropped%n", &dropped, &lines), 1);
		else
			assert_true(strlen(line) == 63 || strstr(line, ", which nobody reads"));
	assert_int_equal(count - 1 + dropped, MUCH / 64 + 1000);
	assert_true(dropped >= 1000);
	util_log(UTIL_ERROR, "and now somebody does");
	util_log_end(20000);
	ssize_t got = read(scene.said, text, sizeof(text) - 1);
	text[got > 0 ? got : 0] = 0;
	assert_non_null(strstr(text, " error and now somebody does\n"));
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_pass_whole),
		cmocka_unit_test(what_a_child_says_is_text),
		cmocka_unit_test(a_full_stderr_holds_up_the_child),
		cmocka_unit_test(a_stderr_that_nobody_reads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
