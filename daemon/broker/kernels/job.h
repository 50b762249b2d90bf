/*
 * job: the conductor: from a problem to a compiled kernel.
 *
 *   job_open      plans (pure, at once)
 *   job_resolve   key -> cache -> compile -> cache, one lookup a key, all waiters answered
 *
 * Four modules that do not know each other (plan, compile, cache, exec) meet here and in work.c.
 */
#ifndef KILN_DAEMON_JOB_H
#define KILN_DAEMON_JOB_H

#include "daemon/broker/broker.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/pool/pool.h"
#include "tuned.h"

/* A planned kernel: what a prepared call and the lookups that compile it hold together.  Counted.
 */
struct kernel_ref {
	int holders;
	struct tuned_note *tuned;    /* NULL: the table has nothing to say of it */
	struct kernel_limits limits; /* that it was planned for */
	char target[KERNEL_TARGET_MAX];
	char *explain; /* made by kernel_text() */
	char *line;    /* how the kiln command would ask for it; NULL: nobody will want to know */
	/* The problem, as a manifest has it; NULL: a user's kernel, or it has no room. */
	char *manifest;
	/* Filled by the first job_resolve, for plans that launch a kernel. */
	char key[KERNEL_KEY_HEX];
	char *key_text;
	char compiler[96]; /* id of the one that the key names */
	struct compile_job job;
	struct compile_file *files;
	struct raw_source *raw;  /* of a user's kernel: what job and files point to */
	struct tally *tally;     /* of its operator, once something was counted there */
	struct tier *tier;       /* a generic kernel does the same; NULL: none is used (tier/tier.h) */
	struct kernel_plan plan; /* there is no memory behind what it has of it: kernel_plan_bytes() */
};

/* What a post-mortem says of a kernel; asked: what it stands in for, or the same. */
void kernel_describe(struct handle_about *about, const struct kernel_ref *kernel,
					 const struct kernel_ref *asked);

/* KILN_OK, or the planner's refusal with its sentence.  model: of the device that it is for, whose
 * winners of tuning are used; "": none. */
int job_open(struct broker *broker, const struct kernel_problem *problem,
			 const struct kernel_limits *limits, const char *model, struct kernel_ref **out,
			 char error[KERNEL_ERROR_MAX]);
/* The same for a plan that is made already. */
int job_open_plan(struct broker *broker, const struct kernel_plan *plan,
				  const struct kernel_limits *limits, struct kernel_ref **out,
				  char error[KERNEL_ERROR_MAX]);
/* A ref with a copy of the plan and one holder, whose job has no files yet.  NULL without memory.
 */
struct kernel_ref *kernel_new(const struct kernel_plan *plan, const struct kernel_limits *limits);
/* Operand i's name in a list as plans have it, "x, mask?, y"; "operand 5" beyond it. */
const char *kernel_operand_name(const char *operands, int i, char name[24]);
/* The plan for people; "" without memory. */
const char *kernel_text(struct kernel_ref *ref);
struct kernel_ref *kernel_hold(struct kernel_ref *ref);
void kernel_drop(struct kernel_ref *ref);

#define JOB_ERROR_MAX 1024 /* of the sentences of answers */

enum job_origin { JOB_HIT, JOB_SHARED, JOB_COMPILED, JOB_GENERIC, JOB_REMOTE };
extern const char *const job_origin_names[];

struct job_answer {
	int status;
	enum job_origin origin;
	const struct cache_row *row; /* KILN_OK: the kernel; lives until the callback returns */
	const char *error, *log;     /* otherwise */
	bool remembered;             /* of an earlier compile that failed */
	int64_t micros;              /* since it was asked for */
};

struct job_wait;
typedef void (*job_done)(void *arg, const struct job_answer *answer);

/* Who asks for a kernel, and what it may cost. */
struct job_terms {
	struct session *asker; /* whose request it counts as, which must outlive it; NULL: nobody's */
	enum pool_priority priority;
	enum options_miss on_miss;
	const struct device_info *device; /* that it is for, of the asker's; NULL: none */
	bool look;       /* in the cache only; ENOENT: it is not there, and nothing is counted */
	bool unrecorded; /* it is not what a program asked for */
};

/*
 * Asks for the kernel of a plan (of kind KERNEL_LAUNCH).  done is called exactly once, unless
 * job_leave came first; never from inside job_resolve.  NULL without memory.
 */
struct job_wait *job_resolve(struct broker *broker, struct kernel_ref *ref,
							 const struct job_terms *terms, job_done done, void *arg);
/* Counts a request that was answered at once, by a kernel that the device process has. */
void job_count_resident(struct broker *broker, struct kernel_ref *ref, struct session *asker,
						enum job_origin origin, uint64_t micros);
/* The terms on which a session asks for the kernels that its requests need. */
struct job_terms job_terms_of(struct session *session);
/* A kernel was loaded, which began at this moment: counted for the session and the operator. */
void job_note_load(struct session *session, struct kernel_ref *ref, uint64_t began_us);
/* No longer interested; the last one to leave cancels the compile. */
void job_leave(struct broker *broker, struct job_wait *wait);

/* The key of a plan as things are now (the compilers must be known): hex, "" if there is no
 * compiler for the target. */
void job_key(struct broker *broker, struct kernel_ref *ref);
/* The key that another thread made for this compiler; takes its text over. */
void job_set_key(struct kernel_ref *ref, const struct compile_key *key, const char *compiler);
/* The id of the compiler for a target as things are now; "": there is none, or none is known. */
const char *job_compiler(struct broker *broker, const char *target);

/* What a compile has given moves into a row: entry, texts, object, figures, time. */
void job_take_result(struct cache_row *row, struct compile_result *result);

/* Where launches and loads of it are counted. */
struct tally *job_tally(struct broker *broker, struct kernel_ref *ref);

/* A kernel that is looked for or compiled. */
struct job_lookup {
	const char *key, *op, *target;
	bool elsewhere;            /* being looked for on other hosts */
	bool compiling, on_worker; /* else: being looked for; waiting for a worker */
	uint64_t owner;            /* session; 0: nobody who is counted waits */
	int waiters;
	uint64_t age_us;
};
typedef void (*job_visit)(void *arg, const struct job_lookup *lookup);
void job_each(const struct broker *broker, job_visit visit, void *arg);

bool job_busy(const struct broker *broker);
void job_close(struct broker *broker); /* forgets all lookups, unanswered */

/* A device process cannot load what the cache has of this key: whoever asks next has it compiled
 * again. */
void job_distrust(struct broker *broker, const char *key, const char *why);

void job_waits(const struct broker *broker, waits_visit visit, void *arg);

#endif
