/*
 * test_client_versions.c: a library beside a daemon of another release, and a program beside a
 * library of another one: what was added is ignored, what cannot be understood is refused, and
 * nothing is misread.  Against a fake daemon.
 */
#include "fake_daemon.h"

#include "client/wire/lane_memory.h"

#include <kiln/ops.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/eventfd.h>

#include <cmocka.h>

#define SAYS(part) assert_non_null(strstr(kiln_errmsg(), part))

/* ---- A newer daemon ---- */

static void put_more(struct wire_out *out)
{
	wire_map_begin(out, "novelty");
	wire_put_str(out, "of", "another release");
	wire_put_real(out, "size", 2.5);
	wire_map_end(out);
	wire_put_ints(out, "novelties", (int64_t[]){1, -2, 3}, 3);
}

/* Every answer has more than this library knows, and comes after an event that it does not. */
static bool newer(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	static const struct {
		const char *type;
		int status;
	} failures[] = {{"info", -99}, {"devices", -1000000}};
	const char *type = wire_type(in);
	struct wire_out out;
	(void)frame;
	wire_begin(&out, "event", 0);
	wire_put_str(&out, "what", "moon.phase");
	put_more(&out);
	fake_send(fake, &out, -1);
	wire_begin(&out, "reply", wire_id(in));
	for (int i = 0; i < 2; i++) {
		if (strcmp(type, failures[i].type) == 0) {
			wire_put_int(&out, "st", failures[i].status);
			wire_put_str(&out, "err", "a failure that came later");
			put_more(&out);
			fake_send(fake, &out, -1);
			return true;
		}
	}
	put_more(&out);
	wire_put_int(&out, "st", KILN_OK);
	wire_put_int(&out, "proto", fake->proto);
	wire_put_str(&out, "version", "9.9.9");
	wire_put_str(&out, "device", "cpu");
	wire_put_uint(&out, "max_message", 1 << 20);
	wire_put_uint(&out, "buf", 1);
	wire_put_uint(&out, "call", 2);
	wire_put_str(&out, "origin", "hit");
	wire_put_str(&out, "text", "variant tile");
	wire_put_uint(&out, "micros", 7);
	fake_send(fake, &out, -1);
	return true;
}

static kiln_tensor vector(kiln_buffer *buffer, uint64_t offset)
{
	return kiln_tensor_make(buffer, offset, KILN_F32, 1, (const int64_t[]){4});
}

static void test_additions_are_ignored(void **state)
{
	(void)state;
	struct fake *fake = fake_start(newer);
	kiln_client *client = NULL;
	kiln_buffer *buffer = NULL;
	kiln_call *call = NULL;
	kiln_reply *reply = NULL;
	kiln_ticket ticket;
	assert_int_equal(fake_connect(fake, 5000, &client), KILN_OK);
	assert_string_equal(kiln_device(client), "cpu");
	assert_int_equal(kiln_alloc(client, 64, 0, "x", &buffer), KILN_OK);
	const kiln_tensor tensors[2] = {vector(buffer, 0), vector(buffer, 16)};
	const kiln_operand operands[2] = {{buffer, 0}, {buffer, 16}};
	const int64_t axis = 0;
	const kiln_attr perm = kiln_attr_ints("perm", &axis, 1);
	assert_int_equal(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call), KILN_OK);
	assert_string_equal(kiln_call_origin(call), "hit");
	assert_int_equal(kiln_submit(call, operands, 2, 0, &ticket), KILN_OK);
	assert_int_equal(kiln_wait(client, ticket, 5000), KILN_OK);
	/* A status of a later list is a failure like others, with its sentence. */
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), -99);
	assert_string_equal(kiln_errmsg(), "a failure that came later");
	assert_string_equal(kiln_status_name(-99), "unknown status");
	assert_int_equal(kiln_request(client, "devices", NULL, 0, &reply), -1000000);
	/* kiln_request() reads any reply, also of requests that this library does not know. */
	assert_int_equal(kiln_request(client, "cache.ls", NULL, 0, &reply), KILN_OK);
	assert_string_equal(kiln_reply_str(reply, "novelty.of"), "another release");
	kiln_reply_free(reply);
	kiln_call_free(call);
	kiln_free(buffer);
	kiln_close(client);
	fake_stop(fake);
}

