/*
 * raw.c: kernels of the program's own: prepare, compile, explain, submit.  One memfd carries their
 * texts.  It must not know how messages travel.
 */
#include "buffer.h"
#include "call.h"
#include "client.h"
#include "error.h"
#include "includes.h"
#include "lane.h"
#include "link.h"
#include "printed.h"
#include "reply.h"
#include "submit.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SOURCE_MOST ((size_t)1 << 20)
#define TEXTS_MOST ((size_t)16 << 20)

static size_t text_bytes(const char *text, size_t bytes)
{
	return !text ? 0 : bytes != 0 ? bytes : strlen(text);
}

/* ---- What is sent of a kernel ---- */

static int check_list(const void *list, int count, const char *name)
{
	if (count < 0 || (count > 0 && !list)) {
		return error_set(KILN_EINVAL,
						 "raw counts %d %s; there must be 0 or more, and a list of them", count,
						 name);
	}
	return KILN_OK;
}

/* Programs of earlier releases have a structure that ends before flags. */
#define FIRST_SIZE offsetof(kiln_raw, flags)

static unsigned flags_of(const kiln_raw *raw)
{
	return raw->size >= offsetof(kiln_raw, folders) ? raw->flags : 0;
}

static int folder_count_of(const kiln_raw *raw)
{
	return raw->size >= offsetof(kiln_raw, toolkits) ? raw->folder_count : 0;
}

static int toolkit_count_of(const kiln_raw *raw)
{
	return raw->size >= sizeof(*raw) ? raw->toolkit_count : 0;
}

static int check_raw(const kiln_raw *raw)
{
	if (!raw || raw->size < FIRST_SIZE) {
		return error_set(KILN_EINVAL,
						 "raw is %s; its size must be set to sizeof(kiln_raw), which is %zu",
						 raw == NULL ? "NULL" : "of another size", sizeof(*raw));
	}
	if ((flags_of(raw) & ~KILN_RAW_LOCAL) != 0)
		return error_set(KILN_EINVAL, "raw has flags 0x%x; they are made of KILN_RAW_LOCAL",
						 flags_of(raw));
	if (!raw->source || !raw->entry || raw->entry[0] == 0)
		return error_set(KILN_EINVAL, "raw has no %s", !raw->source ? "source" : "entry");
	int status = error_if_newer(raw, sizeof(*raw), "kiln_raw");
	if (status == KILN_OK)
		status = check_list(raw->headers, raw->header_count, "headers");
	if (status == KILN_OK)
		status = check_list(raw->macros, raw->macro_count, "macros");
	if (status == KILN_OK)
		status = check_list(raw->options, raw->option_count, "options");
	if (status == KILN_OK && folder_count_of(raw) != 0)
		status = check_list(raw->folders, raw->folder_count, "folders");
	if (status == KILN_OK && toolkit_count_of(raw) != 0)
		status = check_list(raw->toolkits, raw->toolkit_count, "toolkits");
	size_t source = text_bytes(raw->source, raw->source_bytes), all = source;
	for (int i = 0; i < raw->header_count && status == KILN_OK; i++) {
		const kiln_text *header = &raw->headers[i];
		if (!header->name || !header->text) {
			status = error_set(KILN_EINVAL, "header %d of raw has no %s", i,
							   header->name == NULL ? "name" : "text");
		} else {
			size_t bytes = text_bytes(header->text, header->bytes);
			all = bytes < TEXTS_MOST && all <= TEXTS_MOST ? all + bytes : TEXTS_MOST + 1;
		}
	}
	if (status == KILN_OK && (source > SOURCE_MOST || all > TEXTS_MOST)) {
		status = error_set(KILN_ELIMIT,
						   "the source has %zu bytes, at most %zu can be sent, and %zu with all "
						   "headers",
						   source, SOURCE_MOST, TEXTS_MOST);
	}
	return status;
}

