/*
 * tuned_scene.h: a class of permutes, which one winner of tuning is for, as explain tells it, and
 * the rows by which a test says who won.
 */
#ifndef KILN_TESTS_TUNED_SCENE_H
#define KILN_TESTS_TUNED_SCENE_H

#include "harness.h"

#include <stdio.h>

struct tuned_class {
	struct permute problem; /* one of them */
	char model[96], target[16], signature[1100];
	char choices[2][64]; /* the first candidates; the planner's own is the first of all */
	int count;           /* of candidates */
};

/* choice: the kernel that the caller names, or NULL. */
static inline kiln_reply *tuned_explain(kiln_client *client, const struct permute *problem,
										const char *choice)
{
	kiln_tensor x = permute_input(problem, NULL);
	kiln_attr attrs[2] = {perm_attr(problem), string_attr("choice", choice)};
	kiln_reply *reply;
	if (kiln_explain(client, "permute", &x, 1, attrs, choice ? 2 : 1, NULL, &reply))
		fail_msg("explain: %s", kiln_errmsg());
	return reply;
}

static inline struct tuned_class tuned_class_of(kiln_client *client, const struct permute *problem)
{
	kiln_reply *reply = tuned_explain(client, problem, NULL);
	struct tuned_class class = {.problem = *problem, .count = kiln_reply_count(reply, "choices")};
	snprintf(class.model, sizeof(class.model), "%s", kiln_reply_str(reply, "model"));
	snprintf(class.target, sizeof(class.target), "%s", kiln_reply_str(reply, "target"));
	snprintf(class.signature, sizeof(class.signature), "%s", kiln_reply_str(reply, "signature"));
	snprintf(class.choices[0], 64, "%s", kiln_reply_str(reply, "choices[0]"));
	snprintf(class.choices[1], 64, "%s", kiln_reply_str(reply, "choices[1]"));
	kiln_reply_free(reply);
	return class;
}

enum { TUNED_ARGS = 10, TUNED_MODEL = 0, TUNED_SIGNATURE = 2, TUNED_CHOICE = 4, TUNED_MICROS = 5 };

/* Fills in the arguments of tuned.put, of which the first three name the row. */
static inline void tuned_row(const struct tuned_class *class, const char *choice, int64_t when,
							 kiln_attr args[TUNED_ARGS])
{
	args[0] = string_attr("model", class->model);
	args[1] = string_attr("target", class->target);
	args[2] = string_attr("signature", class->signature);
	args[3] = string_attr("op", "permute");
	args[4] = string_attr("choice", choice);
	args[5] = (kiln_attr){.name = "micros", .kind = KILN_ATTR_REAL, .f = 253.2};
	args[6] = (kiln_attr){.name = "own_micros", .kind = KILN_ATTR_REAL, .f = 270};
	args[7] = int_attr("candidates", 12);
	args[8] = int_attr("when", when);
	args[9] = string_attr("version", "0.1.0");
}

#endif
