/*
 * command_key.c: key.new, key.ls, key.trust, key.distrust: the keys that seal what goes to other
 * machines, and those that are believed.  Files are read and written off the loop.
 */
#include <string.h>

#include "query.h"
#include "daemon/base/util.h"

/* False: there is no place for keys, and the query says so. */
static bool have_directories(struct query *query)
{
	if (query->options->key_dir[0] && query->options->trust_dir[0])
		return true;
	query->status = util_fail(query->error, sizeof(query->error), KILN_EINVAL,
							  "no place for keys: neither XDG_CONFIG_HOME nor HOME is an absolute "
							  "path; start kilnd with --key-dir and --trust-dir");
	return false;
}

static void put_key(struct wire_out *out, const struct seal_key *key)
{
	wire_put_str(out, "name", key->name);
	wire_put_str(out, "key_id", key->id);
}

/* ---- New ---- */

/* A daemon believes what it seals: the public half is trusted, too. */
void query_key_new(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct seal_key key;
	char line[SEAL_LINE_MAX], path[PATH_MAX + 64];
	(void)cache;
	if (!have_directories(query))
		return;
	query->status = seal_new(query->options->key_dir, query->name, &key, query->error);
	if (query->status == KILN_OK)
		query->status = seal_trust(query->options->trust_dir, &key, query->error);
	if (query->status != KILN_OK)
		return;
	seal_line(&key, line);
	snprintf(path, sizeof(path), "%s/%s.pub", query->options->key_dir, key.name);
	put_key(&query->out, &key);
	wire_put_str(&query->out, "public", line);
	wire_put_str(&query->out, "path", path);
}

/* seal_new() and its like say which names are possible; here the name must only fit. */
int query_take_name(struct wire_in *message, struct query *query)
{
	return query_take_text(message, "name", "name of a key", query->name, sizeof(query->name),
						   query->error);
}

/* ---- List ---- */

struct listing {
	struct wire_out *out;
	const char *keys, *trusted;
};

static void find_id(const struct seal_key *key, void *arg)
{
	const char **id = arg;
	if (*id && !strcmp(key->id, *id))
		*id = NULL;
}

/* Says whether a directory has the key; one that cannot be read has none. */
static bool has(const char *directory, bool secrets, const struct seal_key *key)
{
	char ignored[KERNEL_ERROR_MAX];
	const char *id = key->id;
	return seal_each(directory, secrets, find_id, &id, ignored) == KILN_OK && !id;
}

static void key_put_row(const struct listing *listing, const struct seal_key *key, bool secret,
						bool trusted)
{
	char line[SEAL_LINE_MAX];
	seal_line(key, line);
	wire_map_begin(listing->out, NULL);
	put_key(listing->out, key);
	wire_put_str(listing->out, "public", line);
	wire_put_bool(listing->out, "secret", secret);
	wire_put_bool(listing->out, "trusted", trusted);
	wire_map_end(listing->out);
}

static void put_own(const struct seal_key *key, void *arg)
{
	const struct listing *listing = arg;
	key_put_row(listing, key, true, has(listing->trusted, false, key));
}

static void put_other(const struct seal_key *key, void *arg)
{
	const struct listing *listing = arg;
	if (!has(listing->keys, true, key))
		key_put_row(listing, key, false, true);
}

void query_key_ls(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct listing listing = {&query->out, query->options->key_dir, query->options->trust_dir};
	(void)cache;
	if (!have_directories(query))
		return;
	wire_list_begin(&query->out, "rows");
	query->status = seal_each(listing.keys, true, put_own, &listing, query->error);
	if (query->status == KILN_OK)
		query->status = seal_each(listing.trusted, false, put_other, &listing, query->error);
	wire_list_end(&query->out);
	wire_put_str(&query->out, "keys", listing.keys);
	wire_put_str(&query->out, "trusted", listing.trusted);
}

/* ---- Trust ---- */

void query_key_trust(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct seal_key key;
	(void)cache;
	if (!have_directories(query))
		return;
	query->status = seal_read_line(query->line, &key, query->error);
	if (query->status == KILN_OK && query->name[0])
		memcpy(key.name, query->name, sizeof(key.name));
	if (query->status == KILN_OK)
		query->status = seal_trust(query->options->trust_dir, &key, query->error);
	if (query->status == KILN_OK)
		put_key(&query->out, &key);
}

int query_take_line(struct wire_in *message, struct query *query)
{
	int status = query_take_text(message, "public", "public key", query->line, sizeof(query->line),
								 query->error);
	return status == KILN_OK && wire_get(&message->root, "name") ? query_take_name(message, query)
																 : status;
}

void query_key_distrust(struct cache *cache, void *arg)
{
	struct query *query = arg;
	struct seal_key key;
	(void)cache;
	if (!have_directories(query))
		return;
	query->status = seal_distrust(query->options->trust_dir, query->name, &key, query->error);
	if (query->status == KILN_OK)
		put_key(&query->out, &key);
}
