/* main.c: one binary, three roles: broker, executor, compiler worker.  Only this file ends a
 * process. */
#include "daemon/broker/front/server.h"
#include "daemon/compile/compile.h"
#include "exec/exec.h"
#include "daemon/base/pulse.h"
#include "daemon/base/util.h"

#include <unistd.h>

int main(int argc, char **argv)
{
	static struct options options;
	char error[256];
	int status = 0;
	if (!util_begin(error, sizeof(error))) {
		fprintf(stderr, "kilnd: %s\n", error);
		return 1;
	}
	if (!options_start(argc, argv, &options, &status))
		return status;
	switch (options.role) {
	case OPTIONS_EXECUTOR: {
		struct exec_options exec = {.sock = options.fd,
									.trail = options.trail > 0 ? options.trail : 0,
									.device = options.device_name,
									.wrapped = options.wrapped,
									.own = options.own,
									.sandbox = options.sandbox,
									.check = options.memcheck,
									.order = options.thread_order,
									.beat_ms = pulse_every_ms(options.liveness_timeout_ms),
									.launchers = (int)options.launchers,
									.test_misdeed = options.test_misdeed,
									.quiet_patience_ms = (uint32_t)options.quiet_patience_ms};
		return exec_main(&exec);
	}
	case OPTIONS_COMPILER: {
		struct compile_worker_options worker = {
			.sock = options.fd,
			.memory_bytes = options.worker_memory,
			.beat_ms = pulse_every_ms(options.liveness_timeout_ms),
			.sandbox = options.sandbox,
			.test_misdeed = options.test_misdeed,
		};
		return compile_worker_main(&worker);
	}
	default:
		status = server_run(&options);
		if (status == SERVER_LEFT)
			_exit(0);
		return status;
	}
}
