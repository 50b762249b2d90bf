"""The command kiln of this package, with its daemon and this Python's NVRTC."""
import os
import shutil
import sys

from . import _nvrtc


def folder():
    """Where the programs of the package lie."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def program(name):
    """A program of the package; of a build tree, that of the build; else that of the system."""
    own = os.path.join(folder(), name)
    build = os.path.normpath(os.path.join(os.path.dirname(folder()), "..", "..", "bin", name))
    return next(filter(os.path.exists, (own, build)), None) or shutil.which(name) or own


def run(arguments):
    """Becomes the command."""
    _nvrtc.prepare()
    os.environ.setdefault("KILN_DAEMON", program("kilnd"))
    tool = program("kiln")
    os.execv(tool, [tool, *arguments])


def main():
    """The console script kiln."""
    run(sys.argv[1:])


def daemon():
    """The console script kilnd."""
    _nvrtc.prepare()
    path = program("kilnd")
    os.execv(path, [path, *sys.argv[1:]])
