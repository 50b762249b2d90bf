/* wait_note.c: the sentence of a wait, and the time that is left. */
#include "wait_note.h"

#include <stdarg.h>
#include <stdio.h>

int64_t waits_left(uint64_t until_us, uint64_t now_us)
{
	return until_us > now_us ? (int64_t)((until_us - now_us) / 1000) : 0;
}

int64_t waits_timer_left(const uv_timer_t *timer)
{
	return (int64_t)uv_timer_get_due_in(timer);
}

void waits_say(struct wait_note *note, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(note->text, sizeof(note->text), format, arguments);
	va_end(arguments);
}
