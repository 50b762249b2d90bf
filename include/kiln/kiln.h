/*
 * kiln.h: the whole public interface of libkiln.
 *
 * Kiln runs CUDA C++ kernels for many processes of one host.  A daemon, kilnd, specializes kernel
 * templates for the shapes it is asked for, keeps the compiled objects, and launches them; a
 * program links this library, connects, and names buffers and operators.  Nothing here needs CUDA:
 * the library loads the driver by itself, and only when memory allocated by CUDA is lent, or a call
 * is launched in the program's own context.
 *
 * Conventions, once for all functions
 *
 * Results     int: KILN_OK (0), or a negative enum kiln_status.  kiln_errmsg() then holds one
 *             sentence that names the thing, the value and the rule or the remedy.  Outputs are
 *             written on success only.
 *
 * Ownership   Whoever receives an object through a "**out" parameter frees it with the function
 *             named beside its type; closing a client frees all that was made from it on the
 *             daemon's side, and leaves the handles valid for freeing only.  Free functions take
 *             NULL.
 *
 * Strings     Read-only, UTF-8, zero-terminated.  Returned strings live as long as their object.
 *
 * Time        Milliseconds.  0 means "do not wait", KILN_FOREVER "the client's default deadline
 *             does not apply".  Every function that waits has a deadline: the client's timeout_ms,
 *             unless it takes one.
 *
 * Threads     A client, and all objects made from it, may be used by one thread at a time.  A
 *             second thread that enters meanwhile gets KILN_EBUSY and disturbs nothing.  Different
 *             clients are independent.  kiln_errmsg() is per thread.
 *
 * fork        A client belongs to the process that connected it.  Used in a child of fork() every
 *             call answers KILN_EFORK; the child connects for itself, and may free what it
 *             inherited.
 *
 * Signals     No handlers are installed, SIGPIPE is never raised, and no call ends the process.
 *
 * CUDA        The caller's current context, device and last error are left as they were.  The
 *             driver is $KILN_LIBCUDA, else libcuda.so.1.
 *
 * Versions    A program works with every later libkiln.so.0: functions, structures and values are
 *             only added, and a structure that may grow begins with its size.  Where it is larger
 *             than the library knows, what stands there must be zero, else EVERSION.  A status that
 *             is not in the list below comes from a newer daemon: any below 0 is a failure.
 *             Library and daemon may be of different releases as long as they speak one version of
 *             the protocol; else kiln_connect() answers EVERSION and says which of the two to
 *             replace.  docs/compatibility.md has the rules in full.
 *
 * A daemon that goes away ends all that is in flight in KILN_ECONN, and every later call of that
 * client too: close it and connect again.
 */
#ifndef KILN_KILN_H
#define KILN_KILN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KILN_VERSION_MAJOR 0
#define KILN_VERSION_MINOR 1
#define KILN_VERSION_PATCH 0
#define KILN_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define KILN_API __attribute__((visibility("default")))
#else
#define KILN_API
#endif

/* Name, value and meaning of every status; enum, name and text are all made from this list. */
#define KILN_STATUS_LIST(X)                                                     \
	X(EINVAL, -1, "the request is wrong")                                       \
	X(ENOMEM, -2, "out of memory")                                              \
	X(ELIMIT, -3, "a limit of the daemon was reached")                          \
	X(ETIMEDOUT, -4, "the deadline passed")                                     \
	X(ECANCELED, -5, "canceled")                                                \
	X(EDEVICE, -6, "the device failed while the call was in flight")            \
	X(ELOST, -7, "the contents of a buffer were lost with its device process")  \
	X(ECOMPILE, -8, "the kernel did not compile")                               \
	X(ENOTSUP, -9, "not available here")                                        \
	X(ENOENT, -10, "no such object")                                            \
	X(EPERM, -11, "not allowed")                                                \
	X(EPROTO, -12, "the peer broke the protocol")                               \
	X(ECONN, -13, "no connection to the daemon")                                \
	X(EIO, -14, "input or output failed")                                       \
	X(EVERSION, -15, "the daemon and the library do not understand each other") \
	X(EINTERNAL, -16, "a defect in Kiln")                                       \
	X(EINDEX, -17, "an index was out of range")                                 \
	X(EBUSY, -18, "in use")                                                     \
	X(EAGAIN, -19, "not ready yet")                                             \
	X(EFORK, -20, "the client belongs to another process")                      \
	X(EFROZEN, -21, "not compiled yet, and nothing may be compiled for it now")

enum kiln_status {
	KILN_OK = 0,
#define KILN_STATUS_ENUM(name, value, text) KILN_##name = value,
	KILN_STATUS_LIST(KILN_STATUS_ENUM)
#undef KILN_STATUS_ENUM
};

