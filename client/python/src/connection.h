/*
 * connection.h: connections to daemons.  A thread has one for each device that it uses, made on
 * demand; `with kiln.Client(...)` puts another one in their place.
 *
 *   NEW --- connection_open() ---> OPEN --- the daemon is gone, or fork() ---> NEW
 *                                    |
 *                                    +--- connection_close() ---> CLOSED
 */
#ifndef KILN_PYTHON_CONNECTION_H
#define KILN_PYTHON_CONNECTION_H

#include "prepared.h"

struct settings {
	char *socket, *device, *daemon, *on_miss; /* NULL: libkiln's defaults */
	int timeout_ms;
	unsigned flags; /* KILN_CONNECT_* */
	int mode;       /* enum mode */
};

/* Calls on CUDA tensors are launched by this process, or by the daemon on memory lent to it. */
enum mode { MODE_LOCAL, MODE_DAEMON };

enum connection_state { CONNECTION_NEW, CONNECTION_OPEN, CONNECTION_CLOSED };

/* Memory that this process and device cpu share: of kiln.empty(). */
struct shared_range {
	char *data;
	uint64_t bytes;
	kiln_buffer *buffer;
};

#define TICKETS_MOST 64 /* calls that the daemon has and whose end nobody has asked for */

struct connection {
	PyObject_HEAD enum connection_state state;
	struct settings settings;
	int device;    /* of the tensors it is for: VIEW_HOST or a CUDA device's number */
	bool demanded; /* the thread's own; the device is chosen by the tensor */
	bool on_host;  /* the daemon's device is cpu */
	bool busy;     /* a call uses the arena */
	kiln_client *client;
	unsigned forks; /* how many fork() there were when it was opened */
	struct lost_client *lost;
	struct prepared_table prepared;
	kiln_buffer *arena; /* operands of the host */
	char *arena_map;    /* NULL where the daemon's device is not cpu */
	uint64_t arena_bytes;
	struct shared_range *ranges;
	int range_count;
	struct lent *lent;
	kiln_ticket tickets[TICKETS_MOST]; /* of mode daemon, the oldest at ticket_first */
	int ticket_first, ticket_count;
};

/* Returns the connection for tensors of a device, a new reference. */
struct connection *connection_for(int device);
/* Connects if it is not; 0 or RAISED. */
int connection_open(struct connection *connection);
/* The daemon is gone: the next connection_open() connects anew.  Calls that launch by themselves
 * stay usable: keep_calls. */
void connection_lost(struct connection *connection, bool keep_calls);
/* Whether prepared calls outlive the daemon. */
bool connection_keeps_calls(const struct connection *connection);
void connection_close(struct connection *connection);
/* Finds the buffer that has the bytes, and its offset there; NULL: none. */
kiln_buffer *connection_shared(const struct connection *connection, const char *data,
							   uint64_t bytes, uint64_t *offset);
bool connection_check(PyObject *object); /* is it a Connection? */

#endif
