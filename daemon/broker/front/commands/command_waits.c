/*
 * command_waits.c: waits tells the operator who waits for what.  The broker knows it, so the answer
 * comes at once, whatever else stands still.
 */
#include <stdlib.h>

#include "command.h"
#include "daemon/base/util.h"
#include "daemon/broker/front/waits.h"

#define WAITS_SHOWN 256

static void waits_put_row(struct wire_out *out, const struct wait_row *row, uint64_t now)
{
	const struct wait_note *note = &row->note;
	wire_map_begin(out, NULL);
	wire_put_uint(out, "session", row->session);
	wire_put_uint(out, "uid", row->uid);
	wire_put_int(out, "pid", row->pid);
	wire_put_str(out, "asked", row->asked);
	wire_put_uint(out, "request", row->request);
	wire_put_str(out, "what", note->what);
	wire_put_str(out, "text", note->text);
	if (note->key[0])
		wire_put_str(out, "key", note->key);
	wire_put_str(out, "of", note->of);
	if (note->pid)
		wire_put_int(out, "of_pid", note->pid);
	if (note->device)
		wire_put_str(out, "device", note->device);
	wire_put_uint(out, "count", note->count ? note->count : 1);
	wire_put_uint(out, "age_ms", now > note->since_us ? (now - note->since_us) / 1000 : 0);
	if (note->left_ms != WAITS_NO_DEADLINE)
		wire_put_int(out, "left_ms", note->left_ms);
	wire_map_end(out);
}

void serve_waits(struct session *session, struct wire_in *message)
{
	struct wait_row *rows = calloc(WAITS_SHOWN, sizeof(*rows));
	struct wire_out out;
	uint64_t all = 0;
	if (!rows) {
		reply_error(session, wire_id(message), KILN_ENOMEM, "out of memory");
		return;
	}
	int count = waits_collect(session->broker, rows, WAITS_SHOWN, &all);
	uint64_t now = util_now_us();
	reply_begin(&out, wire_id(message));
	wire_list_begin(&out, "rows");
	for (int i = 0; i < count; i++)
		waits_put_row(&out, &rows[i], now);
	wire_list_end(&out);
	wire_put_uint(&out, "all", all);
	reply_send(session, &out, NULL, 0);
	free(rows);
}
