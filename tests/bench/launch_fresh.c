/*
 * launch_fresh.c: a new process until it holds its first result: a client of a warm daemon, without
 * CUDA and with memory of its own lent, beside programs that start CUDA themselves.  Measured from
 * before it is executed, and from where its main() begins.
 */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_TIMES 15
#define SECONDS 30

extern char **environ;

/* ---- In the new process ---- */

/* Ones in, twos out. */
static bool run_through(kiln_client *client, kiln_buffer *x, kiln_buffer *y)
{
	kiln_tensor tensors[2];
	kiln_attr attrs[2];
	service_describe(tensors, attrs);
	tensors[0].buffer = x;
	tensors[1].buffer = y;
	return kiln_run(client, "map", tensors, 2, attrs, 2) == KILN_OK;
}

static const char *with_held_memory(struct bench *bench, float *first)
{
	kiln_client *client = runner_connect(&bench->options);
	kiln_buffer *x = NULL, *y = NULL;
	return client && !kiln_alloc(client, LAUNCH_BYTES, 0, "x", &x) &&
				   !kiln_alloc(client, LAUNCH_BYTES, 0, "y", &y) && run_through(client, x, y) &&
				   !kiln_read(y, 0, first, sizeof(*first))
			   ? NULL
			   : kiln_errmsg();
}

static const char *with_lent_memory(struct bench *bench, float *first)
{
	static char sentence[200];
	kiln_buffer *x = NULL, *y = NULL;
	if (!gpu_open(bench->ordinal, sentence))
		return sentence;
	uint64_t from = gpu_alloc(LAUNCH_BYTES, GPU_MALLOC), to = gpu_alloc(LAUNCH_BYTES, GPU_MALLOC);
	if (!from || !to || !gpu_set(from, 0, LAUNCH_BYTES) || !gpu_finish())
		return gpu_error();
	kiln_client *client = runner_connect(&bench->options);
	if (!client || kiln_lend_cuda(client, from, LAUNCH_BYTES, "x", &x) ||
		kiln_lend_cuda(client, to, LAUNCH_BYTES, "y", &y) || !run_through(client, x, y))
		return kiln_errmsg();
	return gpu_get(first, to, sizeof(*first)) ? NULL : gpu_error();
}

static const char *with_the_driver(struct bench *bench, float *first)
{
	static char sentence[200];
	if (!bench->cubin)
		return "the kernel's object is missing";
	if (!gpu_open(bench->ordinal, sentence))
		return sentence;
	return direct_open(bench->cubin) && direct_launch() && direct_get(first) ? NULL : gpu_error();
}

struct fresh {
	const char *role, *name;
	bool gpu;
	double most_ms; /* the aim; 0: none */
	const char *(*body)(struct bench *bench, float *first);
};

