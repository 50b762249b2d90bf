/*
 * bench_report.c: lines of tables, figures as JSON, and totals.  A time that is missed is marked
 * where it stands: "low" behind a ratio below its target, SLOWER where PyTorch or Liger was faster.
 */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_OPS 128
#define MOST_GAINS 1024
#define GAIN 0.01 /* less is noise */
#define DRAWN_TARGET 0.85

struct total {
	const char *op;
	double log_ratio, least;
	int large, rows, low, slower, torch, wrong;
	double log_times, most_times; /* --generic: of how many times as long it takes */
	int generics;
};

/* A case that another candidate would serve better. */
struct gain {
	const char *name;
	double own, best;
	char choice[KERNEL_CHOICE_MAX];
};

struct totals {
	struct total ops[MOST_OPS];
	struct gain gains[MOST_GAINS];
	int count, gain_count;
};
static struct totals *totals;

bool bench_report_open(const struct bench_options *options)
{
	totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return totals != MAP_FAILED && bench_spread_open(options);
}

static struct total *total_of(const char *op)
{
	for (int i = 0; i < totals->count; i++)
		if (strcmp(totals->ops[i].op, op) == 0)
			return &totals->ops[i];
	if (totals->count < MOST_OPS)
		totals->ops[totals->count++] = (struct total){.op = op, .least = INFINITY};
	return &totals->ops[totals->count - 1];
}

/* ---- Others: lines "name TAB eager TAB compiled TAB liger"; the last of a name counts ---- */

static void read_torch(const char *path, struct bench_result *result)
{
	char line[400];
	FILE *file = path ? fopen(path, "r") : NULL;

	result->eager = result->compiled = result->liger = 0;
	while (file && fgets(line, sizeof(line), file)) {
		double eager, compiled, liger;
		char *tab = strchr(line, '\t');
		if (!tab)
			continue;
		*tab = 0;
		if (strcmp(line, result->group->c->name) == 0 &&
			sscanf(tab + 1, "%lf\t%lf\t%lf", &eager, &compiled, &liger) == 3) {
			result->eager = eager;
			result->compiled = compiled;
			result->liger = liger;
		}
	}
	if (file)
		fclose(file);
}

static void complete(const struct bench_options *options, struct bench_result *result)
{
	const struct bench_copies *copies = &result->copies;

	result->copy = copies->memcpy_us < copies->vectors_us ? copies->memcpy_us : copies->vectors_us;
	result->ratio = result->micros > 0 ? result->copy / result->micros : 0;
	result->target = options->drawn ? DRAWN_TARGET : bench_target(result->group->c);
	read_torch(options->torch, result);
}

static bool is_slower(const struct bench_result *result)
{
	return (result->eager > 0 && result->eager < result->micros) ||
		   (result->compiled > 0 && result->compiled < result->micros) ||
		   (result->liger > 0 && result->liger < result->micros);
}

static bool is_low(const struct bench_result *result)
{
	return result->target > 0 && result->ratio < result->target;
}

static const char *name_of(const struct bench_item *item)
{
	return item->plan.choice[0] ? item->plan.choice : item->plan.variant;
}

/* ---- JSON ---- */

static void print_text(FILE *json, const char *name, const char *text)
{
	fprintf(json, ", \"%s\": \"", name);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			fprintf(json, "\\%c", c);
		else if (c < 0x20)
			fprintf(json, "\\u%04x", c);
		else
			fputc(c, json);
	}
	fputc('"', json);
}

static void write_json(const struct bench_options *options, const struct bench_result *r, bool own)
{
	FILE *json = options->json ? fopen(options->json, "a") : NULL;

	if (!json)
		return;
	fprintf(json, "{\"program\": \"bench_kernels\"");
	print_text(json, "way", options->mode == BENCH_DAEMON ? "daemon" : "direct");
	print_text(json, "op", r->group->c->op->name);
	print_text(json, "case", r->group->c->name);
	print_text(json, "variant", r->item->plan.variant);
	print_text(json, "choice", r->item->plan.choice);
	print_text(json, "instantiation", r->item->plan.instantiation);
	fprintf(json,
			", \"own\": %s, \"us\": %.3f, \"memcpy_us\": %.3f, \"vector_us\": %.3f, "
			"\"ratio\": %.4f, \"target\": %.2f, \"bytes\": %" PRIu64 ", \"registers\": %" PRId64
			", \"spills\": %" PRId64
			", \"torch_us\": %.2f, \"torch_compile_us\": %.2f, \"liger_us\": %.2f, "
			"\"wall_us\": %.2f",
			own ? "true" : "false", r->micros, r->copies.memcpy_us, r->copies.vectors_us, r->ratio,
			r->target, bench_bytes(r->group->c, &r->item->plan), r->registers, r->spills, r->eager,
			r->compiled, r->liger, r->wall);
	if (r->wrong[0])
		print_text(json, "wrong", r->wrong);
	fprintf(json, "}\n");
	fclose(json);
}

