/*
 * test_remote_url.c: what --remote may look like; each part that is wrong is named, and no sentence
 * has a password in it.
 */
#include <daemon/options/remote_url.h>

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

static char error[KERNEL_ERROR_MAX];

static struct remote_url parsed(const char *text)
{
	struct remote_url url;
	if (remote_url_parse("--remote", text, &url, error) != KILN_OK)
		fail_msg("%s: %s", text, error);
	return url;
}

static void hosts(void **state)
{
	(void)state;
	struct remote_url url = parsed("redis://cache.example.org");
	assert_string_equal(url.host, "cache.example.org");
	assert_int_equal(url.port, 6379);
	assert_int_equal(url.database, 0);
	assert_false(url.is_path);
	assert_string_equal(url.user, "");
	assert_string_equal(url.password, "");
	assert_string_equal(url.shown, "redis://cache.example.org:6379/0");
	url = parsed("redis://10.0.0.7:7000/12");
	assert_int_equal(url.port, 7000);
	assert_int_equal(url.database, 12);
	url = parsed("redis://[fe80::1%25]:7000/");
	assert_string_equal(url.host, "fe80::1%25");
	assert_int_equal(url.port, 7000);
	assert_string_equal(url.shown, "redis://[fe80::1%25]:7000/0");
}

static void logins(void **state)
{
	(void)state;
	struct remote_url url = parsed("redis://:sesame@h/1");
	assert_string_equal(url.user, "");
	assert_string_equal(url.password, "sesame");
	assert_string_equal(url.shown, "redis://h:6379/1");
	url = parsed("redis://ali%3ababa:se%2Fsa%40me%25@h:1");
	assert_string_equal(url.user, "ali:baba");
	assert_string_equal(url.password, "se/sa@me%");
	url = parsed("redis://ali:se@sa:me@h");
	assert_string_equal(url.password, "se@sa:me");
	url = parsed("unix://:sesame@/run/redis.sock?db=4");
	assert_string_equal(url.host, "/run/redis.sock");
	assert_true(url.is_path);
	assert_string_equal(url.password, "sesame");
	assert_int_equal(url.database, 4);
	assert_string_equal(url.shown, "unix:/run/redis.sock?db=4");
	assert_string_equal(parsed("unix:///run/r").host, "/run/r");
	assert_string_equal(parsed("unix:/run/a@b").host, "/run/a@b");
}

static void refusals(void **state)
{
	static const struct {
		const char *text, *word;
	} cases[] = {
		{"", "it begins neither with redis://HOST nor with unix:/PATH"},
		{"h:6379", "it begins neither"},
		{"rediss://:sesame@h", "nor with unix:/PATH (TLS is for a tunnel to do)"},
		{"redis://", "\"\" is not the name or address of a host"},
		{"redis://a b", "\"a b\" is not the name"},
		{"redis://[::1", "is not the name or address of a host"},
		{"redis://:6379", "\"\" is not the name"},
		{"redis://h:", "the port \"\" is not a number from 1 to 65535"},
		{"redis://h:65536", "the port \"65536\""},
		{"redis://h:80x/1", "the port \"80x\""},
		{"redis://h/-1", "the database \"-1\" is not a number from 0 to 65535"},
		{"redis://h/1/2", "the database \"1/2\""},
		{"redis://sesame@h", "what stands before '@' is not USER:PASSWORD or :PASSWORD"},
		{"redis://u:@h", "what stands before '@'"},
		{"redis://u:sesame%@h", "what stands before '@'"},
		{"redis://u:sesame%4@h", "what stands before '@'"},
		{"redis://u:sesame%00@h", "what stands before '@'"},
		{"redis://u:ses/ame@h", "what stands before '@'"},
		{"redis://u:12/ame@h:sesame", "what stands before '@'"},
		{"unix:run/redis.sock", "\"run/redis.sock\" is not the absolute path of a socket"},
		{"unix://sesame@/run/r", "what stands before '@'"},
		{"unix:/run/r?database=1", "behind the path of a socket stands ?db=DATABASE or nothing"},
		{"unix:/run/r?db=", "the database \"\" is not a number"},
	};
	char path[300] = "unix:/", login[300] = "redis://:", long_host[300] = "redis://";
	struct remote_url url = {.port = 77};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (remote_url_parse("--remote", cases[i].text, &url, error) != KILN_EINVAL)
			fail_msg("%s is taken", cases[i].text);
		if (strncmp(error, "--remote: ", 10) != 0 || !strstr(error, cases[i].word) ||
			strstr(error, "sesame") || strstr(error, "ame@"))
			fail_msg("%s: %s", cases[i].text, error);
		assert_int_equal(url.port, 77);
	}
	memset(path + 6, 'p', 107);
	assert_int_equal(remote_url_parse("KILN_REMOTE", path, &url, error), KILN_EINVAL);
	assert_non_null(strstr(error, "of up to 107 bytes"));
	path[112] = 0;
	assert_int_equal(remote_url_parse("KILN_REMOTE", path, &url, error), KILN_OK);
	memset(login + 9, 'p', 256);
	memcpy(login + 265, "@h", 3);
	assert_int_equal(remote_url_parse("KILN_REMOTE", login, &url, error), KILN_EINVAL);
	assert_null(strstr(error, "ppp"));
	memset(long_host + 8, 'h', 256);
	assert_int_equal(remote_url_parse("KILN_REMOTE", long_host, &url, error), KILN_EINVAL);
}

static void hidden(void **state)
{
	static const char *const pairs[][2] = {
		{"redis://u:sesame@h:1/2", "redis://u:******@h:1/2"},
		{"--remote=unix://:sesame@/run/r", "--remote=unix://:******@/run/r"},
		{"redis://u:se@sa:me@h", "redis://u:********@h"},
		{"redis://h:1/2", "redis://h:1/2"},
		{"unix:/run/a:b@c", "unix:/run/a:b@c"},
		{"", ""},
	};
	char text[64];
	(void)state;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		strncpy(text, pairs[i][0], sizeof(text) - 1);
		remote_url_hide(text);
		assert_string_equal(text, pairs[i][1]);
	}
	/* A child reads its broker's variable again. */
	assert_string_equal(parsed("redis://u:******@h:1/2").password, "******");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hosts),
		cmocka_unit_test(logins),
		cmocka_unit_test(refusals),
		cmocka_unit_test(hidden),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
