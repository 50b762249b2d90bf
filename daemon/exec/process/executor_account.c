/*
 * executor_account: divides the time in which the device has work among those whose work it is, for
 * the broker's metrics (trail.h).  The time is the process's own: from when it gives work to the
 * device until it hears of its end.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"

static void add(_Atomic uint64_t *word, uint64_t more)
{
	uint64_t before = atomic_load_explicit(word, memory_order_relaxed);
	atomic_store_explicit(word, before + more, memory_order_relaxed);
}

void exec_account_open(struct exec *executor)
{
	/* It is held for some ten instructions: to sleep for it would cost much more. */
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
#ifdef __GLIBC__
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
	pthread_mutex_init(&executor->accounts.mutex, &attr);
	pthread_mutexattr_destroy(&attr);
}

uint32_t exec_account_read(const msgpack_object *root)
{
	uint64_t account = wire_get_uint(root, "account", 0);
	return account < TRAIL_ACCOUNTS ? (uint32_t)account : 0;
}

/* Each launcher has read the time for itself: one may be a little behind. */
static void set_clock(struct exec *executor, uint64_t now_us)
{
	struct exec_accounts *accounts = &executor->accounts;
	uint64_t elapsed = now_us > accounts->clock_us ? now_us - accounts->clock_us : 0;
	accounts->clock_us += elapsed;
	if (!accounts->busy)
		return;
	accounts->clock += elapsed * TRAIL_UNITS / accounts->busy;
	add(&executor->trail->busy_us, elapsed);
}

static void write_share(struct exec *executor, uint32_t account)
{
	struct exec_accounts *accounts = &executor->accounts;
	add(&executor->trail->shares[account], accounts->clock - accounts->since[account]);
	accounts->since[account] = accounts->clock;
}

void exec_account_begin(struct launcher *launcher, uint32_t account)
{
	struct exec_accounts *accounts = &launcher->executor->accounts;
	if (launcher->account_flights[account]++)
		return;
	pthread_mutex_lock(&accounts->mutex);
	if (accounts->launchers[account]++ == 0) {
		set_clock(launcher->executor, launcher->now_us);
		accounts->since[account] = accounts->clock;
		accounts->busy++;
	}
	pthread_mutex_unlock(&accounts->mutex);
}

void exec_account_end(struct launcher *launcher, uint32_t account)
{
	struct exec_accounts *accounts = &launcher->executor->accounts;
	if (--launcher->account_flights[account])
		return;
	pthread_mutex_lock(&accounts->mutex);
	if (--accounts->launchers[account] == 0) {
		/* Work may begin and end within a turn, whose time is that of its beginning. */
		set_clock(launcher->executor, util_now_us());
		write_share(launcher->executor, account);
		accounts->busy--;
	}
	pthread_mutex_unlock(&accounts->mutex);
}

void exec_account_settle(struct launcher *launcher)
{
	struct exec_accounts *accounts = &launcher->executor->accounts;
	if (launcher->now_us - launcher->settled_us < PAUSE_ACCOUNT_MS * 1000)
		return;
	launcher->settled_us = launcher->now_us;
	pthread_mutex_lock(&accounts->mutex);
	set_clock(launcher->executor, launcher->now_us);
	for (uint32_t i = 0; i < TRAIL_ACCOUNTS; i++)
		if (accounts->launchers[i])
			write_share(launcher->executor, i);
	pthread_mutex_unlock(&accounts->mutex);
}

int exec_account_patience(const struct launcher *launcher, int patience)
{
	bool short_enough = patience >= 0 && patience < PAUSE_ACCOUNT_MS;
	return short_enough || !launcher_in_flight(launcher) ? patience : PAUSE_ACCOUNT_MS;
}
