"""test_surroundings.py: daemons of other releases, a home that takes no files, and another user."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock

from support import SOCKET, daemon_pid, kiln, numpy, rand, run

ANSWER = ("import kiln, numpy\n"
          "x = numpy.arange(12, dtype='f4').reshape(3, 4)\n"
          "print(kiln.softmax(x).sum() == 3)\n")
# It has the same length, so that it can be written over the version within a program.
OTHER_VERSION = "0.1.9"


class Place(unittest.TestCase):
    """A test with a folder of its own, whose daemon ends with it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kiln-place-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.socket = os.path.join(self.folder, "kiln.sock")
        self.cache = os.path.join(self.folder, "cache")

    def path(self, name):
        return os.path.join(self.folder, name)

    def end_daemon(self, socket):
        """Asks the daemon to end, and waits until it has."""
        try:
            pid = kiln.Client(socket, autostart=False).request("info")["server"]["pid"]
        except kiln.Error:
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and os.path.exists(socket):
            time.sleep(0.01)


@unittest.skipUnless("KILN_DAEMON" in os.environ, "KILND does not name the daemon to copy")
class Releases(Place):
    def other_release(self):
        """A copy of kilnd of which another release was written over the version."""
        with open(os.environ["KILN_DAEMON"], "rb") as file:
            program = file.read()
        version = kiln.__version__.encode() + b"\0"
        self.assertIn(version, program)
        path = self.path("kilnd")
        with open(path, "wb") as file:
            file.write(program.replace(version, OTHER_VERSION.encode() + b"\0"))
        os.chmod(path, 0o755)
        return path

    def test_daemon_of_another_release(self):
        daemon = subprocess.Popen(
            [self.other_release(), "--socket", self.socket, "--cache-dir", self.cache,
             "--device", "cpu"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait, 60)
        self.addCleanup(daemon.terminate)
        deadline = time.monotonic() + 60
        while not os.path.exists(self.socket) and time.monotonic() < deadline:
            time.sleep(0.01)
        # The daemon that the client starts has this one's cache: that of the run has its owner.
        place = unittest.mock.patch.dict(os.environ, KILN_CACHE_DIR=self.cache)
        place.start()
        self.addCleanup(place.stop)
        x = rand((3, 4))
        with kiln.Client(self.socket, "cpu") as client:
            first = kiln.softmax(x)
            server = client.request("info")["server"]
            self.assertEqual((server["version"], server["pid"]), (OTHER_VERSION, daemon.pid))
            # The other release goes; the next call starts the one of this package.
            daemon.terminate()
            self.assertEqual(daemon.wait(60), 0)
            self.addCleanup(self.end_daemon, self.socket)
            numpy.testing.assert_array_equal(kiln.softmax(x), first)
            self.assertEqual(client.request("info")["server"]["version"], kiln.__version__)


class Homes(Place):
    # Nobody makes a folder there, root neither.
    HOME = {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": "",
            "XDG_RUNTIME_DIR": ""}

    def test_a_cache_elsewhere(self):
        self.addCleanup(self.end_daemon, self.socket)
        seen = run(ANSWER, KILN_SOCKET=self.socket, KILN_CACHE_DIR=self.cache, **self.HOME)
        self.assertEqual(seen, "True\n")

    def test_no_cache(self):
        said = run(ANSWER.replace("print", "try: print") +
                   "except kiln.ConnectionLost as error: print(error)\n",
                   KILN_SOCKET=self.socket, KILN_CACHE_DIR="", **self.HOME)
        self.assertRegex(said, f"kilnd .* {self.socket} ended at once: the cache directory "
                         "/proc/nowhere/.* cannot be made")

    def test_a_cache_of_another_daemon(self):
        cache = kiln.Client().request("info")["cache"]["directory"]
        with unittest.mock.patch.dict(os.environ, KILN_CACHE_DIR=cache), \
                self.assertRaises(kiln.ConnectionLost) as caught:
            kiln.Client(self.socket, "cpu").device
        self.assertIn(f" ended at once: the cache directory {cache} is in use "
                      f"by the process with pid {daemon_pid()}: ", str(caught.exception))

    def test_a_socket_in_no_directory(self):
        for path in [self.path("nowhere/kiln.sock"), "/nonexistent/a/kiln.sock"]:
            with self.assertRaisesRegex(ValueError, f"directory {os.path.dirname(path)} of .* {path}"):
                kiln.connect(path)
            self.assertFalse(os.path.exists(os.path.dirname(path)))
        os.mkdir(self.path("there"))
        with self.assertRaisesRegex(ConnectionError, "/nonexistent/kilnd.* cannot be started: No such"):
            kiln.connect(self.path("there/kiln.sock"), daemon="/nonexistent/kilnd")
        self.assertEqual(os.listdir(self.path("there")), [])


@unittest.skipUnless("KILN_DAEMON" in os.environ, "KILND does not name the daemon to copy")
class Users(Place):
    OTHER = 65534
    # The interpreter and the package may lie where another user cannot read: they are loaded before.
    BECOME = ("import json, os, signal, kiln, numpy\n"
              "numpy.ones(3, 'f4').sum()\n"
              f"os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER})\n")

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        super().setUp()
        os.chown(self.folder, self.OTHER, self.OTHER)
        self.daemon = shutil.copy(os.environ["KILN_DAEMON"], self.path("kilnd"))

    def test_own_daemon(self):
        kiln.softmax(rand((2, 2)))
        said = run(self.BECOME + ANSWER +
                   "server = kiln.Client().request('info')['server']\n"
                   "print(server['pid'], os.stat(f'/proc/{server[\"pid\"]}').st_uid)\n"
                   "os.kill(server['pid'], signal.SIGTERM)\n",
                   KILN_SOCKET=self.socket, KILN_CACHE_DIR=self.cache, HOME=self.folder,
                   KILN_DAEMON=self.daemon)
        right, pid, user = said.split()
        self.assertEqual((right, int(user)), ("True", self.OTHER))
        self.assertNotEqual(int(pid), daemon_pid())

    def test_anothers_daemon(self):
        kiln.softmax(rand((2, 2)))
        # The files' rights are opened, so that the daemon's own refusal is seen.
        for path, rights in [(os.path.dirname(SOCKET), 0o755), (SOCKET, 0o666)]:
            self.addCleanup(os.chmod, path, os.stat(path).st_mode & 0o777)
            os.chmod(path, rights)
        said = run(self.BECOME +
                   "try:\n"
                   "    kiln.softmax(numpy.ones((2, 2), 'f4'))\n"
                   "except kiln.Error as error:\n"
                   "    print(error.status, error)\n", KILN_SOCKET=SOCKET, HOME=self.folder)
        self.assertRegex(said, r"^KILN_\w+ .*(user|uid)")
        # Its own user has it still.
        numpy.testing.assert_allclose(kiln.softmax(rand((2, 2))).sum(-1), 1, rtol=1e-5)
