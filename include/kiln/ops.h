/*
 * ops.h: helpers for operators, over the public functions of kiln.h; nothing to link.  kiln_run()
 * calls those that have none (docs/programming.md).
 *
 * Conventions, once for all helpers
 *
 * Running     They prepare, submit and wait, as kiln_run does, and so keep what was prepared for
 *             the next time.  A program that does not want to wait for each uses kiln_prepare() and
 *             kiln_submit(); the tensors and attributes are the same, and stand beside each helper.
 *
 * Tensors     Inputs may be strided or broadcast (strides >= 0), outputs are contiguous, and no
 *             output may share a byte with any other operand, except where a helper says so.  A
 *             tensor that is left out is kiln_tensor_none(), or any with dtype KILN_DTYPE_NONE and
 *             no buffer.
 *
 * dtypes      "float" is f16, bf16, f32 or f64.  f16 and bf16 are computed in f32, f64 in f64, and
 *             rounded once, at the end.  Below, "compute type" means that type.
 *
 * Results     KILN_OK or a status with its sentence in kiln_errmsg(): EINVAL, before anything is
 *             compiled, for shapes, dtypes, strides or attributes that do not fit and for tensors
 *             that reach beyond their buffers; ECOMPILE, EDEVICE and the rest as kiln.h says.
 *             A kernel gives the same bits for the same input, and a row's bits do not depend on
 *             how many there are.  The exact kernel of a shape may follow a generic one, whose
 *             floats agree with its own to the tolerance (docs/tiers.md).
 *
 * Nothing     Zero elements are a success.  Sums over no rows are written, as zeros.
 */
#ifndef KILN_OPS_H
#define KILN_OPS_H

#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tensors and attributes ---------------------------------------------------------------- */

/* A contiguous (row-major) tensor at a byte offset of a buffer.  A rank out of range is kept, and
 * refused where the tensor is used. */
static inline kiln_tensor kiln_tensor_make(kiln_buffer *buffer, uint64_t offset, kiln_dtype dtype,
										   int rank, const int64_t *shape)
{
	kiln_tensor tensor;
	int i;
	tensor.buffer = buffer;
	tensor.offset = offset;
	tensor.dtype = dtype;
	tensor.rank = rank;
	tensor.contiguous = 1;
	for (i = 0; i < KILN_MAX_RANK; i++) {
		tensor.shape[i] = i < rank ? shape[i] : 0;
		tensor.stride[i] = 0;
	}
	return tensor;
}

/* An operand that is left out. */
static inline kiln_tensor kiln_tensor_none(void)
{
	return kiln_tensor_make((kiln_buffer *)0, 0, KILN_DTYPE_NONE, 0, (const int64_t *)0);
}

/* An attribute that is a list of integers; values must live as long as it is used. */
static inline kiln_attr kiln_attr_ints(const char *name, const int64_t *values, int count)
{
	kiln_attr attr;
	attr.name = name;
	attr.kind = KILN_ATTR_INTS;
	attr.i = 0;
	attr.f = 0.0;
	attr.ints = values;
	attr.count = count;
	attr.s = (const char *)0;
	return attr;
}

static inline kiln_attr kiln_attr_int(const char *name, int64_t value)
{
	kiln_attr attr = kiln_attr_ints(name, (const int64_t *)0, 0);
	attr.kind = KILN_ATTR_INT;
	attr.i = value;
	return attr;
}

static inline kiln_attr kiln_attr_real(const char *name, double value)
{
	kiln_attr attr = kiln_attr_ints(name, (const int64_t *)0, 0);
	attr.kind = KILN_ATTR_REAL;
	attr.f = value;
	return attr;
}

/* An attribute that is a text, which must live as long as it is used. */
static inline kiln_attr kiln_attr_text(const char *name, const char *value)
{
	kiln_attr attr = kiln_attr_ints(name, (const int64_t *)0, 0);
	attr.kind = KILN_ATTR_STRING;
	attr.s = value;
	return attr;
}

/* ---- permute ------------------------------------------------------------------------------- */

/*
 * permute (x, y; perm): y[i0, i1, ...] is x with its axes in another order: y.shape[k] =
 * x.shape[perm[k]].  Any dtype, the same for both.  perm has x.rank entries.  Bit exact.
 */
static inline int kiln_permute(kiln_client *client, kiln_tensor x, kiln_tensor y,
							   const int64_t *perm)
{
	kiln_tensor tensors[2];
	kiln_attr attr = kiln_attr_ints("perm", perm, x.rank);
	tensors[0] = x;
	tensors[1] = y;
	return kiln_run(client, "permute", tensors, 2, &attr, 1);
}

/* ---- softmax ------------------------------------------------------------------------------- */

