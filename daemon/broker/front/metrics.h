/*
 * metrics: the daemon's figures for monitoring, as OpenMetrics and as Prometheus's older text
 * format.  One table (metrics_rows.c) has them all; docs/metrics.md is made of it.
 */
#ifndef KILN_DAEMON_METRICS_H
#define KILN_DAEMON_METRICS_H

#include "daemon/base/util.h"
#include "daemon/broker/broker.h"

enum metrics_format { METRICS_OPEN, METRICS_PLAIN };

/* Adds all metrics; the text's failed says that memory lacked. */
void metrics_put(struct broker *broker, enum metrics_format format, struct util_text *text);
/* Adds the table as rows of Markdown. */
void metrics_table(struct util_text *text);

#endif
