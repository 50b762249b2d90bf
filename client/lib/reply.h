/*
 * reply.h: answers as the program gets them.
 */
#ifndef KILN_CLIENT_REPLY_H
#define KILN_CLIENT_REPLY_H

#include "link.h"

/* Takes the answer over, also where it fails. */
int reply_make(struct answer *answer, struct kiln_reply **out);

#endif
