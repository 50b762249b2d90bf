/*
 * executor_flight: launches and copies that the device has, and how long it may take over them.
 * launcher->flights owns those that came by message; one of a lane is part of its slot.
 */
#ifndef KILN_DAEMON_EXECUTOR_FLIGHT_H
#define KILN_DAEMON_EXECUTOR_FLIGHT_H

#include "executor.h"

struct exec_graph;
struct exec_place;
struct exec_template;

/* Work that the device has.  It holds its module, buffers, mapping and graph until
 * exec_let_go(). */
struct exec_flight {
	uint64_t id;      /* of the request, and the device's ticket */
	uint64_t stream;  /* of the device */
	uint64_t trail;   /* the call's number in the trail */
	uint32_t account; /* whose work it is */
	struct exec_module *module;
	struct exec_buffer *buffers[KERNEL_MAX_OPERANDS];
	int buffer_count;
	struct exec_mapping *mapping;
	uint32_t epoch;         /* that of exec_quiet when it began */
	struct exec_made *made; /* NULL: the flight is no graph */
	uint64_t owner; /* the lane that it came through, by its stream; 0: none, but a message */
	_Atomic uint32_t *done_word; /* the device writes done_value there at the end; NULL: nowhere */
	uint32_t done_value;
	bool done_last, untimed; /* as in device_launch */
#ifdef KILN_TEST_HOOKS
	uint32_t delay_ms; /* a test has it wait so long on the device first */
#endif
	/* A flight that came by message has its stream's line, its neighbours there, and a deadline:
	 * the time in which something must end on that stream. */
	struct exec_line *line;
	struct exec_flight *before, *behind;
	uint64_t deadline_us; /* 0: for ever */
};

/* ---- executor_launch.c ---- */
/* KILN_OK: the device has the work, and its end answers the request. */
exec_handler exec_launch, exec_copy, exec_launch_graph;
/* Answers for work that came by message and has ended, and frees its flight. */
void exec_finish(struct launcher *launcher, const struct device_done *done);
/* Both give a launch to the device.  The flight holds what the launch uses also when this fails. */
int exec_start_launch(struct launcher *launcher, struct exec_flight *flight,
					  const struct exec_template *what, const struct exec_place *places,
					  char error[KERNEL_ERROR_MAX]);
int exec_start_graph(struct launcher *launcher, struct exec_flight *flight,
					 struct exec_graph *graph, char error[KERNEL_ERROR_MAX]);
/* Releases what the flight holds; the flight stays its owner's. */
void exec_let_go(struct launcher *launcher, struct exec_flight *flight);

/* ---- executor_pace.c ---- */
void exec_pace_open(struct launcher *launcher);
/* The device has the flight: its deadline counts from now on, and ends with exec_pace_leave(). */
void exec_pace_enter(struct launcher *launcher, struct exec_flight *flight, uint64_t deadline_us);
void exec_pace_leave(struct launcher *launcher, struct exec_flight *flight);
/* A launch of a lane has ended on this stream, so the clock of its messages starts again. */
void exec_pace_ended(struct launcher *launcher, uint64_t stream);
/* Returns the time from which a launch's deadline counts: its begin, or the last end on its stream
 * (progress_us) if that came later; now, if the device says that the launch has not begun. */
uint64_t exec_pace_since(const struct launcher *launcher, uint64_t ticket, uint64_t progress_us);
/* True if a flight is overdue: *culprit says which, for the last words. */
bool exec_pace_overrun(struct launcher *launcher, struct device_done *culprit);
/* Returns for how many ms the device may be waited for: patience at most (-1: without limit). */
int exec_pace_patience(const struct launcher *launcher, int patience);
/* Writes why the process ends a call that is overdue. */
void exec_pace_sentence(const struct launcher *launcher, uint64_t deadline_us,
						char error[KERNEL_ERROR_MAX]);

#endif
