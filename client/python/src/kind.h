/*
 * kind.h: what the extension knows of a type of tensor.  kiln/_kinds.py describes a type once, when
 * a tensor of it is first seen; a library is supported, or extended, there and not here.
 */
#ifndef KILN_PYTHON_KIND_H
#define KILN_PYTHON_KIND_H

#include "dlpack_abi.h"
#include "extension.h"

enum kind_read {
	KIND_EXCHANGE,   /* by the type's C exchange table */
	KIND_ATTRIBUTES, /* data_ptr(), shape, stride(), dtype, device, as torch has them */
	KIND_ARRAY,      /* __array_interface__, as NumPy has it */
	KIND_DLPACK,     /* a capsule of __dlpack__() */
};

enum kind_redirect {
	REDIRECT_NEVER,
	REDIRECT_GRAD, /* when an input has requires_grad */
	REDIRECT_ALWAYS,
};

struct kind {
	PyObject *type;
	enum kind_read read;
	enum kind_redirect when;
	bool has_new_empty; /* like.new_empty(shape) makes an output of like's dtype */
	const struct pack_exchange *exchange;
	PyObject *empty_like; /* empty_like(like): an output of like's shape and dtype, which is
							 contiguous where like is; NULL: there is none */
	PyObject *pattern; /* pattern(like, shape, dtype name): a tensor that empty_like() makes such an
						  output of, or None; NULL: there is none */
	PyObject *empty;   /* empty(like, shape, dtype name): an output */
	PyObject *stream;  /* stream(device number): an address as an int; NULL: the default stream */
	PyObject *written; /* written(tensor): a call has written a tensor that was there before;
						   NULL: the library need not know */
	PyObject *redirect; /* redirect(operator name, args, named): a result; or a
						   dictionary of function(*args, **named) by the operators' names */
	PyObject
		*dispatch; /* the same, for tensors that have no memory to read; NULL: there are none */
	PyObject
		*asks; /* a tuple of functions: one says that the library watches calls now, so that all
					   go to dispatch */
	PyObject *level;   /* (object, name of its attribute): the same while that is not below 0 */
	PyObject *records; /* records(): are calls recorded now? NULL: always */
	PyObject *packed;  /* packed(tensor): its elements side by side; NULL: there is none */
	PyObject *negated,
		*conjugated;     /* of a tensor: is its memory to be read so? then the call goes to
									  dispatch; NULL: never */
	PyObject *asks_half; /* the same, for a first tensor of f16 or bf16 */
};

/* Returns the kind of an object's type, or NULL with an exception.  It lives until
 * module_forget_kinds(); a call that began before keeps using memory that is not given back. */
const struct kind *kind_of(PyObject *object);
/* Returns the stream on which the library works now; RAISED or 0. */
int kind_stream(const struct kind *kind, int device, void **out);
/* Tells the library that a call has written a tensor which was there before; RAISED or 0. */
int kind_tell_written(const struct kind *kind, PyObject *tensor);
/* An output shares this with the tensor like which it is made. */
enum likeness { LIKE_NOT, LIKE_DTYPE, LIKE_WHOLE /* shape and dtype, contiguous */ };
/* Makes what outputs are made like by kind_like(), or NULL, without an exception where there is no
 * such thing. */
PyObject *kind_pattern(const struct kind *kind, PyObject *like, PyObject *shape, kiln_dtype dtype);
PyObject *kind_like(const struct kind *kind, PyObject *like);
/* Makes an output; shape is a tuple. */
PyObject *kind_empty(const struct kind *kind, PyObject *like, enum likeness likeness,
					 PyObject *shape, kiln_dtype dtype);

#endif
