/*
 * opening.h: the errand of connecting to a daemon, and to the GPU that a tensor is on.
 */
#ifndef KILN_PYTHON_OPENING_H
#define KILN_PYTHON_OPENING_H

#include "connection.h"
#include "errand.h"

struct opening {
	struct errand errand;
	struct settings settings;
	int device;
	bool demanded;
	kiln_client *client; /* the result, which the caller may take */
};

/* demanded: the device is chosen by that of tensors, VIEW_HOST or a number.  NULL with an
 * exception. */
struct opening *opening_new(const struct settings *settings, int device, bool demanded);

/* Frees the texts, and makes it empty. */
void settings_free(struct settings *settings);
void settings_copy(const struct settings *from, struct settings *to);

#endif
