/*
 * command_hello.c: hello: the client says what it speaks and which device it wants, and gets a
 * place; it is answered when the device process of its uid is ready.
 */
#include <client/wire/protocol.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "daemon/base/util.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/front/peer_admit.h"
#include "daemon/broker/front/peer.h"
#include "daemon/broker/front/session_life.h"
#include "daemon/broker/kernels/freeze.h"

struct hello {
	struct request request;
	uint64_t spoken;               /* version of the protocol */
	char wanted[DEVICE_NAME_TEXT]; /* "": the default */
	struct device_handle *asked;
	struct device_entry *device; /* being asked for; NULL: the name's is being looked for */
	struct device_entry *looked; /* the last that was asked what it is, since the name is unknown */
};

static void hello_abandon(struct request *request)
{
	struct hello *hello = (struct hello *)request;
	if (hello->asked)
		handle_forget(hello->asked, hello);
	free(hello);
}

static int64_t newest_dtype(void)
{
	int64_t newest = 0;
#define NEWEST(NAME, name, value, bytes) newest = newest < (value) ? (value) : newest;
	KILN_DTYPE_LIST(NEWEST)
#undef NEWEST
	return newest;
}

static void hello_answer(struct hello *hello, struct device_handle *executor)
{
	struct session *session = hello->request.session;
	uint64_t id = hello->request.id, spoken = hello->spoken;
	struct wire_out out;
	request_close(&hello->request);
	free(hello);
	session->state = SESSION_GREETED;
	peer_take_descriptors(session->peer);
	session->executor = executor;
	session->device = executor ? handle_device(executor) : NULL;
	util_debug("session %llu (pid %d, uid %u) is there: libkiln %s, protocol %llu, device %s",
			   (unsigned long long)session->id, session->pid, session->uid, session->version,
			   (unsigned long long)spoken, executor ? session->device->info.name : "none");
	reply_begin(&out, id);
	wire_put_uint(&out, "proto", spoken);
	wire_put_str(&out, "version", KILN_VERSION_STRING);
	wire_put_uint(&out, "session", session->id);
	wire_put_str(&out, "device", executor ? session->device->info.name : "none");
	wire_put_uint(&out, "max_message", session->broker->options.max_message);
	wire_put_str(&out, "on_miss", freeze_names[session->on_miss]);
	wire_put_int(&out, "dtypes", newest_dtype());
	reply_send(session, &out, NULL, 0);
}

static void hello_refuse(struct hello *hello, int status, const char *error)
{
	struct session *session = hello->request.session;
	uint64_t id = hello->request.id;
	util_debug("session %llu (pid %d, uid %u) is refused: %s", (unsigned long long)session->id,
			   session->pid, session->uid, error);
	request_close(&hello->request);
	free(hello);
	reply_error(session, id, status, "%s", error);
	session_end(session);
}

static void hello_try(struct hello *hello, struct device_entry *device);
static void hello_find(struct hello *hello);

static void hello_on_ready(void *arg, int status, const char *error)
{
	struct hello *hello = arg;
	char sentence[KERNEL_ERROR_MAX + 64];
	struct device_handle *executor = hello->asked;
	hello->asked = NULL;
	if (!hello->device) {
		hello_find(hello);
	} else if (status == KILN_OK) {
		hello_answer(hello, executor);
	} else if (!hello->wanted[0] && hello->device->next) {
		hello_try(hello, hello->device->next);
	} else if (status == KILN_EDEVICE) {
		hello_refuse(hello, status, error);
	} else {
		snprintf(sentence, sizeof(sentence), "device %s is not available: %s",
				 hello->device->info.name, error);
		hello_refuse(hello, status, sentence);
	}
}

static void hello_try(struct hello *hello, struct device_entry *device)
{
	/* A client that names no device does not wait for one that was not there; one that names it has
	 * it looked for again. */
	while (!hello->wanted[0] && device->next &&
		   (device->state == DEVICE_ABSENT || device->state == DEVICE_LOST))
		device = device->next;
	struct device_handle *executor = handle_for(device, hello->request.session->uid);
	hello->device = device;
	hello->asked = executor;
	if (executor)
		handle_when_ready(executor, hello_on_ready, hello);
	else
		hello_refuse(hello, KILN_ENOMEM, "out of memory for a device process");
}

/* Finds the device that is named.  Asks the devices that have not said what they are, before it
 * says that there is none. */
