/*
 * photo: a picture goes through the daemon and comes back.
 *
 *   photo PICTURE.ppm DIRECTORY
 *
 * Two worker processes, both clients of the daemon, work at the same time: one permutes strips of
 * the picture from HWC (pixel by pixel) to CHW (a plane for each colour), the other permutes each
 * finished strip back.  This process starts them, checks every byte of both results against plain
 * loops, writes DIRECTORY/photo-planes.pgm and DIRECTORY/photo-back.ppm, and prints what it cost.
 *
 * The daemon is found as libkiln finds it: $KILN_SOCKET, or the user's runtime directory.
 */
#include "photo.h"
#include "pnm.h"

#include <kiln/kiln.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* The daemon's cache and counters at one moment. */
struct figures {
	long long rows, bytes, requests, hits, shared, compiles, generic, refused;
};

static int fail(const char *what)
{
	fprintf(stderr, "photo: %s: %s\n", what, strerror(errno));
	return -1;
}

/* ---- Memory and workers ---- */

/* The descriptors lie above those that workers use, so that no dup2() meets another's source. */
static int move_up(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 10);
	close(fd);
	return moved;
}

static struct photo_shared *share(const struct pnm *picture, int *fd, size_t *bytes)
{
	struct photo_shared head = {.width = picture->width, .height = picture->height};
	size_t image = photo_image_bytes(&head);
	*bytes = sizeof(head) + 3 * image;
	*fd = move_up(memfd_create("photo", MFD_CLOEXEC));
	if (*fd < 0 || ftruncate(*fd, (off_t)*bytes) < 0) {
		fail("cannot make shared memory");
		return NULL;
	}
	struct photo_shared *shared = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (shared == MAP_FAILED) {
		fail("cannot map shared memory");
		return NULL;
	}
	*shared = head;
	memcpy(photo_image(shared, 0), picture->pixels, image);
	return shared;
}

/* Starts this program again, with a role: a fresh process without a connection of this one. */
static pid_t start(const char *role, int memory, int input, int output)
{
	char *arguments[] = {"photo", "--role", (char *)role, NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, memory, PHOTO_FD_MEMORY);
	posix_spawn_file_actions_adddup2(&actions, input, PHOTO_FD_INPUT);
	posix_spawn_file_actions_adddup2(&actions, output, PHOTO_FD_OUTPUT);
	int error = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (error) {
		errno = error;
		return fail("cannot start a worker");
	}
	return pid;
}

/*
 * Two pipes in a row: this process -> split -> join; to[] are their writing ends here.  Join is
 * the last.
 */
static int start_workers(int memory, pid_t pids[PHOTO_ROLES], int to[PHOTO_ROLES])
{
	int from[PHOTO_ROLES];
	for (int i = 0; i < PHOTO_ROLES; i++) {
		int ends[2];
		if (pipe2(ends, O_CLOEXEC) < 0)
			return fail("cannot make a pipe");
		from[i] = move_up(ends[0]);
		to[i] = move_up(ends[1]);
	}
	int nobody = move_up(open("/dev/null", O_WRONLY | O_CLOEXEC));
	pids[PHOTO_SPLIT] = start("split", memory, from[PHOTO_SPLIT], to[PHOTO_JOIN]);
	pids[PHOTO_JOIN] = start("join", memory, from[PHOTO_JOIN], nobody);
	close(from[PHOTO_SPLIT]);
	close(from[PHOTO_JOIN]);
	close(nobody);
	return pids[PHOTO_SPLIT] < 0 || pids[PHOTO_JOIN] < 0 ? -1 : 0;
}

/* Both workers must end well within the time; one that fails takes the other with it. */
static int wait_workers(pid_t pids[PHOTO_ROLES])
{
	const struct timespec pause = {.tv_nsec = 2000000};
	int running = PHOTO_ROLES, bad = 0;
	for (int waited = 0; running > 0 && !bad && waited < 2 * PHOTO_TIMEOUT_MS; waited += 2) {
		for (int i = 0; i < PHOTO_ROLES; i++) {
			int status;
			if (pids[i] > 0 && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
				pids[i] = 0;
				running--;
				bad |= status != 0;
			}
		}
		nanosleep(&pause, NULL);
	}
	for (int i = 0; i < PHOTO_ROLES; i++) {
		if (pids[i] > 0) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, 0);
		}
	}
	if (bad || running > 0)
		fprintf(stderr, "photo: %s\n", bad ? "a worker failed" : "the workers took too long");
	return bad || running > 0 ? -1 : 0;
}

