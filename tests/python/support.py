"""support.py: a daemon of the tests' own, and what the tests compare with."""
import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

# A process that a test starts has the daemon of the test.
_owner = os.getpid() if "KILN_PYTHON_TESTS" not in os.environ else None
_folder = os.environ.setdefault("KILN_PYTHON_TESTS", "") or tempfile.mkdtemp(prefix="kiln-python-")
os.environ["KILN_PYTHON_TESTS"] = _folder
SOCKET = os.path.join(_folder, "kiln.sock")
os.environ["KILN_SOCKET"] = SOCKET
os.environ.setdefault("KILN_CACHE_DIR", os.path.join(_folder, "cache"))
if os.environ.get("KILND"):
    os.environ["KILN_DAEMON"] = os.environ["KILND"]

import kiln  # noqa: E402
import numpy  # noqa: E402

FLOATS = {"f2": 2e-3, "f4": 2e-6, "f8": 1e-14}


def rand(shape, dtype="f4", seed=7):
    """Normal numbers of a shape."""
    return numpy.random.default_rng(seed).standard_normal(shape).astype(dtype)


def daemon_pid():
    """The process of the daemon that answers."""
    rows = kiln.Client(autostart=False).request("info")
    return rows["server"]["pid"]


def daemon_pids():
    """The same, and its children."""
    pid = daemon_pid()
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return [pid, *map(int, children.read().split())]


def kill_daemon():
    """Kills the daemon as a crash would, and waits until it and its processes are gone."""
    pids = daemon_pids()
    os.kill(pids[0], signal.SIGKILL)
    deadline = time.monotonic() + 120
    while any(is_there(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise AssertionError(f"the daemon {pids[0]} or one of its processes is still there")
        time.sleep(0.01)


def is_there(pid):
    """Whether a process has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def run(source, **variables):
    """Runs a program of Python with the same package and daemon: what it printed."""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True,
                          timeout=300, env=dict(os.environ, **variables))
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def _end():
    if os.getpid() != _owner:
        return
    try:
        os.kill(daemon_pid(), signal.SIGTERM)
    except (kiln.Error, OSError):
        pass
    shutil.rmtree(_folder, ignore_errors=True)


atexit.register(_end)


class Case(unittest.TestCase):
    """A test that compares arrays."""

    def close(self, got, expected, dtype, factor=1.0):
        """Is each element as near as its type allows?"""
        tolerance = FLOATS[numpy.dtype(dtype).str[1:]] * factor
        self.assertEqual(got.dtype, numpy.dtype(dtype))
        self.assertEqual(got.shape, expected.shape)
        numpy.testing.assert_allclose(got.astype("f8"), expected, rtol=tolerance, atol=tolerance)
