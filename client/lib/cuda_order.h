/*
 * cuda_order.h: order between the lane and a CUDA stream of the caller's.
 */
#ifndef KILN_CLIENT_CUDA_ORDER_H
#define KILN_CLIENT_CUDA_ORDER_H

#include "lane.h"

/* KILN_OK: calls may be submitted in order with this stream.  Before the others. */
int order_check(void *cuda_stream);
/* Whether the gates of these entries, which are not yet written, can be used by this stream. */
bool order_open(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last);
/* When they are written: the stream opens the gate of first when it gets there, and goes on when
 * last has ended.  KILN_OK; LANE_HOST; or a status with a message, and the gate stays shut. */
int order_follow(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last);
/* Waits on the host for all that the stream has. */
int order_host(void *cuda_stream);

#endif