/* The helpers of softmax share this function; programs do not call it. */
static inline int kiln_softmax_run_(kiln_client *client, const char *op, const kiln_tensor *tensors,
									int count, int axis, double scale)
{
	kiln_attr attrs[2];
	attrs[0] = kiln_attr_int("axis", axis);
	attrs[1] = kiln_attr_real("scale", scale);
	return kiln_run(client, op, tensors, count, attrs, 2);
}

/*
 * softmax (x, y; axis, scale): y = exp(scale*x - m) / sum, with the largest scale*x of a row for m.
 * A row runs along axis, -rank .. rank-1 (-1: the last).  scale is any finite number; 1 is plain
 * softmax.  x and y have one float dtype and one shape, of rank 1 or more.  A row that is all
 * -inf, or has +inf or NaN in it, is NaN; it touches no other.
 */
static inline int kiln_softmax(kiln_client *client, kiln_tensor x, kiln_tensor y, int axis,
							   double scale)
{
	kiln_tensor tensors[2];
	tensors[0] = x;
	tensors[1] = y;
	return kiln_softmax_run_(client, "softmax", tensors, 2, axis, scale);
}

/* log_softmax (x, y; axis, scale): y = scale*x - m - log(sum exp(scale*x - m)); the rest as
 * softmax. */
static inline int kiln_log_softmax(kiln_client *client, kiln_tensor x, kiln_tensor y, int axis,
								   double scale)
{
	kiln_tensor tensors[2];
	tensors[0] = x;
	tensors[1] = y;
	return kiln_softmax_run_(client, "log_softmax", tensors, 2, axis, scale);
}

/*
 * softmax_backward (y, dy, dx; axis, scale): from y, which softmax gave, and the gradient dy of it:
 * dx = scale * (dy - sum(dy*y)) * y.  All three have one float dtype and one shape; axis and scale
 * are those of the forward call.
 */
static inline int kiln_softmax_backward(kiln_client *client, kiln_tensor y, kiln_tensor dy,
										kiln_tensor dx, int axis, double scale)
{
	kiln_tensor tensors[3];
	tensors[0] = y;
	tensors[1] = dy;
	tensors[2] = dx;
	return kiln_softmax_run_(client, "softmax_backward", tensors, 3, axis, scale);
}

/* log_softmax_backward (y, dy, dx; axis, scale): from y, which log_softmax gave: dx = scale * (dy -
 * exp(y) * sum(dy)); the rest as softmax_backward. */
static inline int kiln_log_softmax_backward(kiln_client *client, kiln_tensor y, kiln_tensor dy,
											kiln_tensor dx, int axis, double scale)
{
	kiln_tensor tensors[3];
	tensors[0] = y;
	tensors[1] = dy;
	tensors[2] = dx;
	return kiln_softmax_run_(client, "log_softmax_backward", tensors, 3, axis, scale);
}

/* ---- masked_softmax ------------------------------------------------------------------------ */

/*
 * The elements of a row that take part.  Start from kiln_mask_make(kind).
 *
 *   kind        the mask tensor
 *   "bool"      bool or u8, of a shape that broadcasts to x's, aligned at the last dimension: an
 *               element is masked where it is not zero, or with keep where it is zero
 *   "lengths"   i32, of a shape that broadcasts to x's without the last dimension: the first so
 *               many elements of a row are kept; below 0 is none, above the row's length all
 *   "causal"    left out: of the rows of the last two dimensions, row q keeps the columns k <= q +
 *               diagonal
 *   "additive"  any float dtype, of a shape that broadcasts to x's: added to scale*x; nothing is
 *               masked but by -inf
 */
typedef struct kiln_mask_options {
	const char *kind;
	int keep;          /* "bool": 0 or 1 */
	const char *empty; /* what a row without kept elements becomes: "zero", "nan" or "uniform" */
	double scale;      /* finite; 1: plain */
	int64_t diagonal;  /* "causal" */
} kiln_mask_options;

/* Returns keep 0, empty "zero", scale 1, diagonal 0. */
static inline kiln_mask_options kiln_mask_make(const char *kind)
{
	kiln_mask_options options;
	options.kind = kind;
	options.keep = 0;
	options.empty = "zero";
	options.scale = 1.0;
	options.diagonal = 0;
	return options;
}

/* Writes the attributes that both helpers have, four at most; programs do not call it. */
static inline int kiln_mask_attrs_(const kiln_mask_options *options, kiln_attr *attrs)
{
	int count = 0;
	attrs[count++] = kiln_attr_text("kind", options->kind);
	attrs[count++] = kiln_attr_real("scale", options->scale);
	if (options->keep)
		attrs[count++] = kiln_attr_int("keep", options->keep);
	if (options->diagonal)
		attrs[count++] = kiln_attr_int("diagonal", options->diagonal);
	return count;
}

/*
 * masked_softmax (x, mask?, y; kind, keep, empty, scale, diagonal): y = softmax of scale*x over the
 * kept elements of the last axis, and exactly 0 at the masked ones, whatever they hold.  x and y
 * have one float dtype and one shape; the mask is as its kind says, and its rank at most x's.  A
 * row whose kept elements are all -inf is NaN at those.
 */
