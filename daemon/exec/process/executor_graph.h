/*
 * executor_graph: launches that the device makes one piece of work.
 */
#ifndef KILN_DAEMON_EXECUTOR_GRAPH_H
#define KILN_DAEMON_EXECUTOR_GRAPH_H

#include "executor.h"

struct exec_buffer;
struct exec_graph; /* as the broker described it */
struct exec_made;  /* what the device made of it for the buffers of that time */

exec_handler exec_graph_new;
/* NULL: the owner may launch no graph of that number. */
struct exec_graph *exec_graph_find(const struct exec *executor, uint64_t owner, uint64_t id);
/* Launches it; makes it first if need be.  *out is held by the caller, also when the launch fails;
 * NULL: nothing is. */
int exec_graph_start(struct exec *executor, struct exec_graph *graph,
					 const struct device_launch *how, struct exec_made **out,
					 char error[KERNEL_ERROR_MAX]);
void exec_made_release(struct exec *executor, struct exec_made *made);
/* The buffer moves or goes: graphs that name it are made anew when they are next launched. */
void exec_graphs_unmake(struct exec *executor, const struct exec_buffer *buffer);
/* Forgets the graph, at once or (until is not 0) when no parked entry below until is left. */
void exec_graph_leave(struct exec *executor, struct exec_graph *graph, uint64_t until);
/* Forgets those of an owner, or (0) all. */
void exec_graphs_drop(struct exec *executor, uint64_t owner);
/* Forgets those that leave and that no entry from parked on names; returns the least leaving of the
 * rest, 0: none leaves. */
uint64_t exec_graphs_settle(struct exec *executor, uint64_t owner, uint64_t parked);

#endif
