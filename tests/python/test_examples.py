"""test_examples.py: each program of examples/python runs, and says something."""
import ast
import contextlib
import importlib.util
import io
import os
import runpy
import unittest

import support

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched
FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python")


def absent(path):
    """The modules that a program imports and that are not here."""
    with open(path) as file:
        imports = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Import)]
    names = {alias.name.partition(".")[0] for node in imports for alias in node.names}
    if "torch" in names:
        names.add("kiln.torch")  # gradients
    return [name for name in sorted(names) if importlib.util.find_spec(name) is None]


class Examples(unittest.TestCase):
    pass


def add(name):
    def test(self):
        path = os.path.join(FOLDER, name)
        if absent(path):
            self.skipTest(f"{name} needs {', '.join(absent(path))}: sh scripts/setup.sh --torch")
        # In this process, which has imported torch for other tests: that is most of what they take.
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                runpy.run_path(path, run_name="__main__")
            except SystemExit as end:
                self.assertIn(end.code, (None, 0))
        self.assertNotEqual(printed.getvalue(), "")

    setattr(Examples, "test_" + name[:-3], test)


for _name in sorted(os.listdir(FOLDER)):
    if _name.endswith(".py"):
        add(_name)
assert support.SOCKET == os.environ["KILN_SOCKET"]  # the programs have the daemon of the tests
