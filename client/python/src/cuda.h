/*
 * cuda.h: the little that the extension asks of the CUDA driver itself: which GPU a number means,
 * and that its context is current.  Without a driver nothing here does anything.
 */
#ifndef KILN_PYTHON_CUDA_H
#define KILN_PYTHON_CUDA_H

#include <stdbool.h>

/* Writes the UUID of a device of this process as 32 hexadecimal digits; false: not known. */
bool cuda_uuid(int device, char out[33]);
/* Makes the primary context of a device current unless one of the device is; true: cuda_leave() is
 * to follow. */
bool cuda_enter(int device);
void cuda_leave(void);

#endif
