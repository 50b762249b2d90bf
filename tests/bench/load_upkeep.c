/* load_upkeep.c: what the cache's upkeep takes, and what others wait meanwhile. */
#include "load.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_TIMES 200000

struct upkeep {
	const struct runner_options *options;
	const char *request;
	int64_t bytes; /* of trim: what may stay */
	double us;
	int pieces;
	_Atomic bool done;
	bool failed;
};

/* Asks for piece after piece, as the kiln command does. */
static void *keep_up(void *arg)
{
	struct upkeep *upkeep = arg;
	bool verify = strcmp(upkeep->request, "cache.verify") == 0, more = true;
	kiln_client *client = runner_connect(upkeep->options);
	kiln_reply *reply = NULL;
	char key[80] = "";
	kiln_attr attrs[2] = {{.name = "next", .kind = verify ? KILN_ATTR_STRING : KILN_ATTR_INT},
						  {.name = "bytes", .kind = KILN_ATTR_INT, .i = upkeep->bytes}};
	double began = runner_now_us();
	while (client && more && !upkeep->failed) {
		attrs[0].s = verify ? key : NULL;
		if (kiln_request(client, upkeep->request, attrs, upkeep->bytes ? 2 : 1, &reply)) {
			fprintf(stderr, "%s: %s\n", upkeep->request, kiln_errmsg());
			upkeep->failed = true;
			break;
		}
		more = kiln_reply_int(reply, "more") != 0;
		attrs[0].i = kiln_reply_int(reply, "next");
		snprintf(key, sizeof(key), "%s", kiln_reply_str(reply, "next"));
		kiln_reply_free(reply);
		upkeep->pieces++;
	}
	upkeep->us = runner_now_us() - began;
	kiln_close(client);
	upkeep->failed |= !client;
	upkeep->done = true;
	return NULL;
}

static double time_request(kiln_client *client)
{
	kiln_reply *reply = NULL;
	double began = runner_now_us();
	int status = kiln_request(client, "devices", NULL, 0, &reply);
	kiln_reply_free(reply);
	return status ? -1 : runner_now_us() - began;
}

double load_lookup(kiln_client *client, int number)
{
	kiln_reply *reply = NULL;
	kiln_tensor tensors[2];
	load_problem(number, NULL, tensors);
	double began = runner_now_us();
	int status = kiln_compile(client, "softmax", tensors, 2, NULL, 0, NULL, &reply);
	double us = runner_now_us() - began;
	bool hit = !status && strcmp(kiln_reply_str(reply, "origin"), "hit") == 0;
	kiln_reply_free(reply);
	return hit ? us : -1;
}

bool load_upkeep(const struct runner_options *options, const char *request, uint64_t left,
				 const char *what)
{
	static double plain[MOST_TIMES], looked[MOST_TIMES];
	struct upkeep upkeep = {.options = options, .request = request, .bytes = (int64_t)left};
	kiln_client *client = runner_connect(options);
	pthread_t thread;
	char name[96];
	int count = 0;
	bool good = client && load_lookup(client, 0) >= 0;
	if (!good || pthread_create(&thread, NULL, keep_up, &upkeep)) {
		runner_fail(what, "%s", kiln_errmsg());
		kiln_close(client);
		return false;
	}
	bool clears = strcmp(request, "cache.clear") == 0;
	while (good && !upkeep.done && count < MOST_TIMES) {
		plain[count] = time_request(client);
		/* Cleared kernels are not to be compiled again. */
		looked[count] = clears ? 0 : load_lookup(client, 0);
		good = plain[count] >= 0 && looked[count] >= 0;
		count++;
		usleep(200);
	}
	pthread_join(thread, NULL);
	good = good && !upkeep.failed && count > 0;
	if (!good)
		runner_fail(what, "a request failed meanwhile: %s", kiln_errmsg());
	snprintf(name, sizeof(name), "%s, in %d pieces", what, upkeep.pieces);
	runner_figure(options, name, upkeep.us / 1e6, "s");
	snprintf(name, sizeof(name), "%s: another's plain request", what);
	load_times(options, name, plain, count);
	snprintf(name, sizeof(name), "%s: another's lookup", what);
	if (!clears)
		load_times(options, name, looked, count);
	kiln_close(client);
	return good;
}