/*
 * Element types: name, value, bytes.  The values are part of the protocol and never change.
 *
 * f8e4m3 has no infinities: NaN is 0x7f and 0xff, and 448 is the largest number (float8_e4m3fn of
 * torch).  f8e5m2 has infinities, and 57344 is its largest number.
 */
#define KILN_DTYPE_LIST(X)   \
	X(F16, f16, 1, 2)        \
	X(BF16, bf16, 2, 2)      \
	X(F32, f32, 3, 4)        \
	X(F64, f64, 4, 8)        \
	X(I8, i8, 5, 1)          \
	X(U8, u8, 6, 1)          \
	X(I16, i16, 7, 2)        \
	X(U16, u16, 8, 2)        \
	X(I32, i32, 9, 4)        \
	X(U32, u32, 10, 4)       \
	X(I64, i64, 11, 8)       \
	X(U64, u64, 12, 8)       \
	X(BOOL, bool, 13, 1)     \
	X(C64, c64, 14, 8)       \
	X(C128, c128, 15, 16)    \
	X(F8E4M3, f8e4m3, 16, 1) \
	X(F8E5M2, f8e5m2, 17, 1)

typedef enum kiln_dtype {
	KILN_DTYPE_NONE = 0,
#define KILN_DTYPE_ENUM(NAME, name, value, bytes) KILN_##NAME = value,
	KILN_DTYPE_LIST(KILN_DTYPE_ENUM)
#undef KILN_DTYPE_ENUM
} kiln_dtype;

#define KILN_MAX_RANK 8
#define KILN_MAX_OPERANDS 16 /* tensors of one call */
#define KILN_MAX_ATTRS 16    /* attributes of one call or request */
#define KILN_STREAMS 16      /* of a client */
#define KILN_MAX_BATCH 128   /* calls of one kiln_submit_many() */
#define KILN_MAX_GRAPH 1024  /* calls of one kiln_prepare_graph() */
#define KILN_FOREVER (-1)

typedef struct kiln_client kiln_client; /* a connection; freed by kiln_close */
typedef struct kiln_buffer kiln_buffer; /* memory a call can use; freed by kiln_free */
typedef struct kiln_call kiln_call;     /* a prepared call; freed by kiln_call_free */
typedef struct kiln_reply kiln_reply;   /* a structured answer; freed by kiln_reply_free */
typedef uint64_t kiln_ticket;           /* a submitted call; 0 is never a ticket; nothing to free */

/*
 * A tensor: a view of a buffer.  shape and stride count elements, offset counts bytes from the
 * start of the buffer.  strides are >= 0; 0 repeats the element (inputs only).  rank 0 is one
 * element. When contiguous != 0 the strides are ignored and row-major ones are used.
 *
 * A tensor of dtype KILN_DTYPE_NONE is an operand that is left out, which an operator allows for
 * those that `kiln ops` marks with '?'.  Its buffer must be NULL, and nothing else of it is looked
 * at, so a zeroed structure is one.  Tensors may also end early: what is not given is left out.
 */
typedef struct kiln_tensor {
	kiln_buffer *buffer; /* NULL only where no memory is touched: prepare, explain, compile */
	uint64_t offset;
	kiln_dtype dtype;
	int rank;
	int contiguous;
	int64_t shape[KILN_MAX_RANK];
	int64_t stride[KILN_MAX_RANK];
} kiln_tensor;

/* A named attribute of an operator or a request: exactly one of the value kinds. */
typedef enum kiln_attr_kind {
	KILN_ATTR_INT,
	KILN_ATTR_REAL,
	KILN_ATTR_INTS,
	KILN_ATTR_STRING
} kiln_attr_kind;

typedef struct kiln_attr {
	const char *name;
	kiln_attr_kind kind;
	int64_t i;           /* KILN_ATTR_INT */
	double f;            /* KILN_ATTR_REAL */
	const int64_t *ints; /* KILN_ATTR_INTS, count of them */
	int count;
	const char *s; /* KILN_ATTR_STRING */
} kiln_attr;

/* ---- Text ---------------------------------------------------------------------------------- */

/* "KILN_EINVAL", "KILN_OK", or "unknown status". */
KILN_API const char *kiln_status_name(int status);
/* The general meaning of a status, in a few words. */
KILN_API const char *kiln_status_text(int status);
/* The sentence of the last failure of this thread; "" if there was none.  Valid until the next
 * failure of this thread.
 */
KILN_API const char *kiln_errmsg(void);
/* The compiler's whole log, when the last failure of this thread was one of compiling; else "".
 * Valid as long as kiln_errmsg().
 */
