"""The headers that a source includes: found as a compiler finds them, and read."""
import os
import re
import sys

from ._errors import InvalidArgument, OutOfMemory

MOST = {"headers": 32, "source": 1 << 20, "all": 4 << 20}  # of one kernel, as the daemon has it
# Headers that the daemon has itself, in a short form, unless a folder has them.
_STANDARD = {"stdint.h", "cstdint", "stddef.h", "cstddef", "float.h", "cfloat", "limits.h",
             "climits", "math.h", "cmath", "stdio.h", "cstdio", "cuda_fp16.h", "cuda_bf16.h",
             "cuda_runtime.h"}

# A comment, or a text in quotes, which may look like a comment.
_TOKEN = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)|R"(?P<raw>[^\s()\\]{0,16})\(.*?\)(?P=raw)"'
                    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)
_DIRECTIVE = re.compile(r'[ \t]*#[ \t]*include[ \t]*\Z')


def _includes(text):
    """The names that a source includes, each with whether it stands in quotes."""
    def blank(match):
        token = match[0]
        if token[0] == "/":
            return " " + "\n" * token.count("\n")
        line = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        return token if token[0] == '"' and _DIRECTIVE.match(line) else '""'

    plain = _TOKEN.sub(blank, text)
    return [(match[1] or match[2], match[1] is not None) for match in _INCLUDE.finditer(plain)]


def _toolkit():
    """Folders with the headers of CUDA: of a toolkit, or of the packages that NVRTC comes with."""
    roots = [os.environ.get(name) for name in ("KILN_CUDA_DIR", "CUDA_HOME", "CUDA_PATH")]
    roots += [os.path.join(folder or ".", "nvidia", package)
              for folder in sys.path for package in ("cu13", "cuda_runtime")]
    roots.append("/usr/local/cuda")
    for root in roots:
        folder = os.path.join(root, "include") if root else ""
        if folder and os.path.isfile(os.path.join(folder, "cuda.h")):
            return [folder, os.path.join(folder, "cccl")]
    return []


def _read(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{path} is no UTF-8 text") from None
    return text


class Headers:
    """The headers of one source, found as a compiler finds them."""

    def __init__(self, folders, given):
        self.folders = [os.fspath(folder) for folder in folders]
        self.toolkit = None  # looked for when nothing else has a header
        self.texts = dict(given)  # by the name that an #include has
        self.paths = {}

    def _find(self, name, folder):
        """The path of a header, or None.  folder: of the file that includes it, in quotes."""
        for place in ([folder] if folder else []) + self.folders:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                return path
        if name in _STANDARD:
            return None
        if self.toolkit is None:
            self.toolkit = _toolkit()
        for place in self.toolkit:
            path = os.path.join(place, name)
            if os.path.isfile(path):
                return path
        return None

    def add(self, text, folder, of):
        """Adds all that a text includes; of: what messages call it."""
        waiting = [(text, folder, of)]
        while waiting:
            text, folder, of = waiting.pop()
            for name, quoted in _includes(text):
                found = self._find(name, folder if quoted else None)
                if name in self.texts:
                    # A name stands for one file, whoever includes it.
                    if found and self.paths.get(name) and \
                            not os.path.samefile(found, self.paths[name]):
                        raise InvalidArgument(
                            f"{of} includes {name}, which is {found} there and "
                            f"{self.paths[name]} elsewhere: one of them needs another name")
                    if name not in self.paths:
                        self.paths[name] = None
                        waiting.append((self.texts[name], None, name))
                elif found:
                    self.paths[name] = found
                    self.texts[name] = _read(found)
                    self.check()
                    waiting.append((self.texts[name], os.path.dirname(found), found))
        return self.texts

    def check(self):
        """Are they as few, and as short, as a kernel may bring?"""
        size = sum(len(text) for text in self.texts.values())
        if len(self.texts) > MOST["headers"] or size > MOST["all"]:
            first = next((name for name, path in self.paths.items() if path), "")
            raise OutOfMemory(
                f"the source includes more than {MOST['headers']} headers or {MOST['all'] >> 20} "
                f"MiB of them, beginning with {first}: include less, or one header that has it all",
                "KILN_ELIMIT")
