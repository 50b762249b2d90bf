/*
 * test_client.c: what happens to a connection: the daemon is silent, dies or talks nonsense, a
 * second thread comes, the process forks.  Against a fake daemon.
 */
#include "client/lib/client.h"
#include "fake_daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define SAYS(part) assert_non_null(strstr(kiln_errmsg(), part))

/* ---- Daemons that fail ---- */

/* Answers "info" late: after the next request has come.  Its buffer must be given back. */
static bool hold_alloc(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "alloc") == 0) {
		fake->held = wire_id(in);
		return true;
	}
	if (strcmp(wire_type(in), "info") == 0)
		fake_reply_number(fake, fake->held, "buf", 77);
	return false;
}

static void test_silent(void **state)
{
	(void)state;
	struct fake *fake = fake_start(hold_alloc);
	kiln_client *client = NULL;
	kiln_buffer *buffer = NULL;
	kiln_reply *reply = NULL;
	struct timespec begin, end;

	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_OK);
	client->timeout_ms = 60;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	assert_int_equal(kiln_alloc(client, 16, 0, "x", &buffer), KILN_ETIMEDOUT);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 >= 59);
	SAYS("\"alloc\"");
	SAYS("deadline");
	assert_null(buffer);
	/* The connection goes on, and what came too late is freed. */
	client->timeout_ms = FAKE_WAIT_MS;
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_OK);
	kiln_reply_free(reply);
	assert_int_equal(kiln_request(client, "ops", NULL, 0, &reply), KILN_OK);
	kiln_reply_free(reply);
	assert_int_equal(fake->count_free, 1);
	assert_int_equal(fake->last_freed, 77);
	kiln_close(client);
	fake_stop(fake);
}

static bool die_on_third_submit(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "submit") != 0)
		return false;
	if (++fake->held == 1)
		fake_reply(fake, wire_id(in), KILN_OK, NULL, NULL);
	else if (fake->held == 3)
		fake_hang_up(fake);
	return true;
}

static void test_dead(void **state)
{
	(void)state;
	struct fake *fake = fake_start(die_on_third_submit);
	kiln_client *client = NULL;
	kiln_call *call = NULL;
	kiln_buffer *buffer = NULL;
	kiln_ticket tickets[3];

	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_OK);
	assert_int_equal(kiln_alloc(client, 16, 0, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_prepare(client, "nothing", NULL, 0, NULL, 0, &call), KILN_OK);
	for (int i = 0; i < 3; i++)
		assert_int_equal(kiln_submit(call, NULL, 0, 0, &tickets[i]), KILN_OK);
	/* The last one first: its end is the end of the connection. */
	assert_int_equal(kiln_wait(client, tickets[2], KILN_FOREVER), KILN_ECONN);
	SAYS(fake->path);
	SAYS("went away");
	SAYS("connect again");
	assert_int_equal(kiln_dispatch(client), 2);
	assert_int_equal(kiln_wait(client, tickets[0], 0), KILN_OK);
	assert_int_equal(kiln_wait(client, tickets[1], 0), KILN_ECONN);
	assert_int_equal(kiln_dispatch(client), KILN_ECONN);
	assert_int_equal(kiln_wait(client, tickets[1], 0), KILN_ENOENT);
	assert_int_equal(kiln_alloc(client, 1, 0, NULL, &buffer), KILN_ECONN);
	SAYS("connect again");
	assert_int_equal(kiln_submit(call, NULL, 0, 0, &tickets[0]), KILN_ECONN);
	assert_true(kiln_fd(client) >= 0);
	assert_int_equal(kiln_free(buffer), KILN_ECONN);
	kiln_call_free(call);
	kiln_close(client);
	fake_stop(fake);
}

static bool die_on_info(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "info") != 0)
		return false;
	fake_hang_up(fake);
	return true;
}

static bool nonsense_on_info(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "info") != 0)
		return false;
	(void)frame_send(fake->sock, "\xdd\xff\xff\xff\xff", 5, NULL, 0);
	return true;
}

/* About nothing that was asked: the daemon could not make out what it was. */
static bool last_word_on_info(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "info") != 0)
		return false;
	fake_reply(fake, 0, KILN_ELIMIT, "a message is too\nlarge", NULL);
	fake_hang_up(fake);
	return true;
}

