/*
 * test_plan_batches: how many kernels a problem has of which the batch alone changes, which is the
 * size of the leading dimension: from 1 to 1000, and a million.  Mostly one, hardly ever more than
 * two.
 */
#include "daemon/plan/manifest.h"
#include "plan_problems.h"

#define MOST_KERNELS 8

/* Why a problem has a second kernel; docs/tiers.md has the same list. */
enum second {
	ONE,    /* it has none */
	WIDE,   /* of 2^31 elements and more: numbers of 64 bits */
	ROWS,   /* gather_backward of long lists: few rows, one each for a block */
	SHARED, /* gather of long lists: rows that share one are taken together */
	ALIKE,  /* gather of longer ones: rows that begin alike are; of halves a single row is apart */
	LINKED, /* sums by indices: some for each place, or few, are linked */
	MANY,   /* sums by indices in any order: many for each place */
	CACHED, /* giou_loss: more pairs than caches hold */
	APART,  /* permute: a batch of one of what is interleaved */
	/* An operand of size 1 there is repeated for all: a batch of one is apart, for it could be one
	 * of a batch. */
	REPEATED,
};

/* A line of a manifest, where N is the batch. */
struct row {
	const char *line;
	enum second second;
};

static const struct row rows[] = {
	{"permute x=f32:Nx64x48 perm=[0,2,1]", ONE},
	{"permute x=f16:Nx3x224x224 perm=[0,2,3,1]", ONE},
	{"permute x=i8:Nx17x5x3 perm=[0,3,1,2]", APART},
	{"softmax x=f16:Nx1000", ONE},
	{"softmax x=f32:Nx50", ONE},
	{"softmax x=f32:Nx8x1001", ONE},
	{"softmax x=f64:Nx300000", ONE},
	{"softmax x=bf16:Nx100000", ONE},
	{"softmax x=f32:Nx64x32 axis=1", ONE},
	{"softmax x=f32:Nx500x6x5 axis=1", ONE},
	{"softmax x=f32:Nx1000/1024x1 y=f32:Nx1000", ONE},
	{"softmax x=f32:Nx12x64/4096x64x1 y=f32:Nx12x64", ONE},
	{"log_softmax x=f16:Nx32000", ONE},
	{"softmax_backward y=f32:Nx1000 dy=f32:Nx1000", ONE},
	{"softmax_backward y=f16:Nx70x12 dy=f16:Nx70x12 axis=1", ONE},
	{"log_softmax_backward y=f16:Nx777 dy=f16:Nx777", ONE},
	{"masked_softmax x=f16:Nx8x64x64 mask=bool:Nx1x1x64 kind=\"bool\"", ONE},
	{"masked_softmax x=f16:Nx64x64 mask=bool:64x64 kind=\"bool\"", ONE},
	{"masked_softmax x=f32:Nx512 mask=i32:N kind=\"lengths\"", ONE},
	{"masked_softmax x=f32:Nx12x128x128 mask=i32:Nx1x1 kind=\"lengths\"", ONE},
	{"masked_softmax x=f16:Nx8x64x64 mask=bool:1x1x64x64 kind=\"bool\"", REPEATED},
	{"masked_softmax x=f16:Nx64x64 kind=\"causal\"", ONE},
	{"masked_softmax x=f32:Nx12x100 mask=f32:Nx1x100 kind=\"additive\"", ONE},
	{"masked_softmax_backward y=f16:Nx8x64x64 dy=f16:Nx8x64x64 mask=bool:Nx1x1x64 kind=\"bool\"",
	 ONE},
	{"masked_softmax_backward y=f32:Nx40x40 dy=f32:Nx40x40 kind=\"causal\"", ONE},
	{"sum x=f32:Nx1000 over=[1]", ONE},
	{"sum x=f16:N", ONE},
	{"amax x=f16:Nx1023 over=[0]", ONE},
	{"argmax x=f32:Nx12x64 over=[1]", ONE},
	{"mean x=f32:Nx64x56x56 over=[0,2,3]", WIDE},
	{"var x=f32:Nx100000 over=[1]", ONE},
	{"layer_norm x=f16:Nx1024 gamma=f16:1024 beta=f16:1024", ONE},
	{"layer_norm x=f32:Nx50000 gamma=f32:50000", WIDE},
	{"layer_norm x=f32:Nx197x768 gamma=f32:768 beta=f32:768 residual=f32:Nx197x768", WIDE},
	{"layer_norm x=f16:Nx1025 gamma=f16:1025", ONE},
	{"layer_norm x=f32:Nx63", ONE},
	{"layer_norm x=f32:Nx768/1024x1 y=f32:Nx768 mean=f32:N rstd=f32:N", ONE},
	{"rms_norm x=bf16:Nx4096 gamma=bf16:4096 rstd=f32:N", WIDE},
	{"rms_norm x=bf16:Nx16x3 axes=2", ONE},
	{"layer_norm_backward x=f32:Nx768 dy=f32:Nx768 gamma=f32:768 mean=f32:N rstd=f32:N "
	 "dx=f32:Nx768 dgamma=f32:768 dbeta=f32:768",
	 ONE},
	{"layer_norm_backward x=f16:Nx63 dy=f16:Nx63 mean=f32:N rstd=f32:N dx=f16:Nx63", ONE},
	{"layer_norm_backward x=f16:Nx4096 dy=f16:Nx4096 mean=f32:N rstd=f32:N dgamma=f16:4096", WIDE},
	{"rms_norm_backward x=bf16:Nx4096 dy=bf16:Nx4096 gamma=bf16:4096 rstd=f32:N dx=bf16:Nx4096 "
	 "dgamma=bf16:4096",
	 WIDE},
	{"rms_norm_backward x=f32:Nx50000 dy=f32:Nx50000 rstd=f32:N dx=f32:Nx50000", WIDE},
	{"gather src=f32:Nx8x32 idx=i32:8x16", ONE},
	{"gather src=f16:Nx1x300 idx=i64:1x40", ONE},
	{"gather src=f32:Nx4x1000 idx=i32:4x7", ONE},
	{"gather src=u8:Nx50 idx=i32:Nx50", ONE},
	{"gather src=f32:Nx8x32 idx=i32:8x256", SHARED},
	{"gather src=f16:Nx3x2688 idx=i32:3x3607", ALIKE},
	{"gather src=f32:Nx2x1024 idx=i32:2x4096", ALIKE},
	{"gather_backward ddst=f32:Nx8x16 idx=i32:8x16 dsrc=f32:Nx8x32", ONE},
	{"gather_backward ddst=f16:Nx1x400 idx=i64:1x400 dsrc=f16:Nx1x30", ROWS},
	{"index_select src=f32:64x32 idx=i32:N dst=f32:Nx32", ONE},
	{"index_select src=f16:64 idx=i64:N dst=f16:N", ONE},
	{"index_select src=f32:Nx8x32 idx=i32:4 dst=f32:Nx4x32 axis=1", ONE},
	{"embedding weight=bf16:1000x63 idx=i64:N dst=bf16:Nx63", ONE},
	{"take_along_axis src=f32:Nx32 idx=i32:Nx7 dst=f32:Nx7", ONE},
	{"index_select_backward ddst=f32:Nx64 idx=i32:N dsrc=f32:1000x64", LINKED},
	{"embedding_backward ddst=f16:Nx64 idx=i64:N dweight=f16:1000x64", LINKED},
	{"embedding_backward ddst=i32:Nx64 idx=i64:N dweight=i32:1000x64", LINKED},
	{"embedding_backward ddst=f16:Nx64 idx=i64:N dweight=f16:99x64 deterministic=0", MANY},
	{"scatter_add x=f32:Nx64 idx=i32:Nx7 src=f32:Nx7 y=f32:Nx64", ONE},
	{"index_add x=f32:Nx9x64 idx=i32:7 src=f32:Nx7x64 y=f32:Nx9x64 axis=1", ONE},
	{"take_along_axis src=f32:9x32 idx=i32:Nx32 dst=f32:Nx32 axis=0", ONE},
	{"quantize x=f32:Nx512 scale=f32:scalar to=\"f8e4m3\"", ONE},
	{"quantize x=f16:Nx512 scale=f32:N to=\"i8\"", REPEATED},
	{"quantize x=f32:Nx512 scale=f32:Nx4/1x1000000 to=\"f8e4m3\"", ONE},
	{"dequantize x=i8:Nx512 scale=f32:N to=\"f16\"", REPEATED},
	{"giou pred=f32:Nx4 target=f32:Nx4", ONE},
	{"giou_backward pred=f16:Nx7x4 target=f16:Nx7x4 dy=f16:Nx7", ONE},
	{"giou_loss pred=f32:Nx4 target=f32:Nx4", ONE},
	{"giou_loss pred=f32:Nx300x4 target=f32:Nx300x4", CACHED},
	{"giou_loss_backward pred=f32:Nx300x4 target=f32:Nx300x4 count=i64:scalar dloss=f32:scalar",
	 ONE},
	{"map x=f32:Nx64 s=2.0 statement=\"y[i,j] = x[i,j] * s\" names=\"x,y\"", ONE},
	{"map x=f32:Nx20x6 statement=\"y[n,j] += x[n,i,j]\" names=\"x,y\"", ONE},
	{"map x=f32:Nx64 b=f32:64 statement=\"y[i,j] = x[i,j] + b[j]\" names=\"x,b,y\"", ONE},
	{"map x=f32:Nx64 k=i32:10 statement=\"y[i,j] = x[i,k[j]]\" names=\"x,k,y\"", ONE},
	{"map x=f32:Nx8 statement=\"y[i,j] = x[i,j] + i\" names=\"x,y\"", ONE},
	{"map x=f32:Nx64 b=f32:1x64 statement=\"y[i,j] = x[i,j] + b[i,j]\" names=\"x,b,y\"", REPEATED},
	{"map x=f32:N statement=\"y[i] = -x[i]\" names=\"x,y\"", ONE},
	{"map x=f32:Nx64/100x1 statement=\"y[i,j] = x[i,j] + 1\" names=\"x,y\"", ONE},
	{"map x=f32:Nx5x64 m=bool:5x64 statement=\"y[n,i,j] = m[i,j] ? 0 : x[n,i,j]\" names=\"x,m,y\"",
	 ONE},
	{"map x=f32:Nx7x9 statement=\"y[i,k,j] = x[i,j,k]\" names=\"x,y\"", ONE},
};

