/*
 * permute_box.h: the box of a permute, as permute_box_find.c makes it, permute_box_pick.c compares
 * it and permute_box.c plans it.
 */
#ifndef KILN_DAEMON_PLAN_PERMUTE_BOX_H
#define KILN_DAEMON_PLAN_PERMUTE_BOX_H

#include "permute.h"

enum box_side { SIDE_X, SIDE_Y, SIDES };

struct box {
	const struct permute_form *form; /* its own */
	struct permute_form words;
	int64_t most;                     /* elements */
	int64_t extent[PERMUTE_MAX_DIMS]; /* elements of each dimension; 0: it is not in the box */
	int run[SIDES][PERMUTE_MAX_DIMS]; /* the dimensions of a run, fastest first */
	int run_dims[SIDES];
	int64_t length[SIDES]; /* elements of a run */
	int part[SIDES];       /* the dimension at the run's end of which a part is taken; -1 */
	bool ended[SIDES];
	bool next;    /* boxes of the next item go on where runs of y end, and come first */
	int64_t hole; /* elements behind each of x's first dimension, which are read with it */
	int64_t count;
	int64_t near[PERMUTE_MAX_DIMS]; /* strides in shared memory, bytes */
	uint32_t shared;
};

/* The box of a choice; false: there is none, and why was added. */
bool permute_box_find(const struct permute_form *form, const struct permute_choice *c,
					  struct box *box, struct plan_text *why);
/* Is a part taken of the dimension?  Is it the one whose size is a matter of the launch? */
bool permute_box_is_part(const struct box *box, int dim);
bool permute_box_is_batch(const struct permute_form *form, int dim);
/* The dimensions that number the runs of a side, a part of one last: how many. */
int permute_box_numbering(const struct box *box, enum box_side side, int dims[PERMUTE_MAX_DIMS]);
/* The runs of a side, all of a whole box. */
uint32_t permute_box_runs(const struct box *box, enum box_side side);
/* The dimensions that are not in the box; behind them batches of which it takes a part. */
void permute_box_batch(const struct box *box, struct permute_batch *batch);
/* Places of runs are noted behind the box, in 32 or 64 bits and as many again; false: they would be
 * a large part of it. */
bool permute_box_notes(struct box *box, uint32_t *notes);
/* Candidates, the best first. */
void permute_box_suggest(struct permute_list *list, struct plan_text *why);

#endif