static void test_ends(void **state)
{
	(void)state;
	struct fake *fake = fake_start(die_on_info);
	kiln_client *client = NULL;
	kiln_reply *reply = NULL;

	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_OK);
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_ECONN);
	SAYS("while \"info\" was in flight");
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_ECONN);
	assert_null(strstr(kiln_errmsg(), "in flight"));
	kiln_close(client);
	fake_stop(fake);

	fake = fake_start(nonsense_on_info);
	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_OK);
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_EPROTO);
	SAYS("malformed");
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_ECONN);
	kiln_close(client);
	fake_stop(fake);

	fake = fake_start(last_word_on_info);
	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_OK);
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_ELIMIT);
	SAYS("ended the connection: a message is too large while \"info\" was in flight");
	kiln_close(client);
	fake_stop(fake);
	assert_null(reply);
}

/* Events that nobody knows, and replies that nobody waits for, go by. */
static bool chatter(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	struct wire_out out;
	wire_begin(&out, "event", 0);
	wire_put_str(&out, "what", "full moon");
	fake_send(fake, &out, -1);
	fake_reply(fake, wire_id(in) + 1000, KILN_OK, NULL, NULL);
	return false;
}

static void test_chatter(void **state)
{
	(void)state;
	struct fake *fake = fake_start(chatter);
	kiln_client *client = NULL;
	kiln_buffer *buffer = NULL;
	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_OK);
	assert_int_equal(kiln_alloc(client, 8, 0, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	assert_int_equal(kiln_dispatch(client), 0);
	kiln_close(client);
	fake_stop(fake);
}

/* ---- Threads and processes ---- */

/* Holds the reply to "info" until the test says go. */
static bool hold_info(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "info") == 0) {
		sem_post(&fake->reached);
		(void)fake_wait(&fake->go);
	}
	return false;
}

struct inside {
	kiln_client *client;
	int status;
};

static void *ask_info(void *argument)
{
	struct inside *inside = argument;
	kiln_reply *reply = NULL;
	inside->status = kiln_request(inside->client, "info", NULL, 0, &reply);
	kiln_reply_free(reply);
	return NULL;
}

static void test_busy(void **state)
{
	(void)state;
	struct fake *fake = fake_start(hold_info);
	struct inside inside = {.status = 1};
	kiln_buffer *buffer = NULL, *second = NULL;
	kiln_call *call = NULL;
	kiln_ticket ticket = 0;
	pthread_t thread;

	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &inside.client), KILN_OK);
	assert_int_equal(kiln_alloc(inside.client, 8, 0, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_prepare(inside.client, "nothing", NULL, 0, NULL, 0, &call), KILN_OK);
	assert_int_equal(pthread_create(&thread, NULL, ask_info, &inside), 0);
	assert_true(fake_wait(&fake->reached)); /* the other thread is inside now */
	assert_int_equal(kiln_alloc(inside.client, 8, 0, NULL, &second), KILN_EBUSY);
	SAYS("another thread");
	assert_int_equal(kiln_submit(call, NULL, 0, 0, &ticket), KILN_EBUSY);
	assert_int_equal(kiln_wait(inside.client, 1, 0), KILN_EBUSY);
	assert_int_equal(kiln_dispatch(inside.client), KILN_EBUSY);
	assert_int_equal(kiln_write(buffer, 0, "x", 1), KILN_EBUSY);
	assert_int_equal(kiln_free(buffer), KILN_EBUSY);
	kiln_call_free(call); /* told to the daemon by the other thread when it leaves */
	sem_post(&fake->go);
	pthread_join(thread, NULL);
	assert_int_equal(inside.status, KILN_OK);
	/* Nothing was disturbed. */
	assert_int_equal(kiln_write(buffer, 0, "x", 1), KILN_OK);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	assert_int_equal(fake->count_release, 1);

	/* Closed while another thread is inside: the end comes when that one leaves. */
	assert_int_equal(kiln_alloc(inside.client, 8, 0, NULL, &buffer), KILN_OK);
	inside.status = 1;
	assert_int_equal(pthread_create(&thread, NULL, ask_info, &inside), 0);
	assert_true(fake_wait(&fake->reached));
	kiln_close(inside.client);
	sem_post(&fake->go);
	pthread_join(thread, NULL);
	assert_int_equal(inside.status, KILN_OK);
	assert_int_equal(kiln_write(buffer, 0, "x", 1), KILN_ECONN);
	SAYS("closed");
	assert_int_equal(kiln_free(buffer), KILN_OK);
	fake_stop(fake);
}

