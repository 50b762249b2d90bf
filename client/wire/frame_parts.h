/* frame_parts.h: functions that the files of frame share. */
#ifndef KILN_CLIENT_FRAME_PARTS_H
#define KILN_CLIENT_FRAME_PARTS_H

#include "frame.h"

#include <fcntl.h>

#define HEADER_BYTES 8
#define FLAG_BULK 1u
#define BULK_SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

/* Closes by closer; NULL: close(). */
void frame_close_by(const struct frame_closer *closer, int fd);

#endif