KILN_API const char *kiln_errlog(void);
/* "f32" for KILN_F32; NULL for a value that is no element type. */
KILN_API const char *kiln_dtype_name(kiln_dtype dtype);
/* KILN_F32 for "f32"; KILN_DTYPE_NONE for a name that is no element type. */
KILN_API kiln_dtype kiln_dtype_parse(const char *name);
/* Bytes of one element; 0 for a value that is no element type. */
KILN_API size_t kiln_dtype_size(kiln_dtype dtype);
/* "0.1.0" */
KILN_API const char *kiln_version(void);

/* ---- Connection ---------------------------------------------------------------------------- */

/* Starts a kilnd if none answers.  Its log is kilnd.log beside the socket, and it ends after 600 s
 * without a session. */
#define KILN_CONNECT_AUTOSTART 1u
/* The client's compiles are not urgent: they come after those of other clients. */
#define KILN_CONNECT_BACKGROUND 2u

typedef struct kiln_connect_options {
	size_t size;        /* sizeof(kiln_connect_options): lets the structure grow */
	const char *socket; /* NULL: $KILN_SOCKET, else $XDG_RUNTIME_DIR/kiln/kiln.sock, else
						   /tmp/kiln-UID/kiln.sock */
	const char *device; /* NULL: $KILN_DEVICE, else the daemon's default: "cuda:0" where there is a
						   GPU, else "cpu" */
	const char *daemon; /* NULL: $KILN_DAEMON, else kilnd beside the library or in PATH; used by
						   autostart only */
	int timeout_ms; /* 0: 30000.  The deadline of every call that waits and takes none of its own */
	unsigned flags; /* KILN_CONNECT_* */
	/*
	 * Decides what a call does whose kernel has not been compiled yet.  NULL:
	 * $KILN_CLIENT_ON_MISS, else "compile".  "warn": the same, and a line in the daemon's log.
	 * "error": EFROZEN at once, and never a compile; the sentence has the command that makes the
	 * kernel (if it is very long, kiln_errlog() has it).  "fallback": the operator's generic kernel
	 * if that is there, else EFROZEN; never a compile either.  The daemon may be stricter
	 * (--on-miss), and is never less so.  kiln_compile() by the daemon's owner always compiles.
	 */
	const char *on_miss;
} kiln_connect_options;

/* Connects.  options may be NULL.  ECONN when nobody answers, with the path and what to start. */
KILN_API int kiln_connect(const kiln_connect_options *options, kiln_client **out);
/* Ends the connection.  In-flight calls are canceled or finish unseen.  Does not wait for them.
 * While another thread is inside a call of this client, the end comes when that call returns. */
KILN_API void kiln_close(kiln_client *client);
/* The device this client's buffers and calls use: "cpu", "cuda:0". */
KILN_API const char *kiln_device(const kiln_client *client);

/* ---- Buffers ------------------------------------------------------------------------------- */

/* On the cpu device: host memory that both sides map, and that survives the device process. */
#define KILN_BUFFER_SHARED 1u

/*
 * Makes memory that the daemon holds.  bytes >= 0; contents are zero.  Messages call the buffer by
 * name, which may be NULL.  Without KILN_BUFFER_SHARED the contents end with the device process:
 * after a device fault, calls that use the buffer answer KILN_ELOST and name it, until kiln_write
 * has covered all of it again.  (A buffer that a kernel of one's own has used, see
 * kiln_prepare_raw(), may outlive the device process.)
 */
KILN_API int kiln_alloc(kiln_client *client, uint64_t bytes, unsigned flags, const char *name,
						kiln_buffer **out);
/*
 * Lends memory that CUDA allocated in this process.  pointer may lie inside an allocation.  The
 * memory stays the caller's: it must not be freed before kiln_free has returned.  Works for
 * cuMemAlloc and cudaMalloc memory (IPC handle), for cuMemCreate memory and for memory of a pool
 * (cuMemAllocFromPoolAsync) that were made with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; not for
 * the pool that cudaMallocAsync uses by default.  ENOTSUP says why memory cannot be lent and what
 * to use instead.
 * EINVAL for memory of another GPU than the client's device.  If that device is lost and comes back
 * as another GPU, calls that use the buffer answer ELOST: it is to be freed, and memory of the new
 * one lent.
 * The daemon's calls and the caller's own streams are not ordered against each other, but with
 * KILN_SUBMIT_CUDA: what the caller has queued on the memory, an asynchronous allocation included,
 * must be complete (cuStreamSynchronize) before kiln_submit, kiln_write and kiln_read.
 */
KILN_API int kiln_lend_cuda(kiln_client *client, uint64_t pointer, uint64_t bytes, const char *name,
							kiln_buffer **out);
/*
 * Lends memory by descriptor: on the cpu device a memfd sealed against shrinking and without huge
 * pages, on a cuda device the POSIX descriptor of an exported CUDA allocation.  offset and bytes
 * select the part.  The descriptor is duplicated; the caller keeps its own.
 */
