/*
 * mutate_steps.c: for targets that are talked to (steps.h): steps are doubled, moved and left out,
 * messages made from the target's table or changed as the trees of values that they are, so that
 * what comes out is nearly always a message; and now and then bytes are changed blindly.
 */
#include "chance.h"
#include "client/wire/wire.h"
#include "steps.h"
#include "words.h"

#include <kiln/kiln.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

#define MESSAGE_MOST 4096

/* ---- Values ---- */

static uint64_t a_number(uint64_t *state)
{
	static const uint64_t odd[] = {
		0,        1,         2,          3,          4,         7,          8,         15,
		16,       17,        64,         255,        256,       257,        4096,      65535,
		1u << 20, INT32_MAX, UINT32_MAX, 1ull << 46, INT64_MAX, 1ull << 63, UINT64_MAX};
	if (chance_pick(state, 2))
		return chance_pick(state, 12);
	return odd[chance_pick(state, sizeof(odd) / sizeof(*odd))];
}

static void put_any(uint64_t *state, struct wire_out *out, const char *key, int depth)
{
	static const uint8_t bytes[64] = {1};
	switch (chance_pick(state, depth > 3 ? 7 : 9)) {
	case 0:
	case 1:
	case 2:
		wire_put_uint(out, key, a_number(state));
		return;
	case 3:
		wire_put_int(out, key, -(int64_t)(a_number(state) / 2));
		return;
	case 4:
		wire_put_str(out, key, fuzz_word(state));
		return;
	case 5:
		wire_put_bin(out, key, bytes, chance_pick(state, 2) ? 64 : chance_pick(state, 65));
		return;
	case 6:
		if (chance_pick(state, 2))
			wire_put_real(out, key, (double)a_number(state) * 0.75);
		else
			wire_put_bool(out, key, chance_pick(state, 2));
		return;
	case 7:
		wire_list_begin(out, key);
		for (size_t left = chance_pick(state, 5); left > 0; left--)
			put_any(state, out, NULL, depth + 1);
		wire_list_end(out);
		return;
	default:
		wire_map_begin(out, key);
		put_any(state, out, fuzz_word(state), depth + 1);
		wire_map_end(out);
	}
}

/* The next name of "buf, bytes, kind: ipc|fd, rows: [{name}], flags?"; false behind the last. */
static bool next_member(const char **members, char name[32])
{
	const char *at = *members;
	size_t length = 0;
	int depth = 0;
	while (*at == ' ' || *at == ',')
		at++;
	for (; *at && (depth > 0 || *at != ','); at++) {
		depth += *at == '[' || *at == '{' || *at == '(';
		depth -= *at == ']' || *at == '}' || *at == ')';
		bool part = (*at >= 'a' && *at <= 'z') || *at == '_';
		if (part && depth == 0 && length < 31 &&
			length == (size_t)(at - *members) - strspn(*members, " ,"))
			name[length++] = *at;
	}
	name[length] = 0;
	*members = at;
	return length > 0;
}

static size_t take(struct wire_out *out, uint8_t to[MESSAGE_MOST])
{
	size_t size =
		wire_end(out) == KILN_OK && out->buffer.size <= MESSAGE_MOST ? out->buffer.size : 0;
	if (size)
		memcpy(to, out->buffer.data, size);
	wire_out_free(out);
	return size;
}

/* A message of the table with values of any kind; 0: too long. */
static size_t make_message(uint64_t *state, uint8_t to[MESSAGE_MOST])
{
	struct wire_out out;
	char member[32];
	size_t count = 0;
	while (fuzz_messages[count].name)
		count++;
	const struct steps_message *row = &fuzz_messages[chance_pick(state, count)];
	const char *members = row->members;
	wire_begin(&out, row->name, 1 + chance_pick(state, 1000));
	while (next_member(&members, member))
		if (chance_pick(state, 8))
			put_any(state, &out, member, 0);
	return take(&out, to);
}

/* ---- Trees ---- */

struct edit {
	uint64_t *state;
	size_t left; /* values before the one that is changed */
	struct wire_out out;
};

static size_t count_values(const msgpack_object *value)
{
	size_t count = 1;
	for (uint32_t i = 0; value->type == MSGPACK_OBJECT_ARRAY && i < value->via.array.size; i++)
		count += count_values(&value->via.array.ptr[i]);
	for (uint32_t i = 0; value->type == MSGPACK_OBJECT_MAP && i < value->via.map.size; i++)
		count += count_values(&value->via.map.ptr[i].val);
	return count;
}

static void copy(struct edit *edit, const char *key, const msgpack_object *value);

