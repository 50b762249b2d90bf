"""python -m kiln COMMAND: what this package is, and the commands of kiln, wherever PATH leads."""
import os
import sys

from . import __version__, _nvrtc, _tool
from ._client import Client
from ._errors import Error


def info():
    """What this package is, which NVRTC a daemon finds, and which daemon answers."""
    rows = [("kiln", __version__), ("package", os.path.dirname(_tool.folder())),
            ("kilnd", _tool.program("kilnd")), ("python", sys.version.split()[0]),
            ("nvrtc", (_nvrtc.find() or (None, "of a toolkit or the loader, if any"))[1])]
    try:
        client = Client()
        rows += [("device", client.device),
                 ("daemon", client.request("info")["server"].get("version", ""))]
    except Error as error:
        rows.append(("daemon", str(error)))
    for name, value in rows:
        print(f"{name:10} {value}")


USAGE = """usage: python -m kiln COMMAND [ARGUMENT]...

info             what this package is, which NVRTC a daemon finds, and which daemon answers
devices          the devices of the daemon, which is started if none runs
warm [MANIFEST]  compile what a manifest lists, by the daemon, which is started if none runs
COMMAND          any other of the command kiln: status, stop, cache, ...; `python -m kiln help`

python -m kiln COMMAND --help explains one and exits.
"""
INFO = """usage: python -m kiln info

What this package is, which NVRTC a daemon finds, and which daemon answers."""


def main(arguments):
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    asks = any(word in ("-h", "--help") for word in rest)
    if command in ("-h", "--help"):
        print(USAGE, end="")
    elif not command or (command == "info" and rest and not asks):
        print(USAGE, end="", file=sys.stderr)
        return 2
    elif command == "info" and asks:
        print(INFO)
    elif command == "info":
        info()
    else:
        if command in ("devices", "warm") and not asks:
            Client().device  # the command itself may not start a daemon
        _tool.run(["--help" if word == "-h" else word for word in arguments])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
