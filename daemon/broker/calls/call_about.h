/*
 * call_about.h: describes a call for a post-mortem.
 */
#ifndef KILN_DAEMON_CALL_ABOUT_H
#define KILN_DAEMON_CALL_ABOUT_H

#include "daemon/broker/devices/handle.h"

/* Fills in what the lane of this stream launches under this name; false: its session has ended, or
 * the call was released. */
bool call_describe(struct broker *broker, const struct device_handle *executor, uint64_t stream,
				   uint64_t name, struct handle_about *about);

#endif
