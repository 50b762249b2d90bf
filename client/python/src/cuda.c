/*
 * cuda.c: loads the driver by name.  Signatures are those of the driver's API, with its handles as
 * pointers and its results as int.
 */
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define DEVICES 64

static int (*get_device)(int *device);
static int (*device_get)(int *device, int ordinal);
static int (*device_uuid)(unsigned char uuid[16], int device);
static int (*retain)(void **context, int device);
static int (*push)(void *context);
static int (*pop)(void **context);
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static void *primary[DEVICES]; /* kept until the process ends, as torch keeps them */

static void load(void)
{
	const char *name = secure_getenv("KILN_LIBCUDA");
	void *driver = dlopen(name && name[0] ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver)
		return;
	*(void **)&get_device = dlsym(driver, "cuCtxGetDevice");
	*(void **)&device_get = dlsym(driver, "cuDeviceGet");
	*(void **)&device_uuid = dlsym(driver, "cuDeviceGetUuid_v2");
	if (!device_uuid)
		*(void **)&device_uuid = dlsym(driver, "cuDeviceGetUuid");
	*(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&push = dlsym(driver, "cuCtxPushCurrent_v2");
	*(void **)&pop = dlsym(driver, "cuCtxPopCurrent_v2");
	loaded = get_device && device_get && device_uuid && retain && push && pop;
}

static bool ready(int device)
{
	pthread_once(&once, load);
	return loaded && device >= 0 && device < DEVICES;
}

bool cuda_uuid(int device, char out[33])
{
	unsigned char uuid[16];
	int handle;
	if (!ready(device) || device_get(&handle, device) != 0 || device_uuid(uuid, handle) != 0)
		return false;
	for (int i = 0; i < 16; i++)
		snprintf(out + 2 * i, 3, "%02x", uuid[i]);
	return true;
}

bool cuda_enter(int device)
{
	int current, handle;
	if (!ready(device) || (get_device(&current) == 0 && current == device))
		return false;
	if (!primary[device] &&
		(device_get(&handle, device) != 0 || retain(&primary[device], handle) != 0))
		return false;
	return push(primary[device]) == 0;
}

void cuda_leave(void)
{
	void *popped;
	(void)pop(&popped);
}
