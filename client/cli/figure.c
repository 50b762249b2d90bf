/*
 * figure.c: figures with units.
 */
#include "table.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

const char *figure_bytes(uint64_t bytes, char text[FIGURE_MAX])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	int unit = 0;

	if (bytes < 1024) {
		snprintf(text, FIGURE_MAX, "%" PRIu64 " B", bytes);
		return text;
	}
	while (value >= 1024 && unit < 5) {
		value /= 1024;
		unit++;
	}
	snprintf(text, FIGURE_MAX, "%.1f %s", value, units[unit]);
	return text;
}

const char *figure_micros(double micros, char text[FIGURE_MAX])
{
	if (micros < 1000)
		snprintf(text, FIGURE_MAX, "%.1f us", micros);
	else if (micros < 1e6)
		snprintf(text, FIGURE_MAX, "%.2f ms", micros / 1e3);
	else
		snprintf(text, FIGURE_MAX, "%.2f s", micros / 1e6);
	return text;
}

const char *figure_ago(int64_t seconds, char text[FIGURE_MAX])
{
	if (seconds < 0)
		seconds = 0;
	if (seconds < 120)
		snprintf(text, FIGURE_MAX, "%" PRId64 " s", seconds);
	else if (seconds < 7200)
		snprintf(text, FIGURE_MAX, "%" PRId64 " min", seconds / 60);
	else if (seconds < 172800)
		snprintf(text, FIGURE_MAX, "%" PRId64 " h", seconds / 3600);
	else
		snprintf(text, FIGURE_MAX, "%" PRId64 " d", seconds / 86400);
	return text;
}

const char *figure_known(int64_t value, const char *unit, char text[FIGURE_MAX])
{
	if (value < 0)
		snprintf(text, FIGURE_MAX, "unknown");
	else
		snprintf(text, FIGURE_MAX, "%" PRId64 "%s%s", value, unit[0] ? " " : "", unit);
	return text;
}

void figure_date(int64_t seconds, const char *format, char text[FIGURE_MAX])
{
	time_t time = (time_t)seconds;
	struct tm parts;

	if (gmtime_r(&time, &parts))
		strftime(text, FIGURE_MAX, format, &parts);
}

const char *figure_dims(const int64_t *values, int count, char *text, size_t size)
{
	size_t used = 0;

	snprintf(text, size, "scalar");
	for (int i = 0; i < count && used < size; i++) {
		int n = snprintf(text + used, size - used, "%s%" PRId64, i ? "x" : "", values[i]);
		used += n > 0 ? (size_t)n : 0;
	}
	return text;
}
