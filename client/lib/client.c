/*
 * client.c: makes and closes a client, and decides which thread may be inside it.
 */
#include "client.h"
#include "buffer.h"
#include "call.h"
#include "clock.h"
#include "error.h"
#include "lane.h"
#include "printed.h"
#include "signature.h"
#include "ticket.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Beginning and end ---- */

static void release_orphans(struct kiln_client *client)
{
	struct kiln_call *call = atomic_exchange(&client->orphans, NULL);
	while (call) {
		struct kiln_call *next = call->next;
		if (client->lane)
			call_release(call);
		else
			call_drop(call);
		call = next;
	}
	struct kiln_buffer *buffer = atomic_exchange(&client->orphan_buffers, NULL);
	while (buffer) {
		struct kiln_buffer *next = buffer->next;
		buffer_give_back(buffer);
		buffer = next;
	}
}

static void destroy(struct kiln_client *client)
{
	if (client->sock >= 0) {
		/* In a child of fork() the connection is still the parent's. */
		if (client->pid == getpid())
			shutdown(client->sock, SHUT_RDWR);
		close(client->sock);
		client->sock = -1;
	}
	client->link = LINK_DEAD;
	/* Calls that are freed later find nothing of theirs here. */
	client->questions = NULL;
	client->local_found = NULL;
	snprintf(client->dead_text, sizeof(client->dead_text), "the client of kilnd at %s was closed",
			 client->path);
	buffer_drop_staging(client);
	frame_queue_free(&client->queue);
	ticket_table_free(&client->tickets);
	free(client->late);
	printed_free(client);
	client->late = NULL;
	client->late_count = 0;
	release_orphans(client);
	while (client->signatures && call_forget_oldest(client)) {
	}
	signatures_free(client->signatures);
	client->signatures = NULL;
	lane_free(client->lane);
	client->lane = NULL;
}

void client_unref(struct kiln_client *client)
{
	if (atomic_fetch_sub(&client->refs, 1) == 1) {
		if (client->ours)
			munmap((void *)(uintptr_t)client->ours, sizeof(atomic_int));
		free(client);
	}
}

/* Calls may become orphans until the client is CLOSED. */
static void end_client(struct kiln_client *client)
{
	destroy(client);
	atomic_store(&client->state, CLIENT_CLOSED);
	release_orphans(client);
	client_unref(client);
}

void client_adopt(struct kiln_client *client, struct kiln_call *call)
{
	atomic_fetch_add(&client->refs, 1); /* the call's own may go with it */
	call->next = atomic_load(&client->orphans);
	while (!atomic_compare_exchange_weak(&client->orphans, &call->next, call)) {
	}
	if (atomic_load(&client->state) == CLIENT_CLOSED)
		release_orphans(client);
	client_unref(client);
}

void client_adopt_buffer(struct kiln_client *client, struct kiln_buffer *buffer)
{
	atomic_fetch_add(&client->refs, 1);
	buffer->next = atomic_load(&client->orphan_buffers);
	while (!atomic_compare_exchange_weak(&client->orphan_buffers, &buffer->next, buffer)) {
	}
	if (atomic_load(&client->state) == CLIENT_CLOSED)
		release_orphans(client);
	client_unref(client);
}

/* The kernel zeroes this page in a child of fork(), which so finds out without a system call. */
static const atomic_int *make_mark(void)
{
	atomic_int *mark =
		mmap(NULL, sizeof(*mark), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mark == MAP_FAILED)
		return NULL;
	if (madvise(mark, sizeof(*mark), MADV_WIPEONFORK) != 0) {
		munmap(mark, sizeof(*mark));
		return NULL;
	}
	atomic_store(mark, 1);
	return mark;
}

struct kiln_client *client_new(void)
{
	struct kiln_client *client = calloc(1, sizeof(*client));
	if (!client)
		return NULL;
	client->born_us = time_now_us();
	client->pid = getpid();
	client->ours = make_mark();
	client->sock = client->staging = -1;
	atomic_init(&client->refs, 1);
	client->lane = lane_new();
	client->signatures = signatures_new();
	if (!client->lane || !client->signatures) {
		kiln_close(client);
		return NULL;
	}
	return client;
}

/* ---- Entering and leaving ---- */

static bool is_forked(const struct kiln_client *client)
{
	return client->ours ? atomic_load(client->ours) == 0 : client->pid != getpid();
}

int client_try(struct kiln_client *client)
{
	unsigned expected = CLIENT_IDLE;
	if (is_forked(client))
		return KILN_EFORK;
	if (!atomic_compare_exchange_strong(&client->state, &expected, CLIENT_BUSY))
		return (expected & CLIENT_CLOSED) != 0 ? KILN_ECONN : KILN_EBUSY;
	return KILN_OK;
}

int client_refuse(const struct kiln_client *client, int status)
{
	switch (status) {
	case KILN_EFORK:
		return error_set(status,
						 "the client was connected by process %d and this is process %d: a child "
						 "of fork() must connect for itself",
						 (int)client->pid, (int)getpid());
	case KILN_EBUSY:
		return error_set(status, "another thread is inside a call of this client: use one client "
								 "for each thread, or a lock around it");
	default:
		return error_set(status, "the client was closed; its handles can only be freed");
	}
}

int client_enter(struct kiln_client *client)
{
	if (!client)
		return error_set(KILN_EINVAL, "client is NULL; it must come from kiln_connect()");
	int status = client_try(client);
	return status == KILN_OK ? KILN_OK : client_refuse(client, status);
}

/* The thread inside checks the client as it leaves. */
static void client_assert_valid(const struct kiln_client *client)
{
	(void)client;
	assert((atomic_load(&client->state) & CLIENT_BUSY) != 0);
	assert(atomic_load(&client->refs) > 0);
	assert(client->link == LINK_GREETING || client->device[0] != 0 || client->link == LINK_DEAD);
	assert(client->link != LINK_DEAD || client->dead_text[0] != 0);
	assert((client->staging >= 0) == (client->staging_map != NULL));
	assert(client->late_count == 0 || client->late);
}

int client_leave(struct kiln_client *client, int status)
{
	release_orphans(client);
	client_assert_valid(client);
	unsigned state = CLIENT_BUSY;
	if (!atomic_compare_exchange_strong(&client->state, &state, CLIENT_IDLE))
		end_client(client); /* another thread has closed it meanwhile */
	return status;
}

void kiln_close(kiln_client *client)
{
	if (!client)
		return;
	if (client->pid == getpid()) {
		unsigned before = atomic_fetch_or(&client->state, CLIENT_CLOSING);
		if (before != CLIENT_IDLE)
			return; /* the thread inside destroys it as it leaves; or it is closed already */
	}
	end_client(client);
}

const char *kiln_device(const kiln_client *client)
{
	return client ? client->device : "";
}
