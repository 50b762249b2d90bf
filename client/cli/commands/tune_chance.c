/*
 * tune_chance.c: whether one of two candidates is faster, or only had luck.  It knows nothing of
 * devices.
 */
#include "client/cli/timing.h"
#include "tune.h"

#include <string.h>

/* A quantile of sorted times, interpolated. */
static double quantile(const double *sorted, int count, double part)
{
	double place = part * (count - 1);
	int below = (int)place;
	int above = below + 1 < count ? below + 1 : below;

	return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

bool tune_beats(const double *first, const double *second, int rounds, double share)
{
	double gains[TUNE_ROUNDS], times[TUNE_ROUNDS], gain;

	if (rounds < TUNE_ROUNDS_FINAL || rounds > TUNE_ROUNDS)
		return false;
	/* Times of one round belong together: a disturbance mostly hits both. */
	for (int i = 0; i < rounds; i++)
		gains[i] = first[i] - second[i];
	memcpy(times, first, (size_t)rounds * sizeof(*times));
	time_sort(gains, rounds);
	time_sort(times, rounds);
	gain = quantile(gains, rounds, 0.5);
	return gain > share * quantile(times, rounds, 0.5) &&
		   gain > quantile(gains, rounds, 0.75) - quantile(gains, rounds, 0.25);
}
