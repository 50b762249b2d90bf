"""
record.py: stands between clients and a daemon, and writes down what they say to each other, a line
of JSON for each request with its reply.

    record.py DAEMON_SOCKET OWN_SOCKET DIRECTORY >TRANSCRIPT

In replies, where only their kind is compared later, texts that are longer than a line and paths are
cut; DIRECTORY in what a client names is written as @DIR@.  Ends when its standard input does.
"""

import json
import os
import select
import socket
import sys

import wire

TEXT_MOST = 100
ROWS_MOST = 2


def shorten(value):
    if isinstance(value, str):
        return "/" if value.startswith("/") else value[:TEXT_MOST]
    if isinstance(value, list):
        kept = value if value and isinstance(value[0], (int, list)) else value[:ROWS_MOST]
        return [shorten(item) for item in kept]
    if isinstance(value, dict):
        if list(value) == ["$bin"]:
            return {"$bin": value["$bin"][:TEXT_MOST]}
        return {key: shorten(item) for key, item in value.items()}
    return value


def contents(fd, request):
    """Of a source it matters what it says; of other memory how much there is."""
    data = os.pread(fd, 1 << 20, 0)
    return {"data": data.hex()} if request["t"].startswith("raw.") else {"bytes": len(data)}


class Session:
    def __init__(self, number, client, daemon):
        self.number, self.client, self.daemon = number, client, daemon
        self.asked = {}

    def forward(self, source, directory):
        """False: one of the two hung up."""
        got = wire.receive(source)
        target = self.daemon if source is self.client else self.client
        if got is None:
            return False
        data, fds = got
        message = wire.unpack(data)[0]
        if source is self.client:
            text = json.dumps(message).replace(directory, "@DIR@")
            self.asked[message["id"]] = (json.loads(text), [contents(fd, message) for fd in fds])
        elif message["t"] == "reply":
            request, given = self.asked.pop(message["id"])
            print(json.dumps({"session": self.number, "request": request, "given": given,
                              "reply": shorten(message), "fds": len(fds)}), flush=True)
        wire.send(target, data, fds)
        for fd in fds:
            os.close(fd)
        return True


def main():
    daemon, own, directory = sys.argv[1:4]
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(own)
    listener.listen(8)
    sessions, count = {}, 0
    while True:
        ready, _, _ = select.select([sys.stdin, listener, *sessions], [], [])
        if sys.stdin in ready:
            return
        for source in ready:
            if source is listener:
                count += 1
                session = Session(count, listener.accept()[0], wire.connect(daemon))
                sessions[session.client] = sessions[session.daemon] = session
            elif source in sessions and not sessions[source].forward(source, directory):
                session = sessions[source]
                for sock in (session.client, session.daemon):
                    del sessions[sock]
                    sock.close()


main()
