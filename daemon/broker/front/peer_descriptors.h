/*
 * peer_descriptors.h: descriptors that clients send (SCM_RIGHTS): which numbers they may have in
 * the daemon.  The system gives the lowest number that is free: the last quarter is used when all
 * others are, and is the operator's.
 */
#ifndef KILN_DAEMON_PEER_DESCRIPTORS_H
#define KILN_DAEMON_PEER_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

/* The descriptors of a user have numbers below this; 0: they may have any. */
int rights_below(uint32_t uid);
bool rights_allow(uint32_t uid, int fd);
/* "kilnd has as many files open as ...", for the sentence of a refusal. */
const char *rights_full_text(uint32_t uid);
/* Descriptors may come with messages of this socket, or of those that it accepts. */
void rights_admit(int sock);

#endif