/* A daemon that does not say which element types it has is of the time of c128. */
static void test_element_types_that_came_later(void **state)
{
	(void)state;
	struct fake *fake = fake_start(newer);
	kiln_client *client = NULL;
	kiln_call *call = NULL;
	const int64_t axis = 0;
	const kiln_attr perm = kiln_attr_ints("perm", &axis, 1);
	kiln_tensor tensors[2] = {vector(NULL, 0), vector(NULL, 0)};
	assert_int_equal(fake_connect(fake, 5000, &client), KILN_OK);
	tensors[1].dtype = KILN_F8E5M2;
	assert_int_equal(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call), KILN_EVERSION);
	SAYS("tensor 1 is f8e5m2, which the kilnd that runs does not have");
	tensors[0].dtype = tensors[1].dtype = KILN_C128;
	assert_int_equal(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call), KILN_OK);
	kiln_call_free(call);
	kiln_close(client);
	fake_stop(fake);
}

static void test_versions_that_are_not_spoken(void **state)
{
	(void)state;
	static const int versions[] = {PROTOCOL_OLDEST - 1, PROTOCOL_VERSION + 1, 1000, -1};
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		struct fake *fake = fake_start(newer);
		kiln_client *client = NULL;
		fake->proto = versions[i];
		assert_int_equal(fake_connect(fake, 5000, &client), KILN_EVERSION);
		SAYS("version 9.9.9");
		SAYS("this libkiln is " KILN_VERSION_STRING);
		SAYS("stop that kilnd and start the one of this version");
		assert_null(client);
		fake_stop(fake);
	}
}

/* ---- A lane of another layout ---- */

/* The head of the memory that a daemon shares. */
struct layout {
	uint32_t magic, version, entries;
	uint64_t bytes;
	bool sealed, is_ours;
};
static const struct layout layouts[] = {
	{LANE_MAGIC, LANE_VERSION, LANE_ENTRIES, sizeof(struct lane_memory), true, true},
	{LANE_MAGIC, LANE_VERSION + 1, LANE_ENTRIES, sizeof(struct lane_memory), true, false},
	{LANE_MAGIC, LANE_VERSION - 1, LANE_ENTRIES, sizeof(struct lane_memory), true, false},
	{LANE_MAGIC, LANE_VERSION, LANE_ENTRIES * 2, sizeof(struct lane_memory) * 2, true, false},
	{LANE_MAGIC, LANE_VERSION, LANE_ENTRIES, sizeof(struct lane_memory) / 2, true, false},
	{LANE_MAGIC, LANE_VERSION, LANE_ENTRIES, sizeof(struct lane_memory), false, false},
	{~LANE_MAGIC, LANE_VERSION, LANE_ENTRIES, sizeof(struct lane_memory), true, false},
};
static const struct layout *layout;
static struct lane_memory *shared; /* as the daemon sees it */
static atomic_int submits;

static void give_lane(struct fake *fake, uint64_t id)
{
	struct wire_out out;
	int fds[LANE_DESCRIPTORS], ends[2];
	fds[0] = layout->sealed ? frame_memfd("lane", layout->bytes) : memfd_create("lane", 0);
	if (!layout->sealed && ftruncate(fds[0], (off_t)layout->bytes) != 0)
		abort();
	fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pipe(ends) != 0)
		abort();
	fds[2] = ends[0];
	shared = mmap(NULL, layout->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	shared->header.magic = layout->magic;
	shared->header.version = layout->version;
	shared->header.entries = layout->entries;
	fake_begin(&out, id, KILN_OK);
	wire_put_uint(&out, "bound", 5);
	wire_put_uint(&out, "generation", 1);
	wire_put_ints(&out, "alignments", (int64_t[]){1, 1}, 2);
	wire_put_ints(&out, "extents", (int64_t[]){16, 16}, 2);
	if (wire_end(&out) == KILN_OK) {
		(void)frame_send_wait(fake->sock, out.buffer.data, out.buffer.size, fds, LANE_DESCRIPTORS,
							  FAKE_WAIT_MS);
	}
	wire_out_free(&out);
	for (int i = 0; i < LANE_DESCRIPTORS; i++)
		close(fds[i]);
	close(ends[1]);
}

static bool with_lane(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	(void)frame;
	if (strcmp(wire_type(in), "submit") != 0)
		return false;
	if (submits++ == 0)
		give_lane(fake, wire_id(in));
	else
		fake_reply(fake, wire_id(in), KILN_OK, NULL, NULL);
	return true;
}

