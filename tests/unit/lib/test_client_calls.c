/*
 * test_client_calls.c: buffers, calls, tickets and replies: what is asked of the daemon, byte for
 * byte, and what becomes of its answers.  Against a fake daemon.
 */
#include "fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <kiln/ops.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define SAYS(part) assert_non_null(strstr(kiln_errmsg(), part))

static kiln_client *connected(struct fake *fake)
{
	kiln_client *client = NULL;
	assert_int_equal(fake_connect(fake, FAKE_WAIT_MS, &client), KILN_OK);
	return client;
}

/* The last request the fake saw that begins so; "" if none. */
static const char *seen(const struct fake *fake, const char *prefix)
{
	for (int i = fake->seen_count - 1; i >= 0 && i > fake->seen_count - 9; i--)
		if (strncmp(fake->seen[i % 8], prefix, strlen(prefix)) == 0)
			return fake->seen[i % 8];
	return "";
}

/* ---- Buffers ---- */

static void test_moves(void **state)
{
	(void)state;
	struct fake *fake = fake_start(NULL);
	kiln_client *client = connected(fake);
	kiln_buffer *buffer = NULL;
	size_t size = ((size_t)33 << 20) + 5; /* more than two pieces */
	unsigned char *data = malloc(size), *back = calloc(1, size);

	assert_non_null(data);
	assert_non_null(back);
	for (size_t i = 0; i < size; i++)
		data[i] = (unsigned char)(i * 7 + i / 253);
	assert_int_equal(kiln_alloc(client, size + 3, 0, "big", &buffer), KILN_OK);
	assert_true(kiln_buffer_bytes(buffer) == size + 3);
	assert_int_equal(kiln_write(buffer, 3, data, size), KILN_OK);
	assert_int_equal(fake->count_moves, 3);
	assert_int_equal(memcmp(fake->memory + 3, data, size), 0);
	assert_int_equal(kiln_read(buffer, 3, back, size), KILN_OK);
	assert_int_equal(memcmp(back, data, size), 0);
	assert_int_equal(kiln_read(buffer, 4, back, 1), KILN_OK);
	assert_int_equal(back[0], data[1]);

	int moves = fake->count_moves;
	assert_int_equal(kiln_write(buffer, size, data, 4), KILN_EINVAL);
	SAYS("buffer \"big\"");
	assert_int_equal(kiln_read(buffer, UINT64_MAX, data, 4), KILN_EINVAL);
	assert_int_equal(kiln_write(buffer, 1, data, UINT64_MAX), KILN_EINVAL);
	assert_int_equal(kiln_write(buffer, 0, NULL, 4), KILN_EINVAL);
	assert_int_equal(kiln_write(buffer, size + 3, NULL, 0), KILN_OK);
	assert_int_equal(kiln_write(NULL, 0, data, 1), KILN_EINVAL);
	assert_int_equal(fake->count_moves, moves);
	void *map = NULL;
	assert_int_equal(kiln_map(buffer, &map), KILN_ENOTSUP);
	SAYS("KILN_BUFFER_SHARED");
	assert_int_equal(kiln_alloc(client, 1, 6, NULL, &buffer), KILN_EINVAL);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	assert_int_equal(kiln_free(NULL), KILN_OK);
	kiln_close(client);
	fake_stop(fake);
	free(data);
	free(back);
}

/* Shared buffers: 1000 bytes against the end of a page; held is what is wrong with the memfd. */
static bool give_shared(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	struct wire_out out;
	if (strcmp(wire_type(in), "alloc") != 0)
		return false;
	int fd = fake->held == 1 ? memfd_create("loose", MFD_CLOEXEC) : frame_memfd("shared", 4096);
	if (fake->held != 1 && pwrite(fd, "hello", 5, 3096) != 5)
		fake->held = 2;
	fake_begin(&out, wire_id(in), KILN_OK);
	wire_put_uint(&out, "buf", 42);
	wire_put_uint(&out, "offset", fake->held == 3 ? UINT64_MAX : 3096);
	fake->last_number = (uint64_t)fd; /* kept: the test looks into it */
	fake_send(fake, &out, fake->held == 2 ? -1 : fd);
	return true;
}

