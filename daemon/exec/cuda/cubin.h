/*
 * cubin: reads the parameters of a kernel from its object, without a driver or a GPU.
 */
#ifndef KILN_DAEMON_CUBIN_H
#define KILN_DAEMON_CUBIN_H

#include "daemon/exec/device.h"

/* Fills in the parameters of the entry.  False, with *out unchanged, if the object does not say
 * them in a way that is known here. */
bool cubin_params(const void *object, size_t bytes, const char *entry, struct device_kernel *out);

#endif
