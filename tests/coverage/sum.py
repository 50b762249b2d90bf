"""sum.py BUILD LEAST: the lines of daemon/ and client/ that ran, from what gcov reads out of BUILD.

A table by file, one by folder (without those inside it), one of both in all.  A line counts once,
in however many programs it is.  Exit status 1 where daemon/ or client/ is below LEAST per cent.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile

BATCH = 32  # files for one call of gcov


def counted(build):
    for folder, _, names in os.walk(build):
        for name in names:
            if name.endswith(".gcda"):
                yield os.path.join(folder, name)


def documents(files):
    """What gcov says of each object file."""
    with tempfile.TemporaryDirectory() as quiet:
        for first in range(0, len(files), BATCH):
            command = ["gcov", "--stdout", "--json-format", *files[first : first + BATCH]]
            done = subprocess.run(command, cwd=quiet, capture_output=True, text=True)
            if done.returncode:
                sys.exit("sum.py: gcov: " + done.stderr.strip())
            for line in done.stdout.splitlines():
                yield json.loads(line)


def lines_of(build, root):
    """{file: {line: how often}}"""
    files = collections.defaultdict(collections.Counter)
    for document in documents(sorted(counted(build))):
        for file in document["files"]:
            path = os.path.join(document["current_working_directory"], file["file"])
            path = os.path.relpath(os.path.realpath(path), root)
            if path.startswith(("daemon/", "client/")):
                for line in file["lines"]:
                    files[path][line["line_number"]] += line["count"]
    return files


def row(name, ran, every):
    print(f"{100 * ran / every:6.1f} %  {ran:6} of {every:6}  {name}")


def main():
    build, least = os.path.realpath(sys.argv[1]), float(sys.argv[2])
    files = lines_of(build, os.path.realpath("."))
    if not files:
        sys.exit(f"sum.py: nothing was counted in {build}")
    folders, sides = collections.Counter(), collections.Counter()
    for name, lines in sorted(files.items()):
        ran, every = sum(count > 0 for count in lines.values()), len(lines)
        row(name, ran, every)
        for sums, key in (folders, os.path.dirname(name)), (sides, name.split("/")[0]):
            sums[key, "ran"] += ran
            sums[key, "every"] += every
    bad = False
    for sums in folders, sides:
        print()
        for key in sorted({key for key, _ in sums}):
            row(key, sums[key, "ran"], sums[key, "every"])
            bad = bad or (sums is sides and 100 * sums[key, "ran"] < least * sums[key, "every"])
    if bad:
        sys.exit(f"less than {least:g} %")


main()
