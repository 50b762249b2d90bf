/*
 * raw.h: one launch of a kernel that the program brought along: raw_launch.c reads its arguments
 * and runs it, raw.c has the kernel.
 */
#ifndef KILN_PYTHON_RAW_H
#define KILN_PYTHON_RAW_H

#include "connection.h"
#include "view.h"

struct raw_launch {
	int device;              /* of the tensors; VIEW_HOST without any */
	const struct kind *kind; /* of the first tensor */
	kiln_launch launch;
	kiln_raw_arg args[KILN_MAX_RAW_ARGS];
	union {
		uint64_t address;
		double real[2];
		int64_t whole;
		uint8_t truth;
	} values[KILN_MAX_RAW_ARGS];
	PyObject *held[KILN_MAX_RAW_ARGS]; /* bytes of a value, of other types */
	int tensors[KILN_MAX_RAW_ARGS];    /* which arguments are tensors, in order */
	struct view views[KILN_MAX_RAW_ARGS];
	int tensor_count;
};

/* Tuples: of (name, text), and of texts or paths' bytes. */
struct raw_lists {
	PyObject *headers, *macros;
	PyObject *options, *folders, *toolkits;
};

/* Copies of the texts of a kernel.  Held and dropped without the GIL, too. */
struct raw_texts;
/* Makes texts of the tuple (name, source, entry) and the lists; NULL: an exception. */
struct raw_texts *raw_texts_make(PyObject *main, const struct raw_lists *lists);
struct raw_texts *raw_texts_hold(struct raw_texts *texts);
void raw_texts_unref(struct raw_texts *texts);
const kiln_raw *raw_texts_read(const struct raw_texts *texts);

void raw_launch_begin(struct raw_launch *launch);
/* grid, block: one to three integers; arguments: a tuple; shared_mem: bytes, or NULL.  0 or RAISED.
 */
int raw_launch_fill(struct raw_launch *launch, PyObject *grid, PyObject *block, PyObject *arguments,
					PyObject *shared_mem);
void raw_launch_end(struct raw_launch *launch);
/* Tells the tensors' library what the kernel has written.  written: a byte for each parameter, not
 * 0 where the kernel may write what it points to; of another length: all may be.  0 or RAISED. */
int raw_launch_tell(const struct raw_launch *launch, PyObject *arguments, PyObject *written);
/* Whether the library of a tensor is to be told. */
bool raw_launch_tells(const struct raw_launch *launch);

/* As in run.h. */
int raw_run_local(struct raw_launch *launch, struct connection *connection,
				  struct prepared *prepared, bool last);
int raw_run_copied(struct raw_launch *launch, struct connection *connection,
				   struct prepared *prepared, bool last);

#endif
