/*
 * giou_loss: a batch of pictures, each with a few boxes to be found and room for 256: the loss is
 * the mean of GIoU over the boxes that are there.  The same number in four ways: a call for each
 * picture, with a shape of its own; one call over a batch padded with zeros; one that also sums;
 * and one that sums over the boxes as they are, without padding.
 *
 *   cc giou_loss.c common.c $(pkg-config --cflags --libs kiln) -lm -o giou_loss
 */
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256, MOST_VALID = 16 };

/* On the device: predictions; targets, padded and not; where each sample's begin; results. */
enum { PRED, PADDED, RAGGED, STARTS, GIOU, LOSS, BUFFERS };

struct batch {
	kiln_client *client;
	int64_t samples, boxes; /* boxes: of all samples together */
	int32_t *offsets;       /* which are whose: samples + 1 */
	unsigned char *targets; /* [boxes, 4], one sample's behind the other's */
	float *predicted;       /* [samples, MOST, 4] */
	double loss;            /* by plain loops */
	kiln_buffer *at[BUFFERS];
};

/* One of a box's corners: x1, y1, x2, y2.  The last two are above 0: where y2 of a target is 0
 * there is no box, but padding. */
static double corner(int64_t box, int64_t which)
{
	const uint64_t axis = (uint64_t)box * 4 + (uint64_t)(which & 1);
	const double first = floor(127 * (random_at(axis) + 1));

	return which < 2 ? first : fmin(first + 1 + floor(127 * (random_at(axis + 2) + 1)), 255);
}

/* The larger part of the pictures has five boxes or fewer, some have none. */
static void fill(struct batch *b)
{
	const int64_t room = b->samples * MOST;

	b->offsets = host(((size_t)b->samples + 1) * sizeof(*b->offsets));
	for (uint64_t s = 0; s < (uint64_t)b->samples; s++)
		b->offsets[s + 1] =
			b->offsets[s] + (int32_t)(MOST_VALID * fabs(random_at(2 * s) * random_at(2 * s + 1)));
	b->boxes = b->offsets[b->samples];
	b->targets = host((size_t)b->boxes * 4);
	for (int64_t i = 0; i < b->boxes * 4; i++)
		b->targets[i] = (unsigned char)corner(i / 4, i % 4);
	b->predicted = host((size_t)room * 4 * sizeof(*b->predicted));
	for (int64_t i = 0; i < room * 4; i++)
		b->predicted[i] = (float)(corner(i / 4 + b->boxes, i % 4) + random_at((uint64_t)i) / 4);
}

/* Two boxes that are apart in both directions have an intersection if it is not held at 0. */
static double giou(const float *p, const unsigned char *t)
{
	double width = fmax(0, fmin(p[2], t[2]) - fmax(p[0], t[0]));
	double height = fmax(0, fmin(p[3], t[3]) - fmax(p[1], t[1]));
	double inter = width * height, around, joined;

	joined = ((double)p[2] - p[0]) * ((double)p[3] - p[1]) - inter;
	joined += (t[2] - t[0]) * (t[3] - t[1]);
	around = (fmax(p[2], t[2]) - fmin(p[0], t[0])) * (fmax(p[3], t[3]) - fmin(p[1], t[1]));
	return inter / fmax(joined, 1e-5) - (around - joined) / fmax(around, 1e-5);
}

/* Pads the targets, and takes the loss by plain loops on the way. */
static void upload(struct batch *b)
{
	const size_t samples = (size_t)b->samples;
	unsigned char *padded = host(samples * MOST * 4);

	for (int64_t s = 0; s < b->samples; s++) {
		const int64_t first = s * MOST - b->offsets[s]; /* what is to be added to a box's number */
		for (int64_t i = b->offsets[s]; i < b->offsets[s + 1]; i++) {
			memcpy(padded + 4 * (first + i), b->targets + 4 * i, 4);
			b->loss += giou(b->predicted + 4 * (first + i), b->targets + 4 * i) / (double)b->boxes;
		}
	}
	b->at[PRED] = device(b->client, "pred", b->predicted, samples * MOST * 4 * sizeof(float));
	b->at[PADDED] = device(b->client, "padded", padded, samples * MOST * 4);
	b->at[RAGGED] = device(b->client, "ragged", b->targets, (size_t)b->boxes * 4);
	b->at[STARTS] = device(b->client, "offsets", b->offsets, (samples + 1) * sizeof(*b->offsets));
	b->at[GIOU] = device(b->client, "giou", NULL, samples * MOST * sizeof(float));
	b->at[LOSS] = device(b->client, "loss", NULL, sizeof(float));
	free(padded);
}

/* ---- The ways ------------------------------------------------------------------------------ */