KILN_API int kiln_lend_fd(kiln_client *client, int fd, uint64_t offset, uint64_t bytes,
						  const char *name, kiln_buffer **out);
/* Copies host memory into a buffer, after the calls submitted before; returns when done. */
KILN_API int kiln_write(kiln_buffer *buffer, uint64_t offset, const void *source, uint64_t bytes);
/* Copies a buffer to host memory, after the calls submitted before; returns when done. */
KILN_API int kiln_read(kiln_buffer *buffer, uint64_t offset, void *destination, uint64_t bytes);
/*
 * Copies from one buffer to another, after the calls submitted before on both their connections;
 * returns when done.  They may be of two connections of this process, of any two devices: between
 * GPUs that reach each other's memory the bytes go straight from one to the other, where both
 * buffers are large and `from` is of kiln_alloc(), else through host memory.  Both connections are
 * in use meanwhile.  Two parts of one buffer must not overlap.
 */
KILN_API int kiln_copy(kiln_buffer *to, uint64_t to_offset, kiln_buffer *from, uint64_t from_offset,
					   uint64_t bytes);
/* The address of a KILN_BUFFER_SHARED buffer in this process; ENOTSUP for other buffers. Valid
 * until kiln_free. */
KILN_API int kiln_map(kiln_buffer *buffer, void **out);
KILN_API uint64_t kiln_buffer_bytes(const kiln_buffer *buffer);
/* Releases a buffer: waits until no call uses it.  The handle is gone whatever the result, except
 * KILN_EBUSY. */
KILN_API int kiln_free(kiln_buffer *buffer);

/* ---- Calls --------------------------------------------------------------------------------- */

/*
 * Plans and compiles one operator for these tensors, and waits until it is ready.  The tensors'
 * order is the operator's: inputs first, then outputs.  buffers may be NULL.  An operand that is
 * left out here is left out of the kernel, and so in every kiln_submit; EINVAL names a required
 * operand that is left out, and nothing is compiled.  ECOMPILE carries the compiler's first line,
 * kiln_errlog() all of it.  A failure is remembered, and later calls get it at once in the same
 * words, until source, options or compiler change; `kiln cache retry` forgets it.
 */
KILN_API int kiln_prepare(kiln_client *client, const char *op, const kiln_tensor *tensors,
						  int tensor_count, const kiln_attr *attrs, int attr_count,
						  kiln_call **out);
/* Returns the planner's choice as kiln_explain prints it: variant, instantiation, grid, ... */
KILN_API const char *kiln_call_plan(const kiln_call *call);
/* Returns where the kernel came from: "hit" (the cache), "remote" (another host: kilnd --remote),
 * "shared" (a compile for another client), "compiled", "generic" (a generic kernel serves until an
 * exact one is worth a compile: kilnd --specialize), "copy" (the call needs no kernel), or "graph"
 * (kiln_prepare_graph() made the call). */
KILN_API const char *kiln_call_origin(const kiln_call *call);
KILN_API void kiln_call_free(kiln_call *call);

/* Where one operand of a prepared call lies this time; {NULL, 0} for one that is left out. */
typedef struct kiln_operand {
	kiln_buffer *buffer;
	uint64_t offset;
} kiln_operand;

/*
 * Submits a prepared call on operands and returns at once.  There is one for each tensor that
 * kiln_prepare was given, in order, with a buffer for those that are there and none for those left
 * out.  Calls of a client run in the order of their submission, unless kiln_submit_with() says
 * otherwise.  after (0: none) is a ticket of this client: if that call or batch did not succeed,
 * this one is not run and ends in ECANCELED.
 */
KILN_API int kiln_submit(kiln_call *call, const kiln_operand *operands, int operand_count,
						 kiln_ticket after, kiln_ticket *out);

/* For kiln_submit_with(): more than kiln_submit() can say.  All zero but size: the same as that. */
typedef struct kiln_submit_options {
	size_t size;       /* sizeof(kiln_submit_options): lets the structure grow */
	unsigned stream;   /* 0 to KILN_STREAMS - 1 */
	unsigned flags;    /* KILN_SUBMIT_* */
	kiln_ticket after; /* as in kiln_submit(); may have gone to another stream */
	void *cuda_stream; /* with KILN_SUBMIT_CUDA: a CUstream of the caller's, NULL its default one */
} kiln_submit_options;