static void test_shared(void **state)
{
	(void)state;
	struct fake *fake = fake_start(give_shared);
	kiln_client *client = connected(fake);
	kiln_buffer *buffer = NULL;
	void *map = NULL;
	char back[6] = "";

	assert_int_equal(kiln_alloc(client, 1000, KILN_BUFFER_SHARED, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_map(buffer, &map), KILN_OK);
	assert_memory_equal(map, "hello", 5);
	memcpy((char *)map + 995, "world", 5);
	int fd = (int)fake->last_number;
	assert_int_equal(pread(fd, back, 5, 4091), 5);
	assert_string_equal(back, "world");
	assert_int_equal(kiln_free(buffer), KILN_OK);
	close(fd);

	/* Memory that could be cut away under us, none at all, or not where it should be. */
	for (uint64_t wrong = 1; wrong <= 3; wrong++) {
		int before = fake->count_free;
		fake->held = wrong;
		buffer = NULL;
		assert_int_equal(kiln_alloc(client, 1000, KILN_BUFFER_SHARED, NULL, &buffer), KILN_EPROTO);
		assert_null(buffer);
		close((int)fake->last_number);
		kiln_reply *reply = NULL;
		assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_OK);
		kiln_reply_free(reply);
		assert_int_equal(fake->count_free, before + 1); /* given back */
		assert_int_equal(fake->last_freed, 42);
	}
	kiln_close(client);
	fake_stop(fake);
}

static void test_lend(void **state)
{
	(void)state;
	struct fake *fake = fake_start(NULL);
	kiln_client *client = connected(fake);
	kiln_buffer *buffer = NULL;
	char expected[160];

	int fd = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(kiln_lend_fd(client, fd, 0, 4096, NULL, &buffer), KILN_EINVAL);
	SAYS("F_SEAL_SHRINK");
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(kiln_lend_fd(client, fd, 1, 4096, NULL, &buffer), KILN_EINVAL);
	SAYS("4097 bytes");
	assert_int_equal(kiln_lend_fd(client, -1, 0, 1, NULL, &buffer), KILN_EINVAL);
	assert_int_equal(kiln_lend_fd(client, fd, UINT64_MAX, 2, NULL, &buffer), KILN_EINVAL);
	assert_null(buffer);
	assert_int_equal(kiln_lend_fd(client, fd, 96, 4000, "mine", &buffer), KILN_OK);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC); /* still ours */
	assert_true(kiln_buffer_bytes(buffer) == 4000);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	close(fd);
	assert_int_equal(kiln_lend_cuda(client, 0x7f0000000000, 16, NULL, &buffer), KILN_ENOTSUP);
	SAYS("device cpu");
	kiln_close(client);
	snprintf(expected, sizeof(expected),
			 "lend(id=2, kind=\"fd\", span=0, offset=96, bytes=4000, pid=%d, name=\"mine\")",
			 (int)getpid());
	assert_string_equal(seen(fake, "lend"), expected);
	fake_stop(fake);
}

/* ---- Calls ---- */

/* Answers "submit" when "info" comes, all that were held, the first one last. */
static bool hold_submits(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "submit") == 0) {
		fake->held = fake->held != 0 ? fake->held : wire_id(in);
		fake->last_number = wire_id(in);
		return true;
	}
	if (strcmp(wire_type(in), "info") == 0 && fake->held != 0) {
		for (uint64_t id = fake->last_number; id > fake->held; id--)
			fake_reply(fake, id, KILN_EDEVICE, "block 3 divided by zero", NULL);
		fake_reply_number(fake, fake->held, "micros", 37);
	}
	return false;
}