static int put_raw(struct wire_out *out, const kiln_raw *raw)
{
	wire_map_begin(out, "raw");
	wire_put_str(out, "name", raw->name);
	wire_put_str(out, "entry", raw->entry);
	wire_put_uint(out, "bytes", text_bytes(raw->source, raw->source_bytes));
	wire_list_begin(out, "headers");
	for (int i = 0; i < raw->header_count; i++) {
		wire_map_begin(out, NULL);
		wire_put_str(out, "n", raw->headers[i].name);
		wire_put_uint(out, "c", text_bytes(raw->headers[i].text, raw->headers[i].bytes));
		wire_map_end(out);
	}
	wire_list_end(out);
	wire_list_begin(out, "macros");
	for (int i = 0; i < raw->macro_count; i++) {
		if (!raw->macros[i].name)
			return error_set(KILN_EINVAL, "macro %d of raw has no name", i);
		wire_put_macro(out, raw->macros[i].name, raw->macros[i].text);
	}
	wire_list_end(out);
	wire_list_begin(out, "options");
	for (int i = 0; i < raw->option_count; i++) {
		if (!raw->options[i])
			return error_set(KILN_EINVAL, "option %d of raw is NULL", i);
		wire_put_option(out, raw->options[i]);
	}
	wire_list_end(out);
	wire_map_end(out);
	return KILN_OK;
}

