/*
 * remote_name.c: looks up a host's name.  The thread and the loop both hold the remote_name, and
 * the last of them frees it.
 */
#include "remote_name.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 8 /* threads that a name server blocks */

struct remote_name {
	uv_async_t async;
	pthread_mutex_t lock;
	int holders;
	bool left;
	char host[256], address[64], why[128];
	remote_named named;
	void *arg;
};

static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static int count;

static bool take_place(int by)
{
	pthread_mutex_lock(&count_lock);
	bool room = by < 0 || count < MOST;
	count += room ? by : 0;
	pthread_mutex_unlock(&count_lock);
	return room;
}

static void drop(struct remote_name *name)
{
	pthread_mutex_lock(&name->lock);
	bool last = --name->holders == 0;
	pthread_mutex_unlock(&name->lock);
	if (last) {
		pthread_mutex_destroy(&name->lock);
		free(name);
	}
}

static void *look_up_name(void *arg)
{
	struct remote_name *name = arg;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	int status = getaddrinfo(name->host, NULL, &hints, &found);
	if (status == 0)
		status = getnameinfo(found->ai_addr, found->ai_addrlen, name->address,
							 sizeof(name->address), NULL, 0, NI_NUMERICHOST);
	if (status != 0) {
		name->address[0] = 0;
		snprintf(name->why, sizeof(name->why), "%s", gai_strerror(status));
	}
	if (found)
		freeaddrinfo(found);
	pthread_mutex_lock(&name->lock);
	if (!name->left)
		uv_async_send(&name->async);
	pthread_mutex_unlock(&name->lock);
	take_place(-1);
	drop(name);
	return NULL;
}

static void on_remote_name_closed(uv_handle_t *handle)
{
	drop(handle->data);
}

void remote_name_leave(struct remote_name *name)
{
	if (!name)
		return;
	pthread_mutex_lock(&name->lock);
	name->left = true;
	pthread_mutex_unlock(&name->lock);
	uv_close((uv_handle_t *)&name->async, on_remote_name_closed);
}

static void on_found(uv_async_t *async)
{
	struct remote_name *name = async->data;
	name->named(name->arg, name->address, name->why);
	remote_name_leave(name);
}

static bool remote_name_start(struct remote_name *name)
{
	pthread_attr_t attributes;
	pthread_t thread;
	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	bool started = pthread_create(&thread, &attributes, look_up_name, name) == 0;
	pthread_attr_destroy(&attributes);
	return started;
}

struct remote_name *remote_name_look(uv_loop_t *loop, const char *host, remote_named named,
									 void *arg)
{
	struct remote_name *name = calloc(1, sizeof(*name));
	if (!name)
		return NULL;
	*name = (struct remote_name){.holders = 2, .named = named, .arg = arg};
	snprintf(name->host, sizeof(name->host), "%s", host);
	pthread_mutex_init(&name->lock, NULL);
	if (uv_async_init(loop, &name->async, on_found) != 0) {
		free(name);
		return NULL;
	}
	name->async.data = name;
	bool room = take_place(1);
	if (room && remote_name_start(name))
		return name;
	if (room)
		take_place(-1);
	name->holders = 1;
	remote_name_leave(name);
	return NULL;
}
