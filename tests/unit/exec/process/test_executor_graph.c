/*
 * Graphs in the executor process on the cpu device, spoken to as the broker does: what it makes of
 * them, when it makes them anew, what it refuses, and when it lets go of what they name.
 */
#include "executor_scene.h"

#define OWNER 1

static int ask_owned(struct peer *peer, uint64_t buffer, uint64_t bytes, uint64_t owner)
{
	struct wire_out message;
	begin(peer, &message, "alloc");
	wire_put_uint(&message, "buf", buffer);
	wire_put_uint(&message, "bytes", bytes);
	wire_put_uint(&message, "stream", owner);
	return ask(peer, &message);
}

static void begin_graph(struct peer *peer, struct wire_out *message, const char *type,
						uint64_t graph, uint64_t owner)
{
	begin(peer, message, type);
	wire_put_uint(message, "graph", graph);
	wire_put_uint(message, "stream", owner);
}

static int ask_graph(struct peer *peer, uint64_t graph, const struct launch *parts, int count)
{
	struct wire_out message;
	begin_graph(peer, &message, "graph", graph, OWNER);
	wire_list_begin(&message, "parts");
	for (int i = 0; i < count; i++) {
		wire_map_begin(&message, NULL);
		wire_put_str(&message, "op", parts[i].module ? "scale" : "copy");
		put_launch(&message, &parts[i]);
		wire_map_end(&message);
	}
	wire_list_end(&message);
	return ask(peer, &message);
}

static uint64_t post_run(struct peer *peer, uint64_t graph, uint64_t owner)
{
	struct wire_out message;
	begin_graph(peer, &message, "graph.launch", graph, owner);
	return post(peer, &message, NULL, 0);
}

static int run(struct peer *peer, uint64_t graph)
{
	return status_of(peer, post_run(peer, graph, OWNER));
}

static int ask_free(struct peer *peer, uint64_t graph, uint64_t owner)
{
	struct wire_out message;
	begin_graph(peer, &message, "graph.free", graph, owner);
	return ask(peer, &message);
}

#define assert_sentence(part)                                                      \
	do {                                                                           \
		if (!strstr(sentence(), part))                                             \
			fail_msg("the sentence \"%s\" does not say \"%s\"", sentence(), part); \
	} while (0)

/* y = 3 x, and back to x. */
static void make_parts(struct launch parts[2])
{
	parts[0] = scale_launch;
	parts[1] = (struct launch){.stream = OWNER,
							   .copy = 4000,
							   .operands = {{2, 0, 4000, 4}, {1, 0, 4000, 4}},
							   .operand_count = 2};
}

static void begin_two(struct peer *peer, struct launch parts[2])
{
	begin_peer(peer, "cpu");
	assert_int_equal(ask_owned(peer, 1, 4000, OWNER), KILN_OK);
	assert_int_equal(ask_owned(peer, 2, 4000, OWNER), KILN_OK);
	assert_int_equal(ask_load(peer, 1, "scale<int>"), KILN_OK);
	make_parts(parts);
}

static void set(struct peer *peer, uint64_t buffer, int value)
{
	int fd, *host = map_staging(&fd, 4000);
	for (int i = 0; i < 1000; i++)
		host[i] = value;
	assert_int_equal(status_of(peer, post_copy(peer, buffer, 0, 4000, true, fd)), KILN_OK);
	munmap(host, 4000);
	close(fd);
}

static void expect_all(struct peer *peer, uint64_t buffer, int value)
{
	int fd, *host = map_staging(&fd, 4000);
	assert_int_equal(status_of(peer, post_copy(peer, buffer, 0, 4000, false, fd)), KILN_OK);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(host[i], value);
	munmap(host, 4000);
	close(fd);
}

