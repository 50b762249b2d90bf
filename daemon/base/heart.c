/* heart.c: one thread, which sleeps without a clock once its process was idle for a while. */
#include "heart.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "thread.h"

#define STACK_BYTES ((size_t)256 << 10)
#define IDLE_BEATS 8 /* before it sleeps: waking it costs a system call */

struct heart {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	heart_beat beat;
	void *arg;
	uint32_t every_ms;
	atomic_int busy; /* working threads that are */
	atomic_bool asleep;
};

static void *heart_run(void *arg)
{
	struct heart *heart = arg;
	bool said = false;
	int idle = 0;
	pthread_mutex_lock(&heart->mutex);
	for (;;) {
		const struct timespec next = thread_after_us((uint64_t)heart->every_ms * 1000);
		while (pthread_cond_timedwait(&heart->changed, &heart->mutex, &next) == 0) {
		}
		bool busy = atomic_load(&heart->busy) > 0;
		/* The last beat says that the process rests; it is repeated until it is heard. */
		if (busy || said)
			said = !heart->beat(heart->arg, busy) || busy;
		idle = busy || said ? 0 : idle + 1;
		if (idle <= IDLE_BEATS)
			continue;
		/* heart_busy() sets busy and then looks at asleep; this thread sets asleep and then looks
		 * at busy: one of them sees the other. */
		atomic_store(&heart->asleep, true);
		while (atomic_load(&heart->busy) == 0)
			pthread_cond_wait(&heart->changed, &heart->mutex);
		atomic_store(&heart->asleep, false);
	}
	return NULL;
}

struct heart *heart_start(uint32_t every_ms, heart_beat beat, void *arg)
{
	struct heart *heart = every_ms ? calloc(1, sizeof(*heart)) : NULL;
	if (!heart)
		return NULL;
	heart->beat = beat;
	heart->arg = arg;
	heart->every_ms = every_ms;
	pthread_mutex_init(&heart->mutex, NULL);
	thread_condition(&heart->changed);
	if (thread_start(STACK_BYTES, heart_run, heart))
		return heart;
	free(heart);
	return NULL;
}

void heart_busy(struct heart *heart, bool *was, bool busy)
{
	if (!heart || *was == busy)
		return;
	*was = busy;
	atomic_fetch_add(&heart->busy, busy ? 1 : -1);
	if (!busy || !atomic_load(&heart->asleep))
		return;
	pthread_mutex_lock(&heart->mutex);
	pthread_cond_signal(&heart->changed);
	pthread_mutex_unlock(&heart->mutex);
}