/* Calls go on by message, and the memory is not written to. */
static void test_lanes_of_other_layouts(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		layout = &layouts[i];
		submits = 0;
		struct fake *fake = fake_start(with_lane);
		kiln_client *client = NULL;
		kiln_buffer *buffer = NULL;
		kiln_call *call = NULL;
		kiln_ticket ticket;
		assert_int_equal(fake_connect(fake, 5000, &client), KILN_OK);
		assert_int_equal(kiln_alloc(client, 64, 0, "x", &buffer), KILN_OK);
		const kiln_tensor tensors[2] = {vector(buffer, 0), vector(buffer, 16)};
		const kiln_operand operands[2] = {{buffer, 0}, {buffer, 16}};
		assert_int_equal(kiln_prepare(client, "permute", tensors, 2, NULL, 0, &call), KILN_OK);
		for (int k = 0; k < 3; k++) {
			assert_int_equal(kiln_submit(call, operands, 2, 0, &ticket), KILN_OK);
			/* In a lane of ours there is nobody to run it. */
			if (!layout->is_ours || k == 0)
				assert_int_equal(kiln_wait(client, ticket, 5000), KILN_OK);
		}
		kiln_reply *reply = NULL;
		assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_OK);
		kiln_reply_free(reply);
		assert_int_equal(submits, layout->is_ours ? 1 : 3);
		assert_int_equal(shared->header.tail, layout->is_ours ? 2 : 0);
		assert_int_equal(shared->entries[0].call, layout->is_ours ? 5 : 0);
		munmap(shared, layout->bytes);
		kiln_close(client);
		kiln_call_free(call);
		kiln_free(buffer);
		fake_stop(fake);
	}
}

/* ---- A newer program ---- */

static void test_larger_structures(void **state)
{
	(void)state;
	struct {
		kiln_connect_options options;
		int more[4];
	} larger = {0};
	struct fake *fake = fake_start(NULL);
	kiln_client *client = NULL;
	larger.options.size = sizeof(larger);
	larger.options.socket = fake->path;
	larger.more[2] = 1;
	assert_int_equal(kiln_connect(&larger.options, &client), KILN_EVERSION);
	SAYS("kiln_connect_options");
	SAYS("libkiln " KILN_VERSION_STRING);
	larger.options.size = SIZE_MAX;
	assert_int_equal(kiln_connect(&larger.options, &client), KILN_EINVAL);
	SAYS("must be sizeof(kiln_connect_options)");
	larger.more[2] = 0;
	larger.options.size = sizeof(larger);
	assert_int_equal(kiln_connect(&larger.options, &client), KILN_OK);
	kiln_close(client);
	fake_stop(fake);
	/* One that was built before the structure had its last member. */
	fake = fake_start(NULL);
	larger.options.size = offsetof(kiln_connect_options, on_miss);
	larger.options.socket = fake->path;
	larger.options.on_miss = (const char *)16; /* is not looked at */
	assert_int_equal(kiln_connect(&larger.options, &client), KILN_OK);
	kiln_close(client);
	fake_stop(fake);
}

/* Where a program that was compiled before finds each member.  A line of this table never changes;
 * structures that begin with their size may get lines behind their last. */
#define PLACE(type, member, at)                       \
	{                                                 \
#type "." #member, offsetof(type, member), at \
	}
#define SIZE(type, bytes)                        \
	{                                            \
		"sizeof(" #type ")", sizeof(type), bytes \
	}
