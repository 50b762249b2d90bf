"""top.py: `kiln top` on a terminal of its own: what it draws, resizing, and how it leaves.

  python3 top.py KILN KILL     KILL: pid of the daemon, which the last step ends

Exit status: 0 all is well, 1 it is not, 77 there is no pseudo terminal here.
"""
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

KILN, DAEMON = sys.argv[1], int(sys.argv[2])
OPEN, CLOSE, HOME = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l", b"\x1b[H"
DEADLINE = 120


class Terminal:
    """A pseudo terminal with `kiln top` in its foreground."""

    def __init__(self, lines, columns):
        try:
            self.master, self.slave = os.openpty()
        except OSError as error:
            print(f"the live view was left out: there is no pseudo terminal here: {error.strerror}")
            sys.exit(77)
        self.resize(lines, columns)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        self.process = subprocess.Popen(
            [KILN, "top", "--interval", "100ms"], stdin=self.slave, stdout=self.slave,
            stderr=self.slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, lines, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, what, after=0):
        """Reads until the condition over all that was read holds."""
        end = time.monotonic() + DEADLINE
        while not what(self.seen[after:]):
            left = end - time.monotonic()
            if left <= 0:
                raise SystemExit(f"not seen: {self.seen[-3000:]!r}")
            if select.select([self.master], [], [], min(left, 0.1))[0]:
                self.seen += os.read(self.master, 65536)

    def leave(self, status):
        """It ends by itself, with this status, and the terminal is as it was."""
        self.read_until(lambda seen: CLOSE in seen)
        got = self.process.wait(DEADLINE)
        while select.select([self.master], [], [], 0.1)[0]:
            self.seen += os.read(self.master, 65536)
        if got != status:
            raise SystemExit(f"status {got} instead of {status}: {self.seen[-500:]!r}")
        if self.seen.count(OPEN) != 1 or self.seen.count(CLOSE) != 1:
            raise SystemExit(f"the screen is not opened and closed once: {self.seen!r}")
        if termios.tcgetattr(self.slave) != self.before:
            raise SystemExit("the terminal is not as it was")
        rest = self.seen.split(CLOSE)[1]
        os.close(self.master)
        os.close(self.slave)
        return rest


def frames(seen):
    """The whole frames: the last may be cut."""
    return seen.split(HOME)[1:-1]


def text(frame):
    """Its lines; the terminal may put a carriage return of its own before a newline."""
    return [line.rstrip(b"\r") for line in re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", frame).split(b"\n")]


def check_frames(seen, lines, columns):
    for frame in seen:
        shown = text(frame)
        if len(shown) > lines or max(map(len, shown)) > columns:
            raise SystemExit(f"larger than {lines}x{columns}: {shown}")
        # Nothing is cleared before it is drawn: that flickers.
        if b"\x1b[2J" in frame or b"\x1b[J" in frame[:-3]:
            raise SystemExit(f"clears the screen: {frame!r}")


# Drawn again and again; a new size is heeded at once; q ends it.
terminal = Terminal(24, 100)
terminal.read_until(lambda seen: len(frames(seen)) >= 3)
drawn = frames(terminal.seen)
check_frames(drawn, 24, 100)
if not drawn[0].startswith(b"kilnd ") or not any(b"per second" in l for l in text(drawn[0])):
    raise SystemExit(f"no frame: {drawn[0]!r}")
terminal.resize(5, 30)
mark = len(terminal.seen)
terminal.read_until(
    lambda seen: any(len(text(f)) == 5 and max(map(len, text(f))) == 30 for f in frames(seen)), mark)
mark = len(terminal.seen)
terminal.read_until(lambda seen: len(frames(seen)) >= 3, mark)
check_frames(frames(terminal.seen[mark:]), 5, 30)
os.write(terminal.master, b"xq")
if terminal.leave(0):
    raise SystemExit("something is printed behind the screen")

# Ctrl-C, and a signal from elsewhere.
for end in (lambda t: os.write(t.master, b"\x03"), lambda t: t.process.send_signal(signal.SIGTERM),
            lambda t: t.process.send_signal(signal.SIGINT)):
    terminal = Terminal(24, 80)
    terminal.read_until(lambda seen: len(frames(seen)) >= 1)
    end(terminal)
    terminal.leave(0)

# The daemon goes: the terminal is given back before the sentence is said.
terminal = Terminal(24, 80)
terminal.read_until(lambda seen: len(frames(seen)) >= 1)
os.kill(DAEMON, signal.SIGTERM)
sentence = terminal.leave(1)
if not sentence.startswith(b"kiln: top: ") or sentence.count(b"\n") != 1:
    raise SystemExit(f"no sentence: {sentence!r}")
