/* interrupt.c: notes SIGINT and SIGTERM. */
#include "interrupt.h"
#include "sink.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

static volatile sig_atomic_t seen;

static void on_signal(int number)
{
	seen = number;
}

void interrupt_watch(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

bool interrupt_seen(void)
{
	return seen != 0;
}

void interrupt_end(const char *what)
{
	fprintf(stderr, "kiln: interrupted: %s\n", what);
	(void)sink_end();
	raise(seen);
}
