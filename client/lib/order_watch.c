/*
 * order_watch.c: keeps CUDA streams from waiting for a lane that has ended.  One thread of the
 * process sleeps until the lifeline of a lane ends: its device process was killed, or its session
 * has ended.  Then nobody else writes done words there, so the thread writes them all.  The thread
 * ends with the last watched lane; it never calls the driver, and takes no signal.
 *
 * The submitting thread stores the entry it will wait for and then reads the state; the watch
 * stores DEAD and then reads that entry.  So at least one of them sees the other.
 */
#include "order.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)256 << 10) /* with what the program keeps for each thread */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct order *watched;
static int kept;       /* mappings for good */
static int epoll = -1; /* the thread's; -1: there is no thread */
static bool forked;    /* this is a child of fork(), and the lanes are its parent's */

/* ---- What an order holds ---- */

static struct lane_memory *map_again(const struct lane_memory *memory)
{
	/* mremap() of 0 bytes maps the same pages a second time. */
	void *map = mremap((void *)(uintptr_t)memory, 0, sizeof(*memory), MREMAP_MAYMOVE);
	return map == MAP_FAILED ? NULL : map;
}

struct lane_memory *order_map_for_good(const struct order *order)
{
	pthread_mutex_lock(&lock);
	struct lane_memory *map = kept < ORDER_MOST ? map_again(order->memory) : NULL;
	kept += map != NULL;
	pthread_mutex_unlock(&lock);
	return map;
}

void order_unmap(struct lane_memory *memory)
{
	pthread_mutex_lock(&lock);
	munmap(memory, sizeof(*memory));
	kept--;
	pthread_mutex_unlock(&lock);
}

static void free_order(struct order *order)
{
	/* Streams still use the gates alone, so the other pages are given back. */
	const size_t page = LANE_GATES_BYTES, gates = offsetof(struct lane_memory, gates);
	if (order->memory) {
		if (order->place_count > 0 && !forked)
			(void)madvise((char *)order->memory + page, gates - page, MADV_REMOVE);
		munmap(order->memory, sizeof(*order->memory));
	}
	if (order->lifeline >= 0)
		close(order->lifeline);
	free(order);
}

/* Called with the lock.  Places are the lane's thread's, so they are not looked at here. */
static void order_watch_assert_valid(const struct order *order)
{
	(void)order;
	assert(order->holders == 1 || order->holders == 2);
	assert(forked || (order->lifeline >= 0) == (atomic_load(&order->state) == ORDER_WATCHED));
}

/* Called with the lock. */
static void let_go(struct order *order)
{
	order_watch_assert_valid(order);
	if (--order->holders == 0)
		free_order(order);
}

void order_drop(struct order *order)
{
	if (order) {
		pthread_mutex_lock(&lock);
		let_go(order);
		pthread_mutex_unlock(&lock);
	}
}

bool order_is_arriving(const struct order *order, uint32_t place)
{
	uint32_t value = order->arriving[place];
	uint32_t reached =
		atomic_load_explicit(&order->memory->gates[place].ready, memory_order_acquire);
	return value != 0 && (int32_t)(reached - value) < 0;
}

/* ---- Done words ---- */

static void write_done(struct order *order, uint32_t place, uint64_t number)
{
	atomic_store(&order->memory->gates[place].done, lane_gate_value(number));
}

void order_expect(struct order *order, uint64_t last)
{
	atomic_store(&order->last, last);
}

void order_recheck(struct order *order, uint64_t last)
{
	/* A word ahead of the entry lets the stream go on, and does not say that the entry ended. */
	if (atomic_load(&order->state) == ORDER_DEAD)
		write_done(order, (uint32_t)(last % LANE_ENTRIES), last + LANE_ENTRIES);
}

/* ---- The thread ---- */

/* Called with the lock. */
static void lifeline_ended(struct order *order)
{
	struct order **link = &watched;
	atomic_store(&order->state, ORDER_DEAD);
	uint64_t last = atomic_load(&order->last);
	/* A word ahead of all entries satisfies every stream that waits there. */
	for (uint32_t i = 0; i < LANE_ENTRIES; i++)
		write_done(order, i, last + LANE_ENTRIES);
	(void)epoll_ctl(epoll, EPOLL_CTL_DEL, order->lifeline, NULL);
	close(order->lifeline);
	order->lifeline = -1;
	while (*link != order)
		link = &(*link)->next;
	*link = order->next;
	let_go(order);
}

static void *watch_orders(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	int mine = epoll;
	pthread_mutex_unlock(&lock);
	for (bool on = true; on;) {
		struct epoll_event event;
		int n = epoll_wait(mine, &event, 1, -1);
		pthread_mutex_lock(&lock);
		if (n == 1)
			lifeline_ended(event.data.ptr);
		on = watched != NULL;
		if (!on) {
			close(epoll);
			epoll = -1;
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

/* Called with the lock. */
static bool start_thread(void)
{
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t thread;
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0)
		return false;
	sigfillset(&all);
	bool started = pthread_attr_init(&attributes) == 0;
	if (started) {
		(void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
		(void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
		(void)pthread_sigmask(SIG_SETMASK, &all, &before);
		started = pthread_create(&thread, &attributes, watch_orders, NULL) == 0;
		(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
		(void)pthread_attr_destroy(&attributes);
	}
	if (!started) {
		close(epoll);
		epoll = -1;
	}
	return started;
}

/* ---- A child of fork() has no such thread, and may not use its parent's streams ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* The parent's orders stay in the list: nothing in the child lets them go. */
static void in_child(void)
{
	if (epoll >= 0)
		close(epoll);
	epoll = -1;
	forked = true;
	pthread_mutex_unlock(&lock);
}

static void order_watch_prepare(void)
{
	(void)pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- Watching ---- */

/* Called with the lock. */
static bool order_watch_add(struct order *order)
{
	struct epoll_event event = {.events = 0, .data.ptr = order}; /* its end is told always */
	if (epoll < 0 && !start_thread())
		return false;
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, order->lifeline, &event) != 0)
		return false;
	order->next = watched;
	watched = order;
	return true;
}

struct order *order_new(const struct lane_memory *memory, int lifeline)
{
	struct order *order = calloc(1, sizeof(*order));
	if (!order)
		return NULL;
	(void)pthread_once(&once, order_watch_prepare);
	order->holders = 2;
	order->lifeline = fcntl(lifeline, F_DUPFD_CLOEXEC, 0);
	order->memory = map_again(memory);
	pthread_mutex_lock(&lock);
	bool added = order->lifeline >= 0 && order->memory && order_watch_add(order);
	pthread_mutex_unlock(&lock);
	if (!added) {
		free_order(order);
		order = NULL;
	}
	return order;
}