static void read_row(const char *line, int64_t batch, struct kernel_problem *problem)
{
	char text[1024], error[KERNEL_ERROR_MAX] = "";
	size_t used = 0;
	bool quoted = false;

	for (; *line; line++) {
		quoted = quoted != (*line == '"');
		if (*line == 'N' && !quoted)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%lld", (long long)batch);
		else
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%c", *line);
		assert_true(used < sizeof(text));
	}
	if (manifest_read(text, problem, error) || plan_infer(problem, error))
		fail_msg("%s: %s", text, error);
}

struct kernels {
	char name[MOST_KERNELS][sizeof(((struct kernel_plan *)0)->instantiation) + 80];
	int64_t first[MOST_KERNELS];
	int count;
};

static void note(struct kernels *kernels, const struct kernel_plan *plan, int64_t batch)
{
	char name[sizeof(kernels->name[0])];

	snprintf(name, sizeof(name), "%s %s", plan->source, plan->instantiation);
	for (int i = 0; i < kernels->count; i++)
		if (strcmp(kernels->name[i], name) == 0)
			return;
	if (kernels->count == MOST_KERNELS)
		return;
	kernels->first[kernels->count] = batch;
	memcpy(kernels->name[kernels->count++], name, sizeof(name));
}

static bool is_wide(const struct kernel_problem *problem)
{
	uint64_t bytes;

	for (int i = 0; i < problem->tensor_count; i++)
		if (problem->tensors[i].dtype != KILN_DTYPE_NONE &&
			plan_extent(&problem->tensors[i], &bytes) &&
			bytes / kernel_dtype_bytes(problem->tensors[i].dtype) > INT32_MAX)
			return true;
	return false;
}

