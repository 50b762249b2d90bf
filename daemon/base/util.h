/*
 * util: the few things that every room of the daemon needs and libc does not have.  Knows nothing
 * of Kiln.  Any thread may call these functions, except where a comment names one.
 */
#ifndef KILN_DAEMON_UTIL_H
#define KILN_DAEMON_UTIL_H

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/wire/plain.h"

/* ---- Text ---- */

/* Formats a sentence into text[size] and returns status, so that a caller fails in one statement.
 * The sentence becomes one line by the rule of plain.h: it may quote what anybody sent. */
int util_fail(char *text, size_t size, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Returns the name of a status, "KILN_ECOMPILE". */
const char *util_status_name(int status);

/* Appends to text[size], of which used bytes are filled; cuts what does not fit before a character.
 * Returns the new length. */
size_t util_append(char *text, size_t size, size_t used, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* A text that grows; zeroed, it is empty.  Once something was added, text ends in a zero byte.
 * After a refusal of memory failed stays true and nothing is added.  The owner calls
 * util_text_free(), or frees text itself. */
struct util_text {
	char *text;
	size_t size, capacity;
	bool failed;
};
void util_text_add(struct util_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void util_text_bytes(struct util_text *text, const void *bytes, size_t size);
void util_text_free(struct util_text *text);

/* Reads "64 MiB", "512k", "1073741824".  False: it is no size, or overflows. */
bool util_parse_bytes(const char *text, uint64_t *bytes);
/* Writes 67108864 as "64.0 MiB"; returns text. */
const char *util_bytes(uint64_t bytes, char text[16]);

/* ---- Time ---- */

/* Returns microseconds of the monotonic clock. */
uint64_t util_now_us(void);
/* Returns seconds since 1970 by the machine's clock, which may jump: for times that are kept and
 * shown, never for a wait. */
int64_t util_wall_s(void);
/* Returns how many 65536ths of that second are over. */
uint32_t util_wall_part(void);
#ifdef KILN_TEST_HOOKS
/* Puts util_wall_s() so many seconds ahead. */
void util_wall_jump(int64_t seconds);
#endif

/* ---- Hash: BLAKE2b-256 (RFC 7693), by libsodium ---- */

struct util_hash {
	_Alignas(64) unsigned char state[384];
};
void util_hash_begin(struct util_hash *hash);
void util_hash_add(struct util_hash *hash, const void *bytes, size_t size);
void util_hash_end(struct util_hash *hash, unsigned char digest[32]);
void util_hash_bytes(const void *bytes, size_t size, unsigned char digest[32]);
/* Writes 2 * size digits and a zero byte. */
void util_hex(const unsigned char *bytes, size_t size, char *hex);
#define UTIL_HASH_HEX 65
/* Writes the hash of these bytes as 64 digits. */
void util_hash_hex(const void *bytes, size_t size, char hex[UTIL_HASH_HEX]);
/* Hashes a file's content.  False with errno. */
bool util_hash_file(const char *path, unsigned char digest[32]);

/* ---- Files ---- */

/* Reads a whole file and adds a zero byte; the caller frees it.  bytes, which may be NULL, is its
 * size.  NULL with errno: EFBIG for a file of more than limit bytes. */
char *util_read_file(const char *path, size_t limit, size_t *bytes);
/* Makes a directory and those above it that are missing, with this mode; 0, or -1 with errno. */
int util_make_directories(const char *path, unsigned mode);

/* ---- The host, and the control groups (version 2) of this process ---- */

#define UTIL_OWN_CGROUP "/proc/self/cgroup"
#define UTIL_CGROUP_MOUNT "/sys/fs/cgroup"

/* Returns the CPUs that this process may use by its affinity and its groups' quotas, at least 1. */
int util_cpu_count(void);
/* Returns the CPUs that cpu.max leaves, of the group that the file proc_cgroup names below the
 * mount and of those above it; INT_MAX without a quota. */
int util_cgroup_cpus(const char *proc_cgroup, const char *mount);
/* Returns the bytes that programs can still have before the system runs out of memory, or one of
 * those groups reaches its limit; bytes that the page cache can give back count.  UINT64_MAX: not
 * known.  meminfo is "/proc/meminfo", or a file like it. */
uint64_t util_memory_available(const char *meminfo, const char *proc_cgroup, const char *mount);
/* Returns the bytes of memory that a process has now; 0: not known. */
uint64_t util_resident_bytes(int pid);

/* ---- The program that this process runs ---- */

/* Returns the linker's hash of the program as digits: two builds differ in it.  "": the program has
 * none.  The first call is the main thread's. */
const char *util_build(void);
/* Writes the path that the program was started from, and returns what lies there now. */
enum util_program { UTIL_PROGRAM_CURRENT, UTIL_PROGRAM_REPLACED, UTIL_PROGRAM_REMOVED };
enum util_program util_program(char path[PATH_MAX]);

/* Call before all else: opens /dev/null for standard descriptors that are closed, unblocks signals,
 * takes the owner's rights out of the umask, and raises the limit of stacks.  False with a
 * sentence: stacks would be too small. */
bool util_begin(char *error, size_t size);

/* ---- Log: one line on stderr a message: "TIME kilnd[PID] LEVEL MESSAGE" or an object with the
 * same members, the time in UTC.  In the journal the line begins with its priority instead, the
 * object with its priority as well. ---- */

enum util_level { UTIL_ERROR, UTIL_WARN, UTIL_INFO, UTIL_DEBUG };
/* Messages above this level are dropped; UTIL_INFO at the start.  The main thread sets it before
 * there are others. */
extern enum util_level util_log_level;
enum util_log_format { UTIL_LOG_TEXT, UTIL_LOG_JSON };
/* UTIL_LOG_TEXT at the start; set like the level. */
extern enum util_log_format util_log_format;
/* Keeps errno. */
void util_log(enum util_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Logs at UTIL_DEBUG; where that is off it costs one comparison. */
#define util_debug(...) (util_log_level < UTIL_DEBUG ? (void)0 : util_log(UTIL_DEBUG, __VA_ARGS__))
/* Lines go to this descriptor instead of stderr from now on; before there are threads. */
void util_log_to(int fd);
/* Whether $JOURNAL_STREAM names stderr. */
bool util_log_is_journal(void);
/* Passes on clean lines that a child logged or printed, in this process's format: its own pid and
 * level info stand for those that a line does not say.  May write into the text. */
void util_log_child(char *text);
/*
 * Starts the thread that writes the log.  No caller ever waits for stderr: others may keep a pipe
 * or a terminal full for as long as they like.  Without the thread, a line that stderr does not
 * take at once is dropped.  With it, 64 KiB wait; lines that do not fit are dropped, and one line
 * says how many.  False: the system gives no thread.
 */
bool util_log_begin(uint64_t patience_us);
/* Whether so many bytes have no room while stderr still takes some, the last write having begun
 * less than the patience ago: the caller had better wait. */
bool util_log_is_full(size_t size);
/* Waits until all is written, for so many milliseconds at most.  The thread ends then. */
void util_log_end(unsigned milliseconds);
/* Copies the end of what this process has logged, from the beginning of a line. */
#define UTIL_LOG_TAIL 8192
void util_log_tail(char tail[UTIL_LOG_TAIL]);

/* ---- Memory ---- */

/* For allocations of bounded small size, which the caller frees.  Where the system refuses one,
 * both log a line and abort the process: without a few hundred bytes a daemon cannot go on. */
void *util_alloc(size_t bytes); /* zeroed */
char *util_strdup(const char *text);
/* From here on this process has secrets in its memory: it leaves no core file, and only root may
 * look into it. */
void util_keep_secrets(void);

#endif
