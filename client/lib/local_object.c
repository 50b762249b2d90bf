/*
 * local_object.c: asks the daemon to describe a launch in the program's own context, and for the
 * compiled kernel.  It knows nothing of CUDA.
 */
#include "call.h"
#include "client.h"
#include "error.h"
#include "link.h"
#include "local_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading the answer ---- */

/* Element i of a list, if it is a number. */
static bool number_at(const msgpack_object *list, uint32_t i, uint64_t *out)
{
	const msgpack_object *value = wire_at(list, i);
	if (!value || value->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return false;
	*out = value->via.u64;
	return true;
}

static bool read_shape(const msgpack_object *map, const char *key, uint32_t out[3])
{
	int64_t values[3];
	if (wire_get_ints(map, key, values, 3) != 3)
		return false;
	for (int i = 0; i < 3; i++) {
		if (values[i] < 0 || values[i] > INT32_MAX)
			return false;
		out[i] = (uint32_t)values[i];
	}
	return true;
}

static bool read_arguments(const msgpack_object *list, struct local_template *out)
{
	uint32_t count = wire_count(list);
	if (count > KILN_MAX_RAW_ARGS)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		const msgpack_object *item = wire_at(list, i);
		struct local_argument *argument = &out->arguments[i];
		uint64_t kind, bytes;
		if (!number_at(item, 0, &kind))
			return false;
		if (kind == 0 && number_at(item, 1, &argument->value) &&
			argument->value < (uint64_t)out->operand_count)
			argument->kind = LOCAL_POINTER;
		else if (kind == 1 && number_at(item, 1, &bytes) && (bytes == 4 || bytes == 8) &&
				 number_at(item, 2, &argument->value))
			argument->kind = LOCAL_SCALAR;
		else if (kind == 2 && out->scratch_bytes > 0)
			argument->kind = LOCAL_SCRATCH;
		else
			return false;
	}
	out->argument_count = (int)count;
	return true;
}

static bool read_operands(struct wire_in *in, const msgpack_object *list,
						  struct local_template *out)
{
	uint32_t count = wire_count(list);
	if (count > KILN_MAX_OPERANDS)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		const msgpack_object *item = wire_at(list, i);
		struct local_operand *operand = &out->operands[i];
		const char *name = wire_get_str(in, item, "n");
		uint64_t alignment = wire_get_uint(item, "align", 0);
		if (alignment == 0 || alignment > 16 || (alignment & (alignment - 1)) != 0)
			return false;
		snprintf(operand->name, sizeof(operand->name), "%s", name ? name : "");
		operand->bytes = wire_get_uint(item, "bytes", 0);
		operand->alignment = (uint32_t)alignment;
		operand->written = wire_get_bool(item, "written", true);
		operand->over = (int)wire_get_uint(item, "over", 0) - 1;
		operand->period = wire_get_uint(item, "period", 0);
		operand->width = wire_get_uint(item, "width", 0);
	}
	out->operand_count = (int)count;
	return true;
}

static bool read_kind(const char *name, enum local_kind *out)
{
	static const char *const names[] = {"nothing", "copy", "launch"};
	for (int i = 0; i < 3; i++) {
		if (name && strcmp(name, names[i]) == 0) {
			*out = (enum local_kind)i;
			return true;
		}
	}
	return false;
}

/* Whether the launch stays inside its operands. */
static bool is_sound(const struct local_template *is)
{
	if (is->kind == LOCAL_COPY) {
		return is->operand_count == 2 && is->copy_bytes <= is->operands[0].bytes &&
			   is->copy_bytes <= is->operands[1].bytes;
	}
	return is->scratch_counters <= is->scratch_bytes;
}

static bool read_template(struct wire_in *in, struct local_template *out)
{
	const msgpack_object *map = wire_get(&in->root, "template");
	const msgpack_object *scratch = wire_get(map, "scratch");
	const char *key = wire_get_str(in, &in->root, "key");
	const char *target = wire_get_str(in, &in->root, "target");
	uint64_t shared = wire_get_uint(map, "shared", UINT64_MAX);
	if (!key || strlen(key) >= sizeof(out->key) || !target ||
		strlen(target) >= sizeof(out->target) || shared > INT32_MAX ||
		!read_kind(wire_get_str(in, map, "kind"), &out->kind))
		return false;
	memcpy(out->key, key, strlen(key));
	memcpy(out->target, target, strlen(target));
	out->shared_bytes = (uint32_t)shared;
	out->copy_bytes = wire_get_uint(map, "copy", 0);
	if (scratch && (!number_at(scratch, 0, &out->scratch_bytes) ||
					!number_at(scratch, 1, &out->scratch_counters)))
		return false;
	return read_shape(map, "grid", out->grid) && read_shape(map, "block", out->block) &&
		   read_operands(in, wire_get(map, "operands"), out) &&
		   read_arguments(wire_get(map, "args"), out) && is_sound(out);
}

