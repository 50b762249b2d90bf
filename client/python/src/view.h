/*
 * view.h: one tensor as a call sees it: an address, a place and a layout.
 */
#ifndef KILN_PYTHON_VIEW_H
#define KILN_PYTHON_VIEW_H

#include "kind.h"

#define VIEW_HOST (-1)

struct view {
	char *data;
	int device; /* VIEW_HOST, or the number of a CUDA device in this process */
	bool read_only;
	kiln_dtype dtype;
	int rank;
	int64_t shape[KILN_MAX_RANK];
	int64_t stride[KILN_MAX_RANK]; /* in elements; may be negative */
	PyObject *owner;               /* keeps the memory while the view is used, or NULL */
};

/* Reads a tensor of a kind; name is what messages call it.  0 or RAISED.  The view needs the object
 * to live, and view_end() afterwards. */
int view_read(const struct kind *kind, PyObject *object, const char *name, struct view *out);
void view_end(struct view *view);

int64_t view_count(const struct view *view); /* elements */
bool view_contiguous(const struct view *view);
/* Bytes from the first element to behind the last; 0 without elements.  Strides must be >= 0. */
uint64_t view_span(const struct view *view);
void view_set_contiguous(struct view *view);

#endif
