/*
 * values.c: reads shapes, permutations, element types, sizes and times.
 */
#include "values.h"
#include "failure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_dims(const char *name, const char *text, int64_t *values, int *count)
{
	const char *at = text;

	*count = 0;
	if (!text[0] || !strcmp(text, "scalar"))
		return CLI_OK;
	for (;;) {
		char *end;
		errno = 0;
		long long value = at[0] >= '0' && at[0] <= '9' ? strtoll(at, &end, 10) : -1;
		if (value < 0 || errno)
			return cli_usage("%s '%s': expected non-negative integers separated by 'x' or ','",
							 name, text);
		if (*count == KILN_MAX_RANK)
			return cli_usage("%s '%s': more than %d axes", name, text, KILN_MAX_RANK);
		values[(*count)++] = value;
		if (!end[0])
			return CLI_OK;
		if (end[0] != 'x' && end[0] != ',')
			return cli_usage("%s '%s': expected non-negative integers separated by 'x' or ','",
							 name, text);
		at = end + 1;
	}
}

int cli_axes(const char *name, const char *text, int64_t *values, int *count)
{
	const char *at = text;

	for (*count = 0; at[0]; at += at[0] == ',') {
		char *end;
		long long value = strtoll(at, &end, 10);
		if (end == at || (end[0] && end[0] != ','))
			return cli_usage("%s '%s': expected integers separated by ','", name, text);
		if (*count == KILN_MAX_RANK)
			return cli_usage("%s '%s': more than %d axes", name, text, KILN_MAX_RANK);
		values[(*count)++] = value;
		at = end;
	}
	return CLI_OK;
}

int cli_perm(const char *name, const char *text, int64_t *values, int *count)
{
	unsigned seen = 0;
	int status = cli_dims(name, text, values, count);

	if (status)
		return status;
	for (int i = 0; i < *count; i++) {
		if (values[i] >= *count)
			return cli_usage("%s '%s': axis %lld is out of range; %d axes are 0..%d", name, text,
							 (long long)values[i], *count, *count - 1);
		if (seen & 1u << values[i])
			return cli_usage("%s '%s': axis %lld is there twice; every axis comes once", name, text,
							 (long long)values[i]);
		seen |= 1u << values[i];
	}
	return CLI_OK;
}

int cli_dtype(const char *name, const char *text, kiln_dtype *dtype)
{
	*dtype = kiln_dtype_parse(text);
	if (*dtype != KILN_DTYPE_NONE)
		return CLI_OK;
#define DTYPE_WORD(NAME, name, value, bytes) " " #name
	return cli_usage("%s '%s': it is no element type; there are" KILN_DTYPE_LIST(DTYPE_WORD), name,
					 text);
#undef DTYPE_WORD
}

int cli_bytes(const char *name, const char *text, uint64_t *bytes)
{
	static const char units[] = "kmgt";
	char *end = NULL;
	double value = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : -1;
	const char *unit = end && *end ? strchr(units, *end | 0x20) : NULL;

	if (unit && value >= 0) {
		value *= (double)(1ull << (10 * (unit - units + 1)));
		end++;
		if (end[0] == 'i' && end[1] == 'B')
			end++;
	}
	if (end && end[0] == 'B')
		end++;
	if (value < 0 || !end || end[0] || value >= 9e18)
		return cli_usage("%s '%s': expected bytes, as 4096, 64K, 1.5M, 2GiB", name, text);
	*bytes = (uint64_t)value;
	return CLI_OK;
}

int cli_integer(const char *name, const char *text, int64_t least, int64_t most, int64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoll(text, &end, 10);
	if (errno || end == text || end[0] || *value < least || *value > most)
		return cli_usage("%s '%s': expected an integer from %lld to %lld", name, text,
						 (long long)least, (long long)most);
	return CLI_OK;
}

int cli_real(const char *name, const char *text, double *value)
{
	char *end;

	*value = strtod(text, &end);
	if (end == text || end[0])
		return cli_usage("%s '%s': expected a number, as 0.125 or 1e-5", name, text);
	return CLI_OK;
}

int cli_time(const char *name, const char *text, int *milliseconds)
{
	char *end = NULL;
	double value = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : -1;

	if (end && !strcmp(end, "ms"))
		end += 2;
	else if (end) {
		value *= 1000;
		end += end[0] == 's';
	}
	if (!end || end[0] || value < 1 || value > INT_MAX)
		return cli_usage("%s '%s': expected a time from 1ms to 24 days, as 30s or 500ms", name,
						 text);
	*milliseconds = (int)value;
	return CLI_OK;
}

int cli_age(const char *name, const char *text, int64_t *seconds)
{
	static const struct {
		const char *unit;
		int64_t seconds;
	} units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}, {"w", 604800}};
	size_t digits = strspn(text, "0123456789");

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (digits >= 1 && digits <= 9 && !strcmp(text + digits, units[i].unit)) {
			*seconds = strtoll(text, NULL, 10) * units[i].seconds;
			if (*seconds > 0)
				return CLI_OK;
		}
	return cli_usage("%s '%s': expected a time, as 90s, 15m, 12h, 30d or 2w", name, text);
}

int cli_path(const char *name, const char *path, char absolute[PATH_MAX])
{
	const char *space = name[0] ? " " : "";
	char here[PATH_MAX] = "";

	if (path[0] != '/' && !getcwd(here, sizeof(here)))
		return cli_usage("%s%s'%s': %s", name, space, path, strerror(errno));
	if (snprintf(absolute, PATH_MAX, "%s%s%s", here, here[0] ? "/" : "", path) >= PATH_MAX)
		return cli_usage("%s%s'%.60s...': a path has at most %d bytes", name, space, path,
						 PATH_MAX - 1);
	return CLI_OK;
}
