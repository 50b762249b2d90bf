/* raw_texts.c: the texts of a user's kernel: from the client's memfd to where compilers take them
 * from. */
#include "raw_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/closer.h"
#include "daemon/base/list.h"

/* Longer texts go to compilers through a memfd that a worker thread has made: copying them into
 * messages would take the loop's time. */
#define TEXTS_INSIDE COMPILE_PLACED_BYTES

/* ---- How many may be held ---- */

/* A kernel may outlive its session. */
struct raw_budget {
	int holders;
	uint64_t bytes;
	uint32_t uid;
	bool is_guest;
	struct broker *broker; /* has the list of them */
	struct raw_budget *previous, *next;
};

static struct raw_budget *budget_of(struct session *session)
{
	struct raw_budget *budget = session->raw_budget;
	if (budget)
		return budget;
	budget = session->raw_budget = util_alloc(sizeof(*budget));
	*budget = (struct raw_budget){.holders = 1,
								  .uid = session->uid,
								  .is_guest = !session_is_owner(session),
								  .broker = session->broker};
	LIST_PUSH(session->broker->raw_budgets, budget);
	return budget;
}

static void budget_drop(struct raw_budget *budget)
{
	if (!budget || --budget->holders > 0)
		return;
	LIST_REMOVE(budget->broker->raw_budgets, budget);
	free(budget);
}

static int check_sum(uint64_t held, uint64_t bytes, uint64_t most, const char *whose,
					 char error[KERNEL_ERROR_MAX])
{
	if (held + bytes <= most)
		return KILN_OK;
	return ERROR(KILN_ELIMIT,
				 "the daemon holds %llu MiB of texts of %s kernels, and %llu MiB are the most: "
				 "wait until some are compiled, or free their calls",
				 (unsigned long long)(held >> 20), whose, (unsigned long long)(most >> 20));
}

/* A guest has many sessions, and there are many guests: sums bound what they hold. */
static int check_sums(const struct raw_budget *asker, uint64_t bytes, char error[KERNEL_ERROR_MAX])
{
	const uint64_t share = RAW_MAX_HELD_BY_ALL / GUEST_SHARES;
	uint64_t own = 0, guests = 0, all = 0;
	char uid[32];
	for (const struct raw_budget *budget = asker->broker->raw_budgets; budget;
		 budget = budget->next) {
		own += budget->uid == asker->uid ? budget->bytes : 0;
		guests += budget->is_guest ? budget->bytes : 0;
		all += budget->bytes;
	}
	snprintf(uid, sizeof(uid), "guest uid %u's", asker->uid);
	int status = check_sum(asker->bytes, bytes, RAW_MAX_HELD, "this session's", error);
	if (status == KILN_OK && asker->is_guest)
		status = check_sum(own, bytes, share, uid, error);
	if (status == KILN_OK && asker->is_guest)
		status = check_sum(guests, bytes, RAW_MAX_HELD_BY_ALL - share, "all guests'", error);
	return status == KILN_OK ? check_sum(all, bytes, RAW_MAX_HELD_BY_ALL, "all sessions'", error)
							 : status;
}

static int budget_take(struct session *session, uint64_t bytes, struct raw_source *source,
					   char error[KERNEL_ERROR_MAX])
{
	struct raw_budget *budget = budget_of(session);
	int status = check_sums(budget, bytes + source->kept, error);
	if (status != KILN_OK)
		return status;
	budget->holders++;
	budget->bytes += bytes + source->kept;
	source->budget = budget;
	source->bytes = bytes;
	return KILN_OK;
}

static void budget_return(struct raw_source *source)
{
	if (source->budget)
		source->budget->bytes -= source->kept + (source->gone ? 0 : source->bytes);
	budget_drop(source->budget);
	source->budget = NULL;
}

void raw_close_budget(struct session *session)
{
	budget_drop(session->raw_budget);
	session->raw_budget = NULL;
}

/* ---- From the client to a compiler ---- */

int raw_take_texts(struct session *session, uint64_t bytes, struct raw_source *source,
				   char error[KERNEL_ERROR_MAX])
{
	struct frame *frame = session->frame;
	int fd = frame->fd_count > 0 ? frame->fds[0] : -1;
	if (fd < 0 || !frame_fd_is_safe(fd, bytes))
		return ERROR(KILN_EPROTO,
					 "the source must come in a memfd sealed against shrinking, without huge "
					 "pages, of at least %llu bytes",
					 (unsigned long long)bytes);
	int status = budget_take(session, bytes, source, error);
	if (status == KILN_OK)
		source->fd = frame_take_fd(frame, 0);
	return status;
}

/* Copies the texts first, for the client can still write to its memfd. */
int raw_read_texts(struct raw_source *source, char error[KERNEL_ERROR_MAX])
{
	source->texts = malloc(source->bytes + 1);
	if (!source->texts)
		return ERROR(KILN_ENOMEM, "out of memory for a source of %llu bytes",
					 (unsigned long long)source->bytes);
	if (!frame_read_fd(source->fd, source->texts, source->bytes))
		return ERROR(KILN_EPROTO, "the memfd of the source cannot be read");
	source->texts[source->bytes] = 0;
	return KILN_OK;
}

/* A key that is made again, for another compiler, needs no text. */
int raw_hash_texts(struct kernel_ref *ref, char error[KERNEL_ERROR_MAX])
{
	struct raw_source *source = ref->raw;
	source->hashes = malloc((size_t)source->own * sizeof(*source->hashes));
	if (!source->hashes)
		return ERROR(KILN_ENOMEM, "out of memory for %d hashes", source->own);
	for (int i = 0; i < source->own; i++) {
		struct compile_file *file = &ref->files[source->first + i];
		util_hash_hex(file->text, file->bytes, source->hashes[i]);
		file->hash = source->hashes[i];
	}
	return KILN_OK;
}

int raw_put_aside(struct kernel_ref *ref, char error[KERNEL_ERROR_MAX])
{
	struct raw_source *source = ref->raw;
	if (source->bytes <= TEXTS_INSIDE)
		return KILN_OK;
	source->sealed = frame_sealed("kiln-texts", source->texts, source->bytes);
	if (source->sealed < 0)
		return ERROR(KILN_ENOMEM, "no memory for a source of %llu bytes",
					 (unsigned long long)source->bytes);
	for (int i = 0; i < source->own; i++)
		ref->files[source->first + i].text = NULL;
	ref->job.texts_fd = source->sealed;
	free(source->texts);
	source->texts = NULL;
	return KILN_OK;
}

void raw_was_read(struct kernel_ref *ref)
{
	closer_put(getuid(), ref->raw->fd);
	ref->raw->fd = -1;
}

void raw_let_go(struct kernel_ref *ref)
{
	if (!ref->raw || ref->raw->sealed < 0)
		return;
	ref->raw->budget->bytes -= ref->raw->bytes;
	closer_put(getuid(), ref->raw->sealed);
	ref->raw->sealed = ref->job.texts_fd = -1;
	ref->raw->gone = true;
}

bool raw_is_gone(const struct kernel_ref *ref)
{
	bool never = ref->unit && ref->job.by_name && strcmp(ref->target, "cpu") != 0;
	return never || (ref->raw && ref->raw->gone);
}

/* ---- The end ---- */

void raw_source_free(struct raw_source *source)
{
	if (!source)
		return;
	for (int i = 0; i < source->string_count; i++)
		free(source->strings[i]);
	budget_return(source);
	closer_put(getuid(), source->fd);
	closer_put(getuid(), source->sealed);
	free(source->texts);
	free(source->hashes);
	free(source);
}
