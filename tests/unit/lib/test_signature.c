/*
 * test_signature.c: the table of remembered calls: every part of a signature tells calls apart,
 * what is no part of it does not, equal hashes are not equal signatures, and the table stays within
 * its bounds by forgetting what was used longest ago.
 */
#include "client/lib/buffer.h"
#include "client/lib/call.h"
#include "client/lib/signature.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The arguments of a call, to be varied. */
struct problem {
	char op[16];
	kiln_tensor tensors[KILN_MAX_OPERANDS];
	int tensor_count;
	kiln_attr attrs[KILN_MAX_ATTRS];
	int attr_count;
	int64_t ints[4];
};

static struct kiln_client *const owner = (struct kiln_client *)0x1000; /* never looked into */

/* Calls are told apart by their address alone. */
static struct kiln_call calls[2 * SIGNATURE_CALLS];

static const kiln_attr zero_attrs[] = {
	{.name = "n", .kind = KILN_ATTR_INT, .i = 0},
	{.name = "f", .kind = KILN_ATTR_REAL, .f = 0.0},
	{.name = "perm", .kind = KILN_ATTR_INTS, .count = 3},
	{.name = "kind", .kind = KILN_ATTR_STRING, .s = "full"},
};

static struct problem plain(void)
{
	struct problem p = {
		.op = "norm", .tensor_count = 3, .attr_count = 4, .ints = {2, 0, 1, INT64_MAX}};
	for (int i = 0; i < 3; i++) {
		p.tensors[i] = (kiln_tensor){.dtype = KILN_F32,
									 .rank = 3,
									 .contiguous = i != 1,
									 .shape = {4, 5, 6},
									 .stride = {30, 6, 1}};
	}
	memcpy(p.attrs, zero_attrs, sizeof(zero_attrs));
	return p;
}

static bool ask(struct signatures *table, struct problem *p)
{
	for (int i = 0; i < p->attr_count && i < KILN_MAX_ATTRS; i++)
		if (p->attrs[i].kind == KILN_ATTR_INTS && !p->attrs[i].ints)
			p->attrs[i].ints = p->ints;
	return signature_ask(table, owner, p->op, p->tensors, p->tensor_count, p->attrs, p->attr_count);
}

static struct kiln_call *find(struct signatures *table, struct problem p)
{
	assert_true(ask(table, &p));
	return signature_find(table);
}

/* Remembers them under the next call. */
static struct kiln_call *learn(struct signatures *table, struct problem p)
{
	struct kiln_call *call = &calls[table->count];
	assert_null(find(table, p));
	assert_false(signature_is_full(table));
	assert_true(signature_remember(table, call));
	assert_ptr_equal(find(table, p), call);
	return call;
}

static struct signatures *fresh(void)
{
	struct signatures *table = signatures_new();
	assert_non_null(table);
	return table;
}

static void drop(struct signatures *table)
{
	while (signature_forget_oldest(table) != NULL) {
	}
	assert_int_equal(table->count, 0);
	assert_int_equal(table->bytes, 0);
	assert_null(table->newest);
	signatures_free(table);
}

/* ---- What tells calls apart ---- */

/* Each of these is another signature than all the others. */
#define VARY(statement)             \
	do {                            \
		struct problem p = plain(); \
		statement;                  \
		learn(table, p);            \
	} while (0)

static void every_part_counts(void **state)
{
	(void)state;
	struct signatures *table = fresh();
	kiln_buffer off = {.client = owner, .phase = 4}, even = {.client = owner, .phase = 8};

	struct kiln_call *first = learn(table, plain());
	VARY(memcpy(p.op, "norn", 5));
	VARY(memcpy(p.op, "norm2", 6));
	VARY(p.tensor_count = 2);
	VARY(p.tensor_count = 0);
	for (int dtype = KILN_BOOL; dtype <= KILN_F8E5M2; dtype++)
		if (dtype != KILN_F32)
			VARY(p.tensors[2].dtype = (kiln_dtype)dtype);
	VARY(p.tensors[0].dtype = KILN_F16);
	VARY(p.tensors[2] = (kiln_tensor){.dtype = KILN_DTYPE_NONE});
	VARY(p.tensors[0] = (kiln_tensor){.dtype = KILN_DTYPE_NONE});
	for (int rank = 0; rank <= KILN_MAX_RANK; rank++) {
		if (rank != 3) {
			VARY(p.tensors[0].rank = rank);
			VARY(p.tensors[1].rank = rank);
		}
	}
	for (int axis = 0; axis < 3; axis++) {
		VARY(p.tensors[0].shape[axis] = 7);
		VARY(p.tensors[1].shape[axis] = 7);
		VARY(p.tensors[1].shape[axis] = -7);
		VARY(p.tensors[1].stride[axis] = 7);
	}
	VARY(p.tensors[0].contiguous = 0);
	VARY(p.tensors[1].contiguous = 1);
	for (unsigned offset = 1; offset < 16; offset *= 2) {
		VARY(p.tensors[0].offset = offset);
		VARY(p.tensors[2].offset = offset);
	}
	VARY(p.tensors[0].buffer = &off; p.tensors[1].offset = 2);
	VARY(p.tensors[0].buffer = &even; p.tensors[1].offset = 2);
	VARY(p.attr_count = 3);
	VARY(p.attr_count = 0);
	VARY(p.attrs[0].name = "m");
	VARY(p.attrs[0].name = "nn");
	VARY(p.attrs[0].i = 1);
	VARY(p.attrs[0].i = -1);
	VARY(p.attrs[0].kind = KILN_ATTR_REAL);
	VARY(p.attrs[1].kind = KILN_ATTR_INT);
	VARY(p.attrs[1].f = 1e-5);
	VARY(p.attrs[1].f = -0.0);
	VARY(p.attrs[2].count = 2);
	VARY(p.attrs[2].count = 4);
	VARY(p.attrs[2].count = 0);
	VARY(p.ints[1] = 3);
	VARY(p.attrs[3].s = "fulk");
	VARY(p.attrs[3].s = "full and more than eight bytes");
	VARY(p.attrs[3].s = "full and more than eight byteS");
	VARY(p.attrs[3].s = "");
	VARY(p.attrs[0] = plain().attrs[1]; p.attrs[1] = plain().attrs[0]);
	assert_ptr_equal(find(table, plain()), first);
	drop(table);
}

