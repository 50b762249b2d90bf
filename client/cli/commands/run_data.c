/*
 * run_data.c: the operands of 'kiln run': their data, their buffers, and the results in these.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/files.h"
#include "client/cli/problem.h"
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (16ull << 20) /* bytes that are compared at once */
#define POISON 0xA5 /* fills outputs before a call, so that an element not written shows */

/* ---- Data ---- */

/* Counts elements and bytes; false if a product leaves the range of memory. */
static bool measure(struct check_operand *operand)
{
	const kiln_tensor *tensor = &operand->tensor;
	uint64_t size = kiln_dtype_size(tensor->dtype), last = 0, reach;

	operand->elements = 1;
	for (int k = 0; k < tensor->rank; k++)
		if (__builtin_mul_overflow(operand->elements, tensor->shape[k], &operand->elements))
			return false;
	for (int k = 0; k < tensor->rank && operand->elements; k++)
		if (__builtin_mul_overflow(tensor->stride[k], tensor->shape[k] - 1, &reach) ||
			__builtin_add_overflow(last, reach, &last))
			return false;
	return !__builtin_mul_overflow(operand->elements ? last + 1 : 0, size, &operand->bytes) &&
		   !__builtin_add_overflow(operand->bytes, tensor->offset, &operand->bytes) &&
		   operand->bytes <= PTRDIFF_MAX;
}

int run_take_operands(struct run *run)
{
	run->check.problem = &run->problem;
	run->check.count = run->problem.tensor_count;
	for (int i = 0; i < run->check.count; i++) {
		struct check_operand *operand = &run->check.operands[i];
		operand->name = run->problem.row->operands[i].name;
		operand->tensor = run->problem.tensors[i];
		operand->written = cli_problem_written(&run->problem, i);
		if (!run_has(run, i))
			continue;
		if (!measure(operand) || __builtin_add_overflow(run->bytes, operand->bytes, &run->bytes) ||
			run->bytes > PTRDIFF_MAX)
			return cli_usage("run: --shape and --stride describe more bytes than an address can "
							 "name");
	}
	return CLI_OK;
}

int run_make_data(struct run *run)
{
	for (int i = 0; i < run->check.count; i++) {
		struct check_operand *operand = &run->check.operands[i];
		struct file *file = files_in(&run->files, operand->name);
		if (!run_has(run, i))
			continue;
		if (file) {
			operand->data = file->array.data;
			file->array.data = NULL;
			continue;
		}
		operand->data = malloc(operand->bytes ? operand->bytes : 1);
		if (!operand->data) {
			fprintf(stderr,
					"kiln: run: no memory for %" PRIu64
					" bytes of data; --shape is too large here\n",
					run->bytes);
			return CLI_FAILED;
		}
		if (!operand->written)
			data_operand(&run->problem, i, operand->data, operand->bytes, (uint64_t)run->seed);
	}
	return CLI_OK;
}

/* ---- Buffers ---- */

int run_poison(struct run *run)
{
	uint8_t *data = malloc(PIECE_BYTES);
	int status = KILN_OK;

	if (!data) {
		fputs("kiln: run: no memory to fill outputs with\n", stderr);
		return CLI_FAILED;
	}
	memset(data, POISON, PIECE_BYTES);
	for (int i = 0; i < run->check.count; i++) {
		uint64_t bytes = run->check.operands[i].bytes, piece;
		if (!run_has(run, i) || !run->check.operands[i].written)
			continue;
		for (uint64_t at = 0; !status && at < bytes; at += piece) {
			piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
			status = kiln_write(run->buffers[i], at, data, piece);
		}
	}
	free(data);
	return status ? cli_failed(run->cli, status, "run: filling outputs") : CLI_OK;
}

int run_make_buffers(struct run *run)
{
	for (int i = 0; i < run->check.count; i++) {
		const struct check_operand *operand = &run->check.operands[i];
		int status;
		if (!run_has(run, i))
			continue;
		status = kiln_alloc(run->client, operand->bytes, 0, operand->name, &run->buffers[i]);
		if (status)
			return cli_failed(run->cli, status, "run: allocating %s", operand->name);
		if (!operand->written && operand->bytes)
			status = kiln_write(run->buffers[i], 0, operand->data, operand->bytes);
		if (status)
			return cli_failed(run->cli, status, "run: filling %s", operand->name);
	}
	return run_poison(run);
}

/* ---- Results ---- */

int run_read_results(struct run *run)
{
	for (int i = 0; i < run->check.count; i++) {
		struct check_operand *operand = &run->check.operands[i];
		int status = KILN_OK;
		if (!run_has(run, i) || !operand->written)
			continue;
		memset(operand->data, (uint8_t)~POISON, operand->bytes);
		if (operand->bytes)
			status = kiln_read(run->buffers[i], 0, operand->data, operand->bytes);
		if (status)
			return cli_failed(run->cli, status, "run: reading %s", operand->name);
	}
	return CLI_OK;
}

static int compare_piece(struct run *run, int i, uint64_t at, uint64_t bytes, uint8_t *again,
						 struct run_difference *out)
{
	const struct check_operand *operand = &run->check.operands[i];
	size_t size = kiln_dtype_size(operand->tensor.dtype);
	int status = kiln_read(run->buffers[i], at, again, bytes);

	if (status)
		return cli_failed(run->cli, status, "run: reading %s", operand->name);
	if (!memcmp(operand->data + at, again, bytes))
		return CLI_OK;
	while (!memcmp(operand->data + at, again, size)) {
		at += size;
		again += size;
	}
	*out = (struct run_difference){operand->name, at / size};
	return CLI_OK;
}

int run_compare(struct run *run, struct run_difference *out)
{
	uint8_t *again = malloc(PIECE_BYTES);
	int status = again ? CLI_OK : CLI_FAILED;

	out->name = NULL;
	if (!again)
		fputs("kiln: run: no memory to compare results in\n", stderr);
	for (int i = 0; i < run->check.count; i++) {
		uint64_t bytes = run->check.operands[i].bytes, piece;
		if (!run_has(run, i) || !run->check.operands[i].written)
			continue;
		for (uint64_t at = 0; !status && !out->name && at < bytes; at += piece) {
			piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
			status = compare_piece(run, i, at, piece, again, out);
		}
	}
	free(again);
	return status;
}