/* Makes a memfd with the source and the headers, one after another; -1 and a message. */
static int pack_texts(const kiln_raw *raw)
{
	size_t all = text_bytes(raw->source, raw->source_bytes), at = all;
	for (int i = 0; i < raw->header_count; i++)
		all += text_bytes(raw->headers[i].text, raw->headers[i].bytes);
	size_t room = all > 0 ? all : 1;
	int fd = frame_memfd("kiln-raw", room);
	char *map = fd >= 0 ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (map == MAP_FAILED) {
		error_set(KILN_ENOMEM, "no memory of %zu bytes to send a source through: %s", all,
				  strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	memcpy(map, raw->source, at);
	for (int i = 0; i < raw->header_count; i++) {
		size_t bytes = text_bytes(raw->headers[i].text, raw->headers[i].bytes);
		memcpy(map + at, raw->headers[i].text, bytes);
		at += bytes;
	}
	munmap(map, room);
	return fd;
}

/* A source with all that it includes. */
struct whole {
	const kiln_raw *raw;
	struct includes *found; /* NULL: it came with all of that */
};

static int whole_open(const kiln_raw *raw, struct whole *out)
{
	int status = check_raw(raw);
	*out = (struct whole){raw, NULL};
	if (status != KILN_OK || (folder_count_of(raw) == 0 && toolkit_count_of(raw) == 0))
		return status;
	status = includes_find(raw, &out->found);
	if (status != KILN_OK)
		return status;
	out->raw = includes_raw(out->found);
	return check_raw(out->raw);
}

/* Returns status, of which the message may say more then. */
static int whole_close(const struct whole *whole, int status)
{
	if (status == KILN_ECOMPILE && whole->found)
		includes_explain(whole->found);
	includes_free(whole->found);
	return status;
}

/* Begins a request about a kernel.  The caller closes request->fd, if the status is KILN_OK. */
static int raw_begin(kiln_client *client, struct request *request, const char *name,
					 const kiln_raw *raw)
{
	link_begin(client, request, name);
	int status = put_raw(&request->out, raw);
	if (status == KILN_OK) {
		request->fd = pack_texts(raw);
		status = request->fd >= 0 ? KILN_OK : KILN_ENOMEM;
	}
	if (status != KILN_OK)
		wire_out_free(&request->out);
	return status;
}

static int raw_prepare(kiln_client *client, const kiln_raw *raw, kiln_call **out)
{
	struct request request;
	if (!out)
		return error_set(KILN_EINVAL, "out is NULL; the call cannot be returned");
	int status = raw_begin(client, &request, "raw.prepare", raw);
	if (status != KILN_OK)
		return status;
	bool own_context = flags_of(raw) & KILN_RAW_LOCAL;
	if (own_context)
		wire_put_bool(&request.out, "local", true);
	status = call_make(client, &request, client_deadline(client), NULL, out);
	close(request.fd);
	if (status == KILN_OK) {
		(*out)->raw = true;
		(*out)->own_context = own_context;
	}
	return status;
}

int kiln_prepare_raw(kiln_client *client, const kiln_raw *raw, kiln_call **out)
{
	int status = client_enter(client);
	struct whole whole;
	if (status != KILN_OK)
		return status;
	status = whole_open(raw, &whole);
	/* Such a kernel runs in a second device process, and the broker keeps the order over both by
	 * messages. */
	if (status == KILN_OK)
		status = lane_stop(client, client_deadline(client));
	if (status == KILN_OK)
		status = raw_prepare(client, whole.raw, out);
	if (status == KILN_ELIMIT && whole.raw && call_forget_oldest(client))
		status = raw_prepare(client, whole.raw, out);
	return client_leave(client, whole_close(&whole, status));
}

/* "raw.compile" and "raw.explain" take the same arguments. */
static int ask_about(kiln_client *client, const char *name, const kiln_raw *raw, const char *target,
					 kiln_reply **out)
{
	struct request request;
	struct answer answer;
	struct whole whole;
	if (!out)
		return error_set(KILN_EINVAL, "out is NULL; nothing can be returned");
	int status = whole_open(raw, &whole);
	if (status == KILN_OK)
		status = raw_begin(client, &request, name, whole.raw);
	if (status != KILN_OK)
		return whole_close(&whole, status);
	wire_put_str(&request.out, "target", target);
	status = link_ask(client, &request, client_deadline(client), &answer);
	close(request.fd);
	return whole_close(&whole, status == KILN_OK ? reply_make(&answer, out) : status);
}

int kiln_compile_raw(kiln_client *client, const kiln_raw *raw, const char *target, kiln_reply **out)
{
	int status = client_enter(client);
	if (status == KILN_OK)
		status = client_leave(client, ask_about(client, "raw.compile", raw, target, out));
	return status;
}

int kiln_explain_raw(kiln_client *client, const kiln_raw *raw, const char *target, kiln_reply **out)
{
	int status = client_enter(client);
	if (status == KILN_OK)
		status = client_leave(client, ask_about(client, "raw.explain", raw, target, out));
	return status;
}

int kiln_call_params(const kiln_call *call, uint32_t *bytes, int most)
{
	if (!call || !call->raw || call->param_count < 0)
		return error_set(KILN_ENOENT, "the parameters of this call's kernel are not known");
	for (int i = 0; i < most && i < call->param_count && i < KILN_MAX_RAW_ARGS; i++)
		bytes[i] = (uint32_t)call->params[i];
	return call->param_count;
}

const char *kiln_printed(kiln_client *client, uint64_t *cut)
{
	uint64_t unasked;
	if (client_enter(client) != KILN_OK)
		return NULL;
	if (client->link != LINK_DEAD)
		(void)link_drain(client);
	const char *text = printed_take(client, cut ? cut : &unasked);
	client_leave(client, KILN_OK);
	return text;
}

/* ---- Launches ---- */

static int put_arg(const kiln_call *call, struct wire_out *out, const kiln_raw_arg *arg, int i)
{
	if (!arg->buffer) {
		if (!arg->value || arg->bytes == 0 || arg->bytes > KILN_MAX_RAW_BYTES) {
			return error_set(KILN_EINVAL,
							 "argument %d has neither a buffer nor a value of 1 to %d bytes", i,
							 KILN_MAX_RAW_BYTES);
		}
		wire_put_bin(out, NULL, arg->value, (size_t)arg->bytes);
		return KILN_OK;
	}
	if (arg->buffer->client != call->client)
		return error_set(KILN_EINVAL, "argument %d lies in a buffer of another client", i);
	if ((arg->access & ~(KILN_READ | KILN_WRITE)) != 0) {
		return error_set(KILN_EINVAL,
						 "argument %d has access 0x%x; it is made of KILN_READ and "
						 "KILN_WRITE",
						 i, arg->access);
	}
	wire_list_begin(out, NULL);
	wire_put_uint(out, NULL, arg->buffer->id);
	wire_put_uint(out, NULL, arg->offset);
	wire_put_uint(out, NULL, arg->bytes);
	wire_put_uint(out, NULL, arg->access != 0 ? arg->access : KILN_READ | KILN_WRITE);
	wire_list_end(out);
	return KILN_OK;
}

static int put_launch(const kiln_call *call, struct wire_out *out, const kiln_launch *launch)
{
	int64_t grid[3], block[3];
	int status = KILN_OK;
	if (launch->arg_count < 0 || launch->arg_count > KILN_MAX_RAW_ARGS ||
		(launch->arg_count > 0 && !launch->args)) {
		return error_set(KILN_EINVAL, "the launch has %d arguments; there must be 0 to %d, in args",
						 launch->arg_count, KILN_MAX_RAW_ARGS);
	}
	if (launch->timeout_ms < 0) {
		return error_set(KILN_EINVAL, "the launch has timeout_ms %d; it must be 0 or more",
						 launch->timeout_ms);
	}
	for (int i = 0; i < 3; i++) {
		grid[i] = launch->grid[i] != 0 ? launch->grid[i] : 1;
		block[i] = launch->block[i] != 0 ? launch->block[i] : 1;
	}
	wire_put_uint(out, "call", call->id);
	wire_put_ints(out, "grid", grid, 3);
	wire_put_ints(out, "block", block, 3);
	wire_put_uint(out, "shared", launch->shared_bytes);
	wire_put_int(out, "timeout", launch->timeout_ms);
	wire_list_begin(out, "args");
	for (int i = 0; i < launch->arg_count && status == KILN_OK; i++)
		status = put_arg(call, out, &launch->args[i], i);
	wire_list_end(out);
	return status;
}

static int submit(kiln_call *call, const kiln_launch *launch, kiln_ticket after, kiln_ticket *out)
{
	struct request request;
	if (!call->raw) {
		return error_set(KILN_EINVAL, "the call was prepared with kiln_prepare(): it is submitted "
									  "with kiln_submit()");
	}
	if (call->own_context) {
		return error_set(KILN_EINVAL, "the call was prepared with KILN_RAW_LOCAL: it is launched "
									  "with kiln_launch_local_raw()");
	}
	if (!launch || launch->size < sizeof(*launch)) {
		return error_set(KILN_EINVAL,
						 "launch is %s; its size must be set to sizeof(kiln_launch), which is %zu",
						 launch == NULL ? "NULL" : "of another size", sizeof(*launch));
	}
	int status = error_if_newer(launch, sizeof(*launch), "kiln_launch");
	if (status == KILN_OK)
		status = call_check_after(call->client, after);
	if (status != KILN_OK)
		return status;
	if (call_follows_failure(call->client, after))
		return call_canceled(call->client, after, out);
	link_begin(call->client, &request, "raw.submit");
	status = put_launch(call, &request.out, launch);
	if (status != KILN_OK) {
		wire_out_free(&request.out);
		return status;
	}
	return call_post(call->client, &request, after, out);
}

int kiln_submit_raw(kiln_call *call, const kiln_launch *launch, kiln_ticket after, kiln_ticket *out)
{
	if (!call || !out)
		return error_set(KILN_EINVAL, "%s is NULL", !call ? "call" : "out");
	kiln_client *client = call->client;
	int status = client_enter(client);
	return status == KILN_OK ? client_leave(client, submit(call, launch, after, out)) : status;
}
