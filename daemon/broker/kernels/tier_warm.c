/*
 * tier_warm.c: generic kernels from the start.  Each device process gets all of them, from the
 * cache or from a compiler that no program waits for, so that no shape has to wait for a compile.
 * They are hundreds, and those of an operator that a program asks for come first.
 */
#include "tier.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/plan/plan.h"
#include "daemon/base/util.h"

#define AT_ONCE_MOST 8

/* The generic kernels of one operator in one device process. */
struct warm_op {
	const struct plan_op *op;
	int next; /* the kernel to begin */
	bool asked, done;
};

/* The warming of one device process.  Freed by tier_warm_forget() or tier_warm_free(). */
struct warming {
	struct broker *broker;
	struct device_handle *executor;
	uint64_t generation; /* of the process that gets them */
	struct warm_op *ops; /* op_count of them */
	int op_count;
	uint64_t resident, failed; /* kernels so far */
	int under_way;
	bool stopped;
	struct warm_item *items;
	struct warming *next;
};

/* One kernel on its way; it is freed by item_end(). */
struct warm_item {
	struct warming *warming;
	struct kernel_ref *ref;
	uint64_t generation;   /* of the process that it was begun for */
	struct job_wait *wait; /* NULL: it is being loaded */
	struct warm_item *next;
};

static void go_on(struct warming *warming);

static void item_end(struct warm_item *item, bool well)
{
	struct warming *warming = item->warming;
	struct warm_item **link = &warming->items;
	while (*link != item)
		link = &(*link)->next;
	*link = item->next;
	if (item->generation == warming->generation)
		*(well ? &warming->resident : &warming->failed) += 1;
	warming->under_way--;
	kernel_drop(item->ref);
	free(item);
}

static void on_tier_warm_loaded(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct warm_item *item = arg;
	struct warming *warming = item->warming;
	(void)reply;
	if (status == KILN_OK)
		handle_keep(warming->executor, item->ref->key);
	else if (status != KILN_EDEVICE)
		util_log(UTIL_WARN, "the generic kernel %s cannot be loaded: %s",
				 item->ref->plan.instantiation, error);
	item_end(item, status == KILN_OK);
	go_on(warming);
}

static void on_tier_warm_answer(void *arg, const struct job_answer *answer)
{
	struct warm_item *item = arg;
	struct warming *warming = item->warming;
	struct kernel_ref *ref = item->ref;
	int status = answer->status;
	item->wait = NULL;
	/* The process may have come back with another device. */
	bool fits = !strcmp(ref->target, handle_device(warming->executor)->info.limits.target);
	if (status == KILN_OK && fits) {
		tier_know(warming->broker, ref, (int64_t)answer->row->object_bytes);
		status = handle_load_lazily(warming->executor, ref->key, answer->row, &ref->plan,
									on_tier_warm_loaded, item);
		if (status == KILN_OK)
			return;
	} else if (status != KILN_OK) {
		util_log(UTIL_INFO, "there is no generic kernel %s: %s", ref->plan.instantiation,
				 answer->error);
	}
	item_end(item, false);
	go_on(warming);
}

/* Operators that programs have asked for come first; NULL: there is none left. */
static struct warm_op *next_op(struct warming *warming)
{
	struct warm_op *found = NULL;
	for (int i = 0; i < warming->op_count; i++) {
		struct warm_op *each = &warming->ops[i];
		if (!each->done && (!found || (each->asked && !found->asked)))
			found = each;
	}
	return found;
}

/* Plans the next kernel; NULL past the last. */
static struct kernel_ref *next_ref(struct warming *warming)
{
	const struct kernel_limits *limits = &handle_device(warming->executor)->info.limits;
	char error[KERNEL_ERROR_MAX];
	struct warm_op *of;
	while ((of = next_op(warming))) {
		struct kernel_plan plan;
		struct kernel_ref *ref = NULL;
		if (plan_generic_at(of->op, of->next, limits, &plan, error) != KILN_OK) {
			of->done = true;
			continue;
		}
		of->next++;
		if (job_open_plan(warming->broker, &plan, limits, &ref, error) == KILN_OK)
			return ref;
		util_log(UTIL_WARN, "%s", error);
		return NULL;
	}
	return NULL;
}