static inline int kiln_masked_softmax(kiln_client *client, kiln_tensor x, kiln_tensor mask,
									  kiln_tensor y, const kiln_mask_options *options)
{
	kiln_tensor tensors[3];
	kiln_attr attrs[5];
	int count = kiln_mask_attrs_(options, attrs);
	attrs[count++] = kiln_attr_text("empty", options->empty);
	tensors[0] = x;
	tensors[1] = mask;
	tensors[2] = y;
	return kiln_run(client, "masked_softmax", tensors, 3, attrs, count);
}

/*
 * masked_softmax_backward (y, dy, mask?, dx; kind, keep, scale, diagonal): from y, which
 * masked_softmax gave: dx = scale * y * (dy - sum(dy*y)), and exactly 0 at the masked elements.
 * The options and mask are those of the forward call (empty is not looked at); an additive mask may
 * be left out.  y, dy and dx have one float dtype and one shape.
 */
static inline int kiln_masked_softmax_backward(kiln_client *client, kiln_tensor y, kiln_tensor dy,
											   kiln_tensor mask, kiln_tensor dx,
											   const kiln_mask_options *options)
{
	kiln_tensor tensors[4];
	kiln_attr attrs[4];
	int count = kiln_mask_attrs_(options, attrs);
	tensors[0] = y;
	tensors[1] = dy;
	tensors[2] = mask;
	tensors[3] = dx;
	return kiln_run(client, "masked_softmax_backward", tensors, 4, attrs, count);
}

/* ---- layer_norm, rms_norm ------------------------------------------------------------------ */

/*
 * The norms' tensors and numbers besides x and y.  Start from kiln_norm_make() and put in what is
 * there.  The last axes dimensions of x are normalized together (its trailing shape); the others
 * are the rows (its leading shape).
 */
typedef struct kiln_norm {
	kiln_tensor gamma, beta; /* factor and summand: trailing shape, any float dtype, contiguous */
	kiln_tensor residual;    /* added to x first: x's shape and dtype */
	/* Outputs */
	kiln_tensor mean, rstd; /* of each row: leading shape, compute type; mean of layer_norm only */
	kiln_tensor sum;        /* x + residual, rounded: x's shape and dtype; the norm's own is not */
	double eps;             /* >= 0: added to the variance, or the mean square */
	int axes;               /* 1 to x's rank */
} kiln_norm;

/* Leaves all operands out; eps is 1e-5, axes 1. */
static inline kiln_norm kiln_norm_make(void)
{
	kiln_norm norm;
	norm.gamma = norm.beta = norm.residual = kiln_tensor_none();
	norm.mean = norm.rstd = norm.sum = kiln_tensor_none();
	norm.eps = 1e-5;
	norm.axes = 1;
	return norm;
}

/* The helpers of the norms share this function; programs do not call it. */
static inline int kiln_norm_run_(kiln_client *client, const char *op, const kiln_tensor *tensors,
								 int count, const kiln_norm *norm)
{
	kiln_attr attrs[2];
	attrs[0] = kiln_attr_real("eps", norm->eps);
	attrs[1] = kiln_attr_int("axes", norm->axes);
	return kiln_run(client, op, tensors, count, attrs, 2);
}

/*
 * layer_norm (x, gamma?, beta?, residual?, y, mean?, rstd?, sum?; eps, axes), with all it has:
 * y = (v - mean) * rstd * gamma + beta, where v = x + residual, mean and the variance are those of
 * v's row, and rstd = 1 / sqrt(variance + eps).  x and y have one float dtype and one shape.
 */
static inline int kiln_layer_norm_with(kiln_client *client, kiln_tensor x, kiln_tensor y,
									   const kiln_norm *norm)
{
	kiln_tensor tensors[8];
	tensors[0] = x;
	tensors[1] = norm->gamma;
	tensors[2] = norm->beta;
	tensors[3] = norm->residual;
	tensors[4] = y;
	tensors[5] = norm->mean;
	tensors[6] = norm->rstd;
	tensors[7] = norm->sum;
	return kiln_norm_run_(client, "layer_norm", tensors, 8, norm);
}

/* layer_norm over the last dimension; gamma and beta may be left out. */
static inline int kiln_layer_norm(kiln_client *client, kiln_tensor x, kiln_tensor gamma,
								  kiln_tensor beta, kiln_tensor y, double eps)
{
	kiln_norm norm = kiln_norm_make();
	norm.gamma = gamma;
	norm.beta = beta;
	norm.eps = eps;
	return kiln_layer_norm_with(client, x, y, &norm);
}

/*
 * rms_norm (x, gamma?, beta?, residual?, y, rstd?, sum?; eps, axes), with all it has:
 * y = v * rstd * gamma + beta, where v = x + residual and rstd = 1 / sqrt(mean(v*v) + eps).  The
 * mean must be left out: there is none.  x and y have one float dtype and one shape.
 */
