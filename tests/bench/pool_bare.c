/* pool_bare.c: processes that share a list of compiles. */
#include "pool_bare.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/compile/compile.h"
#include "gpu/runner.h"

#define MOST_PROCESSES 64

struct board {
	_Atomic int ready, next;
	_Atomic bool go, failed;
};

static bool compile_one(const struct bare_kernel *kernel)
{
	struct compile_again again;
	struct compile_result result;
	char error[KERNEL_ERROR_MAX];

	if (compile_again_open(kernel->key_text, kernel->unit, &again, error) != KILN_OK) {
		fprintf(stderr, "bench_pool: %s\n", error);
		return false;
	}
	if (!strcmp(again.job.target, "cpu"))
		hostcc_compile(&again.job, &result);
	else
		nvrtc_compile(&again.job, &result);
	bool good = result.status == KILN_OK;
	if (!good)
		fprintf(stderr, "bench_pool: %s\n", result.error);
	compile_result_free(&result);
	compile_again_close(&again);
	return good;
}

static _Noreturn void work(const struct bare_kernel *kernels, int count, struct board *board)
{
	struct compile_toolchain toolchain;
	int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (nvrtc_open(&toolchain) == KILN_OK)
		nvrtc_warm();
	hostcc_open(&toolchain);
	board->ready++;
	while (!board->go)
		usleep(100);
	while ((i = board->next++) < count)
		if (!compile_one(&kernels[i]))
			board->failed = true;
	hostcc_close();
	_exit(0);
}

double bare_compile(const struct bare_kernel *kernels, int count, int processes)
{
	struct board *board =
		mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[MOST_PROCESSES];

	if (board == MAP_FAILED)
		return 0;
	for (int i = 0; i < processes; i++)
		if ((pids[i] = fork()) == 0)
			work(kernels, count, board);
	while (board->ready < processes)
		usleep(1000);
	double begin = runner_now_us();
	board->go = true;
	for (int i = 0; i < processes; i++)
		waitpid(pids[i], NULL, 0);
	double seconds = (runner_now_us() - begin) / 1e6;
	bool failed = board->failed;
	munmap(board, sizeof(*board));
	return failed ? 0 : seconds;
}
