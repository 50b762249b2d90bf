/*
 * misdeed: what a child process does wrong when a test asks for it (the "debug" request of a daemon
 * with --test-requests), by name.  What is wrong with an object is the compiler's own affair, what
 * with a lane the device process's.
 * A build without tests has nothing of it.
 */
#ifndef KILN_DAEMON_MISDEED_H
#define KILN_DAEMON_MISDEED_H

#include <stdbool.h>
#include <stdint.h>

#define MISDEEDS(X)                                                      \
	/* It ends, or does not go on. */                                    \
	X(CRASH, "crash") /* by SIGSEGV */                                   \
	X(KILL, "kill")   /* by SIGKILL, as where memory runs out */         \
	X(LEAVE, "leave") /* with status 0 */                                \
	X(HANG, "hang")   /* for ever */                                     \
	/* It answers with what is no answer. */                             \
	X(BYTES, "bytes")   /* no message */                                 \
	X(LENGTH, "length") /* a map of four thousand million members */     \
	X(HEADER, "header") /* a frame of which so many bytes are to come */ \
	X(SHORT, "short")   /* a frame that ends in the middle */            \
	X(TYPE, "type")     /* a message of a kind that there is not */      \
	X(OTHER, "other")   /* an answer to what nobody asked */             \
	X(STATUS, "status") /* an answer with a status that there is not */  \
	/* It answers, and besides */                                        \
	X(TWICE, "twice") /* once more */                                    \
	X(FLOOD, "flood") /* says very much before */                        \
	/* Of compilers: */                                                  \
	X(FAIL, "fail")       /* the source is wrong */                      \
	X(NOTHING, "nothing") /* success without an object */                \
	X(TEXT, "text")       /* an object that is no ELF file */            \
	X(CUT, "cut")         /* the beginning of one */                     \
	X(ENTRY, "entry")     /* one that has no such kernel */              \
	/* Of device processes: */                                           \
	X(MUTE, "mute")     /* it does not answer */                         \
	X(LAMENT, "lament") /* it says that it cannot go on, and stays */    \
	X(CELLS, "cells")   /* nonsense in all cells of all lanes */         \
	X(HOLD, "hold")     /* it loads no kernel until another misdeed */

enum misdeed {
	MISDEED_NONE,
#define MISDEED_ENUM(name, text) MISDEED_##name,
	MISDEEDS(MISDEED_ENUM)
#undef MISDEED_ENUM
};

#ifdef KILN_TEST_HOOKS
/* MISDEED_NONE: there is none of that name. */
enum misdeed misdeed_named(const char *name);
const char *misdeed_name(enum misdeed misdeed);

/*
 * Does what any child can do.  type ("reply", "result"): of the messages that it answers with; id:
 * of what it was asked.  True: it has given its answer, such as it is, and gives no other.
 */
bool misdeed_do(enum misdeed misdeed, int sock, const char *type, uint64_t id);
#else
static inline bool misdeed_do(enum misdeed misdeed, int sock, const char *type, uint64_t id)
{
	(void)misdeed, (void)sock, (void)type, (void)id;
	return false;
}
#endif

#endif