static void launches_again_and_again(void **state)
{
	(void)state;
	struct peer peer;
	struct launch parts[2];
	int expected = 1;
	begin_two(&peer, parts);
	set(&peer, 1, 1);
	assert_int_equal(ask_graph(&peer, 7, parts, 2), KILN_OK);
	expect_all(&peer, 1, 1);
	for (int i = 0; i < 15; i++) {
		assert_int_equal(run(&peer, 7), KILN_OK);
		assert_non_null(wire_get(&answer.root, "us"));
		expected *= 3;
	}
	expect_all(&peer, 1, expected);
	assert_int_equal(ask_free(&peer, 7, OWNER), KILN_OK);
	assert_int_equal(run(&peer, 7), KILN_ENOENT);
	assert_sentence("there is no graph 7");
	assert_int_equal(end_peer(&peer), 0);
}

/* A buffer goes, and another comes in its name: the graph is of what is there. */
static void follows_its_buffers(void **state)
{
	(void)state;
	struct peer peer;
	struct launch parts[2];
	begin_two(&peer, parts);
	assert_int_equal(ask_graph(&peer, 7, parts, 2), KILN_OK);
	assert_int_equal(ask_number(&peer, "free", "buf", 2), KILN_OK);
	assert_int_equal(run(&peer, 7), KILN_ENOENT);
	assert_sentence("launch 1 of 2: scale: operand 1: there is no buffer 2");
	/* Another's of that name is as good as none. */
	assert_int_equal(ask_owned(&peer, 2, 4000, OWNER + 1), KILN_OK);
	assert_int_equal(run(&peer, 7), KILN_ENOENT);
	assert_int_equal(ask_number(&peer, "free", "buf", 2), KILN_OK);
	assert_int_equal(ask_owned(&peer, 2, 3996, OWNER), KILN_OK);
	assert_int_equal(run(&peer, 7), KILN_EINVAL);
	assert_sentence("launch 1 of 2: scale: operand 1: 4000 bytes at 0 are not within its buffer");
	assert_int_equal(ask_number(&peer, "free", "buf", 2), KILN_OK);
	assert_int_equal(ask_owned(&peer, 2, 8000, OWNER), KILN_OK);
	set(&peer, 1, 5);
	assert_int_equal(run(&peer, 7), KILN_OK);
	expect_all(&peer, 1, 15);
	/* Memory of its own that is given to another process moves. */
	assert_int_equal(ask_number(&peer, "share", "buf", 1), KILN_OK);
	assert_int_equal(run(&peer, 7), KILN_OK);
	expect_all(&peer, 1, 45);
	assert_int_equal(end_peer(&peer), 0);
}

/* Answers to frees come when the launch has ended, whatever was freed first. */
static void keeps_what_is_in_flight(void **state)
{
	(void)state;
	struct peer peer;
	struct launch parts[2], copy;
	struct wire_out message;
	begin_two(&peer, parts);
	set(&peer, 1, 1);
	assert_int_equal(ask_graph(&peer, 7, parts, 2), KILN_OK);
	/* The graph waits behind a copy, which waits until it is canceled. */
	copy = parts[1];
	copy.delay = 60000;
	uint64_t copied = post_launch(&peer, &copy), launch = post_run(&peer, 7, OWNER);
	assert_int_equal(ask_free(&peer, 7, OWNER), KILN_OK);
	begin(&peer, &message, "unload");
	wire_put_uint(&message, "mod", 1);
	uint64_t unload = post(&peer, &message, NULL, 0);
	begin(&peer, &message, "free");
	wire_put_uint(&message, "buf", 2);
	uint64_t release = post(&peer, &message, NULL, 0);
	assert_int_equal(ask_number(&peer, "cancel", "ticket", copied), KILN_OK);
	assert_int_equal(status_of(&peer, copied), KILN_ECANCELED);
	assert_int_equal(status_of(&peer, launch), KILN_OK);
	assert_int_equal(status_of(&peer, release), KILN_OK);
	assert_int_equal(status_of(&peer, unload), KILN_OK);
	expect_all(&peer, 1, 3);
	assert_int_equal(end_peer(&peer), 0);
}

