/*
 * lane_memory.h: the memory that a client and its device process share to launch without messages.
 * This file has the layout and the rules that both sides keep, and nothing of either side alone.
 *
 * A lane is one memfd, sealed against growing and shrinking, that the broker makes: a header, a
 * ring of LANE_ENTRIES entries, and as many cells.  The client writes entry n % LANE_ENTRIES and
 * then its sequence, the low 32 bits of n + 1; the device process, which looks there, copies the
 * entry, and when the launch has ended fills in cell n % LANE_ENTRIES and then sets its done to n +
 * 1.  Each word has one writer, and there are no locks.  The client reuses an entry only after it
 * has read the cell of the entry that was there before.
 *
 * Entries of one stream run in their order; entries of different streams overlap and end in any
 * order.
 *
 * Each side reads what the other wrote once, into memory of its own, and checks that copy.
 *
 * The gates are words that a GPU may write, each the low 32 bits of number + 1.  `done` says that
 * the entry has ended; where it can, the GPU of the device process writes it before that process
 * has heard of the end, so that a client which waits sees it soonest.  If the entry is not timed
 * and reports nothing, `done` alone says that it succeeded.
 *
 * `ready` is for entries that keep their order with a CUDA stream of the client: that stream writes
 * `ready`, and then waits for `done`, compared cyclically.  The device process never lets its GPU
 * wait for a client's word: it looks at `ready` itself, and launches when the word is there.  If
 * the device process dies, the client's library writes `done`, with a value that no entry has.
 *
 * The desk is for the first call of a shape.  The client lays a problem there, as it stands in a
 * "prepare" request, writes asked, and then lane_desk_value() as the sequence of the entry that it
 * will write next, where the device process looks anyway.  That copies the problem, plans the
 * generic kernel and binds the call to the lane, or does nothing of that; it answers, and then
 * writes answered.  The entry that launches the call is one like any other.  The client tells the
 * broker of the call after that.
 *
 * A side that finds nothing to do for a while sleeps: it sets its word (sleeping, waiting), looks
 * once more, and then waits for its descriptor.  The other side writes something to do, and then
 * reads that word.  Each has a full fence between the two steps, so one of the sides always sees
 * the other.
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
#define LANE_CALLS 4096 /* that may be bound to a lane */
#define LANE_ERROR_MAX 480
/* The broker hands out with a lane: its memory, an eventfd that wakes the device process, and an
 * end of a pipe.  The device process has the other end: it writes a byte there to wake the client,
 * and closes it with the lane, which the client sees at once.  All holders of an open file share
 * its flags, and a client could clear O_NONBLOCK; so the device process neither reads nor writes a
 * file that the client has open. */
#define LANE_DESCRIPTORS 3
/* The device process is given a fourth: the memory of a struct lane_counts. */
#define LANE_EXEC_DESCRIPTORS 4
/* Neither side looks for work longer than this, whatever the header says. */
#define LANE_SPIN_MOST_US 1000000

struct lane_operand {
	uint64_t buffer; /* the broker's number; 0: left out */
	uint64_t offset; /* bytes */
};

#define LANE_TIMED 1u /* the client will ask how long the entry took on the device */
#define LANE_READY 2u /* the entry starts after its ready word is written */
#define LANE_DONE 4u  /* the done word is written as soon as the entry has ended, well or not */

/* Neither side touches operands beyond operand_count. */
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

/* The gates are in pages of their own, which both sides register with their drivers. */
struct lane_gate {
	_Atomic uint32_t ready, done;
};

#define LANE_GATES_BYTES 4096

#define LANE_PROBLEM_BYTES 3072
/* Calls that are bound at a desk have numbers from the desk's own on, which no other lane has, in a
 * life of a device process or another.  The broker gives all else numbers without this bit. */
#define LANE_DESK ((uint64_t)1 << 62)
#define LANE_DESK_CALLS (1u << 20)

/* An operand of a call that is bound at the desk, as in struct kernel_extent. */
struct lane_extent {
	uint64_t bytes, period, width;
	uint32_t alignment, over;
};