/*
 * The call begins after the work that the caller has queued on cuda_stream so far, and work that
 * the caller queues there later begins after the call.  The GPU waits by memory operations; the
 * host does not wait.  But where cuda_stream is idle and has CU_STREAM_NON_BLOCKING, the call
 * begins at once, and the host looks for 12 us whether it ends: the GPU would take as long to see
 * that.
 * The context of cuda_stream need not be current, unless cuda_stream is NULL; the current context
 * stays as it is.  EINVAL for a stream that is being captured into a graph.
 *
 * If the call does not succeed, cuda_stream goes on all the same: work behind the call then finds
 * in the outputs what they held before, and kiln_wait() returns the failure.  The stream also goes
 * on if the daemon or its device process ends: a thread of the library, which the first such call
 * starts, sees to that.
 *
 * A program needs kiln_wait() only to learn of failures.  kiln_cancel() and kiln_close() let
 * cuda_stream pass; kiln_read(), kiln_write() and kiln_free() wait on the host until cuda_stream
 * has reached the call.
 *
 * The first launch of a call waits on the host instead, for cuda_stream and for the call.  So does
 * every launch where launches cannot go without messages (KILN_LANE=off, a driver without memory
 * operations on streams), and where the process has used this flag with more than 256 connections
 * or device processes: for each of them the driver keeps one page registered for good.
 */
#define KILN_SUBMIT_CUDA 1u

/*
 * Submits a prepared call on one of the client's streams; options may be NULL.  Calls on one stream
 * run in the order of their submission; those on different streams may overlap.  kiln_submit(),
 * kiln_run() and kernels of one's own use stream 0.  A stream needs no opening.  kiln_write(),
 * kiln_read() and kiln_free() come after all that was submitted before, on whichever stream, and
 * wait for it.
 *
 * A call with after waits on its stream until the call or batch that it names has ended, on
 * whichever stream that is.  A call's first launch waits on the host for all such calls before it,
 * on every stream.
 */
KILN_API int kiln_submit_with(kiln_call *call, const kiln_operand *operands, int operand_count,
							  const kiln_submit_options *options, kiln_ticket *out);

/* One call of a batch: what kiln_submit() takes. */
typedef struct kiln_work {
	kiln_call *call;
	const kiln_operand *operands;
	int operand_count;
} kiln_work;

/*
 * Submits up to KILN_MAX_BATCH calls of one client together, one after another on one stream, with
 * one ticket for all: it ends when all have ended.  Each is run only if the one before it
 * succeeded; the first that did not gives the ticket its status, and its sentence says which it is:
 * "call 2 of 3: ...".  options may be NULL.  With a status other than OK none was submitted.
 *
 * kiln_wait_time() gives the sum of what the calls took; kiln_cancel() cancels those that have not
 * started.  works and operands are the caller's again at once.
 */
KILN_API int kiln_submit_many(const kiln_work *works, int count, const kiln_submit_options *options,
							  kiln_ticket *out);

/*
 * Makes 1 to KILN_MAX_GRAPH calls, each with its operands, one call that launches them one after
 * another: on a GPU a CUDA graph, recorded once and started by one launch however many there are.
 * *out is submitted like any other, with no operands (NULL, 0): on a stream, in a batch, after a
 * ticket.  It has one ticket and one end; on device cpu a launch that fails ends the rest, and its
 * sentence says which it was.  It runs once at a time, also when several streams have it.
 *
 * The calls may be freed, but not the buffers: once one is, a launch answers ENOENT and names the
 * call and the operand.  A device process that comes after one that failed is given the graph anew
 * with its next launch.  Scratch memory that the calls need is the graph's own as long as it lives.
 *
 * ENOTSUP: a kernel of one's own, another graph, or a call that counts indices that are out of
 * range (gather and others with bounds=check).  Sentences about what is refused say which call it
 * is.
 */
KILN_API int kiln_prepare_graph(kiln_client *client, const kiln_work *works, int count,
								kiln_call **out);

/*
 * Prepares, submits and waits in one.  The client keeps the prepared call.  When it is asked for
 * the same operator again, with the same attributes in the same order, on tensors of the same
 * dtypes, shapes, strides and alignment (of buffer and offset together, up to 16 bytes), it only
 * submits; from the third time on it needs neither a message nor a system call, as long as both
 * ends are awake.  A client keeps the 256 calls that it used last, and gives them back where the
 * daemon takes no more calls (--max-calls) and in kiln_close.  A kept call stays as it was planned,
 * whatever is tuned later.
 */
KILN_API int kiln_run(kiln_client *client, const char *op, const kiln_tensor *tensors,
					  int tensor_count, const kiln_attr *attrs, int attr_count);
/*
 * Waits for a ticket and forgets it: its status is returned once.  EAGAIN when timeout_ms passes
 * first; the ticket stays valid.  ENOENT for a number that is no outstanding ticket.
 */
KILN_API int kiln_wait(kiln_client *client, kiln_ticket ticket, int timeout_ms);
/*
 * The same, and how many microseconds the call took on the device, by the device's own clock: from
 * when the device reached the launch to its end, without the way there and back.  Whole numbers
 * whose sums are exact, so the mean over several calls is finer than one.  0 where the device
 * cannot tell, or nothing was launched.  Timing costs a launch some microseconds: a client's are
 * timed from the first such call with micros on, and before it may say 0.  micros may be NULL.
 */