/* Maps the kernel from a sealed memfd, which all processes that map it share. */
static bool map_object(struct frame *frame, struct local_way *way)
{
	struct stat status;
	int fd = frame_take_fd(frame, 0);
	bool mapped = false;
	if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0 &&
		frame_fd_is_safe(fd, (uint64_t)status.st_size)) {
		way->object_bytes = (size_t)status.st_size;
		way->object = mmap(NULL, way->object_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
		mapped = way->object != MAP_FAILED;
	}
	if (!mapped)
		way->object = NULL;
	if (fd >= 0)
		close(fd);
	return mapped;
}

void local_way_free(struct local_way *way)
{
	if (way->object)
		munmap(way->object, way->object_bytes);
	free(way->entry);
	free(way);
}

struct local_way *local_keep(struct local_ways *ways, struct local_way *way)
{
	for (struct local_way *one = ways->all; one != NULL; one = one->next) {
		if (memcmp(&one->is, &way->is, sizeof(way->is)) == 0) {
			local_way_free(way);
			return one;
		}
	}
	way->next = ways->all;
	ways->all = way;
	return way;
}

/* ---- Asking ---- */

/* Whether the variant fits operands with these alignments. */
static bool suits(const struct local_template *is, const int64_t *alignments, int count)
{
	for (int i = 0; i < count; i++)
		if (alignments[i] > 0 && is->operands[i].bytes > 0 &&
			alignments[i] < (int64_t)is->operands[i].alignment)
			return false;
	return is->operand_count >= count;
}

/* Unpacks alignments into bytes; 0: the operand is left out. */
static void unpack(const kiln_call *call, uint64_t alignments, int64_t bytes[KILN_MAX_OPERANDS])
{
	for (int i = 0; i < call->tensor_count; i++) {
		unsigned one = alignments >> (4 * i) & 15;
		bytes[i] = one == LOCAL_LEFT_OUT ? 0 : INT64_C(1) << one;
	}
}

static void put_question(struct request *request, const kiln_call *call, uint64_t alignments)
{
	int64_t bytes[KILN_MAX_OPERANDS];
	unpack(call, alignments, bytes);
	link_begin(call->client, request, "object");
	wire_put_uint(&request->out, "call", call->id);
	wire_put_ints(&request->out, "alignments", bytes, call->tensor_count);
	wire_put_bool(&request->out, "generic", true);
}

struct local_way *local_read(kiln_call *call, uint64_t alignments, struct answer *answer)
{
	const msgpack_object *root = &answer->in.root;
	const char *entry = wire_get_str(&answer->in, root, "entry");
	int64_t bytes[KILN_MAX_OPERANDS];
	struct local_way *way = calloc(1, sizeof(*way));
	if (!way)
		return NULL;
	unpack(call, alignments, bytes);
	way->entry = strdup(entry ? entry : "");
	way->tier.call = call;
	way->tier.alignments = alignments;
	way->tier.most = wire_get_uint(root, "again", 0);
	way->tier.next = way->tier.most < 2 ? way->tier.most : 2;
	way->tier.state = way->tier.most > 0 ? LOCAL_TIER_GENERIC : LOCAL_TIER_LAST;
	if (way->entry && read_template(&answer->in, &way->is) &&
		suits(&way->is, bytes, call->tensor_count) &&
		(way->is.kind != LOCAL_KERNEL || map_object(&answer->frame, way)))
		return way;
	local_way_free(way);
	return NULL;
}

int local_ask(kiln_call *call, uint64_t alignments, struct local_way **out)
{
	struct kiln_client *client = call->client;
	struct request request;
	struct answer answer;
	put_question(&request, call, alignments);
	int status = link_ask(client, &request, client_deadline(client), &answer);
	if (status != KILN_OK)
		return status;
	struct local_way *way = local_read(call, alignments, &answer);
	answer_free(&answer);
	if (!way) {
		return error_set(KILN_EPROTO,
						 "kilnd at %s gave an object that cannot be used, or there is no memory "
						 "for it",
						 client->path);
	}
	*out = way;
	return KILN_OK;
}

int local_ask_again(struct local_way *way)
{
	struct local_tier *tier = &way->tier;
	struct request request;
	put_question(&request, tier->call, tier->alignments);
	wire_put_uint(&request.out, "launches", tier->launches);
	tier->question.id = request.id;
	int status = link_post(tier->call->client, &request, LINK_QUEUE_MAX);
	if (status == KILN_OK)
		link_expect(tier->call->client, &tier->question);
	return status;
}