/* Prepares a call of two tensors in the buffer that is made for it, and checks what was asked. */
static kiln_call *prepared(struct fake *fake, kiln_client *client, kiln_buffer **buffer)
{
	kiln_call *call = NULL;
	const int64_t shape[2] = {3, 5}, perm[2] = {1, 0};
	kiln_attr attrs[3] = {kiln_attr_ints("perm", perm, 2),
						  {.name = "eps", .kind = KILN_ATTR_REAL, .f = 0.5},
						  {.name = "mode", .kind = KILN_ATTR_STRING, .s = "fast"}};

	assert_int_equal(kiln_alloc(client, 4096, 0, NULL, buffer), KILN_OK);
	kiln_tensor tensors[2] = {kiln_tensor_make(*buffer, 16, KILN_F32, 2, shape),
							  kiln_tensor_make(NULL, 0, KILN_U8, 2, shape)};
	tensors[1].contiguous = 0;
	tensors[1].stride[0] = 7;
	assert_int_equal(kiln_prepare(client, "permute", tensors, 2, attrs, 3, &call), KILN_OK);
	assert_string_equal(kiln_call_origin(call), "compiled");
	assert_string_equal(kiln_call_plan(call), "variant tile");
	assert_string_equal(seen(fake, "prepare"),
						"prepare(id=3, op=\"permute\", tensors=[{d=3, s=[3,5], b=1, o=16},"
						"{d=6, s=[3,5], t=[7,0], o=0}], attrs={perm=[1,0], eps=0.5, "
						"mode=\"fast\"})");
	return call;
}

static void test_calls(void **state)
{
	(void)state;
	struct fake *fake = fake_start(hold_submits);
	kiln_client *client = connected(fake);
	kiln_buffer *buffer = NULL;
	kiln_reply *reply = NULL;
	kiln_ticket first = 0, second = 0;
	double micros = -1;
	char expected[160];
	kiln_call *call = prepared(fake, client, &buffer);

	kiln_operand operands[2] = {{buffer, 16}, {NULL, 2048}};
	assert_int_equal(kiln_submit(call, operands, 1, 0, &first), KILN_EINVAL);
	SAYS("2 tensors");
	assert_int_equal(kiln_submit(call, operands, 2, 0, &first), KILN_EINVAL);
	SAYS("operand 1 has no buffer");
	operands[1].buffer = buffer;
	assert_int_equal(kiln_submit(call, operands, 2, 1000, &first), KILN_ENOENT);
	assert_int_equal(first, 0);
	assert_int_equal(kiln_submit(call, operands, 2, 0, &first), KILN_OK);
	assert_int_equal(kiln_submit(call, operands, 2, first, &second), KILN_OK);
	assert_true(first != 0 && second > first);
	assert_int_equal(kiln_wait(client, first, 0), KILN_EAGAIN);
	assert_int_equal(kiln_wait(client, first, 5), KILN_EAGAIN);
	assert_int_equal(kiln_cancel(client, second), KILN_OK);
	assert_int_equal(fake->count_cancel, 1);

	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_OK);
	kiln_reply_free(reply);
	assert_int_equal(kiln_dispatch(client), 2);
	assert_int_equal(kiln_cancel(client, second), KILN_OK); /* finished: nothing to do */
	assert_int_equal(fake->count_cancel, 1);
	assert_int_equal(kiln_wait_time(client, second, 0, &micros), KILN_EDEVICE);
	assert_string_equal(kiln_errmsg(), "block 3 divided by zero");
	assert_int_equal(kiln_wait(client, second, 0), KILN_ENOENT);
	assert_true(micros == -1);
	assert_int_equal(kiln_wait_time(client, first, KILN_FOREVER, &micros), KILN_OK);
	assert_true(micros == 37);
	assert_int_equal(kiln_cancel(client, first), KILN_ENOENT);
	assert_int_equal(kiln_wait(client, 0, 0), KILN_ENOENT);
	assert_int_equal(kiln_dispatch(client), 0);
	snprintf(expected, sizeof(expected),
			 "submit(id=%d, call=2, operands=[[1,16],[1,2048]], lane=true, after=%d)", (int)second,
			 (int)first);
	assert_string_equal(seen(fake, "submit"), expected);

	kiln_call_free(call);
	kiln_call_free(NULL);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	assert_int_equal(fake->count_release, 1);
	kiln_close(client);
	fake_stop(fake);
}

