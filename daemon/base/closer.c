/*
 * closer.c: a list of descriptors for each uid that has some, and the threads that close them.
 *
 * One thread closes for a uid.  Where it is slow, the clock, a thread that closes nothing, calls as
 * many again, and so on until nothing waits.
 */
#include "closer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deadlines.h"
#include "thread.h"
#include "util.h"

#define STACK_BYTES ((size_t)128 << 10)
#define NVIDIA_MAJOR 195 /* of the devices that CUDA's descriptors are of */

struct item {
	int fd;
	bool is_socket; /* of a client */
	pid_t thread;   /* that closes it */
	uint64_t began_us;
	struct item *next;
};

/* The descriptors of a uid, as long as it has any. */
struct account {
	uint32_t uid;
	int servers; /* threads that close for it, and those that were called */
	int called;  /* threads that were called, and have not come yet */
	int waiting;
	int sockets; /* of clients, that wait or are being closed */
	bool full;   /* closer_is_full() said so */
	struct item *head, *tail, *closing;
	struct account *next;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake, tick, settled;
	struct account *accounts;
	int threads, idle, wakes;
	uint64_t waiting, closing;
	int sockets, sockets_most;
	bool ticking, open;
	void (*relieved)(void *arg);
	void *arg;
} closer = {.lock = PTHREAD_MUTEX_INITIALIZER,
			.wake = PTHREAD_COND_INITIALIZER,
			.sockets_most = CLOSER_SOCKETS};

/* ---- Accounts ---- */

static struct account *closer_find(uint32_t uid)
{
	struct account *account = closer.accounts;
	while (account && account->uid != uid)
		account = account->next;
	return account;
}

static struct account *find_or_make(uint32_t uid)
{
	struct account *account = closer_find(uid);
	if (account)
		return account;
	account = util_alloc(sizeof(*account));
	account->uid = uid;
	account->next = closer.accounts;
	closer.accounts = account;
	return account;
}

static void drop_if_empty(struct account *account)
{
	struct account **link = &closer.accounts;
	if (account->servers || account->waiting)
		return;
	while (*link != account)
		link = &(*link)->next;
	*link = account->next;
	free(account);
}

/* Counts the descriptors whose close() takes longer than it should. */
static int count_slow(const struct account *account)
{
	uint64_t now = util_now_us();
	int count = 0;
	for (const struct item *item = account->closing; item; item = item->next)
		count += now - item->began_us > PAUSE_CLOSER_HELP_US;
	return count;
}

static bool is_full(const struct account *account)
{
	return account->waiting >= CLOSER_FULL || count_slow(account) >= CLOSER_SLOW;
}

/* ---- Threads that close ---- */

static struct item *pop(struct account *account)
{
	struct item *item = account->head;
	account->head = item->next;
	account->waiting--;
	closer.waiting--;
	closer.closing++;
	item->began_us = util_now_us();
	item->thread = gettid();
	item->next = account->closing;
	account->closing = item;
	if (!closer.waiting)
		pthread_cond_broadcast(&closer.settled);
	return item;
}

static void done(struct account *account, struct item *item)
{
	struct item **link = &account->closing;
	while (*link != item)
		link = &(*link)->next;
	*link = item->next;
	account->sockets -= item->is_socket;
	closer.sockets -= item->is_socket;
	free(item);
	closer.closing--;
	if (account->full && !is_full(account)) {
		account->full = false;
		if (closer.relieved)
			closer.relieved(closer.arg);
	}
}

#ifdef KILN_TEST_HOOKS
static _Atomic uint64_t spin_us; /* see closer_spin() */

void closer_spin(uint64_t micros)
{
	spin_us = micros;
}

/* A thread that the system makes wait just before its close(). */
static void spin(void)
{
	for (uint64_t end = util_now_us() + spin_us; util_now_us() < end;)
		;
}
#else
static void spin(void)
{
}
#endif

