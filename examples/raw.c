/*
 * raw: a kernel of one's own: CUDA C++ in a string, compiled once, launched with another factor
 * each time.
 *
 *   cc raw.c $(pkg-config --cflags --libs kiln) -o raw
 */
#include <kiln/kiln.h>
#include <kiln/ops.h>

#include <stdio.h>

enum { COUNT = 100000, THREADS = 256 };

static const char source[] = "#include <stdint.h>\n"
							 "template <typename T>\n"
							 "__global__ void axpy(const T *x, T *y, T a, int64_t n)\n"
							 "{\n"
							 "	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;\n"
							 "	if (i < n)\n"
							 "		y[i] += a * x[i];\n"
							 "}\n";

/* Compiles, or takes it from the cache. */
static int prepare(kiln_client *client, kiln_call **call)
{
	kiln_raw raw = {.size = sizeof(raw), .name = "axpy.cu"};

	raw.source = source;
	raw.entry = "axpy<float>";
	return kiln_prepare_raw(client, &raw, call);
}

/* y += a * x */
static int axpy(kiln_client *client, kiln_call *call, kiln_buffer *x, kiln_buffer *y, float a)
{
	const int64_t n = COUNT;
	kiln_launch launch = {.size = sizeof(launch)};
	kiln_raw_arg args[4];
	kiln_ticket ticket;
	int status;

	args[0] = kiln_raw_memory(x, 0, KILN_READ);
	args[1] = kiln_raw_memory(y, 0, KILN_READ | KILN_WRITE);
	args[2] = kiln_raw_value(&a, sizeof(a));
	args[3] = kiln_raw_value(&n, sizeof(n));
	launch.grid[0] = (COUNT + THREADS - 1) / THREADS;
	launch.block[0] = THREADS;
	launch.args = args;
	launch.arg_count = 4;
	launch.timeout_ms = 1000;
	status = kiln_submit_raw(call, &launch, 0, &ticket);
	return status == KILN_OK ? kiln_wait(client, ticket, KILN_FOREVER) : status;
}

/* Memory held by the daemon, with ones in it. */
static int ones(kiln_client *client, const char *name, kiln_buffer **out)
{
	static float values[COUNT];
	int status = kiln_alloc(client, sizeof(values), 0, name, out);

	for (int i = 0; i < COUNT; i++)
		values[i] = 1;
	return status == KILN_OK ? kiln_write(*out, 0, values, sizeof(values)) : status;
}

int main(void)
{
	kiln_connect_options options = {.size = sizeof(options), .flags = KILN_CONNECT_AUTOSTART};
	kiln_client *client = NULL;
	kiln_buffer *x = NULL, *y = NULL;
	kiln_call *call = NULL;
	float last = 0;
	int status = kiln_connect(&options, &client);

	if (status == KILN_OK)
		status = ones(client, "x", &x);
	if (status == KILN_OK)
		status = ones(client, "y", &y);
	if (status == KILN_OK)
		status = prepare(client, &call);
	for (int i = 1; status == KILN_OK && i <= 3; i++)
		status = axpy(client, call, x, y, (float)i);
	if (status == KILN_OK)
		status = kiln_read(y, (COUNT - 1) * sizeof(last), &last, sizeof(last));
	if (status == KILN_OK)
		printf("%s, %s: 1 + 1 + 2 + 3 = %g\n", kiln_device(client), kiln_call_origin(call), last);
	else
		fprintf(stderr, "%s: %s\n%s", kiln_status_name(status), kiln_errmsg(), kiln_errlog());

	kiln_call_free(call);
	kiln_free(y);
	kiln_free(x);
	kiln_close(client);
	return status == KILN_OK && last == 7 ? 0 : 1;
}