static void copy_list(struct edit *edit, const char *key, const msgpack_object *value, bool odd)
{
	uint32_t count = value->via.array.size;
	uint32_t at = count ? (uint32_t)chance_pick(edit->state, count) : 0;
	size_t how = odd ? 1 + chance_pick(edit->state, 3) : 0;
	wire_list_begin(&edit->out, key);
	for (uint32_t i = 0; i < count; i++) {
		if (how == 1 && i == at) /* is left out */
			continue;
		copy(edit, NULL, &value->via.array.ptr[i]);
		if (how == 2 && i == at)
			wire_put_value(&edit->out, NULL, &value->via.array.ptr[i]);
	}
	if (how == 3)
		put_any(edit->state, &edit->out, NULL, 2);
	wire_list_end(&edit->out);
}

static const char *a_member(uint64_t *state, char name[32])
{
	size_t count = 0;
	while (fuzz_messages[count].name)
		count++;
	const char *members = fuzz_messages[chance_pick(state, count)].members;
	for (size_t left = chance_pick(state, 6) + 1; left > 0; left--)
		if (!next_member(&members, name))
			return fuzz_word(state);
	return name;
}

static void copy_map(struct edit *edit, const char *key, const msgpack_object *value, bool odd)
{
	uint32_t count = value->via.map.size;
	uint32_t at = count ? (uint32_t)chance_pick(edit->state, count) : 0;
	size_t how = odd ? 1 + chance_pick(edit->state, 3) : 0;
	char member[32];
	wire_map_begin(&edit->out, key);
	for (uint32_t i = 0; i < count; i++) {
		const msgpack_object_kv *pair = &value->via.map.ptr[i];
		char name[64];
		if ((how == 1 && i == at) || pair->key.type != MSGPACK_OBJECT_STR)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)pair->key.via.str.size, pair->key.via.str.ptr);
		copy(edit, how == 2 && i == at ? a_member(edit->state, member) : name, &pair->val);
	}
	if (how == 3)
		put_any(edit->state, &edit->out, a_member(edit->state, member), 2);
	wire_map_end(&edit->out);
}

static void put_near(struct edit *edit, const char *key, const msgpack_object *value)
{
	uint64_t near = value->via.u64;
	switch (chance_pick(edit->state, 6)) {
	case 0:
		near++;
		break;
	case 1:
		near--;
		break;
	case 2:
		near <<= 1;
		break;
	case 3:
		near ^= 1ull << chance_pick(edit->state, 64);
		break;
	default:
		near = a_number(edit->state);
	}
	wire_put_uint(&edit->out, key, near);
}

