/* build.c: names the build that this process runs, and looks at the program's path. */
#include "util.h"

#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_PROGRAM "/proc/self/exe"
#define BUILD_BYTES 20 /* of a linker's hash; longer ones are cut */

/* Finds the note in which the linker left its hash of the program. */
static bool read_note(const char *at, size_t size, char hex[2 * BUILD_BYTES + 1])
{
	const char *end = at + size;
	while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
		ElfW(Nhdr) note;
		memcpy(&note, at, sizeof(note));
		const char *name = at + sizeof(note), *text = name + (note.n_namesz + 3u) / 4 * 4;
		if (text > end || (size_t)(end - text) < note.n_descsz)
			return false;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(name, "GNU", 4)) {
			size_t bytes = note.n_descsz < BUILD_BYTES ? note.n_descsz : BUILD_BYTES;
			util_hex((const unsigned char *)text, bytes, hex);
			return true;
		}
		at = text + (note.n_descsz + 3u) / 4 * 4;
	}
	return false;
}

/* Ends the walk after its first part, which is the program. */
static int build_look(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		const char *at = (const char *)(uintptr_t)(info->dlpi_addr + part->p_vaddr);
		if (part->p_type == PT_NOTE && read_note(at, part->p_memsz, arg))
			break;
	}
	return 1;
}

const char *util_build(void)
{
	static char hex[2 * BUILD_BYTES + 1];
	if (!hex[0])
		dl_iterate_phdr(build_look, hex);
	return hex;
}

enum util_program util_program(char path[PATH_MAX])
{
	static const char mark[] = " (deleted)"; /* how the system shows a path that is no more */
	struct stat own, there;
	ssize_t length = readlink(OWN_PROGRAM, path, PATH_MAX - 1);
	path[length > 0 ? length : 0] = 0;
	if (stat(OWN_PROGRAM, &own) < 0)
		return UTIL_PROGRAM_REMOVED;
	if (stat(path, &there) == 0 && there.st_dev == own.st_dev && there.st_ino == own.st_ino)
		return UTIL_PROGRAM_CURRENT;
	size_t size = strlen(path), cut = sizeof(mark) - 1;
	if (size > cut && !strcmp(path + size - cut, mark))
		path[size - cut] = 0;
	return stat(path, &there) == 0 ? UTIL_PROGRAM_REPLACED : UTIL_PROGRAM_REMOVED;
}
