/*
 * bench_objects.c: cubins in a directory, each named by the hash of all that it is made of, so that
 * one which is there need not be made again, and one of other sources is never taken for it.
 *
 * They are made by child processes, one a core: NVRTC holds one lock per process, and a process
 * that has loaded CUDA or NVRTC must not fork.  A file is a few lines "name value", an empty line,
 * and the cubin.
 */
#include "bench.h"

#include "daemon/compile/compile.h"
#include "daemon/base/util.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_SOURCES 1024 /* a statement of map has one of its own */
#define MOST_BYTES (64u << 20)
#define MOST_PROCESSES 128

static const char copy_text[] =
	"template <int Threads> __global__ void copy(const uint4 *from, uint4 *to, unsigned count)\n"
	"{\n"
	"\tunsigned i = blockIdx.x * Threads + threadIdx.x;\n"
	"\tif (i < count)\n"
	"\t\tto[i] = from[i];\n"
	"}\n";

/* A source with all that it includes. */
struct closure {
	char name[64];
	char *generated; /* behind the others; "" for most */
	struct compile_file files[COMPILE_MAX_HEADERS];
	int file_count;
};

struct wanted {
	char name[KERNEL_KEY_HEX];
	char instantiation[KERNEL_INSTANTIATION_MAX];
	const struct closure *closure;
};

struct bench_objects {
	char directory[512], target[KERNEL_TARGET_MAX];
	bool temporary; /* of a directory that nobody named */
	struct compile_sources *sources;
	struct closure *closures[MOST_SOURCES];
	int closure_count;
	struct wanted *wanted;
	int count, room;
};

static bool make_directory(struct bench_objects *objects, const char *directory)
{
	const char *root = getenv("TMPDIR");

	if (directory) {
		snprintf(objects->directory, sizeof(objects->directory), "%s", directory);
		return util_make_directories(directory, 0755) == 0;
	}
	objects->temporary = true;
	snprintf(objects->directory, sizeof(objects->directory), "%s/kiln-bench.XXXXXX",
			 root ? root : "/tmp");
	return mkdtemp(objects->directory) != NULL;
}

bool bench_objects_open(const char *directory, const char *target, struct bench_objects **out)
{
	char error[KERNEL_ERROR_MAX];
	struct bench_objects *objects = calloc(1, sizeof(*objects));

	*out = objects;
	if (!objects)
		return false;
	snprintf(objects->target, sizeof(objects->target), "%s", target);
	if (compile_sources_open(NULL, &objects->sources, error) != KILN_OK) {
		fprintf(stderr, "bench: %s\n", error);
		return false;
	}
	if (make_directory(objects, directory))
		return true;
	fprintf(stderr, "bench: the directory %s cannot be made: %s\n", objects->directory,
			strerror(errno));
	return false;
}

static void remove_directory(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		unlinkat(dirfd(directory), entry->d_name, 0);
	if (directory)
		closedir(directory);
	rmdir(path);
}

void bench_objects_close(struct bench_objects *objects)
{
	if (!objects)
		return;
	if (objects->temporary)
		remove_directory(objects->directory);
	for (int i = 0; i < objects->closure_count; i++) {
		free(objects->closures[i]->generated);
		free(objects->closures[i]);
	}
	if (objects->sources)
		compile_sources_close(objects->sources);
	free(objects->wanted);
	free(objects);
}

/* ---- Names ---- */

static bool read_closure(struct bench_objects *objects, struct closure *closure)
{
	const struct compile_file *found[COMPILE_MAX_HEADERS];
	char error[KERNEL_ERROR_MAX];

	if (strcmp(closure->name, BENCH_COPY_SOURCE) == 0) {
		closure->files[0] =
			(struct compile_file){BENCH_COPY_SOURCE, copy_text, sizeof(copy_text) - 1};
		closure->file_count = 1;
		return true;
	}
	if (compile_sources_closure(objects->sources, closure->name, objects->target, found,
								&closure->file_count, error) != KILN_OK) {
		fprintf(stderr, "bench: %s\n", error);
		return false;
	}
	for (int i = 0; i < closure->file_count; i++)
		closure->files[i] = *found[i];
	if (closure->generated[0])
		closure->files[closure->file_count++] = (struct compile_file){
			COMPILE_GENERATED, closure->generated, strlen(closure->generated)};
	return true;
}

