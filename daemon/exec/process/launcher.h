/*
 * launcher: what one thread that launches owns: its part of the device, the lanes, graphs and
 * flights of its sessions, and their clocks.
 */
#ifndef KILN_DAEMON_LAUNCHER_H
#define KILN_DAEMON_LAUNCHER_H

#include "daemon/base/map.h"
#include "daemon/exec/device.h"
#include "daemon/exec/trail.h"

struct exec;
struct exec_lane;
struct exec_mapping;
struct waker;

struct launcher {
	struct exec *executor;
	const struct device_ops *ops; /* the executor's */
	struct device *device;
	int epoll;          /* doorbells of its lanes, and whatever else it waits for */
	struct map flights; /* launches and copies that came by message */
	struct map graphs;
	struct map lines;      /* streams with flights that came by message */
	uint64_t lines_due_us; /* none of these is overdue before */
	struct exec_lane *lanes;
	struct exec_lane **lane_table; /* by their index; NULL: free */
	uint32_t lane_room;
	size_t lane_flights;
	uint32_t account_flights[TRAIL_ACCOUNTS]; /* of each account */
	uint64_t settled_us;                      /* when shares were written last */
	struct waker *waker;                      /* started with the first lane; NULL: there is none */
	bool waker_tried;
	/* The time when the turn began, or when its wait ended.  To ask for the time of each launch
	 * would cost as much as all else that this process does for a launch. */
	uint64_t now_us;
	uint64_t lane_active_us;   /* the last time that an entry was taken or ended */
	uint32_t spin_us;          /* to look for entries before sleeping */
	struct exec_mapping *kept; /* the last mapping: clients use the same memory again and again */
};

void launcher_open(struct launcher *launcher, struct exec *executor);
/* The launcher has nothing in flight, and no lanes. */
void launcher_close(struct launcher *launcher);

static inline size_t launcher_in_flight(const struct launcher *launcher)
{
	return launcher->flights.count + launcher->lane_flights;
}

#endif
