/*
 * words.c: the words of a target, with the names of operators, attributes, operands and types from
 * the operators' rows.
 */
#include "words.h"
#include "chance.h"
#include "daemon/plan/op.h"

static const char *dtype_name(uint64_t *state)
{
#define NAME(NAME_, name, value, bytes) #name,
	static const char *const names[] = {KILN_DTYPE_LIST(NAME)};
#undef NAME
	return names[chance_pick(state, sizeof(names) / sizeof(*names))];
}

static const char *attribute_name(uint64_t *state, const struct op_attribute *attribute, char mark)
{
	size_t words = 0;
	if (mark == FUZZ_ATTRIBUTE[0])
		return attribute->name;
	while (attribute->words[words])
		words++;
	if (words)
		return attribute->words[chance_pick(state, words)];
	return attribute->usual ? attribute->usual : "1";
}

/* A name of the kind of the mark, from any row that has such. */
static const char *row_name(uint64_t *state, char mark)
{
	for (;;) {
		const struct plan_op *op = NULL;
		size_t count = 0;
		for (size_t left = 1 + chance_pick(state, 64); left > 0; left--)
			op = plan_op_next(op);
		if (!op)
			op = plan_op_next(NULL);
		if (mark == FUZZ_OPERATOR[0])
			return op->name;
		if (mark == FUZZ_OPERAND[0]) {
			while (op->operands[count].name)
				count++;
			return op->operands[chance_pick(state, count)].name;
		}
		while (op->attributes[count].name)
			count++;
		if (count)
			return attribute_name(state, &op->attributes[chance_pick(state, count)], mark);
	}
}

const char *fuzz_word(uint64_t *state)
{
	static char made[8][128];
	static size_t turn;
	static const char marks[] = FUZZ_OPERATOR FUZZ_ATTRIBUTE FUZZ_VALUE FUZZ_OPERAND FUZZ_DTYPE;
	char *to = made[turn++ % 8];
	size_t count = 0, used = 0;

	while (fuzz_words[count])
		count++;
	const char *word = fuzz_words[chance_pick(state, count)];
	if (!strpbrk(word, marks))
		return word;
	for (; *word; word++) {
		char own[2] = {*word, 0};
		const char *piece = !strchr(marks, *word)    ? own
							: *word == FUZZ_DTYPE[0] ? dtype_name(state)
													 : row_name(state, *word);
		used += (size_t)snprintf(to + used, sizeof(made[0]) - used, "%s", piece);
		require(used < sizeof(made[0]), "a word that is too long");
	}
	return to;
}
