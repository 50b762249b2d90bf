/* printed: what the client's own kernels have printed, until the program asks for it. */
#ifndef KILN_CLIENT_PRINTED_H
#define KILN_CLIENT_PRINTED_H

#include "client/wire/wire.h"
#include <kiln/kiln.h>

/* The daemon's event "printed" has come. */
void printed_keep(kiln_client *client, const msgpack_object *event);
/* Returns what has come since the last time, until the next. */
const char *printed_take(kiln_client *client, uint64_t *cut);
void printed_free(kiln_client *client);

#endif