/* A tensor that is left out is so in both messages, and may have no buffer. */
static void test_left_out(void **state)
{
	(void)state;
	struct fake *fake = fake_start(NULL);
	kiln_client *client = connected(fake);
	kiln_buffer *buffer = NULL;
	kiln_call *call = NULL;
	kiln_ticket ticket = 0;
	const int64_t shape[1] = {4};
	kiln_tensor tensors[3];

	memset(tensors, 0, sizeof(tensors));
	assert_int_equal(kiln_alloc(client, 64, 0, NULL, &buffer), KILN_OK);
	tensors[0] = tensors[2] = kiln_tensor_make(buffer, 8, KILN_F32, 1, shape);
	tensors[1].rank = 99; /* not looked at */
	assert_int_equal(kiln_prepare(client, "norm", tensors, 3, NULL, 0, &call), KILN_OK);
	assert_string_equal(seen(fake, "prepare"),
						"prepare(id=3, op=\"norm\", tensors=[{d=3, s=[4], b=1, o=8},{d=0},"
						"{d=3, s=[4], b=1, o=8}], attrs={})");
	kiln_operand operands[3] = {{buffer, 0}, {buffer, 0}, {buffer, 16}};
	assert_int_equal(kiln_submit(call, operands, 3, 0, &ticket), KILN_EINVAL);
	SAYS("operand 1 has a buffer, and the call was prepared without it");
	operands[1] = (kiln_operand){NULL, 7};
	operands[2].buffer = NULL;
	assert_int_equal(kiln_submit(call, operands, 3, 0, &ticket), KILN_EINVAL);
	SAYS("operand 2 has no buffer");
	assert_int_equal(kiln_submit(call, operands, 2, 0, &ticket), KILN_EINVAL);
	SAYS("3 tensors");
	operands[2].buffer = buffer;
	assert_int_equal(kiln_submit(call, operands, 3, 0, &ticket), KILN_OK);
	assert_int_equal(kiln_wait(client, ticket, FAKE_WAIT_MS), KILN_OK);
	assert_string_equal(seen(fake, "submit"),
						"submit(id=4, call=2, operands=[[1,0],[0,0],[1,16]], lane=true)");
	kiln_call_free(call);
	tensors[1].offset = 3;
	assert_int_equal(kiln_run(client, "norm", tensors, 3, NULL, 0), KILN_OK);
	assert_string_equal(seen(fake, "submit"), "submit(id=7, call=3, operands=[[1,8],[0,0],[1,8]])");
	tensors[1].buffer = buffer;
	assert_int_equal(kiln_run(client, "norm", tensors, 3, NULL, 0), KILN_EINVAL);
	SAYS("tensor 1 is left out (its dtype is KILN_DTYPE_NONE) and has a buffer");
	assert_int_equal(kiln_free(buffer), KILN_OK);
	kiln_close(client);
	fake_stop(fake);
}

/* Many at once, finished last to first, waited for in a third order. */
static void test_many_tickets(void **state)
{
	(void)state;
	enum { COUNT = 3000 };
	struct fake *fake = fake_start(hold_submits);
	kiln_client *client = connected(fake);
	kiln_call *call = NULL;
	kiln_reply *reply = NULL;
	static kiln_ticket tickets[COUNT];

	assert_int_equal(kiln_prepare(client, "nothing", NULL, 2, NULL, 0, &call), KILN_EINVAL);
	SAYS("tensors is NULL");
	assert_int_equal(kiln_prepare(client, "nothing", NULL, 0, NULL, 0, &call), KILN_OK);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(kiln_submit(call, NULL, 0, 0, &tickets[i]), KILN_OK);
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_OK);
	kiln_reply_free(reply);
	for (int i = 0; i < COUNT; i++) {
		int k = (int)((int64_t)i * 1009 % COUNT); /* every one once */
		assert_int_equal(kiln_wait(client, tickets[k], FAKE_WAIT_MS),
						 k == 0 ? KILN_OK : KILN_EDEVICE);
		assert_int_equal(kiln_dispatch(client), COUNT - 1 - i);
	}
	kiln_call_free(call);
	kiln_close(client);
	fake_stop(fake);
}