static const struct {
	const char *what;
	size_t is, was;
} places[] = {
	PLACE(kiln_tensor, buffer, 0),
	PLACE(kiln_tensor, offset, 8),
	PLACE(kiln_tensor, dtype, 16),
	PLACE(kiln_tensor, rank, 20),
	PLACE(kiln_tensor, contiguous, 24),
	PLACE(kiln_tensor, shape, 32),
	PLACE(kiln_tensor, stride, 96),
	SIZE(kiln_tensor, 160),
	PLACE(kiln_attr, name, 0),
	PLACE(kiln_attr, kind, 8),
	PLACE(kiln_attr, i, 16),
	PLACE(kiln_attr, f, 24),
	PLACE(kiln_attr, ints, 32),
	PLACE(kiln_attr, count, 40),
	PLACE(kiln_attr, s, 48),
	SIZE(kiln_attr, 56),
	PLACE(kiln_connect_options, size, 0),
	PLACE(kiln_connect_options, socket, 8),
	PLACE(kiln_connect_options, device, 16),
	PLACE(kiln_connect_options, daemon, 24),
	PLACE(kiln_connect_options, timeout_ms, 32),
	PLACE(kiln_connect_options, flags, 36),
	PLACE(kiln_connect_options, on_miss, 40),
	PLACE(kiln_operand, buffer, 0),
	PLACE(kiln_operand, offset, 8),
	SIZE(kiln_operand, 16),
	PLACE(kiln_submit_options, size, 0),
	PLACE(kiln_submit_options, stream, 8),
	PLACE(kiln_submit_options, flags, 12),
	PLACE(kiln_submit_options, after, 16),
	PLACE(kiln_submit_options, cuda_stream, 24),
	PLACE(kiln_work, call, 0),
	PLACE(kiln_work, operands, 8),
	PLACE(kiln_work, operand_count, 16),
	SIZE(kiln_work, 24),
	SIZE(kiln_place, 16),
	PLACE(kiln_text, name, 0),
	PLACE(kiln_text, text, 8),
	PLACE(kiln_text, bytes, 16),
	SIZE(kiln_text, 24),
	PLACE(kiln_raw, size, 0),
	PLACE(kiln_raw, name, 8),
	PLACE(kiln_raw, source, 16),
	PLACE(kiln_raw, source_bytes, 24),
	PLACE(kiln_raw, entry, 32),
	PLACE(kiln_raw, headers, 40),
	PLACE(kiln_raw, header_count, 48),
	PLACE(kiln_raw, macros, 56),
	PLACE(kiln_raw, macro_count, 64),
	PLACE(kiln_raw, options, 72),
	PLACE(kiln_raw, option_count, 80),
	PLACE(kiln_raw, flags, 84),
	PLACE(kiln_raw, folders, 88),
	PLACE(kiln_raw, folder_count, 96),
	PLACE(kiln_raw, toolkits, 104),
	PLACE(kiln_raw, toolkit_count, 112),
	PLACE(kiln_raw_arg, buffer, 0),
	PLACE(kiln_raw_arg, offset, 8),
	PLACE(kiln_raw_arg, bytes, 16),
	PLACE(kiln_raw_arg, access, 24),
	PLACE(kiln_raw_arg, value, 32),
	SIZE(kiln_raw_arg, 40),
	PLACE(kiln_launch, size, 0),
	PLACE(kiln_launch, grid, 8),
	PLACE(kiln_launch, block, 20),
	PLACE(kiln_launch, shared_bytes, 32),
	PLACE(kiln_launch, timeout_ms, 36),
	PLACE(kiln_launch, args, 40),
	PLACE(kiln_launch, arg_count, 48),
};

static void test_structures_stay(void **state)
{
	(void)state;
	if (sizeof(void *) != 8)
		skip();
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (places[i].is != places[i].was)
			fail_msg("%s is %zu and was %zu", places[i].what, places[i].is, places[i].was);
}

/* Numbers that programs have compiled in. */
static void test_values_stay(void **state)
{
	(void)state;
	static const char *const statuses[] = {
		"KILN_OK",        "KILN_EINVAL",    "KILN_ENOMEM", "KILN_ELIMIT",   "KILN_ETIMEDOUT",
		"KILN_ECANCELED", "KILN_EDEVICE",   "KILN_ELOST",  "KILN_ECOMPILE", "KILN_ENOTSUP",
		"KILN_ENOENT",    "KILN_EPERM",     "KILN_EPROTO", "KILN_ECONN",    "KILN_EIO",
		"KILN_EVERSION",  "KILN_EINTERNAL", "KILN_EINDEX", "KILN_EBUSY",    "KILN_EAGAIN",
		"KILN_EFORK",     "KILN_EFROZEN"};
	static const char *const dtypes[] = {NULL,  "f16",  "bf16", "f32",  "f64",    "i8",
										 "u8",  "i16",  "u16",  "i32",  "u32",    "i64",
										 "u64", "bool", "c64",  "c128", "f8e4m3", "f8e5m2"};
	for (int i = 0; i < (int)(sizeof(statuses) / sizeof(statuses[0])); i++)
		assert_string_equal(kiln_status_name(-i), statuses[i]);
	for (unsigned i = 1; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		assert_string_equal(kiln_dtype_name((kiln_dtype)i), dtypes[i]);
	assert_int_equal(KILN_CONNECT_AUTOSTART | KILN_CONNECT_BACKGROUND << 8, 0x201);
	assert_int_equal(KILN_BUFFER_SHARED | KILN_SUBMIT_CUDA << 8, 0x101);
	assert_int_equal(KILN_READ | KILN_WRITE << 8, 0x201);
	assert_int_equal(KILN_ATTR_INT | KILN_ATTR_REAL << 8 | KILN_ATTR_INTS << 16, 0x20100);
	assert_int_equal(KILN_ATTR_STRING, 3);
	assert_int_equal(KILN_MAX_RANK, 8); /* of kiln_tensor */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_additions_are_ignored),
		cmocka_unit_test(test_element_types_that_came_later),
		cmocka_unit_test(test_versions_that_are_not_spoken),
		cmocka_unit_test(test_lanes_of_other_layouts),
		cmocka_unit_test(test_larger_structures),
		cmocka_unit_test(test_structures_stay),
		cmocka_unit_test(test_values_stay),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
