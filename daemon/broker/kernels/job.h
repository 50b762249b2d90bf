/*
 * job: from a problem to a compiled kernel.
 *
 *   job_open      plans: pure, and at once
 *   job_resolve   makes the key, asks the cache and the remote tier, compiles, keeps the kernel;
 *                 one lookup a key answers all who wait for it (lookup.h)
 *
 * The planner, the compiler and the cache do not know each other: they meet here.
 */
#ifndef KILN_DAEMON_JOB_H
#define KILN_DAEMON_JOB_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/pool/alt_compiler.h"
#include "daemon/broker/requests/recent.h"
#include "tuned.h"

/* A row of the cache keeps this to compile its kernel once more. */
struct kernel_unit {
	struct compile_again again; /* points into the texts */
	char *key_text, *source;
};

/* A planned kernel.  Calls, works, graphs, requests, waits, lookups and tiers hold it.
 * kernel_drop() of the last hold frees it with all that it points to, except tally.  The loop alone
 * holds and drops it.  While a wait is in KEY, a worker thread reads its sources; raw_fill()
 * completes a user's kernel on such a thread. */
struct kernel_ref {
	int holders;
	struct tuned_note *tuned;    /* NULL: the table of winners has no row for it */
	struct kernel_limits limits; /* of the target that it was planned for */
	char target[KERNEL_TARGET_MAX];
	char *explain; /* made by kernel_text() */
	char *line;    /* the kiln command that makes it; NULL: no refusal will quote it */
	/* The problem as a line of a manifest; NULL: a user's kernel, or the line is too long. */
	char *manifest;
	/* Filled by the first job_resolve(), and anew when the compiler changes. */
	char key[KERNEL_KEY_HEX];
	char *key_text;
	char compiler[96];      /* id of the compiler that the key names */
	unsigned char name[32]; /* made by tier_find() */
	bool named;
	struct compile_job job;
	struct compile_file *files;
	struct raw_source *raw;   /* a user's kernel: job and files point into it */
	struct kernel_unit *unit; /* a kernel of the cache: job points into it */
	struct tally *tally;      /* its operator's counters; NULL: not looked up yet */
	struct tier *tier;        /* the generic kernel that stands in for it (tier.h); NULL: none */
	void (*close_tier)(struct tier *tier); /* frees it, with the last hold */
	struct kernel_plan plan;               /* cut to kernel_plan_bytes(): the last member */
};

/* Fills in a post-mortem's note of a launch.  asked: the ref that kernel stands in for, or
 * kernel. */
void kernel_describe(struct handle_about *about, const struct kernel_ref *kernel,
					 const struct kernel_ref *asked);

/* Plans a problem: KILN_OK and one hold of *out, or the planner's refusal with its sentence.
 * model: the model of device whose tuned winners are used; "": none. */
int job_open(struct broker *broker, const struct kernel_problem *problem,
			 const struct kernel_limits *limits, const char *model, struct kernel_ref **out,
			 char error[KERNEL_ERROR_MAX]);
/* Like job_open(), for a problem that is planned already: a tuned winner may replace the plan.
 * Leaves out the line of a manifest. */
int job_open_exact(struct broker *broker, const struct kernel_problem *problem,
				   const struct kernel_limits *limits, const char *model, struct kernel_plan *plan,
				   struct kernel_ref **out, char error[KERNEL_ERROR_MAX]);
/* Like job_open_plan(), with the problem's line of a manifest. */
int job_open_generic(struct broker *broker, const struct kernel_problem *problem,
					 const struct kernel_plan *plan, const struct kernel_limits *limits,
					 struct kernel_ref **out, char error[KERNEL_ERROR_MAX]);
/* Notes that the loop planned since then: for the message that it handles, and in the trace. */
void job_note_plan(struct broker *broker, uint64_t began_ns, const char *op);
/* Like job_open(), for a plan that is made already. */
int job_open_plan(struct broker *broker, const struct kernel_plan *plan,
				  const struct kernel_limits *limits, struct kernel_ref **out,
				  char error[KERNEL_ERROR_MAX]);
/* Makes the kernel of a row of the cache once more, for a target of the same kind: a GPU, or cpu.
 * Takes the row's texts.  KILN_OK and one hold of *out; KILN_ENOTSUP where this kilnd gives the
 * compiler other options; KILN_ENOMEM; with a sentence. */
int job_open_row(struct cache_row *row, const char *target, struct kernel_ref **out,
				 char error[KERNEL_ERROR_MAX]);
/* Returns one hold of a ref with a copy of the plan; its job has no files yet.  NULL without
 * memory. */
struct kernel_ref *kernel_new(const struct kernel_plan *plan, const struct kernel_limits *limits);
/* Writes the name of operand i in a plan's list "x, mask?, y"; beyond the list, "operand 5". */
const char *kernel_operand_name(const char *operands, int i, char name[24]);
/* Returns the plan as a text for people, which lives with ref; "" without memory. */
const char *kernel_text(struct kernel_ref *ref);
struct kernel_ref *kernel_hold(struct kernel_ref *ref);
void kernel_drop(struct kernel_ref *ref);

#define JOB_ERROR_MAX 1024 /* bytes of an answer's sentence */

