/*
 * lane: the memory through which a client launches without messages (client/wire/lane_memory.h), as
 * far as the broker has a part in it.
 */
#ifndef KILN_DAEMON_LANE_H
#define KILN_DAEMON_LANE_H

#include "call.h"
#include "daemon/broker/devices/wait_note.h"

/* Adds what went through it to the counters of the broker and the session.  Returns how many of its
 * launches have not ended. */
uint64_t lane_count(struct session *session);
/* Says whether something is under way in the session's lane, as far as its client says. */
bool lane_works(const struct session *session);
/* Launches under way, entries that wait for a ready word, and for another entry. */
#define LANE_NOTES 3
int lane_waits(const struct session *session, struct wait_note notes[LANE_NOTES]);
/* Forgets it; the client is not told. */
void lane_drop(struct session *session);
/* If the device process is another one now, drops the lane and tells the client why. */
void lane_check(struct session *session, const char *why);
/* Lets the device process take no more entries.  When those that it took have ended, the client is
 * told.  lane_busy() is true until then. */
void lane_end(struct session *session);
/* Ends the lanes of all sessions; false if there is none. */
bool lanes_end(struct broker *broker);
bool lane_busy(const struct session *session);

/* ---- Its calls (lane_bind.c) ---- */

/* Binds the first call of a shape to a lane that is there, and answers at once: its client launches
 * it through the lane.  False, and nothing is answered, where that cannot be: not all that it needs
 * is in the device process. */
bool lane_offer(struct session *session, uint64_t ticket, struct call *call, struct kernel_ref *ref,
				const struct work_operand *operands);
/* Whether a new call may have this number: the client tells once, and in order, of the calls that
 * the device process has bound at the lane's desk. */
bool lane_may_tell(const struct session *session, uint64_t number);
/* Takes over such a call; lane_may_tell() has allowed its number. */
void lane_bound_itself(struct session *session, struct call *call);
/* Gives up a call that was bound there and has not been told of. */
void lane_unbind_number(struct session *session, uint64_t number);
/* How many such calls there are. */
uint64_t lane_untold(const struct session *session);
/* Lets the desk bind as many calls as the session may still have. */
void lane_grant(const struct session *session);
/* The device process has launched a call and could not bind it to the lane of this stream. */
void lane_unbound(struct broker *broker, const struct device_handle *executor, uint64_t stream,
				  const char *why);
/* The device process ran so many launches of the call under the name "bound". */
void lane_used(struct broker *broker, const struct device_handle *executor, uint64_t stream,
			   uint64_t call, uint64_t bound, uint64_t launches);
/* The variant of this call has another kernel now, and so it has in the lane. */
void lane_promote(struct session *session, uint64_t call, const struct kernel_ref *variant);
/* The call is gone: the device process forgets it. */
void lane_unbind(struct session *session, const struct call *call);
/* Asks the device process not to run these entries.  False: it has too much of that kind to do. */
bool lane_cancel(struct session *session, uint64_t number, uint64_t count);

#endif
