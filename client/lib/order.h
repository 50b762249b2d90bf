/*
 * order.h: what cuda_order.c (the driver's part) and order_watch.c (the watch over lanes that end)
 * share: the gates of one lane, as CUDA streams of this process use them.
 *
 * A stream writes and waits when it gets there, which may be long after the lane, the client and
 * the device process are gone, and nothing tells when it has.  Nor could what a driver has
 * registered be given back: that waits for all that runs on the GPU, which may itself wait for this
 * program.  So the page of the gates stays registered and mapped for good, one of each lane that
 * was so used, and there is a limit to their number.
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
	uint64_t context;           /* its number */
	struct lane_memory *memory; /* mapped once more, for the driver to register; NULL: refused */
	uint64_t gates;             /* their address on the GPU */
};

enum order_state { ORDER_WATCHED, ORDER_DEAD };

struct order {
	struct order *next;         /* watched */
	struct lane_memory *memory; /* the watch's mapping */
	int lifeline, holders;      /* the lane and the watch */
	_Atomic int state;          /* enum order_state */
	_Atomic uint64_t last;      /* the highest entry whose done word a stream may wait for */
	/* The value that a stream was told to write into the ready word of each place last; 0: none. */
	uint32_t arriving[LANE_ENTRIES];
	struct order_place places[ORDER_CONTEXTS];
	int place_count;
	/* Of the stream that the submission under way is in order with. */
	void *context;
	const struct order_place *place;
};

/* Watches over a lane whose lifeline this is, which stays the caller's.  NULL: it cannot. */
struct order *order_new(const struct lane_memory *memory, int lifeline);
/* The lane needs it no more. */
void order_drop(struct order *order);
/* The same memory at another address, where it stays when the order is gone; NULL: it cannot be
 * had, or there are too many. */
struct lane_memory *order_map_for_good(const struct order *order);
void order_unmap(struct lane_memory *memory);
/* Before a stream is told to wait for the done word of entry last: the watch will see to it. */
void order_expect(struct order *order, uint64_t last);
/* After that; whoever of the two comes later writes it, should the lane have ended meanwhile. */
void order_recheck(struct order *order, uint64_t last);
/* A stream was told to write the place's ready word, and has not come to it. */
bool order_is_arriving(const struct order *order, uint32_t place);

#endif
