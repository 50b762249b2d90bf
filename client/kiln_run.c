/*
 * kiln_run: runs an operator through the daemon on random data, checks the result against plain
 * loops, and says what it took.  The loops here are written from the operator's definition alone
 * and must stay so: they are what the kernels are measured against.
 */
#include "kiln_cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WARM_CALLS 5
#define POISON 0xA5 /* in y before a call, so that an element not written shows */

struct run {
	const struct cli *cli;
	struct cli_problem problem;
	kiln_client *client;
	kiln_call *call;
	kiln_buffer *x, *y;
	uint8_t *in, *out;
	uint64_t in_bytes, out_bytes; /* of the buffers; in counts the offset, too */
	int64_t elements, seed, warm_calls;
	int timeout_ms; /* of a call */
	double prepare_us, first_us, warm_us, best_us;
};

static double now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* ---- Data ---- */

static void fill_random(uint8_t *bytes, uint64_t count, uint64_t seed, bool only_bit)
{
	uint64_t state = seed;

	for (uint64_t i = 0; i < count; i++) {
		/* splitmix64 */
		uint64_t z = state += 0x9e3779b97f4a7c15u;
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
		z = (z ^ z >> 27) * 0x94d049bb133111ebu;
		z ^= z >> 31;
		bytes[i] = only_bit ? z & 1 : (uint8_t)z;
	}
}

/* Fills in x's strides; false if a product leaves the range of memory. */
static bool measure(struct run *run)
{
	kiln_tensor *x = &run->problem.tensors[0];
	uint64_t size = kiln_dtype_size(x->dtype), last = 0;
	int64_t row = 1;

	run->elements = 1;
	for (int k = 0; k < x->rank; k++)
		if (__builtin_mul_overflow(run->elements, x->shape[k], &run->elements))
			return false;
	for (int k = x->rank - 1; k >= 0; k--) {
		uint64_t reach;
		if (x->contiguous) {
			x->stride[k] = row;
			if (__builtin_mul_overflow(row, x->shape[k] ? x->shape[k] : 1, &row))
				return false;
		}
		if (run->elements && (__builtin_mul_overflow(x->stride[k], x->shape[k] - 1, &reach) ||
							  __builtin_add_overflow(last, reach, &last)))
			return false;
	}
	return !__builtin_mul_overflow((uint64_t)run->elements, size, &run->out_bytes) &&
		   !__builtin_mul_overflow(run->elements ? last + 1 : 0, size, &run->in_bytes) &&
		   !__builtin_add_overflow(run->in_bytes, x->offset, &run->in_bytes) &&
		   run->in_bytes <= PTRDIFF_MAX && run->out_bytes <= PTRDIFF_MAX;
}

static int make_data(struct run *run)
{
	const kiln_tensor *x = &run->problem.tensors[0];

	if (!measure(run)) {
		fputs("kiln: run: --shape and --stride describe more bytes than an address can name\n",
			  stderr);
		return CLI_USAGE;
	}
	run->in = malloc(run->in_bytes ? run->in_bytes : 1);
	run->out = malloc(run->out_bytes ? run->out_bytes : 1);
	if (!run->in || !run->out) {
		fprintf(stderr,
				"kiln: run: no memory for %" PRIu64 " bytes of data; --shape is too large here\n",
				run->in_bytes + run->out_bytes);
		return CLI_FAILED;
	}
	fill_random(run->in, run->in_bytes, (uint64_t)run->seed, x->dtype == KILN_BOOL);
	return CLI_OK;
}

/* ---- The reference ---- */

static void print_hex(const uint8_t *bytes, size_t size)
{
	fputs("0x", stderr);
	while (size--)
		fprintf(stderr, "%02x", bytes[size]);
}

static int wrong(const struct run *run, const int64_t *index, const uint8_t *got,
				 const uint8_t *expected)
{
	const kiln_tensor *y = &run->problem.tensors[1];
	size_t size = kiln_dtype_size(y->dtype);

	fprintf(stderr, "kiln: run %s: wrong result: y[", run->problem.op);
	for (int k = 0; k < y->rank; k++)
		fprintf(stderr, "%s%" PRId64, k ? "," : "", index[k]);
	fputs("] is ", stderr);
	print_hex(got, size);
	fputs(" and must be ", stderr);
	print_hex(expected, size);
	fputc('\n', stderr);
	return CLI_FAILED;
}

