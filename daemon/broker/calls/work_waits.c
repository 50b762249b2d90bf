/* work_waits.c: says what each work of a session waits for. */
#include "work_waits.h"

#include "work_state.h"

static struct wait_note note_of(const char *of)
{
	return (struct wait_note){.what = "order", .of = of, .left_ms = WAITS_NO_DEADLINE};
}

/* Finds a buffer of the work that a device process is placing or sharing. */
static const struct buffer *placing(const struct work *work)
{
	for (int i = -1; i < work->operand_count; i++) {
		const struct buffer *buffer = i < 0 ? work->buffer : work->operands[i].buffer;
		for (int where = 0; buffer && where < BUFFER_PLACES; where++)
			if (buffer->at[where].place == BUFFER_PLACING ||
				buffer->at[where].place == BUFFER_SHARING)
				return buffer;
	}
	return NULL;
}

/* Notes what the head of the queue needs. */
static void say_need(const struct work *work, struct work_wait *wait)
{
	const struct session *session = work->session;
	wait->note = note_of("executor");
	if (session->works->waiting_ready)
		wait->owner = session;
	else if (work->state != WORK_QUEUED)
		wait->owner = work;
	else
		wait->owner = placing(work);
	if (work->order.after && work_pending(session, work->order.after)) {
		wait->note.what = "ticket";
		waits_say(&wait->note, "ticket %llu, which it follows",
				  (unsigned long long)work->order.after);
	} else {
		waits_say(&wait->note, "what was submitted before it to end");
	}
}

static void visit_work(const struct work *work, work_visit visit, void *arg)
{
	const struct work *first = work->session->works->queued;
	struct work_wait wait = {
		.ticket = work->ticket, .asked = work->asked, .since_us = work->since_us};
	wait.note = note_of("");
	if (work->state == WORK_SENT)
		wait.owner = work;
	if (work == first)
		say_need(work, &wait);
	else if (first)
		waits_say(&wait.note, "ticket %llu, which is before it", (unsigned long long)first->ticket);
	visit(arg, &wait);
}

void works_wait(const struct session *session, work_visit visit, void *arg)
{
	for (const struct work *work = session->works->sent; work; work = work->next)
		visit_work(work, visit, arg);
	for (const struct work *work = session->works->queued; work; work = work->next)
		visit_work(work, visit, arg);
}