static void copy(struct edit *edit, const char *key, const msgpack_object *value)
{
	bool odd = edit->left-- == 0;
	if (odd && chance_pick(edit->state, 6) == 0)
		put_any(edit->state, &edit->out, key, 2);
	else if (value->type == MSGPACK_OBJECT_ARRAY)
		copy_list(edit, key, value, odd);
	else if (value->type == MSGPACK_OBJECT_MAP)
		copy_map(edit, key, value, odd);
	else if (odd && value->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
		put_near(edit, key, value);
	else if (odd && value->type == MSGPACK_OBJECT_STR)
		wire_put_str(&edit->out, key, fuzz_word(edit->state));
	else if (odd)
		put_any(edit->state, &edit->out, key, 2);
	else
		wire_put_value(&edit->out, key, value);
}

/* One value of the message is another; 0: it is none, or is too long then. */
static size_t edit_message(uint64_t *state, const struct step *step, uint8_t to[MESSAGE_MOST])
{
	struct wire_in in;
	struct edit edit = {.state = state};
	size_t size = 0;
	if (wire_parse(&in, step->bytes, step->size) == KILN_OK) {
		edit.left = chance_pick(state, count_values(&in.root));
		wire_begin(&edit.out, NULL, 0);
		/* The message's own map is the one that has begun. */
		const msgpack_object *root = &in.root;
		for (uint32_t i = 0; i < root->via.map.size; i++) {
			const msgpack_object_kv *pair = &root->via.map.ptr[i];
			char name[64];
			if (pair->key.type != MSGPACK_OBJECT_STR)
				continue;
			snprintf(name, sizeof(name), "%.*s", (int)pair->key.via.str.size,
					 pair->key.via.str.ptr);
			if (chance_pick(state, 64))
				copy(&edit, name, &pair->val);
		}
		if (chance_pick(state, 16) == 0) {
			char member[32];
			put_any(state, &edit.out, a_member(state, member), 1);
		}
		size = take(&edit.out, to);
	}
	wire_in_free(&in);
	return size;
}

/* ---- Steps ---- */

struct script {
	struct step steps[STEPS_MOST];
	size_t count;
	uint8_t room[STEPS_MOST][MESSAGE_MOST];
};

static void read_script(const uint8_t *data, size_t size, struct script *script)
{
	script->count = 0;
	while (script->count < STEPS_MOST && step_next(&data, &size, &script->steps[script->count])) {
		struct step *step = &script->steps[script->count];
		uint8_t *to = script->room[script->count++];
		step->size = step->size < MESSAGE_MOST ? step->size : MESSAGE_MOST;
		memcpy(to, step->bytes, step->size);
		step->bytes = to;
	}
}

static size_t write_script(const struct script *script, uint8_t *data, size_t max)
{
	size_t size = 0;
	for (size_t i = 0; i < script->count; i++) {
		const struct step *step = &script->steps[i];
		if (size + STEP_HEAD + step->size > max)
			break;
		data[size] = step->kind;
		data[size + 1] = step->number;
		data[size + 2] = (uint8_t)step->size;
		data[size + 3] = (uint8_t)(step->size >> 8);
		memcpy(data + size + STEP_HEAD, step->bytes, step->size);
		size += STEP_HEAD + step->size;
	}
	return size;
}

static bool is_message(const struct step *step)
{
	return fuzz_message_kinds >> (step->kind % fuzz_kinds) & 1;
}

static void set_bytes(struct script *script, size_t at, const uint8_t *bytes, size_t size)
{
	memcpy(script->room[at], bytes, size);
	script->steps[at].bytes = script->room[at];
	script->steps[at].size = size;
}

/* A place for a new step; the others make room. */
static void insert(struct script *script, size_t at, struct step step)
{
	static uint8_t held[MESSAGE_MOST];
	if (script->count == STEPS_MOST)
		return;
	memcpy(held, step.bytes, step.size);
	for (size_t i = script->count; i > at; i--) {
		script->steps[i] = script->steps[i - 1];
		set_bytes(script, i, script->steps[i - 1].bytes, script->steps[i - 1].size);
	}
	script->count++;
	script->steps[at] = step;
	set_bytes(script, at, held, step.size);
}

static void leave_out(struct script *script, size_t at)
{
	for (size_t i = at; i + 1 < script->count; i++) {
		script->steps[i] = script->steps[i + 1];
		set_bytes(script, i, script->steps[i + 1].bytes, script->steps[i + 1].size);
	}
	script->count--;
}

/* Behind what bytes there are, in front of them or within; the new size. */
static size_t put_word(uint64_t *state, uint8_t *bytes, size_t size)
{
	const char *word = fuzz_word(state);
	size_t length = strlen(word), at = chance_pick(state, size + 1);
	if (size + length > MESSAGE_MOST / 4)
		return size;
	memmove(bytes + at + length, bytes + at, size - at);
	memcpy(bytes + at, word, length);
	return size + length;
}

/* Or where no kind is one, words. */
static void add_message(uint64_t *state, struct script *script)
{
	static uint8_t message[MESSAGE_MOST];
	struct step step = {.number = (uint8_t)chance_next(state), .bytes = message};
	do
		step.kind = (uint8_t)chance_pick(state, fuzz_kinds);
	while (fuzz_message_kinds && !is_message(&step));
	step.size = fuzz_message_kinds ? make_message(state, message) : put_word(state, message, 0);
	insert(script, chance_pick(state, script->count + 1), step);
}

static void change(uint64_t *state, struct script *script)
{
	static uint8_t message[MESSAGE_MOST];
	size_t how = chance_pick(state, 16), size;
	if (script->count == 0 || how == 0) {
		add_message(state, script);
		return;
	}
	size_t at = chance_pick(state, script->count);
	struct step *step = &script->steps[at];
	if (how == 1) {
		leave_out(script, at);
	} else if (how == 2) {
		insert(script, chance_pick(state, script->count + 1), *step);
	} else if (how == 3) {
		step->number = (uint8_t)chance_next(state);
	} else if (how == 4 && chance_pick(state, 4) == 0) {
		step->kind = (uint8_t)chance_pick(state, fuzz_kinds);
	} else if (is_message(step) && how < 14) {
		if ((size = edit_message(state, step, message)))
			set_bytes(script, at, message, size);
	} else {
		memcpy(message, step->bytes, step->size);
		if (!fuzz_message_kinds && how < 10) {
			set_bytes(script, at, message, put_word(state, message, step->size));
			return;
		}
		size = LLVMFuzzerMutate(message, step->size,
								MESSAGE_MOST / 4 > step->size ? MESSAGE_MOST / 4 : step->size);
		set_bytes(script, at, message, size);
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	static struct script script;
	uint64_t state = seed;
	read_script(data, size, &script);
	for (size_t left = 1 + chance_pick(&state, 4); left > 0; left--)
		change(&state, &script);
	return write_script(&script, data, max);
}
