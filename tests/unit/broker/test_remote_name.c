/*
 * test_remote_name.c: a name server that does not answer holds nobody: not who asked, not the loop
 * at its end.
 */
#include <daemon/broker/devices/remote/remote_name.h>

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool answers;
static int asked, answered;
static struct sockaddr_in address = {.sin_family = AF_INET}; /* 0.0.0.0 */
static struct addrinfo one = {.ai_socktype = SOCK_STREAM,
							  .ai_addr = (struct sockaddr *)&address,
							  .ai_addrlen = sizeof(address)};

/* In place of the system's. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
				struct addrinfo **found)
{
	(void)service;
	pthread_mutex_lock(&lock);
	asked++;
	pthread_cond_broadcast(&changed);
	while (!answers)
		pthread_cond_wait(&changed, &lock);
	answered++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	assert_int_equal(hints->ai_socktype, SOCK_STREAM);
	*found = strcmp(host, "nowhere") != 0 ? &one : NULL;
	return *found ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *found)
{
	assert_ptr_equal(found, &one);
}

static void set_answers(bool value)
{
	pthread_mutex_lock(&lock);
	answers = value;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void await(const int *number, int value)
{
	pthread_mutex_lock(&lock);
	while (*number < value)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static char got[64], reason[128];
static int calls;

static void on_named(void *arg, const char *number, const char *why)
{
	assert_ptr_equal(arg, &calls);
	snprintf(got, sizeof(got), "%s", number);
	snprintf(reason, sizeof(reason), "%s", why);
	calls++;
}

static void names(void **state)
{
	uv_loop_t loop;
	(void)state;
	set_answers(true);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_non_null(remote_name_look(&loop, "somewhere", on_named, &calls));
	assert_int_equal(calls, 0);
	assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
	assert_int_equal(calls, 1);
	assert_string_equal(got, "0.0.0.0");
	assert_non_null(remote_name_look(&loop, "nowhere", on_named, &calls));
	assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
	assert_int_equal(calls, 2);
	assert_string_equal(got, "");
	assert_true(reason[0]);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* The loop ends while all of them still wait; and there are not more and more of them. */
static void nobody_waits_for_who_left(void **state)
{
	struct remote_name *waiting[16];
	uv_loop_t loop;
	int count = 0, before = asked, done = answered;
	(void)state;
	set_answers(false);
	calls = 0;
	assert_int_equal(uv_loop_init(&loop), 0);
	while (count < 16 && (waiting[count] = remote_name_look(&loop, "slow", on_named, &calls)))
		count++;
	assert_in_range(count, 2, 15);
	await(&asked, before + count);
	remote_name_leave(NULL);
	for (int i = 0; i < count; i++)
		remote_name_leave(waiting[i]);
	assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
	assert_int_equal(uv_loop_close(&loop), 0);
	set_answers(true);
	await(&answered, done + count);
	assert_int_equal(calls, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(nobody_waits_for_who_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