/* Where the data lie does not count, if they lie as well. */
static void the_rest_does_not(void **state)
{
	(void)state;
	struct signatures *table = fresh();
	kiln_buffer buffer = {.client = owner, .id = 7, .bytes = 100}, off = {.client = owner};
	struct kiln_call *call = learn(table, plain());
	struct problem p = plain();
	off.phase = 8;
	p.tensors[0].buffer = &buffer;
	p.tensors[0].offset = 4096;
	p.tensors[1].buffer = &off;
	p.tensors[1].offset = 8;
	p.tensors[2].contiguous = 17;
	p.tensors[2].stride[0] = 1;
	p.tensors[2].shape[3] = 9; /* beyond its rank */
	p.attrs[0].f = 3;          /* no part of an integer */
	p.ints[3] = 0;
	assert_ptr_equal(find(table, p), call);

	struct problem none = plain();
	none.tensors[1] = (kiln_tensor){.dtype = KILN_DTYPE_NONE};
	call = learn(table, none);
	none.tensors[1] =
		(kiln_tensor){.offset = 3, .dtype = KILN_DTYPE_NONE, .rank = 2, .shape = {3, 3}};
	assert_ptr_equal(find(table, none), call);
	drop(table);
}

/* Wrong arguments have no signature. */
#define REFUSE(statement)             \
	do {                              \
		struct problem p = plain();   \
		statement;                    \
		assert_false(ask(table, &p)); \
	} while (0)

static void wrong_arguments_have_none(void **state)
{
	(void)state;
	struct signatures *table = fresh();
	kiln_buffer stranger = {.client = NULL}, buffer = {.client = owner};
	char *text = malloc(SIGNATURE_WORDS * 8 + 1);
	assert_non_null(text);
	REFUSE(p.op[0] = 0);
	assert_false(signature_ask(table, owner, NULL, NULL, 0, NULL, 0));
	assert_false(signature_ask(table, owner, "norm", NULL, 1, NULL, 0));
	assert_false(signature_ask(table, owner, "norm", NULL, 0, NULL, 1));
	REFUSE(p.tensor_count = -1);
	REFUSE(p.tensor_count = KILN_MAX_OPERANDS + 1);
	REFUSE(p.attr_count = -1);
	REFUSE(p.attr_count = KILN_MAX_ATTRS + 1);
	REFUSE(p.tensors[1].rank = -1);
	REFUSE(p.tensors[1].rank = KILN_MAX_RANK + 1);
	REFUSE(p.tensors[1].buffer = &stranger);
	REFUSE(p.tensors[1].buffer = &buffer; p.tensors[1].dtype = KILN_DTYPE_NONE);
	REFUSE(p.attrs[1].name = NULL);
	REFUSE(p.attrs[1].name = "");
	REFUSE(p.attrs[1].kind = (kiln_attr_kind)9);
	REFUSE(p.attrs[2].count = -1);
	REFUSE(p.attrs[2].count = INT32_MAX);
	REFUSE(p.attrs[3].s = NULL);
	assert_false(signature_ask(table, owner, "norm", NULL, 0,
							   &(kiln_attr){.name = "perm", .kind = KILN_ATTR_INTS, .count = 1},
							   1));
	/* The longest that is remembered, and one byte more: 6 words stand before it. */
	size_t longest = (SIGNATURE_WORDS - 6 - 1) * 8;
	kiln_attr attr = {.name = "n", .kind = KILN_ATTR_STRING, .s = text};
	memset(text, 'x', longest);
	text[longest] = 0;
	assert_true(signature_ask(table, owner, "o", NULL, 0, &attr, 1));
	assert_int_equal(table->words, SIGNATURE_WORDS);
	memcpy(&text[longest], "x", 2);
	assert_false(signature_ask(table, owner, "o", NULL, 0, &attr, 1));
	free(text);
	drop(table);
}

