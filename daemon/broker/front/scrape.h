/*
 * scrape: answers monitoring systems at --metrics: GET /metrics by HTTP/1.1, on loopback or a Unix
 * socket, one request a connection.
 */
#ifndef KILN_DAEMON_SCRAPE_H
#define KILN_DAEMON_SCRAPE_H

#include "daemon/broker/broker.h"

/* Listens, if --metrics says where.  KILN_OK, or a status with a sentence. */
int scrape_open(struct broker *broker, char error[KERNEL_ERROR_MAX]);
/* Closes the handles of the loop; the end of the last one frees all. */
void scrape_close(struct broker *broker);
/* Returns where it listens, "127.0.0.1:9464" or "unix:PATH"; "": nowhere. */
const char *scrape_address(const struct broker *broker);

#endif
