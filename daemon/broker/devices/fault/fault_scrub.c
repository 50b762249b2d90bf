/* fault_scrub.c: removes secrets from texts that other programs wrote. */
#include <ctype.h>
#include <string.h>

#include "fault.h"

#define KEY_DIGITS 64 /* of a kernel's key, which a report may name */

/* Hides the secret, addresses, and hexadecimal numbers longer than the key of a kernel. */
void fault_scrub(char *text, const char *secret)
{
	size_t length = strlen(secret);
	for (char *at = text; length && (at = strstr(at, secret)); at += length)
		memset(at, '.', length);
	for (char *at = text; *at;) {
		bool address = at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
		size_t size = strspn(at + 2 * address, "0123456789abcdefABCDEF");
		if (address && size > 5)
			memset(at + 2, '.', size);
		else if (size > KEY_DIGITS)
			memset(at, '.', size);
		at += 2 * address + size;
		/* Skips the rest of a word that begins like a number. */
		while (isalnum((unsigned char)*at))
			at++;
		while (*at && !isalnum((unsigned char)*at))
			at++;
	}
}
