/* remote_none.c: stands for the second tier in a kilnd that is built without hiredis, whose options
 * refuse --remote. */
#include "remote.h"

int remote_open(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	(void)broker;
	error[0] = 0;
	return KILN_OK;
}

void remote_close(struct broker *broker)
{
	(void)broker;
}

void remote_free(struct broker *broker)
{
	(void)broker;
}

bool remote_finished(struct broker *broker)
{
	(void)broker;
	return true;
}

struct remote_fetch *remote_fetch(struct broker *broker, const struct remote_want *want,
								  remote_done done, void *arg)
{
	(void)broker, (void)want, (void)done, (void)arg;
	return NULL;
}

void remote_leave(struct broker *broker, struct remote_fetch *fetch)
{
	(void)broker, (void)fetch;
}

bool remote_is_waiting(const struct remote_fetch *fetch)
{
	(void)fetch;
	return false;
}

void remote_compiled(struct broker *broker, struct cache_row *row)
{
	(void)broker, (void)row;
}

void remote_not_compiled(struct broker *broker, const char *key)
{
	(void)broker, (void)key;
}

bool remote_winner_due(const struct broker *broker, const struct cache_tuned *place)
{
	(void)broker, (void)place;
	return false;
}

bool remote_winner_look(struct broker *broker, const struct cache_tuned *place,
						remote_winner_done done, void *arg)
{
	(void)broker, (void)place, (void)done, (void)arg;
	return false;
}

void remote_winner_put(struct broker *broker, const struct cache_tuned *row)
{
	(void)broker, (void)row;
}

void remote_winner_remove(struct broker *broker, const struct cache_tuned *place)
{
	(void)broker, (void)place;
}

uint64_t remote_winner_looking(const struct broker *broker)
{
	(void)broker;
	return 0;
}

uint64_t remote_asking(const struct broker *broker)
{
	(void)broker;
	return 0;
}

uint64_t remote_queued(const struct broker *broker)
{
	(void)broker;
	return 0;
}

bool remote_stats(const struct broker *broker, struct remote_stats *out)
{
	(void)broker, (void)out;
	return false;
}