static const struct closure *find_closure(struct bench_objects *objects, const char *source,
										  const char *generated)
{
	for (int i = 0; i < objects->closure_count; i++)
		if (strcmp(objects->closures[i]->name, source) == 0 &&
			strcmp(objects->closures[i]->generated, generated) == 0)
			return objects->closures[i];
	struct closure *closure =
		objects->closure_count < MOST_SOURCES ? calloc(1, sizeof(*closure)) : NULL;
	if (!closure || !(closure->generated = strdup(generated))) {
		free(closure);
		return NULL;
	}
	snprintf(closure->name, sizeof(closure->name), "%s", source);
	if (!read_closure(objects, closure)) {
		free(closure->generated);
		free(closure);
		return NULL;
	}
	return objects->closures[objects->closure_count++] = closure;
}

static void make_job(const struct bench_objects *objects, const struct closure *closure,
					 const char *instantiation, struct compile_job *job)
{
	*job = (struct compile_job){.source = closure->name,
								.instantiation = instantiation,
								.files = closure->files,
								.file_count = closure->file_count};
	snprintf(job->target, sizeof(job->target), "%s", objects->target);
}

bool bench_objects_name(struct bench_objects *objects, const char *source, const char *generated,
						const char *instantiation, char name[KERNEL_KEY_HEX])
{
	const struct closure *closure = find_closure(objects, source, generated);
	struct compile_job job;
	struct compile_key key;

	if (!closure)
		return false;
	make_job(objects, closure, instantiation, &job);
	/* Whichever compiler of the machine made it: objects are carried to other machines. */
	if (compile_key_make(&job, "any", &key) != KILN_OK)
		return false;
	memcpy(name, key.hex, KERNEL_KEY_HEX);
	compile_key_free(&key);
	return true;
}

static void path_of(const struct bench_objects *objects, const char *name, char path[640])
{
	snprintf(path, 640, "%s/%s", objects->directory, name);
}

bool bench_objects_want(struct bench_objects *objects, const char *source, const char *generated,
						const char *instantiation, char name[KERNEL_KEY_HEX])
{
	char path[640];

	if (!bench_objects_name(objects, source, generated, instantiation, name))
		return false;
	path_of(objects, name, path);
	if (access(path, R_OK) == 0)
		return true;
	for (int i = 0; i < objects->count; i++)
		if (strcmp(objects->wanted[i].name, name) == 0)
			return true;
	if (objects->count == objects->room) {
		int room = objects->room ? 2 * objects->room : 256;
		struct wanted *wanted = realloc(objects->wanted, (size_t)room * sizeof(*wanted));
		if (!wanted)
			return false;
		objects->wanted = wanted;
		objects->room = room;
	}
	struct wanted *wanted = &objects->wanted[objects->count++];
	memcpy(wanted->name, name, KERNEL_KEY_HEX);
	snprintf(wanted->instantiation, sizeof(wanted->instantiation), "%s", instantiation);
	wanted->closure = find_closure(objects, source, generated);
	return true;
}

/* ---- Making ---- */

/* The children share this. */
struct share {
	_Atomic int next, done, bad;
};

/* Under its name only when it is whole. */
static bool write_object(const struct bench_objects *objects, const struct wanted *wanted,
						 const struct compile_result *result)
{
	char path[640], part[700];

	path_of(objects, wanted->name, path);
	snprintf(part, sizeof(part), "%s.%d", path, (int)getpid());
	FILE *file = fopen(part, "wb");
	if (!file)
		return false;
	fprintf(file,
			"entry %s\nregisters %" PRId64 "\nshared %" PRId64 "\nspill %" PRId64
			"\nmicros %" PRId64 "\n\n",
			result->entry, result->registers, result->shared_bytes, result->spill_bytes,
			result->micros);
	bool written = fwrite(result->object, 1, result->object_bytes, file) == result->object_bytes;
	written = fclose(file) == 0 && written && rename(part, path) == 0;
	if (!written)
		unlink(part);
	return written;
}