static inline int kiln_rms_norm_with(kiln_client *client, kiln_tensor x, kiln_tensor y,
									 const kiln_norm *norm)
{
	kiln_tensor tensors[8];
	tensors[0] = x;
	tensors[1] = norm->gamma;
	tensors[2] = norm->beta;
	tensors[3] = norm->residual;
	tensors[4] = y;
	tensors[5] = norm->rstd;
	tensors[6] = norm->sum;
	tensors[7] = norm->mean; /* one operand too many, so the daemon refuses it */
	return kiln_norm_run_(client, "rms_norm", tensors, norm->mean.dtype == KILN_DTYPE_NONE ? 7 : 8,
						  norm);
}

/* rms_norm over the last dimension; gamma may be left out. */
static inline int kiln_rms_norm(kiln_client *client, kiln_tensor x, kiln_tensor gamma,
								kiln_tensor y, double eps)
{
	kiln_norm norm = kiln_norm_make();
	norm.gamma = gamma;
	norm.eps = eps;
	return kiln_rms_norm_with(client, x, y, &norm);
}

/*
 * The tensors and numbers of the norms' gradients besides x and dy.  Start from
 * kiln_norm_grad_make(), put in what the forward call had and gave, and at least one of dx, dgamma
 * and dbeta.
 */
typedef struct kiln_norm_grad {
	kiln_tensor gamma;      /* of the forward call; left out where it was */
	kiln_tensor mean, rstd; /* that the forward call gave; mean of layer_norm only */
	/* Outputs */
	kiln_tensor dx;            /* x's shape and dtype */
	kiln_tensor dgamma, dbeta; /* sums over all rows: trailing shape, any float dtype, contiguous */
	int axes;                  /* of the forward call */
} kiln_norm_grad;

/* Leaves all operands out; axes is 1. */
static inline kiln_norm_grad kiln_norm_grad_make(void)
{
	kiln_norm_grad grad;
	grad.gamma = grad.mean = grad.rstd = kiln_tensor_none();
	grad.dx = grad.dgamma = grad.dbeta = kiln_tensor_none();
	grad.axes = 1;
	return grad;
}

/*
 * layer_norm_backward (x, dy, gamma?, mean, rstd, dx?, dgamma?, dbeta?; axes): with
 * n = (x - mean) * rstd and g = dy * gamma, dx = rstd * (g - mean(g) - n * mean(g*n)), dgamma = the
 * sum of dy*n over the rows, dbeta that of dy.  x is the tensor that was normalized (the forward
 * call's sum, if it had a residual); dy has x's shape and dtype.
 */
static inline int kiln_layer_norm_backward(kiln_client *client, kiln_tensor x, kiln_tensor dy,
										   const kiln_norm_grad *grad)
{
	kiln_tensor tensors[8];
	kiln_attr attr = kiln_attr_int("axes", grad->axes);
	tensors[0] = x;
	tensors[1] = dy;
	tensors[2] = grad->gamma;
	tensors[3] = grad->mean;
	tensors[4] = grad->rstd;
	tensors[5] = grad->dx;
	tensors[6] = grad->dgamma;
	tensors[7] = grad->dbeta;
	return kiln_run(client, "layer_norm_backward", tensors, 8, &attr, 1);
}

/*
 * rms_norm_backward (x, dy, gamma?, rstd, dx?, dgamma?, dbeta?; axes): with n = x * rstd and
 * g = dy * gamma, dx = rstd * (g - n * mean(g*n)); the rest as layer_norm_backward.  The mean must
 * be left out.
 */
static inline int kiln_rms_norm_backward(kiln_client *client, kiln_tensor x, kiln_tensor dy,
										 const kiln_norm_grad *grad)
{
	kiln_tensor tensors[8];
	kiln_attr attr = kiln_attr_int("axes", grad->axes);
	tensors[0] = x;
	tensors[1] = dy;
	tensors[2] = grad->gamma;
	tensors[3] = grad->rstd;
	tensors[4] = grad->dx;
	tensors[5] = grad->dgamma;
	tensors[6] = grad->dbeta;
	tensors[7] = grad->mean; /* one operand too many, so the daemon refuses it */
	return kiln_run(client, "rms_norm_backward", tensors,
					grad->mean.dtype == KILN_DTYPE_NONE ? 7 : 8, &attr, 1);
}

/* ---- gather -------------------------------------------------------------------------------- */

/*
 * gather (src, idx, dst; bounds): dst[..., j, k] = src[..., j, idx[j, k]], bit for bit.  src is
 * [..., M, P] with any leading dimensions, which all share idx, [M, K] of u8, u16, i32 or i64; dst
 * is [..., M, K] of src's dtype, which is any.  bounds says what becomes of an index that is not
 * within 0 .. P-1:
 *
 *   "check"  0 is written, and when all is written the call ends in EINDEX: how many of the M*K
 *            indices are out of range.  With zero elements to write none is looked at
 *   "clamp"  the nearest element is taken: the first or the last.  P must be 1 or more
 *   "trust"  the caller says there is none.  If there is, some element of the row is taken
 *
 * No bounds let a call read outside of src.
 */
