/* histogram.c: see histogram.h. */
#include "histogram.h"

/* Below STEPS a bucket holds one value; bucket 8 + k of octave o holds those from (8 + k) << o on,
 * below (9 + k) << o. */
static unsigned bucket_of(uint64_t value)
{
	unsigned octave = 0;
	if (value < HISTOGRAM_STEPS)
		return (unsigned)value;
	while (value >> octave >= 2u * HISTOGRAM_STEPS)
		octave++;
	if (octave >= HISTOGRAM_OCTAVES)
		return HISTOGRAM_BUCKETS - 1;
	return (octave + 1) * HISTOGRAM_STEPS + (unsigned)(value >> octave) - HISTOGRAM_STEPS;
}

static uint64_t upper_end(unsigned bucket)
{
	if (bucket < HISTOGRAM_STEPS)
		return bucket;
	unsigned octave = bucket / HISTOGRAM_STEPS - 1;
	return ((uint64_t)(HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS + 1) << octave) - 1;
}

void histogram_note(struct histogram *histogram, uint64_t value)
{
	histogram->count++;
	histogram->buckets[bucket_of(value)]++;
	if (value > histogram->most)
		histogram->most = value;
}

void histogram_add(struct histogram *sum, const struct histogram *other)
{
	sum->count += other->count;
	if (other->most > sum->most)
		sum->most = other->most;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		sum->buckets[i] += other->buckets[i];
}

uint64_t histogram_quantile(const struct histogram *histogram, unsigned per_mille)
{
	/* The place of the value among all, in order, from 1 on. */
	uint64_t place = (histogram->count * per_mille + 999) / 1000, seen = 0;
	unsigned bucket = 0;
	if (!histogram->count)
		return 0;
	while (bucket < HISTOGRAM_BUCKETS - 1 && (seen += histogram->buckets[bucket]) < place)
		bucket++;
	uint64_t end = bucket == HISTOGRAM_BUCKETS - 1 ? histogram->most : upper_end(bucket);
	return end < histogram->most ? end : histogram->most;
}
