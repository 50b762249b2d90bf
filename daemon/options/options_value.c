/*
 * options_value.c: reads and writes the value of an option by the kind of its row, and refuses a
 * wrong one in one sentence.  Knows no option by name.
 */
#include "option_row.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

/* Values may be long: a sentence quotes the beginning. */
#define QUOTE "\"%.80s\""

_Static_assert(sizeof(enum util_level) == sizeof(unsigned) &&
				   sizeof(enum util_log_format) == sizeof(unsigned) &&
				   sizeof(enum options_role) == sizeof(unsigned) &&
				   sizeof(enum options_specialize) == sizeof(unsigned) &&
				   sizeof(enum options_warm) == sizeof(unsigned) &&
				   sizeof(enum device_order) == sizeof(unsigned) &&
				   sizeof(enum options_miss) == sizeof(unsigned) &&
				   sizeof(enum sandbox_mode) == sizeof(unsigned) &&
				   sizeof(enum options_show) == sizeof(unsigned),
			   "words are stored as unsigned");

/* Reads digits; false: there are others, or the number is larger than most. */
static bool read_number(const char *text, uint64_t most, uint64_t *out)
{
	uint64_t value = 0;
	if (!*text)
		return false;
	for (; *text; text++)
		if (!isdigit((unsigned char)*text) || __builtin_mul_overflow(value, (uint64_t)10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return false;
	*out = value;
	return value <= most;
}

void option_range(const struct option_row *row, char low[24], char high[24])
{
	if (row->kind == OPTION_BYTES) {
		util_bytes(row->low, low);
		util_bytes(row->high, high);
	} else {
		snprintf(low, 24, "%llu", (unsigned long long)row->low);
		snprintf(high, 24, "%llu", (unsigned long long)row->high);
	}
}

/* True: a number whose 0 is written "auto". */
static bool takes_auto(const struct option_row *row)
{
	return row->fallback && strcmp(row->fallback, "auto") == 0;
}

static int read_amount(const struct option_row *row, const char *given, const char *text,
					   uint64_t *out, char error[KERNEL_ERROR_MAX])
{
	bool bytes = row->kind == OPTION_BYTES;
	uint64_t value;
	bool fine = bytes ? util_parse_bytes(text, &value) : read_number(text, UINT64_MAX, &value);
	if (takes_auto(row) && strcmp(text, "auto") == 0) {
		*out = 0;
		return KILN_OK;
	}
	if (fine && ((value >= row->low && value <= row->high) || (value == 0 && row->zero))) {
		*out = value;
		return KILN_OK;
	}
	char low[24], high[24];
	option_range(row, low, high);
	return FAIL(KILN_EINVAL, "%s: " QUOTE " is not a %s from %s to %s%s%s%s%s", given, text,
				bytes ? "size" : "whole number", low, high,
				bytes ? " (written like 4096, 512k, 64MiB)" : "", row->zero ? ", or 0 (" : "",
				row->zero ? row->zero : "", row->zero ? ")" : "");
}

static int read_path(const struct option_row *row, const char *given, const char *text, char *out,
					 char error[KERNEL_ERROR_MAX])
{
	size_t room = row->kind == OPTION_SOCKET_PATH ? OPTIONS_SOCKET_MAX : PATH_MAX;
	size_t size = strlen(text);
	if (size == 0)
		return FAIL(KILN_EINVAL, "%s: \"\" is not a path", given);
	if (size >= room) {
		return FAIL(KILN_EINVAL, "%s: " QUOTE "... has %zu bytes; %s has at most %zu", given, text,
					size, row->kind == OPTION_SOCKET_PATH ? "the path of a socket" : "a path",
					room - 1);
	}
	memcpy(out, text, size + 1);
	return KILN_OK;
}

static int read_word(const struct option_row *row, const char *given, const char *text,
					 unsigned *out, char error[KERNEL_ERROR_MAX])
{
	unsigned index = 0;
	size_t size = strlen(text);
	for (const char *word = row->value; word; index++) {
		size_t length = strcspn(word, "|");
		if (length == size && memcmp(word, text, size) == 0) {
			*out = index;
			return KILN_OK;
		}
		word = word[length] ? word + length + 1 : NULL;
	}
	return FAIL(KILN_EINVAL, "%s: " QUOTE " is not one of %s", given, text, row->value);
}

/* Reads a device's name of so many characters, at most most - 1. */
static bool read_device(const char *text, size_t size, char *name, size_t most)
{
	struct device_name parsed;
	if (size >= most || !device_name_read(text, size, &parsed))
		return false;
	memcpy(name, text, size);
	name[size] = 0;
	return true;
}

static bool add_device(struct options_devices *devices, const char *name)
{
	for (int i = 0; i < devices->count; i++)
		if (strcmp(devices->names[i], name) == 0)
			return false;
	if (devices->count == OPTIONS_MAX_DEVICES)
		return false;
	memcpy(devices->names[devices->count++], name, strlen(name) + 1);
	return true;
}

static int read_devices(const char *given, const char *text, struct options_devices *out,
						char error[KERNEL_ERROR_MAX])
{
	struct options_devices devices = {.automatic = strcmp(text, "auto") == 0};
	const char *item = devices.automatic || strcmp(text, "none") == 0 ? NULL : text;
	while (item) {
		size_t size = strcspn(item, ",");
		char name[DEVICE_UUID_TEXT];
		if (!read_device(item, size, name, sizeof(name)) || strchr(name, '/') ||
			!add_device(&devices, name)) {
			return FAIL(KILN_EINVAL,
						"%s: " QUOTE " is not auto, none, or up to %d different ones of cpu, "
						"cuda:0 to cuda:63 and GPU-UUID with ',' between",
						given, text, OPTIONS_MAX_DEVICES);
		}
		item = item[size] ? item + size + 1 : NULL;
	}
	*out = devices;
	return KILN_OK;
}

/* Reads a number, or the name of a user or group. */
static bool read_id(enum option_kind kind, const char *text, size_t size, uint32_t *out)
{
	char name[64];
	uint64_t id;
	if (size >= sizeof(name))
		return false;
	memcpy(name, text, size);
	name[size] = 0;
	/* The highest id means "no change" to the kernel. */
	if (read_number(name, UINT32_MAX - 1, &id)) {
		*out = (uint32_t)id;
		return true;
	}
	const struct passwd *user = kind == OPTION_UIDS && *name ? getpwnam(name) : NULL;
	const struct group *group = kind == OPTION_GIDS && *name ? getgrnam(name) : NULL;
	if (user)
		*out = user->pw_uid;
	if (group)
		*out = group->gr_gid;
	return user || group;
}

static int read_ids(enum option_kind kind, const char *given, const char *text,
					struct options_ids *out, char error[KERNEL_ERROR_MAX])
{
	struct options_ids ids = {.count = 0};
	const char *item = text;
	while (item) {
		size_t size = strcspn(item, ",");
		if (ids.count == OPTIONS_MAX_IDS || !read_id(kind, item, size, &ids.ids[ids.count])) {
			return FAIL(KILN_EINVAL,
						"%s: " QUOTE " is not a list of up to %d %s of this host, or numbers from "
						"0 to 4294967294, with ',' between",
						given, text, OPTIONS_MAX_IDS, kind == OPTION_UIDS ? "users" : "groups");
		}
		ids.count++;
		item = item[size] ? item + size + 1 : NULL;
	}
	*out = ids;
	return KILN_OK;
}

static int read_single(const struct option_row *row, const char *given, const char *text,
					   void *field, char error[KERNEL_ERROR_MAX])
{
	uint64_t number;
	if (row->kind == OPTION_DEVICE) {
		if (read_device(text, strlen(text), field, DEVICE_NAME_TEXT))
			return KILN_OK;
		return FAIL(KILN_EINVAL, "%s: " QUOTE " is not cpu, cuda:0 to cuda:63 or GPU-UUID", given,
					text);
	}
	if (!read_number(text, row->high, &number) || number < row->low) {
		return FAIL(KILN_EINVAL, "%s: " QUOTE " is not a descriptor from %d to %d", given, text,
					(int)row->low, (int)row->high);
	}
	*(int *)field = (int)number;
	return KILN_OK;
}

/* Sets an option that takes no value. */
static int read_none(const struct option_row *row, const char *given, const char *text, void *field,
					 char error[KERNEL_ERROR_MAX])
{
	if (text)
		return FAIL(KILN_EINVAL, "%s takes no value, not " QUOTE, given, text);
	if (row->kind == OPTION_FLAG)
		*(bool *)field = true;
	else
		*(unsigned *)field = (unsigned)row->low;
	return KILN_OK;
}

static int read_key(const char *given, const char *text, char *out, char error[KERNEL_ERROR_MAX])
{
	char why[KERNEL_ERROR_MAX];
	if (seal_check_name(text, why) != KILN_OK)
		return FAIL(KILN_EINVAL, "%s: %s", given, why);
	snprintf(out, SEAL_NAME_MAX, "%s", text);
	return KILN_OK;
}

static int read_remote(const char *given, const char *text, struct remote_url *out,
					   char error[KERNEL_ERROR_MAX])
{
#if KILN_WITH_REMOTE
	return remote_url_parse(given, text, out, error);
#else
	(void)text;
	(void)out;
	return FAIL(
		KILN_EINVAL,
		"%s: this kilnd was built without hiredis (KILN_WITH_REMOTE), and knows no second tier",
		given);
#endif
}

#define METRICS_ADDRESS "127.0.0.1:9464"

/* Reads "127.0.0.1:PORT", "localhost:PORT" or "[::1]:PORT". */
static bool read_loopback(const char *text, struct options_metrics *out)
{
	char host[48];
	uint64_t port;
	const char *colon = strrchr(text, ':');
	size_t size = colon ? (size_t)(colon - text) : sizeof(host);
	bool six = text[0] == '[' && size > 2 && text[size - 1] == ']';
	if (size >= sizeof(host) || !read_number(colon + 1, UINT16_MAX, &port))
		return false;
	snprintf(host, sizeof(host), "%.*s", (int)size - 2 * six, text + six);
	if (six) {
		out->at.ip6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
		out->size = sizeof(out->at.ip6);
		return inet_pton(AF_INET6, host, &out->at.ip6.sin6_addr) == 1 &&
			   IN6_IS_ADDR_LOOPBACK(&out->at.ip6.sin6_addr);
	}
	out->at.ip4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
	out->size = sizeof(out->at.ip4);
	return inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1",
					 &out->at.ip4.sin_addr) == 1 &&
		   ntohl(out->at.ip4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static int read_metrics(const char *given, const char *text, struct options_metrics *out,
						char error[KERNEL_ERROR_MAX])
{
	struct sockaddr_un *local = &out->at.local;
	text = text ? text : METRICS_ADDRESS;
	const char *path = strncmp(text, "unix:", 5) ? NULL : text + 5;
	bool fits = path && *path && strlen(path) < sizeof(local->sun_path);
	if (fits) {
		*local = (struct sockaddr_un){.sun_family = AF_UNIX};
		memcpy(local->sun_path, path, strlen(path) + 1);
		out->size = sizeof(*local);
	} else if (path || !read_loopback(text, out)) {
		return FAIL(KILN_EINVAL,
					"%s: " QUOTE " is not a port of this host alone, such as " METRICS_ADDRESS
					" or [::1]:9464, nor unix: and a path of at most %d bytes",
					given, text, OPTIONS_SOCKET_MAX - 1);
	}
	snprintf(out->text, sizeof(out->text), "%s", text);
	return KILN_OK;
}

int option_read(const struct option_row *row, const char *given, const char *text,
				struct options *out, char error[KERNEL_ERROR_MAX])
{
	void *field = (char *)out + row->offset;
	switch (row->kind) {
	case OPTION_NUMBER:
	case OPTION_BYTES:
		return read_amount(row, given, text, field, error);
	case OPTION_PATH:
	case OPTION_SOCKET_PATH:
		return read_path(row, given, text, field, error);
	case OPTION_WORD:
		return read_word(row, given, text, field, error);
	case OPTION_DEVICES:
		return read_devices(given, text, field, error);
	case OPTION_UIDS:
	case OPTION_GIDS:
		return read_ids(row->kind, given, text, field, error);
	case OPTION_REMOTE:
		return read_remote(given, text, field, error);
	case OPTION_KEY:
		return read_key(given, text, field, error);
	case OPTION_DEVICE:
	case OPTION_DESCRIPTOR:
		return read_single(row, given, text, field, error);
	case OPTION_MEMCHECK:
		out->memcheck = true;
		return text ? read_word(row, given, text, &out->thread_order, error) : KILN_OK;
	case OPTION_METRICS:
		return read_metrics(given, text, field, error);
	case OPTION_FLAG:
	case OPTION_SHOW:
		break;
	}
	return read_none(row, given, text, field, error);
}

/* ---- Writing ---- */

static void write_word(const struct option_row *row, unsigned index, struct util_text *text)
{
	const char *word = row->value;
	while (index-- > 0 && strchr(word, '|'))
		word = strchr(word, '|') + 1;
	util_text_bytes(text, word, strcspn(word, "|"));
}

static void write_devices(const struct options_devices *devices, struct util_text *text)
{
	util_text_add(text, "%s", devices->automatic ? "auto" : devices->count ? "" : "none");
	for (int i = 0; i < devices->count; i++)
		util_text_add(text, "%s%s", i ? "," : "", devices->names[i]);
}

static void write_ids(const struct options_ids *ids, struct util_text *text)
{
	for (int i = 0; i < ids->count; i++)
		util_text_add(text, "%s%u", i ? "," : "", ids->ids[i]);
}

void option_write(const struct option_row *row, const struct options *options,
				  struct util_text *text)
{
	const void *field = (const char *)options + row->offset;
	switch (row->kind) {
	case OPTION_NUMBER:
	case OPTION_BYTES:
		if (takes_auto(row) && *(const uint64_t *)field == 0)
			util_text_add(text, "auto");
		else
			util_text_add(text, "%llu", (unsigned long long)*(const uint64_t *)field);
		break;
	case OPTION_PATH:
	case OPTION_SOCKET_PATH:
		/* The arguments of a command may hold secrets. */
		util_text_bytes(text, field,
						strcmp(row->value, "COMMAND") ? strlen(field) : strcspn(field, " \t"));
		break;
	case OPTION_KEY:
	case OPTION_DEVICE:
		util_text_add(text, "%s", (const char *)field);
		break;
	case OPTION_WORD:
		write_word(row, *(const unsigned *)field, text);
		break;
	case OPTION_DEVICES:
		write_devices(field, text);
		break;
	case OPTION_UIDS:
	case OPTION_GIDS:
		write_ids(field, text);
		break;
	case OPTION_REMOTE:
		util_text_add(text, "%s", ((const struct remote_url *)field)->shown);
		break;
	case OPTION_MEMCHECK:
		if (options->memcheck)
			write_word(row, options->thread_order, text);
		else
			util_text_add(text, "no");
		break;
	case OPTION_METRICS:
		util_text_add(text, "%s", *(const char *)field ? (const char *)field : "no");
		break;
	case OPTION_FLAG:
		util_text_add(text, "%s", *(const bool *)field ? "yes" : "no");
		break;
	case OPTION_DESCRIPTOR:
	case OPTION_SHOW:
		break;
	}
}
