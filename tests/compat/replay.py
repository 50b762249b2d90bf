"""
replay.py: says to a daemon what a transcript (record.py) has a client say, and compares what it
answers: the same status, every member that the recorded answer has, of the same kind, and as many
descriptors.  Values may differ; numbers of buffers and calls, and keys, stand in requests as they
were answered here.

    replay.py SOCKET DIRECTORY TRANSCRIPT --older|--newer

With --newer the client is of a later release: it speaks a later version of the protocol, too, and
every request has members that no daemon knows yet.  It must be answered as before.
"""

import fcntl
import json
import os
import sys

import wire

NUMBERS = {"buf": "buf", "b": "buf", "call": "call"}
TEXTS = ("key", "key_id", "public")
failures = []


class Replay:
    def __init__(self, path, directory, newer):
        self.path, self.newer = path, newer
        self.sessions, self.replies = {}, {}
        self.numbers, self.texts = {}, {"@DIR@": directory}

    # ---- What differs from run to run ----

    def now(self, kind, value, session):
        return self.numbers.get((kind, session, value), value)

    def place(self, value, session, name=""):
        """The request's value as it is here."""
        if name in NUMBERS and isinstance(value, int):
            return self.now(NUMBERS[name], value, session)
        if name in ("operands", "args"):
            return [[self.now("buf", item[0], session)] + item[1:] if isinstance(item, list)
                    else item for item in value]
        if isinstance(value, dict):
            return {key: self.place(item, session, key) for key, item in value.items()}
        if isinstance(value, list):
            return [self.place(item, session) for item in value]
        if isinstance(value, str):
            for was, text in self.texts.items():
                value = value.replace(was, text)
        return value

    # ---- Talking ----

    def ask(self, entry):
        number = entry["session"]
        if number not in self.sessions:
            self.sessions[number] = wire.connect(self.path)
        sock = self.sessions[number]
        request = self.place(entry["request"], number)
        if self.newer:
            request.update({"novelty": {"of": "a later release", "at": 2.5}, "novelties": [1, -2]})
        if self.newer and request["t"] == "hello":
            request.update({"proto": request["proto"] + 1, "oldest": 1, "version": "9.9.9"})
        fds = [self.given(given) for given in entry["given"]]
        wire.send(sock, wire.pack(request), fds)
        for fd in fds:
            os.close(fd)
        return number, request["id"]

    def given(self, given):
        data = bytes.fromhex(given["data"]) if "data" in given else bytes(given["bytes"])
        return wire.memory(data, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)

    def answer(self, number, wanted):
        """Replies come in any order: those of others are kept for them."""
        sock = self.sessions[number]
        kept = self.replies.setdefault(number, {})
        while wanted not in kept:
            got = wire.receive(sock)
            if got is None:
                return {"t": "hung up", "st": 0}, 0
            message = wire.unpack(got[0])[0]
            for fd in got[1]:
                os.close(fd)
            if message["t"] == "reply":
                kept[message["id"]] = message, len(got[1])
        return kept.pop(wanted)

    # ---- Comparing ----

    def compare(self, where, was, now):
        if isinstance(was, bool) != isinstance(now, bool) or (
                type(was) is not type(now) and not (isinstance(was, (int, float)) and
                                                    isinstance(now, (int, float)))):
            failures.append(f"{where} is {now!r} and was {was!r}")
        elif isinstance(was, dict):
            for key in was:
                if key not in now:
                    failures.append(f"{where} has no {key!r} any more")
                    continue
                if key in TEXTS and isinstance(now[key], str):
                    self.texts[was[key]] = now[key]
                self.compare(f"{where}.{key}", was[key], now[key])
        elif isinstance(was, list) and was and isinstance(was[0], dict):
            if not now:
                failures.append(f"{where} is empty")
            for i, item in enumerate(was):
                self.compare(f"{where}[{i}]", item, now[min(i, len(now) - 1)] if now else item)

    def step(self, line, entry):
        number, wanted = self.ask(entry)
        reply, fds = self.answer(number, wanted)
        was, name = entry["reply"], entry["request"]["t"]
        where = f"line {line}, {name}"
        if was["st"] != reply["st"]:
            failures.append(f"{where}: status {reply['st']} and was {was['st']}: {reply}")
            return
        if fds != entry["fds"]:
            failures.append(f"{where}: {fds} descriptors and were {entry['fds']}")
        self.compare(where, was, reply)
        for member in ("buf", "call"):
            if member in was and member in reply:
                self.numbers[(member, number, was[member])] = reply[member]


def strangers(path):
    """What a client of another release may not be answered as if it were of this one."""
    for hello, request, wanted in (
            ({"proto": 2, "oldest": 2}, None, "start one as new as the library"),
            ({"proto": 0}, None, "link the program with a libkiln as new as this kilnd"),
            ({"proto": 2, "oldest": 1}, "teleport", "stop this kilnd and start the one of that")):
        sock = wire.connect(path)
        wire.send(sock, wire.pack({"t": "hello", "id": 1, "version": "9.9.9", "device": "cpu",
                                   **hello}))
        reply = wire.unpack(wire.receive(sock)[0])[0]
        if request:
            if reply["proto"] != 1:
                failures.append(f"a client of protocol 1 and 2 is spoken to in {reply['proto']}")
            wire.send(sock, wire.pack({"t": request, "id": 2}))
            reply = wire.unpack(wire.receive(sock)[0])[0]
        said = reply.get("err", "")
        if reply["st"] != -15 or wanted not in said or "libkiln 9.9.9" not in said or \
                "kilnd " not in said:
            failures.append(f"{hello} {request}: {reply}")
        sock.close()


def main():
    replay = Replay(sys.argv[1], sys.argv[2], "--newer" in sys.argv)
    if replay.newer:
        strangers(replay.path)
    with open(sys.argv[3], encoding="utf-8") as transcript:
        entries = [json.loads(line) for line in transcript]
    last = {entry["session"]: line for line, entry in enumerate(entries)}
    for line, entry in enumerate(entries):
        replay.step(line + 1, entry)
        if last[entry["session"]] == line:
            replay.sessions.pop(entry["session"]).close()
    for failure in failures:
        print("FAILED:", failure)
    sys.exit(1 if failures else 0)


main()
