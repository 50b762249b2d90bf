/*
 * test_raw_print: what users' kernels print comes to the program that launched them, up to what is
 * kept, and an assertion that fails is named.
 */
#include "harness.h"

#include <string.h>

static const char prints[] =
	"#include <stdio.h>\n"
	"#include <assert.h>\n"
	"__global__ void says(int n) { printf(\"%d of %s, %.1f%%\\n\", n, \"all\", 2.5f); }\n"
	"__global__ void floods(int n)\n"
	"{\n"
	"	for (int i = 0; i < n; i++)\n"
	"		printf(\"%0100d\\n\", i);\n"
	"}\n"
	"__global__ void fails(int n)\n"
	"{\n"
	"	printf(\"before\\n\");\n"
	"	assert(n < 4 && \"too large\");\n"
	"}\n"
	"__global__ void odd(int n)\n"
	"{\n"
	"	if (n == 1)\n"
	"		printf(\"%n\", &n);\n"
	"	else if (n == 2)\n"
	"		printf(\"%s\", (const char *)8);\n"
	"	else\n"
	"		printf(\"%c\\xff\\033[1m%*d%.*f\", 0, 3, 7, 1, 0.25);\n"
	"}\n";

static kiln_call *printing(kiln_client *client, const char *entry)
{
	const kiln_raw raw = {.size = sizeof(raw), .name = "mine.cu", .source = prints, .entry = entry};
	kiln_call *call;
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	return call;
}

static int print(kiln_client *client, kiln_call *call, int n)
{
	const kiln_raw_arg args[] = {{.value = &n, .bytes = sizeof(n)}};
	const kiln_launch how = {.size = sizeof(how), .args = args, .arg_count = 1};
	kiln_ticket ticket;
	int status = kiln_submit_raw(call, &how, 0, &ticket);
	return status ? status : kiln_wait(client, ticket, CALL_TIMEOUT_MS);
}

static void test_prints(void **state)
{
	struct kilnd *daemon = *state;
	uint64_t cut = 7;
	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon), *other = client_open(daemon);
	kiln_call *says = printing(client, "says"), *others = printing(other, "says");
	assert_string_equal(kiln_printed(client, &cut), "");
	assert_int_equal(cut, 0);
	assert_ok(print(client, says, 1));
	assert_ok(print(other, others, 3));
	assert_ok(print(client, says, 2));
	const char *text = kiln_printed(client, NULL);
	assert_string_equal(text, "1 of all, 2.5%\n2 of all, 2.5%\n");
	assert_string_equal(kiln_printed(other, NULL), "3 of all, 2.5%\n");
	assert_string_equal(kiln_printed(client, NULL), "");

	/* The first 64 KiB are kept, of one launch and of several, and nothing waits for a reader. */
	kiln_call *floods = printing(client, "floods");
	assert_ok(print(client, floods, 2000));
	assert_int_equal(strlen(kiln_printed(client, &cut)), 65536);
	assert_int_equal(cut, 2000 * 101 - 65536);
	for (int i = 0; i < 400; i++)
		assert_ok(print(client, floods, 100));
	text = kiln_printed(client, &cut);
	assert_int_equal(strlen(text), 65536);
	assert_int_equal(cut, 400 * 100 * 101 - 65536);
	assert_memory_equal(text + 101 * 99 + 97, "099\n000", 7);
	assert_ok(print(client, says, 4));
	assert_string_equal(kiln_printed(client, &cut), "4 of all, 2.5%\n");
	assert_int_equal(cut, 0);

	/* Zeros are left out, and the rest is as it was printed. */
	kiln_call *odd = printing(client, "odd"), *fails = printing(client, "fails");
	assert_ok(print(client, odd, 0));
	assert_string_equal(kiln_printed(client, NULL), "\xff\033[1m  70.2");
	assert_int_equal(print(client, odd, 1), KILN_EDEVICE);
	assert_sentence("printf is called with %n (kernel odd)");

	/* The output of a kernel before its failure is there, and the place where it failed. */
	assert_int_equal(print(client, fails, 5), KILN_EDEVICE);
	assert_sentence("assertion failed: n < 4 && \"too large\" at mine.cu:12");
	assert_string_equal(kiln_printed(client, NULL), "before\n");
	assert_int_equal(print(client, odd, 2), KILN_EDEVICE);
	assert_sentence("reads address 0x8, a null pointer (kernel odd)");
	assert_sentence("`kiln run ... --check` names the line");
	assert_ok(print(client, says, 6));
	assert_string_equal(kiln_printed(client, NULL), "6 of all, 2.5%\n");
	assert_null(kiln_printed(NULL, NULL));
	kiln_call_free(fails);
	kiln_call_free(odd);
	kiln_call_free(floods);
	kiln_call_free(others);
	kiln_call_free(says);
	kiln_close(other);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_prints),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
