/*
 * uuid: how a GPU's number of its own is written, as nvidia-smi writes it.
 */
#include "daemon/base/util.h"
#include "device.h"

void device_uuid_text(const void *uuid, char text[DEVICE_UUID_TEXT])
{
	char hex[2 * DEVICE_UUID_BYTES + 1];
	util_hex(uuid, DEVICE_UUID_BYTES, hex);
	snprintf(text, DEVICE_UUID_TEXT, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
			 hex + 16, hex + 20);
}
