/*
 * reference_act.c: activations.
 */
#include "reference.h"

#include <math.h>

double reference_sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

double reference_act(const struct cases_case *c, double x)
{
	if (reference_is(c, "act", "gelu"))
		return x * 0.5 * erfc(x * -M_SQRT1_2);
	if (reference_is(c, "act", "gelu_tanh"))
		return x * reference_sigmoid(2 * M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x));
	if (reference_is(c, "act", "relu"))
		return x > 0 || isnan(x) ? x : 0;
	return x * reference_sigmoid(x);
}
