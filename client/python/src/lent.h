/*
 * lent.h: the type Lent, memory of a CUDA tensor that the daemon may use as long as the object
 * lives.  The object keeps the tensor, so that the memory is not given back meanwhile.
 *
 *   LENT --- the daemon is gone ---> HELD --- lent_buffer() ---> LENT
 *    |                                |
 *    +-------------- close() ---------+-----------------------> ENDED
 */
#ifndef KILN_PYTHON_LENT_H
#define KILN_PYTHON_LENT_H

#include "connection.h"

enum lent_state { LENT_HELD, LENT_LENT, LENT_ENDED };

struct lent {
	PyObject_HEAD enum lent_state state;
	struct lent *next;             /* of the connection */
	struct connection *connection; /* of the thread that lent it */
	PyObject *tensor;
	char *data;
	uint64_t bytes;
	int device;
	kiln_buffer *buffer; /* LENT */
};

/* Finds what has the bytes; NULL: none. */
struct lent *lent_find(const struct connection *connection, const char *data, uint64_t bytes);
/* Writes the buffer and where data lies in it, and lends anew to a daemon that came after.  A
 * status of libkiln. */
int lent_buffer(struct lent *lent, const char *data, kiln_operand *out);

#endif