/* The hash alone decides nothing. */
static void equal_hashes(void **state)
{
	(void)state;
	struct signatures *table = fresh();
	struct problem p = plain();
	enum { MANY = 20 };
	for (int i = 0; i < MANY; i++) {
		p.tensors[0].shape[0] = 100 + i;
		assert_true(ask(table, &p));
		table->hash = 5;
		assert_null(signature_find(table));
		assert_true(signature_remember(table, &calls[i]));
	}
	for (int i = MANY - 1; i >= 0; i--) {
		p.tensors[0].shape[0] = 100 + i;
		assert_true(ask(table, &p));
		table->hash = 5;
		assert_ptr_equal(signature_find(table), &calls[i]);
		table->hash = 5 + SIGNATURE_BUCKETS; /* the same bucket */
		assert_null(signature_find(table));
	}
	/* The shorter is not the beginning of the longer. */
	p.attr_count = 0;
	assert_true(ask(table, &p));
	table->hash = 5;
	assert_null(signature_find(table));
	/* They are forgotten one at a time: found last to first, the last is the oldest. */
	for (int i = MANY - 1; i >= 0; i--)
		assert_ptr_equal(signature_forget_oldest(table), &calls[i]);
	assert_null(signature_forget_oldest(table));
	drop(table);
}

/* Another first word, or length, must not leave most in one bucket. */
static void hashes_spread(void **state)
{
	(void)state;
	struct signatures *table = fresh();
	unsigned char used[SIGNATURE_BUCKETS] = {0};
	struct problem p = plain();
	int different = 0;
	for (int i = 0; i < SIGNATURE_BUCKETS; i++) {
		p.tensors[0].shape[1] = 16 * i;
		assert_true(ask(table, &p));
		different += used[table->hash % SIGNATURE_BUCKETS]++ == 0;
	}
	assert_true(different > SIGNATURE_BUCKETS / 2); /* by chance it would be 63 in 100 */
	drop(table);
}

/* ---- Bounds ---- */

static void the_oldest_goes(void **state)
{
	(void)state;
	struct signatures *table = fresh();
	struct problem p = plain();
	for (int i = 0; i < SIGNATURE_CALLS; i++) {
		p.tensors[0].shape[0] = i;
		learn(table, p);
	}
	assert_true(signature_is_full(table));
	for (int i = 0; i < SIGNATURE_CALLS; i += 2) {
		p.tensors[0].shape[0] = i;
		assert_ptr_equal(find(table, p), &calls[i]);
	}
	/* First those that were not used again, in their order; then the others in that of the use. */
	for (int i = 0; i < SIGNATURE_CALLS; i++) {
		int oldest = i < SIGNATURE_CALLS / 2 ? 2 * i + 1 : 2 * (i - SIGNATURE_CALLS / 2);
		assert_ptr_equal(signature_forget_oldest(table), &calls[oldest]);
		assert_false(signature_is_full(table));
		p.tensors[0].shape[0] = oldest;
		assert_null(find(table, p));
	}
	drop(table);
}

static void bytes_are_bounded(void **state)
{
	(void)state;
	struct signatures *table = fresh();
	static char text[SIGNATURE_WORDS * 7];
	kiln_attr attrs[] = {{.name = "s", .kind = KILN_ATTR_STRING, .s = text},
						 {.name = "i", .kind = KILN_ATTR_INT}};
	size_t known = 0;
	memset(text, 'x', sizeof(text) - 1);
	for (;; known++) {
		attrs[1].i = (int64_t)known;
		assert_true(signature_ask(table, owner, "norm", NULL, 0, attrs, 2));
		if (signature_is_full(table))
			break;
		assert_true(signature_remember(table, &calls[known]));
		assert_true(table->bytes <= SIGNATURE_BYTES);
	}
	assert_int_equal(known, table->count);
	assert_in_range(known, 100, SIGNATURE_CALLS - 1);
	assert_ptr_equal(signature_forget_oldest(table), &calls[0]);
	assert_false(signature_is_full(table));
	drop(table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_part_counts),
		cmocka_unit_test(the_rest_does_not),
		cmocka_unit_test(wrong_arguments_have_none),
		cmocka_unit_test(equal_hashes),
		cmocka_unit_test(hashes_spread),
		cmocka_unit_test(the_oldest_goes),
		cmocka_unit_test(bytes_are_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