static void is_its_owners(void **state)
{
	(void)state;
	struct peer peer;
	struct launch parts[2];
	begin_two(&peer, parts);
	assert_int_equal(ask_graph(&peer, 7, parts, 2), KILN_OK);
	assert_int_equal(status_of(&peer, post_run(&peer, 7, OWNER + 1)), KILN_ENOENT);
	assert_int_equal(ask_free(&peer, 7, OWNER + 1), KILN_OK);
	assert_int_equal(ask_number(&peer, "end", "stream", OWNER + 1), KILN_OK);
	assert_int_equal(run(&peer, 7), KILN_OK);
	assert_int_equal(ask_number(&peer, "end", "stream", OWNER), KILN_OK);
	assert_int_equal(run(&peer, 7), KILN_ENOENT);
	assert_int_equal(end_peer(&peer), 0);
}

static void wrong_requests(void **state)
{
	(void)state;
	struct peer peer;
	struct launch parts[2], wrong;
	struct wire_out message;
	begin_two(&peer, parts);
	assert_int_equal(ask_graph(&peer, 0, parts, 2), KILN_EPROTO);
	assert_int_equal(ask_graph(&peer, 7, parts, 0), KILN_EPROTO);
	assert_sentence("a graph has 1 to 1024 launches, not 0");
	begin_graph(&peer, &message, "graph", 7, OWNER);
	assert_int_equal(ask(&peer, &message), KILN_EPROTO);
	begin_graph(&peer, &message, "graph", 7, OWNER);
	wire_put_ints(&message, "parts", (int64_t[]){1, 2}, 2);
	assert_int_equal(ask(&peer, &message), KILN_EPROTO);
	begin_graph(&peer, &message, "graph", 7, OWNER);
	wire_list_begin(&message, "parts");
	for (int i = 0; i <= KILN_MAX_GRAPH; i++) {
		wire_map_begin(&message, NULL);
		wire_map_end(&message);
	}
	wire_list_end(&message);
	assert_int_equal(ask(&peer, &message), KILN_EPROTO);
	assert_sentence("not 1025");
	begin_graph(&peer, &message, "graph", 7, OWNER);
	wire_list_begin(&message, "parts");
	wire_map_begin(&message, NULL);
	wire_put_uint(&message, "mod", 1);
	wire_put_ints(&message, "grid", parts[0].grid, 3);
	wire_put_ints(&message, "block", parts[0].block, 3);
	wire_put_uint(&message, "shared", 0);
	wire_list_begin(&message, "args");
	wire_put_bin(&message, NULL, "value", 5);
	wire_list_end(&message);
	wire_map_end(&message);
	wire_list_end(&message);
	assert_int_equal(ask(&peer, &message), KILN_EPROTO);
	assert_sentence("argument 0 of a graph's launch is a value of its own");
	wrong = parts[0];
	wrong.module = 99;
	assert_int_equal(ask_graph(&peer, 7, &wrong, 1), KILN_ENOENT);
	assert_int_equal(run(&peer, 7), KILN_ENOENT);
	assert_int_equal(ask_graph(&peer, 7, parts, 2), KILN_OK);
	assert_int_equal(ask_graph(&peer, 7, parts, 2), KILN_EPROTO);
	assert_sentence("graph 7 is there already");
	/* The process remembers a graph that only the device refuses, and refuses it again. */
	wrong = parts[0];
	wrong.scalar_count = 1;
	assert_int_equal(ask_graph(&peer, 8, &wrong, 1), KILN_EINVAL);
	assert_sentence("launch 1 of 1: the kernel takes 4 arguments and was given 3");
	assert_int_equal(run(&peer, 8), KILN_EINVAL);
	assert_sentence("launch 1 of 1: the kernel takes 4 arguments and was given 3");
	assert_int_equal(run(&peer, 7), KILN_OK);
	assert_int_equal(end_peer(&peer), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(launches_again_and_again), cmocka_unit_test(follows_its_buffers),
		cmocka_unit_test(keeps_what_is_in_flight),  cmocka_unit_test(is_its_owners),
		cmocka_unit_test(wrong_requests),
	};
	return cmocka_run_group_tests(tests, NULL, teardown);
}
