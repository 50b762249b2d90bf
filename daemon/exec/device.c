/*
 * device: the rules that all devices share: how devices are named, which status a count of indices
 * out of range becomes, and which launches can be a graph.
 */
#include "device.h"
#include "daemon/base/util.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void device_uuid_text(const void *uuid, char text[DEVICE_UUID_TEXT])
{
	char hex[2 * DEVICE_UUID_BYTES + 1];
	util_hex(uuid, DEVICE_UUID_BYTES, hex);
	snprintf(text, DEVICE_UUID_TEXT, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
			 hex + 16, hex + 20);
}

#define UUID_PREFIX 4

static bool is_uuid_name(const char *text)
{
	return !strncasecmp(text, "GPU-", UUID_PREFIX) || !strncasecmp(text, "MIG-", UUID_PREFIX);
}

bool device_uuid_same(const char *one, const char *other)
{
	return is_uuid_name(one) && is_uuid_name(other) &&
		   !strcasecmp(one + UUID_PREFIX, other + UUID_PREFIX);
}

bool device_uuid_begins(const char *uuid, const char *beginning)
{
	size_t size = strlen(beginning);
	return size > UUID_PREFIX && !strncasecmp(uuid, beginning, size);
}

static bool read_uuid(const char *text, size_t size, char out[DEVICE_UUID_TEXT])
{
	size_t digits = 0;
	if (size >= DEVICE_UUID_TEXT)
		return false;
	memcpy(out, text, size);
	out[size] = 0;
	if (size <= UUID_PREFIX || !is_uuid_name(out))
		return false;
	for (const char *at = out + UUID_PREFIX; *at; at++) {
		if (*at != '-' && !isxdigit((unsigned char)*at))
			return false;
		digits += *at != '-';
	}
	return digits > 0 && digits <= 2 * (size_t)DEVICE_UUID_BYTES;
}

/* Reads digits without leading zeros; returns how many, 0: it is no such number. */
static size_t read_ordinal(const char *text, size_t size, int *out)
{
	size_t used = 0;
	int value = 0;
	while (used < size && isdigit((unsigned char)text[used]) && value <= DEVICE_ORDINAL_MOST)
		value = value * 10 + (text[used++] - '0');
	*out = value;
	return value > DEVICE_ORDINAL_MOST || (used > 1 && text[0] == '0') ? 0 : used;
}

bool device_name_read(const char *text, size_t size, struct device_name *out)
{
	*out = (struct device_name){.ordinal = -1};
	out->cpu = size == 3 && !memcmp(text, "cpu", 3);
	if (out->cpu)
		return true;
	if (size < 6 || memcmp(text, "cuda:", 5) != 0)
		return read_uuid(text, size, out->uuid);
	size_t used = 5 + read_ordinal(text + 5, size - 5, &out->ordinal);
	if (used == 5)
		return false;
	return used == size ||
		   (text[used] == '/' && read_uuid(text + used + 1, size - used - 1, out->uuid));
}

int device_report(const struct kernel_report *report, uint64_t count, char error[KERNEL_ERROR_MAX])
{
	if (count == 0)
		return KILN_OK;
	if (report->end == UINT64_MAX) /* the planner of the operator knows what the number means */
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINDEX,
						 "subscripts are out of range: the kernel reported %" PRIu64, count);
	if (report->end == 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINDEX,
						 "%" PRIu64 " of %" PRIu64
						 " indices are out of range: there is nothing that they could name",
						 count, report->indices);
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EINDEX,
					 "%" PRIu64 " of %" PRIu64 " indices are out of range, which is 0 to %" PRIu64,
					 count, report->indices, report->end - 1);
}

/* ---- Graphs ---- */

void device_graph_blame(int index, int count, char error[KERNEL_ERROR_MAX])
{
	char sentence[KERNEL_ERROR_MAX];
	snprintf(sentence, sizeof(sentence), "%s", error);
	size_t used = util_append(error, KERNEL_ERROR_MAX, 0, "launch %d of %d: ", index + 1, count);
	util_append(error, KERNEL_ERROR_MAX, used, "%s", sentence);
}

static bool reports(const struct device_launch *launch)
{
	for (int i = 0; i < launch->arg_count && i < KERNEL_MAX_ARGS; i++)
		if (launch->args[i].kind == KERNEL_ARG_REPORT)
			return true;
	return launch->report.indices > 0;
}

int device_graph_check(const struct device_launch *launches, int count,
					   char error[KERNEL_ERROR_MAX])
{
	if (count < 1)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a graph of %d launches is none: it needs at least one", count);
	for (int i = 0; i < count; i++) {
		if (!reports(&launches[i]))
			continue;
		util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
				  "its kernel counts indices that are out of range, for the end of each launch, "
				  "and a graph has one end for all: submit that call by itself");
		device_graph_blame(i, count, error);
		return KILN_ENOTSUP;
	}
	return KILN_OK;
}
