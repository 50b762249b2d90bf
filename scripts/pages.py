#!/usr/bin/env python3
"""pages.py cli KILN | options KILND: the generated part of docs/cli.md or docs/options.md.

Both pages begin with text that is written by hand.  What follows their line `<!-- pages.py -->`
comes from the tables of the program: `--write PAGE` puts it there, `--check PAGE` prints a finding
if it differs.  A command or an option that is in no group below is a finding, too.
"""

import json
import re
import subprocess
import sys

MARK = "<!-- pages.py -->\n"

COMMANDS = [
    ("The daemon", ["status", "top", "devices", "ops", "stop"]),
    ("Operators", ["run", "explain", "compile", "tune"]),
    ("Statements", ["run map", "explain map", "compile map"]),
    ("Kernels of your own", ["run raw", "explain raw", "compile raw"]),
    ("The cache", ["cache ls", "cache show", "cache get", "cache table", "cache retry",
                   "cache verify", "cache trim", "cache clear", "cache pin", "cache unpin"]),
    ("Kernels for other hosts", ["cache export", "cache import", "record", "warm", "key ls",
                                 "key new", "key show", "key trust", "key distrust"]),
    ("When something is wrong", ["faults ls", "faults show", "bugreport", "debug waits", "debug"]),
    ("Help", ["help"]),
]

OPTIONS = [
    ("Where", ["socket", "device", "kernel-dir"]),
    ("The cache", ["cache-dir", "cache-bytes", "key-dir", "trust-dir", "sign-key"]),
    ("A cache for many hosts", ["remote", "remote-deadline", "remote-ttl"]),
    ("Compiling", ["specialize", "on-miss", "workers", "compile-timeout"]),
    ("Launching", ["launch-timeout"]),
    ("Who may connect, and how much a program may hold",
     ["allow-uid", "allow-gid", "max-sessions", "max-buffers", "max-bytes", "max-inflight",
      "max-message", "max-queued", "max-calls", "max-variants", "max-own"]),
    ("The process", ["log-level", "idle-exit", "sandbox"]),
    ("Finding bugs", ["memcheck", "executor-wrapper"]),
]


def said_by(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


def cell(text):
    return re.sub(r"([|_*<])", r"\\\1", text)


def code(text):
    return "`" + text.replace("|", "\\|") + "`"


def option_rows(options):
    yield "| option | meaning |"
    yield "|---|---|"
    for option in options:
        name = ("--%s %s" % (option["name"], option["value"])).rstrip()
        yield "| %s | %s |" % (code(name), cell(option["help"]))


def cli_page(kiln):
    table = json.loads(said_by(kiln, "help", "--json"))
    commands = {command["name"]: command for command in table["commands"]}
    grouped = [name for _, names in COMMANDS for name in names]
    strays = sorted(set(commands) - set(grouped))
    if strays:
        sys.exit("scripts/pages.py:1: in no group: " + ", ".join(strays))
    yield "## Options of all commands"
    yield ""
    yield from option_rows(table["global_options"])
    for title, names in COMMANDS:
        present = [commands[name] for name in names if name in commands]
        if not present:
            continue
        yield ""
        yield "## " + title
        yield ""
        yield "| command | what it does |"
        yield "|---|---|"
        for command in present:
            usage = ("kiln %s %s" % (command["name"], command["arguments"])).rstrip()
            yield "| %s | %s |" % (code(usage), cell(command["help"]))
        shared = []
        if len(present) > 2:
            shared = [option for option in present[0]["options"]
                      if all(option in command["options"] for command in present)]
        if shared:
            yield ""
            yield "All of them take:"
            yield ""
            yield from option_rows(shared)
        for command in present:
            own = [option for option in command["options"] if option not in shared]
            if own:
                yield ""
                yield "`kiln %s`%s:" % (command["name"], " takes besides" if shared else " takes")
                yield ""
                yield from option_rows(own)


def read_options(kilnd):
    """Yields (option, its value's name, variable, default, range, words) of each."""
    text = said_by(kilnd, "--help")
    pattern = re.compile(r"^  --([a-z-]+)(\[=\S+\]| \S+)? +\[(KILN_[^\]]*)\]\n((?: {6}\S.*\n)+)", re.M)
    matches = list(pattern.finditer(text))
    if len(matches) != len(re.findall(r"^  --", text, re.M)):
        sys.exit("scripts/pages.py:1: an option of kilnd --help is written in another way")
    for match in matches:
        name, value, bracket, below = match.groups()
        words = " ".join(below.split())
        variable = re.match(r"KILN_[A-Z_]+", bracket)
        default = re.search(r"default (.*)$", bracket)
        limits = re.search(r" \(([^()]* to [^()]*)\)$", words)
        told = re.search(r"; default (.*)$", words)
        if limits:
            words = words[: limits.start()]
        if told and not default:
            words, default = words[: told.start()], told
        yield (name, value or "", variable[0],
               default[1] if default else "", limits[1] if limits else "", words)


def options_page(kilnd):
    options = {option[0]: option for option in read_options(kilnd)}
    grouped = [name for _, names in OPTIONS for name in names]
    strays = sorted(set(options) - set(grouped))
    if strays or not options:
        sys.exit("scripts/pages.py:1: in no group: " + ", ".join(strays or ["no option at all"]))
    for title, names in OPTIONS:
        present = [options[name] for name in names if name in options]
        if not present:
            continue
        yield ""
        yield "## " + title
        yield ""
        yield "| option | variable | default | range | meaning |"
        yield "|---|---|---|---|---|"
        for name, value, variable, default, limits, words in present:
            yield "| %s | %s | %s | %s | %s |" % (
                code("--" + name + value), code(variable),
                cell(default), cell(limits), cell(words))


def main():
    which, program = sys.argv[1:3]
    made = "\n".join(cli_page(program) if which == "cli" else options_page(program)).strip("\n") + "\n"
    if len(sys.argv) == 3:
        print(made, end="")
        return
    page = sys.argv[4]
    with open(page, encoding="utf-8") as file:
        head, mark, tail = file.read().partition(MARK)
    if sys.argv[3] == "--write":
        with open(page, "w", encoding="utf-8") as file:
            file.write(head + MARK + "\n" + made)
    elif not mark or tail.strip("\n") != made.strip("\n"):
        line = head.count("\n") + 1
        print("%s:%d: differs from the program: python3 scripts/pages.py %s %s --write %s"
              % (page, line, which, program, page))


if __name__ == "__main__":
    main()
