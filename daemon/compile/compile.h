/*
 * compile: from a source and an instantiation to an object, for one target; runs in a worker
 * process.
 *
 * In reading order:
 *   sources.c   the kernel sources, embedded or from --kernel-dir, and what a file includes
 *   scan.c      finds the #include lines of a source
 *   unit.c      the one text a compiler sees
 *   user.c      the part of it that a user wrote: includes, line numbers; include_once.c:
 *               which headers count once
 *   shared_arrays.c      dynamic shared memory in users' sources, for the cpu device
 *   options.c   the options each compiler gets
 *   key.c       everything that can change the bits, as a text and its hash; and back
 *   key_diff.c  what two such texts differ in, in words; template_diff.c: two template-ids
 *   reproduce.c what a compiler was told, from a key
 *   nvrtc.c     CUDA C++ to cubin; nvrtc_library.c finds libnvrtc, nvrtc_headers.c gives it headers
 *   hostcc.c    the same source to a host shared object; spawn.c runs the compiler
 *   compiler_identity.c  who a compiler is, by the content of its files
 *   compiler_folders.c   what a host compiler may read
 *   compile_memory.c     how much memory a compile takes
 *   job.c       the messages between broker and worker
 *   worker.c    the worker's main loop
 *
 * Knows nothing of plans, caches or devices.
 */
#ifndef KILN_DAEMON_COMPILE_H
#define KILN_DAEMON_COMPILE_H

#include "daemon/plan/kernel.h"
#include "../sandbox/sandbox.h"

/* ---- Sources ---- */

#define COMPILE_MAX_HEADERS 64 /* files of a shipped kernel */

struct compile_file {
	const char *name; /* as written in #include: "common/vec.cuh" */
	/* bytes of them; not zero-terminated when it came in a message; NULL: in the job's texts_fd */
	const char *text;
	size_t bytes;
	const char *hash; /* of text, as the key has it; NULL: whoever needs it makes it */
};

struct compile_sources; /* all kernel files */

/* directory NULL: the embedded ones.  KILN_EIO names the file. */
int compile_sources_open(const char *directory, struct compile_sources **out,
						 char error[KERNEL_ERROR_MAX]);
void compile_sources_close(struct compile_sources *sources);
const struct compile_file *compile_sources_find(const struct compile_sources *sources,
												const char *name);
/* File i in the order of names, NULL past the end. */
const struct compile_file *compile_sources_at(const struct compile_sources *sources, size_t i);
/*
 * The file and all that it includes (#include "name", resolved from the root of kernel_src,
 * whatever #if stands around it), each once, headers before their users.  For target "cpu" what
 * stands for the device (cpu/shim.cuh and what it includes) comes first.  files is room for
 * COMPILE_MAX_HEADERS.  KILN_ENOENT, KILN_EINVAL (a cycle, an include of another form) or
 * KILN_ELIMIT, with a sentence.
 */
int compile_sources_closure(struct compile_sources *sources, const char *name, const char *target,
							const struct compile_file **files, int *count,
							char error[KERNEL_ERROR_MAX]);

/* Does so for a plan's source; the code that the planner wrote follows as file COMPILE_GENERATED,
 * whose text stays the plan's. */
int compile_sources_of_plan(struct compile_sources *sources, const struct kernel_plan *plan,
							const char *target, struct compile_file *files, int *count,
							char error[KERNEL_ERROR_MAX]);
#define COMPILE_GENERATED "generated.cuh"

/* ---- Jobs ---- */

struct compile_macro {
	const char *name, *value;
};

struct compile_job {
	char target[KERNEL_TARGET_MAX];
	const char *source;        /* name of the file with the template: "ops/permute.cuh" */
	const char *instantiation; /* template-id */
	const struct compile_file *files;
	int file_count;
	/* 0: a template of ours, and files follow one another.  Else the last so many files are a
	 * user's: the source, and then what it may include; those before stand for the device. */
	int user_files;
	/* The compiler finds a user's headers by their names; else they are put in place.  For target
	 * cpu they are put in place all the same, and __has_include is answered. */
	bool by_name;
	/* Unless -1 or 0: a sealed memfd with the files that have no text here, one after another. */
	int texts_fd;
	const struct compile_macro *macros; /* a user's */
	int macro_count;
	const char *const *options; /* a user's, allowed by compile_check_user */
	int option_count;
	bool whole;        /* the one file is a unit as another job made it, for the same options */
	bool check;        /* target cpu: accesses are checked while the kernel runs */
	uint32_t delay_ms; /* test-only */
	int test_misdeed;  /* test-only: an enum misdeed (daemon/base/misdeed.h) */
};

#define COMPILE_MAX_FILES 2176 /* of a job: 2048 headers of a user, and what comes with kilnd */
#define COMPILE_MAX_TEXTS (32u << 20) /* bytes of texts_fd */
#define COMPILE_MAX_MACROS 64
#define COMPILE_MAX_USER_OPTIONS 16
#define COMPILE_MAX_UNIT (16u << 20) /* bytes of a user's unit, all includes in place */
#define COMPILE_MAX_INCLUDES 1000000 /* lines that are looked at while it is made */

