/*
 * permute_choice.c: choices as texts, and lists of them.  Knows no variant.
 */
#include "permute.h"

#include <stdlib.h>
#include <string.h>

void permute_choice_print(const struct permute_variant *variant,
						  const struct permute_choice *choice, char text[KERNEL_CHOICE_MAX])
{
	struct plan_text out = {.text = text, .size = KERNEL_CHOICE_MAX};

	plan_print(&out, "%s", variant->name);
	for (const char *field = variant->fields; *field; field++) {
		switch (*field) {
		case 'x':
			plan_print(&out, " %ux%u", choice->rows, choice->columns);
			break;
		case 'w':
			plan_print(&out, " %u", choice->load);
			break;
		case 'k':
			plan_print(&out, " k%u", choice->block);
			break;
		case 'l':
			plan_print(&out, " l%u", choice->load);
			break;
		case 's':
			plan_print(&out, " s%u", choice->store);
			break;
		case 't':
			plan_print(&out, " t%u", choice->threads);
			break;
		case 'm':
			plan_print(&out, " m%u", choice->resident);
			break;
		case 'z':
			plan_print(&out, "%s", choice->turn ? " z" : "");
			break;
		default:
			if (choice->band == PERMUTE_BAND_ALL)
				plan_print(&out, " r");
			else if (choice->band == 1)
				plan_print(&out, " c");
			else
				plan_print(&out, " b%u", choice->band);
		}
	}
}

/* Reads digits at *at; anything else is 0, which no choice has. */
static uint32_t number(const char **at)
{
	unsigned long value = 0;
	char *end = (char *)*at;

	if (**at >= '0' && **at <= '9')
		value = strtoul(*at, &end, 10);
	*at = end;
	return value > UINT16_MAX ? 0 : (uint32_t)value;
}

/* One word, after the variant's name. */
static void read_word(const char *at, struct permute_choice *choice)
{
	if (*at >= '0' && *at <= '9') {
		choice->rows = choice->load = number(&at);
		if (*at == 'x') {
			at++;
			choice->columns = number(&at);
			choice->load = 0;
		}
		return;
	}
	switch (*at++) {
	case 'k':
		choice->block = number(&at);
		break;
	case 'l':
		choice->load = number(&at);
		break;
	case 's':
		choice->store = number(&at);
		break;
	case 't':
		choice->threads = number(&at);
		break;
	case 'm':
		choice->resident = number(&at);
		break;
	case 'z':
		choice->turn = true;
		break;
	case 'b':
		choice->band = number(&at);
		break;
	case 'c':
		choice->band = 1;
		break;
	default:
		break;
	}
}

bool permute_choice_read(const struct permute_variant *variant, const char *text,
						 struct permute_choice *choice)
{
	char again[KERNEL_CHOICE_MAX];

	memset(choice, 0, sizeof(*choice));
	for (const char *at = strchr(text, ' '); at; at = strchr(at + 1, ' '))
		read_word(at + 1, choice);
	permute_choice_print(variant, choice, again);
	return strcmp(text, again) == 0;
}

void permute_suggest(struct permute_list *list, const struct permute_choice *choice)
{
	char text[KERNEL_CHOICE_MAX], other[KERNEL_CHOICE_MAX], reason[256];
	struct plan_text why = {.text = reason, .size = sizeof(reason)};
	struct kernel_plan plan;

	if (list->count >= list->most)
		return;
	permute_choice_print(list->variant, choice, text);
	for (int i = 0; i < list->count; i++) {
		permute_choice_print(list->variant, &list->choice[i], other);
		if (strcmp(text, other) == 0)
			return;
	}
	kernel_plan_clear(&plan);
	if (list->variant->make(list->form, list->limits, choice, &plan, &why))
		list->choice[list->count++] = *choice;
}
