/*
 * bench_spread.c: drawn problems: a row of a CSV file for each kernel that was timed, and how the
 * ratios of copy / kernel are spread.  Elements that a mask spares make a kernel faster than the
 * copy: a ratio above 1 counts as 1.
 */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MOST 4096  /* problems */
#define WORST 10   /* of them that are printed */
#define NOISE 1.02 /* times that torch.compile may be faster without being called so */

struct note {
	const struct bench_case *group;
	double ratio, best, micros, compiled; /* best: of any candidate; 0: not timed */
	char choice[KERNEL_CHOICE_MAX], best_choice[KERNEL_CHOICE_MAX];
};

static struct notes {
	int count;
	struct note note[MOST];
} * notes;

bool bench_spread_open(const struct bench_options *options)
{
	if (!options->drawn)
		return true;
	notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return notes != MAP_FAILED;
}

static const char *name_of(const struct bench_item *item)
{
	return item->plan.choice[0] ? item->plan.choice : item->plan.variant;
}

/* ---- Rows ---- */

static void print_sizes(FILE *csv, const int64_t *sizes, int count)
{
	for (int k = 0; k < count; k++)
		fprintf(csv, "%s%" PRId64, k ? "x" : "", sizes[k]);
	fputc(',', csv);
}

/* The columns of the problem: op,dtype,shape,strides,perm,axis,name; strides only where they are
 * not row-major. */
static void print_problem(FILE *csv, const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[0];
	int64_t axis = x->rank - 1;

	fprintf(csv, "%s,%s,", c->op->name, kiln_dtype_name(x->dtype));
	print_sizes(csv, x->shape, x->rank);
	print_sizes(csv, x->stride, x->contiguous ? 0 : x->rank);
	for (int i = 0; i < c->attr_count; i++)
		if (strcmp(c->attr[i].name, "axis") == 0)
			axis = c->attr[i].i;
	print_sizes(csv, c->ints, strcmp(c->op->name, "permute") == 0 ? c->attr[0].count : 0);
	fprintf(csv, "%" PRId64 ",\"%s\",", axis, c->name);
}

void bench_spread_row(const struct bench_options *options, const struct bench_result *r)
{
	FILE *csv = options->csv ? fopen(options->csv, "a") : NULL;
	const struct kernel_plan *plan = &r->item->plan;

	if (!csv)
		return;
	if (fseek(csv, 0, SEEK_END) == 0 && ftell(csv) == 0)
		fprintf(csv, "op,dtype,shape,strides,perm,axis,name,bytes,variant,choice,own,us,copy_us,"
					 "memcpy_us,compiled_us,registers,spills,shared,threads,blocks,compile_s,"
					 "wrong\n");
	print_problem(csv, r->group->c);
	fprintf(csv,
			"%" PRIu64 ",%s,%s,%d,%.2f,%.2f,%.2f,%.2f,%" PRId64 ",%" PRId64 ",%u,%u,%" PRIu64
			",%.3f,%d\n",
			bench_bytes(r->group->c, plan), plan->variant, name_of(r->item),
			r->item == &r->group->items[0], r->micros, r->copy, r->copies.memcpy_us, r->compiled,
			r->registers, r->spills, plan->shared_bytes,
			plan->block[0] * plan->block[1] * plan->block[2],
			(uint64_t)plan->grid[0] * plan->grid[1] * plan->grid[2], r->compile_s,
			r->wrong[0] != 0);
	fclose(csv);
}

/* ---- How they are spread ---- */

static double capped(double ratio)
{
	return ratio < 1 ? ratio : 1;
}

void bench_spread_note(const struct bench_result *own, const struct bench_result *best)
{
	if (!notes || own->wrong[0] || own->micros <= 0 || notes->count == MOST)
		return;
	struct note *note = &notes->note[notes->count++];
	note->group = own->group;
	note->ratio = capped(own->ratio);
	note->micros = own->micros;
	note->compiled = own->compiled;
	snprintf(note->choice, sizeof(note->choice), "%s", name_of(own->item));
	if (best && !best->wrong[0]) {
		note->best = capped(best->ratio);
		snprintf(note->best_choice, sizeof(note->best_choice), "%s", name_of(best->item));
	}
}

static int by_ratio(const void *a, const void *b)
{
	const struct note *x = a, *y = b;

	return (x->ratio > y->ratio) - (x->ratio < y->ratio);
}

static int by_number(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* A line: mean, 5th percentile and least of the ratios of an operator (NULL: of all), the
 * planner's own and, where they were timed, of the best candidates. */
static void print_line(const char *op, bool best)
{
	static double own[MOST], most[MOST];
	double sums[2] = {0, 0};
	int count = 0;

	for (int i = 0; i < notes->count; i++) {
		const struct note *note = &notes->note[i];
		if (op && strcmp(note->group->c->op->name, op) != 0)
			continue;
		sums[0] += own[count] = note->ratio;
		sums[1] += most[count++] = note->best;
	}
	qsort(own, (size_t)count, sizeof(*own), by_number);
	qsort(most, (size_t)count, sizeof(*most), by_number);
	printf("%-22s %5d  %6.3f %6.3f %6.3f", op ? op : "all", count, sums[0] / count, own[count / 20],
		   own[0]);
	if (best)
		printf("  %6.3f %6.3f %6.3f", sums[1] / count, most[count / 20], most[0]);
	printf("\n");
}

static bool is_first_of_op(int i)
{
	for (int k = 0; k < i; k++)
		if (notes->note[k].group->c->op == notes->note[i].group->c->op)
			return false;
	return true;
}

static void print_slower(void)
{
	int slower = 0, timed = 0;

	for (int i = 0; i < notes->count; i++) {
		const struct note *note = &notes->note[i];
		timed += note->compiled > 0;
		if (note->compiled <= 0 || note->micros <= NOISE * note->compiled)
			continue;
		slower++;
		printf("  %.1f us, torch.compile %.1f us  %s, %s\n", note->micros, note->compiled,
			   note->group->c->name, note->choice);
	}
	printf("torch.compile is faster by more than 2 %% in %d of %d\n", slower, timed);
}

void bench_spread_print(void)
{
	if (!notes || !notes->count)
		return;
	bool best = notes->note[0].best > 0;
	qsort(notes->note, (size_t)notes->count, sizeof(notes->note[0]), by_ratio);
	printf("copy / kiln, at most 1    count    mean    5 %%  least%s\n",
		   best ? "  of the best candidates" : "");
	for (int i = 0; i < notes->count; i++)
		if (is_first_of_op(i))
			print_line(notes->note[i].group->c->op->name, best);
	print_line(NULL, best);
	printf("the worst:\n");
	for (int i = 0; i < notes->count && i < WORST; i++) {
		const struct note *note = &notes->note[i];
		printf("  %.3f  %s, %s", note->ratio, note->group->c->name, note->choice);
		if (best)
			printf("; best %.3f %s", note->best, note->best_choice);
		printf("\n");
	}
	print_slower();
}
