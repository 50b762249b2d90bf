/*
 * launcher: opens and closes what a launching thread owns.
 */
#include "launcher.h"
#include "executor.h"
#include "executor_flight.h"
#include "waker.h"

#include <stdlib.h>

void launcher_open(struct launcher *launcher, struct exec *executor)
{
	*launcher = (struct launcher){.executor = executor, .epoll = -1};
	exec_pace_open(launcher);
}

void launcher_close(struct launcher *launcher)
{
	map_free(&launcher->flights);
	map_free(&launcher->lines);
	map_free(&launcher->graphs);
	free(launcher->lane_table);
	waker_stop(launcher->waker);
	exec_unmap_kept(launcher);
}
