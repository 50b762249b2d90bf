/*
 * client.h: one connection to the daemon.
 *
 * One thread at a time may be inside a client; a second one is refused, it never waits.  States of
 * kiln_client.state:
 *
 *            client_enter()          kiln_close() by another thread
 *     IDLE <---------------> BUSY ----------------------------------> CLOSING
 *      |     client_leave()                                              |
 *      | kiln_close()              client_leave() of the thread inside   |
 *      v                                                                 v
 *   CLOSING -----------------------------------------------------> CLOSED
 *
 * kiln_client.link says what the socket is good for:
 *
 *   GREETING --- the daemon answers hello ---> OPEN --- the daemon is gone, or close ---> DEAD
 *       |                                                                                  ^
 *       +------------------------- the daemon turns the client away -----------------------+
 *
 * Memory: the handle, each buffer and each call hold one reference.  The last one frees the struct;
 * CLOSED frees everything else.
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

/* Bits: kiln_close() adds CLOSING to whatever state it finds. */
enum client_state { CLIENT_IDLE = 0, CLIENT_BUSY = 1, CLIENT_CLOSED = 2, CLIENT_CLOSING = 3 };

enum link_state { LINK_GREETING, LINK_OPEN, LINK_DEAD };

struct kiln_client {
	_Atomic unsigned state; /* enum client_state */
	atomic_int refs;        /* the handle, its buffers and its calls */
	/* Freed by a thread while another one was inside. */
	_Atomic(struct kiln_call *) orphans;
	_Atomic(struct kiln_buffer *) orphan_buffers;
	pid_t pid;              /* of the process that connected */
	const atomic_int *ours; /* a page that is 0 in a child of fork(); NULL: ask getpid() */
	int sock;
	enum link_state link;
	char dead_text[384];      /* why the link is DEAD */
	uint64_t next_id;         /* of requests and tickets */
	uint64_t max_message;     /* bytes that the daemon takes */
	int64_t newest_dtype;     /* the last element type that the daemon has */
	int timeout_ms;           /* of requests; KILN_FOREVER: none */
	struct frame_queue queue; /* bytes that the socket did not take yet */
	struct ticket_table tickets;
	struct lane *lane;
	struct signatures *signatures; /* the calls that kiln_run() keeps */
	struct local_way *local_found; /* ways that a better kernel was found for */
	struct late *late;             /* requests that timed out, whose reply may still come */
	size_t late_count;
	struct question *questions; /* posted requests whose reply somebody takes */
	int staging;                /* the memfd of kiln_read() and kiln_write(); -1: none */
	void *staging_map;
	size_t staging_bytes;
	struct printed *printed; /* what kernels have printed; NULL: nothing yet */
	bool debug;              /* KILN_DEBUG=wire */
	bool times; /* the program has asked for a call's time, so launches are timed from now on */
	int64_t born_us;
	char device[32];
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* Makes a client with one reference, which is not connected; NULL: no memory. */
struct kiln_client *client_new(void);
/* Enters.  KILN_OK, also where the link is dead; or EINVAL, EFORK, EBUSY, ECONN with a message. */
int client_enter(struct kiln_client *client);
/* Enters without a message; client_refuse() sets the message of the status and returns it. */
int client_try(struct kiln_client *client);
int client_refuse(const struct kiln_client *client, int status);
/* Leaves and returns status.  The client may be freed afterwards. */
int client_leave(struct kiln_client *client, int status);
/* Leaves a call or buffer that is to be freed to the thread inside the client, which may be closing
 * it. */
void client_adopt(struct kiln_client *client, struct kiln_call *call);
void client_adopt_buffer(struct kiln_client *client, struct kiln_buffer *buffer);
/* Drops the reference of a buffer or a call. */
void client_unref(struct kiln_client *client);

/* The deadline of a request that begins now. */
static inline int64_t client_deadline(const struct kiln_client *client)
{
	return time_deadline(client->timeout_ms);
}

#endif
