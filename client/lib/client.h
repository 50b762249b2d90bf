/*
 * client.h: one connection to the daemon: its state, and who may be inside it.
 */
#ifndef KILN_CLIENT_CLIENT_H
#define KILN_CLIENT_CLIENT_H

#include "clock.h"
#include "ticket.h"
#include "client/wire/frame.h"

#include <kiln/kiln.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <sys/un.h>

struct kiln_client {
	_Atomic unsigned state; /* STATE_*: who is inside, and whether it is being closed */
	atomic_int refs;        /* the handle itself, and each buffer and call made from it */
	_Atomic(struct kiln_call *) orphans; /* freed while another thread was inside */
	pid_t pid;
	const atomic_int *ours; /* 0 in a child of fork(), without asking the system; NULL: ask */
	int sock;
	bool dead; /* nothing more comes or goes; dead_text says why */
	char dead_text[384];
	uint64_t next_id;
	uint64_t max_message; /* that the daemon takes */
	int timeout_ms;       /* KILN_FOREVER: none */
	struct frame_queue queue;
	struct ticket_table tickets;
	struct lane *lane;
	struct signatures *signatures; /* the calls that kiln_run keeps */
	struct late *late;             /* requests given up, whose reply may still come */
	size_t late_count;
	int staging; /* memfd for read and write, or -1 */
	void *staging_map;
	size_t staging_bytes;
	bool debug; /* KILN_DEBUG=wire */
	bool times; /* it has asked how long a call took */
	int64_t born_us;
	char device[32];
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* Enters: KILN_OK (also where the daemon is gone), or EINVAL, EFORK, EBUSY, ECONN with a message.
 */
int client_enter(struct kiln_client *client);
/* The same in two steps: tries, and puts a failure to do so into words. */
int client_try(struct kiln_client *client);
int client_refuse(const struct kiln_client *client, int status);
/* Leaves; returns status.  The client may be gone afterwards. */
int client_leave(struct kiln_client *client, int status);
void client_unref(struct kiln_client *client);

/* When a request that begins now has to be answered. */
static inline int64_t client_deadline(const struct kiln_client *client)
{
	return time_deadline(client->timeout_ms);
}

#endif
