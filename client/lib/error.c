/*
 * error.c: names and texts of statuses and element types, and the last message of each thread.  It
 * must not know of clients.
 */
#include "error.h"
#include "client/wire/plain.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRUCTURE_MOST 4096 /* the largest size that a struct with a size member may have */

static _Thread_local char message[1024];

/* Logs can be long, so they are malloc'd; the key's destructor frees those of a thread that ends.
 */
static pthread_key_t log_key;
static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static bool log_ready;

static void log_init(void)
{
	log_ready = pthread_key_create(&log_key, free) == 0;
}

/* The destructor is code of this library, so it goes with the library. */
__attribute__((destructor)) static void log_finish(void)
{
	if (log_ready) {
		free(pthread_getspecific(log_key));
		pthread_key_delete(log_key);
	}
}

static void set_log(const char *log)
{
	pthread_once(&log_once, log_init);
	if (!log_ready)
		return;
	char *old = pthread_getspecific(log_key);
	char *copy = log ? plain_copy(log, strlen(log), PLAIN_TEXT) : NULL;
	if (!old && !copy)
		return;
	if (pthread_setspecific(log_key, copy) != 0) {
		free(copy);
		return;
	}
	free(old);
}

int error_set(int status, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(message, sizeof(message), format, list);
	va_end(list);
	plain_clean(message, sizeof(message), PLAIN_LINE);
	set_log(NULL);
	return status;
}

int error_set_peer(int status, const char *sentence, const char *log)
{
	bool given = sentence && sentence[0] != 0;
	snprintf(message, sizeof(message), "%s", given ? sentence : kiln_status_text(status));
	plain_clean(message, sizeof(message), PLAIN_LINE);
	set_log(log);
	return status;
}

const char *kiln_errmsg(void)
{
	return message;
}

const char *kiln_errlog(void)
{
	pthread_once(&log_once, log_init);
	const char *log = log_ready ? pthread_getspecific(log_key) : NULL;
	return log ? log : "";
}

static const struct {
	int status;
	const char *name, *text;
} statuses[] = {{KILN_OK, "KILN_OK", "success"},
#define STATUS_ROW(name, value, text) {value, "KILN_" #name, text},
				KILN_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

const char *kiln_status_name(int status)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == status)
			return statuses[i].name;
	return "unknown status";
}

const char *kiln_status_text(int status)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == status)
			return statuses[i].text;
	return "unknown status";
}

static const struct {
	kiln_dtype dtype;
	const char *name;
	size_t bytes;
} dtypes[] = {
#define DTYPE_ROW(NAME, name, value, bytes) {KILN_##NAME, #name, bytes},
	KILN_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *kiln_dtype_name(kiln_dtype dtype)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (dtypes[i].dtype == dtype)
			return dtypes[i].name;
	return NULL;
}

size_t kiln_dtype_size(kiln_dtype dtype)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (dtypes[i].dtype == dtype)
			return dtypes[i].bytes;
	return 0;
}

kiln_dtype kiln_dtype_parse(const char *name)
{
	for (size_t i = 0; name != NULL && i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return dtypes[i].dtype;
	return KILN_DTYPE_NONE;
}

int error_if_newer(const void *given, size_t known, const char *name)
{
	const unsigned char *bytes = given;
	size_t size;
	memcpy(&size, given, sizeof(size));
	if (size > STRUCTURE_MOST) {
		return error_set(KILN_EINVAL, "the size of a %s is %zu; it must be sizeof(%s)", name, size,
						 name);
	}
	for (size_t i = known; i < size; i++) {
		if (bytes[i] != 0) {
			return error_set(KILN_EVERSION,
							 "a %s of %zu bytes has more than libkiln %s knows, which are %zu: run "
							 "the program with the libkiln of its kiln.h",
							 name, size, KILN_VERSION_STRING, known);
		}
	}
	return KILN_OK;
}

const char *kiln_version(void)
{
	return KILN_VERSION_STRING;
}