static inline int kiln_gather(kiln_client *client, kiln_tensor src, kiln_tensor idx,
							  kiln_tensor dst, const char *bounds)
{
	kiln_tensor tensors[3];
	kiln_attr attr = kiln_attr_text("bounds", bounds);
	tensors[0] = src;
	tensors[1] = idx;
	tensors[2] = dst;
	return kiln_run(client, "gather", tensors, 3, &attr, 1);
}

/*
 * gather_backward (ddst, idx, dsrc; bounds): dsrc[..., j, p] = the sum of ddst[..., j, k] over all
 * k with idx[j, k] = p, added one after another by rising k: the same bits every time.  ddst is
 * [..., M, K], dsrc [..., M, P] of the same dtype: a float, or an integer, which wraps.  Where no
 * index names an element it is 0.  bounds as of gather: an index out of range names nothing
 * ("check", which says EINDEX), the nearest element ("clamp"), or some element ("trust").
 */
static inline int kiln_gather_backward(kiln_client *client, kiln_tensor ddst, kiln_tensor idx,
									   kiln_tensor dsrc, const char *bounds)
{
	kiln_tensor tensors[3];
	kiln_attr attr = kiln_attr_text("bounds", bounds);
	tensors[0] = ddst;
	tensors[1] = idx;
	tensors[2] = dsrc;
	return kiln_run(client, "gather_backward", tensors, 3, &attr, 1);
}

/* ---- giou ---------------------------------------------------------------------------------- */

/*
 * giou (pred, target, y; clamp): the generalized intersection over union of pairs of boxes,
 *
 *   y = inter / max(joined, 1e-5) - (enclosing - joined) / max(enclosing, 1e-5)
 *
 * with the areas of their intersection, of their union (the sum of both less the intersection) and
 * of the smallest box around both.  A box is the last dimension of its tensor: x1, y1, x2, y2.
 * clamp 1: sides of the intersection are at least 0.  clamp 0: they are not, so two boxes that are
 * apart in both directions have an intersection.
 *
 * A pair is valid where y2 of the target is not 0; elsewhere y is exactly 0, whatever the
 * prediction holds.  pred is any float dtype; target u8 or any float dtype, of pred's shape; y has
 * pred's dtype and its shape without the last dimension.
 */
static inline int kiln_giou(kiln_client *client, kiln_tensor pred, kiln_tensor target,
							kiln_tensor y, int clamp)
{
	kiln_tensor tensors[3];
	kiln_attr attr = kiln_attr_int("clamp", clamp);
	tensors[0] = pred;
	tensors[1] = target;
	tensors[2] = y;
	return kiln_run(client, "giou", tensors, 3, &attr, 1);
}

/*
 * giou_backward (pred, target, dy, dpred; clamp): dpred = dy * the derivatives of giou by the four
 * numbers of pred, and exactly 0 for pairs that are not valid.  Where both boxes have the same
 * number the derivative is halved between them; a limit that is met exactly (a side of 0, an area
 * of 1e-5) lets it through.  dy has giou's y's shape and dtype, dpred pred's.
 */
static inline int kiln_giou_backward(kiln_client *client, kiln_tensor pred, kiln_tensor target,
									 kiln_tensor dy, kiln_tensor dpred, int clamp)
{
	kiln_tensor tensors[4];
	kiln_attr attr = kiln_attr_int("clamp", clamp);
	tensors[0] = pred;
	tensors[1] = target;
	tensors[2] = dy;
	tensors[3] = dpred;
	return kiln_run(client, "giou_backward", tensors, 4, &attr, 1);
}

/*
 * giou_loss (pred, target, offsets?, loss, count?; clamp): loss = the sum of giou (not of 1 - giou)
 * over all valid pairs, divided by their number, or by 1 if there are none: 0 then.  loss is one
 * number of the compute type; count, which may be left out, one i64: the number of valid pairs.
 *
 * Without offsets, target has pred's shape: samples are padded with zeros.  With them, pred is
 * [B, M, 4], target [T, 4] holds the targets of all samples one behind the other, and offsets, B+1
 * of i32, says which are whose: box k of sample s is paired with target offsets[s] + k, as long as
 * that is below offsets[s+1].  Targets beyond M of a sample have no prediction and do not count,
 * and offsets are taken within 0 .. T.
 */
