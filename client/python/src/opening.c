/*
 * opening.c: see opening.h.
 */
#include "opening.h"
#include "cuda.h"
#include "deadlines.h"
#include "view.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Settings ---- */

void settings_free(struct settings *settings)
{
	free(settings->socket);
	free(settings->device);
	free(settings->daemon);
	free(settings->on_miss);
	*settings = (struct settings){0};
}

static char *copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

void settings_copy(const struct settings *from, struct settings *to)
{
	*to = (struct settings){copy(from->socket),  copy(from->device), copy(from->daemon),
							copy(from->on_miss), from->timeout_ms,   from->flags,
							from->mode};
}

/* ---- Connecting ---- */

static int connect_to(struct opening *opening, const char *device)
{
	kiln_connect_options options = {.size = sizeof(options),
									.socket = opening->settings.socket,
									.device = device,
									.daemon = opening->settings.daemon,
									.timeout_ms = opening->settings.timeout_ms,
									.flags = opening->settings.flags,
									.on_miss = opening->settings.on_miss};
	return kiln_connect(&options, &opening->client);
}

/* Compares the digits of two UUIDs; dashes and a prefix are no digits. */
static bool same_uuid(const char *text, const char *digits)
{
	if (strncmp(text, "GPU-", 4) == 0)
		text += 4;
	for (; *text; text++)
		if (*text != '-' && (*digits == 0 || tolower((unsigned char)*text) != *digits++))
			return false;
	return *digits == 0;
}

/* Writes the name of the daemon's GPU that has the UUID, or with "" of the first one from row *row
 * on that the daemon does not know yet; "": none.  A status of libkiln. */
static int find_gpu(kiln_client *client, const char *uuid, int *row, char name[64])
{
	kiln_reply *reply = NULL;
	char path[64];
	int status = kiln_request(client, "devices", NULL, 0, &reply);
	name[0] = 0;
	if (status != KILN_OK)
		return status;
	for (; *row < kiln_reply_count(reply, "rows") && name[0] == 0; (*row)++) {
		snprintf(path, sizeof(path), "rows[%d].kind", *row);
		bool is_gpu = strcmp(kiln_reply_str(reply, path), "cuda") == 0;
		snprintf(path, sizeof(path), "rows[%d].uuid", *row);
		const char *text = kiln_reply_str(reply, path);
		if (!is_gpu || (uuid[0] ? !same_uuid(text, uuid) : text[0] != 0))
			continue;
		snprintf(path, sizeof(path), "rows[%d].name", *row);
		snprintf(name, 64, "%s", kiln_reply_str(reply, path));
	}
	kiln_reply_free(reply);
	return KILN_OK;
}

static int move_to(struct opening *opening, const char *device)
{
	kiln_close(opening->client);
	opening->client = NULL;
	return connect_to(opening, device);
}

/* The daemon may count its GPUs otherwise than this process: the UUID says which is meant.  Of a
 * GPU that nobody has used the daemon knows none, until somebody connects to it. */
static int follow_uuid(struct opening *opening)
{
	char uuid[33], first[64], name[64];
	int row = 0, unknown = 0;
	if (!cuda_uuid(opening->device, uuid) || find_gpu(opening->client, uuid, &row, name) != KILN_OK)
		return KILN_OK;
	snprintf(first, sizeof(first), "%s", kiln_device(opening->client));
	while (name[0] == 0 && opening->client &&
		   find_gpu(opening->client, "", &unknown, name) == KILN_OK && name[0] != 0) {
		row = 0;
		if (move_to(opening, name) != KILN_OK ||
			find_gpu(opening->client, uuid, &row, name) != KILN_OK)
			name[0] = 0;
		if (!opening->client && move_to(opening, first) != KILN_OK)
			break;
	}
	const char *wanted = name[0] ? name : first;
	if (opening->client && strcmp(wanted, kiln_device(opening->client)) == 0)
		return KILN_OK;
	return move_to(opening, wanted);
}

static int open_once(struct opening *opening)
{
	char device[32] = "cpu";
	if (!opening->demanded || opening->settings.device)
		return connect_to(opening, opening->settings.device);
	if (opening->device != VIEW_HOST)
		snprintf(device, sizeof(device), "cuda:%d", opening->device);
	int status = connect_to(opening, device);
	/* A daemon of GPUs has no device cpu, and one may number its GPUs otherwise. */
	if (status != KILN_OK && status != KILN_ECONN && status != KILN_ETIMEDOUT &&
		status != KILN_EVERSION)
		status = connect_to(opening, NULL);
	if (status == KILN_OK && opening->device != VIEW_HOST)
		status = follow_uuid(opening);
	return status;
}

/* A daemon that was killed may leave its socket open for as long as its children live. */
#define OPEN_TRIES 3

static int opening_work(struct errand *errand)
{
	struct opening *opening = (struct opening *)errand;
	const struct timespec pause = {.tv_nsec = PAUSE_SIGNALS_MS * 1000000L};
	int status = open_once(opening);
	for (int i = 1; i < OPEN_TRIES && status == KILN_ECONN; i++) {
		if (!(opening->settings.flags & KILN_CONNECT_AUTOSTART))
			break;
		nanosleep(&pause, NULL);
		status = open_once(opening);
	}
	return status;
}

static void opening_drop(struct errand *errand)
{
	struct opening *opening = (struct opening *)errand;
	kiln_close(opening->client);
	settings_free(&opening->settings);
	errand_end(errand);
	free(opening);
}

struct opening *opening_new(const struct settings *settings, int device, bool demanded)
{
	struct opening *opening = calloc(1, sizeof(*opening));
	if (!opening) {
		PyErr_NoMemory();
		return NULL;
	}
	opening->errand.work = opening_work;
	opening->errand.drop = opening_drop;
	opening->device = device;
	opening->demanded = demanded;
	settings_copy(settings, &opening->settings);
	return opening;
}
