#!/usr/bin/env python3
"""pages.py cli KILN | options KILND | man-cli KILN | man-options KILND: pages made of the programs'
tables: the generated part of docs/cli.md or docs/options.md, or the manual docs/man/kiln.1 or
docs/man/kilnd.8.

The first two begin with text that is written by hand, and what follows their line
`<!-- pages.py -->` is made; of the manuals all is, but for the date.  `--write PAGE` puts it there,
`--check PAGE` prints a finding if it differs.  An option that is in no group below is a finding, too.
"""

import datetime
import json
import re
import subprocess
import sys
import textwrap

MARK = "<!-- pages.py -->\n"

OPTIONS = [
    ("Where", ["socket", "device", "kernel-dir"]),
    ("The cache", ["cache-dir", "cache-bytes", "key-dir", "trust-dir", "sign-key"]),
    ("A cache for many hosts", ["remote", "remote-deadline", "remote-ttl"]),
    ("Compiling", ["specialize", "on-miss", "workers", "compile-timeout"]),
    ("Launching", ["launch-timeout"]),
    ("Who may connect, and how much a program may hold",
     ["allow-uid", "allow-gid", "max-sessions", "max-buffers", "max-bytes", "max-inflight",
      "max-message", "max-queued", "max-calls", "max-variants", "max-own"]),
    ("The process", ["log-level", "log-format", "metrics", "idle-exit", "launchers", "sandbox"]),
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
    groups = {}
    for command in table["commands"]:
        groups.setdefault(command["group"], []).append(command)
    yield "## Options of all commands"
    yield ""
    yield from option_rows(table["global_options"])
    for title, present in groups.items():
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
        yield ""
        yield "```sh"
        for command in present:
            for example in command["examples"]:
                yield "%s  # %s" % (example["line"], example["what"])
        yield "```"


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


# ---- Manuals ----

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def paragraph(text):
    """A text as lines of at most 79 bytes or so: a hyphen takes two in the source."""
    lines = textwrap.wrap(text, 72, break_long_words=False, break_on_hyphens=False)
    return map(roff, lines)


def man_options(options):
    for option in options:
        name = ("--%s %s" % (option["name"], option["value"])).rstrip()
        yield ".TP"
        yield ".B " + roff(name)
        yield from paragraph(option["help"])


def man_head(name, section, what, synopsis):
    version = re.search(r"VERSION (\d+\.\d+\.\d+)", open("CMakeLists.txt", encoding="utf-8").read())
    yield '.TH %s %d %s "Kiln %s"' % (name.upper(), section, datetime.date.today(), version[1])
    yield ".SH NAME"
    yield "%s \\- %s" % (name, what)
    yield ".SH SYNOPSIS"
    yield ".B " + name
    yield from paragraph(synopsis)


def man_examples(examples):
    for example in examples:
        yield ".PP"
        yield from paragraph(example["what"] + ":")
        yield ".PP"
        yield ".RS"
        yield ".nf"
        yield roff(example["line"])
        yield ".fi"
        yield ".RE"


def man_cli(kiln):
    table = json.loads(said_by(kiln, "help", "--json"))
    yield from man_head("kiln", 1, "asks kilnd for kernels, and shows what it has",
                        "[GLOBAL OPTION]... COMMAND [ARGUMENT]... [OPTION]...")
    yield ".SH GLOBAL OPTIONS"
    yield from man_options(table["global_options"])
    group = None
    for command in table["commands"]:
        if command["group"] != group:
            group = command["group"]
            yield ".SH " + roff(group.upper())
        yield ".SS " + roff(("kiln %s %s" % (command["name"], command["arguments"])).rstrip())
        yield from paragraph(command["help"][0].upper() + command["help"][1:] + ".")
        yield from man_options(command["options"])
        yield from man_examples(command["examples"])
    yield ".SH EXIT STATUS"
    yield "0 if all is fine, 1 if what was asked for failed,"
    yield "2 if the command line is wrong."
    yield ".SH SEE ALSO"
    yield ".BR kilnd (8)"


def man_kilnd(kilnd):
    options = {option[0]: option for option in read_options(kilnd)}
    yield from man_head("kilnd", 8, "compiles, keeps and launches kernels for the programs of a host",
                        "[OPTION]...")
    yield ".SH DESCRIPTION"
    yield "Each option can be set by the variable beside it; the option is stronger."
    for title, names in OPTIONS:
        yield ".SH " + roff(title.upper())
        for name, value, variable, default, limits, words in (options[n] for n in names):
            yield ".TP"
            yield ".B " + roff("--" + name + value)
            about = [variable] + ["default " + default] * bool(default) + [limits] * bool(limits)
            yield from paragraph(words + " (" + ", ".join(about) + ")")
    yield ".SH SIGNALS"
    yield "SIGTERM and SIGINT: it serves nobody new, ends what is under way,"
    yield "and ends itself."
    yield ".SH SEE ALSO"
    yield ".BR kiln (1)"


PAGES = {"cli": cli_page, "options": options_page, "man-cli": man_cli, "man-options": man_kilnd}


def undated(page):
    return re.sub(r"^(\.TH \S+ \d) \S+", r"\1", page)


def main():
    which, program = sys.argv[1:3]
    made = "\n".join(PAGES[which](program)).strip("\n") + "\n"
    if len(sys.argv) == 3:
        print(made, end="")
        return
    page = sys.argv[4]
    manual = which.startswith("man-")
    try:
        with open(page, encoding="utf-8") as file:
            old = file.read()
    except FileNotFoundError:
        old = ""
    head, mark, tail = ("", "", undated(old)) if manual else old.partition(MARK)
    same = tail.strip("\n") == (undated(made) if manual else made).strip("\n")
    if sys.argv[3] == "--write":
        if not (manual and same):
            with open(page, "w", encoding="utf-8") as file:
                file.write(made if manual else head + MARK + "\n" + made)
    elif not same or not (mark or manual):
        line = head.count("\n") + 1
        print("%s:%d: differs from the program: python3 scripts/pages.py %s %s --write %s"
              % (page, line, which, program, page))


if __name__ == "__main__":
    main()
