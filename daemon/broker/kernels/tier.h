/*
 * tier: generic now, exact later.  A prepared call whose exact kernel is not in its device process
 * runs the generic kernel that does the same (plan.h, PLAN_GENERIC), which is there from the start
 * or is compiled once for all shapes.  The exact kernel is looked for in the background.  When the
 * cache has it, or when the calls have lost as much time to the generic kernel as a compile costs,
 * it is fetched, loaded when the device is quiet, and takes over between two launches.  (The rule
 * of rent or buy: it never costs more than twice the best choice in hindsight.)  The call keeps its
 * number.
 *
 *   tier (of one planned kernel):
 *     LOOSE --tier_attach--> WAITING --the exact kernel is loaded--> PROMOTED
 *       |                       ^                                       |
 *       |                       +--the device process has lost it-------+
 *       +--tier_open finds the exact kernel loaded--> PROMOTED
 *
 * The first call of a shape may be launched before its exact kernel is planned (tier_first): until
 * then there is no tier, and the call has the generic kernel alone.
 *
 *   tier_kernel (one exact or generic kernel, whatever its key), in stages:
 *     NEW --fetched: the cache has it--> READY          READY --it cannot be loaded--> FAILED
 *     NEW --the cache has it not-------> MISSING
 *     MISSING --used enough, compiled--> READY, or FAILED when it does not compile
 *   and its fetch, to look into the cache or to compile:
 *     NONE --tier_enqueue--> QUEUED --its turn--> UNDER_WAY --the job ends--> NONE
 *     (any) --tiers_stop--> NONE
 *
 * Invariants: a LOOSE or WAITING tier launches the generic kernel, a PROMOTED one the exact kernel.
 * Exactly the WAITING tiers are in the list of their exact kernel.  A kernel has places in the
 * turns while its fetch is QUEUED, a job while it is UNDER_WAY, and holds `fetching` in both.
 * broker->tiers owns all kernels.  tier_find() makes one, and frees idle ones once there are too
 * many: those that are no tier's exact kernel, not queued, not fetched and not being loaded.
 * tiers_free() frees the rest.
 *
 *   tier.c         the choice between the two kernels of a launch
 *   tier_kernel.c  kernels found by what they are made of, and whether a device process has one
 *   tier_fetch.c   the background: looks, compiles, loads, takes over
 *   tier_warm.c    generic kernels from the start
 *   tier_object.c  the choice for launches in a program's own context
 *   tier_budget.c  the axes that a session's shapes vary in, and its budget of exact kernels
 */
#ifndef KILN_DAEMON_TIER_H
#define KILN_DAEMON_TIER_H

#include "daemon/broker/kernels/job.h"
#include "daemon/broker/requests/session.h"
#include "daemon/plan/plan.h"

enum tier_stage { TIER_NEW, TIER_MISSING, TIER_READY, TIER_FAILED };

enum tier_fetch { TIER_FETCH_NONE, TIER_FETCH_QUEUED, TIER_FETCH_UNDER_WAY };

enum tier_state { TIER_LOOSE, TIER_WAITING, TIER_PROMOTED };

/* A kernel, found by what it is made of: hashing all sources for its key takes longer than a
 * launch. */
struct tier_kernel {
	struct turn_item waiting; /* the first member: turns_take() returns its address */
	unsigned char name[32];   /* hash of target, source, instantiation and generated text */
	char op[24];
	char key[KERNEL_KEY_HEX]; /* "": unknown */
	char compiler[96];        /* that the key names */
	int64_t object_bytes;
	struct cache_row *object; /* tier_keep_object(): key, entry and object alone; or NULL */
	enum tier_stage stage;
	int holders;   /* tiers whose exact kernel it is */
	uint64_t uses; /* launches of the generic kernel in its stead */
	double lost_us;
	struct tier *tiers; /* the WAITING ones */
	int loads;          /* loads under way in device processes */
	enum tier_fetch fetch;
	enum job_purpose purpose;    /* of the fetch: JOB_LOOK, or JOB_CALL to compile */
	struct turn_place place;     /* QUEUED: the asker's, in tiers.turns */
	struct kernel_ref *fetching; /* QUEUED, UNDER_WAY: what the job makes */
	struct job_wait *wait;       /* UNDER_WAY */
	uint64_t asker;              /* session of the last tier_enqueue() */
	struct broker *broker;
};