KILN_API int kiln_wait_time(kiln_client *client, kiln_ticket ticket, int timeout_ms,
							double *micros);
/* Asks that a call not be run; it ends in ECANCELED, or as usual if it had started. */
KILN_API int kiln_cancel(kiln_client *client, kiln_ticket ticket);

/*
 * For event loops: a descriptor, which stays the same, and the poll(2) events to watch it for now;
 * or a status.  When it is ready, kiln_dispatch(), and then kiln_wait() with 0 for the tickets.
 * The client may learn of an end in another call, such as kiln_wait() for another ticket; the
 * descriptor does not become ready once more for that end.  So call kiln_dispatch() before poll(2),
 * too, and sleep only after waiting for all tickets that it found.
 */
KILN_API int kiln_fd(const kiln_client *client);
KILN_API int kiln_events(const kiln_client *client);
/* Handles what has arrived, without waiting; returns how many tickets are finished and not yet
 * waited for, or a status.
 */
KILN_API int kiln_dispatch(kiln_client *client);

/* ---- Launches in the caller's own context -------------------------------------------------- */

/* An address of memory that the GPU of the current context can use, and how many bytes lie there
 * from it on; {0, 0} for an operand that is left out. */
typedef struct kiln_place {
	uint64_t address;
	uint64_t bytes;
} kiln_place;

/*
 * Launches a prepared call in the CUDA context that is current in this thread, on a stream of that
 * context (CUstream or cudaStream_t; NULL: its default stream), and returns at once.  It is work
 * like any other on that stream: what stands before it is seen, what comes after it sees the
 * results, and nothing else is there to wait for.  This is for work that must overlap with the
 * caller's own kernels.  No buffer is involved and no memory needs to be lent: the operands, one
 * for each tensor that kiln_prepare() was given, in order, are addresses.  Calls that are submitted
 * run in another process, and are ordered against these by KILN_SUBMIT_CUDA alone.
 *
 * Planner, cache and checks are those of kiln_submit(): too few bytes, or an output that shares a
 * byte with another operand, are EINVAL, and addresses of another alignment get another variant.
 * Kiln cannot know whether the memory really is there: a fault hits the caller's own context.  The
 * first launch at an alignment asks the daemon, and the first in a context loads the kernel, for
 * which the driver waits until what runs there has ended.  Later ones wait for nobody, go on where
 * the daemon is gone, and can be captured into a graph.  A shape never seen has a generic kernel
 * first, where one is ready, and no launch waits for the exact one to be made: once the daemon has
 * it, the first launch that finds its stream idle, or the thousandth, loads it and takes it.  A
 * graph keeps the kernel that was captured.  A call whose plan needs scratch memory
 * (kiln_call_plan() says so) takes it from a pool of its own, in the stream's order.
 *
 * ENOTSUP: the client's device is "cpu"; the context's GPU cannot run what is compiled for the
 * client's device; there is no driver; the call is a graph, or a kernel of one's own, for which
 * there is kiln_launch_local_raw(); or the call counts indices that are out of range, and nothing
 * could report the count: the sentence says which attribute to use.
 * EINVAL also where no context is current, or the stream is of another one.  EDEVICE with the
 * driver's own name for an error that an earlier launch of the context left.
 *
 * A kernel is loaded once in each context, for all calls and clients of the process that launch it:
 * the shapes that one generic kernel serves share a module.  It is unloaded when the last of these
 * calls is freed, but never once a launch of it was captured: a graph may outlive the call, and the
 * kernel then stays as long as its context.
 *
 * From the 32nd launch in a row on one stream on, the library launches the kernel as a CUDA graph
 * of it alone, which takes the driver half as long; profilers show it so.  A process has 128 of
 * these at most, each some 100 KiB of the GPU's memory.
 *
 * At kiln_call_free() the streams that the call was launched on must have finished it
 * (cuStreamSynchronize), and the contexts must still exist; a driver of CUDA 12 or newer can tell
 * by itself whether they do.  In a child of fork() kiln_call_free() leaves the driver alone.
 */
KILN_API int kiln_launch_local(kiln_call *call, const kiln_place *operands, int operand_count,
							   void *cuda_stream);

/* ---- Kernels of one's own ------------------------------------------------------------------ */

/*
 * CUDA C++ source that the program brings along.  It is prepared once, compiled and kept like any
 * other kernel, and then launched with a grid and arguments of its own each time.
 *
 * Such a kernel gets addresses, not bounds, so Kiln cannot know what it touches.  So each client's
 * kernels run in a device process of that client's own.  A fault, or a launch that passes its
 * deadline, ends that process and nothing else: calls in flight there answer EDEVICE (ETIMEDOUT the
 * one that took too long), other clients and this client's other operators go on, and so does the
 * next launch, in a new process.  Buffers are usable in both, and keep what they hold; what a
 * faulting kernel had written by then is written.
 *
 * On device cpu a kernel is native code: only the daemon's own user may bring some.
 */