enum job_origin { JOB_HIT, JOB_SHARED, JOB_COMPILED, JOB_GENERIC, JOB_REMOTE };
extern const char *const job_origin_names[];

struct job_answer {
	int status;
	enum job_origin origin;
	/* KILN_OK, and JOB_VERIFY: the kernel, which lives until the callback returns. */
	const struct cache_row *row;
	const char *error, *log;        /* unless KILN_OK */
	bool remembered;                /* the failure is that of an earlier compile */
	int64_t micros;                 /* since job_resolve() */
	uint64_t remote_us, compile_us; /* of these: of the second tier, of a compile */
};

/* Adds an answer's time to the parts of the request that asked. */
void job_answer_note(const struct job_answer *answer, struct recent_parts *parts);

struct job_wait;
typedef void (*job_done)(void *arg, const struct job_answer *answer);

enum job_purpose {
	JOB_CALL, /* a program needs the kernel */
	JOB_WARM, /* like JOB_CALL, but the usage log does not record it */
	JOB_LOOK, /* asks only the cache: a miss is KILN_ENOENT, and is not counted */
	/* Fills the cache beside the calls.  Counts as no request, shares its lookup with none, asks no
	 * other host, and neither heeds nor leaves a remembered failure.  Its answer comes when the
	 * cache has the row; a kernel that was there already is answered with an empty row. */
	JOB_RECOMPILE,
	/* Compiles a kernel of job_open_row() by the compiler that made it, beside the calls, whatever
	 * the cache has, and keeps nothing.  The answer has the new row, whose compile_micros are set
	 * also when it does not compile; no row where that compiler is not here (KILN_ENOTSUP), or
	 * nothing could be compiled. */
	JOB_VERIFY,
};

/* The asker of a kernel, and what the kernel may cost. */
struct job_terms {
	/* The session that asks: the job takes its turns and counts as its request.  The session
	 * outlives the wait.  NULL: the broker asks, and counts nothing. */
	struct session *asker;
	enum job_purpose purpose;
	enum pool_priority priority;
	enum options_miss on_miss;
	const struct device_info *device; /* the asker's, that the kernel is for; NULL: none */
	struct alt_compiler *compiler;    /* JOB_RECOMPILE: taken by the asker; NULL: the pool's */
};

/*
 * Asks for the kernel of a plan of kind KERNEL_LAUNCH.  Calls done() exactly once, later and from
 * the loop, unless job_leave() comes first.  The wait holds ref.  NULL without memory.
 */
struct job_wait *job_resolve(struct broker *broker, struct kernel_ref *ref,
							 const struct job_terms *terms, job_done done, void *arg);
/* Calls done() before it returns, where the cache has the kernel in memory; false: nothing has
 * happened.  For calls, whose terms name an asker. */
bool job_resolve_kept(struct broker *broker, struct kernel_ref *ref, const struct job_terms *terms,
					  job_done done, void *arg);
/* Counts a request that a kernel in the device process answers at once. */
void job_count_resident(struct broker *broker, struct kernel_ref *ref, struct session *asker,
						enum job_origin origin, uint64_t micros);
/* The terms on which a session asks for the kernels that its requests need. */
struct job_terms job_terms_of(struct session *session);
/* Counts a load that began at this moment, for the session and the operator.  reply: the device
 * process's. */
void job_note_load(struct session *session, struct kernel_ref *ref, uint64_t began_us,
				   const struct wire_in *reply);
/* Frees the wait.  The last one to leave a lookup cancels its compile. */
void job_leave(struct broker *broker, struct job_wait *wait);

/* Sets ref's key for the compilers as they are now, which must be known; "" without a compiler for
 * the target. */
void job_key(struct broker *broker, struct kernel_ref *ref);
/* Sets the key that another thread made for this compiler; takes over key->text. */
void job_set_key(struct kernel_ref *ref, const struct compile_key *key, const char *compiler);
/* Returns the id of the compiler for a target; "": there is none, or none is known. */
const char *job_compiler(struct broker *broker, const char *target);

/* Returns the mean time of a compile for the target; `first_us` before one was measured. */
double job_compile_us(const struct broker *broker, const char *target, double first_us);

/* Returns the counters of ref's operator. */
struct tally *job_tally(struct broker *broker, struct kernel_ref *ref);

/* A lookup, for people.  The last two steps are those of a compile. */
enum job_step { JOB_STEP_CACHE, JOB_STEP_REMOTE, JOB_STEP_QUEUED, JOB_STEP_COMPILING };
extern const char *const job_step_names[];

struct job_lookup {
	const char *key, *op, *target;
	enum job_step step;
	uint64_t owner; /* session whose compile it is; 0: no wait is counted */
	int waiters;
	uint64_t age_us;
};
typedef void (*job_visit)(void *arg, const struct job_lookup *lookup);
void job_each(const struct broker *broker, job_visit visit, void *arg);

bool job_busy(const struct broker *broker);
void job_close(struct broker *broker); /* drops all fetches and compiles, unanswered */

/* A device process cannot load the object of this key: the cache drops it, and the next request
 * compiles it anew. */
void job_distrust(struct broker *broker, const char *key, const char *why);

/* Visits a note of what each wait waits for. */
void job_waits(const struct broker *broker, waits_visit visit, void *arg);

#endif
