/*
 * buffer_state.h: what a buffer is, for the files of this room.
 *
 * A buffer has places: the device process of the session (HOME), and the process of its own for
 * kernels that it brings (OWN).
 *
 *   a place:  ABSENT --asked to place it--> PLACING --+--> PLACED
 *               |                                     +--> FAILED --a work is told--> ABSENT
 *               +--OWN needs HOME's memory--> SHARING --+--> ABSENT; the buffer has a descriptor
 *                                                       +--> FAILED
 *             PLACED --that process ends--> stale: the next buffer_place() asks anew
 *
 * Invariants: a process has the buffer if, and only if, the place's generation is the process's.
 * PLACING and SHARING have exactly one request under way whose argument is the buffer: SHARING in
 * HOME, PLACING in its own process.  The buffer owns fd.
 */
#ifndef KILN_DAEMON_BUFFER_STATE_H
#define KILN_DAEMON_BUFFER_STATE_H

#include "buffer.h"

enum buffer_place { BUFFER_ABSENT, BUFFER_SHARING, BUFFER_PLACING, BUFFER_PLACED, BUFFER_FAILED };

struct buffer_place_state {
	enum buffer_place place;
	uint64_t generation; /* of the last process that had it; 0: none had */
	int status;          /* FAILED: why */
	char error[KERNEL_ERROR_MAX];
};

struct buffer {
	uint64_t id; /* in the device processes, too */
	enum buffer_kind kind;
	uint64_t bytes;
	char name[64];
	struct buffer_memory memory; /* a HELD one has a descriptor only once two processes share it */
	struct buffer_place_state at[BUFFER_PLACES];
	/* HELD: the contents ended with a process; the first `covered` bytes were written since. */
	bool lost;
	bool rewritten; /* in check_lost() of a graph: an earlier launch writes all of it */
	uint64_t covered;
	struct session *session;
	struct making *making; /* the request that makes it; NULL: it is answered */
};

/* The alignment of an address in it, 16 at most. */
uint32_t buffer_alignment(const struct buffer *buffer, uint64_t offset);
/* Says whether two operands share a byte, also through two buffers lent from one allocation. */
bool buffer_overlap(const struct work_operand *a, const struct kernel_extent *a_extent,
					const struct work_operand *b, const struct kernel_extent *b_extent);
/* Sees that the buffer is in one of the session's device processes: PLACED, PLACING (work_pump() is
 * called at the end of it) or FAILED.  For OWN no work that uses the buffer may be under way in
 * HOME. */
/* Has HOME share the memory, which lies there; PLACED: memory.fd is there. */
enum buffer_place buffer_share(struct buffer *buffer);
enum buffer_place buffer_place(struct buffer *buffer, enum buffer_where where);
bool buffer_is_in(const struct buffer *buffer, enum buffer_where where);
/* Takes its name out of the session's table; works that use it go on. */
void buffer_unname(struct buffer *buffer);
/* Tells the device processes to free it, without waiting. */
void buffer_release(struct buffer *buffer);

/* ---- buffer_make.c ---- */

/* Placing the buffer has ended, or may be tried again. */
void making_look(struct making *making);

#endif
