/*
 * lane_memory.h: the memory that a client and its device process share to launch without messages:
 * what both sides must agree on, and nothing of what either does with it.
 *
 * A lane is one memfd, sealed against growing and shrinking, that the broker makes: a header, a
 * ring of LANE_ENTRIES entries, and as many cells.  The client writes entry n % LANE_ENTRIES and
 * then its sequence, the low 32 bits of n + 1; the device process, which looks there, copies the
 * entry, and when the launch has ended fills in cell n % LANE_ENTRIES and then sets its done to
 * n + 1.  One writer for each
 * word, no locks.  The client reuses an entry only when it has read the cell of the one before it
 * there.
 *
 * Entries of one stream are run in their order; those of different streams overlap, and then end in
 * any order.
 *
 * Each side reads what the other wrote once, into memory of its own, and checks that copy.
 *
 * The gates are words that a GPU may write, the low 32 bits of number + 1 each.  Done says that the
 * entry has ended; the device process's GPU writes it where it can, before that process has heard
 * of the end, so that a client which waits sees it soonest: if what it asked was neither to be
 * timed nor reports anything, its end was a good one.
 *
 * Ready is for entries that keep their order with a CUDA stream of the client: that stream writes
 * it, and then waits for done, compared cyclically.  The device process never lets its GPU wait for
 * a client's word: it looks at ready itself, and launches when it is there.  Should it die, the
 * client's own library writes done, with a value that no entry has.
 *
 * Whoever finds nothing to do for a while sleeps: it sets its word (sleeping, waiting), looks once
 * more, and then waits for its descriptor.  Whoever gives it something to do reads that word
 * afterwards; with full fences between, one of the two always sees the other.
 */
#ifndef KILN_CLIENT_LANE_MEMORY_H
#define KILN_CLIENT_LANE_MEMORY_H

#include <kiln/kiln.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LANE_MAGIC 0x656e616cu /* "lane" */
#define LANE_VERSION 2u
#define LANE_ENTRIES 256u
#define LANE_ERROR_MAX 480
/* Handed out with a lane: its memory, an eventfd that wakes the device process, and an end of a
 * pipe: the device process writes a byte there to wake the client, and closes it with the lane,
 * which the client, who is given the other, sees at once.  The flags of an open file belong to all
 * who have it, so what the client has open, too, the device process neither reads nor writes: it
 * might be made to block. */
#define LANE_DESCRIPTORS 3
/* The device process is given a fourth: the memory of a struct lane_counts. */
#define LANE_EXEC_DESCRIPTORS 4
/* Neither side looks for work longer than this, whatever the header says. */
#define LANE_SPIN_MOST_US 1000000

struct lane_operand {
	uint64_t buffer; /* the broker's number; 0: left out */
	uint64_t offset; /* bytes */
};

#define LANE_TIMED 1u /* the client will ask how long it took on the device */
#define LANE_READY 2u /* not before the entry's ready word is written */
#define LANE_DONE 4u  /* its done word is to be written at once when it has ended, well or not */

/* A client need not write, and the device process does not read, operands beyond operand_count. */
struct lane_entry {
	uint64_t call;  /* the broker's number of a call that is bound to this lane */
	uint64_t after; /* number + 1 of the entry that must have succeeded first; 0: none */
	uint32_t operand_count;
	uint32_t flags;
	uint32_t stream;           /* of the client's, from 0 */
	_Atomic uint32_t sequence; /* written last: with two operands all is in one cache line */
	struct lane_operand operands[KILN_MAX_OPERANDS];
	uint64_t pad[4];
};

struct lane_cell {
	_Atomic uint64_t done; /* number + 1 of the entry that has ended here */
	int32_t status;
	uint32_t unused;
	uint64_t micros;            /* on the device; 0: not known */
	char error[LANE_ERROR_MAX]; /* a sentence, where status is not 0 */
	uint64_t pad;
};

/* In pages of their own: both sides register them with their drivers. */
struct lane_gate {
	_Atomic uint32_t ready, done;
};

#define LANE_GATES_BYTES 4096

struct lane_header {
	uint32_t magic, version, entries;
	/* How long either side looks for work before it sleeps.  Waking takes some 10 us, so looking
	 * for longer than a few times that gains little; but where many clients have their turn one
	 * after another, the device process has them look for longer. */
	_Atomic uint32_t spin_us;
	/* Each in a cache line of its own: who reads one word again and again is not to be disturbed by
	 * another.  The client's: */
	_Alignas(64) _Atomic uint64_t tail;    /* entries written, for those who look */
	_Alignas(64) _Atomic uint32_t waiting; /* it sleeps until it is sent a byte */
	/* The device process's: */
	_Alignas(64) _Atomic uint64_t head; /* entries taken, likewise */
	_Alignas(64) _Atomic uint32_t sleeping;
};

/* What the device process has the broker know, where no client can write. */
struct lane_counts {
	_Atomic uint64_t taken, launched, failed; /* entries */
	_Atomic uint64_t progress_us;   /* the last end, or the start after which there are launches */
	_Atomic uint64_t parked, gated; /* entries that have not started; of these, for a ready word */
	_Atomic uint64_t parked_us;     /* the first of them */
};

struct lane_memory {
	_Alignas(64) struct lane_header header;
	_Alignas(64) struct lane_entry entries[LANE_ENTRIES];
	_Alignas(64) struct lane_cell cells[LANE_ENTRIES];
	_Alignas(LANE_GATES_BYTES) struct lane_gate gates[LANE_GATES_BYTES / sizeof(struct lane_gate)];
};

_Static_assert(sizeof(struct lane_entry) == 320, "entries are whole cache lines");
_Static_assert(sizeof(struct lane_cell) == 512, "cells are whole cache lines");
_Static_assert(sizeof(struct lane_gate) == 8 && LANE_ENTRIES * 8 <= LANE_GATES_BYTES,
			   "a gate for each place");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "atomics that processes share need no lock");

/* The client's last word on entry number. */
static inline void lane_publish(struct lane_memory *memory, uint64_t number)
{
	atomic_store_explicit(&memory->entries[number % LANE_ENTRIES].sequence, (uint32_t)(number + 1),
						  memory_order_release);
	atomic_store_explicit(&memory->header.tail, number + 1, memory_order_relaxed);
}

static inline uint32_t lane_gate_value(uint64_t number)
{
	return (uint32_t)(number + 1);
}

static inline bool lane_gate_open(const _Atomic uint32_t *word, uint64_t number)
{
	uint32_t reached = atomic_load_explicit(word, memory_order_acquire);
	return (int32_t)(reached - lane_gate_value(number)) >= 0;
}

/* Says to the other thread of this core that this one only looks. */
static inline void lane_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
