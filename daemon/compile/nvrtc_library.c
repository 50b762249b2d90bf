/*
 * nvrtc_library.c: finds libnvrtc and its builtins and loads them.  Knows where toolkits and wheels
 * put their files, and nothing of what is in them.
 */
#include "backend.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const library_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
/* Below a directory: itself, and where wheels put it. */
static const char *const library_layouts[] = {"", "/lib64", "/lib", "/nvidia/cu13/lib",
											  "/nvidia/cuda_nvrtc/lib"};
/* Newest first, as glob sorts upwards. */
static const char *const library_places[] = {"/usr/local/cuda", "/usr/local/cuda-*",
											 "/usr/lib/x86_64-linux-gnu", "/usr/lib64"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The path the loader gave a library: what dlopen found by name. */
static bool library_path(void *handle, char *path, size_t size)
{
	struct link_map *map = NULL;
	char *real;

	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map)
		return false;
	real = realpath(map->l_name, NULL);
	if (!real)
		return false;
	snprintf(path, size, "%s", real);
	free(real);
	return true;
}

static bool load_library(struct library *out, const char *path, char why[KERNEL_ERROR_MAX])
{
	out->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!out->handle) {
		snprintf(why, KERNEL_ERROR_MAX, "%s", dlerror());
		return false;
	}
	if (library_path(out->handle, out->path, sizeof(out->path)))
		return true;
	snprintf(why, KERNEL_ERROR_MAX, "cannot tell where the loader found %s", path);
	dlclose(out->handle);
	out->handle = NULL;
	return false;
}

static bool load_below(struct library *out, const char *directory, char why[KERNEL_ERROR_MAX])
{
	for (size_t i = 0; i < COUNT(library_layouts); i++) {
		for (size_t j = 0; j < COUNT(library_names); j++) {
			char path[1200];

			snprintf(path, sizeof(path), "%s%s/%s", directory, library_layouts[i],
					 library_names[j]);
			if (access(path, R_OK) == 0 && load_library(out, path, why))
				return true;
		}
	}
	return false;
}

/* Looks beside the program, in an installed tree and in a build tree. */
static bool load_near_program(struct library *out, char why[KERNEL_ERROR_MAX])
{
	static const char *const near[] = {"", "/..", "/../cuda", "/../../cuda"};
	char program[900], directory[1000];
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	char *slash;

	if (size <= 0)
		return false;
	program[size] = 0;
	slash = strrchr(program, '/');
	if (!slash)
		return false;
	*slash = 0;
	for (size_t i = 0; i < COUNT(near); i++) {
		snprintf(directory, sizeof(directory), "%s%s", program, near[i]);
		if (load_below(out, directory, why))
			return true;
	}
	return false;
}

static bool load_from_loader(struct library *out, char why[KERNEL_ERROR_MAX])
{
	char ignored[KERNEL_ERROR_MAX];

	/* "Not found" is no reason to report: there are more places. */
	for (size_t i = 0; i < COUNT(library_names); i++)
		if (load_library(out, library_names[i], why[0] ? ignored : why))
			return true;
	return false;
}

static bool load_from_system(struct library *out, char why[KERNEL_ERROR_MAX])
{
	bool found = false;

	for (size_t i = 0; !found && i < COUNT(library_places); i++) {
		glob_t places;

		if (glob(library_places[i], 0, NULL, &places) != 0)
			continue;
		for (size_t j = places.gl_pathc; !found && j-- > 0;)
			found = load_below(out, places.gl_pathv[j], why);
		globfree(&places);
	}
	return found;
}

int library_open(struct library *out, char reason[KERNEL_ERROR_MAX])
{
	const char *named = getenv("KILN_NVRTC"), *cuda = getenv("KILN_CUDA_DIR");
	char why[KERNEL_ERROR_MAX] = "";
	struct stat st;

	*out = (struct library){0};
	if (named && named[0]) {
		bool directory = stat(named, &st) == 0 && S_ISDIR(st.st_mode);
		if (directory ? load_below(out, named, why) : load_library(out, named, why))
			return KILN_OK;
		return util_fail(reason, KERNEL_ERROR_MAX, KILN_ENOTSUP,
						 "KILN_NVRTC=%.80s is no libnvrtc and no directory with one: %.160s", named,
						 why[0] ? why : "there is no libnvrtc.so.13 or .12 in it");
	}
	if (load_near_program(out, why) || (cuda && cuda[0] && load_below(out, cuda, why)))
		return KILN_OK;
#ifdef KILN_BUILD_CUDA_DIR
	if (load_below(out, KILN_BUILD_CUDA_DIR, why))
		return KILN_OK;
#endif
	if (load_from_loader(out, why) || load_from_system(out, why))
		return KILN_OK;
	return util_fail(reason, KERNEL_ERROR_MAX, KILN_ENOTSUP,
					 "no usable libnvrtc (%.120s): install a CUDA toolkit or the wheel "
					 "nvidia-cuda-nvrtc, or set KILN_NVRTC to the library or its directory",
					 why);
}

void library_open_builtins(struct library *library, int major, int minor)
{
	const char *slash = strrchr(library->path, '/');
	char name[64];
	void *handle;

	snprintf(name, sizeof(name), "libnvrtc-builtins.so.%d.%d", major, minor);
	snprintf(library->builtins, sizeof(library->builtins), "%.*s/%s",
			 slash ? (int)(slash - library->path) : 0, library->path, name);
	/* Stays loaded: NVRTC asks for it by its bare name, and the loader then answers with this one.
	 */
	handle = dlopen(library->builtins, RTLD_NOW | RTLD_GLOBAL);
	if (!handle)
		handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
	if (!handle || !library_path(handle, library->builtins, sizeof(library->builtins)))
		library->builtins[0] = 0;
}
