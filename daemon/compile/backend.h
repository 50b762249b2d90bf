/*
 * backend: what the files of the compile module share among themselves, and nobody else includes.
 */
#ifndef KILN_DAEMON_COMPILE_BACKEND_H
#define KILN_DAEMON_COMPILE_BACKEND_H

#include "client/wire/lex.h"
#include "daemon/base/util.h"
#include "compile.h"

/* A phase begins, or ends, now. */
static inline void phase_begin(struct compile_result *out, enum compile_phase phase)
{
	out->spans[phase].begin_us = util_now_us();
}

static inline void phase_end(struct compile_result *out, enum compile_phase phase)
{
	out->spans[phase].end_us = util_now_us();
}

/* ---- scan.c: a source, line by line ---- */

enum scan_kind {
	SCAN_END,
	SCAN_PLAIN,
	SCAN_ONCE,    /* #pragma once */
	SCAN_INCLUDE, /* #include "name" */
	SCAN_FOREIGN, /* #include of any other form, #include_next, #import, #embed */
	SCAN_BRANCH,  /* #else, #elif..., #endif */
};

struct scan {
	const char *at, *end;
	int line; /* the last that has been returned, as editors count */
};

/* Editors may count several: they are one for the compiler. */
struct scan_line {
	const char *text;
	size_t bytes; /* with its newline, if it has one */
	int number;   /* of the directive, else of its beginning */
	bool is_empty;
	size_t mark, mark_bytes;          /* ONCE, INCLUDE, FOREIGN with a name: the directive itself */
	char name[KERNEL_TARGET_MAX * 8]; /* INCLUDE; FOREIGN: of <name>, else "" */
	struct lex_token word;            /* of a directive */
	struct lex rest;                  /* behind that */
	bool is_test;                     /* #if, #elif */
	bool is_else;                     /* #else, #elif, ... */
	int nesting;                      /* 1: #if, #ifdef, #ifndef; -1: #endif */
};

void scan_begin(struct scan *scan, const struct compile_file *file);
enum scan_kind scan_next(struct scan *scan, struct scan_line *line);
int scan_newlines(const char *text, size_t bytes);
/* Letters, digits and _ - + . / only, relative, without empty or dotted parts: safe in #line and in
 * paths. */
bool scan_name_ok(const char *name);

/* ---- unit.c ---- */

#define UNIT_CPU_ENTRY "kiln_cpu_entry"
/* The log of the host's compiler has this text if the entry that a user named is a kernel. */
#define UNIT_CPU_KERNEL "kiln: the entry is declared __global__"

/* ---- user.c ---- */

/* Adds what the user wrote, includes in place. */
int user_add(const struct compile_job *job, struct util_text *text, char error[KERNEL_ERROR_MAX]);

/* ---- include_once.c ---- */

enum once { ONCE_NOT, ONCE_PRAGMA, ONCE_GUARD };
/* Says of each file of a user but the first, which is the source, whether it has an effect only the
 * first time. */
void once_find(const struct compile_job *job, const struct compile_file *files, int count,
			   enum once *out);

/* ---- shared_arrays.c ---- */

/* The source with `extern __shared__ T name[];` made to what the cpu device can compile, as many
 * lines as before. */
void shared_rewrite(const struct compile_file *file, struct util_text *out);

/* ---- options.c ---- */

enum options_kind {
	OPTION_ALWAYS,
	OPTION_IF_KNOWN, /* left out where this version of the compiler does not know it */
	OPTION_GCC,
	OPTION_CLANG,
};

enum options_whose {
	OPTION_ANY,
	OPTION_OURS,    /* for templates of ours only */
	OPTION_PLAIN,   /* not for checked kernels */
	OPTION_CHECKED, /* for checked kernels only */
};

struct compile_option {
	const char *text;
	enum options_kind kind;
	enum options_whose whose;
};

/* Ended by a row without text.  -arch=<target> goes before those of NVRTC. */
extern const struct compile_option options_nvrtc[];
extern const struct compile_option options_host[];
/* Names without directories: nothing of where it was compiled can get into the object. */
#define OPTIONS_HOST_UNIT "unit.cc"
#define OPTIONS_HOST_OBJECT "unit.so"
/* Does a job get this option of the tables?  Not if its user chose another. */
bool options_for_job(const struct compile_option *option, const struct compile_job *job);
/* Returns those options of a user that a compiler for this target gets. */
bool options_user_counts(const char *option, const char *target);
bool options_user_allowed(const char *option);
bool options_is_cuda(const char *target); /* sm_NN, sm_NNN, perhaps with a letter after it */
bool options_is_cpu(const char *target);

/* ---- compiler_log.c: what compilers say ---- */