static inline int kiln_giou_loss(kiln_client *client, kiln_tensor pred, kiln_tensor target,
								 kiln_tensor offsets, kiln_tensor loss, kiln_tensor count,
								 int clamp)
{
	kiln_tensor tensors[5];
	kiln_attr attr = kiln_attr_int("clamp", clamp);
	tensors[0] = pred;
	tensors[1] = target;
	tensors[2] = offsets;
	tensors[3] = loss;
	tensors[4] = count;
	return kiln_run(client, "giou_loss", tensors, 5, &attr, 1);
}

/*
 * giou_loss_backward (pred, target, offsets?, count, dloss, dpred; clamp): dpred =
 * dloss / max(count, 1) * the derivatives of giou as giou_backward has them, and exactly 0 for
 * predictions that are in no valid pair.  count is what giou_loss gave; dloss is one number of the
 * compute type; dpred has pred's shape and dtype.
 */
static inline int kiln_giou_loss_backward(kiln_client *client, kiln_tensor pred, kiln_tensor target,
										  kiln_tensor offsets, kiln_tensor count, kiln_tensor dloss,
										  kiln_tensor dpred, int clamp)
{
	kiln_tensor tensors[6];
	kiln_attr attr = kiln_attr_int("clamp", clamp);
	tensors[0] = pred;
	tensors[1] = target;
	tensors[2] = offsets;
	tensors[3] = count;
	tensors[4] = dloss;
	tensors[5] = dpred;
	return kiln_run(client, "giou_loss_backward", tensors, 6, &attr, 1);
}

/* ---- rope ---------------------------------------------------------------------------------- */

/* How rope rotates.  Start from kiln_rope_make(). */
typedef struct kiln_rope_options {
	int interleaved;    /* 1: pairs are neighbours, (2i, 2i + 1); 0: (i, i + rotary_dim / 2) */
	int inverse;        /* 1: by the negated angles, which is the gradient */
	int64_t start;      /* the position of token 0, where no positions are given */
	const char *layout; /* "bshd" or "bhsd" */
	const char *bounds; /* of positions: "check", "clamp" or "trust", as of kiln_gather() */
} kiln_rope_options;

static inline kiln_rope_options kiln_rope_make(void)
{
	kiln_rope_options options;
	options.interleaved = 0;
	options.inverse = 0;
	options.start = 0;
	options.layout = "bshd";
	options.bounds = "check";
	return options;
}

/*
 * rope (q, cos, sin, k?, positions?, q_out, k_out?; interleaved, inverse, start, layout, bounds):
 * rotary position embedding.  Each pair (a, b) of a head becomes (a cos - b sin, b cos + a sin),
 * and the elements from rotary_dim on are copied.  q and k are [batch, tokens, heads, dim] or
 * [batch, heads, tokens, dim], with or without batch, of one float dtype, each with heads of its
 * own; they may be strided but in the last dimension.  cos and sin are [positions, rotary_dim /
 * 2], or begin with a batch, of that dtype or f32 (of f64 for f64); of tables whose rows hold
 * each half twice, the view of the first half is passed.  positions are i32 or i64 [tokens] or
 * [batch, tokens]; where they are left out, tokens are numbered from start on.  k and k_out come
 * together.  q_out may be q itself, and k_out k, strided as they are: then nothing else is
 * written.
 */
static inline int kiln_rope(kiln_client *client, kiln_tensor q, kiln_tensor cos, kiln_tensor sin,
							kiln_tensor k, kiln_tensor positions, kiln_tensor q_out,
							kiln_tensor k_out, const kiln_rope_options *options)
{
	kiln_tensor tensors[7];
	kiln_attr attrs[5];
	tensors[0] = q;
	tensors[1] = cos;
	tensors[2] = sin;
	tensors[3] = k;
	tensors[4] = positions;
	tensors[5] = q_out;
	tensors[6] = k_out;
	attrs[0] = kiln_attr_int("interleaved", options->interleaved);
	attrs[1] = kiln_attr_int("inverse", options->inverse);
	attrs[2] = kiln_attr_int("start", options->start);
	attrs[3] = kiln_attr_text("layout", options->layout);
	attrs[4] = kiln_attr_text("bounds", options->bounds);
	return kiln_run(client, "rope", tensors, 7, attrs, 5);
}

/* ---- Arguments of kernels of one's own: see kiln_submit_raw() ------------------------------ */

/* Memory from a byte offset of a buffer on; access is KILN_READ, KILN_WRITE or both. */
static inline kiln_raw_arg kiln_raw_memory(kiln_buffer *buffer, uint64_t offset, unsigned access)
{
	kiln_raw_arg arg;
	arg.buffer = buffer;
	arg.offset = offset;
	arg.bytes = 0;
	arg.access = access;
	arg.value = (const void *)0;
	return arg;
}

/* A value, by its address and size: kiln_raw_value(&n, sizeof n). */
static inline kiln_raw_arg kiln_raw_value(const void *value, uint64_t bytes)
{
	kiln_raw_arg arg = kiln_raw_memory((kiln_buffer *)0, 0, 0);
	arg.bytes = bytes;
	arg.value = value;
	return arg;
}