/* The two kernels of one kernel_ref, which owns the tier. */
struct tier {
	struct kernel_ref *ref;     /* the owner: the exact kernel */
	struct kernel_ref *generic; /* held */
	struct tier_kernel *exact;
	enum tier_state state;
	uint64_t session, call; /* that it is a variant of; 0: none yet */
	double ratio;           /* time of a generic launch to that of an exact one */
	double saving_us;       /* that an exact launch saves; 0: nothing */
	uint64_t shape;         /* hash of the problem: tiers.promoted */
	struct tier *next;      /* in exact->tiers */
	struct tier **link;     /* the pointer to this tier there; NULL unless WAITING */
};

void tiers_open(struct broker *broker);
/* Stops all fetches. */
void tiers_stop(struct broker *broker);
/* Closes the handle of the loop, which runs until that is done. */
void tiers_close(struct broker *broker);
void tiers_free(struct broker *broker); /* after the loop's end and devices_free() */

/* The --specialize that holds for a session. */
enum options_specialize tier_policy(const struct session *session);

enum tier_answer {
	TIER_NONE,    /* there is only the exact kernel */
	TIER_EXACT,   /* the exact kernel is loaded */
	TIER_GENERIC, /* only the generic kernel is loaded */
	TIER_WAIT,    /* neither is loaded */
};
/* Gives ref a tier if a generic kernel can stand in for it.  It answers at once, from memory.
 * generic: what tier_first() gave; NULL: it is planned here. */
enum tier_answer tier_open(struct session *session, const struct kernel_problem *problem,
						   struct kernel_ref *ref, struct kernel_ref *generic);
/*
 * Planning the exact kernel takes several times longer than planning the generic one.  So the first
 * call of a shape is launched by the generic kernel, and the exact one is planned beside it
 * (calls/call_exact.c).  Returns one hold of the generic kernel if it is loaded in the session's
 * device process; NULL: the exact kernel has to be planned first, because it may be there, the
 * session waits for it, or nothing can stand in for it.
 */
struct kernel_ref *tier_first(struct session *session, const struct kernel_problem *problem);
/* Makes ref a variant of this call; from now on its exact kernel is looked for. */
void tier_attach(struct session *session, uint64_t call, struct kernel_ref *ref);
/* Chooses the kernel of a launch: ref itself or its generic kernel. */
struct kernel_ref *tier_choose(struct session *session, struct kernel_ref *ref);
/* Like tier_choose(), but for graphs, which are made once and launched often, and for programs that
 * know nothing of generic kernels: they wait for the exact kernel where there may be one. */
struct kernel_ref *tier_choose_lasting(struct session *session, struct kernel_ref *ref);
/* A job has given the kernel of ref: from now on it is found without hashing its sources. */
void tier_know(struct broker *broker, struct kernel_ref *ref, int64_t object_bytes);
/* A device process is ready: the exact kernels that its calls wait for are loaded there.  Loads
 * that its predecessor had begun ended with that. */
void tier_resume(struct broker *broker, const struct device_handle *executor);
/* Counts launches of the generic kernel in the stead of ref. */
void tier_used(struct session *session, struct kernel_ref *ref, uint64_t launches);
/* After how many launches through a lane the device process reports them; 0: never. */
uint64_t tier_notice(struct session *session, const struct kernel_ref *ref);
/* The same of a call whose exact kernel is not planned yet: what it gains is not known. */
uint64_t tier_first_notice(const struct session *session);

/* For explain: puts member "tiers", and writes the line about tiers, or "". */
void tier_explain(struct session *session, const struct kernel_problem *problem,
				  const struct kernel_limits *limits, const struct kernel_ref *ref,
				  struct wire_out *out, char *text, size_t size);

/* ---- tier_object.c ---- */

/* Chooses the kernel of launches in the program's own context.  TIER_EXACT: the cache should have
 * the exact kernel; TIER_WAIT: it may, and the generic one is not there. */
enum tier_answer tier_choose_object(struct session *session, struct kernel_ref *ref);
/* After how many launches of the generic kernel in its own context the program asks again; 0: no
 * better kernel comes. */
