/*
 * process_figures: what a process holds, whatever anybody counts, for tests that look for leaks.
 * -1 (count_shared_maps: 0) where there is no such process.
 */
#ifndef KILN_TESTS_PROCESS_FIGURES_H
#define KILN_TESTS_PROCESS_FIGURES_H

#include <stdint.h>
#include <sys/types.h>

int count_fds(pid_t pid);
int count_shared_maps(pid_t pid);
/* Memory in use. */
int64_t resident_kib(pid_t pid);

#endif
