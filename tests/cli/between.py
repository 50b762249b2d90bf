"""between.py LISTEN DAEMON OLD=NEW...: stands between a program and a daemon, and puts other bytes
in place of some in what the program says: a request that the daemon does not know, another
release.  OLD and NEW are equally long, because messages tell the length of each name.  With no NEW
a message that has OLD is not passed on, and OLD is printed.  It ends with its standard input."""
import os
import select
import socket
import sys


def carry(source, target, changes):
    """Returns False when the source has ended."""
    try:
        data = source.recv(1 << 20)
        for old, new in changes:
            if not new and old in data:
                print(old.decode(), flush=True)
                return True
            data = data.replace(old, new)
        target.sendall(data)
    except OSError:
        return False
    return bool(data)


def main():
    changes = [tuple(part.encode() for part in change.split("=")) for change in sys.argv[3:]]
    assert all(len(new) in (0, len(old)) for old, new in changes), changes
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # The name appears once the socket listens: a test waits for the name.
    listener.bind(sys.argv[1] + ".new")
    listener.listen()
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    pairs = []
    while True:
        ends = [end for pair in pairs for end in pair]
        ready = select.select([listener, sys.stdin] + ends, [], [])[0]
        if sys.stdin in ready and not os.read(sys.stdin.fileno(), 1):
            return
        if listener in ready:
            daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            daemon.connect(sys.argv[2])
            pairs.append((listener.accept()[0], daemon))
        for program, daemon in list(pairs):
            if (program in ready and not carry(program, daemon, changes)) or \
                    (daemon in ready and not carry(daemon, program, [])):
                program.close()
                daemon.close()
                pairs.remove((program, daemon))


main()