/* Sums what giou wrote: numbers of them, of which only those of boxes are not 0. */
static double sum_up(const struct batch *b, int64_t numbers)
{
	float *each = fetch(b->at[GIOU]);
	double sum = 0;

	for (int64_t i = 0; i < numbers; i++)
		sum += each[i];
	free(each);
	return sum / (double)b->boxes;
}

static void report(const struct batch *b, const char *name, double loss, const struct step *steps,
				   int count, size_t moved)
{
	expect(loss, b->loss, 1e-5, name, 0);
	print_row(name, measure(b->client, steps, count), measure_copy(b->client, moved));
}

/* A call is prepared for each number of boxes that occurs; all of them are one kernel. */
static void by_sample(const struct batch *b)
{
	struct step calls[MOST_VALID + 1] = {{0}}, *steps = host((size_t)b->samples * sizeof(*steps));
	kiln_attr clamp = kiln_attr_int("clamp", 1);
	int count = 0;

	for (int64_t s = 0; s < b->samples; s++) {
		const int64_t boxes = b->offsets[s + 1] - b->offsets[s], shape[2] = {boxes, 4};
		kiln_tensor tensors[3];
		if (boxes == 0)
			continue;
		tensors[0] = kiln_tensor_make(b->at[PRED], 0, KILN_F32, 2, shape);
		tensors[1] = kiln_tensor_make(b->at[RAGGED], 0, KILN_U8, 2, shape);
		tensors[2] = kiln_tensor_make(b->at[GIOU], 0, KILN_F32, 1, shape);
		if (!calls[boxes].call)
			calls[boxes] = prepare(b->client, "giou", tensors, 3, &clamp, 1);
		steps[count] = calls[boxes];
		steps[count].operands[0].offset = (uint64_t)(s * MOST * 4) * sizeof(float);
		steps[count].operands[1].offset = (uint64_t)b->offsets[s] * 4;
		steps[count++].operands[2].offset = (uint64_t)b->offsets[s] * sizeof(float);
	}
	run(b->client, steps, count);
	report(b, "giou, a call for each picture", sum_up(b, b->boxes), steps, count,
		   (size_t)b->boxes * (16 + 4 + 4));
	for (int i = 0; i <= MOST_VALID; i++)
		kiln_call_free(calls[i].call);
	free(steps);
}

/* The batch in one call, which sums as well if fused: then the boxes need not be padded. */
static void at_once(const struct batch *b, int fused, int ragged)
{
	static const char *const names[] = {"giou, one padded batch", "giou_loss, one padded batch",
										"giou_loss, boxes as they are"};
	const int64_t pred[3] = {b->samples, MOST, 4}, target[2] = {b->boxes, 4}, one = 1;
	const int64_t starts = b->samples + 1, pairs = ragged ? b->boxes : b->samples * MOST;
	kiln_attr clamp = kiln_attr_int("clamp", 1);
	kiln_tensor tensors[5] = {kiln_tensor_make(b->at[PRED], 0, KILN_F32, 3, pred),
							  kiln_tensor_make(b->at[PADDED], 0, KILN_U8, 3, pred)};
	struct step step;
	float loss;

	tensors[2] = fused ? kiln_tensor_none() : kiln_tensor_make(b->at[GIOU], 0, KILN_F32, 2, pred);
	if (ragged) {
		tensors[1] = kiln_tensor_make(b->at[RAGGED], 0, KILN_U8, 2, target);
		tensors[2] = kiln_tensor_make(b->at[STARTS], 0, KILN_I32, 1, &starts);
	}
	tensors[3] = kiln_tensor_make(b->at[LOSS], 0, KILN_F32, 1, &one);
	tensors[4] = kiln_tensor_none();
	spoil(fused ? b->at[LOSS] : b->at[GIOU]);
	step = prepare(b->client, fused ? "giou_loss" : "giou", tensors, fused ? 5 : 3, &clamp, 1);
	run(b->client, &step, 1);
	must(kiln_read(b->at[LOSS], 0, &loss, sizeof(loss)));
	report(b, names[fused + ragged], fused ? (double)loss : sum_up(b, pairs), &step, 1,
		   (size_t)pairs * (fused ? 16 + 4 : 16 + 4 + 4));
	kiln_call_free(step.call);
}

int main(int argc, char **argv)
{
	int small;
	struct batch b = {.client = begin(argc, argv, &small)};

	b.samples = small ? 32 : 1024;
	fill(&b);
	upload(&b);
	print_head(b.client, "GIoU loss");
	by_sample(&b);
	at_once(&b, 0, 0);
	at_once(&b, 1, 0);
	at_once(&b, 1, 1);
	printf("loss %.6f over %lld boxes in %lld pictures, every time\n", b.loss, (long long)b.boxes,
		   (long long)b.samples);

	for (int i = 0; i < BUFFERS; i++)
		kiln_free(b.at[i]);
	kiln_close(b.client);
	free(b.predicted);
	free(b.targets);
	free(b.offsets);
	return 0;
}