static void hello_find(struct hello *hello)
{
	struct session *session = hello->request.session;
	char error[REPLY_TEXT_MAX];
	struct device_entry *found = device_named(session->broker, hello->wanted, error, sizeof(error));
	if (found) {
		hello_try(hello, found);
		return;
	}
	struct device_entry *next = hello->looked ? hello->looked->next : session->broker->devices;
	while (next && (!next->handles || device_is_cpu(next) ||
					(next->state != DEVICE_UNKNOWN && next->state != DEVICE_ABSENT)))
		next = next->next;
	hello->looked = next;
	hello->asked = next ? handle_for(next, session->uid) : NULL;
	if (hello->asked)
		handle_when_ready(hello->asked, hello_on_ready, hello);
	else
		hello_refuse(hello, KILN_ENOTSUP, error);
}

/* Returns the newest version that both speak; 0: there is none, which is answered. */
static uint64_t agree(struct session *session, struct wire_in *message)
{
	uint64_t newest = wire_get_uint(&message->root, "proto", 0);
	uint64_t oldest = wire_get_uint(&message->root, "oldest", newest);
	const char *version = wire_get_str(message, &message->root, "version");
	uint64_t spoken = newest < PROTOCOL_VERSION ? newest : PROTOCOL_VERSION;
	snprintf(session->version, sizeof(session->version), "%s", version ? version : "unknown");
	plain_clean(session->version, sizeof(session->version), PLAIN_LINE);
	if (spoken >= PROTOCOL_OLDEST && spoken >= oldest)
		return spoken;
	reply_error(session, wire_id(message), KILN_EVERSION,
				"libkiln %s speaks protocol %llu and kilnd %s speaks %d: %s", session->version,
				(unsigned long long)newest, KILN_VERSION_STRING, PROTOCOL_VERSION,
				newest > PROTOCOL_VERSION ? "stop this kilnd and start one as new as the library"
										  : "link the program with a libkiln as new as this kilnd");
	return 0;
}

/* Finds the account of the session's device time: that of its user's programs of this name, which
 * the client says, else the kernel. */
static uint32_t account_of(const struct session *session, const char *said)
{
	char path[40], name[ACCOUNT_NAME_MAX], *comm = NULL;
	snprintf(path, sizeof(path), "/proc/%d/comm", session->pid);
	if (!said || !*said)
		said = comm = util_read_file(path, ACCOUNT_NAME_MAX, NULL);
	snprintf(name, sizeof(name), "%.*s", said ? (int)strcspn(said, "\n") : 0, said ? said : "");
	plain_clean(name, sizeof(name), PLAIN_LINE);
	free(comm);
	return account_number(&session->broker->accounts, session->uid, name);
}

void serve_hello(struct session *session, struct wire_in *message)
{
	struct broker *broker = session->broker;
	uint64_t id = wire_id(message);
	uint64_t spoken = agree(session, message);
	const char *wanted = wire_get_str(message, &message->root, "device");
	const char *miss = wire_get_str(message, &message->root, "on_miss");
	char error[KERNEL_ERROR_MAX];
	if (!spoken) {
		session_end(session);
		return;
	}
	int status = admit_seat(session, !wanted || strcmp(wanted, "none") != 0, error);
	if (status != KILN_OK) {
		reply_error(session, id, status, "%s", error);
		broker->counters.refused++;
		session_end(session);
		return;
	}
	struct hello *hello = calloc(1, sizeof(*hello));
	if (!hello || !request_open(session, id, &hello->request, hello_abandon)) {
		free(hello);
		session_end(session);
		return;
	}
	session->account = account_of(session, wire_get_str(message, &message->root, "name"));
	session->background = wire_get_bool(&message->root, "background", false);
	if (!freeze_parse(miss, &session->on_miss)) {
		reply_error(session, id, KILN_EINVAL,
					"on_miss is \"%.*s\"; it may be compile, warn, fallback or error",
					PLAIN_CUT(miss, 40));
		session_end(session);
		return;
	}
	if (session->on_miss < broker->options.on_miss)
		session->on_miss = broker->options.on_miss;
	/* The device may take longer to start than a client may take to speak. */
	peer_stop_clock(session->peer);
	hello->spoken = spoken;
	snprintf(hello->wanted, sizeof(hello->wanted), "%s", wanted ? wanted : "");
	plain_clean(hello->wanted, sizeof(hello->wanted), PLAIN_LINE);
	if (!strcmp(hello->wanted, "none") || (!hello->wanted[0] && !broker->devices))
		hello_answer(hello, NULL);
	else if (hello->wanted[0])
		hello_find(hello);
	else
		hello_try(hello, broker->devices);
}