/* ---- map ----------------------------------------------------------------------------------- */

/* An operand of a statement, or a scalar, by its name there. */
typedef struct kiln_map_tensor {
	const char *name;
	kiln_tensor tensor;
} kiln_map_tensor;

typedef struct kiln_map_scalar {
	const char *name;
	double value; /* exact for whole numbers up to 2^53 */
} kiln_map_scalar;

/* Start from kiln_map_make(). */
typedef struct kiln_map_options {
	const kiln_map_scalar *scalars;
	int scalar_count;   /* 12 at most */
	const char *bounds; /* subscripts out of range: "check", "clamp" or "zero" */
	int checked;        /* 1: every access is checked, and the first bad one is named */
} kiln_map_options;

/* Returns no scalars, bounds "check", checked 0. */
static inline kiln_map_options kiln_map_make(void)
{
	kiln_map_options options;
	options.scalars = (const kiln_map_scalar *)0;
	options.scalar_count = 0;
	options.bounds = "check";
	options.checked = 0;
	return options;
}

/* Joins names by commas; 0 if there is no room.  Programs do not call it. */
static inline int kiln_map_names_(const kiln_map_tensor *operands, int count, char *names,
								  size_t room)
{
	size_t used = 0;
	int i;
	for (i = 0; i < count; i++) {
		const char *at = operands[i].name;
		if (i > 0 && used < room)
			names[used++] = ',';
		for (; *at && used < room; at++)
			names[used++] = *at;
	}
	if (used >= room)
		return 0;
	names[used] = 0;
	return 1;
}

/*
 * map: for each element of the operand on the left side of a statement, what the right side says:
 * "y[i,j] = x[i,j] * s + b[j]".  docs/map.md is the language.  Each operand of the statement is
 * there once, in any order; all dtypes but c64 and c128.  options may be NULL.  Scalars are no part
 * of the kernel: another value compiles nothing.  EINVAL: the sentence names the column.  EINDEX: a
 * subscript was out of range; all is written, with 0 read there.
 */
static inline int kiln_run_map(kiln_client *client, const char *statement,
							   const kiln_map_tensor *operands, int operand_count,
							   const kiln_map_options *options)
{
	kiln_map_options plain = kiln_map_make();
	kiln_tensor tensors[KILN_MAX_OPERANDS];
	kiln_attr attrs[KILN_MAX_ATTRS];
	char names[KILN_MAX_OPERANDS * 16];
	int count = 0, i;
	if (!options)
		options = &plain;
	if (operand_count < 0 || operand_count > KILN_MAX_OPERANDS ||
		options->scalar_count > KILN_MAX_ATTRS - 4 ||
		!kiln_map_names_(operands, operand_count, names, sizeof(names))) {
		/* Refused with a sentence: there is no such name. */
		names[0] = 0;
		operand_count = 0;
	}
	attrs[count++] = kiln_attr_text("statement", statement);
	attrs[count++] = kiln_attr_text("names", names);
	attrs[count++] = kiln_attr_text("bounds", options->bounds);
	attrs[count++] = kiln_attr_int("checked", options->checked);
	for (i = 0; i < options->scalar_count && count < KILN_MAX_ATTRS; i++) {
		const kiln_map_scalar *scalar = &options->scalars[i];
		int64_t whole = scalar->value >= -9007199254740992.0 && scalar->value <= 9007199254740992.0
							? (int64_t)scalar->value
							: 0;
		attrs[count] = kiln_attr_real(scalar->name, scalar->value);
		/* A whole number goes with integers, too. */
		if ((double)whole == scalar->value)
			attrs[count] = kiln_attr_int(scalar->name, whole);
		count++;
	}
	for (i = 0; i < operand_count; i++)
		tensors[i] = operands[i].tensor;
	return kiln_run(client, "map", tensors, operand_count, attrs, count);
}

/* ---- Helpers made of rows: scripts/write_operators.sh writes what follows ------------------- */

/*
 * cumsum (x, y): y[k] = x[0] + .. + x[k] along an axis; f16 and bf16 are added up in f32, and i32
 * and i64 wrap.
 * axis: the dimension to go along, from the end if below 0 (default -1); exclusive: 1 to leave the
 * element itself out of its result; reverse: 1 to add up from the end
 */
static inline int kiln_cumsum(kiln_client *client, kiln_tensor x, kiln_tensor y, int64_t axis,
							  int64_t exclusive, int64_t reverse)
{
	kiln_tensor tensors[2];
	kiln_attr attrs[3];
	tensors[0] = x;
	tensors[1] = y;
	attrs[0] = kiln_attr_int("axis", axis);
	attrs[1] = kiln_attr_int("exclusive", exclusive);
	attrs[2] = kiln_attr_int("reverse", reverse);
	return kiln_run(client, "cumsum", tensors, 2, attrs, 3);
}