/* Checks the names, macros and options of a user's job.  KILN_OK or KILN_EINVAL with a sentence. */
int compile_check_user(const struct compile_job *job, char error[KERNEL_ERROR_MAX]);

#define COMPILE_PLACED_MOST 48 /* 32 headers, the source, and short forms of the system's headers */
#define COMPILE_PLACED_BYTES ((size_t)512 << 10)
/* Must a job be by_name?  Where headers are many or long, and where an include depends on macros or
 * on __has_include, no text in which they are put in place stands for them. */
bool compile_wants_names(const struct compile_job *job);

/* The whole text for the compiler, malloc'd; without the headers of a job by name.  KILN_OK,
 * KILN_EINVAL (what of the job is wrong), KILN_ENOMEM. */
int unit_make(const struct compile_job *job, char **text, char error[KERNEL_ERROR_MAX]);

/* A worker can tell these parts of a compile apart, in this order. */
enum compile_phase {
	COMPILE_SOURCES,  /* the unit is put together of source and headers */
	COMPILE_COMPILER, /* nvrtcCompileProgram(), or the host's compiler from its start to its end */
	COMPILE_LOG,
	COMPILE_NAMES,  /* nvrtcGetLoweredName() */
	COMPILE_OBJECT, /* the cubin, or the shared object, is taken */
	COMPILE_PHASES,
};
extern const char *const compile_phase_names[];
/* Microseconds of the monotonic clock; 0: there was no such phase. */
struct compile_span {
	uint64_t begin_us, end_us;
};

struct compile_result {
	int status; /* KILN_OK; KILN_ECOMPILE (log has the compiler's words); KILN_ENOTSUP (no such
				   compiler or target); KILN_EINVAL (the job); KILN_ENOMEM; KILN_EIO */
	char error[KERNEL_ERROR_MAX];
	char *entry;
	char *source; /* the translation unit */
	char *log;
	void *object;
	size_t object_bytes;
	int64_t registers, shared_bytes, spill_bytes, local_bytes; /* -1: not known */
	int64_t micros;                                            /* inside the compiler */
	struct compile_span spans[COMPILE_PHASES];
	int64_t peak_bytes; /* of memory, above what the worker had before; 0: not known */
	/* The reason of the failure lies outside of the job and may pass; in no message. */
	bool maybe_external;
};
/* Makes a result without figures and texts; what it held is not freed. */
void compile_result_begin(struct compile_result *result);
void compile_result_free(struct compile_result *result);

/* Removes the directories of this user's workers that were killed: the lock of such a directory is
 * gone with its worker. */
void compile_sweep(void);

/* The compiler, which is part of the key.  Empty id: there is no such compiler here, and reason
 * tells why. */
struct compile_toolchain {
	char id[96];    /* "nvrtc 13.0 5f2a...": version and content hash of library and builtins */
	char stamp[96]; /* of the files behind id; see below */
	char reason[KERNEL_ERROR_MAX];
	char targets[256]; /* "sm_75 sm_80 ..." */
};
struct compile_toolchains {
	struct compile_toolchain nvrtc, host;
	char sandbox[SANDBOX_TEXT]; /* what holds the worker that says so */
};
/*
 * Hashing a compiler takes 0.2 s, so a worker may be told the answer of an earlier one:
 * KILN_NVRTC_ID and KILN_CXX_ID in its environment, each "<stamp>:<id>", are believed when the
 * stamp fits the files it finds.  Tests, which start hundreds of daemons, give them to each.
 */
#define COMPILE_NVRTC_ID "KILN_NVRTC_ID"
#define COMPILE_CXX_ID "KILN_CXX_ID"

/* ---- Key ---- */

struct compile_key {
	char hex[KERNEL_KEY_HEX]; /* BLAKE2b-256 of text */
	char *text;               /* malloc'd */
};
/* id: the id of the toolchain that will compile.  KILN_OK or KILN_ENOMEM. */
int compile_key_make(const struct compile_job *job, const char *toolchain_id,
					 struct compile_key *out);
/* The key of the same, for another target of its kind or by another compiler: from the text of its
 * key.  KILN_OK or KILN_ENOMEM. */
int compile_key_again(const char *key_text, const char *target, const char *toolchain_id,
					  struct compile_key *out);
void compile_key_free(struct compile_key *key);

/* Tells in words how one key differs from another. */
#define COMPILE_DIFFERENCES 24
struct compile_difference {
	/* "target", "compiler", "option", "source", "kernel", "argument", "macro", "header", ... */
	const char *what;
	char text[256]; /* "option --use_fast_math added", "target sm_80 instead of sm_90" */
};
struct compile_differences {
	struct compile_difference items[COMPILE_DIFFERENCES];
	int count, left_out;
	int distance; /* 0: the same */
};
/* Both are texts of keys; files are those of the first, where names of template parameters are
 * looked up. */
