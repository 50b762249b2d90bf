/* pool_bare: the same compiles without a daemon, for bench_pool: as many processes as there would
 * be workers, each with the compiler and nothing else.  It shows what the machine can do. */
#ifndef KILN_TESTS_BENCH_POOL_BARE_H
#define KILN_TESTS_BENCH_POOL_BARE_H

/* A kernel as it was compiled: the text of its key, and the unit. */
struct bare_kernel {
	char *key_text, *unit;
};

/* Seconds for all of them; 0: one did not compile. */
double bare_compile(const struct bare_kernel *kernels, int count, int processes);

#endif
