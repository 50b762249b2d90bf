/*
 * fuzz_options: lines of text as the arguments of kilnd.  A refusal is one sentence; a value that
 * is taken is within the limits of the table.
 */
#include "daemon/options/options.h"
#include "fuzz.h"

#define ARGUMENTS 48

const char *const fuzz_words[] = {"--socket\n",
								  "--cache-dir\n",
								  "--kernel-dir=",
								  "--key-dir=",
								  "--trust-dir=",
								  "--sign-key=",
								  "--cache-bytes=",
								  "--test-cache-rows=",
								  "--memory-cache=",
								  "--device\n",
								  "cpu",
								  "cuda:0",
								  "cuda:",
								  "none",
								  "auto",
								  ",",
								  "--workers=",
								  "--compile-timeout=",
								  "--launch-timeout=",
								  "--test-lane-spin=",
								  "--test-quiet-patience=",
								  "--test-worker-memory=",
								  "--test-retry-after=",
								  "--test-worker-jobs=",
								  "--idle-exit=",
								  "--test-drain-timeout=",
								  "--allow-uid=",
								  "--allow-gid=",
								  "--log-level=",
								  "debug",
								  "--test-requests",
								  "--memcheck",
								  "--thread-order=",
								  "reversed",
								  "--executor-wrapper=",
								  "--max-sessions=",
								  "--max-buffers=",
								  "--max-bytes=",
								  "--max-inflight=",
								  "--max-message=",
								  "--max-queued=",
								  "--max-calls=",
								  "--max-own=",
								  "--role=",
								  "executor",
								  "compiler",
								  "--fd=",
								  "--device-name=",
								  "64MiB",
								  "512k",
								  "\n",
								  "=",
								  "--help",
								  "--version",
								  NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct options options;
	char *text = fuzz_text(data, size), *rest = text;
	char *argv[ARGUMENTS + 2] = {(char *)"kilnd"};
	char error[KERNEL_ERROR_MAX] = "";
	struct limit limits[OPTIONS_LIMITS];
	int argc = 1;

	while (argc <= ARGUMENTS && (argv[argc] = fuzz_piece(&rest, "\n")))
		argc++;
	argv[argc] = NULL;
	if (options_parse(argc, argv, &options, error) != KILN_OK) {
		require_sentence(error);
	} else if (options.show == OPTIONS_SHOW_NOTHING) {
		require(options.workers > 0 || options.role != OPTIONS_BROKER, "no worker at all");
		require(options.devices.count <= OPTIONS_MAX_DEVICES &&
					options.allow_uids.count <= OPTIONS_MAX_IDS,
				"more than there is room for");
		require(options_limits(&options, limits) == OPTIONS_LIMITS, "a limit is missing");
	}
	free(text);
	return 0;
}
