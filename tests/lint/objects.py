"""objects.py BUILD PAGE: what the objects of the product take from each other.

Prints a finding a line: a symbol that a room takes from a room above it; files that need each
other in a ring, where the ring is too large, spans rooms, or is not named in PAGE; a name that
too many static functions share.
"""

import collections
import json
import os
import re
import subprocess
import sys

RING_MOST = 12  # files
STATIC_MOST = 3  # functions of one name
# From below to above.  Rooms of one line know nothing of each other.
LAYERS = [
    ["client/wire"],
    ["client/lib", "daemon/base"],
    ["daemon/plan", "daemon/sandbox", "daemon/seal"],
    ["client/cli", "client/python", "daemon/compile", "daemon/cache", "daemon/exec"],
    ["daemon/options"],
    ["daemon/broker/devices"],
    ["daemon/broker/requests"],
    ["daemon/broker/kernels"],
    ["daemon/broker/calls"],
    ["daemon/broker/front"],
    ["daemon/main.c"],
]
RANKS = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}


def room_of(file):
    for room in RANKS:
        if file == room or file.startswith(room + "/"):
            return room
    return None


def objects(build):
    """Each object of the product as the build makes it now, with its source."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for row in json.load(file):
            source = os.path.relpath(os.path.join(row["directory"], row["file"]))
            path = os.path.join(row["directory"], re.search(r" -o (\S+)", row["command"])[1])
            if source.startswith(("client/", "daemon/")) and os.path.exists(path):
                yield path, source


def read(build):
    """Returns (file -> symbols that it takes, symbol -> files, static function -> files)."""
    takes, gives, statics = (collections.defaultdict(set) for _ in range(3))
    sources = dict(objects(build))
    if not sources:
        return takes, gives, statics
    lines = subprocess.run(["nm", "-A", *sources], capture_output=True, text=True, check=True).stdout
    for line in lines.splitlines():
        path, _, symbol = line.partition(":")
        source = sources[path]
        kind, name = symbol.split()[-2:]
        if kind == "U":
            takes[source].add(name)
        elif kind == "t":
            statics[name].add(source)
        elif kind in "TDBRVWC":
            gives[name].add(source)
    return takes, gives, statics


def rings(arrows):
    """The strongly connected components of more than one file (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            ring = []
            while not ring or ring[-1] != node:
                ring.append(stack.pop())
            if len(ring) > 1:
                found.append(sorted(ring))

    for node in list(arrows):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def main():
    build, page = sys.argv[1:]
    takes, gives, statics = read(build)
    if not takes:
        print(f"{build}: has no objects of client/ and daemon/")
        return
    with open(page, encoding="utf-8") as file:
        named = {
            f"{folder}{name}.c"
            for folder, names in re.findall(r"`([a-z_/]+/)\{([a-z_,]+)\}\.c`", file.read())
            for name in names.split(",")
        }
    arrows = collections.defaultdict(set)
    for user, names in sorted(takes.items()):
        for name in sorted(names & gives.keys()):
            # The library and the daemon may each have one of a name.
            program = user.split("/")[0]
            givers = sorted(gives[name], key=lambda file: file.split("/")[0] != program)
            if not givers or user in givers:
                continue
            giver = givers[0]
            arrows[user].add(giver)
            rooms = room_of(user), room_of(giver)
            if rooms[0] != rooms[1] and RANKS[rooms[1]] >= RANKS[rooms[0]]:
                print(f"{user}:1: takes {name} of {giver}, which lies in a room above")
    for ring in rings(arrows):
        short = " ".join(ring)
        if len(ring) > RING_MOST:
            print(f"{ring[0]}:1: {len(ring)} files need each other; {RING_MOST} may: {short}")
        if len({room_of(file) for file in ring}) > 1:
            print(f"{ring[0]}:1: files of several rooms need each other: {short}")
        missing = [file for file in ring if file not in named]
        if len(ring) > 2 and missing:
            print(f"{page}:1: has no reason for the ring of {short}: names no {missing[0]}")
    for name, files in sorted(statics.items()):
        if len(files) <= STATIC_MOST:
            continue
        own = sorted(file for file in files if defines(file, name))
        if len(own) > STATIC_MOST:
            print(
                f"{own[0]}:1: {len(own)} files have a static function {name}();"
                f" {STATIC_MOST} may: {' '.join(own)}"
            )


def defines(file, name):
    """Whether the function stands in the file itself, and not in a header that it includes."""
    with open(file, encoding="utf-8") as text:
        return re.search(rf"^[a-z].*\b{name}\(", text.read(), re.M) is not None


main()
