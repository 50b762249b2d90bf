/*
 * remote_url.h: reads the address of the cache's second tier, the value of --remote.  No text that
 * is shown has the password in it.
 *
 *   redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]     HOST may be [an IPv6 address]
 *   unix:[//[USER]:PASSWORD@]/PATH/OF/SOCKET[?db=DATABASE]
 *
 * %XX stands for a byte in user and password.
 */
#ifndef KILN_DAEMON_REMOTE_URL_H
#define KILN_DAEMON_REMOTE_URL_H

#include "daemon/plan/kernel.h"

struct remote_url {
	char host[256]; /* or the path of a socket, if is_path; "": no second tier */
	bool is_path;
	uint16_t port;
	int database;
	char user[128], password[256]; /* "": none */
	char shown[320];               /* the URL without user and password */
};

/* Reads a URL.  given: the option's name, "--remote".  KILN_OK, or KILN_EINVAL with a sentence that
 * names the wrong part. */
int remote_url_parse(const char *given, const char *text, struct remote_url *out,
					 char error[KERNEL_ERROR_MAX]);
/* Overwrites the password in the text: the system shows the arguments of a process. */
void remote_url_hide(char *text);

#endif
