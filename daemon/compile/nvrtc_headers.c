/* nvrtc_headers: a user's headers as NVRTC takes them. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

bool headers_make(const struct compile_job *job, struct headers *out)
{
	size_t bytes = 0;
	int count = job && job->by_name ? job->user_files - 1 : 0;

	*out = (struct headers){.count = count};
	if (count <= 0)
		return true;
	const struct compile_file *files = job->files + job->file_count - count;
	for (int i = 0; i < count; i++)
		bytes += files[i].bytes + 1;
	out->texts = calloc((size_t)count * 2, sizeof(*out->texts));
	out->room = malloc(bytes);
	if (!out->texts || !out->room)
		return false;
	out->names = out->texts + count;
	char *at = out->room;
	for (int i = 0; i < count; i++) {
		out->names[i] = files[i].name;
		out->texts[i] = memcpy(at, files[i].text, files[i].bytes);
		at[files[i].bytes] = 0;
		at += files[i].bytes + 1;
	}
	return true;
}

void headers_free(struct headers *headers)
{
	free(headers->texts);
	free(headers->room);
}
