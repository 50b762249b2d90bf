/*
 * tier: generic now, exact later.  A prepared call whose exact kernel is not in its device process
 * runs the generic one that does the same (plan.h, PLAN_GENERIC), which is there from the start or
 * is compiled once for all shapes.  The exact kernel is looked for in the background; if the cache
 * has it, or once the calls have lost as much time to the generic kernel as a compile costs
 * (the rule of rent or buy: never more than twice what who knows the future would pay), it is
 * fetched, loaded when the device is quiet, and takes over between two launches.  The call keeps
 * its number.
 *
 *   tier.c         what is known of kernels without their keys; which of the two a launch has
 *   fetch.c   the background: looking, compiling, loading, taking over
 *   warm.c    generic kernels from the start
 *   shapes.c  what a session's shapes vary in, and the budget of exact kernels
 */
#ifndef KILN_DAEMON_TIER_H
#define KILN_DAEMON_TIER_H

#include "daemon/broker/kernels/job.h"
#include "daemon/broker/requests/session.h"

enum tier_stage {
	TIER_NEW,     /* not looked for yet */
	TIER_MISSING, /* the cache has it not */
	TIER_READY,   /* it has */
	TIER_FAILED,  /* it does not compile, or does not load */
};

/* A kernel by what it is made of: hashing all sources for its key takes longer than a launch. */
struct tier_kernel {
	struct turn_item waiting; /* the first member: what turns_take() gives */
	unsigned char name[32];   /* hash of target, source, instantiation and what was generated */
	char op[24];
	char key[KERNEL_KEY_HEX]; /* "": not known */
	char compiler[96];        /* that the key names */
	int64_t object_bytes;
	enum tier_stage stage;
	int holders;   /* tiers that name it */
	uint64_t uses; /* of the generic kernel in its stead */
	double lost_us;
	struct tier *tiers; /* those that it has not taken over yet */
	/* In the background, one thing at a time. */
	struct turn_place place; /* of the asker */
	bool compile;
	struct kernel_ref *fetching;
	struct job_wait *wait;
	uint64_t asker; /* session */
	int loads;
	struct broker *broker;
};

/* Of a planned kernel that has a generic one beside it. */
struct tier {
	struct kernel_ref *ref; /* whose this is: the exact one */
	struct kernel_ref *generic;
	struct tier_kernel *exact;
	bool taken_over;
	uint64_t session, call; /* whose variant it is; 0: of no call yet */
	double ratio;           /* time of a launch of the generic kernel to one of the exact */
	double saving_us;       /* what the exact one would save a launch; 0: nothing */
	struct tier *next;      /* of exact */
	struct tier **link;     /* what points to this one there; NULL: it is in no list */
};

void tiers_open(struct broker *broker);
/* Stops what is under way in the background. */
void tiers_stop(struct broker *broker);
void tiers_free(struct broker *broker); /* after the loop has ended, and after devices_free() */

/* What --specialize comes to for a session. */
enum options_specialize tier_policy(const struct session *session);

/* What a call is answered with. */
enum tier_answer {
	TIER_NONE,    /* there is only the exact kernel */
	TIER_EXACT,   /* it is in the device process */
	TIER_GENERIC, /* it is not, but the generic one is */
	TIER_WAIT,    /* neither is */
};
/* Gives ref a tier if a generic kernel can stand in for it.  Asks nobody and waits for nothing. */
enum tier_answer tier_open(struct session *session, const struct kernel_problem *problem,
						   struct kernel_ref *ref);
/* Of kernel_drop(); takes NULL. */
void tier_close(struct tier *tier);
/* The ref is a variant of this call from now on, and its exact kernel is looked for. */
void tier_attach(struct session *session, uint64_t call, struct kernel_ref *ref);
/* Which kernel a launch has: ref itself or its generic one. */
struct kernel_ref *tier_choose(struct session *session, struct kernel_ref *ref);
/* The same of what is made once to be launched often, and may wait: the exact one where there may
 * be one. */
struct kernel_ref *tier_choose_lasting(struct session *session, struct kernel_ref *ref);
/* The kernel of a ref has been found or compiled: it will be known without its key. */
void tier_know(struct broker *broker, const struct kernel_ref *ref, int64_t object_bytes);
/* A device process is ready: exact kernels that its calls wait for are loaded there, for what was
 * on its way to the process before has ended with that. */
void tier_resume(struct broker *broker, const struct device_handle *executor);
/* So many launches of the generic kernel in the place of this one's. */
void tier_used(struct session *session, struct kernel_ref *ref, uint64_t launches);
/* The device process tells of lane launches when there were so many; 0: never. */
uint64_t tier_notice(struct session *session, const struct kernel_ref *ref);

/* For explain: the line about the tiers, "" where there is none; and for programs. */
void tier_explain(struct session *session, const struct kernel_problem *problem,
				  const struct kernel_limits *limits, const struct kernel_ref *ref,
				  struct wire_out *out, char *text, size_t size);

/* ---- warm.c ---- */

/* A device process is ready: it is given the generic kernels, one after another. */
void tier_warm(struct broker *broker, struct device_handle *executor);
/* This process ends for good, and what was on its way there as a message has been answered. */
void tier_warm_forget(struct broker *broker, struct device_handle *executor);
/* How many there are in all for the devices that are there, and in how many device processes each
 * of them is. */
struct tier_warmth {
	uint64_t kernels, resident, failed;
	bool warming;
};
void tier_warmth(struct broker *broker, struct tier_warmth *out);
void tier_warm_stop(struct broker *broker);
void tier_warm_free(struct broker *broker);

/* ---- shapes.c ---- */

/* A problem that a session has prepared, and its kernel. */
void shapes_note(struct session *session, const struct kernel_problem *problem,
				 const struct kernel_ref *ref);
/* Whether the session may have one more exact kernel of this operator; counts it. */
bool shapes_may_specialize(struct session *session, const char *op);
/* A compile for it took so long. */
void shapes_note_compile(struct session *session, const char *op, int64_t micros);
bool shapes_widened(const struct session *session, const char *op);
/* Member "shapes": what varied, for each operator. */
void shapes_put(const struct session *session, struct wire_out *out);
void shapes_free(struct session *session);

/* ---- Shared by the files above ---- */

#define TIER_FETCHES 4   /* under way at a time */
#define TIER_MIN_USES 16 /* before a compile is thought of */

struct tiers {
	struct map kernels; /* by name */
	size_t kept;        /* of them, when room was last made */
	struct turns turns; /* of kernels that wait to be fetched */
	int fetches;
	uv_timer_t timer;
	struct warming *warming;
	bool stopped;
	struct {
		uint64_t count;
		double micros;
	} compiles[2]; /* NVRTC's, the host compiler's */
};

/* What is known of it, made if need be. */
struct tier_kernel *tier_find(struct broker *broker, const struct kernel_ref *ref);
/* Its module in the process; 0: it is not there. */
uint64_t tier_module(struct broker *broker, struct device_handle *executor,
					 const struct tier_kernel *kernel);
/* The exact kernel of a call is to be looked for, or compiled. */
void tier_enqueue(struct session *session, struct kernel_ref *ref, bool compile);
/* Whether it has been used enough to be compiled: then it is enqueued. */
void tier_consider(struct session *session, struct kernel_ref *ref);
void tier_take_over(struct session *session, struct tier *tier);
/* Microseconds that a compile costs whoever waits for nothing. */
double tier_compile_cost(struct broker *broker, const char *target);
void tier_note_compile(struct broker *broker, const char *target, int64_t micros);

#endif