static void test_event_loop(void **state)
{
	(void)state;
	struct fake *fake = fake_start(NULL);
	kiln_client *client = connected(fake);
	kiln_call *call = NULL;
	kiln_ticket ticket = 0;

	assert_int_equal(kiln_prepare(client, "nothing", NULL, 0, NULL, 0, &call), KILN_OK);
	assert_int_equal(kiln_events(client), POLLIN);
	assert_int_equal(kiln_submit(call, NULL, 0, 0, &ticket), KILN_OK);
	int done;
	while ((done = kiln_dispatch(client)) == 0) {
		struct pollfd watch = {.fd = kiln_fd(client), .events = (short)kiln_events(client)};
		assert_int_equal(poll(&watch, 1, FAKE_WAIT_MS), 1);
	}
	assert_int_equal(done, 1);
	assert_int_equal(kiln_wait(client, ticket, 0), KILN_OK);
	kiln_call_free(call);
	kiln_close(client);
	fake_stop(fake);
}

/* A daemon that does not read: what the socket does not take is kept, up to a limit. */
static bool stop_reading(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "submit") == 0 && fake->held++ == 0) {
		sem_post(&fake->reached);
		(void)fake_wait(&fake->go);
	}
	return false;
}

/* The operands make each message long, so that a few thousand fill the queue. */
static void test_full(void **state)
{
	(void)state;
	struct fake *fake = fake_start(stop_reading);
	kiln_client *client = connected(fake);
	kiln_call *call = NULL;
	kiln_buffer *buffer = NULL;
	kiln_ticket ticket = 0, last = 0;
	kiln_tensor tensors[KILN_MAX_OPERANDS];
	kiln_operand operands[KILN_MAX_OPERANDS];
	const int64_t shape[1] = {4};
	int status, count = 0;

	assert_int_equal(kiln_alloc(client, 4096, 0, NULL, &buffer), KILN_OK);
	for (int i = 0; i < KILN_MAX_OPERANDS; i++) {
		tensors[i] = kiln_tensor_make(buffer, 0, KILN_F32, 1, shape);
		operands[i] = (kiln_operand){buffer, UINT64_MAX - (unsigned)i};
	}
	assert_int_equal(kiln_prepare(client, "nothing", tensors, KILN_MAX_OPERANDS, NULL, 0, &call),
					 KILN_OK);
	assert_int_equal(kiln_submit(call, operands, KILN_MAX_OPERANDS, 0, &last), KILN_OK);
	assert_true(fake_wait(&fake->reached));
	while ((status = kiln_submit(call, operands, KILN_MAX_OPERANDS, 0, &ticket)) == KILN_OK &&
		   ++count < 100000)
		last = ticket;
	assert_int_equal(status, KILN_EAGAIN);
	SAYS("wait for some first");
	assert_int_equal(kiln_events(client), POLLIN | POLLOUT);
	sem_post(&fake->go);
	assert_int_equal(kiln_wait(client, last, FAKE_WAIT_MS), KILN_OK);
	assert_int_equal(kiln_events(client), POLLIN);
	assert_int_equal(kiln_dispatch(client), count);
	kiln_call_free(call);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	kiln_close(client);
	fake_stop(fake);
}

/* ---- Failures and texts ---- */

static bool fail_prepare(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "prepare") != 0)
		return false;
	fake_reply(fake, wire_id(in), KILN_ECOMPILE, "permute.cuh(3): error: no", "line 1\nline 2\n");
	return true;
}