static void go_on(struct warming *warming)
{
	/* A daemon that compiles nothing for programs compiles nothing before they come. */
	const struct job_terms terms = {
		.priority = POOL_BACKGROUND,
		.purpose = warming->broker->options.on_miss >= OPTIONS_MISS_FALLBACK ? JOB_LOOK : JOB_CALL};
	uint64_t workers = warming->broker->options.workers;
	int most = workers <= 2 ? 1 : workers > AT_ONCE_MOST ? AT_ONCE_MOST : (int)workers - 1;
	struct kernel_ref *ref;
	if (!handle_is_ready(warming->executor) ||
		warming->generation != handle_generation(warming->executor))
		return;
	while (!warming->stopped && warming->under_way < most && (ref = next_ref(warming))) {
		struct warm_item *item = util_alloc(sizeof(*item));
		*item = (struct warm_item){.warming = warming,
								   .ref = ref,
								   .generation = warming->generation,
								   .next = warming->items};
		warming->items = item;
		warming->under_way++;
		item->wait = job_resolve(warming->broker, ref, &terms, on_tier_warm_answer, item);
		if (!item->wait)
			item_end(item, false);
	}
}

static bool is_wanted(const struct broker *broker, const struct device_handle *executor)
{
	const struct options *options = &broker->options;
	return !handle_is_own(executor) && options->specialize != OPTIONS_EAGER &&
		   options->on_miss != OPTIONS_MISS_ERROR && options->warm_generics != OPTIONS_WARM_NONE &&
		   (options->warm_generics == OPTIONS_WARM_ALL || !device_is_cpu(handle_device(executor)));
}

static struct warming *warming_new(struct broker *broker, struct device_handle *executor)
{
	struct warming *warming = util_alloc(sizeof(*warming));
	*warming = (struct warming){.broker = broker, .executor = executor};
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op))
		warming->op_count++;
	warming->ops = util_alloc((size_t)warming->op_count * sizeof(*warming->ops));
	return warming;
}

static void warming_free(struct warming *warming)
{
	free(warming->ops);
	free(warming);
}

/* Operators that programs asked for of the process before stay the first. */
static void begin(struct warming *warming)
{
	const struct plan_op *op = NULL;
	warming->generation = handle_generation(warming->executor);
	warming->resident = warming->failed = 0;
	for (int i = 0; i < warming->op_count; i++) {
		op = plan_op_next(op);
		warming->ops[i] = (struct warm_op){.op = op, .asked = warming->ops[i].asked};
	}
}

/* Items that were on their way to the process before end by themselves, uncounted. */
void tier_warm(struct broker *broker, struct device_handle *executor)
{
	struct warming **link = &broker->tiers->warming;
	if (!handle_is_ready(executor) || !is_wanted(broker, executor))
		return;
	while (*link && (*link)->executor != executor)
		link = &(*link)->next;
	if (*link && (*link)->generation == handle_generation(executor))
		return;
	if (!*link)
		*link = warming_new(broker, executor);
	begin(*link);
	go_on(*link);
}

void tier_warm_first(struct broker *broker, const struct device_handle *executor, const char *op)
{
	for (struct warming *warming = broker->tiers->warming; warming; warming = warming->next) {
		for (int i = 0; i < warming->op_count && warming->executor == executor; i++)
			if (!strcmp(warming->ops[i].op->name, op))
				warming->ops[i].asked = true;
	}
}

void tier_warm_forget(struct broker *broker, struct device_handle *executor)
{
	struct warming **link = &broker->tiers->warming;
	while (*link && (*link)->executor != executor)
		link = &(*link)->next;
	struct warming *warming = *link;
	if (!warming)
		return;
	*link = warming->next;
	while (warming->items) {
		struct warm_item *item = warming->items;
		if (item->wait)
			job_leave(broker, item->wait);
		item_end(item, false);
	}
	warming_free(warming);
}

static uint64_t count_generics(void)
{
	uint64_t count = 0;
	for (const struct plan_op *op = plan_op_next(NULL); op; op = plan_op_next(op))
		for (int i = 0; op->generics; i++, count++) {
			struct kernel_problem problem = {0};
			if (op->generics(i, &problem) != KILN_OK)
				break;
		}
	return count;
}

void tier_warmth(struct broker *broker, struct tier_warmth *out)
{
	uint64_t each = count_generics();
	*out = (struct tier_warmth){0};
	for (const struct warming *warming = broker->tiers->warming; warming; warming = warming->next) {
		out->kernels += each;
		out->resident += warming->resident;
		out->failed += warming->failed;
		out->warming = out->warming || warming->under_way;
	}
}

void tier_warm_stop(struct broker *broker)
{
	for (struct warming *warming = broker->tiers->warming; warming; warming = warming->next) {
		warming->stopped = true;
		for (struct warm_item *item = warming->items; item; item = item->next) {
			if (item->wait)
				job_leave(broker, item->wait);
			item->wait = NULL;
		}
	}
}

void tier_warm_free(struct broker *broker)
{
	struct warming *warming;
	while ((warming = broker->tiers->warming)) {
		broker->tiers->warming = warming->next;
		while (warming->items) {
			struct warm_item *item = warming->items;
			warming->items = item->next;
			kernel_drop(item->ref);
			free(item);
		}
		warming_free(warming);
	}
}