/* A header, or a macro. */
typedef struct kiln_text {
	const char *name;
	const char *text; /* of a macro: its value; NULL: 1 */
	size_t bytes;     /* of a header's text; 0: up to its zero byte */
} kiln_text;

typedef struct kiln_raw {
	size_t size;         /* sizeof(kiln_raw): lets the structure grow */
	const char *name;    /* what messages call the source: "scale.cu"; NULL: "raw.cu" */
	const char *source;  /* at most 1 MiB; with at most 2048 headers at most 16 MiB */
	size_t source_bytes; /* 0: up to its zero byte */
	const char *entry;   /* a __global__ function, or a template-id: "scale<float, 4>" */
	/* #include finds these headers by name, in "" or <>, and short forms of stdint.h, stddef.h,
	 * math.h, float.h and limits.h (cstdint, ...), cuda_fp16.h and cuda_bf16.h.  The name is
	 * compared as it is written, wherever the directive stands, and has at most 127 bytes.  The
	 * compiler opens no file. */
	const kiln_text *headers;
	int header_count;
	const kiln_text *macros;
	int macro_count;
	/* -std=c++11|14|17|20, --use_fast_math, --fmad=, --ftz=, --prec-div=, --prec-sqrt= true|false,
	 * --maxrregcount=N, -lineinfo, -default-device, --restrict.  Device cpu heeds -std=c++20. */
	const char *const *options;
	int option_count;
	unsigned flags; /* KILN_RAW_*; a structure that ends before it has none */
	/* Folders that this library reads, where there are some.  Of headers, and of the files below
	 * these folders and below those of a CUDA toolkit, it sends what the source includes in any of
	 * its branches, found as compilers find it.  The toolkit is that of a folder here which has
	 * cuda.h, else of $KILN_CUDA_DIR, $CUDA_HOME, $CUDA_PATH, toolkits or /usr/local/cuda.  ENOENT
	 * and EINVAL for what is no folder, or no ordinary file. */
	const char *const *folders;
	int folder_count;
	/* Folders with the headers of toolkits (".../nvidia/cu13/include"), which need not be there:
	 * one that has CUB comes before those without.  With toolkits alone it reads as well. */
	const char *const *toolkits;
	int toolkit_count;
} kiln_raw;

/* The call is launched with kiln_launch_local_raw() alone, so no device process is started for it,
 * and nothing counts against the daemon's --max-own. */
#define KILN_RAW_LOCAL 1u

/* An argument of a launch: memory (buffer is not NULL), or a value.  A null pointer is a value, of
 * eight zero bytes. */
typedef struct kiln_raw_arg {
	kiln_buffer *buffer;
	uint64_t offset;   /* the kernel gets the address of this byte of the buffer */
	uint64_t bytes;    /* memory: what must be there from offset on, 0: nothing is asked; value: its
						  size, which is the parameter's */
	unsigned access;   /* memory: KILN_READ, KILN_WRITE or both (also 0) */
	const void *value; /* copied by kiln_submit_raw */
} kiln_raw_arg;

#define KILN_READ 1u
#define KILN_WRITE 2u
#define KILN_MAX_RAW_ARGS 64     /* of them KILN_MAX_OPERANDS with memory */
#define KILN_MAX_RAW_BYTES 32764 /* of the values of one launch */

typedef struct kiln_launch {
	size_t size;                /* sizeof(kiln_launch) */
	uint32_t grid[3], block[3]; /* 0 is taken for 1 */
	uint32_t shared_bytes;      /* dynamic shared memory of a block */
	int timeout_ms;             /* from its start on the device; 0: the daemon's --launch-timeout */
	const kiln_raw_arg *args;   /* in the order of the kernel's parameters */
	int arg_count;
} kiln_launch;

/*
 * Compiles, and waits until the kernel is loaded.  ECOMPILE: kiln_errmsg() is the first error with
 * the source's own name and line, kiln_errlog() all that the compiler said.  The call is like those
 * of kiln_prepare(), but is launched with kiln_submit_raw() or kiln_launch_local_raw().
 */
KILN_API int kiln_prepare_raw(kiln_client *client, const kiln_raw *raw, kiln_call **out);
/*
 * Launches it once; the ticket is like those of kiln_submit(), and calls of both kinds run in the
 * order of their submission.  Kernels of one's own run in a second process, and each process begins
 * only when the other has ended all calls before, so it is better not to alternate.  Number and
 * sizes of the arguments, threads and shared memory are compared with the compiled kernel first:
 * EINVAL, and nothing runs.
 */
