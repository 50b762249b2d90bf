"""test_docs.py: the Python of docs/python.md runs, from the page's top to its end, and prints what
the comments behind its print() say."""
import contextlib
import importlib.util
import io
import os
import re
import unittest

import support  # noqa: F401

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "python.md")


class Docs(unittest.TestCase):
    def test_python(self):
        with open(PAGE) as file:
            pieces = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
        self.assertGreater(len(pieces), 3)
        names = {}
        for piece in pieces:
            imports = ", ".join(re.findall(r"^import (.*)$", piece, re.M)).split(", ")
            needed = [name for name in imports if name and importlib.util.find_spec(name) is None]
            if needed:
                self.skipTest(f"no {needed[0]} from here on: sh scripts/setup.sh --torch\n{piece}")
            with self.subTest(piece):
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(piece, PAGE, "exec"), names)
                said = re.findall(r"^ *print\(.*\)  # (.*)$", piece, re.M)
                self.assertEqual(len(said), piece.count("print("), "a print() that does not say what")
                self.assertEqual(printed.getvalue().splitlines(), said)