/* Closes until nothing waits; the thread counts as a server already. */
static void serve(struct account *account)
{
	while (account->head) {
		struct item *item = pop(account);
		pthread_mutex_unlock(&closer.lock);
		spin();
		close(item->fd);
		pthread_mutex_lock(&closer.lock);
		done(account, item);
	}
	account->servers--;
	drop_if_empty(account);
}

/* Chooses an account that called a thread, or has descriptors and none; the caller is its server
 * then. */
static struct account *choose(void)
{
	struct account *account = closer.accounts;
	while (account && !account->called && (account->servers || !account->waiting))
		account = account->next;
	if (account && account->called)
		account->called--;
	else if (account)
		account->servers++;
	return account;
}

static void *closer_run(void *unused)
{
	struct account *account;
	(void)unused;
	pthread_mutex_lock(&closer.lock);
	for (;;) {
		while ((account = choose()))
			serve(account);
		closer.idle++;
		while (!closer.wakes)
			pthread_cond_wait(&closer.wake, &closer.lock);
		closer.wakes--;
	}
	return NULL;
}

static bool add_thread(void *(*body)(void *))
{
	bool started = thread_start(STACK_BYTES, body, NULL);
	closer.threads += started;
	return started;
}

/* Calls one more thread; false: there is none, and threads that are done will choose() this. */
static bool call_thread(struct account *account)
{
	if (closer.idle) {
		closer.idle--;
		closer.wakes++;
		pthread_cond_signal(&closer.wake);
	} else if (closer.threads >= CLOSER_THREADS || !add_thread(closer_run)) {
		return false;
	}
	account->servers++;
	account->called++;
	return true;
}

/* ---- The clock ---- */

static void *run_clock(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&closer.lock);
	for (;;) {
		closer.ticking = closer.waiting > 0;
		while (!closer.waiting)
			pthread_cond_wait(&closer.tick, &closer.lock);
		closer.ticking = true;
		const struct timespec until = thread_after_us(PAUSE_CLOSER_TICK_US);
		pthread_cond_timedwait(&closer.tick, &closer.lock, &until);
		for (struct account *account = closer.accounts; account; account = account->next) {
			int more = account->servers ? count_slow(account) ? account->servers : 0 : 1;
			while (more-- > 0 && account->waiting > account->called && call_thread(account))
				;
		}
	}
	return NULL;
}

/* ---- From the loop ---- */

bool closer_open(void (*relieved)(void *arg), void *arg)
{
	pthread_mutex_lock(&closer.lock);
	closer.relieved = relieved;
	closer.arg = arg;
	if (!closer.open) {
		thread_condition(&closer.tick);
		thread_condition(&closer.settled);
		closer.open = add_thread(closer_run) && add_thread(run_clock);
	}
	bool open = closer.open;
	pthread_mutex_unlock(&closer.lock);
	return open;
}

void closer_detach(void)
{
	pthread_mutex_lock(&closer.lock);
	closer.relieved = NULL;
	pthread_mutex_unlock(&closer.lock);
}

static void put(uint32_t uid, int fd, bool is_socket)
{
	if (fd < 0)
		return;
	pthread_mutex_lock(&closer.lock);
	if (!closer.open) {
		pthread_mutex_unlock(&closer.lock);
		close(fd);
		return;
	}
	struct item *item = util_alloc(sizeof(*item));
	struct account *account = find_or_make(uid);
	item->fd = fd;
	item->is_socket = is_socket;
	account->sockets += is_socket;
	closer.sockets += is_socket;
	if (account->head)
		account->tail->next = item;
	else
		account->head = item;
	account->tail = item;
	account->waiting++;
	closer.waiting++;
	if ((account->servers || !call_thread(account)) && !closer.ticking)
		pthread_cond_signal(&closer.tick);
	pthread_mutex_unlock(&closer.lock);
}

void closer_put(uint32_t uid, int fd)
{
	put(uid, fd, false);
}

void closer_put_socket(int sock)
{
	struct ucred peer = {.uid = getuid()};
	socklen_t peer_size = sizeof(peer), on_size = sizeof(int);
	int on = 1;
	shutdown(sock, SHUT_RDWR);
	if (getsockopt(sock, SOL_SOCKET, CLOSER_PASSRIGHTS, &on, &on_size) == 0 && !on) {
		close(sock);
		return;
	}
	getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size);
	put(peer.uid, sock, true);
}