/*
 * cumsum_backward (dy, dx): dx[k] = dy[k] + .. + dy[last] along an axis, added up as in cumsum.
 * axis: the dimension to go along, from the end if below 0 (default -1); exclusive: 1 to leave the
 * element itself out of its result; reverse: 1 if the sums were added up from the end
 */
static inline int kiln_cumsum_backward(kiln_client *client, kiln_tensor dy, kiln_tensor dx,
									   int64_t axis, int64_t exclusive, int64_t reverse)
{
	kiln_tensor tensors[2];
	kiln_attr attrs[3];
	tensors[0] = dy;
	tensors[1] = dx;
	attrs[0] = kiln_attr_int("axis", axis);
	attrs[1] = kiln_attr_int("exclusive", exclusive);
	attrs[2] = kiln_attr_int("reverse", reverse);
	return kiln_run(client, "cumsum_backward", tensors, 2, attrs, 3);
}

/*
 * cumprod (x, y): y[k] = x[0] * .. * x[k] along an axis, in types as of cumsum.
 * axis: the dimension to go along, from the end if below 0 (default -1); exclusive: 1 to leave the
 * element itself out of its result; reverse: 1 to multiply from the end
 */
static inline int kiln_cumprod(kiln_client *client, kiln_tensor x, kiln_tensor y, int64_t axis,
							   int64_t exclusive, int64_t reverse)
{
	kiln_tensor tensors[2];
	kiln_attr attrs[3];
	tensors[0] = x;
	tensors[1] = y;
	attrs[0] = kiln_attr_int("axis", axis);
	attrs[1] = kiln_attr_int("exclusive", exclusive);
	attrs[2] = kiln_attr_int("reverse", reverse);
	return kiln_run(client, "cumprod", tensors, 2, attrs, 3);
}

/*
 * cumprod_backward (x, y, dy, dx): dx[j] = y[j - 1] * (dy[j] + x[j + 1] * (dy[j + 1] + ..)) along
 * an axis, y being the product: right where x holds zeros.
 * axis: the dimension to go along, from the end if below 0 (default -1); exclusive: 1 to leave the
 * element itself out of its result; reverse: 1 if the products began at the end
 */
static inline int kiln_cumprod_backward(kiln_client *client, kiln_tensor x, kiln_tensor y,
										kiln_tensor dy, kiln_tensor dx, int64_t axis,
										int64_t exclusive, int64_t reverse)
{
	kiln_tensor tensors[4];
	kiln_attr attrs[3];
	tensors[0] = x;
	tensors[1] = y;
	tensors[2] = dy;
	tensors[3] = dx;
	attrs[0] = kiln_attr_int("axis", axis);
	attrs[1] = kiln_attr_int("exclusive", exclusive);
	attrs[2] = kiln_attr_int("reverse", reverse);
	return kiln_run(client, "cumprod_backward", tensors, 4, attrs, 3);
}

/*
 * logcumsumexp (x, y): y[k] = log(exp(x[0]) + .. + exp(x[k])) along an axis.
 * axis: the dimension to go along, from the end if below 0 (default -1); exclusive: 1 to leave the
 * element itself out of its result; reverse: 1 to add up from the end
 */
static inline int kiln_logcumsumexp(kiln_client *client, kiln_tensor x, kiln_tensor y, int64_t axis,
									int64_t exclusive, int64_t reverse)
{
	kiln_tensor tensors[2];
	kiln_attr attrs[3];
	tensors[0] = x;
	tensors[1] = y;
	attrs[0] = kiln_attr_int("axis", axis);
	attrs[1] = kiln_attr_int("exclusive", exclusive);
	attrs[2] = kiln_attr_int("reverse", reverse);
	return kiln_run(client, "logcumsumexp", tensors, 2, attrs, 3);
}

/*
 * logcumsumexp_backward (x, y, dy, dx): dx[j] = the sum of dy[k] * exp(x[j] - y[k]) over k from j
 * on; 0 where x is -inf.
 * axis: the dimension to go along, from the end if below 0 (default -1); exclusive: 1 to leave the
 * element itself out of its result; reverse: 1 if the sums were added up from the end
 */
static inline int kiln_logcumsumexp_backward(kiln_client *client, kiln_tensor x, kiln_tensor y,
											 kiln_tensor dy, kiln_tensor dx, int64_t axis,
											 int64_t exclusive, int64_t reverse)
{
	kiln_tensor tensors[4];
	kiln_attr attrs[3];
	tensors[0] = x;
	tensors[1] = y;
	tensors[2] = dy;
	tensors[3] = dx;
	attrs[0] = kiln_attr_int("axis", axis);
	attrs[1] = kiln_attr_int("exclusive", exclusive);
	attrs[2] = kiln_attr_int("reverse", reverse);
	return kiln_run(client, "logcumsumexp_backward", tensors, 4, attrs, 3);
}

#ifdef __cplusplus
}
#endif

#endif
