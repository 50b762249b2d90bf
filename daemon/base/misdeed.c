/* misdeed.c: see misdeed.h.  A test's request alone leads here. */
#include "misdeed.h"

#include "deadlines.h"

#include <client/wire/frame.h>
#include <client/wire/wire.h>
#include <kiln/kiln.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define FLOOD_MESSAGES 5000
#define NO_STATUS 77

static const char *const names[] = {"none",
#define MISDEED_NAME(name, text) text,
									MISDEEDS(MISDEED_NAME)
#undef MISDEED_NAME
};

enum misdeed misdeed_named(const char *name)
{
	for (size_t i = 1; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i], name))
			return (enum misdeed)i;
	return MISDEED_NONE;
}

const char *misdeed_name(enum misdeed misdeed)
{
	return (size_t)misdeed < sizeof(names) / sizeof(*names) ? names[misdeed] : names[0];
}

/* ---- Answers that are none ---- */

static void send_bytes(int sock, const char *bytes, size_t size)
{
	frame_send_wait(sock, bytes, size, NULL, 0, DEADLINE_WORKER_SEND_MS);
}

/* Sends a frame whose header promises size bytes, and so many of them. */
static void send_frame(int sock, uint32_t size, size_t following)
{
	uint8_t bytes[64] = {'K', 'F'};
	memcpy(bytes + 4, &size, sizeof(size));
	if (write(sock, bytes, 8 + following) < 0)
		_exit(1);
}

static void send_answer(int sock, const char *type, uint64_t id, int64_t status)
{
	struct wire_out out;
	wire_begin(&out, type, id);
	wire_put_int(&out, "st", status);
	wire_put_str(&out, "err", "wrong on request");
	if (wire_end(&out) == KILN_OK)
		frame_send_wait(sock, out.buffer.data, out.buffer.size, NULL, 0, DEADLINE_WORKER_SEND_MS);
	wire_out_free(&out);
}

/* ---- Ends ---- */

static _Noreturn void stay(void)
{
	for (;;)
		pause();
}

static _Noreturn void lament(int sock, uint64_t id)
{
	struct wire_out out;
	wire_begin(&out, "event", 0);
	wire_put_str(&out, "what", "fault");
	wire_put_str(&out, "err", "cannot go on");
	wire_put_uint(&out, "ticket", id);
	wire_put_int(&out, "st", KILN_ETIMEDOUT);
	if (wire_end(&out) == KILN_OK)
		send_bytes(sock, (const char *)out.buffer.data, out.buffer.size);
	wire_out_free(&out);
	stay();
}

bool misdeed_do(enum misdeed misdeed, int sock, const char *type, uint64_t id)
{
	switch (misdeed) {
	case MISDEED_CRASH:
		signal(SIGSEGV, SIG_DFL);
		raise(SIGSEGV);
		_exit(1);
	case MISDEED_KILL:
		raise(SIGKILL);
		_exit(1);
	case MISDEED_LEAVE:
		_exit(0);
	case MISDEED_HANG:
		stay();
	case MISDEED_LAMENT:
		lament(sock, id);
	case MISDEED_MUTE:
		return true;
	case MISDEED_BYTES:
		return send_bytes(sock, "\xc1 is no map", 11), true;
	case MISDEED_LENGTH:
		return send_bytes(sock, "\xdf\xff\xff\xff\xff", 5), true;
	case MISDEED_HEADER:
		return send_frame(sock, UINT32_MAX, 0), true;
	case MISDEED_SHORT:
		return send_frame(sock, 40, 20), true;
	case MISDEED_TYPE:
		return send_answer(sock, "lunch", id, KILN_OK), true;
	case MISDEED_OTHER:
		return send_answer(sock, type, id + 1000000, KILN_EINVAL), true;
	case MISDEED_STATUS:
		return send_answer(sock, type, id, NO_STATUS), true;
	case MISDEED_TWICE:
		return send_answer(sock, type, id, KILN_EINVAL), false;
	case MISDEED_FLOOD:
		for (int i = 0; i < FLOOD_MESSAGES; i++)
			send_answer(sock, "event", 0, 0);
		return false;
	default:
		return false;
	}
}
