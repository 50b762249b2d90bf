/*
 * process_figures: what a process holds, whatever anybody counts, for tests that look for leaks.
 * -1 (count_shared_maps: 0) where there is no such process.
 */
#ifndef KILN_TESTS_PROCESS_FIGURES_H
#define KILN_TESTS_PROCESS_FIGURES_H

#include <stdint.h>
#include <sys/types.h>

int count_fds(pid_t pid);
/* Descriptors are open on such things, numbers left out: "/dev/nvidia#", "anon_inode:[eventfd]". */
#define FD_KINDS_MOST 24
struct fd_kinds {
	struct fd_kind {
		char name[48];
		int count;
	} kinds[FD_KINDS_MOST]; /* the last one: all others */
	int count;
};
void count_fd_kinds(pid_t pid, struct fd_kinds *out);
int count_shared_maps(pid_t pid);
/* Memory in use. */
int64_t resident_kib(pid_t pid);

#endif