static bool make_one(const struct bench_objects *objects, const struct wanted *wanted)
{
	struct compile_result result = {0};
	struct compile_job job;
	bool made = false;

	make_job(objects, wanted->closure, wanted->instantiation, &job);
	nvrtc_compile(&job, &result);
	if (result.status != KILN_OK)
		fprintf(stderr, "bench: %s does not compile: %s\n", wanted->instantiation, result.error);
	else if (!(made = write_object(objects, wanted, &result)))
		fprintf(stderr, "bench: %s cannot be written: %s\n", objects->directory, strerror(errno));
	compile_result_free(&result);
	return made;
}

static int child(const struct bench_objects *objects, struct share *share, double deadline_us)
{
	struct compile_toolchain toolchain = {0};

	if (nvrtc_open(&toolchain) != KILN_OK) {
		if (atomic_fetch_add(&share->bad, 1) == 0)
			fprintf(stderr, "bench: %s\n", toolchain.reason);
		return BENCH_SKIPPED;
	}
	nvrtc_warm();
	while (runner_now_us() < deadline_us) {
		int i = atomic_fetch_add(&share->next, 1);
		if (i >= objects->count)
			return 0;
		if (!make_one(objects, &objects->wanted[i]))
			atomic_fetch_add(&share->bad, 1);
		atomic_fetch_add(&share->done, 1);
	}
	return 0;
}

/* A child that crashes leaves its kernel unmade, which is seen by the count.  False: there is no
 * compiler. */
static bool wait_for(const pid_t *children, int started, const struct share *share, int count)
{
	bool progress = isatty(STDERR_FILENO), compiler = true;

	for (int i = 0; i < started; i++) {
		int status = 0;
		while (waitpid(children[i], &status, progress ? WNOHANG : 0) == 0) {
			fprintf(stderr, "\r%d of %d kernels compiled", atomic_load(&share->done), count);
			usleep(200000);
		}
		if (WIFSIGNALED(status))
			fprintf(stderr, "bench: a compiling process was killed by signal %d\n",
					WTERMSIG(status));
		compiler = compiler && !(WIFEXITED(status) && WEXITSTATUS(status) == BENCH_SKIPPED);
	}
	fprintf(stderr, "%s%d of %d kernels compiled\n", progress ? "\r" : "",
			atomic_load(&share->done), count);
	return compiler;
}

int bench_objects_make(struct bench_objects *objects, int processes, double deadline_us)
{
	pid_t children[MOST_PROCESSES];
	int started = 0;

	if (objects->count == 0)
		return 0;
	struct share *share =
		mmap(NULL, sizeof(*share), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (share == MAP_FAILED)
		return 1;
	fflush(stdout);
	while (started < processes && started < objects->count && started < MOST_PROCESSES) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(child(objects, share, deadline_us));
		if (pid < 0)
			break;
		children[started++] = pid;
	}
	bool compiler = wait_for(children, started, share, objects->count);
	bool made = atomic_load(&share->done) == objects->count && atomic_load(&share->bad) == 0;
	munmap(share, sizeof(*share));
	return made ? 0 : compiler ? 1 : BENCH_SKIPPED;
}

/* ---- Reading ---- */

static bool parse(const char *text, struct bench_object *out)
{
	char entry[2048];

	if (sscanf(text,
			   "entry %2047s registers %" SCNd64 " shared %" SCNd64 " spill %" SCNd64
			   " micros %" SCNd64,
			   entry, &out->registers, &out->shared_bytes, &out->spill_bytes, &out->micros) != 5)
		return false;
	out->entry = strdup(entry);
	return out->entry != NULL;
}

bool bench_objects_read(const struct bench_objects *objects, const char *name,
						struct bench_object *out)
{
	char path[640];
	size_t bytes = 0;

	*out = (struct bench_object){0};
	path_of(objects, name, path);
	char *text = util_read_file(path, MOST_BYTES, &bytes);
	char *cubin = text ? memmem(text, bytes, "\n\n", 2) : NULL;
	bool good = cubin && parse(text, out);
	if (good) {
		out->bytes = bytes - (size_t)(cubin + 2 - text);
		/* Aligned, and ended by a zero byte. */
		out->cubin = calloc(1, out->bytes + 1);
		good = out->cubin != NULL;
	}
	if (good)
		memcpy(out->cubin, cubin + 2, out->bytes);
	else
		bench_object_free(out);
	free(text);
	return good;
}

void bench_object_free(struct bench_object *object)
{
	free(object->entry);
	free(object->cubin);
	*object = (struct bench_object){0};
}