static void test_compile_failure(void **state)
{
	(void)state;
	struct fake *fake = fake_start(fail_prepare);
	kiln_client *client = connected(fake);
	const int64_t shape[1] = {4}, perm[1] = {0};
	kiln_tensor x = kiln_tensor_make(NULL, 0, KILN_F32, 1, shape);
	kiln_call *call = NULL;

	assert_int_equal(kiln_prepare(client, "permute", NULL, 0, NULL, 0, &call), KILN_ECOMPILE);
	assert_string_equal(kiln_errmsg(), "permute.cuh(3): error: no");
	assert_string_equal(kiln_errlog(), "line 1\nline 2\n");
	assert_int_equal(kiln_permute(client, x, x, perm), KILN_ECOMPILE);
	assert_string_equal(seen(fake, "prepare"),
						"prepare(id=3, op=\"permute\", tensors=[{d=3, s=[4], o=0},"
						"{d=3, s=[4], o=0}], attrs={perm=[0]}, run=true)");
	assert_int_equal(kiln_free(NULL), KILN_OK);
	assert_string_equal(kiln_errlog(), "line 1\nline 2\n"); /* success changes nothing */
	x.rank = 9;
	assert_int_equal(kiln_permute(client, x, x, perm), KILN_EINVAL);
	SAYS("tensor 0 has rank 9");
	assert_string_equal(kiln_errlog(), "");
	assert_int_equal(kiln_prepare(client, "p", NULL, 17, NULL, 0, &call), KILN_EINVAL);
	assert_int_equal(kiln_prepare(client, NULL, NULL, 0, NULL, 0, &call), KILN_EINVAL);
	assert_int_equal(kiln_prepare(NULL, "p", NULL, 0, NULL, 0, &call), KILN_EINVAL);
	assert_null(call);
	kiln_close(client);
	fake_stop(fake);
}

static void test_run(void **state)
{
	(void)state;
	struct fake *fake = fake_start(NULL);
	kiln_client *client = connected(fake);
	kiln_buffer *buffer = NULL;
	const int64_t shape[2] = {2, 2}, perm[2] = {1, 0};

	assert_int_equal(kiln_alloc(client, 64, 0, NULL, &buffer), KILN_OK);
	assert_int_equal(kiln_permute(client, kiln_tensor_make(buffer, 0, KILN_I64, 2, shape),
								  kiln_tensor_make(buffer, 32, KILN_I64, 2, shape), perm),
					 KILN_OK);
	assert_string_equal(seen(fake, "submit"), "submit(id=4, call=2, operands=[[1,0],[1,32]])");
	assert_int_equal(kiln_dispatch(client), 0);
	kiln_close(client);
	assert_int_equal(kiln_free(buffer), KILN_OK);
	fake_stop(fake);
}

static bool answer_info(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	struct wire_out out;
	if (strcmp(wire_type(in), "cache.ls") != 0)
		return false;
	fake_begin(&out, wire_id(in), KILN_OK);
	wire_put_str(&out, "text", "a\"\\\n\x01\xc3\xa9\xff");
	wire_put_real(&out, "tenth", 0.1);
	wire_put_real(&out, "three", 3.0);
	wire_put_bool(&out, "on", true);
	wire_put_bin(&out, "object", "\0ELF", 4);
	wire_put_int(&out, "least", INT64_MIN);
	wire_map_begin(&out, "counters");
	wire_put_int(&out, "hits", 12);
	wire_map_end(&out);
	wire_list_begin(&out, "rows");
	for (int i = 0; i < 2; i++) {
		wire_map_begin(&out, NULL);
		wire_put_str(&out, "key", i == 0 ? "abc" : "def");
		wire_list_begin(&out, "grid");
		wire_put_int(&out, NULL, i);
		wire_list_end(&out);
		wire_map_end(&out);
	}
	wire_list_end(&out);
	fake_send(fake, &out, -1);
	return true;
}

