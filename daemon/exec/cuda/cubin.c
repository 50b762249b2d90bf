/*
 * cubin: reads section .nv.info.<entry> of a cubin, which is an ELF file.  The section is a list of
 * attributes: a byte for the form, a byte for the kind, and two bytes of value, or of the size of
 * the data that follows.  This file checks every length, and accepts the parameters only if all are
 * there and end where the parameter block ends.
 */
#include "cubin.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define SECTION ".nv.info."
#define FORM_SIZED 0x04
#define ATTRIBUTE_BLOCK 0x19 /* value: bytes of all parameters */
#define ATTRIBUTE_PARAM 0x17
#define ATTRIBUTE_PARAM_LARGE 0x45 /* where the block has more than 4 KiB */

struct bytes {
	const uint8_t *at;
	size_t count;
};

/* Returns a part of `whole`; nothing unless all of the part is inside. */
static struct bytes part(struct bytes whole, uint64_t offset, uint64_t count)
{
	if (offset > whole.count || count > whole.count - offset)
		return (struct bytes){NULL, 0};
	return (struct bytes){whole.at + offset, (size_t)count};
}

static bool read_section(struct bytes file, const Elf64_Ehdr *header, uint64_t number,
						 Elf64_Shdr *out)
{
	struct bytes place = {NULL, 0};

	if (number < header->e_shnum && header->e_shentsize == sizeof(*out))
		place = part(file, header->e_shoff, (uint64_t)header->e_shnum * sizeof(*out));
	if (!place.at)
		return false;
	memcpy(out, place.at + number * sizeof(*out), sizeof(*out));
	return true;
}

static bool is_named(struct bytes names, uint32_t offset, const char *entry)
{
	size_t prefix = strlen(SECTION), size = strlen(entry);
	struct bytes name = part(names, offset, prefix + size + 1);

	return name.at && memcmp(name.at, SECTION, prefix) == 0 &&
		   memcmp(name.at + prefix, entry, size + 1) == 0;
}

/* Returns the attributes of the entry; nothing if there are none. */
static struct bytes find_entry(struct bytes file, const char *entry)
{
	struct bytes nothing = {NULL, 0}, names;
	Elf64_Ehdr header;
	Elf64_Shdr section;

	if (file.count < sizeof(header))
		return nothing;
	memcpy(&header, file.at, sizeof(header));
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
		!read_section(file, &header, header.e_shstrndx, &section))
		return nothing;
	names = part(file, section.sh_offset, section.sh_size);
	for (uint64_t i = 0; i < header.e_shnum; i++)
		if (read_section(file, &header, i, &section) && is_named(names, section.sh_name, entry))
			return part(file, section.sh_offset, section.sh_size);
	return nothing;
}

static uint32_t word(const uint8_t *at, int bytes)
{
	uint32_t value = 0;

	for (int i = bytes - 1; i >= 0; i--)
		value = value << 8 | at[i];
	return value;
}

struct parameters {
	uint32_t sizes[KERNEL_MAX_ARGS];
	bool known[KERNEL_MAX_ARGS];
	int count;      /* 1 + the highest number; -1: a number is out of range */
	uint32_t end;   /* of the last in the block */
	uint32_t block; /* bytes; 0: it is not there */
};

/* Reads a parameter: four bytes without a meaning here, then number, offset, and the size, whose
 * place depends on the kind. */
static void add_parameter(struct parameters *all, const uint8_t *at, bool large)
{
	uint32_t number = word(at + 4, 2), offset = word(at + 6, 2);
	uint32_t size = large ? word(at + 8, 2) : word(at + 8, 4) >> 18;

	if (number >= KERNEL_MAX_ARGS || all->count < 0) {
		all->count = -1;
		return;
	}
	all->sizes[number] = size;
	all->known[number] = true;
	if ((int)number >= all->count)
		all->count = (int)number + 1;
	if (offset + size > all->end)
		all->end = offset + size;
}

static struct parameters read_attributes(struct bytes list)
{
	struct parameters all = {.count = 0};
	uint64_t at = 0;

	for (struct bytes head; (head = part(list, at, 4)).at;) {
		bool sized = head.at[0] == FORM_SIZED;
		bool large = head.at[1] == ATTRIBUTE_PARAM_LARGE;
		uint32_t value = word(head.at + 2, 2);
		struct bytes data = part(list, at + 4, sized ? value : 0);

		if (sized && value >= 12 && data.at && (large || head.at[1] == ATTRIBUTE_PARAM))
			add_parameter(&all, data.at, large);
		else if (!sized && head.at[1] == ATTRIBUTE_BLOCK)
			all.block = value;
		at += 4 + (sized ? ((uint64_t)value + 3) / 4 * 4 : 0);
	}
	return all;
}

bool cubin_params(const void *object, size_t bytes, const char *entry, struct device_kernel *out)
{
	struct bytes list = find_entry((struct bytes){object, bytes}, entry);
	struct parameters all;

	if (!list.at)
		return false;
	all = read_attributes(list);
	if (all.count < 0 || all.end != all.block)
		return false;
	for (int i = 0; i < all.count; i++)
		if (!all.known[i])
			return false;
	out->param_count = all.count;
	memcpy(out->params, all.sizes, sizeof(all.sizes));
	return true;
}
