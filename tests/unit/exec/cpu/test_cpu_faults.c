/*
 * test_cpu_faults: what the cpu device says of kernels that touch what is not theirs.  A fault
 * breaks the device, so each has a process.
 */
#include "cpu_launch.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Faults: each in a process, which the device does not survive ---- */

/* The child's sentence for one launch of 3 blocks of 32 threads on two buffers of 100 bytes. */
static void fault(const char *instantiation, uint32_t by, int operand_count, char *sentence,
				  size_t size)
{
	int pipes[2];
	assert_int_equal(pipe(pipes), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		alarm(300);
		open_device();
		struct device_memory *both[2] = {alloc(100), alloc(100)};
		struct device_module *module = load(instantiation);
		struct device_done done[2] = {{0}};
		bool broken = false;
		int status = start(module, (struct shape){{3, 1, 1}, {32, 1, 1}, 64}, operand_count, both,
						   operand_count == 2, &by);
		/* Queued behind: fails with the device, after the culprit. */
		char host[4];
		device_cpu.copy(device, 1, 77, both[0], 0, host, 4, false, error);
		int n = 0;
		while (status == KILN_OK && !broken && n == 0)
			n = device_cpu.poll(device, -1, 20000, done, 2, &broken);
		dprintf(pipes[1], "%d %d %d %d %d %d:%s", status, broken, n, done[0].status, done[1].status,
				(int)done[1].ticket, done[0].error);
		_exit(0);
	}
	close(pipes[1]);
	size_t used = 0;
	ssize_t n;
	while ((n = read(pipes[0], sentence + used, size - 1 - used)) > 0)
		used += (size_t)n;
	sentence[used] = 0;
	close(pipes[0]);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void faults_name_who_and_where(void **state)
{
	(void)state;
	static const struct {
		const char *instantiation;
		uint32_t by;
		int operands;
		const char *says;
	} cases[] = {
		{"bad<0>", 28, 2,
		 "block (2,0,0), thread (5,0,0): writes beyond the end of operand 1, at byte 112 of "
		 "100"},
		{"bad<1>", 40, 2,
		 "block (1,0,0), thread (3,0,0): reads beyond the end of operand 0, at byte 160 of "
		 "100"},
		{"bad<1>", (uint32_t)-2000, 2, "before the beginning of operand 0, at byte -"},
		{"bad<2>", 0, 2, "thread (4,0,0): divides an integer by zero"},
		{"bad<3>", 17, 2, "writes beyond the end of dynamic shared memory, at byte 68 of 64"},
		{"bad<4>", 8, 2, "thread (9,0,0): writes address 0x8, a null pointer"},
		{"bad<11>", 1, 2, "not aligned for a vector access"},
		{"recurse<100000>", 0, 1, "thread (0,0,0): overflows its stack of 256 KiB"},
		/* A frame that a guard is too small for. */
		{"large<120000>", 0, 1, "thread (0,0,0): overflows its stack of 256 KiB"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char sentence[600];
		fault(cases[i].instantiation, cases[i].by, cases[i].operands, sentence, sizeof(sentence));
		if (strncmp(sentence, "0 1 2 -6 -6 77:block (", 22) != 0 ||
			!strstr(sentence, cases[i].says) || !strstr(sentence, cases[i].instantiation))
			fail_msg("%s: expected \"%s\" in \"%s\"", cases[i].instantiation, cases[i].says,
					 sentence);
	}
}

int main(void)
{
	const struct CMUnitTest faults[] = {cmocka_unit_test(faults_name_who_and_where)};

	return cmocka_run_group_tests_name("faults", faults, NULL, NULL);
}