KILN_API int kiln_submit_raw(kiln_call *call, const kiln_launch *launch, kiln_ticket after,
							 kiln_ticket *out);
/*
 * Returns what the client's own kernels have printed (printf) since this was last asked; "" for
 * nothing.  The text of a launch is there when kiln_wait() has returned, also when it failed; what
 * launches on several streams print comes in the order of their ends.  The first 64 KiB are kept;
 * *cut (or NULL) is how many bytes more there were.  It lives until this is called again or the
 * client is closed.  NULL: the client cannot be used now.
 */
KILN_API const char *kiln_printed(kiln_client *client, uint64_t *cut);
/*
 * Launches it once in the CUDA context that is current in this thread, on a stream of that context,
 * and returns at once: what kiln_launch_local() is to kiln_submit(), in all that is said there of
 * contexts, streams, captured graphs, daemons that are gone and kiln_call_free().  A pointer is a
 * value of eight bytes, an address that the GPU can use; nobody checks what lies there, and a fault
 * hits the caller's own context.  Nobody can end such a launch, so timeout_ms must be 0.
 *
 * The first launch asks the daemon for the compiled kernel, and the first in a context loads it.
 * Number and sizes of the arguments are compared with the kernel where the driver tells them (CUDA
 * 12.4 or newer), or the call was prepared without KILN_RAW_LOCAL.
 *
 * EINVAL: arguments that do not fit, one with a buffer, or a grid, a block or shared memory that
 * the kernel or the GPU cannot have.  ENOTSUP and EDEVICE as kiln_launch_local().
 */
KILN_API int kiln_launch_local_raw(kiln_call *call, const kiln_launch *launch, void *cuda_stream);
/* Compiles into the cache for a target, without a device, as kiln_compile(). */
KILN_API int kiln_compile_raw(kiln_client *client, const kiln_raw *raw, const char *target,
							  kiln_reply **out);
/* Says whether the cache has the kernel for a target, without compiling, as kiln_explain(). */
KILN_API int kiln_explain_raw(kiln_client *client, const kiln_raw *raw, const char *target,
							  kiln_reply **out);
/* How many parameters the compiled kernel has, and the first most of their sizes in bytes; a
 * negative status where the call is no kernel of one's own. */
KILN_API int kiln_call_params(const kiln_call *call, uint32_t *bytes, int most);

/* ---- Looking inside ------------------------------------------------------------------------ */

/* Says what the planner would do, without compiling.  target: NULL for the client's device, else
 * "sm_90", "cpu".  Outputs whose shapes follow from the inputs may be left out here and in
 * kiln_compile(): they are then taken to be contiguous.  The reply has the key, whether the cache
 * has it ("cached"), or remembers that it does not compile ("failed", with "status" and "error"),
 * and otherwise the rows of the cache that come nearest ("near"), each with what the kernel asked
 * for has instead, in words. */
KILN_API int kiln_explain(kiln_client *client, const char *op, const kiln_tensor *tensors,
						  int tensor_count, const kiln_attr *attrs, int attr_count,
						  const char *target, kiln_reply **out);
/* Compiles into the cache for a target, without a device. */
KILN_API int kiln_compile(kiln_client *client, const char *op, const kiln_tensor *tensors,
						  int tensor_count, const kiln_attr *attrs, int attr_count,
						  const char *target, kiln_reply **out);
/*
 * Any other request: "info", "devices", "ops", "cache.ls", ... with its arguments; `kiln help
 * requests` lists them.  This is what the command line uses.
 */
KILN_API int kiln_request(kiln_client *client, const char *request, const kiln_attr *args,
						  int arg_count, kiln_reply **out);

/*
 * Reads a reply by path: "counters.hits", "rows[3].key".  Missing or of another type: 0, 0.0, ""
 * (str), NULL with *bytes = 0 (bin), 0 (count: members of an array or map), 0 (has).
 */
KILN_API int64_t kiln_reply_int(const kiln_reply *reply, const char *path);
KILN_API double kiln_reply_real(const kiln_reply *reply, const char *path);
KILN_API const char *kiln_reply_str(const kiln_reply *reply, const char *path);
KILN_API const void *kiln_reply_bin(const kiln_reply *reply, const char *path, size_t *bytes);
KILN_API int kiln_reply_count(const kiln_reply *reply, const char *path);
KILN_API int kiln_reply_has(const kiln_reply *reply, const char *path);
/* The whole reply as one JSON text, without the envelope (t, id, st); binary members as
 * {"bytes": n}.  "" when out of memory. */
KILN_API const char *kiln_reply_json(kiln_reply *reply);
KILN_API void kiln_reply_free(kiln_reply *reply);

#ifdef __cplusplus
}
#endif

#endif
