/*
 * place: the memory of one operand: held by the daemon, shared, or lent, with poison on both sides.
 */
#ifndef KILN_TESTS_SOAK_PLACE_H
#define KILN_TESTS_SOAK_PLACE_H

#include "client.h"

struct place {
	const struct cases_operand *operand; /* NULL: left out */
	kiln_buffer *buffer;
	uint64_t begin, bytes; /* of the first element; of all */
	uint64_t seed;
	unsigned char *sent, *back; /* what was put there, what has come back */
	unsigned char *map;         /* shared memory; NULL: copies are made by calls */
	void *lent;                 /* map of a descriptor of our own, to be unmapped */
	uint64_t pointer;           /* memory of CUDA's, lent */
};

/* Makes memory for the operand, of a random kind, and fills it: an input with data, an output with
 * poison, and poison around.  False: the step is over, but place_close() must still come. */
bool place_open(struct me *me, struct place *place, const struct cases_operand *operand,
				int number);
/* Gets what is there, and looks whether anything was written that must not be: around the operand,
 * and in an input, or in an output that nobody may have written. */
bool place_check(struct me *me, struct place *place, int number, bool written);
void place_close(struct me *me, struct place *place);

#endif