static void count_kernels(const struct row *row, const char *target)
{
	static struct kernels kernels;
	struct kernel_problem problem;
	struct kernel_plan plan;

	kernels.count = 0;
	for (int64_t batch = 1; batch <= 1001; batch++) {
		int64_t size = batch <= 1000 ? batch : 1000000;
		read_row(row->line, size, &problem);
		plan = plan_on(target, &problem);
		assert_int_equal(plan.kind, KERNEL_LAUNCH);
		note(&kernels, &plan, size);
	}
	int most = row->second == ONE ? 1 : row->second == ALIKE ? 3 : 2;
	if (kernels.count > most) {
		for (int i = 0; i < kernels.count; i++)
			print_message("  from batch %lld: %s\n", (long long)kernels.first[i], kernels.name[i]);
		fail_msg("%s on %s has %d kernels", row->line, target, kernels.count);
	}
	/* The last problem is the largest. */
	if (row->second == WIDE &&
		(kernels.count != 2 || kernels.first[1] != 1000000 || !is_wide(&problem)))
		fail_msg("%s on %s: the second kernel is not for many elements", row->line, target);
	if ((row->second == APART || row->second == REPEATED) && kernels.count > 1)
		assert_int_equal(kernels.first[1], 2);
}

/* The list of those that have two names no problem that has one. */
static bool has_two(const struct row *row)
{
	static const char *const targets[] = {"sm_90", "sm_80", "cpu"};
	static const int64_t sizes[] = {1, 2, 1000, 1000000};
	static struct kernels kernels;
	struct kernel_problem problem;

	kernels.count = 0;
	for (int t = 0; t < 3 && kernels.count < 2; t++) {
		kernels.count = 0;
		for (int i = 0; i < 4; i++) {
			read_row(row->line, sizes[i], &problem);
			struct kernel_plan plan = plan_on(targets[t], &problem);
			note(&kernels, &plan, sizes[i]);
		}
	}
	return kernels.count > 1;
}

