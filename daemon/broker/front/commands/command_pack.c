/*
 * command_pack.c: cache.export, cache.import: kernels to and from a file that was sealed;
 * cache.backup, cache.restore: the same without a seal, for the cache of the same user.  The
 * store's thread does them piece by piece, between lookups of others.
 *
 *   ASKING ----------> WORKING --the last piece, or it fails--> answered and freed
 *   (which compilers      |
 *   are here)             +--an import fails, or its session ends--> UNDOING --the last piece-->
 *                                                                      answered and freed
 *
 *   ASKING --the session ends--> freed
 *
 * A request that closes while the store's thread has its packing leaves that to piece_done(): an
 * export is freed there, an import is undone first, so that no half of a pack stays.  An import
 * owns ring and reader, an export writer and secret.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/pack.h"
#include "command.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"
#include "daemon/broker/kernels/tuned.h"

#define DAY_SECONDS 86400

enum packing_state { PACKING_ASKING, PACKING_WORKING, PACKING_UNDOING };

struct packing {
	struct request request;
	struct broker *broker;
	const struct options *options;
	enum packing_state state;
	bool import, backup;
	char path[PATH_MAX], key_name[SEAL_NAME_MAX];
	int64_t until; /* of an export; 0: for ever */
	struct cache_trim filter;
	char op[24], target[KERNEL_TARGET_MAX], compiler[CACHE_COMPILER_MAX];
	struct seal_secret secret;
	struct seal_ring *ring;
	struct pack_writer *writer;
	struct pack_reader *reader;
	struct pack_figures figures;
	bool more; /* pieces are left */
	int status;
	char error[KERNEL_ERROR_MAX];
};

static void packing_assert_valid(const struct packing *packing)
{
	(void)packing;
	assert(packing->request.session || packing->state != PACKING_ASKING);
	assert(!packing->writer || !packing->import);
	assert(!packing->reader || packing->import);
	assert(packing->state != PACKING_UNDOING || packing->reader);
	assert(packing->state != PACKING_ASKING || (!packing->writer && !packing->reader));
}

static void free_packing(struct packing *packing)
{
	request_close(&packing->request);
	pack_write_close(packing->writer);
	pack_read_close(packing->reader);
	seal_ring_free(packing->ring);
	seal_forget(&packing->secret);
	free(packing);
}

/* Winners that are new on disk are known at once, else at the next start. */
static void put_winners(struct wire_out *out, const struct packing *packing)
{
	size_t count = 0;
	const struct cache_tuned *rows =
		packing->import ? pack_winners_taken(packing->reader, &count) : NULL;
	for (size_t i = 0; i < count; i++)
		(void)tuned_take(packing->broker, &rows[i]);
	wire_put_uint(out, "winners", packing->figures.winners);
	if (packing->import)
		wire_put_uint(out, "winners_taken", count);
}

static void put_compilers(struct wire_out *out, const struct pack_reader *reader,
						  const struct compile_toolchains *here)
{
	const char *names[PACK_COMPILERS];
	int count = pack_compilers(reader, names);
	wire_list_begin(out, "compilers");
	for (int i = 0; i < count; i++) {
		wire_map_begin(out, NULL);
		wire_put_str(out, "compiler", names[i]);
		wire_put_bool(out, "here",
					  !strcmp(names[i], here->nvrtc.id) || !strcmp(names[i], here->host.id));
		wire_map_end(out);
	}
	wire_list_end(out);
}

