/*
 * cuda_order.h: keeps the order between the lane and a CUDA stream of the program's.
 */
#ifndef KILN_CLIENT_CUDA_ORDER_H
#define KILN_CLIENT_CUDA_ORDER_H

#include "lane.h"

/* KILN_OK: calls may be submitted in order with this stream.  Comes before the functions below. */
int order_check(void *cuda_stream);
/* Before the entries are written: whether this stream can use their gates. */
bool order_open(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last);
/* When the entries are written: tells the stream to open the gate of `first` when it gets there,
 * and to go on when `last` has ended.  KILN_OK; LANE_HOST; or a status with a message, and the
 * gate stays shut. */
int order_follow(struct kiln_client *client, void *cuda_stream, uint64_t first, uint64_t last);
/* Waits on the host for everything that the stream has. */
int order_host(void *cuda_stream);

#endif
