/*
 * The cuda device and what kernels print, over the fake driver: it comes with the end of the
 * launch, is bounded, and names the assertion that failed.
 */
#include "cuda_scene.h"

#if !defined(KILN_HAVE_CUDA_H) || !defined(KILN_FAKE_CUDA_LIBRARY)

#include <stdio.h>

int main(void)
{
	printf("SKIP: built without CUDA headers; there is no driver to stand in for\n");
	return 77;
}

#else

#include "daemon/sandbox/sandbox.h"
#include <stdio.h>
#include <unistd.h>

static char text[DEVICE_PRINTED_MOST + 1];
static uint64_t cut;
static int out = -1, error_out = -1;

/* The device takes this process's own output, which the test needs again. */
static int setup_kept(void **state)
{
	fflush(stdout);
	out = dup(STDOUT_FILENO);
	error_out = dup(STDERR_FILENO);
	int status = setup(state);
	return status != 0 ? status : device_cuda.keep_printed(device, error);
}

static int teardown_kept(void **state)
{
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	dup2(error_out, STDERR_FILENO);
	close(out);
	close(error_out);
	return teardown(state);
}

static const char *printed(void)
{
	text[device_cuda.printed(device, text, &cut)] = 0;
	return text;
}

static struct device_module *load_of(const char *entry, const char *symbol)
{
	char object[128] = "FAKE";
	struct device_module *module = NULL;
	snprintf(object + 60, sizeof(object) - 60, "%s", symbol);
	assert_int_equal(device_cuda.load(device, object, sizeof(object), entry, 0, &module, error),
					 KILN_OK);
	return module;
}

static void what_a_launch_prints_comes_with_its_end(void **state)
{
	(void)state;
	struct device_module *prints = load_of(FAKE_PRINT, "vprintf");
	struct device_module *other = load_of(FAKE_PRINT, "vprint");
	int waits = fake->calls("cuStreamSynchronize");
	assert_string_equal(printed(), "");
	assert_int_equal(launch_fault(prints, 1, 1), KILN_OK);
	expect_done(1);
	assert_string_equal(printed(), "printed 1\n");
	assert_string_equal(printed(), "");
	/* The last of several tells for all: nothing waits for a launch that still runs. */
	fake->hold(1);
	for (uint64_t ticket = 2; ticket < 5; ticket++)
		assert_int_equal(launch_fault(prints, 1, ticket), KILN_OK);
	fake->hold(0);
	for (uint64_t ticket = 2; ticket < 5; ticket++)
		expect_done(ticket);
	assert_string_equal(printed(), "printed 2\nprinted 3\nprinted 4\n");
	assert_int_equal(fake->calls("cuStreamSynchronize"), waits + 2);
	/* A kernel that cannot print costs no wait. */
	assert_int_equal(launch_fault(other, 1, 5), KILN_OK);
	expect_done(5);
	assert_int_equal(fake->calls("cuStreamSynchronize"), waits + 2);
	device_cuda.unload(device, prints);
	device_cuda.unload(device, other);
	device_cuda.stream_end(device, 1);
	printed();
}

static void the_first_bytes_are_kept(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++)
		printf("%0100d", i);
	assert_int_equal(strlen(printed()), DEVICE_PRINTED_MOST);
	assert_int_equal(cut, 100000 - DEVICE_PRINTED_MOST);
	printf("again\n");
	assert_string_equal(printed(), "again\n");
	assert_int_equal(cut, 0);
}

static void an_assertion_is_named(void **state)
{
	(void)state;
	struct device_module *asserts = load_of(FAKE_ASSERT, "__assertfail");
	struct device_done done;
	bool broken = false;
	assert_int_equal(launch_fault(asserts, 1, 1), KILN_OK);
	assert_int_equal(device_cuda.poll(device, -1, 10000, &done, 1, &broken), 1);
	assert_true(broken);
	assert_int_equal(done.status, KILN_EDEVICE);
	snprintf(error, sizeof(error), "%s", done.error);
	assert_sentence("cuda:0 failed in call 1 (asserts): ");
	assert_sentence("710");
	if (!SANDBOX_SANITIZED)
		assert_sentence(
			"; k.cu:7: void asserts(): block: [1,0,0], thread: [2,0,0] Assertion `n < 4`");
	if (!SANDBOX_SANITIZED)
		assert_non_null(strstr(printed(), "Assertion `n < 4` failed.\n"));
	device_cuda.unload(device, asserts);
	device_cuda.close(device);
	setup(NULL); /* what the broken context had is gone with its process */
}

/* Without keep_printed(), all goes where the process's output goes. */
static void nobody_keeps_it_otherwise(void **state)
{
	(void)state;
	int waits = fake->calls("cuStreamSynchronize");
	struct device_module *prints = load_of(FAKE_PRINT, "vprintf");
	assert_int_equal(launch_fault(prints, 1, 1), KILN_OK);
	expect_done(1);
	assert_int_equal(fake->calls("cuStreamSynchronize"), waits);
	assert_string_equal(printed(), "");
	device_cuda.unload(device, prints);
}

int main(void)
{
#define KEPT(test) cmocka_unit_test_setup_teardown(test, setup_kept, teardown_kept)
	const struct CMUnitTest tests[] = {
		KEPT(what_a_launch_prints_comes_with_its_end),
		KEPT(the_first_bytes_are_kept),
		KEPT(an_assertion_is_named),
		OPENED(nobody_keeps_it_otherwise),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