/* y[i0,i1,..] = x[..], where axis k of y is axis perm[k] of x: every element, in y's order. */
static int verify_permute(const struct run *run)
{
	const kiln_tensor *x = &run->problem.tensors[0], *y = &run->problem.tensors[1];
	size_t size = kiln_dtype_size(x->dtype);
	int64_t index[KILN_MAX_RANK] = {0};

	for (int64_t i = 0; i < run->elements; i++) {
		const uint8_t *got = run->out + (size_t)i * size;
		uint64_t at = 0;
		for (int k = 0; k < y->rank; k++)
			at += (uint64_t)(index[k] * x->stride[run->problem.perm[k]]);
		const uint8_t *expected = run->in + x->offset + at * size;
		if (memcmp(got, expected, size))
			return wrong(run, index, got, expected);
		for (int k = y->rank - 1; k >= 0 && ++index[k] == y->shape[k]; k--)
			index[k] = 0;
	}
	return CLI_OK;
}

static const struct reference {
	const char *op;
	int (*verify)(const struct run *run);
} references[] = {
	{"permute", verify_permute},
};

static const struct reference *find_reference(const char *op)
{
	for (size_t i = 0; i < sizeof(references) / sizeof(references[0]); i++)
		if (!strcmp(references[i].op, op))
			return &references[i];
	return NULL;
}

/* ---- Running ---- */

static int call_once(struct run *run, double *took)
{
	const kiln_operand operands[2] = {{run->x, run->problem.tensors[0].offset}, {run->y, 0}};
	double start = now_us();
	kiln_ticket ticket;
	int status = kiln_submit(run->call, operands, 2, 0, &ticket);

	if (!status)
		status = kiln_wait(run->client, ticket, run->timeout_ms);
	*took = now_us() - start;
	return status ? cli_failed(run->cli, status, "run %s", run->problem.op) : CLI_OK;
}

static int poison(struct run *run)
{
	memset(run->out, POISON, run->out_bytes);
	int status = run->out_bytes ? kiln_write(run->y, 0, run->out, run->out_bytes) : KILN_OK;
	return status ? cli_failed(run->cli, status, "run: filling y") : CLI_OK;
}

static int check(struct run *run, const struct reference *reference)
{
	memset(run->out, (uint8_t)~POISON, run->out_bytes);
	int status = run->out_bytes ? kiln_read(run->y, 0, run->out, run->out_bytes) : KILN_OK;
	if (status)
		return cli_failed(run->cli, status, "run: reading y");
	return reference->verify(run);
}

static int make_buffers(struct run *run)
{
	const char *doing = "allocating x";
	int status = kiln_alloc(run->client, run->in_bytes, 0, "x", &run->x);

	if (!status) {
		doing = "allocating y";
		status = kiln_alloc(run->client, run->out_bytes, 0, "y", &run->y);
	}
	if (!status && run->in_bytes) {
		doing = "filling x";
		status = kiln_write(run->x, 0, run->in, run->in_bytes);
	}
	if (status)
		return cli_failed(run->cli, status, "run: %s", doing);
	return poison(run);
}

static int first_call(struct run *run)
{
	const struct cli_problem *problem = &run->problem;
	double start = now_us();
	int status = kiln_prepare(run->client, problem->op, problem->tensors, problem->tensor_count,
							  problem->attrs, problem->attr_count, &run->call);

	if (status)
		return cli_failed(run->cli, status, "run %s", problem->op);
	run->prepare_us = now_us() - start;
	status = call_once(run, &run->first_us);
	run->first_us += run->prepare_us;
	return status;
}

