/*
 * command_fault.c: fault.ls, fault.show, fault.now: reports of what went wrong, read on the store's
 * thread, behind those that are being written.
 */
#include <stdlib.h>
#include <string.h>

#include "query.h"
#include "daemon/broker/devices/fault/fault.h"
#include "daemon/base/util.h"

static void put_head(struct wire_out *out, const char *id, const char *text)
{
	static const char *const names[] = {"kind", "device", "time", "last", "said"};
	char value[2 * KERNEL_ERROR_MAX], times[32];
	wire_put_str(out, "report", id);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		fault_value(text, names[i], value, sizeof(value));
		wire_put_str(out, names[i], value);
	}
	fault_value(text, "times", times, sizeof(times));
	wire_put_uint(out, "times", strtoull(times, NULL, 10));
}

static void fault_put_row(void *arg, const char *id, const char *text)
{
	struct wire_out *out = arg;
	wire_map_begin(out, NULL);
	put_head(out, id, text);
	wire_put_uint(out, "bytes", strlen(text));
	wire_map_end(out);
}

void query_fault_ls(struct cache *cache, void *arg)
{
	struct query *query = arg;
	char directory[PATH_MAX];
	(void)cache;
	fault_directory(query->options->cache_dir, directory);
	wire_put_str(&query->out, "directory", directory);
	wire_list_begin(&query->out, "rows");
	query->status = fault_file_each(directory, fault_put_row, &query->out, query->error);
	wire_list_end(&query->out);
}

/* Puts the kernels that were in flight: each has a line "kernel" in the first part. */
static void put_kernels(struct wire_out *out, const char *text)
{
	wire_list_begin(out, "kernels");
	for (const char *at = text; (at = strstr(at, "\nkernel         ")); at++) {
		char key[KERNEL_KEY_HEX] = "";
		if (strstr(text, "\n\n") && at > strstr(text, "\n\n"))
			break;
		snprintf(key, sizeof(key), "%.64s", at + 16);
		wire_map_begin(out, NULL);
		wire_put_str(out, "key", key);
		wire_map_end(out);
	}
	wire_list_end(out);
}

void query_fault_show(struct cache *cache, void *arg)
{
	struct query *query = arg;
	char directory[PATH_MAX], found[FAULT_ID_MAX], *text = NULL;
	(void)cache;
	fault_directory(query->options->cache_dir, directory);
	query->status = fault_file_read(directory, query->name, found, &text, query->error);
	if (query->status != KILN_OK)
		return;
	put_head(&query->out, found, text);
	put_kernels(&query->out, text);
	wire_put_str(&query->out, "text", text);
	free(text);
}

/* An id that is cut names no report, and the sentence says so. */
int query_take_id(struct wire_in *message, struct query *query)
{
	query_copy_text(message, "report", query->name, sizeof(query->name));
	return KILN_OK;
}

void serve_fault_now(struct session *session, struct wire_in *message)
{
	struct util_text text = {0};
	struct wire_out out;
	fault_now(session->broker, &text);
	if (text.failed) {
		reply_error(session, wire_id(message), KILN_ENOMEM, "out of memory for a report");
	} else {
		reply_begin(&out, wire_id(message));
		wire_put_str(&out, "text", text.text);
		reply_send(session, &out, NULL, 0);
	}
	util_text_free(&text);
}
