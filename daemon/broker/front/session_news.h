/* session_news: the news of device processes, as sessions hear them: devices/events.h says when. */
#ifndef KILN_DAEMON_SESSION_NEWS_H
#define KILN_DAEMON_SESSION_NEWS_H

#include "daemon/broker/broker.h"

struct device_handle;

void news_device_changed(struct broker *broker, struct device_handle *executor);
void news_device_lost(struct broker *broker, struct device_handle *executor, const char *why);
bool news_device_used(const struct broker *broker, const struct device_handle *executor);
bool news_device_lanes(const struct broker *broker, const struct device_handle *executor,
					   bool *under_way);
void news_printed(struct broker *broker, const struct device_handle *executor, const void *text,
				  size_t bytes, uint64_t cut);
void news_lane_broke(struct broker *broker, const struct device_handle *executor, uint64_t stream,
					 const char *why);

#endif
