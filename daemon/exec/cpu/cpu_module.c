/*
 * cpu_module: loads kernels, which are shared objects, from a sealed memfd, without a file system.
 * An object is native code, and has all rights of this process.
 */
#include "cpu_module.h"
#include "daemon/base/util.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

static int object_fd(const void *object, size_t bytes)
{
	/* Kernels before 6.3 do not know MFD_EXEC, later ones may insist on it. */
	int fd = memfd_create("kiln-object", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("kiln-object", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	const char *from = object;
	while (bytes > 0) {
		ssize_t n = write(fd, from, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			goto fail;
		from += n;
		bytes -= (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0)
		return fd;
fail:
	close(fd);
	return -1;
}

/* Notes in the module where its object lies: dl_iterate_phdr() calls this for each object. */
static int find_image(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct device_module *module = argument;
	uintptr_t begin = UINTPTR_MAX, end = 0;
	(void)size;
	if (info->dlpi_addr != module->image_base)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		begin = at < begin ? at : begin;
		end = at + info->dlpi_phdr[i].p_memsz > end ? at + info->dlpi_phdr[i].p_memsz : end;
	}
	module->image_begin = begin;
	module->image_end = end;
	return 1;
}

static void locate(struct device_module *module)
{
	struct link_map *map;
	if (dlinfo(module->handle, RTLD_DI_LINKMAP, &map) != 0)
		return;
	module->image_base = map->l_addr;
	dl_iterate_phdr(find_image, module);
}

static int resolve(struct device_module *module, const char *entry, char error[KERNEL_ERROR_MAX])
{
	void *symbol = dlsym(module->handle, entry);
	module->about = dlsym(module->handle, "kiln_cpu_module");
	if (!symbol || !module->about)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECOMPILE,
						 "the object has no symbol %s: it was not compiled for device cpu",
						 symbol ? "kiln_cpu_module" : entry);
	/* ISO C has no conversion from an object pointer to a function pointer; POSIX does. */
	memcpy(&module->entry, &symbol, sizeof(symbol));
	if (module->about->abi != KILN_CPU_ABI)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ECOMPILE,
						 "the object was compiled for version %u of the cpu device, and this is "
						 "version %u",
						 module->about->abi, KILN_CPU_ABI);
	return KILN_OK;
}

int cpu_load(struct device *device, const void *object, size_t bytes, const char *entry,
			 uint32_t shared_bytes, struct device_module **out, char error[KERNEL_ERROR_MAX])
{
	if (shared_bytes > CPU_SHARED_OPTIN)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%u bytes of shared memory are more than the %u of a block", shared_bytes,
						 CPU_SHARED_OPTIN);
	struct device_module *module = calloc(1, sizeof(*module));
	if (!module)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
						 "out of memory for a module's record");
	module->fd = object_fd(object, bytes);
	if (module->fd < 0) {
		int why = errno;
		free(module);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
						 "an object of %zu bytes cannot be put into a memfd: %s", bytes,
						 strerror(why));
	}
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", module->fd);
	module->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int status;
	if (module->handle) {
		locate(module);
		status = resolve(module, entry, error);
	} else {
		const char *why = dlerror();
		status = util_fail(error, KERNEL_ERROR_MAX, KILN_ECOMPILE,
						   "the object of %zu bytes cannot be loaded: %s", bytes, why ? why : "?");
	}
	if (status != KILN_OK) {
		cpu_unload(device, module);
		return status;
	}
	*out = module;
	return KILN_OK;
}

void cpu_describe(const struct device_module *module, struct device_kernel *out)
{
	const struct kiln_cpu_module *about = module->about;
	out->param_count = (int)about->arg_count;
	for (unsigned i = 0; i < about->arg_count && i < KERNEL_MAX_ARGS; i++)
		out->params[i] = about->arg_bytes[i];
}

void cpu_unload(struct device *device, struct device_module *module)
{
	(void)device;
	if (!module)
		return;
	if (module->handle)
		dlclose(module->handle);
	close(module->fd);
	free(module);
}
