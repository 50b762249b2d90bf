/*
 * silence.c: part of the harness: a process that may make no system call any more.
 */
#include "harness.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SILENT_TRIES 12

bool forbid_system_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
		   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void skip_where_silence_is_impossible(void)
{
	if (getenv("KILN_SANITIZE")) {
		puts("a sanitizer makes system calls of its own");
		skip();
	}
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		puts("with one processor neither end looks: both sleep at once");
		skip();
	}
}

void assert_silent(struct kilnd *daemon, process_body *client)
{
	skip_where_silence_is_impossible();
	/* Both ends look for a second before they sleep.  A machine that stops the device process for
	 * longer has the client sleep, but not each time. */
	kilnd_start(daemon, OPTIONS("--test-lane-spin", "1000000"));
	kiln_client *viewer = client_open(daemon);
	int status = 0, tries = 0;
	do
		status = process_wait(process_start(daemon, client, NULL), STOP_TIMEOUT_MS);
	while (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS && ++tries < SILENT_TRIES);
	assert_int_equal(status, EXITED(0));
	assert_true(info_int(viewer, "counters.lane_launches") >= 1000);
	kiln_close(viewer);
	kilnd_stop(daemon);
}
