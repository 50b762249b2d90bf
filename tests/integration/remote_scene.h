/*
 * remote_scene.h: two daemons, as on two hosts, and a redis-server of the test's own between them:
 * on a Unix socket in a directory of the test, without persistence.  Each daemon has a key of its
 * own and trusts the other's.
 */
#ifndef KILN_TESTS_REMOTE_SCENE_H
#define KILN_TESTS_REMOTE_SCENE_H

#include "harness.h"

struct remote_host {
	struct kilnd *daemon;
	char name[8]; /* of its key */
	char keys[96], trusted[96];
};

struct remote_scene {
	struct remote_host a, b;
	char socket[96], url[128];
	pid_t redis;
};

/* Setup and teardown: *state is a struct remote_scene with a redis-server that answers, and no
 * daemon.  Teardown ends what runs, and checks that the figures add up and that nothing is left. */
int remote_setup(void **state);
int remote_teardown(void **state);
#define REMOTE_TEST(f) cmocka_unit_test_setup_teardown(f, remote_setup, remote_teardown)
/* For a group of tests: skips all, and says so, where there is no redis-server; in CI that is a
 * failure. */
int remote_need_redis(void **state);

void redis_start(struct remote_scene *scene);
/* Has it listen on the loopback interface, too; the port. */
int redis_listen(const struct remote_scene *scene);
void redis_kill(struct remote_scene *scene);
/* One command, blanks between words; %b takes bytes and their count.  Answers as text: "(nil)",
 * numbers in digits; free() it.  Fails the test if there is no answer. */
char *redis_ask(const struct remote_scene *scene, const char *format, ...);
int64_t redis_int(const struct remote_scene *scene, const char *format, ...);
/* The only key that begins so; free() it. */
char *redis_key(const struct remote_scene *scene, const char *prefix);
/* Its value's bytes. */
void *redis_bytes(const struct remote_scene *scene, const char *key, size_t *size);

/* Starts the host's daemon with --remote url, its keys, a deadline that a busy machine keeps, and
 * these options; then waits until it is connected. */
void host_start(const struct remote_host *host, const char *url, const char *const *options);
/* The same without waiting for a connection. */
void host_spawn(const struct remote_host *host, const char *url, const char *const *options);
/* Asks the host's daemon for a permute, in a process of its own that ends with 0 if the answer was
 * right and came from there. */
struct remote_asking {
	struct permute problem;
	const char *origin; /* NULL: any */
};
pid_t host_ask(const struct remote_host *host, struct remote_asking *asking);

/* A socket at this path that passes bytes to the scene's redis and back, and cuts the connection in
 * both directions once so many bytes came back over it. */
pid_t proxy_start(const struct remote_scene *scene, const char *path, int cut_after);
/* A socket at this path that answers three PINGs of a connection, and then says first once and
 * more, if it is not "", without end. */
pid_t liar_start(const char *path, const char *first, const char *more);

#endif