uint64_t tier_again(struct session *session, const struct kernel_ref *ref);
/* The cache has lost the exact kernel. */
void tier_missed(struct kernel_ref *ref);
/* Keeps a copy of a generic kernel's object while there is room: a read of the cache would wait for
 * the writes of exact kernels before it. */
void tier_keep_object(struct broker *broker, struct kernel_ref *generic,
					  const struct cache_row *row);
/* Returns what was kept, with key, entry and object alone, for this session's compiler; NULL:
 * nothing.  It lives until the loop's next turn. */
const struct cache_row *tier_object(struct session *session, struct kernel_ref *generic);

/* ---- tier_warm.c ---- */

/* A device process is ready: it gets the generic kernels, one after another. */
void tier_warm(struct broker *broker, struct device_handle *executor);
/* A program there waits for a kernel of this operator: its generic kernels are the next. */
void tier_warm_first(struct broker *broker, const struct device_handle *executor, const char *op);
/* The device process ends for good; its requests have been answered. */
void tier_warm_forget(struct broker *broker, struct device_handle *executor);
/* Generic kernels of all device processes: how many there are to be, are loaded, and failed. */
struct tier_warmth {
	uint64_t kernels, resident, failed;
	bool warming;
};
void tier_warmth(struct broker *broker, struct tier_warmth *out);
void tier_warm_stop(struct broker *broker);
void tier_warm_free(struct broker *broker);

/* ---- tier_budget.c ---- */

/* Notes the shapes of a problem that a session has prepared. */
void shapes_note(struct session *session, const struct kernel_problem *problem,
				 const struct kernel_ref *ref);
/* Says whether the session may have one more exact kernel of this operator, and counts it. */
bool shapes_may_specialize(struct session *session, const char *op);
/* Adds the time of a compile for the session. */
void shapes_note_compile(struct session *session, const char *op, int64_t micros);
bool shapes_widened(const struct session *session, const char *op);
/* Puts member "shapes": the axes that varied, for each operator. */
void shapes_put(const struct session *session, struct wire_out *out);
void shapes_free(struct session *session);

/* ---- Shared by the files above ---- */

#define TIER_FETCHES 4   /* under way at a time */
#define TIER_MIN_USES 16 /* launches before a compile may pay */
#define TIER_SELDOM \
	1000000000 /* launches until a program asks again where an exact kernel gains nothing */

struct tiers {
	struct map kernels; /* by name */
	size_t kept;        /* count of kernels when room was last made */
	struct turns turns; /* kernels that wait to be fetched */
	int fetches;
	uv_timer_t timer;
	struct warming *warming;
	uint64_t kept_bytes; /* of objects that kernels keep */
	/* Problems whose exact kernel was loaded.  A first call of such a problem looks for that kernel
	 * before it takes the generic one. */
	uint64_t promoted[PLAN_HASHES];
	bool stopped;
};

/* tier_kernel.c */
void tier_kernel_assert_valid(const struct tier_kernel *kernel);
/* Finds the kernel of ref, or makes it; NULL without memory. */
struct tier_kernel *tier_find(struct broker *broker, struct kernel_ref *ref);
/* Its module in the device process; 0: it is not loaded. */
uint64_t tier_module(struct broker *broker, struct device_handle *executor,
					 const struct tier_kernel *kernel);
/* Gives ref the key that its kernel is known by. */
void tier_take_key(struct kernel_ref *ref, const struct tier_kernel *kernel);
/* Frees what tier_keep_object() kept. */
void tier_object_drop(struct tiers *tiers, struct tier_kernel *kernel);

/* tier_fetch.c */
/* Queues the exact kernel of ref: JOB_LOOK, or JOB_CALL to have it compiled. */
void tier_enqueue(struct session *session, struct kernel_ref *ref, enum job_purpose purpose);
/* Microseconds that a compile costs in the background. */
double tier_compile_cost(struct broker *broker, const char *target);

/* tier.c */
/* Queues the exact kernel for a compile if that pays by now. */
void tier_consider(struct session *session, struct kernel_ref *ref);
void tier_take_over(struct session *session, struct tier *tier);

#endif
