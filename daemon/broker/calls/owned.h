/* owned.h: the tables of what a session owns; for the files of this room. */
#ifndef KILN_DAEMON_OWNED_H
#define KILN_DAEMON_OWNED_H

#include "daemon/base/map.h"

struct owned {
	struct map buffers, calls; /* by id */
	uint64_t held_bytes;
	uint64_t graph_launches;
};

#endif
