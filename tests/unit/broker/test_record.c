/*
 * record: distinct lines in their order, counted, by pages, and never more than there is room for.
 */
#include "daemon/broker/kernels/usage_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

static void lines_are_counted_and_sorted(void **state)
{
	struct usage_log record = {0};
	const char *last;
	char *text;
	(void)state;

	text = usage_log_page(&record, "", USAGE_LOG_PAGE_BYTES, &last);
	assert_string_equal(text, "");
	assert_null(last);
	free(text);
	usage_log_note(&record, "b x=1", "cpu", NULL);
	usage_log_note(&record, "a", "sm_90", "a user's");
	usage_log_note(&record, "b x=1", "sm_9", NULL);
	usage_log_note(&record, "b x=1", "cpu", NULL);
	text = usage_log_page(&record, "", USAGE_LOG_PAGE_BYTES, &last);
	assert_string_equal(text, "a  # a user's, asked 1 time for sm_90\n"
							  "b x=1  # asked 3 times for cpu sm_9\n");
	assert_string_equal(last, "b x=1");
	free(text);
	text = usage_log_page(&record, "a", USAGE_LOG_PAGE_BYTES, &last);
	assert_string_equal(text, "b x=1  # asked 3 times for cpu sm_9\n");
	free(text);
	text = usage_log_page(&record, "b x=1", USAGE_LOG_PAGE_BYTES, &last);
	assert_string_equal(text, "");
	assert_null(last);
	free(text);
	usage_log_free(&record);
	assert_int_equal(record.count, 0);
}

/* Goes through all pages; how many lines, each greater than the one before. */
static int walk(const struct usage_log *record, int *pages)
{
	const char *after = "", *last;
	char previous[64] = "";
	int lines = 0;

	for (*pages = 0;; ++*pages) {
		char *text = usage_log_page(record, after, USAGE_LOG_PAGE_BYTES, &last), *rest = text,
			 *line;
		assert_non_null(text);
		assert_true(strlen(text) < USAGE_LOG_PAGE_BYTES + 200);
		while ((line = strsep(&rest, "\n")) && line[0]) {
			assert_true(strcmp(line, previous) > 0);
			snprintf(previous, sizeof(previous), "%.20s", line);
			lines++;
		}
		free(text);
		if (!last)
			return lines;
		after = last;
	}
}

static void there_is_an_end_of_room(void **state)
{
	struct usage_log record = {0};
	char line[64];
	int pages;
	(void)state;

	for (int i = 0; i < USAGE_LOG_MOST + 10; i++) {
		snprintf(line, sizeof(line), "line %08u of many", (unsigned)i * 2654435761u % 100000007u);
		usage_log_note(&record, line, "cpu", NULL);
	}
	assert_int_equal(record.count, USAGE_LOG_MOST);
	assert_int_equal(record.left_out, 10);
	usage_log_note(&record, "line 00000000 of many", "cpu", NULL); /* the first of them */
	assert_int_equal(record.left_out, 10);
	assert_int_equal(walk(&record, &pages), USAGE_LOG_MOST);
	assert_true(pages > 3);
	usage_log_free(&record);
}

static void long_lines_fill_it_sooner(void **state)
{
	struct usage_log record = {0};
	size_t size = 16000;
	char *line = calloc(1, size + 1);
	(void)state;

	assert_non_null(line);
	memset(line, 'x', size);
	for (int i = 0; i < 300; i++) {
		line[0] = (char)('a' + i % 26);
		line[1] = (char)('a' + i / 26);
		usage_log_note(&record, line, "cpu", NULL);
	}
	assert_in_range(record.count, USAGE_LOG_BYTES / size - 2, USAGE_LOG_BYTES / size);
	assert_int_equal(record.left_out, 300 - (uint64_t)record.count);
	assert_true(record.bytes <= USAGE_LOG_BYTES);
	usage_log_free(&record);
	free(line);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_counted_and_sorted),
		cmocka_unit_test(there_is_an_end_of_room),
		cmocka_unit_test(long_lines_fill_it_sooner),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