bool closer_is_crowded(uint32_t *uid)
{
	pthread_mutex_lock(&closer.lock);
	bool is_crowded = closer.sockets >= closer.sockets_most;
	const struct account *most = closer.accounts;
	for (const struct account *account = most; account; account = account->next)
		most = account->sockets > most->sockets ? account : most;
	*uid = most ? most->uid : 0;
	pthread_mutex_unlock(&closer.lock);
	return is_crowded;
}

#ifdef KILN_TEST_HOOKS
void closer_crowd(int sockets)
{
	pthread_mutex_lock(&closer.lock);
	closer.sockets_most = sockets ? sockets : CLOSER_SOCKETS;
	pthread_mutex_unlock(&closer.lock);
}
#endif

bool closer_is_full(uint32_t uid)
{
	pthread_mutex_lock(&closer.lock);
	struct account *account = closer_find(uid);
	bool full = account && is_full(account);
	if (full)
		account->full = true;
	pthread_mutex_unlock(&closer.lock);
	return full;
}

/* close() takes the descriptor out of the process's table before it sleeps, and the thread does not
 * sleep before it calls close().  So while the thread runs, wants to or is stopped, the table may
 * still have the descriptor.  The system is asked for the thread: to ask for the descriptor could
 * make the loop its last user, which closes it. */
static bool is_in_table(const struct item *item)
{
	char path[64], stat[256];
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)item->thread);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return false;
	ssize_t size = read(file, stat, sizeof(stat) - 1);
	close(file);
	stat[size > 0 ? size : 0] = 0;
	const char *name_end = strrchr(stat, ')');
	return name_end && name_end[1] && name_end[2] != 'S' && name_end[2] != 'D';
}

/* Called with the lock. */
static bool is_settled(void)
{
	for (const struct account *account = closer.accounts; account; account = account->next)
		for (const struct item *item = account->closing; item; item = item->next)
			if (is_in_table(item))
				return false;
	return closer.waiting == 0;
}

/* The system may not let a thread run that was called, or that is between two descriptors: the
 * clock does not see that, and another takes what waits.  Called with the lock. */
static void call_others(void)
{
	for (struct account *account = closer.accounts; account; account = account->next)
		if (account->waiting)
			call_thread(account);
}

bool closer_settle(void)
{
	const uint64_t begin = util_now_us(), end = begin + DEADLINE_CLOSER_SETTLE_US;
	uint64_t help = begin + PAUSE_CLOSER_HELP_US;
	pthread_mutex_lock(&closer.lock);
	bool settled = is_settled();
	while (!settled && util_now_us() < end) {
		if (util_now_us() > help) {
			call_others();
			help += PAUSE_CLOSER_HELP_US;
		}
		const struct timespec soon = thread_after_us(PAUSE_CLOSER_SETTLE_US);
		pthread_cond_timedwait(&closer.settled, &closer.lock, &soon);
		settled = is_settled();
	}
	pthread_mutex_unlock(&closer.lock);
	return settled;
}

/* A server of a FUSE file system may hold back the answer to fstat(): STATX_DONT_SYNC asks nobody,
 * and seals are of memory alone. */
bool closer_is_harmless(int fd)
{
	struct statx status;
	return fcntl(fd, F_GET_SEALS) >= 0 ||
		   (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) == 0 &&
			S_ISCHR(status.stx_mode) && status.stx_rdev_major == NVIDIA_MAJOR);
}

void closer_sift(uint32_t uid, struct frame *frame)
{
	for (int i = 0; i < frame->fd_count + frame->rest_count; i++) {
		if (i < frame->fd_count && closer_is_harmless(frame->fds[i]))
			continue;
		closer_put(uid, frame->fds[i]);
		frame->fds[i] = -1;
	}
}

static void put_ours(void *unused, int fd)
{
	(void)unused;
	closer_put(getuid(), fd);
}

const struct frame_closer closer_ours = {put_ours, NULL};