/* ---- The table ---- */

void bench_report_head(const struct bench_options *options)
{
	if (options->choices)
		return;
	if (options->generic) {
		printf("%9s %10s %6s %6s %7s  case, how, generic kernel\n", "exact us", "generic us",
			   "times", "ratio", "generic");
		return;
	}
	printf("%8s %8s %8s %6s %5s %5s %6s %8s %8s %8s", "kiln us", "memcpy", "vectors", "ratio",
		   "want", "", "TB/s", "torch", "compile", "liger");
	if (options->mode == BENCH_DAEMON)
		printf(" %8s", "a call");
	printf("  case, how\n");
}

static void print_time(double micros)
{
	if (micros > 0)
		printf(" %8.1f", micros);
	else
		printf(" %8s", "-");
}

static void count(const struct bench_result *result)
{
	const struct cases_case *c = result->group->c;
	struct total *total = total_of(c->op->name);

	total->rows++;
	total->wrong += result->wrong[0] != 0;
	if (result->wrong[0])
		return;
	total->low += is_low(result);
	total->slower += is_slower(result);
	total->torch += result->eager > 0 || result->compiled > 0;
	if (c->flags & CASES_BIG && result->ratio > 0) {
		total->log_ratio += log(result->ratio);
		total->large++;
		total->least = result->ratio < total->least ? result->ratio : total->least;
	}
}

void bench_report(const struct bench_options *options, struct bench_result *result)
{
	const struct cases_case *c = result->group->c;

	complete(options, result);
	count(result);
	write_json(options, result, true);
	bench_spread_row(options, result);
	bench_spread_note(result, NULL);
	if (result->wrong[0]) {
		printf("FAIL %s, %s: %s\n", c->name, name_of(result->item), result->wrong);
		fflush(stdout);
		return;
	}
	printf("%8.1f %8.1f %8.1f %6.3f", result->micros, result->copies.memcpy_us,
		   result->copies.vectors_us, result->ratio);
	if (result->target > 0)
		printf(" %5.2f %5s", result->target, is_low(result) ? "low" : "");
	else
		printf(" %5s %5s", "-", "");
	printf(" %6.2f", (double)bench_bytes(c, &result->item->plan) / result->micros / 1e6);
	print_time(result->eager);
	print_time(result->compiled);
	print_time(result->liger);
	if (options->mode == BENCH_DAEMON)
		print_time(result->wall);
	printf("  %s%s, %s\n", is_slower(result) ? "SLOWER " : "", c->name, name_of(result->item));
	fflush(stdout);
}

/* ---- The generic kernel ---- */

void bench_report_generic(const struct bench_options *options, struct bench_result results[2])
{
	const struct bench_result *own = &results[0], *generic = &results[1];
	const struct cases_case *c = own->group->c;
	struct total *total = total_of(c->op->name);
	double times;

	for (int i = 0; i < 2; i++) {
		complete(options, &results[i]);
		write_json(options, &results[i], i == 0);
		if (results[i].wrong[0])
			printf("FAIL %s, %s: %s\n", c->name, name_of(results[i].item), results[i].wrong);
	}
	count(own);
	total->wrong += generic->wrong[0] != 0;
	if (!own->wrong[0] && !generic->wrong[0] && own->micros > 0) {
		times = generic->micros / own->micros;
		total->log_times += log(times);
		total->most_times = times > total->most_times ? times : total->most_times;
		total->generics++;
		printf("%9.1f %10.1f %6.3f %6.3f %7.3f  %s, %s, %s\n", own->micros, generic->micros, times,
			   own->ratio, generic->ratio, c->name, name_of(own->item),
			   generic->item->plan.instantiation);
	}
	fflush(stdout);
}

static void print_times(void)
{
	printf("%-26s %5s %8s %6s   generic / exact\n", "operator", "rows", "geomean", "most");
	for (int i = 0; i < totals->count; i++) {
		const struct total *t = &totals->ops[i];
		if (t->generics)
			printf("%-26s %5d %8.3f %6.3f\n", t->op, t->generics, exp(t->log_times / t->generics),
				   t->most_times);
	}
}

/* ---- Candidates ---- */