/* ---- Checking and writing ---- */

/* Makes the planes of the picture by plain loops, each strip by itself, as the workers cut it. */
static void split_plainly(struct photo_shared *shared, uint8_t *planes)
{
	const uint8_t *picture = photo_image(shared, 0);
	for (uint32_t strip = 0; strip < photo_strips(shared); strip++) {
		uint32_t rows = photo_strip_rows(shared, strip);
		size_t base = photo_strip_offset(shared, strip);
		size_t pixels = (size_t)rows * shared->width;
		for (size_t c = 0; c < PHOTO_CHANNELS; c++)
			for (size_t i = 0; i < pixels; i++)
				planes[base + c * pixels + i] = picture[base + i * PHOTO_CHANNELS + c];
	}
}

static int compare(const char *what, const uint8_t *got, const uint8_t *want, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (got[i] != want[i]) {
			fprintf(stderr, "photo: byte %zu of the %s is %d, plain loops say %d\n", i, what,
					got[i], want[i]);
			return -1;
		}
	}
	return 0;
}

static int check(struct photo_shared *shared)
{
	size_t bytes = photo_image_bytes(shared);
	uint8_t *planes = malloc(bytes);
	if (!planes)
		return fail("no memory for checking");
	split_plainly(shared, planes);
	int status = compare("planes", photo_image(shared, 1), planes, bytes);
	free(planes);
	return status ? status
				  : compare("way back", photo_image(shared, 2), photo_image(shared, 0), bytes);
}

/* The three planes below each other, put together from the strips. */
static int write_planes(struct photo_shared *shared, const char *path)
{
	struct pnm image = {.width = shared->width, .height = shared->height * 3, .channels = 1};
	image.pixels = malloc(photo_image_bytes(shared));
	if (!image.pixels)
		return fail("no memory for the planes");
	for (uint32_t strip = 0; strip < photo_strips(shared); strip++) {
		size_t pixels = (size_t)photo_strip_rows(shared, strip) * shared->width;
		const uint8_t *from = photo_image(shared, 1) + photo_strip_offset(shared, strip);
		for (size_t c = 0; c < PHOTO_CHANNELS; c++) {
			size_t row = c * shared->height + (size_t)strip * PHOTO_STRIP_ROWS;
			memcpy(image.pixels + row * shared->width, from + c * pixels, pixels);
		}
	}
	int status = pnm_write(path, &image);
	free(image.pixels);
	return status;
}

static int write_images(struct photo_shared *shared, const char *directory)
{
	char planes[4096], back[4096];
	struct pnm image = {shared->width, shared->height, PHOTO_CHANNELS, photo_image(shared, 2)};
	snprintf(planes, sizeof(planes), "%s/photo-planes.pgm", directory);
	snprintf(back, sizeof(back), "%s/photo-back.ppm", directory);
	if (write_planes(shared, planes) < 0 || pnm_write(back, &image) < 0)
		return -1;
	printf("written       %s\n              %s\n", planes, back);
	return 0;
}

/* ---- The daemon's figures and the table ---- */

static int read_figures(kiln_client *client, struct figures *out)
{
	kiln_reply *info;
	if (kiln_request(client, "info", NULL, 0, &info) < 0) {
		fprintf(stderr, "photo: info: %s\n", kiln_errmsg());
		return -1;
	}
	*out = (struct figures){
		.rows = kiln_reply_int(info, "cache.rows"),
		.bytes = kiln_reply_int(info, "cache.bytes"),
		.requests = kiln_reply_int(info, "counters.requests"),
		.hits = kiln_reply_int(info, "counters.hits"),
		.shared = kiln_reply_int(info, "counters.shared"),
		.compiles = kiln_reply_int(info, "counters.compiles"),
		/* A kernel for all sizes answers while the exact one is not there yet. */
		.generic = kiln_reply_int(info, "counters.generic"),
		.refused = kiln_reply_int(info, "counters.failures") +
				   kiln_reply_int(info, "counters.remembered") +
				   kiln_reply_int(info, "counters.frozen"),
	};
	kiln_reply_free(info);
	return 0;
}

