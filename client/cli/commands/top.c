/*
 * top.c: 'kiln top': a live view of the daemon on a plain terminal.  Each frame is one write over
 * the last one, so nothing flickers.  The terminal is as it was before once the view
 * ends, by q, Ctrl-C, a signal or the daemon's end.
 */
#include "top.h"
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/sink.h"
#include "client/cli/timing.h"
#include "client/cli/values.h"
#include "commands.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define SCREEN_OPEN "\033[?1049h\033[?25l"
#define SCREEN_CLOSE "\033[?25h\033[?1049l"
#define SCREEN_HOME "\033[H"
#define LINE_REST "\033[K"
#define SCREEN_REST "\033[J"

enum { KEY_CTRL_C = 3 };

struct top {
	struct cli *cli;
	kiln_client *client;
	struct top_sample before, now;
	int interval_ms;
	int signals; /* signalfd */
	bool keys;   /* standard input is a terminal */
	struct termios saved;
};

/* ---- Samples ---- */

static void drop_sample(struct top_sample *sample)
{
	kiln_reply_free(sample->reply);
	*sample = (struct top_sample){0};
}

/* The last sample becomes the one before. */
static int take_sample(struct top *top)
{
	const kiln_attr section = cli_attr_string("section", "all");
	struct top_sample next = {0};
	int status = kiln_request(top->client, "info", &section, 1, &next.reply);

	if (status)
		return status;
	next.at_us = time_us();
	drop_sample(&top->before);
	top->before = top->now;
	top->now = next;
	return KILN_OK;
}

/* ---- Drawing ---- */

/* Users chose the names, so control characters in them must not move the cursor. */
static void put_clean(FILE *out, const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		fputc(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?', out);
}

/* Writes the frame's lines, cut to the screen, each to the end of its line; nothing is cleared
 * first. */
static bool draw_screen(const char *frame)
{
	struct winsize terminal = {0};
	bool known =
		ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0 && terminal.ws_col && terminal.ws_row;
	int columns = known ? terminal.ws_col : 80, lines = known ? terminal.ws_row : 24;
	char *screen = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&screen, &size);

	if (!out)
		return false;
	fputs(SCREEN_HOME, out);
	for (int line = 0; *frame && line < lines; line++) {
		size_t length = strcspn(frame, "\n");
		if (line)
			fputs("\r\n", out);
		put_clean(out, frame, length < (size_t)columns ? length : (size_t)columns);
		/* A line that fills the screen's width must not clear its rest, which would be its last
		 * character. */
		if (length < (size_t)columns)
			fputs(LINE_REST, out);
		frame += length + (frame[length] == '\n');
		if (!*frame && line < lines - 1)
			fputs("\r\n" SCREEN_REST, out);
	}
	bool good = fclose(out) == 0 && write_all(STDOUT_FILENO, screen, size);
	free(screen);
	return good;
}

static bool draw_text(const char *frame)
{
	for (; *frame; frame++)
		if (*frame == '\n')
			putchar('\n');
		else
			put_clean(stdout, frame, 1);
	return !ferror(stdout);
}

static bool draw(struct top *top, bool (*put)(const char *frame))
{
	char *frame = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&frame, &size);

	if (!out)
		return false;
	top_frame(&top->before, &top->now, out);
	bool good = fclose(out) == 0 && put(frame);
	free(frame);
	return good;
}

/* ---- The terminal ---- */

static bool open_signals(struct top *top)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&set, numbers[i]);
	/* Blocks the signals before the library starts a thread. */
	sigprocmask(SIG_BLOCK, &set, NULL);
	top->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return top->signals >= 0;
}

static void open_screen(struct top *top)
{
	struct termios raw;

	top->keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &top->saved) == 0;
	if (top->keys) {
		raw = top->saved;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
		raw.c_cc[VMIN] = 0;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
	}
	(void)write_all(STDOUT_FILENO, SCREEN_OPEN, sizeof(SCREEN_OPEN) - 1);
}

enum event { EVENT_TIME, EVENT_SIZE, EVENT_END };

/* Waits until the next sample is due, the size has changed, or the view ends. */
static enum event wait_event(struct top *top, double due_us)
{
	struct pollfd polled[2] = {{.fd = top->signals, .events = POLLIN},
							   {.fd = top->keys ? STDIN_FILENO : -1, .events = POLLIN}};
	struct signalfd_siginfo info;
	enum event event = EVENT_TIME;

