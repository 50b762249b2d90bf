/* interrupt.c: notes SIGINT and SIGTERM. */
#include "interrupt.h"
#include "sink.h"
#include "timing.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

/* timeout(1) and its like pass a signal on twice: to the process, then to its group. */
#define SAME_SIGNAL_US 250000

static volatile sig_atomic_t seen;
static volatile double first_us;

static void on_signal(int number)
{
	if (!seen) {
		first_us = time_us();
		seen = number;
	} else if (time_us() - first_us >= SAME_SIGNAL_US) {
		signal(number, SIG_DFL);
		raise(number);
	}
}

void interrupt_watch(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

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
	signal(seen, SIG_DFL);
	raise(seen);
}
