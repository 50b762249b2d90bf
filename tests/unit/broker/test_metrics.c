/*
 * metrics: docs/metrics.md has the table of metrics, and the table keeps the rules of OpenMetrics.
 *
 *   test_metrics [--write]    writes the page's table instead of comparing it
 */
#include "daemon/broker/front/metrics_rows.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after the above */
#include <cmocka.h>

#define MARK "<!-- test_metrics --write -->\n"

static const char *page_path(char path[PATH_MAX])
{
	const char *root = getenv("SOURCE_DIR");
	snprintf(path, PATH_MAX, "%s/docs/metrics.md", root ? root : ".");
	return path;
}

/* The page as it should be: its text up to the mark, and the table. */
static void make_page(char **now, struct util_text *wanted)
{
	char path[PATH_MAX];
	*now = util_read_file(page_path(path), 1 << 20, NULL);
	assert_non_null(*now);
	const char *mark = strstr(*now, MARK);
	assert_non_null(mark);
	util_text_bytes(wanted, *now, (size_t)(mark - *now) + strlen(MARK));
	util_text_add(wanted, "\n");
	metrics_table(wanted);
}

static void the_page_has_the_table(void **state)
{
	struct util_text wanted = {0};
	char *now;
	(void)state;
	make_page(&now, &wanted);
	assert_string_equal(now, wanted.text);
	util_text_free(&wanted);
	free(now);
}

static bool ends_in(const char *text, const char *ending)
{
	size_t size = strlen(text), end = strlen(ending);
	return size > end && !strcmp(text + size - end, ending);
}

static void names_follow_the_rules(void **state)
{
	char unit[32];
	(void)state;
	for (size_t i = 0; i < metrics_count; i++) {
		const struct metric *metric = &metrics[i];
		snprintf(unit, sizeof(unit), "_%s", metric->unit);
		assert_true(!strncmp(metric->name, "kiln_", 5));
		assert_int_equal(strspn(metric->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(metric->name));
		assert_false(ends_in(metric->name, "_total"));
		assert_int_equal(metric->unit[0] != 0,
						 ends_in(metric->name, "_seconds") || ends_in(metric->name, "_bytes"));
		assert_true(!metric->unit[0] || ends_in(metric->name, unit));
		assert_int_equal(metric->put != NULL, metric->samples == NULL);
		assert_true(ends_in(metric->help, "."));
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(metric->name, metrics[k].name);
	}
}

static void labels_are_escaped(void **state)
{
	static struct broker broker;
	char labels[96];
	(void)state;
	uint32_t first = account_number(&broker.accounts, 7, "a\"b\\c");
	assert_string_equal(metrics_account_labels(&broker, first, labels),
						"uid=\"7\",session=\"a\\\"b\\\\c\"");
	assert_int_equal(account_number(&broker.accounts, 7, "\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\""), 2);
	broker.accounts.rows[2].uid = UINT32_MAX;
	assert_true(strlen(metrics_account_labels(&broker, 2, labels)) < sizeof(labels) - 1);
	assert_string_equal(metrics_account_labels(&broker, 0, labels), "uid=\"\",session=\"others\"");
}

/* A user who starts programs of ever new names gets one row for all that are too many. */
static void accounts_are_bounded(void **state)
{
	static struct accounts accounts;
	char name[32];
	(void)state;
	for (uint32_t i = 1; i < 1000; i++) {
		snprintf(name, sizeof(name), "p%u", i);
		assert_int_equal(account_number(&accounts, 5, name), i < ACCOUNTS_MOST ? i : 0);
	}
	assert_int_equal(account_number(&accounts, 5, "p17"), 17);
	assert_int_equal(account_number(&accounts, 6, "p17"), 0);
	assert_int_equal(accounts.count, ACCOUNTS_MOST);
}

static void buckets_are_cumulative(void **state)
{
	struct util_text text = {0};
	struct metrics_out out = {.text = &text, .metric = &(struct metric){.name = "m"}};
	static struct histogram times;
	(void)state;
	histogram_note(&times, 1023);
	histogram_note(&times, 1024);
	histogram_note(&times, 67108863);
	histogram_note(&times, 67108864);
	metrics_put_histogram(&out, &times, 2e6, "c", "v");
	assert_non_null(strstr(text.text, "m_bucket{c=\"v\",le=\"0.001024\"} 1\n"));
	assert_non_null(strstr(text.text, "m_bucket{c=\"v\",le=\"0.004096\"} 2\n"));
	assert_non_null(strstr(text.text, "m_bucket{c=\"v\",le=\"67.108864\"} 3\n"));
	assert_non_null(strstr(text.text, "m_bucket{c=\"v\",le=\"+Inf\"} 4\n"));
	assert_non_null(strstr(text.text, "m_sum{c=\"v\"} 2\nm_count{c=\"v\"} 4\n"));
	util_text_free(&text);
}

static int write_page(void)
{
	struct util_text wanted = {0};
	char path[PATH_MAX], *now;
	make_page(&now, &wanted);
	FILE *file = fopen(page_path(path), "w");
	return !file || fputs(wanted.text, file) < 0 || fclose(file) != 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_page_has_the_table), cmocka_unit_test(names_follow_the_rules),
		cmocka_unit_test(labels_are_escaped),     cmocka_unit_test(accounts_are_bounded),
		cmocka_unit_test(buckets_are_cumulative),
	};
	if (argc > 1 && !strcmp(argv[1], "--write"))
		return write_page();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
