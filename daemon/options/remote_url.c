/* remote_url.c: takes the URL of the second tier apart.  Knows nothing of connections. */
#include "remote_url.h"

#include <stdlib.h>
#include <string.h>

#include "option_row.h"

#define PORT 6379
#define DATABASE_MOST 65535
#define PATH_MOST 107 /* of sockaddr_un */

/* Undoes %XX.  False: the text is too long, or wrong. */
static bool decode(const char *text, size_t size, char *out, size_t room)
{
	size_t used = 0;
	for (size_t i = 0; i < size; i++) {
		char byte = text[i];
		if (byte == '%') {
			char digits[3] = {0}, *end;
			memcpy(digits, text + i + 1, size - i > 2 ? 2 : 0);
			byte = (char)strtoul(digits, &end, 16);
			if (strspn(digits, "0123456789abcdefABCDEF") != 2 || !byte)
				return false;
			i += 2;
		}
		if (used + 1 >= room)
			return false;
		out[used++] = byte;
	}
	out[used] = 0;
	return true;
}

/* Reads a number of digits only; -1: it is none, or larger than most. */
static long number(const char *text, size_t size, long most)
{
	char digits[8] = "";
	if (!size || size >= sizeof(digits))
		return -1;
	memcpy(digits, text, size);
	long value = strspn(digits, "0123456789") == size ? strtol(digits, NULL, 10) : -1;
	return value <= most ? value : -1;
}

/* Reads "user:password@" at *at, if it is there, and moves *at behind it. */
static int read_login(const char *given, const char **at, struct remote_url *url,
					  char error[KERNEL_ERROR_MAX])
{
	const char *end = strrchr(*at, '@');
	if (!end)
		return KILN_OK;
	const char *colon = memchr(*at, ':', (size_t)(end - *at));
	/* A '/' that is not written %2F would show a part of the password as a host's name. */
	if (!colon || colon + 1 == end || memchr(*at, '/', (size_t)(end - *at)) ||
		!decode(*at, (size_t)(colon - *at), url->user, 128) ||
		!decode(colon + 1, (size_t)(end - colon - 1), url->password, 256))
		return FAIL(KILN_EINVAL,
					"%s: what stands before '@' is not USER:PASSWORD or :PASSWORD, of up to 127 "
					"and 255 bytes, with %%XX for a byte that is written so",
					given);
	*at = end + 1;
	return KILN_OK;
}

static int read_database(const char *given, const char *text, struct remote_url *url,
						 char error[KERNEL_ERROR_MAX])
{
	long value = number(text, strlen(text), DATABASE_MOST);
	if (value < 0)
		return FAIL(KILN_EINVAL, "%s: the database \"%.40s\" is not a number from 0 to %d", given,
					text, DATABASE_MOST);
	url->database = (int)value;
	return KILN_OK;
}

static int read_host(const char *given, const char *at, struct remote_url *url,
					 char error[KERNEL_ERROR_MAX])
{
	bool bracket = *at == '[';
	const char *host = at + bracket;
	size_t size = strcspn(host, bracket ? "]/" : ":/");
	const char *end = host + size + (bracket && host[size] == ']');
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._";
	bool fits = size && size < sizeof(url->host) && (!bracket || host[size] == ']');
	for (size_t i = 0; fits && i < size; i++)
		fits = strchr(letters, host[i]) || (bracket && strchr(":%", host[i]));
	if (!fits)
		return FAIL(
			KILN_EINVAL,
			"%s: \"%.*s\" is not the name or address of a host (an IPv6 address stands in [])",
			given, (int)(size < 80 ? size : 80), host);
	memcpy(url->host, host, size);
	url->port = PORT;
	if (*end == ':') {
		size = strcspn(end + 1, "/");
		long port = number(end + 1, size, 65535);
		if (port < 1)
			return FAIL(KILN_EINVAL, "%s: the port \"%.*s\" is not a number from 1 to 65535", given,
						(int)(size < 40 ? size : 40), end + 1);
		url->port = (uint16_t)port;
		end += 1 + size;
	}
	int status = *end == '/' && end[1] ? read_database(given, end + 1, url, error) : KILN_OK;
	snprintf(url->shown, sizeof(url->shown), bracket ? "redis://[%s]:%d/%d" : "redis://%s:%d/%d",
			 url->host, url->port, url->database);
	return status;
}

static int read_path(const char *given, const char *at, struct remote_url *url,
					 char error[KERNEL_ERROR_MAX])
{
	size_t size = strcspn(at, "?");
	if (*at != '/' || size > PATH_MOST)
		return FAIL(KILN_EINVAL,
					"%s: \"%.*s\" is not the absolute path of a socket, of up to %d bytes", given,
					(int)(size < 120 ? size : 120), at, PATH_MOST);
	memcpy(url->host, at, size);
	url->is_path = true;
	int status = KILN_OK;
	if (at[size] && strncmp(at + size, "?db=", 4) != 0)
		return FAIL(KILN_EINVAL, "%s: behind the path of a socket stands ?db=DATABASE or nothing",
					given);
	if (at[size])
		status = read_database(given, at + size + 4, url, error);
	snprintf(url->shown, sizeof(url->shown), "unix:%s?db=%d", url->host, url->database);
	return status;
}

int remote_url_parse(const char *given, const char *text, struct remote_url *out,
					 char error[KERNEL_ERROR_MAX])
{
	struct remote_url url = {.host = ""};
	bool is_path = !strncmp(text, "unix:", 5);
	if (!is_path && strncmp(text, "redis://", 8) != 0)
		return FAIL(KILN_EINVAL, "%s: it begins neither with redis://HOST nor with unix:/PATH%s",
					given, strncmp(text, "rediss://", 9) ? "" : " (TLS is for a tunnel to do)");
	const char *at = text + (is_path ? 5 : 8);
	bool login = !is_path || !strncmp(at, "//", 2);
	at += is_path && login ? 2 : 0;
	int status = login ? read_login(given, &at, &url, error) : KILN_OK;
	if (status == KILN_OK)
		status = is_path ? read_path(given, at, &url, error) : read_host(given, at, &url, error);
	if (status == KILN_OK)
		*out = url;
	return status;
}

void remote_url_hide(char *text)
{
	char *login = strstr(text, "//");
	char *end = login ? strrchr(login + 2, '@') : NULL;
	char *colon = end ? memchr(login + 2, ':', (size_t)(end - login - 2)) : NULL;
	if (colon)
		memset(colon + 1, '*', (size_t)(end - colon - 1));
}
