/* planned: from a message to a problem and its plan, for the requests that need one. */
#ifndef KILN_DAEMON_PLANNED_H
#define KILN_DAEMON_PLANNED_H

#include "daemon/broker/calls/buffer.h"
#include "daemon/broker/kernels/job.h"
#include "daemon/broker/requests/request.h"

struct planned {
	struct kernel_problem problem;
	int given; /* tensors of the request; the problem has all of the operator's */
	struct kernel_limits limits;
	struct kernel_ref *ref;                            /* the caller holds it */
	struct work_operand operands[KERNEL_MAX_OPERANDS]; /* of ref's plan, those that were named */
	bool placed;                                       /* operands has all that a launch needs */
	bool made;                                         /* and the client knows those buffers */
	bool first; /* ref is the generic kernel, and the exact one is not planned (tier_first) */
};

/* Plans the problem of a message; KILN_OK, or a status with a sentence.  launched: it is to be
 * launched, so no output may be left out that follows from the inputs. */
int planned_open(struct session *session, struct wire_in *message, const char *target,
				 bool launched, struct planned *out, char error[KERNEL_ERROR_MAX]);
/* Finds the limits to plan for, and the model: of the session's device, or of a target that may
 * not be here.  KILN_ECANCELED while the daemon drains. */
int planned_limits(struct session *session, const char *target, struct kernel_limits *limits,
				   const char **model, char error[KERNEL_ERROR_MAX]);
/* False: the session may have no further prepared call, and was told so. */
bool planned_may_be_kept(struct session *session, uint64_t id);
/* The same for a call that its lane has already, as lane_untold() counts. */
bool planned_may_be_told(struct session *session, uint64_t id);
/* "nothing", "copy" or "launch" */
const char *planned_kind_name(const struct kernel_plan *plan);

#endif