void compile_key_differences(const char *asked, const char *other, const struct compile_file *files,
							 int file_count, struct compile_differences *out);

/* The job that a key and the unit that was compiled then are of, to be compiled once more. */
struct compile_again {
	struct compile_job job;
	char toolchain[96]; /* id of the one that compiled it */
	struct compile_file unit;
	const char *options[COMPILE_MAX_USER_OPTIONS];
	char *text; /* what the strings point to */
};
/* key_text: of a compile_key; unit: the result's source, which must live as long.  KILN_OK;
 * KILN_ENOTSUP with a sentence where this kilnd would give the compiler other options, or does not
 * know the key; KILN_ENOMEM. */
int compile_again_open(const char *key_text, const char *unit, struct compile_again *out,
					   char error[KERNEL_ERROR_MAX]);
void compile_again_close(struct compile_again *again);
/* Visits the arguments that the compiler of this key was given, in their order; optional ones only
 * where it knows them.  Fails as compile_again_open(). */
typedef void (*compile_argument_visit)(void *arg, const char *argument, bool optional);
int compile_arguments(const char *key_text, compile_argument_visit visit, void *arg);

/* ---- Back ends, called in the worker only ---- */

/* libnvrtc: $KILN_NVRTC (file or directory), beside the binary, $KILN_CUDA_DIR, the build tree, the
 * loader's path, usual toolkit places.  Takes NVRTC_* and CUDA_* out of the environment. */
int nvrtc_open(struct compile_toolchain *out);
/* Compiles something trivial, so that the first job is not slow. */
void nvrtc_warm(void);
void nvrtc_compile(const struct compile_job *job, struct compile_result *out);

/* $KILN_CXX, g++, c++, clang++.  Compiles something empty.  KILN_EIO: the system gives no process
 * for it now; another failure is for good. */
int hostcc_open(struct compile_toolchain *out);
void hostcc_compile(const struct compile_job *job, struct compile_result *out);
/* False when the compiler's files are not those that were identified: jobs then end in KILN_EIO,
 * and only a new worker helps. */
bool hostcc_is_current(void);
/* Removes the private directory. */
void hostcc_close(void);

/* ---- Worker process and its messages (wire maps on a frame socket) ---- */

/*
 * Worker -> broker, once:
 *   {"t": "ready", "id": 0, "build": of kilnd, "nvrtc": {"id", "stamp", "reason", "targets"},
 *    "host": {...}}
 * Broker -> worker:
 *   {"t": "job", "id", "target", "source", "inst", "files": [{"n", "b"}], "user",
 *    "names", "macros": [{"n", "v"}], "options": [{"o"}], "check", "whole", "delay", "misdeed"}
 *   A file with "c", its bytes, in place of "b" lies in the memfd that comes along.
 * Worker -> broker:
 *   {"t": "result", "id", "st", "err", "entry", "source", "log", "object", "regs", "shared",
 *    "spill", "local", "us", "grew", "phases": [begin and end of each]}
 * The readers answer KILN_OK, KILN_EPROTO, KILN_ENOMEM.
 */
struct wire_in;
struct wire_out;
void compile_ready_write(struct wire_out *out, const struct compile_toolchains *toolchains);
int compile_ready_read(struct wire_in *in, struct compile_toolchains *toolchains);
void compile_job_write(struct wire_out *out, uint64_t id, const struct compile_job *job);
/* Room for what a job points to, which all is in the message. */
struct compile_job_room {
	struct compile_file files[COMPILE_MAX_FILES];
	struct compile_macro macros[COMPILE_MAX_MACROS];
	const char *options[COMPILE_MAX_USER_OPTIONS];
};
int compile_job_read(struct wire_in *in, uint64_t *id, struct compile_job *job,
					 struct compile_job_room *room);
/* Reads the files that lie in the descriptor: *texts, malloc'd, or NULL where there are none.
 * KILN_OK, KILN_EPROTO or KILN_ENOMEM. */
int compile_job_texts(int fd, struct compile_job *job, struct compile_job_room *room, char **texts);
void compile_result_write(struct wire_out *out, uint64_t id, const struct compile_result *result);
int compile_result_read(struct wire_in *in, uint64_t *id,
						struct compile_result *result); /* copies */

#define COMPILE_MESSAGE_MAX (64u << 20) /* bytes of any of them */

struct compile_worker_options {
	int sock;              /* frame socket to the broker */
	uint64_t memory_bytes; /* RLIMIT_AS above what the warm process uses; 0: none */
	uint32_t cpu_seconds;  /* RLIMIT_CPU for the whole life; 0: none */
	uint32_t beat_ms;      /* how often it says that it lives, while it compiles; 0: never */
	enum sandbox_mode sandbox;
	int test_misdeed; /* test-only: an enum misdeed, in place of saying that it is ready */
};
/* The worker's main: identifies, warms, limits itself, then answers jobs until the socket ends.
 * Returns the exit status. */
int compile_worker_main(const struct compile_worker_options *options);

#endif
