/*
 * misdeed: lets a child process do wrong by name, when a test asks for it (the "debug" request of a
 * daemon with --test-requests).  The compiler itself spoils an object, the device process a
 * lane.  A build without tests has nothing of it.
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
	/* Compilers do these. */                                            \
	X(FAIL, "fail")       /* the source is wrong */                      \
	X(NOTHING, "nothing") /* success without an object */                \
	X(TEXT, "text")       /* an object that is no ELF file */            \
	X(CUT, "cut")         /* the beginning of one */                     \
	X(ENTRY, "entry")     /* one that has no such kernel */              \
	/* Device processes do these. */                                     \
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
/* Returns MISDEED_NONE for a name that is none. */
enum misdeed misdeed_named(const char *name);
const char *misdeed_name(enum misdeed misdeed);

/* Does a misdeed that any child can do.  type is that of the child's answers ("reply", "result"),
 * id that of the request.  True: the request was answered, and the child gives no other answer. */
bool misdeed_do(enum misdeed misdeed, int sock, const char *type, uint64_t id);
#else
static inline bool misdeed_do(enum misdeed misdeed, int sock, const char *type, uint64_t id)
{
	(void)misdeed, (void)sock, (void)type, (void)id;
	return false;
}
#endif

#endif
