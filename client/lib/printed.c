/*
 * printed.c: keeps what kernels of the program's own have printed: the first bytes, for later ones
 * are mostly more of the same.  It must not know which launch printed.
 */
#include "printed.h"
#include "client.h"

#include <stdlib.h>
#include <string.h>

#define PRINTED_MOST ((size_t)64 << 10)

struct printed {
	char *text;  /* with room for PRINTED_MOST bytes and a zero; NULL: nothing has come */
	char *given; /* the program has this */
	size_t used; /* of text */
	uint64_t cut;
};

void printed_keep(kiln_client *client, const msgpack_object *event)
{
	const msgpack_object *text = wire_get(event, "text");
	struct printed *printed = client->printed;
	if (!text || text->type != MSGPACK_OBJECT_BIN)
		return;
	if (!printed)
		printed = client->printed = calloc(1, sizeof(*printed));
	if (!printed)
		return;
	if (!printed->text)
		printed->text = malloc(PRINTED_MOST + 1);
	size_t room = printed->text && printed->cut == 0 ? PRINTED_MOST - printed->used : 0;
	size_t size = text->via.bin.size;
	/* A zero would end the program's string. */
	for (size_t i = 0; i < size; i++) {
		if (room == 0) {
			printed->cut += size - i;
			break;
		}
		if (text->via.bin.ptr[i] == 0)
			continue;
		printed->text[printed->used++] = text->via.bin.ptr[i];
		room--;
	}
	printed->cut += wire_get_uint(event, "cut", 0);
}

void printed_free(kiln_client *client)
{
	if (client->printed) {
		free(client->printed->text);
		free(client->printed->given);
	}
	free(client->printed);
	client->printed = NULL;
}

const char *printed_take(kiln_client *client, uint64_t *cut)
{
	struct printed *printed = client->printed;
	*cut = printed ? printed->cut : 0;
	if (!printed)
		return "";
	free(printed->given);
	printed->given = printed->text;
	printed->text = NULL;
	if (printed->given)
		printed->given[printed->used] = 0;
	printed->used = 0;
	printed->cut = 0;
	return printed->given ? printed->given : "";
}
