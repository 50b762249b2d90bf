/*
 * problem.h: an operator, its tensors and its attributes as members of a message.
 */
#ifndef KILN_CLIENT_PROBLEM_H
#define KILN_CLIENT_PROBLEM_H

#include "link.h"

/* Adds "op", "tensors" and "attrs"; EINVAL with a message for values that cannot be encoded. */
int problem_put(struct kiln_client *client, struct wire_out *out, const char *op,
				const kiln_tensor *tensors, int tensor_count, const kiln_attr *attrs,
				int attr_count);
/* Adds attributes as members of the map that is open. */
int problem_put_attrs(struct wire_out *out, const kiln_attr *attrs, int count);

#endif
