/*
 * executor_graph: launches that the device makes one piece of work.
 */
#ifndef KILN_DAEMON_EXECUTOR_GRAPH_H
#define KILN_DAEMON_EXECUTOR_GRAPH_H

#include "executor.h"

struct exec_buffer;
struct exec_graph; /* the graph that the broker described */
struct exec_made;  /* the device's graph for the buffers of one time */

exec_handler exec_graph_new;
/* NULL: the owner may launch no graph of that number. */
struct exec_graph *exec_graph_find(const struct launcher *launcher, uint64_t owner, uint64_t id);
/* Launches the graph, and makes it first if need be.  The caller holds *out, also when the launch
 * fails, until exec_made_release(); if nothing was made, *out is as before. */
int exec_graph_start(struct launcher *launcher, struct exec_graph *graph,
					 const struct device_launch *how, struct exec_made **out,
					 char error[KERNEL_ERROR_MAX]);
void exec_made_release(struct launcher *launcher, struct exec_made *made);
/* The buffer moves or goes: graphs that name it let it go, and are made anew at their next launch.
 */
void exec_graphs_unmake(struct exec *executor, const struct exec_buffer *buffer);
/* Forgets the graph: at once, or, unless until is 0, when no parked entry below until is left. */
void exec_graph_leave(struct launcher *launcher, struct exec_graph *graph, uint64_t until);
/* Forgets the graphs of an owner (0: all graphs). */
void exec_graphs_drop(struct launcher *launcher, uint64_t owner);
/* Forgets the owner's graphs that leave and that no parked entry names any more: parked is the
 * first entry that is parked.  Returns the least `leaving` of the rest; 0: none leaves. */
uint64_t exec_graphs_settle(struct launcher *launcher, uint64_t owner, uint64_t parked);

#endif
