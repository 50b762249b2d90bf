"""python -m kiln info | devices | warm MANIFEST...: what this package is, has and can warm."""
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


def main(arguments):
    command = arguments[0] if arguments else ""
    if command == "info" and len(arguments) == 1:
        info()
    elif command in ("devices", "warm"):
        Client().device  # the command itself may not start a daemon
        _tool.run(arguments)
    else:
        print("usage: python -m kiln info | devices | warm MANIFEST...", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