static void test_reply(void **state)
{
	(void)state;
	struct fake *fake = fake_start(answer_info);
	kiln_client *client = connected(fake);
	kiln_reply *r = NULL;
	size_t bytes = 99;
	kiln_attr args[2] = {{.name = "limit", .kind = KILN_ATTR_INT, .i = 7},
						 {.name = "t", .kind = KILN_ATTR_INT, .i = 7}};

	assert_int_equal(kiln_request(client, "cache.ls", args, 2, &r), KILN_EINVAL);
	SAYS("\"t\"");
	assert_int_equal(kiln_request(client, "cache.ls", args, 1, &r), KILN_OK);
	kiln_close(client); /* a reply stands alone */
	assert_string_equal(seen(fake, "cache.ls"), "cache.ls(id=2, limit=7)");
	assert_int_equal(kiln_reply_int(r, "counters.hits"), 12);
	assert_int_equal(kiln_reply_int(r, "three"), 3);
	assert_int_equal(kiln_reply_int(r, "tenth"), 0);
	assert_int_equal(kiln_reply_int(r, "on"), 1);
	assert_true(kiln_reply_real(r, "tenth") == 0.1);
	assert_true(kiln_reply_real(r, "counters.hits") == 12.0);
	assert_true(kiln_reply_int(r, "least") == INT64_MIN);
	assert_string_equal(kiln_reply_str(r, "rows[1].key"), "def");
	assert_ptr_equal(kiln_reply_str(r, "rows[1].key"), kiln_reply_str(r, "rows[1].key"));
	assert_int_equal(kiln_reply_int(r, "rows[1].grid[0]"), 1);
	assert_int_equal(kiln_reply_count(r, "rows"), 2);
	assert_int_equal(kiln_reply_count(r, "counters"), 1);
	assert_int_equal(kiln_reply_count(r, "text"), 0);
	assert_memory_equal(kiln_reply_bin(r, "object", &bytes), "\0ELF", 4);
	assert_int_equal(bytes, 4);
	static const char *const missing[] = {"rows[2]",
										  "rows[",
										  "rows[]",
										  "rows[x]",
										  "rows[-1]",
										  "counters",
										  "",
										  "rows[1]key2",
										  "a..b",
										  "rows.key",
										  "rows[99999999999999999999]"};
	for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]); i++) {
		assert_int_equal(kiln_reply_int(r, missing[i]), 0);
		assert_string_equal(kiln_reply_str(r, missing[i]), "");
		assert_null(kiln_reply_bin(r, missing[i], &bytes));
		assert_int_equal(bytes, 0);
	}
	assert_true(kiln_reply_has(r, "rows[0].key"));
	assert_false(kiln_reply_has(r, "rows[0].keys"));
	assert_false(kiln_reply_has(NULL, "rows"));
	assert_string_equal(
		kiln_reply_json(r),
		"{\"text\": \"a\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\", \"tenth\": 0.1, \"three\": 3, "
		"\"on\": true, \"object\": {\"bytes\": 4}, \"least\": -9223372036854775808, "
		"\"counters\": {\"hits\": 12}, "
		"\"rows\": [{\"key\": \"abc\", \"grid\": [0]}, {\"key\": \"def\", \"grid\": [1]}]}");
	kiln_reply_free(r);
	kiln_reply_free(NULL);
	fake_stop(fake);
}

static void test_texts(void **state)
{
	(void)state;
	assert_string_equal(kiln_status_name(KILN_OK), "KILN_OK");
	assert_string_equal(kiln_status_name(KILN_EFORK), "KILN_EFORK");
	assert_string_equal(kiln_status_name(-9999), "unknown status");
	assert_string_equal(kiln_status_text(KILN_ECANCELED), "canceled");
	assert_string_equal(kiln_dtype_name(KILN_BF16), "bf16");
	assert_null(kiln_dtype_name((kiln_dtype)77));
	assert_int_equal(kiln_dtype_parse("c128"), KILN_C128);
	assert_int_equal(kiln_dtype_parse("F32"), KILN_DTYPE_NONE);
	assert_int_equal(kiln_dtype_parse(NULL), KILN_DTYPE_NONE);
	assert_int_equal(kiln_dtype_size(KILN_C128), 16);
	assert_int_equal(kiln_dtype_size(KILN_DTYPE_NONE), 0);
	assert_string_equal(kiln_version(), KILN_VERSION_STRING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),        cmocka_unit_test(test_shared),
		cmocka_unit_test(test_lend),         cmocka_unit_test(test_calls),
		cmocka_unit_test(test_many_tickets), cmocka_unit_test(test_event_loop),
		cmocka_unit_test(test_full),         cmocka_unit_test(test_compile_failure),
		cmocka_unit_test(test_left_out),     cmocka_unit_test(test_run),
		cmocka_unit_test(test_reply),        cmocka_unit_test(test_texts),
	};
	unsetenv("KILN_DEVICE");
	unsetenv("KILN_DEBUG");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
