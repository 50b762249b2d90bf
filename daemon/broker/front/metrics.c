/*
 * metrics.c: the texts that are made of the table of metrics (metrics_rows.c).
 */
#include "metrics_rows.h"

#include <inttypes.h>
#include <string.h>

#include "commands/command.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/requests/request.h"

/* ---- Samples ---- */

void metrics_put_sample(struct metrics_out *out, double value, const char *labels, ...)
{
	char text[256];
	va_list arguments;
	va_start(arguments, labels);
	int size = vsnprintf(text, sizeof(text), labels, arguments);
	va_end(arguments);
	util_text_add(out->text, "%s%s%s%.*s%s %.15g\n", out->metric->name,
				  out->metric->type == METRIC_COUNTER ? "_total" : "", size > 0 ? "{" : "", size,
				  text, size > 0 ? "}" : "", value);
}

#define LEAST_OCTAVE 10 /* 1 ms */
#define MOST_OCTAVE 26  /* 67 s */

void metrics_put_histogram(struct metrics_out *out, const struct histogram *micros, double sum,
						   const char *label, const char *value)
{
	const char *name = out->metric->name;
	uint64_t seen = 0;
	unsigned bucket = 0;
	for (unsigned octave = LEAST_OCTAVE; octave <= MOST_OCTAVE; octave += 2) {
		/* The buckets below 2^octave. */
		for (; bucket < (octave - 2) * HISTOGRAM_STEPS; bucket++)
			seen += micros->buckets[bucket];
		util_text_add(out->text, "%s_bucket{%s=\"%s\",le=\"%.9g\"} %" PRIu64 "\n", name, label,
					  value, (double)(UINT64_C(1) << octave) / 1e6, seen);
	}
	util_text_add(out->text, "%s_bucket{%s=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, label, value,
				  micros->count);
	util_text_add(out->text, "%s_sum{%s=\"%s\"} %.9g\n", name, label, value, sum / 1e6);
	util_text_add(out->text, "%s_count{%s=\"%s\"} %" PRIu64 "\n", name, label, value,
				  micros->count);
}

const char *metrics_account_labels(const struct broker *broker, uint32_t number, char text[96])
{
	const struct account *account = &broker->accounts.rows[number];
	size_t used = number ? (size_t)snprintf(text, 96, "uid=\"%u\",session=\"", account->uid)
						 : (size_t)snprintf(text, 96, "uid=\"\",session=\"others");
	for (const char *at = account->name; *at; at++) {
		if (*at == '"' || *at == '\\')
			text[used++] = '\\';
		text[used++] = *at;
	}
	snprintf(text + used, 96 - used, "\"");
	return text;
}

/* ---- Texts ---- */

static const char *const types[] = {"counter", "gauge", "histogram"};

static void put_head(const struct metrics_out *out)
{
	const struct metric *metric = out->metric;
	bool open = out->format == METRICS_OPEN;
	const char *suffix = !open && metric->type == METRIC_COUNTER ? "_total" : "";
	util_text_add(out->text, "# TYPE %s%s %s\n", metric->name, suffix, types[metric->type]);
	if (open && metric->unit[0])
		util_text_add(out->text, "# UNIT %s %s\n", metric->name, metric->unit);
	util_text_add(out->text, "# HELP %s%s %s\n", metric->name, suffix, metric->help);
}

static void put_value(struct metrics_out *out, const struct metric_sample *sample)
{
	uint64_t value;
	memcpy(&value, (const char *)&out->values + sample->at, sizeof(value));
	if (out->metric->labels[0])
		metrics_put_sample(out, (double)value, "%s=\"%s\"", out->metric->labels, sample->label);
	else
		metrics_put_sample(out, (double)value, "%s", "");
}

void metrics_put(struct broker *broker, enum metrics_format format, struct util_text *text)
{
	struct metrics_out out = {.broker = broker, .text = text, .format = format};
	command_gauges(broker, &out.values.gauges);
	out.values.counters = broker->counters;
	handles_count_busy(broker);
	for (size_t i = 0; i < metrics_count; i++) {
		out.metric = &metrics[i];
		put_head(&out);
		if (metrics[i].put)
			metrics[i].put(&out);
		for (const struct metric_sample *at = metrics[i].samples; at && at->label; at++)
			put_value(&out, at);
	}
	if (format == METRICS_OPEN)
		util_text_add(text, "# EOF\n");
}

void metrics_table(struct util_text *text)
{
	util_text_add(text, "| metric | type | unit | labels | what it is | in `kiln status --json` |\n"
						"|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < metrics_count; i++) {
		const struct metric *metric = &metrics[i];
		util_text_add(text, "| `%s%s` | %s | %s | %s | %s | %s", metric->name,
					  metric->type == METRIC_COUNTER ? "_total" : "", types[metric->type],
					  metric->unit, metric->labels, metric->help,
					  metric->source ? metric->source : "");
		for (const struct metric_sample *at = metric->samples; at && at->label; at++)
			util_text_add(text, "%s%s%s%s", at == metric->samples ? "" : ", ", at->field,
						  at->label[0] ? ": " : "", at->label);
		util_text_add(text, " |\n");
	}
}

/* ---- The request ---- */

void serve_metrics(struct session *session, struct wire_in *message)
{
	struct util_text text = {0};
	struct wire_out out;
	metrics_put(session->broker, METRICS_OPEN, &text);
	if (text.failed) {
		reply_error(session, wire_id(message), KILN_ENOMEM, "out of memory for the metrics");
	} else {
		reply_begin(&out, wire_id(message));
		wire_put_str(&out, "text", text.text);
		reply_send(session, &out, NULL, 0);
	}
	util_text_free(&text);
}
