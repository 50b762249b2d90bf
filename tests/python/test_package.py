"""test_package.py: importing, the commands, and the stubs."""
import ast
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from support import kiln, run


class Package(unittest.TestCase):
    def test_import_loads_nothing(self):
        seen = run("import sys, kiln\n"
                   "print([name for name in ('numpy', 'torch', 'json', 'cupy') if name in sys.modules])")
        self.assertEqual(seen, "[]\n")

    def test_import_is_quick(self):
        times = [float(run("import time; t = time.process_time(); import kiln; "
                           "print(time.process_time() - t)")) for _ in range(5)]
        self.assertLess(min(times), 0.030)

    def test_what_is_done_once_a_module_is_loaded(self):
        from kiln import _late

        seen = []
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder]):
            _late._watch("late_one", seen.append)
            self.assertIsNone(importlib.util.find_spec("late_one"))
            path = os.path.join(folder, "late_one.py")
            with open(path, "w") as file:
                file.write("import sys\nsys.late_one_tries += 1\n1 / (sys.late_one_tries - 1)\n")
            importlib.invalidate_caches()
            self.assertEqual(importlib.util.find_spec("late_one").origin, path)
            with mock.patch.object(sys, "late_one_tries", 0, create=True):
                self.assertRaises(ZeroDivisionError, importlib.import_module, "late_one")
                self.assertEqual(seen, [])
                importlib.import_module("late_one")
        self.assertEqual(seen, [sys.modules.pop("late_one")])
        self.assertFalse([one for one in sys.meta_path if getattr(one, "name", "") == "late_one"])

    def test_info(self):
        done = subprocess.run([sys.executable, "-m", "kiln", "info"], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(kiln.__version__, done.stdout)
        self.assertIn("device", done.stdout)

    def test_devices(self):
        done = subprocess.run([sys.executable, "-m", "kiln", "devices"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cpu", done.stdout)

    def test_usage(self):
        # Help needs no daemon, and starts none.
        place = dict(os.environ, KILN_SOCKET="/nonexistent/kiln.sock")
        for arguments, status, words in [
                (["nonsense"], 2, "no command"), ([], 2, "usage:"), (["info", "x"], 2, "usage:"),
                (["--help"], 0, "usage:"), (["-h"], 0, "usage:"), (["info", "--help"], 0, "usage:"),
                (["devices", "--help"], 0, "usage:"), (["warm", "-h"], 0, "usage:"),
                (["status", "--help"], 0, "usage:"), (["help"], 0, "stop the daemon"),
                (["status"], 1, "no kilnd answers")]:
            done = subprocess.run([sys.executable, "-m", "kiln", *arguments], capture_output=True,
                                  text=True, timeout=60, env=place)
            self.assertEqual(done.returncode, status, (arguments, done.stdout, done.stderr))
            self.assertIn(words, done.stderr if status else done.stdout)
        done = subprocess.run([sys.executable, "-OO", "-m", "kiln", "info", "-h"],
                              capture_output=True, text=True, timeout=60)
        self.assertIn("which daemon answers", done.stdout + done.stderr)

    def test_programs_of_the_package(self):
        # The console scripts of a wheel call these.
        for name, function in [("kiln", "main"), ("kilnd", "daemon")]:
            done = subprocess.run([sys.executable, "-c", f"from kiln import _tool; _tool.{function}()",
                                   "--version"], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout.split()[:2]),
                             (0, [name, kiln.__version__]))

    def test_stubs_have_all(self):
        folder = os.path.dirname(kiln.__file__)
        self.assertTrue(os.path.exists(os.path.join(folder, "py.typed")))
        with open(os.path.join(folder, "_operators.pyi")) as file:
            stubs = {node.name for node in ast.parse(file.read()).body
                     if isinstance(node, ast.FunctionDef)}
        from kiln import _operators
        self.assertEqual(stubs, set(_operators.__all__))
