/*
 * util: the few things every daemon module needs and libc does not have.  Knows nothing of Kiln.
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

/* Formats into text[size]; returns status, so that `return fail(error, size, KILN_EINVAL, "...")`
 * is one line.  So is the text, by the rule of plain.h: what it quotes may come from anybody. */
int util_fail(char *text, size_t size, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The name of a status, "KILN_ECOMPILE". */
const char *util_status_name(int status);

/* Appends to text[size], cutting cleanly; returns the new length. */
size_t util_append(char *text, size_t size, size_t used, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* A growing text; text is always zero-terminated once something was added.  failed sticks. */
struct util_text {
	char *text;
	size_t size, capacity;
	bool failed;
};
void util_text_add(struct util_text *text, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void util_text_bytes(struct util_text *text, const void *bytes, size_t size);
void util_text_free(struct util_text *text);

/* "64 MiB", "512k", "1073741824" to bytes; false if it is none of these or overflows. */
bool util_parse_bytes(const char *text, uint64_t *bytes);
/* 67108864 to "64.0 MiB" */
const char *util_bytes(uint64_t bytes, char text[16]);

/* ---- Time ---- */

uint64_t util_now_us(void); /* monotonic */
/* Seconds since 1970 by the machine's clock, which may jump: for what is kept and shown, never for
 * a wait. */
int64_t util_wall_s(void);
/* 65536ths of that second that are over, as exact as util_wall_s(). */
uint32_t util_wall_part(void);
/* Test-only: from here on that clock is so much ahead. */
void util_wall_jump(int64_t seconds);

/* ---- Hash: BLAKE2b-256 (RFC 7693), by libsodium ---- */

struct util_hash {
	_Alignas(64) unsigned char state[384];
};
void util_hash_begin(struct util_hash *hash);
void util_hash_add(struct util_hash *hash, const void *bytes, size_t size);
void util_hash_end(struct util_hash *hash, unsigned char digest[32]);
void util_hex(const unsigned char *bytes, size_t size, char *hex); /* 2 * size + 1 chars */
#define UTIL_HASH_HEX 65
/* The hash of these bytes as 64 digits. */
void util_hash_hex(const void *bytes, size_t size, char hex[UTIL_HASH_HEX]);
/* Hash of a file's content; false with errno. */
bool util_hash_file(const char *path, unsigned char digest[32]);

/* ---- Files ---- */

/* Reads a whole file up to limit bytes, zero byte added; NULL with errno (EFBIG beyond the limit).
 * bytes may be NULL. */
char *util_read_file(const char *path, size_t limit, size_t *bytes);
/* mkdir -p with mode for the directories made; 0, or -1 with errno. */
int util_make_directories(const char *path, unsigned mode);
/* The CPUs this process may use (affinity and cgroup quota), at least 1. */
int util_cpu_count(void);
/* The part of it that cgroup v2 decides: CPUs by cpu.max, for the group that a /proc/PID/cgroup
 * names below a mount; INT_MAX without a quota. */
int util_cgroup_cpus(const char *proc_cgroup, const char *mount);
/* Visits the directories of that group and of all above it, the mount last. */
#define UTIL_OWN_CGROUP "/proc/self/cgroup"
#define UTIL_CGROUP_MOUNT "/sys/fs/cgroup"
typedef void (*util_cgroup_visit)(void *arg, const char *directory);
void util_cgroup_walk(const char *proc_cgroup, const char *mount, util_cgroup_visit visit,
					  void *arg);
/* Bytes that programs here can still have before the system runs out of memory, or a control group
 * (version 2) reaches its limit; what the page cache can give back counts.  UINT64_MAX: not known.
 * The first argument: /proc/meminfo, or a file like it. */
uint64_t util_memory_available(const char *meminfo, const char *proc_cgroup, const char *mount);
/* Bytes of memory that a process has now; 0: not known. */
uint64_t util_resident_bytes(int pid);

/* ---- The program that this process runs ---- */

/* Hexadecimal, the linker's hash of what it linked: two builds of a program differ in it.  "": the
 * program has none. */
const char *util_build(void);
/* The path it was started from, and what lies there now. */
enum util_program { UTIL_PROGRAM_CURRENT, UTIL_PROGRAM_REPLACED, UTIL_PROGRAM_REMOVED };
enum util_program util_program(char path[PATH_MAX]);

/* To be called first: opens /dev/null for standard descriptors that are closed, unblocks signals,
 * keeps the umask from the owner's rights, and sees that stacks are large enough.  False, with a
 * sentence: they cannot be. */
bool util_begin(char *error, size_t size);

/* ---- Log: one line on stderr a message.  The journal gets its priority before it, which has the
 * time itself; a terminal "kilnd[PID] level "; anything else the time (UTC) before that. ---- */

enum util_level { UTIL_ERROR, UTIL_WARN, UTIL_INFO, UTIL_DEBUG };
extern enum util_level util_log_level; /* messages above it are dropped; UTIL_INFO at start */
void util_log(enum util_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same at UTIL_DEBUG; costs one comparison where that is off. */
#define util_debug(...) (util_log_level < UTIL_DEBUG ? (void)0 : util_log(UTIL_DEBUG, __VA_ARGS__))
/* $JOURNAL_STREAM names stderr: lines begin with their priority. */
bool util_log_is_journal(void);
/* Passes on lines that others have said, as they are. */
void util_log_pass(const char *text, size_t size);
/* No caller waits for standard error, which may be a pipe, a terminal or a file that takes nothing
 * for as long as somebody else likes.  Until util_log_begin() a line that it does not take is
 * dropped.  From then on a thread writes, and 64 KiB may wait for it; what does not fit is dropped,
 * and a line says so once the rest is written.  False: there can be no thread. */
bool util_log_begin(uint64_t patience_us);
/* There is no room for so much, and whoever has more to say had better wait for it: the last write
 * began less than the patience ago. */
bool util_log_is_full(size_t size);
/* Waits for at most so long until all is written. */
void util_log_end(unsigned milliseconds);
/* The end of what this process has logged, without a line's beginning that is lost. */
#define UTIL_LOG_TAIL 8192
void util_log_tail(char tail[UTIL_LOG_TAIL]);

/* ---- Memory: like libc's, and never return: only for allocations of bounded small size ---- */
/* They print one line and abort the process: a daemon that cannot get a few hundred bytes cannot go
 * on. */
void *util_alloc(size_t bytes); /* zeroed */
char *util_strdup(const char *text);
/* From now on this process has secrets in its memory: it leaves no core file, and only root may
 * look into it. */
void util_keep_secrets(void);

#endif