	while (event == EVENT_TIME) {
		double left_us = due_us - time_us();
		if (left_us <= 0)
			break;
		if (poll(polled, 2, (int)(left_us / 1e3) + 1) <= 0)
			continue;
		while (event != EVENT_END && polled[0].revents &&
			   read(top->signals, &info, sizeof(info)) == sizeof(info))
			event = info.ssi_signo == SIGWINCH ? EVENT_SIZE : EVENT_END;
		if (polled[1].revents && event != EVENT_END) {
			char keys[64];
			ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));
			/* Without a byte the terminal is gone. */
			if (n <= 0 || memchr(keys, 'q', (size_t)n) || memchr(keys, KEY_CTRL_C, (size_t)n))
				event = EVENT_END;
		}
	}
	return event;
}

/* KILN_OK when the user ends it; else why the daemon does not answer. */
static int show_live(struct top *top)
{
	int status = KILN_OK;
	enum event event = EVENT_SIZE;

	open_screen(top);
	while (status == KILN_OK && event != EVENT_END) {
		if (!draw(top, draw_screen))
			break;
		event = wait_event(top, top->now.at_us + top->interval_ms * 1e3);
		if (event == EVENT_TIME)
			status = take_sample(top);
	}
	(void)write_all(STDOUT_FILENO, SCREEN_CLOSE, sizeof(SCREEN_CLOSE) - 1);
	if (top->keys)
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &top->saved);
	return status;
}

/* ---- The command ---- */

static int show_once(struct top *top)
{
	struct timespec interval = {top->interval_ms / 1000, top->interval_ms % 1000 * 1000000L};
	int status;

	nanosleep(&interval, NULL);
	status = take_sample(top);
	if (status)
		return status;
	if (top->cli->json)
		top_json(&top->before, &top->now);
	else
		(void)draw(top, draw_text);
	return KILN_OK;
}

static int top_read_options(struct top *top, bool *once)
{
	const char *interval = cli_value(top->cli, "interval");

	*once = cli_value(top->cli, "once") != NULL;
	top->interval_ms = PAUSE_TOP_MS;
	if (interval && cli_time("--interval", interval, &top->interval_ms))
		return CLI_USAGE;
	if (top->interval_ms < PAUSE_TOP_LEAST_MS || top->interval_ms > PAUSE_TOP_MOST_MS)
		return cli_usage("--interval: '%s' is not from %d ms to an hour", interval,
						 PAUSE_TOP_LEAST_MS);
	if (!*once && top->cli->json)
		return cli_usage("top: --json goes with --once; 'kiln status --json' gives all figures");
	if (!*once && !isatty(STDOUT_FILENO))
		return cli_usage("top: standard output is no terminal; --once prints one frame");
	return CLI_OK;
}

static int cli_top(struct cli *cli)
{
	struct top top = {.cli = cli, .signals = -1};
	bool once;
	int status = top_read_options(&top, &once);

	if (status)
		return status;
	if (!cli->timeout_ms)
		cli->timeout_ms = DEADLINE_TOP_MS;
	if (!once && !open_signals(&top))
		return cli_failed_here(cli, KILN_EIO, "top: signals cannot be waited for: %s",
							   strerror(errno));
	status = cli_connect(cli, &top.client);
	if (status == CLI_OK) {
		/* Takes two samples, so that there are rates to draw at once. */
		int failed = take_sample(&top);
		failed = failed || once ? failed : take_sample(&top);
		if (!failed)
			failed = once ? show_once(&top) : show_live(&top);
		if (failed)
			status = cli_failed(cli, failed, "top");
	}
	drop_sample(&top.before);
	drop_sample(&top.now);
	kiln_close(top.client);
	if (top.signals >= 0)
		close(top.signals);
	return status;
}

/* ---- The command ---- */

static const struct cli_option top_options[] = {
	{"interval", "TIME", "between two frames: 500ms, 5s (1s)"},
	{"once", NULL, "print one frame, of one interval, and exit"},
	{0},
};

static const struct cli_example top_examples[] = {
	{"kiln top --interval 500ms", "two frames a second"},
	{"kiln top --once", "one frame, for a log"},
	{0}};

const struct cli_command command_top = {
	"top",
	cli_top,
	"",
	"watch it live: calls, sessions, compiles under way; q ends",
	{0, 0},
	top_options,
	.examples = top_examples};