static int compare_reals(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static int warm_calls(struct run *run)
{
	double *took = calloc((size_t)run->warm_calls, sizeof(*took));
	int status = took ? CLI_OK : CLI_FAILED;

	if (status)
		fputs("kiln: run: no memory for the times\n", stderr);
	for (int64_t i = 0; !status && i < run->warm_calls; i++)
		status = call_once(run, &took[i]);
	if (!status) {
		qsort(took, (size_t)run->warm_calls, sizeof(*took), compare_reals);
		run->warm_us = took[run->warm_calls / 2];
		run->best_us = took[0];
	}
	free(took);
	return status;
}

/* ---- Report ---- */

static void print_json(const struct run *run)
{
	const kiln_tensor *x = &run->problem.tensors[0];

	json_begin();
	json_string("op", run->problem.op);
	json_string("device", kiln_device(run->client));
	json_string("dtype", kiln_dtype_name(x->dtype));
	json_ints("shape", x->shape, x->rank);
	json_ints("stride", x->stride, x->rank);
	json_ints("perm", run->problem.perm, x->rank);
	json_int("offset", (int64_t)x->offset);
	json_int("seed", run->seed);
	json_int("elements", run->elements);
	json_string("origin", kiln_call_origin(run->call));
	json_string("plan", kiln_call_plan(run->call));
	json_real("first_us", run->first_us);
	json_real("prepare_us", run->prepare_us);
	json_real("warm_us", run->warm_us);
	json_real("warm_best_us", run->best_us);
	json_int("warm_calls", run->warm_calls);
	json_int("verified", run->elements);
	json_end();
}

static void print_report(const struct run *run, bool timed)
{
	const kiln_tensor *x = &run->problem.tensors[0];
	const char *plan = kiln_call_plan(run->call);
	char a[FIGURE_MAX], b[FIGURE_MAX], shape[192];
	size_t length = strlen(plan);

	printf("%s%s", plan, length && plan[length - 1] != '\n' ? "\n" : "");
	print_pair("device", "%s", kiln_device(run->client));
	print_pair("data", "%s %s, seed %" PRId64 ", %s",
			   figure_dims(x->shape, x->rank, shape, sizeof(shape)), kiln_dtype_name(x->dtype),
			   run->seed, figure_bytes(run->out_bytes, a));
	print_pair("origin", "%s", kiln_call_origin(run->call));
	print_pair("verified", "%" PRId64 " elements, every bit", run->elements);
	print_pair("first call", "%s, of it %s to prepare", figure_micros(run->first_us, a),
			   figure_micros(run->prepare_us, b));
	print_pair("warm call", "%s, best %s of %" PRId64, figure_micros(run->warm_us, a),
			   figure_micros(run->best_us, b), run->warm_calls);
	if (timed && run->warm_us > 0)
		print_pair("moved", "%.2f GB/s", 2.0 * (double)run->out_bytes / run->warm_us / 1e3);
}

static int read_options(struct cli *cli, struct run *run)
{
	const char *seed = cli_value(cli, "seed"), *calls = cli_value(cli, "time");
	int status = cli_problem(cli, &run->problem);

	run->seed = 1;
	run->timeout_ms = cli->timeout_ms ? cli->timeout_ms : CLI_TIMEOUT_MS;
	run->warm_calls = calls ? 100 : WARM_CALLS;
	if (!status && !cli_value(cli, "perm"))
		status = cli_usage("'kiln run %s' needs --perm, as --perm 1,0", run->problem.op);
	if (!status && seed)
		status = cli_integer("--seed", seed, 0, INT64_MAX, &run->seed);
	if (!status && calls && calls[0])
		status = cli_integer("--time", calls, 1, 1000000, &run->warm_calls);
	return status;
}

int cli_run(struct cli *cli)
{
	const struct reference *reference = find_reference(cli->positional[0]);
	struct run run = {.cli = cli};
	int status;

	if (!reference)
		return cli_usage("run '%s': there is no reference to verify it against; there is one for "
						 "permute",
						 cli->positional[0]);
	status = read_options(cli, &run);
	if (!status)
		status = make_data(&run);
	if (!status)
		status = cli_connect(cli, &run.client);
	if (!status)
		status = make_buffers(&run);
	if (!status)
		status = first_call(&run);
	if (!status)
		status = check(&run, reference);
	if (!status)
		status = poison(&run);
	if (!status)
		status = warm_calls(&run);
	if (!status)
		status = check(&run, reference);
	if (!status && cli->json)
		print_json(&run);
	else if (!status)
		print_report(&run, cli_value(cli, "time") != NULL);
	kiln_call_free(run.call);
	kiln_free(run.x);
	kiln_free(run.y);
	kiln_close(run.client);
	free(run.in);
	free(run.out);
	return status;
}