static const struct fresh kinds[] = {
	{"fresh-held", "client without CUDA", false, 5, with_held_memory},
	{"fresh-lent", "client that lends its memory", true, 0, with_lent_memory},
	{"fresh-driver", "CUDA driver API, cubin ready", true, 0, with_the_driver},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

void fresh_child(struct bench *bench, const char *role, double begun)
{
	struct crew_word word = {.kind = CREW_FAILED, .begun = begun, .why = "no such role"};
	for (int i = 0; i < KINDS; i++) {
		float first = -1;
		if (strcmp(kinds[i].role, role) != 0)
			continue;
		const char *why = kinds[i].body(bench, &first);
		word.got = runner_now_us();
		if (!why && first != 1 && !bench->options.copies)
			why = "the result is wrong";
		if (!why)
			word.kind = CREW_DONE;
		snprintf(word.why, sizeof(word.why), "%s", why ? why : "");
	}
	crew_tell(&word);
}

/* ---- Programs of this one ---- */

static bool measure_once(struct bench *bench, const struct fresh *kind, double *whole,
						 double *inside)
{
	struct crew crew;
	struct crew_word word;
	char why[LAUNCH_WHY] = "";
	double begin = runner_now_us();
	bool good =
		crew_start(bench, &crew, kind->role, 1, NULL, why) && crew_hear(&crew, SECONDS, &word, why);
	crew_end(&crew);
	if (!good) {
		runner_fail(kind->name, "%s", why);
		return false;
	}
	*whole = (word.got - begin) / 1e3;
	*inside = (word.got - word.begun) / 1e3;
	return true;
}

static void measure_kinds(struct bench *bench)
{
	double whole[KINDS][MOST_TIMES], inside[KINDS][MOST_TIMES], unused[2];
	int times = bench->options.quick ? 3 : 9;
	bool good[KINDS];
	char name[64];
	for (int i = 0; i < KINDS; i++) {
		good[i] = !kinds[i].gpu || bench->ordinal >= 0;
		if (!good[i])
			table_left_out(kinds[i].name, "it needs a GPU");
		/* The first fills the caches. */
		good[i] = good[i] && measure_once(bench, &kinds[i], &unused[0], &unused[1]);
	}
	for (int time = 0; time < times; time++)
		for (int i = 0; i < KINDS; i++)
			good[i] = good[i] && measure_once(bench, &kinds[i], &whole[i][time], &inside[i][time]);
	for (int i = 0; i < KINDS; i++) {
		if (!good[i])
			continue;
		runner_pass();
		snprintf(name, sizeof(name), "%s, from exec", kinds[i].name);
		table_row(bench, &(struct figure){name, runner_percentile(whole[i], times, 0.5), "ms", 0,
										  NULL, kinds[i].most_ms > 0 ? AIM_AT_MOST : AIM_NONE,
										  kinds[i].most_ms});
		snprintf(name, sizeof(name), "%s, from main()", kinds[i].name);
		table_row(bench, &(struct figure){name, runner_percentile(inside[i], times, 0.5), "ms", 0,
										  NULL, AIM_NONE, 0});
	}
}

/* ---- Programs in Python ---- */

static const struct {
	const char *module, *name, *program;
} pythons[] = {
	{"cupy", "CuPy",
	 "import cupy\n"
	 "add = cupy.ElementwiseKernel('float32 x', 'float32 y', 'y = x + 1', 'add')\n"
	 "print(float(add(cupy.zeros(65536, 'f'))[0]))\n"},
	{"triton", "Triton",
	 "import torch, triton, triton.language as tl\n"
	 "@triton.jit\n"
	 "def add(x, y, n, B: tl.constexpr):\n"
	 "    i = tl.program_id(0) * B + tl.arange(0, B)\n"
	 "    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)\n"
	 "x = torch.zeros(65536, device='cuda')\n"
	 "y = torch.empty_like(x)\n"
	 "add[(64,)](x, y, 65536, B=1024)\n"
	 "print(float(y[0]))\n"},
	{"torch", "PyTorch",
	 "import torch\n"
	 "print(float((torch.zeros(65536, device='cuda') + 1)[0]))\n"},
};

/* Milliseconds until the program has printed a 1; negative: it has not. */
static double time_python(const char *path)
{
	const char *arguments[] = {"python3", path, NULL};
	char line[64] = "";
	int ends[2];
	pid_t pid;
	posix_spawn_file_actions_t actions;
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	double begin = runner_now_us(), took = -1;
	int error = posix_spawnp(&pid, arguments[0], &actions, NULL,
							 (char *const *)(uintptr_t)arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (!error) {
		struct pollfd watch = {.fd = ends[0], .events = POLLIN};
		if (poll(&watch, 1, SECONDS * 1000) > 0 && read(ends[0], line, sizeof(line) - 1) > 0)
			took = (runner_now_us() - begin) / 1e3;
		crew_reap(pid, took < 0 ? 0 : 10000);
	}
	close(ends[0]);
	return line[0] == '1' ? took : -1;
}

static bool write_program(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	bool written = file && fputs(text, file) >= 0;
	return file && fclose(file) == 0 && written;
}

static void measure_python(struct bench *bench, int which, const char *path)
{
	char check[160], name[64];
	const char *module = pythons[which].module;
	snprintf(check, sizeof(check),
			 "import importlib.util as u\nprint(1 if u.find_spec('%s') else 0)\n", module);
	if (!write_program(path, check) || time_python(path) < 0) {
		table_left_out(pythons[which].name, "not installed");
		return;
	}
	snprintf(name, sizeof(name), "%s, from exec", pythons[which].name);
	/* The first fills the caches. */
	if (!write_program(path, pythons[which].program) || time_python(path) < 0) {
		table_left_out(pythons[which].name, "installed, but it does not get its result here");
		return;
	}
	double took = time_python(path);
	if (took >= 0)
		table_row(bench, &(struct figure){name, took, "ms", 0, NULL, AIM_NONE, 0});
}

void launch_fresh(struct bench *bench)
{
	enum { PYTHONS = sizeof(pythons) / sizeof(pythons[0]) };
	char directory[] = "/tmp/kiln-fresh-XXXXXX", path[64];
	table_section("a fresh process to its first result");
	measure_kinds(bench);
	if (bench->ordinal < 0 || bench->options.quick || !mkdtemp(directory)) {
		for (int i = 0; i < PYTHONS; i++)
			table_left_out(pythons[i].name,
						   bench->ordinal < 0 ? "it needs a GPU" : "it takes long (--quick)");
		return;
	}
	snprintf(path, sizeof(path), "%s/first.py", directory);
	for (int i = 0; i < PYTHONS; i++)
		measure_python(bench, i, path);
	unlink(path);
	rmdir(directory);
}