/* Answers, unless the session has ended, and frees. */
static void pack_answer(struct packing *packing)
{
	struct session *session = packing->request.session;
	const struct pack_figures *figures = &packing->figures;
	struct wire_out out;
	if (session && packing->status != KILN_OK)
		reply_error(session, packing->request.id, packing->status, "%s", packing->error);
	if (!session || packing->status != KILN_OK) {
		free_packing(packing);
		return;
	}
	reply_begin(&out, packing->request.id);
	wire_put_uint(&out, "rows", figures->rows);
	wire_put_uint(&out, "bytes", figures->bytes);
	put_winners(&out, packing);
	if (packing->import) {
		wire_put_uint(&out, "imported", figures->taken);
		wire_put_uint(&out, "present", figures->present);
		put_compilers(&out, packing->reader, pool_toolchains(session->broker));
	}
	if (packing->import && !packing->backup) {
		const struct seal_signer *signer = pack_signer(packing->reader);
		wire_put_str(&out, "key", signer->name);
		wire_put_str(&out, "key_id", signer->id);
		wire_put_int(&out, "when", signer->when);
		wire_put_int(&out, "until", signer->until);
	} else if (!packing->backup) {
		wire_put_str(&out, "key", packing->secret.key.name);
		wire_put_str(&out, "key_id", packing->secret.key.id);
	}
	reply_send(session, &out, NULL, 0);
	free_packing(packing);
}

/* ---- On the store's thread ---- */

static void export_piece(struct packing *packing, struct cache *cache)
{
	const struct options *options = packing->options;
	const char *name = packing->key_name[0]   ? packing->key_name
					   : options->sign_key[0] ? options->sign_key
											  : NULL;
	if (!packing->writer) {
		if (!packing->backup)
			packing->status = seal_open(options->key_dir, name, &packing->secret, packing->error);
		if (packing->status == KILN_OK)
			packing->status = pack_write_open(packing->path, packing->backup, &packing->filter,
											  &packing->writer, packing->error);
		if (packing->status != KILN_OK)
			packing->writer = NULL;
	}
	if (packing->status == KILN_OK)
		packing->status = pack_write(packing->writer, cache, &packing->more, packing->error);
	if (packing->status == KILN_OK && !packing->more)
		packing->status =
			pack_write_end(packing->writer, packing->backup ? NULL : &packing->secret,
						   util_wall_s(), packing->until, &packing->figures, packing->error);
}

static void import_piece(struct packing *packing, struct cache *cache)
{
	if (!packing->reader && !packing->backup)
		packing->status =
			seal_ring_open(packing->options->trust_dir, &packing->ring, packing->error);
	if (packing->status == KILN_OK && !packing->reader) {
		packing->status =
			pack_read_open(packing->path, packing->ring, &packing->reader, packing->error);
		if (packing->status != KILN_OK)
			packing->reader = NULL;
	}
	if (packing->status == KILN_OK)
		packing->status =
			pack_read(packing->reader, cache, util_wall_s(), &packing->more, packing->error);
	if (packing->status == KILN_OK)
		packing->figures = *pack_figures(packing->reader);
}

static void piece_work(struct cache *cache, void *arg)
{
	struct packing *packing = arg;
	packing->more = false;
	if (packing->state == PACKING_UNDOING)
		packing->more = pack_undo(packing->reader, cache);
	else if (packing->import)
		import_piece(packing, cache);
	else
		export_piece(packing, cache);
}

/* ---- On the loop ---- */

static void piece_done(struct broker *broker, void *arg);

static void next_piece(struct broker *broker, struct packing *packing)
{
	packing_assert_valid(packing);
	int status = packing->request.session
					 ? request_store(&packing->request, piece_work, piece_done)
					 : store_wait(broker, TURN_NOBODY, piece_work, piece_done, NULL, packing, NULL);
	if (status == KILN_OK)
		return;
	packing->status =
		util_fail(packing->error, sizeof(packing->error), KILN_ENOMEM, "out of memory");
	pack_answer(packing);
}

static void piece_done(struct broker *broker, void *arg)
{
	struct packing *packing = arg;
	bool failed = packing->status != KILN_OK || !packing->request.session;
	if (failed && packing->reader && packing->state == PACKING_WORKING) {
		packing->state = PACKING_UNDOING;
		packing->more = true;
	}
	if (packing->more && (!failed || packing->state == PACKING_UNDOING))
		next_piece(broker, packing);
	else
		pack_answer(packing);
}