/* The same, and "alloc" gives a page. */
static bool hold_info_give_page(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	struct wire_out out;
	if (strcmp(wire_type(in), "alloc") != 0)
		return hold_info(fake, in, frame);
	int fd = frame_memfd("shared", 4096);
	fake_begin(&out, wire_id(in), KILN_OK);
	wire_put_uint(&out, "buf", 42);
	fake_send(fake, &out, fd);
	close(fd);
	return true;
}

/* A buffer that is freed while a thread is inside the closed client goes when that one leaves. */
static void test_free_after_close(void **state)
{
	(void)state;
	struct fake *fake = fake_start(hold_info_give_page);
	struct inside inside = {.status = 1};
	kiln_buffer *buffer = NULL;
	pthread_t thread;
	void *map = NULL;

	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &inside.client), KILN_OK);
	assert_int_equal(kiln_alloc(inside.client, 4096, KILN_BUFFER_SHARED, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_map(buffer, &map), KILN_OK);
	assert_int_equal(pthread_create(&thread, NULL, ask_info, &inside), 0);
	assert_true(fake_wait(&fake->reached));
	kiln_close(inside.client);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	assert_int_equal(msync(map, 4096, MS_ASYNC), 0);
	sem_post(&fake->go);
	pthread_join(thread, NULL);
	assert_int_equal(inside.status, KILN_OK);
	assert_int_equal(msync(map, 4096, MS_ASYNC), -1);
	fake_stop(fake);
}

/* In the child; returns the number of the first check that failed, or 0. */
static int child_checks(kiln_client *client, kiln_buffer *buffer, kiln_call *call)
{
	kiln_buffer *other = NULL;
	kiln_ticket ticket;
	if (kiln_alloc(client, 8, 0, NULL, &other) != KILN_EFORK)
		return 1;
	if (strstr(kiln_errmsg(), "must connect for itself") == NULL)
		return 2;
	if (kiln_write(buffer, 0, "x", 1) != KILN_EFORK || kiln_dispatch(client) != KILN_EFORK ||
		kiln_submit(call, NULL, 0, 0, &ticket) != KILN_EFORK ||
		kiln_wait(client, 1, KILN_FOREVER) != KILN_EFORK)
		return 3;
	if (kiln_fd(client) != KILN_EFORK || kiln_events(client) != KILN_EFORK)
		return 4;
	kiln_call_free(call);
	if (kiln_free(buffer) != KILN_EFORK)
		return 5;
	kiln_close(client);
	return 0;
}

static void test_fork(void **state)
{
	(void)state;
	struct fake *fake = fake_start(NULL);
	kiln_client *client = NULL;
	kiln_buffer *buffer = NULL;
	kiln_call *call = NULL;
	int result = -1;

	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_OK);
	assert_int_equal(kiln_alloc(client, 8, 0, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_prepare(client, "nothing", NULL, 0, NULL, 0, &call), KILN_OK);
	pid_t child = fork();
	if (child == 0)
		_exit(child_checks(client, buffer, call));
	assert_int_equal(waitpid(child, &result, 0), child);
	assert_true(WIFEXITED(result));
	assert_int_equal(WEXITSTATUS(result), 0);
	/* The parent's connection has not noticed. */
	assert_int_equal(kiln_write(buffer, 0, "x", 1), KILN_OK);
	assert_int_equal(fake->count_free, 0);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	kiln_call_free(call);
	kiln_close(client);
	fake_stop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silent), cmocka_unit_test(test_dead),
		cmocka_unit_test(test_ends),   cmocka_unit_test(test_chatter),
		cmocka_unit_test(test_busy),   cmocka_unit_test(test_free_after_close),
		cmocka_unit_test(test_fork),
	};
	unsetenv("KILN_DEVICE");
	unsetenv("KILN_DEBUG");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
