/*
 * client: what the steps of a client process stand on: chance, judging statuses, connections; and
 * the steps themselves.
 */
#ifndef KILN_TESTS_SOAK_CLIENT_H
#define KILN_TESTS_SOAK_CLIENT_H

#include "soak.h"

#define KEPT 8        /* buffers that stay over many steps */
#define KEPT_CALLS 12 /* calls likewise */

struct kept {
	kiln_buffer *buffer;  /* NULL: none */
	unsigned char *model; /* what it must hold */
	uint64_t bytes;
	int64_t since_ms; /* a device process that dies later may take it along */
	bool known;       /* what it holds is what model says */
};

struct me {
	struct soak *soak;
	struct soak_seat *seat;
	int number;
	int64_t step, step_ms; /* and when it began */
	uint64_t state;        /* of chance, of this step */
	kiln_client *client;
	int64_t connected_ms;
	bool on_cpu, lends_cuda;
	bool frozen;     /* this connection may have nothing compiled */
	bool background; /* and this one waits until nobody else compiles, or does not */
	bool gone;       /* this connection is to be given up after the step */
	struct kept kept[KEPT];
	kiln_call *calls[KEPT_CALLS];
	struct runner_options runner; /* for data: one thread */
};

int64_t me_pick(struct me *me, int64_t count);
bool me_chance(struct me *me, int one_in);
void me_count(struct me *me, enum soak_count what, int64_t more);
/* Says what the next calls are for; shown when one fails or hangs. */
void me_doing(struct me *me, const char *format, ...) __attribute__((format(printf, 2, 3)));
void me_beat(struct me *me);
/* A failure: named with seed, client and step. */
void me_fail(struct me *me, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * True for KILN_OK.  Another status must be the documented end of a call when a process was killed
 * since then (and is counted), or it is a failure; the step should end either way.
 */
bool me_ok_since(struct me *me, int status, const char *what, int64_t since_ms);
bool me_ok(struct me *me, int status, const char *what);
/* The same, where the call must end in this status. */
bool me_ends(struct me *me, int status, int wanted, const char *what);
/* Frees what is not NULL; where the connection is gone that may fail. */
void me_free(struct me *me, kiln_buffer *buffer);

/* Connects, and waits for a daemon that is being replaced. */
void me_connect(struct me *me);
void me_disconnect(struct me *me);

/* ---- The steps ---- */

void step_operator(struct me *me);
void step_kept(struct me *me);
void step_own(struct me *me);
void step_look(struct me *me);
void step_upkeep(struct me *me);
void step_command(struct me *me);
/* Calls are in flight when this returns: nobody waits for them. */
void step_abandoned(struct me *me);

#endif