static void batches(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		count_kernels(&rows[i], "sm_90");
		count_kernels(&rows[i], "sm_80");
		count_kernels(&rows[i], "cpu");
		if (has_two(&rows[i]) != (rows[i].second != ONE))
			fail_msg("%s: its second kernel is listed wrongly", rows[i].line);
	}
}

/* An operator without a row above: its generics' problems, with their first size as the batch. */
static void count_generics(const struct plan_op *op)
{
	struct kernel_problem made = {0};

	for (int i = 0; op->generics && op->generics(i, &made) == KILN_OK; i++) {
		struct kernels kernels = {.count = 0};
		memcpy(made.op, op->name, strlen(op->name) + 1);
		for (int batch = 1; batch <= 1000; batch = batch * 3 + 1) {
			struct kernel_problem problem = made;
			struct kernel_plan plan;
			for (int k = 0; k < problem.tensor_count; k++) {
				problem.tensors[k].shape[0] = batch;
				plan_contiguous(&problem.tensors[k]);
			}
			plan = plan_on("sm_90", &problem);
			note(&kernels, &plan, batch);
		}
		made = (struct kernel_problem){0};
		if (kernels.count > 1)
			fail_msg("%s has %d kernels for the batches of generic %d", op->name, kernels.count, i);
	}
}

/* Each operator has a row, or one kernel for all batches. */
static void operators(void **state)
{
	(void)state;
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op)) {
		size_t length = strlen(op->name), found = 0;
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
			found += strncmp(rows[i].line, op->name, length) == 0 && rows[i].line[length] == ' ';
		if (found == 0)
			count_generics(op);
	}
}

/* A batch of one may have any stride: where no larger batch could have it, it changes nothing. */
static void strides_of_nothing(void **state)
{
	static const char *const lines[] = {
		"softmax x=f32:1x1000 y=f32:1x1000", "softmax x=f32:1x1000/1x1 y=f32:1x1000",
		"softmax x=f32:1x1000/7x1 y=f32:1x1000", "softmax x=f32:1x1000 y=f32:1x1000/3x1"};
	struct kernels kernels = {.count = 0};
	struct kernel_problem problem;

	(void)state;
	for (int i = 0; i < 4; i++) {
		read_row(lines[i], 1, &problem);
		struct kernel_plan plan = plan_on("sm_90", &problem);
		note(&kernels, &plan, i);
	}
	assert_int_equal(kernels.count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches),
		cmocka_unit_test(operators),
		cmocka_unit_test(strides_of_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