/* The first line that reports an error, else the first line that says anything. */
void log_first_error(const char *log, char error[KERNEL_ERROR_MAX]);
/* "the entry scal: identifier "scal" is undefined": of an error that is not in the source. */
void log_name_entry(const char *entry, char error[KERNEL_ERROR_MAX]);
/* Writes one sentence for all targets about an entry without __global__. */
int log_refuse_entry(const char *entry, char error[KERNEL_ERROR_MAX]);
/* Takes the warnings with this text out of a log, with their notes and the line that says where
 * they lie; whether there were some. */
bool log_take_warnings(char *log, const char *text);
/* Did the compiler give up for want of memory, or did the system end it for that? */
bool log_says_no_memory(const char *log);
/* Did it end because it could not write its files? */
bool log_says_no_room(const char *log);
/* Did the system give it no process for one of its parts? */
bool log_says_no_process(const char *log);
/* A file would have grown beyond what the process may write. */
bool log_says_too_large(const char *log);
/* Registers, shared, spilled and local bytes as ptxas -v prints them. */
void log_figures(const char *log, struct compile_result *out);

/* ---- compiler_identity.c ---- */

/* A short text that changes when any of the files is replaced or rewritten.  False if one is not
 * there. */
bool identity_stamp(const char *const *paths, int count, char stamp[96]);
/* Finds out->stamp, and out->id if the environment variable has one for this stamp.  Otherwise hex
 * becomes the hash of the contents and of extra.  KILN_OK or KILN_ENOTSUP with out->reason, which
 * names the first file. */
int identity_find(const char *variable, const char *const *paths, int count, const char *extra,
				  struct compile_toolchain *out, char hex[KERNEL_KEY_HEX]);

/* ---- nvrtc_library.c ---- */

struct library {
	void *handle;
	char path[1024];     /* of libnvrtc */
	char builtins[1024]; /* of libnvrtc-builtins; "" where only the loader knows it */
};

/* Finds and loads libnvrtc.  KILN_OK or KILN_ENOTSUP with a sentence. */
int library_open(struct library *out, char reason[KERNEL_ERROR_MAX]);
/* Loads the builtins that belong to it, so that NVRTC finds them although they are not on the
 * loader's path. */
void library_open_builtins(struct library *library, int major, int minor);

/* ---- nvrtc_headers.c ---- */

/* The headers of a job by name: texts that end with a zero byte. */
struct headers {
	int count;
	const char **texts, **names;
	char *room;
};
/* job: NULL for none.  False without memory; headers_free() is fine then. */
bool headers_make(const struct compile_job *job, struct headers *out);
void headers_free(struct headers *headers);

/* ---- compile_memory.c ---- */

void usage_open(void); /* before the rights to open files are given up */
/* Returns the bytes that the process has in memory when a job begins. */
uint64_t usage_begin(void);
/* The most that the job, and the programs that it started, had above that. */
int64_t usage_end(uint64_t before);

/* ---- compiler_folders.c ---- */

#define COMPILE_REACH 40

struct compile_reach {
	const char *paths[COMPILE_REACH];
	int count;
	char text[8192]; /* of the paths */
	size_t used;
};
/* Finds the paths that the program, a compiler, must be able to read. */
void compile_reach_of(const char *program, struct compile_reach *out);

/* ---- hostcc.c: before and after the rights to open files are given up ---- */

/* Finds the compiler and makes the directory that it works in; what fails shows in hostcc_open. */
void hostcc_find(void);
/* Its path, and the directory; NULL: not found. */
const char *hostcc_program(void);
const char *hostcc_directory(void);

/* ---- spawn.c ---- */

/* A directory of this process alone, under $TMPDIR or /tmp; directories of dead processes are
 * removed. */
struct workdir {
	char path[1024];
	int fd; /* locked as long as the process lives */
};
bool workdir_open(struct workdir *dir);
const char *workdir_parent(void); /* $TMPDIR or /tmp */
/* Does the directory still exist? */
bool workdir_is_there(const struct workdir *dir);
void workdir_clean(struct workdir *dir); /* the files in it */
void workdir_close(struct workdir *dir); /* all of it; fine when it was never opened */

#define SPAWN_LOG "log"
/*
 * Runs a program to its end in the directory, standard output and error into the file SPAWN_LOG.
 * Returns the exit status, 128 + signal, or -1 with errno when it could not be started; ETIMEDOUT:
 * it still runs after most_us (0: for ever).
 */
int spawn_run(const struct workdir *dir, const char *program, char *const *argv, uint64_t most_us);
/* Bytes of memory that the largest of the programs since the last call had at most. */
uint64_t spawn_take_peak(void);
/* Returns the output of the last program, cut at 1 MiB; malloc'd, NULL without memory. */
char *spawn_log(const struct workdir *dir);

#endif