/* After the sort: the best first. */
static void note_gain(const struct bench_result *best, double own)
{
	if (best->wrong[0] || best->ratio < own + GAIN || totals->gain_count == MOST_GAINS)
		return;
	struct gain *gain = &totals->gains[totals->gain_count++];
	gain->name = best->group->c->name;
	gain->own = own;
	gain->best = best->ratio;
	snprintf(gain->choice, sizeof(gain->choice), "%s", name_of(best->item));
}

/* Right results stand before wrong ones, the fastest first. */
static int by_time(const void *a, const void *b)
{
	const struct bench_result *x = a, *y = b;
	bool x_wrong = x->wrong[0], y_wrong = y->wrong[0];

	if (x_wrong != y_wrong)
		return x_wrong - y_wrong;
	return (x->micros > y->micros) - (x->micros < y->micros);
}

void bench_report_choices(const struct bench_options *options, struct bench_result *results,
						  int number)
{
	const struct cases_case *c = results[0].group->c;
	const struct bench_item *own = results[0].item;
	struct bench_result planned;
	double own_ratio = 0;

	for (int i = 0; i < number; i++) {
		complete(options, &results[i]);
		write_json(options, &results[i], i == 0);
		bench_spread_row(options, &results[i]);
	}
	count(&results[0]);
	own_ratio = results[0].ratio;
	planned = results[0];
	qsort(results, (size_t)number, sizeof(*results), by_time);
	bench_spread_note(&planned, &results[0]);
	if (options->drawn) {
		printf("%8.1f us, copy %.1f, own %.3f, best %.3f of %d  %s, %s; %s\n", planned.micros,
			   planned.copy, own_ratio, results[0].ratio, number, c->name, name_of(own),
			   name_of(results[0].item));
		fflush(stdout);
		return;
	}
	printf("%s\n  copy %.1f us (memcpy %.1f, vectors %.1f), want %.2f", c->name, results[0].copy,
		   results[0].copies.memcpy_us, results[0].copies.vectors_us, results[0].target);
	if (results[0].eager > 0 || results[0].compiled > 0)
		printf(", torch %.1f, torch.compile %.1f, Liger %.1f", results[0].eager,
			   results[0].compiled, results[0].liger);
	printf("; own %.3f, best %.3f\n", own_ratio, results[0].wrong[0] ? 0 : results[0].ratio);
	for (int i = 0; i < number; i++) {
		const struct bench_result *r = &results[i];
		if (r->wrong[0]) {
			printf("  WRONG %-40s %s\n", name_of(r->item), r->wrong);
			continue;
		}
		printf("  %5.3f %9.1f us  %-40s %3" PRId64 " registers", r->ratio, r->micros,
			   name_of(r->item), r->registers);
		if (r->spills > 0)
			printf(", %" PRId64 " bytes spilled", r->spills);
		printf("%s\n", r->item == own ? "  <- the planner's" : "");
	}
	fflush(stdout);
	note_gain(&results[0], own_ratio);
	/* The planner's own was counted above. */
	for (int i = 0; i < number; i++)
		total_of(c->op->name)->wrong += results[i].wrong[0] && results[i].item != own;
}

/* ---- Totals ---- */

bool bench_report_end(const struct bench_options *options, int unreached)
{
	int wrong = 0, rows = 0;

	printf("%-26s %5s %8s %6s %6s %7s %6s\n", "operator", "rows", "geomean", "least", "low",
		   "slower", "wrong");
	for (int i = 0; i < totals->count; i++) {
		const struct total *t = &totals->ops[i];
		printf("%-26s %5d ", t->op, t->rows);
		if (t->large)
			printf("%8.3f %6.3f", exp(t->log_ratio / t->large), t->least);
		else
			printf("%8s %6s", "-", "-");
		printf(" %6d ", t->low);
		if (options->torch)
			printf("%3d/%-3d", t->slower, t->torch);
		else
			printf("%7s", "-");
		printf(" %6d\n", t->wrong);
		wrong += t->wrong;
		rows += t->rows;
	}
	bench_spread_print();
	if (options->generic)
		print_times();
	if (totals->gain_count)
		printf("a candidate beats the planner's own by %.2f and more:\n", GAIN);
	for (int i = 0; i < totals->gain_count; i++)
		printf("  %.3f -> %.3f  %-40s %s\n", totals->gains[i].own, totals->gains[i].best,
			   totals->gains[i].choice, totals->gains[i].name);
	printf("low: large cases below their target; slower: than PyTorch; geomean, least: of copy / "
		   "kiln over large cases\n");
	if (unreached)
		printf("%d cases were not reached within %.0f s\n", unreached, options->seconds);
	return wrong == 0 && rows > 0;
}