static void abandon(struct request *request)
{
	struct packing *packing = (struct packing *)request;
	if (packing->state != PACKING_ASKING)
		return;
	pool_forget(packing->broker, packing);
	free_packing(packing);
}

/* ---- What is asked ---- */

/* Copies a text of the message; false: it has none that fits, which is answered. */
static bool take_text(struct session *session, struct wire_in *message, const char *name,
					  const char *what, char *room, size_t size, bool required)
{
	const char *text = wire_get_str(message, &message->root, name);
	if (!text && !required)
		return true;
	if (text && text[0] && strlen(text) < size) {
		memcpy(room, text, strlen(text) + 1);
		return true;
	}
	reply_error(session, wire_id(message), KILN_EINVAL, "\"%.*s\" is no %s: it has 1 to %zu bytes",
				PLAIN_CUT(text ? text : "", 100), what, size - 1);
	return false;
}

static const char *or_null(const char *text)
{
	return text[0] ? text : NULL;
}

static bool take_filter(struct session *session, struct wire_in *message, struct packing *packing)
{
	int64_t age = wire_get_int(&message->root, "older_than", 0);
	int64_t days = wire_get_int(&message->root, "days", 0);
	if (age < 0 || days < 0 || days > 36500) {
		reply_error(session, wire_id(message), KILN_EINVAL,
					"cache.export: older_than and days (up to 36500) are not negative");
		return false;
	}
	packing->filter.used_before = age ? util_wall_s() - age : 0;
	packing->until = days ? util_wall_s() + days * DAY_SECONDS : 0;
	if (!take_text(session, message, "op", "operator", packing->op, sizeof(packing->op), false) ||
		!take_text(session, message, "target", "target", packing->target, sizeof(packing->target),
				   false) ||
		!take_text(session, message, "compiler", "compiler", packing->compiler,
				   sizeof(packing->compiler), false) ||
		!take_text(session, message, "key", "name of a key", packing->key_name,
				   sizeof(packing->key_name), false))
		return false;
	packing->filter.op = or_null(packing->op);
	packing->filter.target = or_null(packing->target);
	packing->filter.compiler = or_null(packing->compiler);
	return true;
}

static void on_known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct packing *packing = arg;
	(void)toolchains; /* the answer asks for them again */
	(void)error;      /* an import needs no compiler */
	packing->state = PACKING_WORKING;
	next_piece(packing->broker, packing);
}

static void pack_start(struct session *session, struct wire_in *message, bool import, bool backup)
{
	struct packing *packing = calloc(1, sizeof(*packing));
	uint64_t id = wire_id(message);
	if (!packing) {
		reply_error(session, id, KILN_ENOMEM, "out of memory");
		return;
	}
	packing->broker = session->broker;
	packing->options = &session->broker->options;
	packing->import = import;
	packing->backup = backup;
	if (!take_text(session, message, "path", "path of a pack", packing->path, sizeof(packing->path),
				   true) ||
		(!import && !take_filter(session, message, packing)) ||
		!request_open(session, id, &packing->request, abandon)) {
		free(packing);
		return;
	}
	if (!backup && (!packing->options->key_dir[0] || !packing->options->trust_dir[0])) {
		packing->status = util_fail(packing->error, sizeof(packing->error), KILN_EINVAL,
									"no place for keys: start kilnd with --key-dir and "
									"--trust-dir");
		pack_answer(packing);
	} else {
		pool_when_known(session->broker, on_known, packing);
	}
}

void serve_cache_export(struct session *session, struct wire_in *message)
{
	pack_start(session, message, false, false);
}

void serve_cache_import(struct session *session, struct wire_in *message)
{
	pack_start(session, message, true, false);
}

void serve_cache_backup(struct session *session, struct wire_in *message)
{
	pack_start(session, message, false, true);
}

void serve_cache_restore(struct session *session, struct wire_in *message)
{
	pack_start(session, message, true, true);
}
