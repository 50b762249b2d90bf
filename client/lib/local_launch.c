/*
 * local_launch.c: launches prepared calls in the program's own context, on its own stream.  The
 * daemon describes each variant of a call once; later launches are the checks that the daemon would
 * make, and one call of the driver.
 */
#include "local_launch.h"
#include "call.h"
#include "client/wire/byte_range.h"
#include "client.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

/* ---- Operands ---- */

static int check_count(const kiln_call *call, const kiln_place *operands, int count)
{
	if (count != call->tensor_count || (count > 0 && !operands)) {
		return error_set(KILN_EINVAL,
						 "the call was prepared for %d tensors and is launched with %d operands",
						 call->tensor_count, count);
	}
	for (int i = 0; i < count; i++) {
		bool left_out = call->left_out >> i & 1;
		if (left_out && operands[i].address != 0) {
			return error_set(KILN_EINVAL,
							 "operand %d has an address, and the call was prepared without it: "
							 "pass {0, 0}, or prepare a call with it",
							 i);
		}
	}
	return KILN_OK;
}

/* Packs, for each address, the exponent of the largest power of two up to 16 that divides it. */
static uint64_t alignments_of(const kiln_call *call, const kiln_place *operands, int count)
{
	uint64_t all = 0;
	for (int i = 0; i < count; i++) {
		uint64_t one = call->left_out >> i & 1
						   ? LOCAL_LEFT_OUT
						   : (unsigned)__builtin_ctzll(operands[i].address | 16);
		all |= one << (4 * i);
	}
	return all;
}

static bool overlap(const struct local_template *is, const kiln_place *operands, int i, int k)
{
	const struct local_operand *x = &is->operands[i], *y = &is->operands[k];
	struct byte_range a = {operands[i].address, x->bytes, x->period, x->width};
	struct byte_range b = {operands[k].address, y->bytes, y->period, y->width};
	if ((x->over == k || y->over == i) && byte_range_is(&a, &b))
		return false;
	return byte_range_meets(&a, &b);
}

/* Checks that every operand has the bytes that the launch touches, and that no output overlaps
 * another operand. */
static int check_places(const struct local_template *is, const kiln_place *operands, int count)
{
	for (int i = 0; i < count; i++) {
		const struct local_operand *operand = &is->operands[i];
		if (operand->bytes > 0 && operands[i].address == 0)
			return error_set(KILN_EINVAL, "%s has no address", operand->name);
		if (operand->bytes > operands[i].bytes) {
			return error_set(
				KILN_EINVAL, "%s needs %llu bytes at 0x%llx, where %llu are said to be",
				operand->name, (unsigned long long)operand->bytes,
				(unsigned long long)operands[i].address, (unsigned long long)operands[i].bytes);
		}
	}
	for (int k = 0; k < count; k++) {
		for (int i = 0; i < count && is->operands[k].written; i++) {
			if (i != k && overlap(is, operands, i, k)) {
				return error_set(KILN_EINVAL,
								 "%s at 0x%llx and %s at 0x%llx overlap; an output may share no "
								 "byte with another operand",
								 is->operands[i].name, (unsigned long long)operands[i].address,
								 is->operands[k].name, (unsigned long long)operands[k].address);
			}
		}
	}
	return KILN_OK;
}

/* ---- Ways ---- */

static int local_launch_ask(kiln_call *call, uint64_t alignments, struct local_way **out)
{
	struct local_way *way = NULL;
	if (!call->local)
		call->local = calloc(1, sizeof(*call->local));
	struct local_ways *ways = call->local;
	if (!ways)
		return error_set(KILN_ENOMEM, "no memory for a launch");
	int status = local_ask(call, alignments, &way);
	if (status != KILN_OK)
		return status;
	*out = local_keep(ways, way);
	ways->known[ways->known_next].alignments = alignments;
	ways->known[ways->known_next].way = *out;
	ways->known_next = (ways->known_next + 1) % LOCAL_KNOWN;
	ways->known_count += ways->known_count < LOCAL_KNOWN;
	return KILN_OK;
}

static int find_way(kiln_call *call, uint64_t alignments, struct local_way **out)
{
	const struct local_ways *ways = call->local;
	for (unsigned i = 0; ways != NULL && i < ways->known_count; i++) {
		if (ways->known[i].alignments == alignments) {
			*out = ways->known[i].way;
			return KILN_OK;
		}
	}
	return local_launch_ask(call, alignments, out);
}

/* ---- Launching ---- */

int local_check_device(const kiln_call *call, const char *what, const char *instead)
{
	if (strncmp(call->client->device, "cuda", 4) == 0)
		return KILN_OK;
	return error_set(KILN_ENOTSUP,
					 "%s of device %s cannot be launched in a CUDA context: connect with "
					 "device \"cuda:0\", or use %s()",
					 what, call->client->device, instead);
}

static int check_kind(const kiln_call *call)
{
	if (call->raw) {
		return error_set(KILN_ENOTSUP, "the call is a kernel of the program's own: it is launched "
									   "with kiln_launch_local_raw() or kiln_submit_raw()");
	}
	return local_check_device(call, "a call", "kiln_submit");
}

static int launch_local_way(kiln_call *call, const kiln_place *operands, int count, void *stream)
{
	struct local_context current;
	struct local_way *way = NULL;
	int status = check_kind(call);
	if (status == KILN_OK)
		status = check_count(call, operands, count);
	if (status == KILN_OK)
		status = local_current(&current);
	if (status == KILN_OK)
		status = find_way(call, alignments_of(call, operands, count), &way);
	if (status == KILN_OK)
		status = check_places(&way->is, operands, count);
	if (status != KILN_OK)
		return status;
	if (call->client->questions || call->client->local_found)
		local_tier_tend(call->client, &current, stream);
	if (way->tier.state != LOCAL_TIER_LAST)
		way = local_tier_choose(way, &current);
	return local_start(way, &current, operands, count, stream);
}

int kiln_launch_local(kiln_call *call, const kiln_place *operands, int operand_count,
					  void *cuda_stream)
{
	if (!call)
		return error_set(KILN_EINVAL, "call is NULL; it must come from kiln_prepare()");
	int status = client_enter(call->client);
	if (status != KILN_OK)
		return status;
	return client_leave(call->client, launch_local_way(call, operands, operand_count, cuda_stream));
}
