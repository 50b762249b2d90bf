/* fault_scrub.c: what others wrote may quote what is nobody's business. */
#include <ctype.h>
#include <string.h>

#include "fault.h"

#define KEY_DIGITS 64 /* of a kernel's key, which may be named */

static void dots(char *text, size_t size)
{
	memset(text, '.', size);
}

static void hide_word(char *text, const char *word)
{
	size_t size = strlen(word);
	for (char *at = text; size && (at = strstr(at, word)); at += size)
		dots(at, size);
}

/* Addresses, and more hexadecimal digits in a row than a key of a kernel has. */
void fault_scrub(char *text, const char *secret)
{
	hide_word(text, secret);
	for (char *at = text; *at;) {
		bool address = at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
		size_t size = strspn(at + 2 * address, "0123456789abcdefABCDEF");
		if (address && size > 5)
			dots(at + 2, size);
		else if (size > KEY_DIGITS)
			dots(at, size);
		at += 2 * address + size;
		/* A word that only begins like a number is passed over as a whole. */
		while (isalnum((unsigned char)*at))
			at++;
		while (*at && !isalnum((unsigned char)*at))
			at++;
	}
}
