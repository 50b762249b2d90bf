/*
 * kiln_reference_giou: giou, its mean over the valid pairs, and the backward of both, by their
 * definition.
 *
 * Numbers are exact and areas are not: how far off a result may be follows from how much is lost
 * where areas are subtracted from one another, as parts of what is then divided by.
 */
#include "reference.h"

#include <math.h>

#define LEAST 1e-5

struct giou {
	int pred, target, offsets, y, dy, loss, count, dloss, dpred; /* -1: there is none */
	bool clamp;
	int64_t pairs, most;
};

/* A pair, what it comes to, and how far from that is right. */
struct pair {
	double a[4], b[4];
	double value, off;
	double slope[4], slope_off; /* derivatives by a */
};

static double least(double area)
{
	return area < LEAST ? LEAST : area;
}

/* How much of the larger of two numbers is the first. */
static double share(double a, double b)
{
	return a > b ? 1 : a < b ? 0 : 0.5;
}

static void work_out(struct pair *p, bool clamp)
{
	const double *a = p->a, *b = p->b;
	double side[2], outer[2], own[2], loose[2];

	for (int i = 0; i < 2; i++) {
		loose[i] = fmin(a[i + 2], b[i + 2]) - fmax(a[i], b[i]);
		side[i] = clamp && loose[i] < 0 ? 0 : loose[i];
		outer[i] = fmax(a[i + 2], b[i + 2]) - fmin(a[i], b[i]);
		own[i] = a[i + 2] - a[i];
	}
	double inter = side[0] * side[1], second = (b[2] - b[0]) * (b[3] - b[1]);
	double joined = own[0] * own[1] + second - inter, enclosing = outer[0] * outer[1];
	double u = least(joined), e = least(enclosing), rest = enclosing - joined;
	double terms = fabs(own[0] * own[1]) + fabs(second) + fabs(inter);
	double lost = 1 + terms / u, lost_around = 1 + (terms + fabs(enclosing)) / e;
	p->value = inter / u - rest / e;
	p->off = lost * lost + lost_around * lost_around;

	double by_joined = 1 / e - (joined < LEAST ? 0 : inter / (u * u));
	double by_inter = 1 / u - by_joined;
	double by_enclosing = (enclosing < LEAST ? 0 : rest / (e * e)) - 1 / e;
	double longest = 0;
	for (int i = 0; i < 2; i++) {
		double inner = clamp && loose[i] < 0 ? 0 : by_inter * side[1 - i];
		double around = by_enclosing * outer[1 - i], alone = by_joined * own[1 - i];
		double low = share(a[i], b[i]), top = share(a[i + 2], b[i + 2]);
		p->slope[i] = -alone - low * inner - (1 - low) * around;
		p->slope[i + 2] = alone + (1 - top) * inner + top * around;
		longest = fmax(longest, fabs(outer[i]) + fabs(own[i]) + fabs(side[i]));
	}
	p->slope_off = longest * (1 / u + 1 / e + fabs(inter) / (u * u) + fabs(rest) / (e * e)) *
				   (lost + lost_around);
}

/* Offsets that are wrong name nothing that is not there. */
static int64_t offset_at(const struct check *check, const struct giou *giou, int64_t sample)
{
	int64_t offset = (int64_t)check_get(check, giou->offsets, sample);
	int64_t boxes = check->operands[giou->target].tensor.shape[0];

	return offset < 0 ? 0 : offset < boxes ? offset : boxes;
}

/* The number of the pair's target; -1: there is none. */
static int64_t target_of(const struct check *check, const struct giou *giou, int64_t pair)
{
	int64_t sample, first, end;

	if (giou->offsets < 0)
		return pair;
	sample = pair / giou->most;
	first = offset_at(check, giou, sample);
	end = offset_at(check, giou, sample + 1);
	return pair % giou->most < end - first ? first + pair % giou->most : -1;
}

/* false: the pair is not valid. */
static bool read_pair(const struct check *check, const struct giou *giou, int64_t number,
					  struct pair *pair)
{
	kiln_dtype dtype = check->operands[giou->pred].tensor.dtype;
	int64_t target = target_of(check, giou, number);

	if (target < 0)
		return false;
	for (int k = 0; k < 4; k++) {
		pair->a[k] = check_get(check, giou->pred, 4 * number + k);
		pair->b[k] = check_get(check, giou->target, 4 * target + k);
		/* Targets are taken in the type that is computed in. */
		if (dtype != KILN_F64)
			pair->b[k] = (double)(float)pair->b[k];
	}
	if (pair->b[3] == 0)
		return false;
	work_out(pair, giou->clamp);
	return true;
}

static void check_loss(struct check *check, const struct giou *giou)
{
	double relative = check_relative(check->operands[giou->pred].tensor.dtype, 1e-6);
	double sum = 0, off = 0, magnitude = 0, count = 0, by;

	for (int64_t i = 0; i < giou->pairs; i++) {
		struct pair pair;
		if (!read_pair(check, giou, i, &pair))
			continue;
		sum += pair.value;
		off += pair.off;
		magnitude += fabs(pair.value);
		count++;
	}
	by = count > 1 ? count : 1;
	check_value(check, giou->loss, 0, sum / by,
				relative * (off / by + 20 * magnitude / by) +
					check_least(check->operands[giou->pred].tensor.dtype));
	if (giou->count >= 0)
		check_value(check, giou->count, 0, count, 0);
}

static void check_slopes(struct check *check, const struct giou *giou, int64_t i,
						 const struct pair *pair)
{
	kiln_dtype dtype = check->operands[giou->pred].tensor.dtype;
	double relative = check_relative(dtype, 4e-6), factor;

	if (giou->dy >= 0) {
		factor = check_get(check, giou->dy, i);
	} else {
		double count = check_get(check, giou->count, 0);
		factor = check_get(check, giou->dloss, 0) / (count > 1 ? count : 1);
	}
	for (int k = 0; k < 4; k++) {
		double value = pair ? factor * pair->slope[k] : 0;
		double allowed = pair ? relative * fabs(factor) * pair->slope_off +
									check_rounding(dtype, dtype, value) + check_least(dtype)
							  : 0;
		check_value(check, giou->dpred, 4 * i + k, value, allowed);
	}
}

static void check_pairs(struct check *check, const struct giou *giou)
{
	kiln_dtype dtype = check->operands[giou->pred].tensor.dtype;
	double relative = check_relative(dtype, 1e-6);

	for (int64_t i = 0; i < giou->pairs && !check->wrong; i++) {
		struct pair pair;
		bool valid = read_pair(check, giou, i, &pair);
		if (giou->dpred >= 0)
			check_slopes(check, giou, i, valid ? &pair : NULL);
		else
			check_value(check, giou->y, i, valid ? pair.value : 0,
						valid ? relative * pair.off + check_rounding(dtype, dtype, pair.value) : 0);
	}
}

void reference_giou(struct check *check)
{
	const kiln_tensor *pred = &check->operands[0].tensor;
	struct giou giou = {.pred = 0,
						.target = 1,
						.offsets = check_find(check, "offsets"),
						.y = check_find(check, "y"),
						.dy = check_find(check, "dy"),
						.loss = check_find(check, "loss"),
						.count = check_find(check, "count"),
						.dloss = check_find(check, "dloss"),
						.dpred = check_find(check, "dpred"),
						.clamp = cli_problem_int(check->problem, "clamp", 1) != 0,
						.pairs = check->operands[0].elements / 4,
						.most = pred->rank > 1 ? pred->shape[1] : 1};

	if (giou.loss >= 0)
		check_loss(check, &giou);
	else
		check_pairs(check, &giou);
}
