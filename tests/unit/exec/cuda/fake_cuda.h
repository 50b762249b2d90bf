/*
 * fake_cuda: what a test can ask of the libcuda.so.1 in fake_cuda.c, by the symbol
 * "fake_cuda_control".
 */
#ifndef KILN_TESTS_FAKE_CUDA_H
#define KILN_TESTS_FAKE_CUDA_H

#include <stdint.h>

#define FAKE_MEMORY (256u << 20) /* bytes of the fake GPU */
#define FAKE_GRANULARITY (2u << 20)
#define FAKE_HANDLE_MAGIC 0x4b464b46u

/* The kernels of every image that begins with "FAKE". */
#define FAKE_ADD_ONE "add_one" /* (const u32 *x, u32 *y, u32 n): y = x + 1 */
#define FAKE_FILL "fill"       /* (u32 *y, u64 value, u32 n) */
#define FAKE_FAULT "fault"     /* (): an illegal address */
/*
 * (u8 *scratch, u64 *y, u64 bytes, u64 counters): y = scratch, and how many of the counters are not
 * zero; fills what stands behind them with rubbish.
 */
#define FAKE_TALLY "tally"
#define FAKE_PRINT "prints"   /* (): "printed 1", 2, ... when somebody waits for a stream */
#define FAKE_ASSERT "asserts" /* (): fails an assertion, which is told then, too */
#define FAKE_REPORT "report"  /* (u64 *report, u64 by, u64 *y): report += by, y = what it was */

/* The contents of an IPC handle of the fake; a test can write one itself. */
struct fake_handle {
	uint32_t magic;
	int32_t pid, fd;
	uint32_t zero;
	uint64_t bytes;
};

/* The contents of the data of an exported pool allocation: pool is the inode of the pool's memfd.
 */
#define FAKE_SHARE_MAGIC 0x4b464b50u
struct fake_share {
	uint32_t magic, zero;
	uint64_t pool, offset, bytes;
};

enum fake_live {
	FAKE_LIVE_CONTEXTS,
	FAKE_LIVE_STREAMS,
	FAKE_LIVE_EVENTS,
	FAKE_LIVE_MODULES,
	FAKE_LIVE_POOLS,
	FAKE_LIVE_BLOCKS,   /* of pools and of cuMemAlloc */
	FAKE_LIVE_IMPORTS,  /* opened IPC handles, imported allocations of pools */
	FAKE_LIVE_RANGES,   /* reserved addresses */
	FAKE_LIVE_MAPPINGS, /* mapped allocations */
	FAKE_LIVE_HANDLES,  /* allocation handles */
	FAKE_LIVE_HOST,     /* host memory that the GPU sees */
	FAKE_LIVE_GRAPHS,   /* recorded, and those that can be launched */
	FAKE_LIVE_COUNT
};

/* A launch, as the driver was asked for it. */
#define FAKE_NOTED 16
struct fake_launch {
	uint32_t grid[3], block[3], shared;
	void *stream, *context;
	const void *function;
	uint64_t values[FAKE_NOTED]; /* what the parameters point to, eight bytes of each */
};

#define FAKE_CONTEXTS 2
#define FAKE_HOLD_BUSY 2

struct fake_cuda_control {
	/* Forgets everything, also what lives. */
	void (*reset)(void);
	/* The next count calls of a function (its name without _v2) answer result; -1: all. */
	void (*inject)(const char *function, int result, int count);
	/* While on, no stream gets on; after that, while FAKE_HOLD_BUSY, none of those that had
	 * something to do then.  May be called while another thread calls the driver, as may inject,
	 * calls and slow. */
	void (*hold)(int on);
	int (*calls)(const char *function);
	int (*live)(enum fake_live kind);
	/* The bytes that cuFuncSetAttribute granted last, and those that functions have statically. */
	int (*granted_shared)(void);
	void (*static_shared)(int bytes);
	/* cuMemGetAddressRange says this of imports; 0: the truth. */
	void (*known_span)(uint64_t bytes);
	/* The GPU may do this with imported pools at first: CUmemAccess_flags. */
	void (*pool_access)(int flags);
	/* How many threads a block may have by every kernel; 0: the driver does not say. */
	void (*thread_limit)(int most);
	/* How many parameters are noted of a kernel that does nothing: it has at least so many, and is
	 * said to have these, of eight bytes each. */
	void (*note)(int values);
	struct fake_launch (*launched)(void); /* the last */
	void *(*context)(int i);              /* below FAKE_CONTEXTS; 0 is the primary one */
	/* It was destroyed with all that was loaded, and there is a new one at its place. */
	void (*renew)(int i);
	void (*capability)(int number); /* 90: compute capability 9.0 */
	/* Every call of a function takes so long. */
	void (*slow)(const char *function, int micros);
};

/* By the symbol "fake_order_control": streams that get on by themselves, for functions of the
 * driver that take one. */
struct fake_order_control {
	/* In this context; as the default stream, whose handle is NULL, or not. */
	void *(*open)(void *context, int is_default);
	/* Gives up what it waits for. */
	void (*close)(void *stream);
	/* A step of its: call(arg) in its thread. */
	void (*then)(void *stream, void (*call)(void *arg), void *arg);
	/* Waits until it has done all that it has: whether it has. */
	int (*finish)(void *stream, int timeout_ms);
	void (*capture)(void *stream, int on);
	/* The driver calls this first when it is asked whether a stream has ended; NULL: no more. */
	void (*before_query)(void (*call)(void *arg), void *arg);
	/* How many values have been written, how many waits for one have ended, and how often a stream
	 * touched memory that was not registered or a question spoilt a capture. */
	int (*writes)(void);
	int (*waits)(void);
	int (*faults)(void);
};

#endif
