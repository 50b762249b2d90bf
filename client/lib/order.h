/*
 * order.h: the gates of one lane, as CUDA streams of this process use them.  cuda_order.c is the
 * driver's part, order_watch.c watches for lanes that end.
 *
 *   order_new() --> WATCHED --- the lifeline ends: the watch writes all done words ---> DEAD
 *
 * The lane and the watch hold an order.  order_drop() lets the lane's hold go, the end of the
 * lifeline the watch's; the last one frees the order.
 *
 * A stream writes and waits when it gets there, perhaps long after the lane, the client and the
 * device process are gone, and nothing tells when.  The driver's registration cannot be given back
 * either: that waits for all that runs on the GPU, which may wait for this program.  So the page of
 * the gates stays registered and mapped for good, one page for each lane that a stream has used, up
 * to ORDER_MOST.
 */
#ifndef KILN_CLIENT_ORDER_H
#define KILN_CLIENT_ORDER_H

#include "client/wire/lane_memory.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ORDER_CONTEXTS 4
#define ORDER_MOST 256 /* pages that a process keeps for good */

/* The gates in one CUDA context. */
struct order_place {
	uint64_t context;           /* the context's number */
	struct lane_memory *memory; /* mapped once more and registered; NULL: the driver refused */
	uint64_t gates;             /* the gates' address on the GPU */
};

enum order_state { ORDER_WATCHED, ORDER_DEAD };

struct order {
	/* The order's own mapping: the watch and the submitting thread write gates in it. */
	struct lane_memory *memory;
	/* Under the lock of order_watch.c. */
	struct order *next; /* in the list of watched orders */
	int lifeline;       /* the order's own; -1: it has ended */
	int holders;        /* the lane and the watch */
	/* Both threads use these. */
	_Atomic int state;     /* enum order_state */
	_Atomic uint64_t last; /* the highest entry whose done word a stream may wait for */
	/* The submitting thread alone uses the rest while it holds the order. */
	struct order_place places[ORDER_CONTEXTS];
	int place_count;
	/* For each place, the value that a stream was last told to write into its ready word; 0: none.
	 */
	uint32_t arriving[LANE_ENTRIES];
	/* The context and gates of the stream whose submission is under way. */
	void *context;
	const struct order_place *place;
	bool idle; /* that stream had nothing to do, so nothing keeps its calls from starting */
};

/* Watches the lane of this lifeline, which stays the caller's.  NULL: it cannot. */
struct order *order_new(const struct lane_memory *memory, int lifeline);
/* Lets the lane's hold go; takes NULL. */
void order_drop(struct order *order);
/* Maps the memory once more, for longer than the order lives.  NULL: no memory, or ORDER_MOST are
 * kept. */
struct lane_memory *order_map_for_good(const struct order *order);
void order_unmap(struct lane_memory *memory);
/* Announces, before a stream is told to wait for it, the done word of entry `last`. */
void order_expect(struct order *order, uint64_t last);
/* Comes after that: writes the done word if the lane has ended meanwhile. */
void order_recheck(struct order *order, uint64_t last);
/* Whether a stream was told to write the place's ready word and has not got there. */
bool order_is_arriving(const struct order *order, uint32_t place);

#endif
