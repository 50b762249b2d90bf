/*
 * metrics_rows.h: the rows of the table of metrics, and how a row's samples are written.
 */
#ifndef KILN_DAEMON_METRICS_ROWS_H
#define KILN_DAEMON_METRICS_ROWS_H

#include "daemon/base/counters.h"
#include "daemon/base/histogram.h"
#include "metrics.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

/* The values of the loop, read once for all metrics of a text. */
struct metrics_values {
	struct counters counters;
	struct gauges gauges;
};

struct metric_sample {
	const char *label; /* the value of the metric's label; "": it has none */
	const char *field;
	size_t at; /* in struct metrics_values */
};

struct metrics_out {
	struct broker *broker;
	struct util_text *text;
	enum metrics_format format;
	const struct metric *metric;
	struct metrics_values values;
};

struct metric {
	const char *name; /* without _total */
	enum metric_type type;
	const char *unit, *labels, *help;
	const char *source; /* in `kiln status --json`; NULL: the samples say */
	void (*put)(struct metrics_out *out);
	const struct metric_sample *samples; /* without put; label NULL ends them */
};

extern const struct metric metrics[];
extern const size_t metrics_count;

/* Adds a line; labels, `op="softmax",` and so on, are formatted. */
void metrics_put_sample(struct metrics_out *out, double value, const char *labels, ...)
	__attribute__((format(printf, 3, 4)));
/* Adds a histogram of microseconds in seconds, with a bucket for every second power of two. */
void metrics_put_histogram(struct metrics_out *out, const struct histogram *micros, double sum,
						   const char *label, const char *value);
/* Writes the labels of an account. */
const char *metrics_account_labels(const struct broker *broker, uint32_t number, char text[96]);

#endif