static void print_figures(const char *name, const struct figures *f)
{
	printf(
		"%-13s %lld kernels, %lld bytes; %lld requests = %lld hits + %lld shared + %lld compiles "
		"+ %lld generic + %lld refused\n",
		name, f->rows, f->bytes, f->requests, f->hits, f->shared, f->compiles, f->generic,
		f->refused);
}

static void print_table(struct photo_shared *shared, const struct figures figures[2])
{
	static const char *const titles[PHOTO_ROLES] = {"HWC->CHW", "CHW->HWC"};
	printf("picture       %ux%u, %zu bytes, %u strips; two client processes at once\n",
		   shared->width, shared->height, photo_image_bytes(shared), photo_strips(shared));
	printf("device        %s\n", shared->reports[PHOTO_SPLIT].device);
	for (int i = 0; i < PHOTO_ROLES; i++)
		printf("plan          %s  %s: %s\n", titles[i], shared->reports[i].variant,
			   shared->reports[i].instantiation);
	for (int i = 0; i < PHOTO_ROLES; i++) {
		const struct photo_report *r = &shared->reports[i];
		printf("latency       %s  cold %.2f ms (prepare %.2f ms: %s), warm %.3f ms\n", titles[i],
			   r->cold_ms, r->prepare_ms, r->origin, r->warm_ms);
	}
	print_figures("cache before", &figures[0]);
	print_figures("cache after", &figures[1]);
	printf("checked       %zu bytes there and %zu back against plain loops: all equal\n",
		   photo_image_bytes(shared), photo_image_bytes(shared));
}

/* ---- The whole ---- */

static int tell(int fd, uint32_t number)
{
	if (write(fd, &number, sizeof(number)) != (ssize_t)sizeof(number))
		return fail("a worker does not listen");
	return 0;
}

/* Lets both workers go at the same moment, then hands the strips to the first. */
static int feed(struct photo_shared *shared, const int to[PHOTO_ROLES])
{
	int status = 0;
	for (int i = 0; i < PHOTO_ROLES && status == 0; i++)
		status = tell(to[i], PHOTO_GO);
	for (uint32_t strip = 0; strip < photo_strips(shared) && status == 0; strip++)
		status = tell(to[PHOTO_SPLIT], strip);
	return status;
}

static int run(const char *path, const char *directory)
{
	struct pnm picture;
	struct figures figures[2];
	kiln_connect_options options = {.size = sizeof(options), .timeout_ms = PHOTO_TIMEOUT_MS};
	kiln_client *client = NULL;
	struct photo_shared *shared;
	pid_t pids[PHOTO_ROLES] = {0};
	int memory, to[PHOTO_ROLES], status = -1;
	size_t bytes;
	if (pnm_read(path, &picture) < 0)
		return -1;
	if (picture.channels != PHOTO_CHANNELS) {
		fprintf(stderr, "photo: %s is grey; a colour picture (P6) is wanted\n", path);
		free(picture.pixels);
		return -1;
	}
	shared = share(&picture, &memory, &bytes);
	free(picture.pixels);
	if (!shared || start_workers(memory, pids, to) < 0)
		return -1;
	if (kiln_connect(&options, &client) < 0)
		fprintf(stderr, "photo: %s\n", kiln_errmsg());
	else if (read_figures(client, &figures[0]) == 0)
		status = feed(shared, to);
	close(to[PHOTO_SPLIT]);
	close(to[PHOTO_JOIN]);
	if (wait_workers(pids) < 0)
		status = -1;
	if (status == 0 && read_figures(client, &figures[1]) == 0 && check(shared) == 0) {
		print_table(shared, figures);
		status = write_images(shared, directory);
	} else {
		status = -1;
	}
	kiln_close(client);
	munmap(shared, bytes);
	close(memory);
	return status;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN); /* a worker that is gone is reported by its status */
	if (argc == 3 && strcmp(argv[1], "--role") == 0)
		return photo_worker(strcmp(argv[2], "split") == 0 ? PHOTO_SPLIT : PHOTO_JOIN);
	if (argc != 3) {
		fprintf(stderr, "usage: photo PICTURE.ppm DIRECTORY\n");
		return 2;
	}
	return run(argv[1], argv[2]) < 0 ? 1 : 0;
}