struct lane_desk {
	/* The client writes these: */
	_Atomic uint32_t asked; /* problems laid here, this one too */
	_Atomic uint32_t bytes;
	unsigned char problem[LANE_PROBLEM_BYTES];
	/* The device process writes these: */
	_Alignas(64) _Atomic uint32_t answered; /* problems, this one too */
	uint32_t operand_count;
	uint64_t call; /* the number by which entries name it; 0: it has to go by message */
	uint32_t reports, unused;
	struct lane_extent extents[KILN_MAX_OPERANDS];
};

struct lane_header {
	uint32_t magic, version, entries;
	/* How long either side looks for work before it sleeps.  To wake it takes some 10 us, so to
	 * look for longer than a few times that gains little.  Where many clients have their turn one
	 * after another, the device process has them look for longer. */
	_Atomic uint32_t spin_us;
	uint32_t desk; /* the broker's: 1 where there is a desk */
	/* Each is in a cache line of its own, so that writes of one word do not disturb readers of
	 * another.  The client writes these: */
	_Alignas(64) _Atomic uint64_t tail;    /* entries written, for those who look */
	_Alignas(64) _Atomic uint32_t waiting; /* it sleeps until it is sent a byte */
	/* The device process writes these: */
	_Alignas(64) _Atomic uint64_t head; /* entries taken, likewise */
	_Alignas(64) _Atomic uint32_t sleeping;
};

/* Counts for the device process and the broker; no client has this memory. */
struct lane_counts {
	/* The device process writes these: */
	_Atomic uint64_t taken, launched, failed; /* entries */
	_Atomic uint64_t progress_us;   /* the last end, or the start after which there are launches */
	_Atomic uint64_t parked, gated; /* entries that have not started; of these, for a ready word */
	_Atomic uint64_t parked_us;     /* the first of them */
	_Atomic uint64_t desk_bound;    /* calls that were bound at the desk */
	/* The broker writes this: */
	_Atomic uint64_t desk_most; /* calls that may be bound there */
};

struct lane_memory {
	_Alignas(64) struct lane_header header;
	_Alignas(64) struct lane_entry entries[LANE_ENTRIES];
	_Alignas(64) struct lane_cell cells[LANE_ENTRIES];
	_Alignas(64) struct lane_desk desk; /* where earlier versions have nothing */
	_Alignas(LANE_GATES_BYTES) struct lane_gate gates[LANE_GATES_BYTES / sizeof(struct lane_gate)];
};

_Static_assert(sizeof(struct lane_entry) == 320, "entries are whole cache lines");
_Static_assert(sizeof(struct lane_cell) == 512, "cells are whole cache lines");
_Static_assert(sizeof(struct lane_memory) == 221184, "a lane of version 2 has so many bytes");
_Static_assert(sizeof(struct lane_gate) == 8 && LANE_ENTRIES * 8 <= LANE_GATES_BYTES,
			   "a gate for each place");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "atomics that processes share need no lock");

/* Hands the entry, which is whole, to the device process. */
static inline void lane_publish(struct lane_memory *memory, uint64_t number)
{
	atomic_store_explicit(&memory->entries[number % LANE_ENTRIES].sequence, (uint32_t)(number + 1),
						  memory_order_release);
	atomic_store_explicit(&memory->header.tail, number + 1, memory_order_relaxed);
}

/* The sequence of a place whose entry is not written, and before which the desk is asked. */
static inline uint32_t lane_desk_value(uint64_t number)
{
	return ~(uint32_t)(number + 1);
}

/* Asks at the desk: the problem lies there, and the place of entry `number` is free. */
static inline void lane_ask_desk(struct lane_memory *memory, uint32_t asked, uint64_t number)
{
	atomic_store_explicit(&memory->desk.asked, asked, memory_order_relaxed);
	atomic_store_explicit(&memory->entries[number % LANE_ENTRIES].sequence, lane_desk_value(number),
						  memory_order_release);
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

/* Leaves the core to its other thread for a moment, while this one only looks. */
static inline void lane_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
